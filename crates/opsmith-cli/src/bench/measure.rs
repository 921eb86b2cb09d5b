//! One op at one size.

use std::time::{Duration, Instant};

use opsmith_check::Sample;
use opsmith_core::{AttrValue, Result, Shape, ensure};
use opsmith_runtime::{Arg, Op, Tensor};

/// A call that takes longer than this is not repeated often, and no larger one is made.
const LONG: Duration = Duration::from_secs(2);
/// What is timed at once takes at least so long: a clock is not exact.
const LEAST: Duration = Duration::from_micros(20);
/// As often a call is timed at least, and at most.
const REPETITIONS: (usize, usize) = (3, 10_000);

/// How long calls of one size take.
pub(crate) struct Measured {
    /// None where no shape depends on it.
    pub(crate) size: Option<usize>,
    /// The shapes of the inputs: `[16,16] [16]`.
    pub(crate) shapes: String,
    /// The attributes that have no default: `nu = 0.5`.
    pub(crate) attributes: String,
    /// The median.
    pub(crate) seconds: f64,
    /// How many times were taken.
    pub(crate) repetitions: usize,
    /// How many elements the outputs have.
    pub(crate) elements: u64,
    /// How many bytes inputs and outputs have.
    pub(crate) bytes: u64,
}

/// Times the call.
///
/// # Errors
/// What the op says, though it accepts such calls in a smaller size; when it gives nothing.
pub(crate) fn measure(op: &Op, size: Option<usize>, sample: Sample, budget: Duration) -> Result<Measured> {
    let attrs: Vec<(&str, AttrValue)> =
        sample.attrs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    // Each value goes when there is a tensor of it.
    let tensors = sample.inputs.into_iter().map(|list| {
        let present = list.into_iter().flatten().map(|value| Tensor::from_value(&value));
        present.collect::<Result<Vec<Tensor>>>()
    });
    let tensors = tensors.collect::<Result<Vec<Vec<Tensor>>>>()?;
    let args: Vec<Arg<'_>> = op
        .signature()
        .inputs
        .iter()
        .zip(&tensors)
        .map(|(def, list)| match &list[..] {
            list if def.count.is_list() => Arg::List(list),
            [one, ..] => Arg::Tensor(one),
            [] => Arg::Absent,
        })
        .collect();
    let outputs = op.call(&args, &attrs)?;
    let is_empty = !outputs.is_empty() && outputs.iter().all(|tensor| tensor.num_elements() == 0);
    ensure!(!is_empty, InvalidArgument, "its outputs have no elements");
    let bytes = |tensor: &Tensor| (tensor.num_elements() * tensor.dtype().size()) as u64;
    let shape = |tensor: &Tensor| Shape::known(tensor.shape()).to_string();
    let given = attrs.iter().map(|(name, value)| format!("{name} = {value}"));
    let mut times = repeat(budget, || op.call(&args, &attrs).map(drop))?;
    Ok(Measured {
        size,
        shapes: tensors.iter().flatten().map(shape).collect::<Vec<_>>().join(" "),
        attributes: given.collect::<Vec<_>>().join(" "),
        seconds: median(&mut times),
        repetitions: times.len(),
        elements: outputs.iter().map(|tensor| tensor.num_elements() as u64).sum(),
        bytes: tensors.iter().flatten().chain(&outputs).map(bytes).sum(),
    })
}

impl Measured {
    /// Whether a larger call would take too long.
    pub(crate) fn is_long(&self) -> bool {
        self.seconds > LONG.as_secs_f64()
    }
}

/// The seconds of one call, many times: after a warm-up, for as long as `budget` says.
fn repeat(budget: Duration, mut call: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let begun = Instant::now();
    let mut warm = 0;
    let one = loop {
        let before = Instant::now();
        call()?;
        let one = before.elapsed();
        warm += 1;
        // Threads are started, pages are there, and the processor is awake.
        if warm >= 2 && begun.elapsed() > budget / 4 || one > LONG {
            break one;
        }
    };
    let batch = (LEAST.as_nanos() / one.as_nanos().max(1)).clamp(1, 1000) as u32;
    let (least, most) = REPETITIONS;
    let mut times = Vec::new();
    let begun = Instant::now();
    while times.len() < least || times.len() < most && begun.elapsed() < budget {
        let before = Instant::now();
        for _ in 0..batch {
            call()?;
        }
        times.push(before.elapsed().as_secs_f64() / f64::from(batch));
    }
    Ok(times)
}

/// The middle of numbers, of which there are some.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() % 2 {
        1 => numbers[middle],
        _ => (numbers[middle - 1] + numbers[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_the_two_there() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn short_calls_are_timed_in_batches_and_each_at_least_thrice() {
        let mut calls = 0;
        let times = repeat(Duration::ZERO, || {
            calls += 1;
            Ok(())
        });
        assert_eq!(times.unwrap().len(), 3);
        assert!(calls > 3 + 2, "{calls}");
        let times = repeat(Duration::from_millis(1), || {
            std::thread::sleep(Duration::from_micros(300));
            Ok(())
        });
        assert!(times.unwrap().iter().all(|seconds| *seconds > 0.0003));
    }
}
