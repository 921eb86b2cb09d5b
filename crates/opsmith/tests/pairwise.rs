//! `#[pairwise]`: values and gradients against their definitions, and bad input.

use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{Array2, arr2};
use opsmith::prelude::*;
use opsmith::testing::{self, Call, Outputs};
use opsmith::{OpDefinition, infer_error, infer_ok};

/// Manhattan distances.
#[pairwise]
fn manhattan<S: Scalar>(x: S, y: S) -> S {
    (x - y).abs()
}

/// Euclidean distances.
#[pairwise(finish = Scalar::sqrt)]
fn euclidean<S: Scalar>(x: S, y: S) -> S {
    (x - y) * (x - y)
}

/// The largest difference.
#[pairwise(fold = max, output = far)]
fn farthest<S: Scalar>(x: S, y: S) -> S {
    (x - y).abs()
}

/// The smallest scaled product, of two dtypes.
#[pairwise(fold = min, dtypes = [f32, f64], orders = 1, name = "LeastProduct")]
fn least<S: Scalar>(
    a: S,
    #[attr(default = 2.0)] scale: S,
    b: S,
    #[attr(default = false)] negative: bool,
) -> S {
    if negative { -(a * b * scale) } else { a * b * scale }
}

/// The mean of a long body.
#[pairwise(fold = mean)]
fn kernel<S: Scalar>(x: S, y: S) -> S {
    (-((x - y) * (x - y))).exp()
}

/// Of one argument alone, and of none.
#[pairwise]
fn of_x<S: Scalar>(x: S, _y: S) -> S {
    x * x
}

#[pairwise(fold = max)]
fn of_y<S: Scalar>(_x: S, y: S) -> S {
    y
}

#[pairwise(fold = mean, finish = Scalar::exp)]
fn of_none<S: Scalar>(_x: S, _y: S) -> S {
    S::of(2.0)
}

/// What is made of a fold, by attributes.
fn root<S: Scalar>(z: S, p: S, times: i64, negative: bool, unit: &str) -> S {
    let root = z.pow(S::of(1.0) / p) * if unit == "half" { 0.5 } else { 1.0 };
    let all = (0..times).fold(S::of(0.0), |all, _| all + root);
    if negative { -all } else { all }
}

/// Minkowski's distances, with attributes in the terms, after the fold, and in both.
#[pairwise(finish = root(p, times, negative, unit))]
fn minkowski<S: Scalar>(
    x: S,
    y: S,
    #[attr(default = 2.0)] p: S,
    #[attr(default = 1)] _times: i64,
    #[attr(default = false)] _negative: bool,
    #[attr(default = "one", one_of = ["one", "half"])] _unit: &str,
) -> S {
    (x - y).abs().pow(p)
}

/// Numbers between −1 and 1 that look random.
fn noise(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    Array2::from_shape_simple_fn((rows, columns), || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from((state >> 40) as u32) / f64::from(1 << 23) - 1.0
    })
}

/// Sizes with every kind of remainder, and empty ones.
const SIZES: [[usize; 3]; 14] = [
    [0, 3, 4],
    [3, 0, 4],
    [1, 1, 1],
    [1, 300, 33],
    [300, 1, 3],
    [2, 3, 300],
    [5, 7, 64],
    [13, 12, 23],
    [25, 70, 24],
    [13, 67, 129],
    [50, 131, 7],
    [61, 64, 260],
    [12, 15, 8300],
    [300, 40, 17],
];

/// Runs of a definition over all pairs: `fold` of the terms of a pair.
fn expected(
    x: &Array2<f64>,
    y: &Array2<f64>,
    fold: impl Fn(&mut dyn Iterator<Item = (f64, f64)>) -> f64,
) -> Array2<f64> {
    Array2::from_shape_fn((x.nrows(), y.nrows()), |(i, j)| {
        fold(&mut x.row(i).iter().copied().zip(y.row(j).iter().copied()))
    })
}

