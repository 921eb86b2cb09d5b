//! Derivatives of random bodies: dual numbers, reverse mode on the graph and finite differences agree, of first and
//! second order; the graph computes what the body computes; nothing leaks from the branch not taken.

#[path = "support/gradient.rs"]
mod gradient;
mod support;

use gradient::Gradient;
use opsmith_body::{Body, Dual, F32, F64, Graph, Level, Plain, Scalar, map_at, trace};
use support::Random;
use support::tree::bodies;

type Number = F64<Plain>;

fn eval<B: Body<I, O>, const I: usize, const O: usize>(body: &B, inputs: [f64; I]) -> [f64; O] {
    body.eval(inputs.map(Number::new)).map(Number::get)
}

fn eval_graph(graph: &Graph, inputs: &[f64]) -> Vec<f64> {
    let inputs: Vec<Number> = inputs.iter().map(|x| Number::new(*x)).collect();
    graph.eval(&inputs).into_iter().map(Number::get).collect()
}

/// Whether two results are the same but for rounding, which intermediate results of any size may have magnified.
fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs()))
}

fn points<const N: usize>(seed: u64, count: usize) -> Vec<[f64; N]> {
    let mut random = Random(seed);
    (0..count).map(|_| std::array::from_fn(|_| random.between(-2.5, 2.5))).collect()
}

/// The derivative of a sum of outputs by one input from differences, if it has one there that differences can find.
fn difference<const N: usize>(f: impl Fn([f64; N]) -> f64, at: [f64; N], input: usize) -> Option<f64> {
    let slope = |step: f64| {
        let moved = |by: f64| {
            let mut x = at;
            x[input] += by;
            f(x)
        };
        (8.0 * (moved(step) - moved(-step)) - (moved(2.0 * step) - moved(-2.0 * step))) / (12.0 * step)
    };
    let (coarse, fine) = (slope(1e-3), slope(2.5e-4));
    close(coarse, fine, 1e-7).then_some(fine)
}

#[test]
fn first_order() {
    let mut compared = 0;
    for (index, body) in bodies(100).iter().enumerate() {
        let gradient = Gradient::<_, 3, 2>(body);
        let graph = trace(body).gradient();
        for at in points::<5>(index as u64, 5) {
            let dual: [f64; 3] = eval(&gradient, at);
            let reverse = eval_graph(&graph, &at);
            let weighted = |x: [f64; 3]| {
                let [y0, y1] = eval(body, x);
                y0 * at[3] + y1 * at[4]
            };
            for input in 0..3 {
                let (d, r) = (dual[input], reverse[input]);
                assert!(close(d, r, 1e-9), "body {index} by x{input} at {at:?}: {d} and {r}\n{body:?}");
                let Some(numeric) = difference(weighted, [at[0], at[1], at[2]], input) else { continue };
                assert!(
                    close(d, numeric, 1e-5),
                    "body {index} by x{input} at {at:?}: {d} and {numeric}\n{body:?}"
                );
                compared += 1;
            }
        }
    }
    // The others are near a kink, or too steep for differences.
    assert!(compared > 1200, "{compared} of 1500 could be compared with differences");
}

