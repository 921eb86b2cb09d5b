//! Derivatives of the functions that are made of others, by dual numbers and on graphs, at 0, near it and at the ends.

mod support;

use std::f64::consts::{LN_2, LN_10, PI};

use opsmith_body::{Body, Dual, F64, Plain, Scalar, trace};
use support::*;

type Number = F64<Plain>;
type One<S> = Dual<S, 1>;

fn variable<S: Scalar>(value: S) -> One<S> {
    Dual::variable(value, 0)
}

/// The value and the first two derivatives, by dual numbers and on graphs.
fn slopes<B: Body<1, 1>>(body: &B, x: f64) -> [[f64; 2]; 2] {
    let [y] = body.eval([variable(variable(Number::new(x)))]);
    let second = y.derivative(0).derivative(0);
    let first = trace(body).gradient();
    let at = |numbers: &[f64]| numbers.iter().map(|x| Number::new(*x)).collect::<Vec<_>>();
    let on_graph = [first.eval(&at(&[x, 1.0]))[0], first.gradient().eval(&at(&[x, 1.0, 1.0]))[0]];
    [[y.value().derivative(0).get(), second.get()], on_graph.map(Number::get)]
}

/// The first derivative is right for its size, the second for that of numbers near 1.
fn check<B: Body<1, 1>>(name: &str, body: &B, points: &[f64], first: fn(f64) -> f64, second: fn(f64) -> f64) {
    for &x in points {
        for [by_first, by_second] in slopes(body, x) {
            let (one, two) = (first(x), second(x));
            let right = by_first == one || (by_first - one).abs() <= 2e-14 * one.abs();
            assert!(right, "{name}({x:e})' is {by_first:e}, not {one:e}");
            let right = !two.is_finite() || (by_second - two).abs() <= 1e-13 * (1.0 + two.abs());
            assert!(right, "{name}({x:e})'' is {by_second:e}, not {two:e}");
        }
    }
}

#[test]
fn of_angles() {
    let inner = [0.0, -0.0, 1e-9, -1e-9, 1e-200, 0.3, -0.7, 0.999, -0.999, 1.0, -1.0];
    check(
        "asin",
        &Asin,
        &inner,
        |x| 1.0 / ((1.0 - x) * (1.0 + x)).sqrt(),
        |x| x / ((1.0 - x) * (1.0 + x)).powf(1.5),
    );
    check(
        "acos",
        &Acos,
        &inner,
        |x| -1.0 / ((1.0 - x) * (1.0 + x)).sqrt(),
        |x| -x / ((1.0 - x) * (1.0 + x)).powf(1.5),
    );
    let all = [0.0, -0.0, 1e-9, 0.3, -0.7, 1.0, -1.0, 3.0, -20.0, 1e9, -1e200];
    check("atan", &Atan, &all, |x| 1.0 / (1.0 + x * x), |x| -2.0 * x / (1.0 + x * x).powi(2));
    check("tan", &Tan, &all[..9], |x| 1.0 + x.tan().powi(2), |x| 2.0 * x.tan() * (1.0 + x.tan().powi(2)));
}

#[test]
fn of_hyperbolic_functions() {
    let all = [0.0, -0.0, 1e-9, -1e-9, 1e-200, 0.3, -0.7, 3.0, -20.0, 300.0];
    check("sinh", &Sinh, &all, f64::cosh, f64::sinh);
    check("cosh", &Cosh, &all, f64::sinh, f64::cosh);
    check(
        "asinh",
        &Asinh,
        &[&all[..], &[1e9, -1e30]].concat(),
        |x| 1.0 / x.hypot(1.0),
        |x| -x / x.hypot(1.0).powi(3),
    );
    check(
        "acosh",
        &Acosh,
        &[1.0, 1.001, 1.5, 3.0, 20.0, 1e9, 1e30],
        |x| 1.0 / ((x - 1.0) * (x + 1.0)).sqrt(),
        |x| -x / ((x - 1.0) * (x + 1.0)).powf(1.5),
    );
    let inner = [0.0, -0.0, 1e-9, 0.3, -0.7, 0.999, -0.999, 1.0, -1.0];
    check(
        "atanh",
        &Atanh,
        &inner,
        |x| 1.0 / ((1.0 - x) * (1.0 + x)),
        |x| 2.0 * x / ((1.0 - x) * (1.0 + x)).powi(2),
    );
}