fn assert_close(what: &str, got: &Array2<f64>, expected: &Array2<f64>, tolerance: f64) {
    assert_eq!(got.dim(), expected.dim(), "{what}");
    for (got, expected) in got.iter().zip(expected) {
        let near = (got - expected).abs() <= tolerance * (1.0 + expected.abs());
        assert!(near || got.is_nan() && expected.is_nan(), "{what}: {got} for {expected}");
    }
}

fn run<O: OpDefinition>(inputs: &[&Array2<f64>], threads: usize) -> Outputs {
    of(O::def(), inputs, threads)
}

fn distances(x: &Array2<f64>, y: &Array2<f64>) -> Array2<f64> {
    run::<euclidean>(&[x, y], 1).array("z").unwrap()
}

fn of(def: OpDef, inputs: &[&Array2<f64>], threads: usize) -> Outputs {
    inputs.iter().fold(Call::new(def).threads(threads), |call, input| call.input(*input)).run().unwrap()
}

#[test]
fn folds_are_those_of_the_definition() {
    for [n, m, p] in SIZES {
        let (x, y) = (noise(n, p, 1), noise(m, p, 2));
        let what = format!("{n} x {m} x {p}");
        let check = |name: &str, outputs: Outputs, output: &str, want: Array2<f64>| {
            assert_close(&format!("{name} {what}"), &outputs.array(output).unwrap(), &want, 1e-13);
        };
        let sum = expected(&x, &y, |terms| terms.map(|(x, y)| (x - y).abs()).sum());
        check("manhattan", run::<manhattan>(&[&x, &y], 2), "z", sum);
        let root = expected(&x, &y, |terms| terms.map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt());
        check("euclidean", run::<euclidean>(&[&x, &y], 2), "z", root);
        let largest =
            expected(&x, &y, |terms| terms.map(|(x, y)| (x - y).abs()).fold(f64::NEG_INFINITY, f64::max));
        check("farthest", run::<farthest>(&[&x, &y], 2), "far", largest);
        let smallest =
            expected(&x, &y, |terms| terms.map(|(x, y)| x * y * 2.0).fold(f64::INFINITY, f64::min));
        check("least", run::<least>(&[&x, &y], 2), "z", smallest);
        let mean =
            expected(&x, &y, |terms| terms.map(|(x, y)| (-(x - y).powi(2)).exp()).sum::<f64>() / p as f64);
        check("kernel", run::<kernel>(&[&x, &y], 2), "z", mean);
    }
}

#[test]
fn attributes_are_constants_of_the_body() {
    let (a, b) = (arr2(&[[1.0, 2.0]]), arr2(&[[3.0, 4.0]]));
    let call = || testing::call::<least>().input(&a).input(&b).attr("scale", 10.0);
    let value = |outputs: Outputs| outputs.array::<f64, Ix2>("z").unwrap()[[0, 0]];
    assert_eq!(value(call().run().unwrap()), 30.0);
    assert_eq!(value(call().attr("negative", true).run().unwrap()), -80.0);
    assert_eq!(least::def().build().unwrap().signature().name, "LeastProduct");
    assert_eq!((least::COMPANIONS.len(), manhattan::COMPANIONS.len()), (1, 3));
}

#[test]
fn attributes_are_there_after_the_fold() {
    let (x, y) = (noise(5, 3, 1), noise(4, 3, 2));
    let z = testing::call::<minkowski>().input(&x).input(&y).attr("p", 3.0).attr("times", 2_i64);
    let z = z.attr("negative", true).attr("unit", "half").run().unwrap();
    let definition = expected(&x, &y, |terms| -terms.map(|(x, y)| (x - y).abs().powi(3)).sum::<f64>().cbrt());
    assert_close("minkowski", &z.array("z").unwrap(), &definition, 1e-13);
    let plain = run::<minkowski>(&[&x, &y], 1);
    let definition = expected(&x, &y, |terms| terms.map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt());
    assert_close("minkowski", &plain.array("z").unwrap(), &definition, 1e-13);
    let library = opsmith::Library::new("finished", "0.1.0", vec![minkowski::def().not_differentiable()]);
    let source = library
        .unwrap_or_else(|error| panic!("{error}"))
        .op("minkowski")
        .unwrap()
        .explain(&[const { None }; 5])
        .unwrap();
    assert!(source.cuda_source.contains("attributes.value[0]"), "{}", source.cuda_source);
}