#[test]
fn second_order() {
    let mut compared = 0;
    for (index, body) in bodies(20).iter().enumerate() {
        let first = Gradient::<_, 3, 2>(body);
        let second = Gradient::<_, 5, 3>(&first);
        let graph = trace(body).gradient().gradient();
        for at in points::<8>(index as u64 + 1000, 3) {
            let dual: [f64; 5] = eval(&second, at);
            let reverse = eval_graph(&graph, &at);
            let weighted = |x: [f64; 5]| {
                let gradients: [f64; 3] = eval(&first, x);
                gradients[0] * at[5] + gradients[1] * at[6] + gradients[2] * at[7]
            };
            for input in 0..5 {
                let (d, r) = (dual[input], reverse[input]);
                assert!(close(d, r, 1e-8), "body {index} by {input} at {at:?}: {d} and {r}\n{body:?}");
                let from = [at[0], at[1], at[2], at[3], at[4]];
                let Some(numeric) = difference(weighted, from, input) else { continue };
                assert!(
                    close(d, numeric, 1e-5),
                    "body {index} by {input} at {at:?}: {d} and {numeric}\n{body:?}"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 200, "{compared} of 300 could be compared with differences");
}

#[test]
fn the_graph_computes_what_the_body_computes() {
    for (index, body) in bodies(100).iter().enumerate() {
        let graph = trace(body);
        let points = points::<3>(index as u64, 20);
        let columns: [Vec<f64>; 3] = std::array::from_fn(|k| points.iter().map(|p| p[k]).collect());
        for level in Level::available() {
            let mut outputs = [vec![0.0; points.len()], vec![0.0; points.len()]];
            map_at(level, body, columns.each_ref().map(|c| &c[..]), outputs.each_mut().map(|o| &mut o[..]));
            for (row, at) in points.iter().enumerate() {
                let interpreted = eval_graph(&graph, at);
                for (column, &by_graph) in outputs.iter().zip(&interpreted) {
                    let by_body = column[row];
                    assert!(
                        close(by_body, by_graph, 1e-11),
                        "body {index} at {at:?}: {by_body} and {by_graph}"
                    );
                }
            }
        }
        for at in &points {
            let single = at.map(|x| F32::<Plain>::new(x as f32));
            let (by_body, by_graph) = (body.eval(single), graph.eval(&single));
            for (a, b) in by_body.iter().zip(&by_graph) {
                assert!(close(f64::from(a.get()), f64::from(b.get()), 2e-3), "body {index} at {at:?}");
            }
        }
    }
}

#[test]
fn a_graph_traced_again_is_the_same() {
    for body in bodies(100) {
        struct Again(Graph);
        impl Body<3, 2> for Again {
            fn eval<S: Scalar>(&self, inputs: [S; 3]) -> [S; 2] {
                let outputs = self.0.eval(&inputs);
                [outputs[0], outputs[1]]
            }
        }
        let graph = trace(&body);
        assert_eq!(trace(&Again(graph.clone())).nodes().len(), graph.nodes().len(), "{}", graph.formula());
    }
}

/// Bodies whose branch not taken at 0 has an infinite value or slope.
struct Guarded;

impl Body<1, 4> for Guarded {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 4] {
        let zero = S::of(0.0);
        let positive = x.gt(zero);
        let square = x * x;
        let nested = S::select(x.lt(S::of(5.0)), (square / x).log(), x);
        [
            S::select(positive, x.sqrt(), zero),
            S::select(positive, S::of(1.0) / x, x * 3.0),
            S::select(positive, nested, x),
            (x.abs().sqrt()).max(S::of(2.0)),
        ]
    }
}

#[test]
fn nothing_leaks_from_the_branch_not_taken() {
    let expected = [0.0, 3.0, 1.0, 0.0];
    let gradient = Gradient::<_, 1, 4>(&Guarded);
    let second = Gradient::<_, 5, 1>(&gradient);
    let graph = trace(&Guarded).gradient();
    for (output, expected) in expected.into_iter().enumerate() {
        let mut at = [0.0; 6];
        (at[output + 1], at[5]) = (1.0, 1.0);
        let first: [f64; 1] = eval(&gradient, [at[0], at[1], at[2], at[3], at[4]]);
        assert_eq!(first, [expected], "output {output}");
        assert_eq!(eval_graph(&graph, &at[..5]), [expected], "output {output}");
        let hessian: [f64; 5] = eval(&second, at);
        assert_eq!(hessian[0], 0.0, "output {output}");
        assert_eq!(eval_graph(&graph.gradient(), &at)[0], 0.0, "output {output}");
    }
}

/// What two equal numbers share.
struct Shared;

impl Body<2, 2> for Shared {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [x, y]: [S; 2]) -> [S; 2] {
        [x.maximum(y), x.minimum(y)]
    }
}

#[test]
fn equal_numbers_share_the_gradient() {
    let graph = trace(&Shared).gradient();
    for (x, y, largest, smallest) in [(1.0, 2.0, [0.0, 1.0], [1.0, 0.0]), (3.0, 3.0, [0.5; 2], [0.5; 2])] {
        let found: [f64; 2] = eval(&Shared, [x, y]);
        assert_eq!(found, [f64::max(x, y), f64::min(x, y)]);
        assert_eq!(eval_graph(&graph, &[x, y, 1.0, 0.0])[..], largest);
        assert_eq!(eval_graph(&graph, &[x, y, 0.0, 1.0])[..], smallest);
    }
    let [largest, smallest]: [f64; 2] = eval(&Shared, [f64::NAN, 1.0]);
    assert!(largest.is_nan() && smallest.is_nan());
}

/// Many conditions on one number, whose slope is infinite where none of them holds.
struct Stairs;

impl Body<1, 1> for Stairs {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 1] {
        let (root, mut sum) = (x.sqrt(), S::of(0.0));
        for step in 1..=6 {
            let step = f64::from(step);
            sum = sum + S::select(x.gt(S::of(step)), root * step, S::of(0.0));
        }
        [sum]
    }
}

#[test]
fn many_conditions_stay_one_contribution() {
    let first = trace(&Stairs).gradient();
    let (second, third) = (first.gradient(), first.gradient().gradient());
    for (x, steps) in [(0.0, 0.0), (0.5, 0.0), (2.5, 3.0), (4.5, 10.0), (9.0, 21.0)] {
        let of =
            |slope: f64, power: f64| if steps == 0.0 { 0.0 } else { steps * slope * f64::powf(x, power) };
        let is_near = |found: f64, expected: f64| (found - expected).abs() <= 1e-12 * expected.abs();
        let found = eval_graph(&first, &[x, 1.0])[0];
        assert!(is_near(found, of(0.5, -0.5)), "{x}: {found}");
        let found = eval_graph(&second, &[x, 1.0, 1.0])[0];
        assert!(is_near(found, of(-0.25, -1.5)), "{x}: {found}");
        let found = eval_graph(&third, &[x, 1.0, 1.0, 1.0, 0.0])[0];
        assert!(is_near(found, of(0.375, -2.5)), "{x}: {found}");
    }
    let lines = third.formula().lines().count();
    assert!(lines < 100, "{lines}");
}

