//! What the server counts, as text for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The upper ends of what answers are sorted into by how long they took, in seconds.
const SECONDS: [f64; 12] = [1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 0.1, 0.5, 2.5, 10.0];

/// The counts of one server.
#[derive(Default)]
pub(crate) struct Metrics {
    answers: Mutex<BTreeMap<u16, u64>>,
    buckets: [AtomicU64; SECONDS.len()],
    answered: AtomicU64,
    nanoseconds: AtomicU64,
    runs: AtomicU64,
    batched: AtomicU64,
    /// Answers whose connection ended since they were not taken in time.
    cut: AtomicU64,
    /// Requests that are read or computed.
    pub(crate) active: AtomicUsize,
    /// Connections that are open.
    pub(crate) connections: AtomicUsize,
}

/// One more of something, for as long as it lives.
pub(crate) struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    pub(crate) fn new(count: &'a AtomicUsize) -> Counted<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// An answer with this status.
    pub(crate) fn answer(&self, status: u16) {
        *self.answers.lock().unwrap_or_else(PoisonError::into_inner).entry(status).or_default() += 1;
    }

    /// A request to run the model, from when its head was read until its answer was there, whatever it is.
    pub(crate) fn took(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.buckets.iter().zip(SECONDS).filter(|(_, end)| seconds <= *end).for_each(|(bucket, _)| {
            bucket.fetch_add(1, Ordering::Relaxed);
        });
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// A run of the model for so many requests.
    pub(crate) fn batch(&self, requests: usize) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.batched.fetch_add(requests as u64, Ordering::Relaxed);
    }

    /// An answer that was not taken in time.
    pub(crate) fn cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, lines: &[(String, f64)]| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (line, value) in lines {
                let _ = writeln!(text, "{name}{line} {value}");
            }
        };
        let one = |value: f64| vec![(String::new(), value)];
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed) as f64;
        let now = |count: &AtomicUsize| count.load(Ordering::Relaxed) as f64;
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answers = answers.iter().map(|(status, count)| (format!("{{code=\"{status}\"}}"), *count as f64));
        family(
            "serve_answers_total",
            "counter",
            "Answers to all requests, by status.",
            &answers.collect::<Vec<_>>(),
        );
        let buckets = SECONDS.iter().zip(&self.buckets);
        let mut lines: Vec<(String, f64)> =
            buckets.map(|(end, bucket)| (format!("_bucket{{le=\"{end}\"}}"), count(bucket))).collect();
        lines.push(("_bucket{le=\"+Inf\"}".into(), count(&self.answered)));
        lines.push(("_sum".into(), count(&self.nanoseconds) / 1e9));
        lines.push(("_count".into(), count(&self.answered)));
        family(
            "serve_request_seconds",
            "histogram",
            "From the head of a POST to /run to its answer, of any status.",
            &lines,
        );
        family(
            "serve_runs_total",
            "counter",
            "Runs of the model, also those that fail.",
            &one(count(&self.runs)),
        );
        family("serve_run_requests_total", "counter", "Requests in these runs.", &one(count(&self.batched)));
        family(
            "serve_answers_cut_total",
            "counter",
            "Answers that were not taken in time.",
            &one(count(&self.cut)),
        );
        family("serve_active_requests", "gauge", "Requests read or computed.", &one(now(&self.active)));
        family("serve_connections", "gauge", "Connections.", &one(now(&self.connections)));
        if let Some(bytes) = resident() {
            let help = "Resident memory.";
            family("process_resident_memory_bytes", "gauge", help, &one(bytes as f64));
        }
        text
    }
}

/// How many bytes of the process are in memory, as Linux says.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
}
