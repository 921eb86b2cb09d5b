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

#[test]
fn limits_and_zeros_of_angles_and_hyperbolic_functions() {
    let half = std::f64::consts::FRAC_PI_2;
    for start in [0.0, -0.0] {
        let zero = [(start, start), (NAN, NAN)];
        check("atan", &Atan, &zero);
        check("tan", &Tan, &zero);
        check("asin", &Asin, &zero);
        check("sinh", &Sinh, &zero);
        check("asinh", &Asinh, &zero);
        check("atanh", &Atanh, &zero);
        check("ceil", &Ceil, &zero);
        check("trunc", &Trunc, &zero);
        check("round", &Round, &zero);
    }
    let nowhere = [(1.5, NAN), (-1.5, NAN), (INF, NAN), (-INF, NAN), (1e30, NAN), (-1e30, NAN)];
    check("asin", &Asin, &nowhere);
    check("acos", &Acos, &nowhere);
    check("atanh", &Atanh, &nowhere);
    check("tan", &Tan, &[(INF, NAN), (-INF, NAN)]);
    check("acos", &Acos, &[(1.0, 0.0), (NAN, NAN)]);
    check("sinh", &Sinh, &[(INF, INF), (-INF, -INF), (1e3, INF), (-1e3, -INF)]);
    check("cosh", &Cosh, &[(0.0, 1.0), (-0.0, 1.0), (INF, INF), (-INF, INF), (1e3, INF), (NAN, NAN)]);
    check("asinh", &Asinh, &[(INF, INF), (-INF, -INF)]);
    check(
        "acosh",
        &Acosh,
        &[(1.0, 0.0), (0.5, NAN), (-1.0, NAN), (-1e30, NAN), (-INF, NAN), (INF, INF), (NAN, NAN)],
    );
    check("atanh", &Atanh, &[(1.0, INF), (-1.0, -INF)]);
    check(
        "exp2",
        &Exp2,
        &[(0.0, 1.0), (-1.0, 0.5), (100.0, 2.0f64.powi(100)), (INF, INF), (-INF, 0.0), (NAN, NAN)],
    );
    check("log2", &Log2, &[(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN), (INF, INF), (NAN, NAN)]);
    check("log10", &Log10, &[(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (-1.0, NAN), (INF, INF), (NAN, NAN)]);
    for level in Level::available() {
        let mut y = [0.0; 4];
        map_at(level, &Atan, [&[INF, -INF, 1e300, -1e300]], [&mut y]);
        assert_eq!(y, [half, -half, half, -half]);
        // What is finite in double precision, though its halves overflow.
        let mut y = [0.0; 2];
        map_at(level, &Sinh, [&[710.2, -710.2]], [&mut y]);
        assert!(y[0] > 1.3e308 && y[0] == -y[1] && y[0] < INF, "{y:?}");
        let mut y = [0.0f64; 2];
        map_at(level, &Asinh, [&[1.7e308, -1.7e308]], [&mut y]);
        assert!((y[0] - 710.419_9).abs() < 1e-3 && y[0] == -y[1], "{y:?}");
    }
}

#[test]
fn whole_numbers() {
    let even = [
        (0.5, 0.0),
        (-0.5, -0.0),
        (1.5, 2.0),
        (-1.5, -2.0),
        (2.5, 2.0),
        (-2.5, -2.0),
        (-0.2, -0.0),
        (0.75, 1.0),
    ];
    check("round", &Round, &even);
    let same = [(INF, INF), (-INF, -INF), (8388609.0, 8388609.0), (8388608.0, 8388608.0), (-7.0, -7.0)];
    check("round", &Round, &same);
    check("ceil", &Ceil, &same);
    check("trunc", &Trunc, &same);
    check("ceil", &Ceil, &[(0.25, 1.0), (-0.25, -0.0), (-1.5, -1.0)]);
    check("trunc", &Trunc, &[(0.25, 0.0), (-0.25, -0.0), (-1.5, -1.0), (1.5, 1.0)]);
    for level in Level::available() {
        let mut y = [0.0; 2];
        map_at(level, &Round, [&[0.499_999_999_999_999_94, 4_503_599_627_370_495.5]], [&mut y]);
        assert_eq!(y, [0.0, 4_503_599_627_370_496.0]);
    }
}

#[test]
fn poles_of_the_gamma_function() {
    // As in C; SciPy has -inf for -inf.
    let ends = [(0.0, INF), (-0.0, INF), (-1.0, INF), (-1e30, INF), (-INF, INF), (INF, INF), (NAN, NAN)];
    check("lgamma", &Lgamma, &ends);
    check("lgamma", &Lgamma, &[(1.0, 0.0), (2.0, 0.0)]);
    let ends = [(0.0, -INF), (-0.0, INF), (-1.0, NAN), (-1e30, NAN), (-INF, NAN), (INF, INF), (NAN, NAN)];
    check("digamma", &Digamma, &ends);
    check(
        "trigamma",
        &Trigamma,
        &[(0.0, INF), (-0.0, INF), (-1.0, INF), (-1e30, INF), (INF, 0.0), (NAN, NAN)],
    );
    for level in Level::available() {
        let mut y = [0.0f64; 4];
        map_at(level, &Lgamma, [&[5e-324, -5e-324, 2.5e305, 2.6e305]], [&mut y]);
        assert!((y[0] - 744.440_07).abs() < 1e-4 && (y[1] - y[0]).abs() < 0.1, "{y:?}");
        assert!(y[2] > 1.7e308 && y[2] < INF && y[3] == INF, "{y:?}");
    }
}

#[test]
fn angles_in_all_quadrants() {
    let special =
        [0.0, -0.0, 0.5, -0.5, 1.0, -2.0, 1e-320, -1e-320, 1e300, -1e300, 1e-30, 1e30, INF, -INF, NAN];
    for level in Level::available() {
        for (y, x) in special.iter().flat_map(|&y| special.iter().map(move |&x| (y, x))) {
            let (mut wide, mut single) = ([0.0], [0.0f32]);
            map_at(level, &Atan2, [&[y], &[x]], [&mut wide]);
            map_at(level, &Atan2, [&[y as f32], &[x as f32]], [&mut single]);
            let of_single = f64::from(y as f32).atan2(f64::from(x as f32));
            for (got, expected, unit) in
                [(wide[0], y.atan2(x), 4e-16), (f64::from(single[0]), of_single, 2e-7)]
            {
                let is_close = (got - expected).abs() <= unit * expected.abs() + 1e-45;
                let same = is_close && got.is_sign_negative() == expected.is_sign_negative();
                assert!(
                    same || (got.is_nan() && expected.is_nan()),
                    "({y}, {x}) {level:?}: {got}, {expected}"
                );
            }
        }
    }
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
