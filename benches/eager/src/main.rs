//! An eager addition of two 1 x 1 matrices of float32 from Rust: the embedded engine's, and candle's.
//!
//! Prints for each the median of the nanoseconds that a call takes, over batches in turns.

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 31;
const CALLS: u32 = 100_000;

/// The nanoseconds that a call takes, over a batch of calls.
fn batch(mut call: impl FnMut()) -> f64 {
    let begin = Instant::now();
    (0..CALLS).for_each(|_| call());
    begin.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    use candle_core as candle;
    use opsmith_runtime::{Library, Tensor};

    let add = Library::standard()?.op("Add")?;
    let (a, b) = (Tensor::from_slice(&[1.0f32], &[1, 1])?, Tensor::from_slice(&[2.0f32], &[1, 1])?);
    let device = candle::Device::Cpu;
    let (x, y) = (candle::Tensor::new(&[[1.0f32]], &device)?, candle::Tensor::new(&[[2.0f32]], &device)?);
    let sum = &add.call(&[(&a).into(), (&b).into()], &[])?[0];
    assert_eq!(sum.to_vec::<f32>()?, x.add(&y)?.flatten_all()?.to_vec1::<f32>()?);

    let (mut ours, mut theirs) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        ours.push(batch(|| drop(black_box(add.call(&[(&a).into(), (&b).into()], &[])))));
        theirs.push(batch(|| drop(black_box(x.add(&y)))));
    }
    println!("{} {}", median(ours), median(theirs));
    Ok(())
}