/// Roots of what `x` has no part in where it is negative.
struct Roots;

impl Body<1, 4> for Roots {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 4] {
        let (zero, positive) = (S::of(0.0), x.gt(S::of(0.0)));
        let part = S::select(positive, x, zero);
        [
            x.max(zero).sqrt(),
            part.log() * 2.0,
            S::select(!positive, zero, part + x * part).sqrt(),
            -part.rsqrt(),
        ]
    }
}

#[test]
fn an_infinite_slope_outside_of_a_select_is_no_gradient_where_nothing_depends() {
    let (gradient, graph) = (Gradient::<_, 1, 4>(&Roots), trace(&Roots).gradient());
    let second = Gradient::<_, 5, 1>(&gradient);
    for output in 0..4 {
        for given in [1.0, f64::INFINITY] {
            let mut at = [-2.0, 0.0, 0.0, 0.0, 0.0, 1.0];
            at[1 + output] = given;
            let first: [f64; 1] = eval(&gradient, [at[0], at[1], at[2], at[3], at[4]]);
            assert_eq!(first, [0.0], "output {output}");
            assert_eq!(eval_graph(&graph, &at[..5]), [0.0], "output {output}");
            let hessian: [f64; 5] = eval(&second, at);
            assert_eq!(hessian[0], 0.0, "output {output}");
        }
    }
    let first: [f64; 1] = eval(&gradient, [4.0, 1.0, 0.0, 0.0, 0.0]);
    assert_eq!(first, [0.25]);
}

#[test]
fn powers_at_zero_have_the_slopes_that_exist() {
    type Two = Dual<Number, 2>;
    let power = |x: f64, y: f64| Two::variable(Number::new(x), 0).pow(Two::variable(Number::new(y), 1));
    let slopes = |x: f64, y: f64| [power(x, y).derivative(0).get(), power(x, y).derivative(1).get()];
    assert_eq!(slopes(0.0, 2.0), [0.0, 0.0]);
    assert_eq!(slopes(0.0, 1.0), [1.0, 0.0]);
    assert_eq!(slopes(0.0, 0.0), [0.0, 0.0]);
    assert_eq!(slopes(-2.0, 3.0)[0], 12.0);
    for x in [f64::NAN, 1e-310, -1e-310, f64::INFINITY] {
        assert_eq!(slopes(x, 0.0)[0], 0.0, "{x}");
    }
}

#[test]
fn the_slope_of_a_power_of_0_changes_with_the_exponent() {
    type Two = Dual<Number, 2>;
    type Nested = Dual<Two, 2>;
    let (x, y) = (Two::variable(Number::new(2.0), 0), Two::variable(Number::new(0.0), 1));
    let mixed = Nested::variable(x, 0).pow(Nested::variable(y, 1)).derivative(0).derivative(1).get();
    // The derivative of y xʸ⁻¹ by y.
    assert_eq!(mixed, 0.5);
    // That by x, times no exponent, of numbers whose powers are infinite.
    for x in [1e-200, -1e-200, 2.0] {
        let (x, y) = (Two::variable(Number::new(x), 0), Two::constant(Number::new(0.0)));
        let second = Nested::variable(x, 0).pow(Nested::constant(y)).derivative(0).derivative(0).get();
        assert_eq!(second, 0.0);
    }
}

#[test]
fn ties_go_to_the_first_argument() {
    type Two = Dual<Number, 2>;
    let (x, y) = (Two::variable(Number::new(1.0), 0), Two::variable(Number::new(1.0), 1));
    for result in [x.min(y), x.max(y)] {
        assert_eq!([0, 1].map(|k| result.derivative(k).get()), [1.0, 0.0]);
    }
}

/// A body of forty inputs: more than one chunk of derivatives.
struct Forty;

impl Body<40, 1> for Forty {
    fn eval<S: Scalar>(&self, inputs: [S; 40]) -> [S; 1] {
        [inputs.iter().enumerate().fold(S::of(0.0), |sum, (k, &x)| sum + x * x * (k as f64))]
    }
}

#[test]
fn more_inputs_than_a_chunk_has_derivatives() {
    let mut at = [2.0; 41];
    at[40] = 1.0;
    let by_dual: [f64; 40] = eval(&Gradient::<_, 40, 1>(&Forty), at);
    assert_eq!(by_dual, std::array::from_fn(|k| 4.0 * k as f64));
    assert_eq!(eval_graph(&trace(&Forty).gradient(), &at), by_dual);
}
