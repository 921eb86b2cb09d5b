//! Every function is within 2 units in the last place, or 5 those that are made of several, on every instruction set.
//!
//! float32: every 97th of all values for the functions that others are made of, fewer for the others, against
//! float64. float64: against arithmetic of 192 bits. The bench `accuracy` looks at all float32 values.

mod support;

use opsmith_body::{Body, Level, map_at};
use support::exact::Big;
use support::*;

const BOUND: f64 = 2.0;
/// Of the gamma function, and of functions that are made of others.
const COMPOSED: f64 = 5.0;

/// So many times the usual number of points, by the variable `OPSMITH_POINTS`: more by hand, fewer where everything is slow.
fn times() -> f64 {
    std::env::var("OPSMITH_POINTS").ok().and_then(|times| times.parse().ok()).unwrap_or(1.0)
}

/// That many points instead of `count`.
fn many(count: usize) -> usize {
    (count as f64 * times()).ceil() as usize
}

fn check_f32<B: Body<1, 1>>(name: &str, body: &B, exact: fn(f64) -> f64, step: usize, bound: f64) {
    let step = (step as f64 / times()).ceil() as usize;
    for start in (0..1u64 << 32).step_by(step << 14) {
        let inputs: Vec<f32> = (0..1 << 14)
            .map(|i| f32::from_bits((start + (i * step) as u64).min(0xffff_ffff) as u32))
            .collect();
        let exact: Vec<f64> = inputs.iter().map(|&x| exact(f64::from(x))).collect();
        let mut outputs = vec![0.0; inputs.len()];
        for level in Level::available() {
            map_at(level, body, [&inputs], [&mut outputs]);
            for ((&x, &y), &e) in inputs.iter().zip(&outputs).zip(&exact) {
                let error = error_f32(y, e);
                assert!(error <= bound, "{name}({x:e}) is {y:e} on {level:?}, {e:e} to float64, {error} ulp");
            }
        }
    }
}

/// Points over the whole range and, more of them, where functions bend.
fn points(count: usize) -> Vec<f64> {
    let mut random = Random(7);
    let mut next = |i: usize| match i % 4 {
        0 => f64::from_bits(random.bits()),
        1 => random.between(-2.0, 2.0),
        2 => random.between(-40.0, 40.0),
        _ => random.between(-30.0, 10.0).exp2() * random.between(-1.0, 1.0).signum(),
    };
    (0..count).map(&mut next).filter(|x| x.is_finite() && *x != 0.0).collect()
}

fn check_f64<B: Body<1, 1>>(
    name: &str,
    body: &B,
    exact: fn(&Big) -> Big,
    count: usize,
    domain: fn(f64) -> bool,
    bound: f64,
) {
    let inputs: Vec<f64> = points(many(count)).into_iter().filter(|&x| domain(x)).collect();
    let exact: Vec<Big> = inputs.iter().map(|&x| exact(&Big::of(x))).collect();
    let mut outputs = vec![0.0; inputs.len()];
    for level in Level::available() {
        map_at(level, body, [&inputs], [&mut outputs]);
        let mut worst = (0.0, 0.0, 0.0);
        for ((&x, &y), e) in inputs.iter().zip(&outputs).zip(&exact) {
            let error = e.error(y);
            if error > worst.0 || error.is_nan() {
                worst = (error, x, y);
            }
        }
        let (error, x, y) = worst;
        println!("{name:12} {level:8?} {error:.3} ulp at {x:e}");
        assert!(error <= bound, "{name}({x:e}) is {y:e} on {level:?}: {error} ulp");
    }
}

macro_rules! float32 {
    ($bound:ident: $($test:ident $body:ident $step:literal $exact:expr;)*) => {$(
        #[test]
        fn $test() {
            check_f32(stringify!($body), &$body, $exact, $step, $bound);
        }
    )*};
}

