//! Which steps run at the same time.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use opsmith_core::Result;

use super::op_call::Given;
use super::step::{Step, cancelled};
use crate::poison::Unpoisoned;

/// How many steps ahead are looked at: enough to find what can run beside a long step, few enough that memory is not
/// filled with what is needed much later.
const LOOK_AHEAD: usize = 64;

/// A step that takes at least as many microseconds is worth a thread.
const LONG: u32 = 30;

/// One that reads at least as many elements is taken to be long before it was measured.
const LARGE: usize = 32 << 10;

/// Steps that run at the same time.
pub(super) struct Batch {
    pub(super) steps: Vec<usize>,
}

/// The step `first`, and what is worth running beside it: later steps that are ready and long.
pub(super) fn next_batch(
    steps: &[Step],
    first: usize,
    done: &[bool],
    size: impl Fn(&Step) -> usize,
) -> Batch {
    let is_long = |step: &Step| {
        let cost = step.cost.load(Ordering::Relaxed);
        step.may_run_beside() && if cost == 0 { size(step) >= LARGE } else { cost >= LONG }
    };
    let mut batch = Batch { steps: vec![first] };
    if !is_long(&steps[first]) {
        return batch;
    }
    let ahead = (first + 1)..steps.len().min(first + 1 + LOOK_AHEAD);
    batch.steps.extend(ahead.filter(|&index| {
        let step = &steps[index];
        !done[index] && step.needs.iter().all(|&needed| done[needed]) && is_long(step)
    }));
    batch
}

impl Batch {
    /// Runs `body` for each step, on as many threads as there are and may be, and gives what each gave.
    ///
    /// # Errors
    /// The first that a step gave; steps that have not begun by then do not run.
    pub(super) fn run(
        &self,
        threads: Option<NonZeroUsize>,
        body: impl Fn(usize) -> Result<Given> + Sync,
    ) -> Result<Vec<Given>> {
        let failed = AtomicBool::new(false);
        let results: Vec<Mutex<Option<Result<Given>>>> =
            self.steps.iter().map(|_| Mutex::default()).collect();
        let threads = threads.map_or(usize::MAX, NonZeroUsize::get);
        opsmith_threads::parallel_for_on(threads, self.steps.len(), 1, &|range| {
            for at in range {
                let result =
                    if failed.load(Ordering::Relaxed) { Err(cancelled()) } else { body(self.steps[at]) };
                failed.fetch_or(result.is_err(), Ordering::Relaxed);
                *results[at].lock().unpoisoned() = Some(result);
            }
        });
        let mut given = Vec::with_capacity(results.len());
        let mut error = None;
        for result in results {
            match result.into_inner().unpoisoned().unwrap_or_else(|| Err(cancelled())) {
                Ok(tensors) => given.push(tensors),
                Err(new) if error.is_none() || is_cancelled(error.as_ref()) => error = Some(new),
                Err(_) => {}
            }
        }
        error.map_or(Ok(given), Err)
    }
}

fn is_cancelled(error: Option<&opsmith_core::Error>) -> bool {
    error.is_some_and(|error| *error == cancelled())
}
