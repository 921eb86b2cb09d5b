//! Programs that hang: each is ended with all that it has started, and asked for its stacks before.

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use std::{fs, iter};

use anyhow::Result;

/// How long a program may take for its last words.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Ends a program and what it has started. Returns what is said in the end: pytest tells the stacks of all its threads.
pub(crate) fn end(child: &mut Child, receiver: &Receiver<String>) -> Result<Vec<String>> {
    end_after(child, receiver, LAST_WORDS)
}

fn end_after(child: &mut Child, receiver: &Receiver<String>, last_words: Duration) -> Result<Vec<String>> {
    // Its number is its own until it has been waited for.
    let number = child.id();
    let mut family = vec![Process { number, began: stat(number).map_or(0, |(process, _)| process.began) }];
    grow(&mut family);
    let mut lines = Vec::new();
    let mut listen = || {
        let since = Instant::now();
        let left = || last_words.checked_sub(since.elapsed());
        lines.extend(iter::from_fn(|| receiver.recv_timeout(left()?).ok()));
    };
    send("-ABRT", &family)?;
    listen();
    // Some have ended meanwhile, and their numbers may be others' by now; some have started more. Who is stopped starts none.
    loop {
        grow(&mut family);
        let stopped = family.clone();
        send("-STOP", &stopped)?;
        grow(&mut family);
        if family == stopped {
            break;
        }
    }
    send("-KILL", &family)?;
    listen();
    child.wait()?;
    Ok(lines)
}

fn send(signal: &str, family: &[Process]) -> Result<()> {
    let mut kill = Command::new("sh");
    kill.args(["-c", "kill \"$@\"", "kill", signal]);
    kill.args(family.iter().map(|process| process.number.to_string()));
    // Those that have ended meanwhile are no failure.
    kill.stderr(Stdio::null()).status()?;
    Ok(())
}

/// A process: the system gives its number to another one when it has ended, which began later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    number: u32,
    /// In ticks of the system's clock.
    began: u64,
}

/// Leaves out the processes that have ended, and adds all that the others have started.
fn grow(family: &mut Vec<Process>) {
    let processes = processes();
    if processes.is_empty() {
        // A system without `/proc`: nothing but the first is known.
        return;
    }
    family.retain(|process| processes.iter().any(|(there, _)| there == process));
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        for (process, _) in processes.iter().filter(|(_, number)| *number == parent.number) {
            if !family.contains(process) {
                family.push(*process);
            }
        }
        next += 1;
    }
}

/// Each process, and the number of its parent.
fn processes() -> Vec<(Process, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// A process, and the number of its parent.
fn stat(number: u32) -> Option<(Process, u32)> {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // Number, name in parentheses, which may have some itself, state, parent; the time is the 22nd of all.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((Process { number, began: fields.get(19)?.parse().ok()? }, fields.get(1)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn family(first: u32) -> Vec<Process> {
        let mut family: Vec<Process> = stat(first).map(|(process, _)| process).into_iter().collect();
        grow(&mut family);
        family
    }

    /// Those that are nobody's children any more may be there until somebody asks for their status, but do not run.
    fn runs(process: &Process) -> bool {
        let text = fs::read_to_string(format!("/proc/{}/stat", process.number));
        stat(process.number).is_some_and(|(there, _)| there == *process)
            && text.is_ok_and(|text| !text.contains(") Z"))
    }

    fn wait_until(what: impl Fn() -> bool) {
        let since = Instant::now();
        while !what() {
            assert!(since.elapsed() < LAST_WORDS);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_a_program_has_started_ends_with_it() {
        let mut child = Command::new("sh").args(["-c", "sleep 600 & sleep 600; true"]).spawn().unwrap();
        let started = child.id();
        wait_until(|| family(started).len() >= 3);
        let all = family(started);
        let (sender, receiver) = mpsc::channel();
        sender.send("a stack".to_owned()).unwrap();
        drop(sender);
        assert_eq!(end(&mut child, &receiver).unwrap(), ["a stack"]);
        assert!(family(started).is_empty());
        wait_until(|| !all.iter().any(runs));
    }

    #[test]
    fn so_does_what_it_starts_when_it_is_asked_for_its_stacks() {
        let folder = std::env::temp_dir().join(format!("opsmith-xtask-hang-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (ready, late) = (folder.join("ready"), folder.join("late"));
        let script = "trap 'sleep 601 & echo $! > \"$2\"' ABRT; echo > \"$1\"; while :; do sleep 600; done";
        let arguments = ["-c", script, "sh"].map(std::ffi::OsStr::new);
        let mut command = Command::new("sh");
        let mut child = command.args(arguments).args([&ready, &late]).spawn().unwrap();
        wait_until(|| ready.exists() && family(child.id()).len() == 2);
        // Nobody says anything, but somebody could: the time for last words is waited for.
        let (_sender, receiver) = mpsc::channel();
        end_after(&mut child, &receiver, Duration::from_secs(1)).unwrap();
        let number: u32 = fs::read_to_string(&late).unwrap().trim().parse().unwrap();
        wait_until(|| stat(number).is_none_or(|(process, _)| !runs(&process)));
        fs::remove_dir_all(&folder).unwrap();
    }
}