float32! { BOUND:
    exp_f32 Exp 97 f64::exp;
    log_f32 Log 97 f64::ln;
    tanh_f32 Tanh 97 f64::tanh;
    sigmoid_f32 Sigmoid 97 |x| 1.0 / (1.0 + (-x).exp());
    erf_f32 Erf 97 libm::erf;
    log1p_f32 Log1p 997 f64::ln_1p;
    expm1_f32 Expm1 997 f64::exp_m1;
    normal_cdf_f32 NormalCdf 997 phi;
    normal_pdf_f32 NormalPdf 997 |x| (-0.5 * x * x).exp() * 0.398_942_280_401_432_7;
    gelu_f32 Gelu 997 gelu;
    gelu_tanh_f32 GeluTanh 997 gelu_tanh;
    elu_f32 Elu 997 |x| if x > 0.0 { x } else { x.exp_m1() };
    softplus_f32 Softplus 997 softplus;
    sin_f32 Sin 997 f64::sin;
    cos_f32 Cos 997 f64::cos;
    sqrt_f32 Sqrt 997 f64::sqrt;
    rsqrt_f32 Rsqrt 997 |x| 1.0 / x.sqrt();
    abs_f32 Abs 997 f64::abs;
    sign_f32 Sign 997 |x| if x == 0.0 { x } else { x.signum() };
    floor_f32 Floor 997 f64::floor;
    atan_f32 Atan 997 f64::atan;
    exp2_f32 Exp2 997 f64::exp2;
    ceil_f32 Ceil 997 f64::ceil;
    trunc_f32 Trunc 997 f64::trunc;
    round_f32 Round 997 f64::round_ties_even;
}

float32! { COMPOSED:
    log2_f32 Log2 997 f64::log2;
    log10_f32 Log10 997 f64::log10;
    tan_f32 Tan 997 f64::tan;
    asin_f32 Asin 997 f64::asin;
    acos_f32 Acos 997 f64::acos;
    sinh_f32 Sinh 997 libm::sinh;
    cosh_f32 Cosh 997 libm::cosh;
    asinh_f32 Asinh 997 libm::asinh;
    acosh_f32 Acosh 997 |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) };
    atanh_f32 Atanh 997 libm::atanh;
}

macro_rules! float64 {
    ($bound:ident: $($test:ident $body:ident $count:literal $exact:expr, $domain:expr;)*) => {$(
        #[test]
        fn $test() {
            check_f64(stringify!($body), &$body, $exact, $count, $domain, $bound);
        }
    )*};
}

float64! { BOUND:
    exp_f64 Exp 100_000 Big::exp, |x| x.abs() < 800.0;
    log_f64 Log 100_000 Big::ln, |x| x > 0.0;
    log1p_f64 Log1p 30_000 Big::ln_1p, |x| x > -1.0;
    expm1_f64 Expm1 30_000 Big::expm1, |x| x.abs() < 800.0;
    tanh_f64 Tanh 30_000 |x| {
        let e = (x + x).expm1();
        &e / &(&e + &Big::of(2.0))
    }, |x| x.abs() < 300.0;
    sigmoid_f64 Sigmoid 30_000 |x| &Big::of(1.0) / &(&Big::of(1.0) + &x.neg().exp()), |x| x.abs() < 800.0;
    erf_f64 Erf 10_000 |x| {
        &Big::of(1.0) - &(&(x * &Big::of(2.0).sqrt()).normal_tail() * &Big::of(2.0))
    }, |x| x > 1e-30 && x < 50.0;
    normal_cdf_f64 NormalCdf 10_000 |x| x.neg().normal_tail(), |x| x < 0.0 && x > -50.0;
    gelu_f64 Gelu 10_000 |x| x * &x.neg().normal_tail(), |x| x < 0.0 && x > -50.0;
    gelu_positive_f64 Gelu 10_000 |x| x * &(&Big::of(1.0) - &x.normal_tail()), |x| x > 0.0 && x < 50.0;
    gelu_tanh_f64 GeluTanh 10_000 |x| {
        let cubic = &(&(x * x) * x) * &(&Big::of(44715.0) / &Big::of(1e6));
        let inner = &(x + &cubic) * &(&Big::of(8.0) / &Big::pi()).sqrt();
        x / &(&Big::of(1.0) + &inner.neg().exp())
    }, |x| x.abs() < 50.0;
    softplus_f64 Softplus 10_000 |x| x.exp().ln_1p(), |x| x.abs() < 800.0;
    sin_f64 Sin 10_000 sin, |_| true;
    cos_f64 Cos 10_000 cos, |_| true;
    rsqrt_f64 Rsqrt 10_000 |x| &Big::of(1.0) / &x.sqrt(), |x| x > 0.0;
    atan_f64 Atan 10_000 Big::atan, |_| true;
    exp2_f64 Exp2 10_000 |x| Big::of(2.0).pow(x), |x| x.abs() < 1022.0;
}