#[test]
fn what_ignores_an_argument_has_a_number_for_every_pair() {
    let (x, y) = (noise(5, 3, 1), noise(4, 3, 2));
    let squares = expected(&x, &y, |terms| terms.map(|(x, _)| x * x).sum());
    assert_close("of_x", &run::<of_x>(&[&x, &y], 1).array("z").unwrap(), &squares, 1e-14);
    let largest = expected(&x, &y, |terms| terms.map(|(_, y)| y).fold(f64::NEG_INFINITY, f64::max));
    assert_close("of_y", &run::<of_y>(&[&x, &y], 1).array("z").unwrap(), &largest, 0.0);
    let constant = Array2::from_elem((5, 4), 2.0_f64.exp());
    assert_close("of_none", &run::<of_none>(&[&x, &y], 1).array("z").unwrap(), &constant, 1e-14);
    let z_grad = noise(5, 4, 3);
    let outputs = of((of_x::COMPANIONS[0])(), &[&x, &y, &z_grad], 1);
    let by_x = Array2::from_shape_fn((5, 3), |(i, p)| 2.0 * x[[i, p]] * z_grad.row(i).sum());
    assert_close("of_x_grad", &outputs.array("x_grad").unwrap(), &by_x, 1e-14);
    assert_close("of_x_grad", &outputs.array("y_grad").unwrap(), &Array2::zeros((4, 3)), 0.0);
    // Both rows are free all the same.
    for def in [of_x::def(), of_y::def(), of_none::def()] {
        let library = opsmith::Library::new("free", "0.1.0", vec![def.not_differentiable()]);
        let library = library.unwrap_or_else(|error| panic!("{error}"));
        let parallel = library.ops()[0].parallel().unwrap().to_string();
        assert_eq!(parallel, "(..., n, _), (..., m, _) -> (..., n, m)");
    }
}

#[test]
fn half_precision_is_computed_in_float32() {
    let (n, m, p) = (14, 20, 300);
    let (x, y) = (noise(n, p, 3), noise(m, p, 4));
    let (half_x, half_y) = (x.mapv(f16::from_f64), y.mapv(f16::from_f64));
    let (brain_x, brain_y) = (x.mapv(bf16::from_f64), y.mapv(bf16::from_f64));
    let sum = |terms: &mut dyn Iterator<Item = (f64, f64)>| terms.map(|(x, y)| (x - y).abs()).sum();
    let outputs = testing::call::<manhattan>().input(&half_x).input(&half_y).run().unwrap();
    let got = outputs.array::<f16, Ix2>("z").unwrap().mapv(f64::from);
    let want = expected(&half_x.mapv(f64::from), &half_y.mapv(f64::from), sum);
    assert_close("float16", &got, &want, 0.5 / 1024.0 * 1.01);
    let outputs = testing::call::<manhattan>().input(&brain_x).input(&brain_y).run().unwrap();
    let got = outputs.array::<bf16, Ix2>("z").unwrap().mapv(f64::from);
    let want = expected(&brain_x.mapv(f64::from), &brain_y.mapv(f64::from), sum);
    assert_close("bfloat16", &got, &want, 0.5 / 128.0 * 1.01);
    let grad = Array2::from_elem((n, m), f16::from_f64(0.5));
    let call = Call::new((manhattan::COMPANIONS[0])()).input(&half_x).input(&half_y).input(&grad);
    let x_grad = call.run().unwrap().array::<f16, Ix2>("x_grad").unwrap();
    let sign = |i: usize, j: usize| {
        (half_x[[i, 7]] - half_y[[j, 7]]).to_f64().partial_cmp(&0.0).map_or(0, |o| o as i32)
    };
    let want: i32 = (0..m).map(|j| sign(3, j)).sum();
    assert_eq!(x_grad[[3, 7]].to_f64(), f64::from(want) * 0.5);
}

