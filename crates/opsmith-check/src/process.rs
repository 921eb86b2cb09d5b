//! The other side of [`work`](crate::work): starts the process, asks it, and finds out how it died.

use std::io::{BufRead, BufReader, BufWriter};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use opsmith_core::{Error, Result};

use crate::source::LibrarySource;
use crate::wire::{Answer, Request, receive, send};

/// How to start a program that calls [`work`](crate::work).
pub type Start<'a> = dyn Fn() -> Command + 'a;

/// How a process ended that should not have.
#[derive(Debug, Clone)]
pub(crate) struct Death {
    /// For a person: `crashed by signal 11 (SIGSEGV)`.
    pub(crate) how: String,
}

/// A process that calls ops, started when it is needed, and again after it has died.
pub(crate) struct Process<'a> {
    start: &'a Start<'a>,
    source: LibrarySource,
    threads: Option<usize>,
    limit: Duration,
    running: Option<Running>,
}

struct Running {
    child: Child,
    requests: BufWriter<ChildStdin>,
    answers: Receiver<Vec<Answer>>,
    /// Gives the last line that the process wrote to standard error.
    said: Option<JoinHandle<String>>,
}

impl<'a> Process<'a> {
    /// A process for a library; with `threads`, kernels use so many. A request takes at most `limit`.
    pub(crate) fn new(
        start: &'a Start<'a>,
        source: LibrarySource,
        threads: Option<usize>,
        limit: Duration,
    ) -> Process<'a> {
        Process { start, source, threads, limit, running: None }
    }

    /// The answers to requests, one for each; `Err` when the process died on them.
    ///
    /// # Errors
    /// When the process cannot be started, or cannot open the library.
    pub(crate) fn ask(&mut self, requests: Vec<Request>) -> Result<Result<Vec<Answer>, Death>> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.started()?,
        };
        let answers = running.ask(requests, self.limit);
        match answers {
            Ok(answers) => {
                self.running = Some(running);
                Ok(Ok(answers))
            }
            Err(timeout) => Ok(Err(running.bury(timeout, self.limit))),
        }
    }

    /// Ends the process, if it runs: the next request gets a new one.
    pub(crate) fn end(&mut self) {
        self.running = None;
    }

    fn started(&self) -> Result<Running> {
        let mut command = (self.start)();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(threads) = self.threads {
            command.env("OPSMITH_NUM_THREADS", threads.to_string());
        }
        let cannot =
            |error| Error::internal(format!("the process that calls ops cannot be started: {error}"));
        let mut child = command.spawn().map_err(cannot)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(Error::internal("the process that calls ops has no pipes"));
        };
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            while let Ok(Some(batch)) = receive(&mut stdout) {
                if sender.send(batch).is_err() {
                    return;
                }
            }
        });
        let said = std::thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(std::io::Result::ok);
            lines.filter(|line| !line.trim().is_empty()).last().unwrap_or_default()
        });
        let mut running = Running { child, requests: BufWriter::new(stdin), answers, said: Some(said) };
        let path = self.source.path();
        match running.ask(vec![Request::Open { path }], self.limit) {
            Ok(answers) => match answers.into_iter().next() {
                Some(Answer::Refused(refusal)) => Err(Error::invalid_argument(refusal.message)),
                _ => Ok(running),
            },
            Err(timeout) => {
                let death = running.bury(timeout, self.limit);
                let source = &self.source;
                Err(Error::failed_precondition(format!("{source}: the process that opened it {}", death.how)))
            }
        }
    }
}

impl Running {
    /// The answers; `Err` says whether there was none in time.
    fn ask(&mut self, mut requests: Vec<Request>, limit: Duration) -> Result<Vec<Answer>, bool> {
        send(&mut self.requests, &mut requests).map_err(|_| false)?;
        self.answers.recv_timeout(limit).map_err(|error| error == RecvTimeoutError::Timeout)
    }

    /// Ends the process if it has not ended, and tells how it did.
    fn bury(mut self, hung: bool, limit: Duration) -> Death {
        if hung {
            // It may have ended in this moment, which is as well.
            let _ = self.child.kill();
        }
        let status = self.child.wait();
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let how = match status {
            _ if hung => format!("was not done within {} s", limit.as_secs()),
            Ok(status) => format!("{}{said}", describe(status)),
            Err(error) => format!("was lost: {error}"),
        };
        Death { how }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Nothing is under way, or it is being buried; both calls fail only for a process that is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn describe(status: ExitStatus) -> String {
    let name = |signal| match signal {
        libc::SIGSEGV => " (SIGSEGV: it read or wrote outside its memory)",
        libc::SIGABRT => " (SIGABRT)",
        libc::SIGBUS => " (SIGBUS)",
        libc::SIGILL => " (SIGILL)",
        libc::SIGFPE => " (SIGFPE)",
        libc::SIGKILL => " (SIGKILL)",
        _ => "",
    };
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("crashed by signal {signal}{}", name(signal)),
        (None, Some(code)) => format!("ended the process with status {code}"),
        (None, None) => "ended the process".to_owned(),
    }
}
