//! What ran when: for Chrome's trace viewer, and as a table.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use opsmith_core::Device;
use serde_json::json;

use crate::graph::Node;
use crate::poison::Unpoisoned;

/// What the name of a copy begins with.
const COPY: &str = "CopyTo ";

/// One node's turn in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceEvent {
    /// The node's name.
    pub node: String,
    /// The op that it called; `CopyTo cuda:0`, or `CopyTo cpu`, for what it gave being copied there.
    pub op: String,
    /// Where it was called, or copied to. On a card the time is that until the work was put on its stream.
    pub device: Device,
    /// When it began, from the beginning of the run.
    pub start: Duration,
    /// How long it took; of several values that were copied at once from a device, each its share by bytes.
    pub duration: Duration,
    /// Which of the threads it ran on, from 0.
    pub thread: usize,
    /// The bytes of its outputs.
    pub bytes: usize,
}

/// What ran when in one run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// The nodes that were called, in the order in which they began.
    pub events: Vec<TraceEvent>,
    /// How long the run took.
    pub total: Duration,
}

/// What a step did.
pub(super) enum Did {
    /// It called the node's op.
    Call,
    /// It copied what the node gave.
    Copy,
}

/// Notes what runs.
pub(super) struct Recorder {
    begin: Instant,
    events: Mutex<(Vec<TraceEvent>, Vec<ThreadId>)>,
}

impl Recorder {
    /// Notes a step that has just ended, which began then and gave so many bytes.
    pub(super) fn note(&self, node: &Node, did: Did, device: Device, (begin, bytes): (Instant, usize)) {
        self.note_lasting(node, did, device, (begin, begin.elapsed(), bytes));
    }

    /// As [`note`](Self::note), of what took so long.
    pub(super) fn note_lasting(
        &self,
        node: &Node,
        did: Did,
        device: Device,
        (begin, duration, bytes): (Instant, Duration, usize),
    ) {
        let this_thread = std::thread::current().id();
        let (events, threads) = &mut *self.events.lock().unpoisoned();
        let thread = threads.iter().position(|thread| *thread == this_thread).unwrap_or_else(|| {
            threads.push(this_thread);
            threads.len() - 1
        });
        events.push(TraceEvent {
            node: node.name.clone(),
            op: match did {
                Did::Call => node.kind.name().to_owned(),
                Did::Copy => format!("{COPY}{}", device.name()),
            },
            device,
            start: begin.duration_since(self.begin),
            duration,
            thread,
            bytes,
        });
    }

    /// What was noted.
    pub(super) fn finish(self) -> Trace {
        let (mut events, _) = self.events.into_inner().unpoisoned();
        events.sort_by_key(|event| event.start);
        Trace { events, total: self.begin.elapsed() }
    }
}

impl TraceEvent {
    /// Whether it is a copy to another device, and no call.
    fn is_copy(&self) -> bool {
        self.op.starts_with(COPY)
    }

    /// The op, and where it was called unless that is the CPU, or the op says so itself.
    fn what(&self) -> Cow<'_, str> {
        if self.device == Device::CPU || self.is_copy() {
            return Cow::Borrowed(&self.op);
        }
        Cow::Owned(format!("{} on {}", self.op, self.device.name()))
    }
}

impl Trace {
    pub(super) fn recorder() -> Recorder {
        Recorder { begin: Instant::now(), events: Mutex::default() }
    }

    /// The trace in the JSON that `chrome://tracing` and Perfetto show.
    pub fn to_chrome_json(&self) -> String {
        let microseconds = |time: Duration| time.as_nanos() as f64 / 1000.0;
        let event = |event: &TraceEvent| {
            json!({
                "name": event.op,
                "cat": "op",
                "ph": "X",
                "ts": microseconds(event.start),
                "dur": microseconds(event.duration),
                "pid": 1,
                "tid": event.thread,
                "args": { "node": event.node, "bytes": event.bytes, "device": event.device.name() },
            })
        };
        let events: Vec<_> = self.events.iter().map(event).collect();
        json!({ "traceEvents": events, "displayTimeUnit": "ns" }).to_string()
    }
}

/// A table of the ops: how often each was called, how long it took in all, and how many bytes it made.
impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_op: BTreeMap<Cow<'_, str>, (usize, Duration, usize)> = BTreeMap::new();
        for event in &self.events {
            let (calls, time, bytes) = by_op.entry(event.what()).or_default();
            *calls += 1;
            *time += event.duration;
            *bytes += event.bytes;
        }
        let mut rows: Vec<_> = by_op.into_iter().collect();
        rows.sort_by_key(|(_, (_, time, _))| std::cmp::Reverse(*time));
        let in_ops: Duration = self.events.iter().map(|event| event.duration).sum();
        let width = rows.iter().map(|(op, _)| op.len()).max().unwrap_or(0).max("op".len());
        writeln!(f, "{:width$} {:>8} {:>12} {:>7} {:>14}", "op", "calls", "time (us)", "%", "bytes")?;
        for (op, (calls, time, bytes)) in rows {
            let share = 100.0 * time.as_secs_f64() / in_ops.as_secs_f64().max(f64::MIN_POSITIVE);
            let time = time.as_secs_f64() * 1e6;
            writeln!(f, "{op:width$} {calls:>8} {time:>12.1} {share:>7.1} {bytes:>14}")?;
        }
        let (ops, total) = (in_ops.as_secs_f64() * 1e6, self.total.as_secs_f64() * 1e6);
        let copies = self.events.iter().filter(|event| event.is_copy()).count();
        write!(f, "{} calls", self.events.len() - copies)?;
        if copies > 0 {
            write!(f, " and {copies} copies")?;
        }
        write!(f, " took {ops:.1} us, the run {total:.1} us")
    }
}