float64! { COMPOSED:
    log2_f64 Log2 10_000 |x| &x.ln() / &Big::of(2.0).ln(), |x| x > 0.0;
    log10_f64 Log10 10_000 |x| &x.ln() / &Big::of(10.0).ln(), |x| x > 0.0;
    tan_f64 Tan 10_000 |x| &sin(x) / &cos(x), |_| true;
    asin_f64 Asin 10_000 Big::asin, |x| x.abs() < 1.0;
    acos_f64 Acos 10_000 Big::acos, |x| x.abs() < 1.0;
    sinh_f64 Sinh 10_000 |x| {
        let e = x.expm1();
        &(&e + &(&e / &(&e + &Big::of(1.0)))) * &Big::of(0.5)
    }, |x| x > 0.0 && x < 800.0;
    cosh_f64 Cosh 10_000 |x| &(&x.exp() + &x.neg().exp()) * &Big::of(0.5), |x| x.abs() < 800.0;
    asinh_f64 Asinh 10_000 Big::asinh, |x| x > 0.0;
    acosh_f64 Acosh 10_000 Big::acosh, |x| x > 1.0;
    atanh_f64 Atanh 10_000 Big::atanh, |x| x > 0.0 && x < 1.0;
    lgamma_f64 Lgamma 3_000 |x| x.gamma()[0].clone(), |x| x > 0.0;
    digamma_f64 Digamma 3_000 |x| x.gamma()[1].clone(), |x| x > 0.0;
    trigamma_f64 Trigamma 3_000 |x| x.gamma()[2].clone(), |x| x > 1e-150 && x < 1e150;
}

/// Near the zeros of the functions, and between; float32 too, whose values are those of float64.
#[test]
fn the_gamma_function_near_its_zeros() {
    let mut random = Random(13);
    let zeros = [1.0, 2.0, 1.461_632_144_968_362_2];
    let near = |i: usize, size: f64| zeros[i % 3] + size * [-1.0, 1.0][i / 3 % 2];
    let mut inputs: Vec<f64> =
        (0..many(3_000)).map(|i| near(i, random.between(-26.0, -1.0).exp2())).collect();
    inputs.extend((0..many(3_000)).map(|_| random.between(0.0, 12.0)));
    let inputs: Vec<f64> = inputs.into_iter().map(|x| f64::from(x as f32)).collect();
    let exact: Vec<[Big; 3]> = inputs.iter().map(|&x| Big::of(x).gamma()).collect();
    let single: Vec<f32> = inputs.iter().map(|&x| x as f32).collect();
    let (mut wide, mut narrow) = (vec![0.0; inputs.len()], vec![0.0; inputs.len()]);
    for level in Level::available() {
        for order in 0..3 {
            map_at(level, &Gammas(order), [&inputs], [&mut wide]);
            map_at(level, &Gammas(order), [&single], [&mut narrow]);
            for (i, e) in exact.iter().enumerate().filter(|(_, e)| e[order].rounded().abs() > 1e-30) {
                let (error, of_single) = (e[order].error(wide[i]), error_f32(narrow[i], e[order].rounded()));
                assert!(
                    error.max(of_single) <= COMPOSED,
                    "{order} {:e} {level:?}: {error}, {of_single}",
                    inputs[i]
                );
            }
        }
    }
}

/// Γ(x) Γ(1 − x) = π / sin(πx): what errors are of is as large as the logarithms that are added, or 1.
#[test]
fn the_gamma_function_of_negative_numbers() {
    let mut random = Random(14);
    let inputs: Vec<f64> = (0..many(2_000)).map(|_| random.between(-20.0, 0.0)).collect();
    let mut outputs = vec![0.0; inputs.len()];
    for level in Level::available() {
        for order in 0..3 {
            map_at(level, &Gammas(order), [&inputs], [&mut outputs]);
            for (x, y) in inputs.iter().zip(&outputs) {
                let of = (&Big::of(1.0) - &Big::of(*x)).gamma();
                let turn = &Big::of(*x) * &Big::pi();
                let (sine, cosine) = (turn.sin(), turn.cos());
                let ratio = &Big::pi() / &sine;
                let exact = match order {
                    0 => &(&(&ratio * &ratio).ln() * &Big::of(0.5)) - &of[0],
                    1 => &of[1] - &(&ratio * &cosine),
                    _ => &(&ratio * &ratio) - &of[2],
                };
                let size = of[order].rounded().abs().max(exact.rounded().abs()).max(1.0);
                let error = (y - exact.rounded()).abs() / (size * f64::EPSILON);
                assert!(error <= 8.0, "{order} {x:e} {level:?}: {y:e}, {error} of {size}");
            }
        }
    }
}

