//! A server in a process of its own, and a client that can misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use opsmith_runtime::Graph;
use serde_json::Value;

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A server, which ends when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    _folder: tempfile::TempDir,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

/// A library of an example: Cargo puts it beside the programs of the tests, since they depend on it.
pub(crate) fn library(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(format!("lib{name}.so"))
}

impl Server {
    /// Serves an output `y` of a graph.
    pub(crate) fn start(graph: &Graph, options: &[&str]) -> Server {
        Server::limited(graph, options, "true")
    }

    /// As [`start`](Self::start), after a command of the shell, which may set limits for the process.
    pub(crate) fn limited(graph: &Graph, options: &[&str], first: &str) -> Server {
        let (mut command, folder) = Server::command(graph, options, first);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening at http://").expect("it says where it listens");
        Server { address: address.parse().unwrap(), child, _folder: folder }
    }

    fn command(graph: &Graph, options: &[&str], first: &str) -> (Command, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.graph");
        graph.save(&path).unwrap();
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("{first} && exec \"$@\"")).arg("sh").arg(env!("CARGO_BIN_EXE_serve"));
        command.arg(&path).args(["--output", "y"]);
        if !options.contains(&"--listen") {
            command.args(["--listen", "localhost:0"]);
        }
        command.arg("--library").arg(library("distances")).args(options);
        (command, folder)
    }

    /// What a server says that does not start.
    pub(crate) fn refusal(graph: &Graph, options: &[&str]) -> String {
        let (mut command, _folder) = Server::command(graph, options, "true");
        let output = command.output().unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream: BufReader::new(stream) }
    }

    /// Sends a request over a connection of its own.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Answer {
        self.connect().request(method, path, headers, body).expect("there is an answer")
    }

    /// Runs the model on an input `x`.
    pub(crate) fn run(&self, x: &Value) -> Answer {
        self.request("POST", "/run", &[], serde_json::json!({"inputs": {"x": x}}).to_string().as_bytes())
    }

    /// A number among the metrics.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = String::from_utf8(self.request("GET", "/metrics", &[], b"").body).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned));
        value.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }

    pub(crate) fn is_well(&self) {
        let answer = self.request("GET", "/health", &[], b"");
        assert_eq!((answer.status, &answer.body[..]), (200, &br#"{"status":"ok"}"#[..]));
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &process]).status().unwrap().success());
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the server does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Client {
    /// Reads some bytes of an answer.
    pub(crate) fn take(&mut self, most: usize) {
        let _ = std::io::Read::read(&mut self.stream, &mut vec![0; most]);
    }

    /// Sends a request; nothing where the connection ends without an answer.
    pub(crate) fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Option<Answer> {
        let mut text =
            format!("{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n", body.len());
        for header in headers {
            text.push_str(header);
            text.push_str("\r\n");
        }
        text.push_str("\r\n");
        self.send(&[text.as_bytes(), body].concat()).then(|| self.answer_to(method)).flatten()
    }

    /// Writes bytes; whether the connection took them.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Reads an answer; nothing where the connection has ended.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        self.answer_to("POST")
    }

    fn answer_to(&mut self, method: &str) -> Option<Answer> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.stream.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let head = head.to_ascii_lowercase();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.filter(|_| method != "HEAD");
        let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
        self.stream.read_exact(&mut body).ok()?;
        Some(Answer { status, head, body })
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// What an error says.
    pub(crate) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap().to_owned()
    }
}
