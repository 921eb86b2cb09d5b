//! The largest error of every function in units in the last place: over all float32 values, or every n-th.
//!
//! `cargo bench -p opsmith-body --bench accuracy -- [STEP] [NAME…]`
//!
//! For float64, `OPSMITH_POINTS=1000 cargo test --release -p opsmith-body --test accuracy f64 -- --nocapture` takes a
//! thousand times as many points as the tests.

#[path = "../tests/support/mod.rs"]
mod support;

use opsmith_body::{Body, Level, map_at};
use support::*;

const CHUNK: usize = 1 << 14;

/// The largest error on each level, and where.
fn largest<B: Body<1, 1>>(body: &B, exact: fn(f64) -> f64, step: u64) -> Vec<(Level, f64, f32)> {
    let mut worst: Vec<(Level, f64, f32)> = Level::available().map(|level| (level, -1.0, 0.0)).collect();
    let (mut input, mut output) = (vec![0.0f32; CHUNK], vec![0.0f32; CHUNK]);
    for start in (0..1u64 << 32).step_by(step as usize * CHUNK) {
        for (x, k) in input.iter_mut().zip(0..) {
            *x = f32::from_bits((start + k * step).min(0xffff_ffff) as u32);
        }
        let exact: Vec<f64> = input.iter().map(|&x| exact(f64::from(x))).collect();
        for (level, error, at) in &mut worst {
            map_at(*level, body, [&input], [&mut output]);
            for ((&x, &y), &e) in input.iter().zip(&output).zip(&exact) {
                let here = error_f32(y, e);
                if here > *error {
                    (*error, *at) = (here, x);
                }
            }
        }
    }
    worst
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let step = arguments.first().and_then(|a| a.parse().ok()).unwrap_or(1);
    macro_rules! rows {
        ($($body:ident: $exact:expr;)*) => {$(
            let name = stringify!($body);
            if arguments.len() < 2 || arguments[1..].iter().any(|a| a == name) {
                let errors = largest(&$body, $exact, step);
                let shown = errors.iter().map(|(l, e, x)| format!("{l:?} {e:.3} at {x:<14e}"));
                println!("{name:10} {}", shown.collect::<Vec<_>>().join("  "));
            }
        )*};
    }
    rows! {
        Exp: f64::exp;
        Log: f64::ln;
        Tanh: f64::tanh;
        Sigmoid: |x| 1.0 / (1.0 + (-x).exp());
        Erf: libm::erf;
        Log1p: f64::ln_1p;
        Expm1: f64::exp_m1;
        NormalCdf: phi;
        NormalPdf: |x| (-0.5 * x * x).exp() * 0.398_942_280_401_432_7;
        Gelu: gelu;
        GeluTanh: gelu_tanh;
        Elu: |x| if x > 0.0 { x } else { x.exp_m1() };
        Softplus: softplus;
        Sin: f64::sin;
        Cos: f64::cos;
        Sqrt: f64::sqrt;
        Rsqrt: |x| 1.0 / x.sqrt();
        Floor: f64::floor;
        Exp2: f64::exp2;
        Log2: f64::log2;
        Log10: f64::log10;
        Tan: f64::tan;
        Asin: f64::asin;
        Acos: f64::acos;
        Atan: f64::atan;
        Sinh: libm::sinh;
        Cosh: libm::cosh;
        Asinh: libm::asinh;
        Acosh: |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) };
        Atanh: libm::atanh;
        Round: f64::round_ties_even;
    }
}