/// The gradient of the sum of `z * z_grad` by finite differences, for one element of `x` and one of `y`.
fn slopes(
    forward: impl Fn(&Array2<f64>, &Array2<f64>) -> f64,
    x: &Array2<f64>,
    y: &Array2<f64>,
    at: [usize; 2],
) -> [f64; 2] {
    const STEP: f64 = 1e-6;
    let moved = |array: &Array2<f64>, by: f64| {
        let mut array = array.clone();
        array[at] += by;
        array
    };
    let by_x = forward(&moved(x, STEP), y) - forward(&moved(x, -STEP), y);
    let by_y = forward(x, &moved(y, STEP)) - forward(x, &moved(y, -STEP));
    [by_x / (2.0 * STEP), by_y / (2.0 * STEP)]
}

fn check_gradient<O: OpDefinition>(output: &str) {
    for [n, m, p] in [[3, 4, 5], [1, 40, 19], [70, 33, 18], [14, 290, 70], [300, 2, 3]] {
        let (x, y, z_grad) = (noise(n, p, 5), noise(m, p, 6), noise(n, m, 7));
        let forward = |x: &Array2<f64>, y: &Array2<f64>| {
            (run::<O>(&[x, y], 1).array::<f64, Ix2>(output).unwrap() * &z_grad).sum()
        };
        let z = run::<O>(&[&x, &y], 1).array::<f64, Ix2>(output).unwrap();
        let def = (O::COMPANIONS[0])();
        let reads = def.signature().unwrap().inputs.len() == 4;
        let inputs: &[&Array2<f64>] = if reads { &[&x, &y, &z, &z_grad] } else { &[&x, &y, &z_grad] };
        let outputs = of(def, inputs, 2);
        let (x_grad, y_grad): (Array2<f64>, Array2<f64>) =
            (outputs.array("x_grad").unwrap(), outputs.array("y_grad").unwrap());
        for at in [[0, 0], [n.min(m) - 1, p - 1], [n.min(m) / 2, p / 2]] {
            let [by_x, by_y] = slopes(forward, &x, &y, at);
            let near = (x_grad[at] - by_x).abs() < 1e-5 && (y_grad[at] - by_y).abs() < 1e-5;
            assert!(
                near,
                "{n} x {m} x {p} at {at:?}: {} and {} for {by_x} and {by_y}",
                x_grad[at], y_grad[at]
            );
        }
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    check_gradient::<manhattan>("z");
    check_gradient::<euclidean>("z");
    check_gradient::<farthest>("far");
    check_gradient::<kernel>("z");
    check_gradient::<minkowski>("z");
}

#[test]
fn only_wanted_gradients_are_made() {
    let (x, y, z_grad) = (noise(20, 30, 8), noise(40, 30, 9), noise(20, 40, 10));
    let z = distances(&x, &y);
    let all = of((euclidean::COMPANIONS[0])(), &[&x, &y, &z, &z_grad], 1);
    let call = || Call::new((euclidean::COMPANIONS[0])()).input(&x).input(&y).input(&z).input(&z_grad);
    for (left_out, made) in [("x_grad", "y_grad"), ("y_grad", "x_grad")] {
        let outputs = call().without(left_out).run().unwrap();
        assert!(!outputs.has(left_out));
        assert_eq!(outputs.array::<f64, Ix2>(made).unwrap(), all.array::<f64, Ix2>(made).unwrap());
    }
}

#[test]
fn absent_gradients_of_second_order_are_zero() {
    let (x, y, z_grad, by_x) = (noise(20, 30, 8), noise(40, 30, 9), noise(20, 40, 10), noise(20, 30, 11));
    let def = || (euclidean::COMPANIONS[1])();
    let zero = Array2::<f64>::zeros((40, 30));
    let z = distances(&x, &y);
    let given = of(def(), &[&x, &y, &z, &z_grad, &by_x, &zero], 1);
    let absent = Call::new(def()).input(&x).input(&y).input(&z).input(&z_grad).input(&by_x).absent();
    let absent = absent.run().unwrap();
    for output in ["x_grad", "y_grad", "z_grad_2", "z_grad_grad"] {
        let (given, absent): (Array2<f64>, Array2<f64>) =
            (given.array(output).unwrap(), absent.array(output).unwrap());
        assert_close(output, &absent, &given, 1e-15);
        assert!(given.iter().any(|&number| number != 0.0));
    }
}

#[test]
fn threads_change_no_bit() {
    for [n, m, p] in [[200, 150, 150], [1, 900, 40], [900, 3, 40], [30, 40, 3]] {
        let (x, y, z_grad) = (noise(n, p, 12), noise(m, p, 13), noise(n, m, 14));
        let (by_x, by_y) = (noise(n, p, 15), noise(m, p, 16));
        let bits = |threads: usize| {
            let forward = run::<euclidean>(&[&x, &y], threads);
            let z = distances(&x, &y);
            let first = of((euclidean::COMPANIONS[0])(), &[&x, &y, &z, &z_grad], threads);
            let second = of((euclidean::COMPANIONS[1])(), &[&x, &y, &z, &z_grad, &by_x, &by_y], threads);
            let largest = of((farthest::COMPANIONS[0])(), &[&x, &y, &z_grad], threads);
            let arrays = [
                (forward, vec!["z"]),
                (first, vec!["x_grad", "y_grad"]),
                (second, vec!["x_grad", "y_grad", "z_grad_2", "z_grad_grad"]),
                (largest, vec!["x_grad", "y_grad"]),
            ];
            let numbers = arrays.iter().flat_map(|(outputs, names)| {
                names.iter().flat_map(|name| outputs.array::<f64, Ix2>(name).unwrap()).collect::<Vec<_>>()
            });
            numbers.map(f64::to_bits).collect::<Vec<u64>>()
        };
        let one = bits(1);
        for threads in [2, 16] {
            assert!(bits(threads) == one, "{n} x {m} x {p} on {threads} threads");
        }
    }
}

#[test]
fn long_sums_are_as_exact_as_stated() {
    let (n, m, p) = (12, 12, 100_000);
    let x = noise(n, p, 17).mapv(|v| v as f32);
    let y = noise(m, p, 18).mapv(|v| v as f32);
    let outputs = testing::call::<manhattan>().input(&x).input(&y).run().unwrap();
    let got = outputs.array::<f32, Ix2>("z").unwrap();
    let sum = |terms: &mut dyn Iterator<Item = (f64, f64)>| {
        terms.map(|(x, y)| f64::from((x as f32 - y as f32).abs())).sum()
    };
    let want = expected(&x.mapv(f64::from), &y.mapv(f64::from), sum);
    let bound = (128.0 + 64.0 + p as f64 / 8192.0) * f64::from(f32::EPSILON) / 2.0;
    for (got, want) in got.iter().zip(&want) {
        assert!((f64::from(*got) - want).abs() <= bound * want, "{got} for {want}");
    }
}

#[test]
fn near_rows_and_large_offsets_stay_exact() {
    let (n, m, p) = (30, 40, 200);
    let (mut x, y) = (noise(n, p, 21).mapv(|v| v as f32), noise(m, p, 22).mapv(|v| v as f32));
    x.row_mut(0).assign(&y.row(0));
    x.row_mut(1).assign(&y.row(1).mapv(|v| v * (1.0 + 1e-6)));
    for offset in [0.0, 1000.0] {
        let (x, y) = (&x + offset, &y + offset);
        let outputs = testing::call::<manhattan>().input(&x).input(&y).run().unwrap();
        let got = outputs.array::<f32, Ix2>("z").unwrap();
        let want =
            expected(&x.mapv(f64::from), &y.mapv(f64::from), |terms| terms.map(|(x, y)| (x - y).abs()).sum());
        assert_eq!(got[[0, 0]], 0.0);
        for (got, want) in got.iter().zip(&want) {
            assert!((f64::from(*got) - want).abs() <= 4e-6 * want, "{offset}: {got} for {want}");
        }
    }
}

#[test]
fn ties_share_the_gradient() {
    let (x, y) = (arr2(&[[3.0, -1.0, 5.0, 1.0]]), arr2(&[[1.0, 1.0, 3.0, 1.0]]));
    let outputs = of((farthest::COMPANIONS[0])(), &[&x, &y, &arr2(&[[6.0]])], 1);
    assert_eq!(outputs.array::<f64, Ix2>("x_grad").unwrap(), arr2(&[[2.0, -2.0, 2.0, 0.0]]));
    assert_eq!(outputs.array::<f64, Ix2>("y_grad").unwrap(), arr2(&[[-2.0, 2.0, -2.0, 0.0]]));
}

/// What compiled code and the graph round differently, with slopes 3 and -3.
#[pairwise(fold = max)]
fn rounded<S: Scalar>(x: S, y: S) -> S {
    (x - y).mul_add(S::of(3.0), S::of(0.1))
}

#[test]
fn the_largest_term_takes_the_gradient_however_it_is_rounded() {
    for p in [5, 40, 150] {
        let narrow = |array: Array2<f64>| array.mapv(|x| x as f32);
        let (x, y) = (narrow(noise(13, p, 1)), narrow(noise(14, p, 2)));
        let z_grad = Array2::<f32>::ones((13, 14));
        let call = Call::new(rounded::COMPANIONS[0]()).input(&x).input(&y).input(&z_grad);
        let outputs = call.run().unwrap();
        for (output, expected) in [("x_grad", 3.0 * 14.0), ("y_grad", -3.0 * 13.0)] {
            for row in outputs.array::<f32, Ix2>(output).unwrap().rows() {
                assert!((row.sum() - expected).abs() <= 1e-4, "{output} of {p} elements: {row}");
            }
        }
    }
}

#[test]
fn nan_and_infinities_go_through() {
    let mut x = noise(20, 40, 19);
    let mut y = noise(30, 40, 20);
    x[[3, 7]] = f64::NAN;
    x[[4, 0]] = f64::INFINITY;
    y[[5, 39]] = f64::NEG_INFINITY;
    y[[6, 0]] = f64::INFINITY;
    let sum = expected(&x, &y, |terms| terms.map(|(x, y)| (x - y).abs()).sum());
    let got: Array2<f64> = run::<manhattan>(&[&x, &y], 2).array("z").unwrap();
    let largest: Array2<f64> = run::<farthest>(&[&x, &y], 2).array("far").unwrap();
    for ((i, j), want) in sum.indexed_iter() {
        let same =
            |number: f64| number.is_nan() == want.is_nan() && number.is_infinite() == want.is_infinite();
        assert!(
            same(got[[i, j]]) && same(largest[[i, j]]),
            "[{i}, {j}]: {} and {} for {want}",
            got[[i, j]],
            largest[[i, j]]
        );
    }
    let x_grad: Array2<f64> =
        of((manhattan::COMPANIONS[0])(), &[&x, &y, &Array2::ones((20, 30))], 2).array("x_grad").unwrap();
    assert!(x_grad[[3, 7]].is_nan() && x_grad[[3, 8]].is_finite());
    // ∞ − ∞ is NaN, the sign of what else is infinite is 1.
    assert!(x_grad[[4, 0]].is_nan() && x_grad[[5, 39]].is_finite());
}

#[test]
fn rows_without_elements() {
    let (x, y) = (Array2::<f64>::zeros((20, 0)), Array2::zeros((13, 0)));
    let z: Array2<f64> = run::<manhattan>(&[&x, &y], 1).array("z").unwrap();
    assert_eq!(z, Array2::<f64>::zeros((20, 13)));
    let mean: Array2<f64> = run::<kernel>(&[&x, &y], 1).array("z").unwrap();
    assert!(mean.iter().all(|number| number.is_nan()));
    let far: Array2<f64> = run::<farthest>(&[&x, &y], 1).array("far").unwrap();
    assert_eq!(far, Array2::from_elem((20, 13), f64::NEG_INFINITY));
    let nothing = Array2::<f64>::zeros((0, 0));
    let none: Array2<f64> = run::<farthest>(&[&nothing, &y], 1).array("far").unwrap();
    assert_eq!(none.dim(), (0, 13));
    let outputs = of((manhattan::COMPANIONS[0])(), &[&x, &y, &z], 1);
    assert_eq!(outputs.array::<f64, Ix2>("x_grad").unwrap().dim(), (20, 0));
    let x = noise(5, 30, 1);
    let outputs = of((manhattan::COMPANIONS[0])(), &[&x, &Array2::zeros((0, 30)), &Array2::zeros((5, 0))], 1);
    assert_eq!(outputs.array::<f64, Ix2>("x_grad").unwrap(), Array2::<f64>::zeros((5, 30)));
}

#[test]
fn what_does_not_fit_is_told() {
    let (x, y) = (noise(3, 4, 1), noise(5, 6, 2));
    let message = |call: Call<'_>| call.run().unwrap_err().message().to_owned();
    let mismatch = message(testing::call::<manhattan>().input(&x).input(&y));
    assert!(
        mismatch.starts_with("Manhattan: ") && mismatch.contains('4') && mismatch.contains('6'),
        "{mismatch}"
    );
    let flat = array![1.0, 2.0];
    let rank = message(testing::call::<manhattan>().input(&flat).input(&x));
    assert!(rank.starts_with("Manhattan: ") && rank.contains('2'), "{rank}");
    let integers = array![[1, 2]];
    let dtype = message(testing::call::<manhattan>().input(&integers).input(&integers));
    assert!(dtype.starts_with("Manhattan: ") && dtype.contains("int32"), "{dtype}");
    let halves = x.mapv(f16::from_f64);
    let dtype = message(testing::call::<least>().input(&halves).input(&halves));
    assert!(dtype.contains("float16"), "{dtype}");
    let grad = message(Call::new((manhattan::COMPANIONS[0])()).input(&x).input(&x).input(&y));
    assert!(grad.starts_with("ManhattanGrad: ") && grad.contains('3') && grad.contains('5'), "{grad}");
}

#[test]
fn dims_in_front_broadcast() {
    let (x, y) = (noise(4, 3, 1), noise(10, 3, 2));
    let (stack, rows) =
        (x.clone().into_shape_with_order((2, 2, 3)).unwrap(), y.slice(s![..5, ..]).to_owned());
    let outputs = testing::call::<euclidean>().input(&stack).input(&rows).run().unwrap();
    let got = outputs.array::<f64, Ix3>("z").unwrap();
    for (index, part) in stack.outer_iter().enumerate() {
        let alone: Array2<f64> = run::<euclidean>(&[&part.to_owned(), &rows], 1).array("z").unwrap();
        assert_close("a part", &got.index_axis(opsmith::ndarray::Axis(0), index).to_owned(), &alone, 1e-15);
    }
}

#[test]
fn shapes_are_inferred() {
    infer_ok!(testing::shapes::<manhattan>(), "[?,3];[5,?]", "[d0_0,d1_0]");
    infer_ok!(testing::shapes::<manhattan>(), "?;?", "?");
    infer_ok!(testing::shapes::<manhattan>(), "[7,1,3,2];[5,4,2]", "[7,5,3,4]");
    infer_error!(testing::shapes::<manhattan>(), "must", "[2,3];[2,4]");
    infer_error!(testing::shapes::<manhattan>(), "rank", "[2];[2,4]");
}

#[test]
#[ignore = "its output has more than 2³¹ elements: it takes 9 GB and minutes"]
fn more_pairs_than_32_bits_count() {
    let (n, m) = (46_341, 46_342);
    let x = Array2::from_shape_fn((n, 1), |(i, _)| f16::from_f64((i % 1000) as f64));
    let y = Array2::from_shape_fn((m, 1), |(j, _)| f16::from_f64((j % 777) as f64));
    let outputs = testing::call::<manhattan>().input(&x).input(&y).threads(2).run().unwrap();
    let z: Array2<f16> = outputs.array("z").unwrap();
    assert!(z.len() > 1 << 31);
    for (i, j) in [(0, 0), (n - 1, m - 1), (n - 1, 0), (n / 2, m / 2), (0, m - 1)] {
        assert_eq!(z[[i, j]], f16::from_f64((x[[i, 0]] - y[[j, 0]]).to_f64().abs()), "{i}, {j}");
    }
}