#[test]
fn atan2_f64() {
    let mut random = Random(15);
    let (y, x): (Vec<f64>, Vec<f64>) = (0..many(10_000))
        .map(|_| (random.between(-3.0, 3.0) * random.between(-9.0, 9.0).exp2(), random.between(-3.0, 3.0)))
        .unzip();
    let mut z = vec![0.0; x.len()];
    let single = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<f32>>();
    let (y_single, x_single, mut z_single) = (single(&y), single(&x), vec![0.0; x.len()]);
    for level in Level::available() {
        map_at(level, &Atan2, [&y, &x], [&mut z]);
        map_at(level, &Atan2, [&y_single, &x_single], [&mut z_single]);
        for i in 0..x.len() {
            let angle = (&Big::of(y[i]) / &Big::of(x[i])).atan();
            let turn = if x[i] > 0.0 {
                Big::of(0.0)
            } else if y[i] > 0.0 {
                Big::pi()
            } else {
                Big::pi().neg()
            };
            let error = (&angle + &turn).error(z[i]);
            assert!(error <= BOUND, "({}, {}) is {} on {level:?}: {error} ulp", y[i], x[i], z[i]);
            let error = error_f32(z_single[i], f64::from(y_single[i]).atan2(f64::from(x_single[i])));
            assert!(error <= BOUND, "({}, {}) is {} on {level:?}: {error} ulp", y[i], x[i], z_single[i]);
        }
    }
}

#[test]
fn pow_f64() {
    let mut random = Random(11);
    let mut pairs: Vec<(f64, f64)> = (0..many(8_000))
        .map(|_| (random.between(-40.0, 40.0).exp2(), random.between(-30.0, 30.0)))
        .chain((0..1000).map(|i| (1.0 + f64::from(i) * 1e-9, 1e9 + f64::from(i))))
        .collect();
    pairs.extend((0..many(5000)).map(|_| (f64::from_bits(random.bits() >> 1), random.between(-2.0, 2.0))));
    pairs.retain(|(x, _)| x.is_finite() && *x > 0.0);
    let (x, y): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
    let exact: Vec<Big> = pairs.iter().map(|&(x, y)| Big::of(x).pow(&Big::of(y))).collect();
    let mut z = vec![0.0; x.len()];
    for level in Level::available() {
        map_at(level, &Pow, [&x, &y], [&mut z]);
        for (i, e) in exact.iter().enumerate() {
            let error = e.error(z[i]);
            assert!(error <= BOUND, "{:e}^{:e} is {:e} on {level:?}: {error} ulp", x[i], y[i], z[i]);
        }
    }
}

#[test]
fn pow_f32() {
    let mut random = Random(12);
    let mut pairs: Vec<(f32, f32)> = (0..1_000_000)
        .map(|_| (f32::from_bits(random.bits() as u32), random.between(-20.0, 20.0) as f32))
        .collect();
    pairs.extend((0..100_000).map(|i| (1.0 + i as f32 * 1e-7, random.between(-1e5, 1e5) as f32)));
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        0.5,
        -0.5,
        1e30,
        -1e30,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    pairs.extend(special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y))));
    let (x, y): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
    let mut z = vec![0.0; x.len()];
    for level in Level::available() {
        map_at(level, &Pow, [&x, &y], [&mut z]);
        for i in 0..x.len() {
            let error = error_f32(z[i], f64::from(x[i]).powf(f64::from(y[i])));
            assert!(error <= BOUND, "{:e}^{:e} is {:e} on {level:?}: {error} ulp", x[i], y[i], z[i]);
        }
    }
}
