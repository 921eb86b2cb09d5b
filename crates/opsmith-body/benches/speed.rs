//! Nanoseconds per element on one thread, 2²⁰ elements: every function in float32 and float64, per instruction set.

#[path = "../tests/support/mod.rs"]
mod support;

use std::time::Instant;

use half::{bf16, f16};
use opsmith_body::{Body, Element, Level, map_at};
use support::*;

const LEN: usize = 1 << 20;

/// The best of some runs.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    (0..9).fold(f64::INFINITY, |best, _| {
        let start = Instant::now();
        run();
        best.min(start.elapsed().as_secs_f64())
    }) * 1e9
        / LEN as f64
}

fn inputs<T: Element, const N: usize>(from: fn(f64) -> T) -> [Vec<T>; N] {
    let mut state = 1u64;
    std::array::from_fn(|_| {
        let next = |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            from((state >> 11) as f64 / (1u64 << 52) as f64 * 6.0 - 6.0 + 1e-3)
        };
        (0..LEN).map(next).collect()
    })
}

fn forward<T: Element, B: Body<I, O>, const I: usize, const O: usize>(
    level: Level,
    body: &B,
    from: fn(f64) -> T,
) -> f64 {
    let inputs = inputs::<T, I>(from);
    let mut outputs: [Vec<T>; O] = std::array::from_fn(|_| vec![T::default(); LEN]);
    best(|| map_at(level, body, inputs.each_ref().map(|i| &i[..]), outputs.each_mut().map(|o| &mut o[..])))
}

fn main() {
    macro_rules! rows {
        ($in:tt $out:tt: $($body:expr),*) => {$(
            print!("{:30}", stringify!($body));
            for level in Level::available() {
                print!("  f32 {:6.2}", forward::<_, _, $in, $out>(level, &$body, |x| x as f32));
            }
            for level in Level::available() {
                print!("  f64 {:6.2}", forward::<_, _, $in, $out>(level, &$body, |x| x));
            }
            let best = Level::best();
            print!("  f16 {:6.2}", forward::<_, _, $in, $out>(best, &$body, f16::from_f64));
            println!("  bf16 {:6.2}", forward::<_, _, $in, $out>(best, &$body, bf16::from_f64));
        )*};
    }
    rows!(1 1: Exp, Log, Log1p, Expm1, Tanh, Sigmoid, Erf, NormalCdf, Elu, Gelu, GeluTanh, Softplus);
    rows!(1 1: Sin, Cos, Sqrt, Rsqrt, Floor);
    rows!(2 1: Pow);
    rows!(4 2: Lltm);
}
