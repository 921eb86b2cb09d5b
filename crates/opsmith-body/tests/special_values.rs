//! Zeros, infinities, NaN and the ends of the ranges, as IEEE 754 and NumPy have them; float16 and bfloat16.

mod support;

use half::{bf16, f16};
use opsmith_body::{Body, Element, Level, Scalar, map_at};
use support::*;

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;

/// Both floats, every instruction set: the very bits, or NaN.
fn check<B: Body<1, 1>>(name: &str, body: &B, cases: &[(f64, f64)]) {
    for level in Level::available() {
        for &(x, expected) in cases {
            let (mut wide, mut single) = ([0.0f64], [0.0f32]);
            map_at(level, body, [&[x]], [&mut wide]);
            map_at(level, body, [&[x as f32]], [&mut single]);
            for got in [wide[0], f64::from(single[0])] {
                let same = got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan());
                assert!(same, "{name}({x}) is {got} on {level:?}, and should be {expected}");
            }
        }
    }
}

#[test]
fn limits_and_zeros() {
    check(
        "exp",
        &Exp,
        &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e4, INF), (-1e4, 0.0)],
    );
    check(
        "log",
        &Log,
        &[(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-1.0, NAN), (-INF, NAN), (NAN, NAN)],
    );
    check(
        "log1p",
        &Log1p,
        &[(0.0, 0.0), (-0.0, -0.0), (-1.0, -INF), (-2.0, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    );
    check("expm1", &Expm1, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN)]);
    check("tanh", &Tanh, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)]);
    check("sigmoid", &Sigmoid, &[(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)]);
    check("erf", &Erf, &[(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (NAN, NAN)]);
    check("normal_cdf", &NormalCdf, &[(0.0, 0.5), (INF, 1.0), (-INF, 0.0), (NAN, NAN)]);
    check("elu", &Elu, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1.0), (NAN, NAN)]);
    check("gelu", &Gelu, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (NAN, NAN)]);
    check("gelu_tanh", &GeluTanh, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -0.0), (NAN, NAN)]);
    check("softplus", &Softplus, &[(INF, INF), (-INF, 0.0), (NAN, NAN)]);
    check("sin", &Sin, &[(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN)]);
    check("cos", &Cos, &[(0.0, 1.0), (-0.0, 1.0), (INF, NAN), (-INF, NAN), (NAN, NAN)]);
    check("sqrt", &Sqrt, &[(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-1.0, NAN), (NAN, NAN)]);
    check("rsqrt", &Rsqrt, &[(0.0, INF), (-0.0, -INF), (INF, 0.0), (-1.0, NAN), (NAN, NAN)]);
    check("abs", &Abs, &[(-0.0, 0.0), (-INF, INF), (-2.5, 2.5), (NAN, NAN)]);
    check("sign", &Sign, &[(0.0, 0.0), (-0.0, -0.0), (-INF, -1.0), (3.0, 1.0), (NAN, NAN)]);
    check(
        "floor",
        &Floor,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (-0.5, -1.0),
            (0.75, 0.0),
            (-2.0, -2.0),
            (1e30f32.into(), 1e30f32.into()),
        ],
    );
    check("floor", &Floor, &[(INF, INF), (-INF, -INF), (NAN, NAN), (8388607.5, 8388607.0)]);
}

struct Extremes;

impl Body<2, 2> for Extremes {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [x, y]: [S; 2]) -> [S; 2] {
        [x.min(y), x.max(y)]
    }
}

#[test]
fn nan_goes_through_min_and_max() {
    let (x, y) = ([1.0, NAN, 1.0, NAN, -INF], [2.0, 1.0, NAN, NAN, INF]);
    for level in Level::available() {
        let (mut low, mut high) = ([0.0; 5], [0.0; 5]);
        map_at(level, &Extremes, [&x, &y], [&mut low, &mut high]);
        assert_eq!((low[0], high[0], low[4], high[4]), (1.0, 2.0, -INF, INF));
        assert!(low[1..4].iter().chain(&high[1..4]).all(|v| v.is_nan()), "{level:?}: {low:?} {high:?}");
    }
}

#[test]
fn powers_are_those_of_the_standard() {
    let special = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 1e300, -1e300, INF, -INF, NAN];
    let pairs: Vec<(f64, f64)> = special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))).collect();
    for level in Level::available() {
        for &(x, y) in &pairs {
            let mut z = [0.0];
            map_at(level, &Pow, [&[x], &[y]], [&mut z]);
            let expected = x.powf(y);
            let close = expected.is_finite() && (z[0] - expected).abs() <= 4e-16 * expected.abs();
            let same = if expected.is_finite() { close } else { z[0] == expected };
            let same = (same && z[0].is_sign_negative() == expected.is_sign_negative())
                || (z[0].is_nan() && expected.is_nan());
            assert!(same, "{x}^{y} is {} on {level:?}, and should be {expected}", z[0]);
        }
    }
}

struct Same;

impl Body<1, 1> for Same {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 1] {
        [x]
    }
}

#[test]
fn halves_are_read_and_written_as_the_crate_half_does() {
    for level in Level::available() {
        let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let mut back = vec![f16::ZERO; all.len()];
        map_at(level, &Same, [&all], [&mut back]);
        assert!(all.iter().zip(&back).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())), "{level:?}");
        let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        let mut back = vec![bf16::ZERO; all.len()];
        map_at(level, &Same, [&all], [&mut back]);
        assert!(all.iter().zip(&back).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())), "{level:?}");
    }
    for bits in (0..1u64 << 32).step_by(1013) {
        let x = f32::from_bits(bits as u32);
        let number = opsmith_body::F32::<opsmith_body::Plain>::new(x);
        let (half, brain) = (<f16 as Element>::store(number), <bf16 as Element>::store(number));
        assert!(half == f16::from_f32(x) || (half.is_nan() && x.is_nan()), "{x:e}");
        assert!(brain == bf16::from_f32(x) || (brain.is_nan() && x.is_nan()), "{x:e}");
    }
}

#[test]
fn lengths_around_the_block_are_all_computed() {
    for len in [0, 1, 255, 256, 257, 1000] {
        let x: Vec<f32> = (0..len).map(|i| i as f32 * 0.01).collect();
        let mut y = vec![9.0; len];
        opsmith_body::map(&Sqrt, [&x], [&mut y]);
        assert!(x.iter().zip(&y).all(|(x, y)| x.sqrt() == *y), "{len}");
    }
}

#[test]
#[should_panic(expected = "one length")]
fn lengths_that_differ_are_refused() {
    opsmith_body::map(&Sqrt, [&[1.0f32, 2.0]], [&mut [0.0]]);
}
