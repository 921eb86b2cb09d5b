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
    let family = family(child.id());
    let mut lines = Vec::new();
    for signal in ["-ABRT", "-KILL"] {
        let mut kill = Command::new("sh");
        kill.args(["-c", "kill \"$@\"", "kill", signal]).args(family.iter().map(u32::to_string));
        // Those that have ended meanwhile are no failure.
        kill.stderr(Stdio::null()).status()?;
        let since = Instant::now();
        let left = || LAST_WORDS.checked_sub(since.elapsed());
        lines.extend(iter::from_fn(|| receiver.recv_timeout(left()?).ok()));
    }
    child.wait()?;
    Ok(lines)
}

/// A process and all that it has started, by their numbers.
fn family(first: u32) -> Vec<u32> {
    let mut family = vec![first];
    let processes = processes();
    let mut next = 0;
    while let Some(&parent) = family.get(next) {
        family.extend(processes.iter().filter(|process| process.1 == parent).map(|process| process.0));
        next += 1;
    }
    family
}

/// The number of each process and that of its parent.
fn processes() -> Vec<(u32, u32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let stat = |number: u32| {
        let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // Number, name in parentheses, which may have some itself, state, parent.
        let parent = text.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        Some((number, parent.parse().ok()?))
    };
    entries.filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn what_a_program_has_started_ends_with_it() {
        let script = "sleep 600 & sleep 600; true";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let started = child.id();
        while family(started).len() < 3 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let all = family(started);
        let (sender, receiver) = mpsc::channel();
        sender.send("a stack".to_owned()).unwrap();
        drop(sender);
        assert_eq!(end(&mut child, &receiver).unwrap(), ["a stack"]);
        let left: Vec<u32> = processes().into_iter().map(|process| process.0).collect();
        assert!(!left.contains(&started));
        // Those that are nobody's children any more may be there until somebody asks for their status, but do not run.
        let runs = |number: &u32| {
            fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|text| !text.contains(") Z"))
        };
        let since = Instant::now();
        while all.iter().any(runs) {
            assert!(since.elapsed() < LAST_WORDS, "{all:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