#[test]
fn of_other_bases_and_whole_numbers() {
    let all = [0.0, 1e-9, 0.3, -0.7, 3.0, -20.0, 300.0];
    check("exp2", &Exp2, &all, |x| x.exp2() * LN_2, |x| x.exp2() * LN_2 * LN_2);
    check("log2", &Log2, &[1e-9, 0.7, 1.0, 300.0], |x| 1.0 / (x * LN_2), |x| -1.0 / (x * x * LN_2));
    check("log10", &Log10, &[1e-9, 0.7, 1.0, 300.0], |x| 1.0 / (x * LN_10), |x| -1.0 / (x * x * LN_10));
    check("round", &Round, &all, |_| 0.0, |_| 0.0);
    check("ceil", &Ceil, &all, |_| 0.0, |_| 0.0);
    check("trunc", &Trunc, &all, |_| 0.0, |_| 0.0);
}

#[test]
fn of_points_around_the_origin() {
    let graph = trace(&Atan2).gradient();
    let parts = [0.0f64, -0.0, 1.0, -1.0, 0.3, -2.5, 1e-300, -1e150];
    for (y, x) in parts.iter().flat_map(|&y| parts.iter().map(move |&x| (y, x))) {
        if y == 0.0 && x == 0.0 {
            continue;
        }
        let size = y.hypot(x);
        let expected = [x / size / size, -y / size / size];
        let [angle] =
            Atan2.eval([Dual::<_, 2>::variable(Number::new(y), 0), Dual::variable(Number::new(x), 1)]);
        let dual = [0, 1].map(|k| angle.derivative(k).get());
        let reverse: Vec<f64> =
            graph.eval(&[y, x, 1.0].map(Number::new)).into_iter().map(Number::get).collect();
        for (got, expected) in dual.iter().chain(&reverse).zip(expected.iter().cycle()) {
            assert!(
                (got - expected).abs() <= 1e-15 * expected.abs() + 1e-300,
                "({y}, {x}): {got} and {expected}"
            );
        }
    }
}

#[test]
fn of_the_gamma_function() {
    let zeta3 = 1.202_056_903_159_594_2;
    let known = [
        (1.0, [-0.577_215_664_901_532_9, PI.powi(2) / 6.0, -2.0 * zeta3, PI.powi(4) / 15.0]),
        (0.5, [-1.963_510_026_021_423_5, PI.powi(2) / 2.0, -14.0 * zeta3, PI.powi(4)]),
        (-0.5, [0.036_489_973_978_576_52, PI.powi(2) / 2.0 + 4.0, 16.0 - 14.0 * zeta3, PI.powi(4) + 96.0]),
    ];
    for (x, expected) in known {
        let y = variable(variable(variable(variable(Number::new(x))))).lgamma();
        let third = y.derivative(0).derivative(0).derivative(0);
        let dual = [
            y.value().value().value().derivative(0),
            y.derivative(0).derivative(0).value().value(),
            third.value(),
            third.derivative(0),
        ];
        for (order, (got, expected)) in dual.iter().zip(expected).enumerate() {
            let error = (got.get() - expected).abs();
            assert!(error <= 1e-12 * (1.0 + expected.abs()), "{x}, {order}: {got:?}, {expected}");
        }
        let mut graph = trace(&Lgamma);
        for (inputs, expected) in
            [&[x, 1.0][..], &[x, 1.0, 1.0], &[x, 1.0, 1.0, 1.0, 0.0]].iter().zip(expected)
        {
            graph = graph.gradient();
            let inputs: Vec<Number> = inputs.iter().map(|x| Number::new(*x)).collect();
            let got = graph.eval(&inputs)[0].get();
            assert!((got - expected).abs() <= 1e-12 * (1.0 + expected.abs()), "{x}: {got}, {expected}");
        }
    }
}
