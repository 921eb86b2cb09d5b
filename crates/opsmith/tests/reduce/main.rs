//! Ops made by `#[reduce]`, called through the core.

#[path = "../common/mod.rs"]
mod common;
mod wide;

use common::{assert_close, gradient, numbers};
use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{Array, Array1, Array2, ArrayD, Zip};
use opsmith::prelude::*;
use opsmith::testing::{self, Call, call};
use opsmith::{Code, Library, infer_error, infer_ok};

/// The softmax of each row.
///
/// x: Any numbers.
#[reduce]
fn softmax<R: Rows>(x: R::Each) -> R::Each {
    let e = (x - x.amax().detached()).exp();
    e / e.sum()
}

#[reduce]
fn total<R: Rows>(x: R::Each) -> R::One {
    x.sum()
}

#[reduce(outputs = [smallest, largest])]
fn range<R: Rows>(x: R::Each) -> (R::One, R::One) {
    (x.amin(), x.amax())
}

/// All kinds of arguments.
#[reduce(name = "Scaled", outputs = [scaled, size])]
fn with_everything<R: Rows>(
    x: R::Each,
    gamma: R::Each,
    weight: R::One,
    #[attr(default = 0.5)] shift: R::One,
    #[attr(default = false)] negate: bool,
) -> (R::Each, R::One) {
    let scaled = (x - x.mean() + shift) * gamma * weight;
    let size = (x * x).sum() + weight * x.count();
    (if negate { -scaled } else { scaled }, size)
}

/// Attributes of every kind in folds and after them.
#[reduce]
fn p_norm<R: Rows>(
    x: R::Each,
    #[attr(default = 2.0)] p: R::One,
    #[attr(default = 1)] times: i64,
    #[attr(default = "root", one_of = ["root", "log"])] of: &str,
) -> R::One {
    let sum = x.abs().pow(R::Each::of_row(p)).sum() * times as f64;
    if of == "root" { sum.pow(R::One::of(1.0) / p) } else { sum.log() / p }
}

/// What a call of an op saves for its gradients, by its place among that.
fn saved<T: Element>(forward: Call<'_>, place: usize) -> ArrayD<T> {
    forward.run().unwrap().array(&format!("saved_{place}")).unwrap()
}

/// The softmax of the rows of the last axis.
fn expected_softmax(x: &ArrayD<f64>) -> ArrayD<f64> {
    let mut y = x.clone();
    for mut row in y.rows_mut() {
        let largest = row.fold(f64::NEG_INFINITY, |a, b| a.max(*b));
        row.mapv_inplace(|x| (x - largest).exp());
        let sum = row.sum();
        row.mapv_inplace(|e| e / sum);
    }
    y
}

/// The sum of the last axes.
fn expected_total(x: &ArrayD<f64>, axes: usize) -> ArrayD<f64> {
    (0..axes).fold(x.clone(), |sum, _| sum.sum_axis(Axis(sum.ndim() - 1)))
}

#[test]
fn attributes_are_there_in_folds_and_after_them() {
    let x = numbers(&[4, 7], 1);
    let p_norm = |p: f64, times: i64, of: &str| {
        let y = call::<p_norm>().input(&x).attr("p", p).attr("times", times).attr("of", of).run().unwrap();
        y.array::<f64, Ix1>("y").unwrap().into_dyn()
    };
    let sums = |p: f64| expected_total(&x.mapv(|x| x.abs().powf(p)), 1);
    assert_close(&p_norm(3.0, 2, "root"), &sums(3.0).mapv(|sum| (2.0 * sum).cbrt()), 1e-13);
    assert_close(&p_norm(1.5, 1, "log"), &sums(1.5).mapv(|sum| sum.ln() / 1.5), 1e-13);
}

#[test]
fn the_definition_is_read_off_the_function() {
    let mut defs = vec![softmax::def(), with_everything::def()];
    defs.extend(softmax::COMPANIONS.iter().chain(with_everything::COMPANIONS).map(|def| def()));
    let library = Library::new("test", "1.0.0", defs).unwrap();
    let op = library.op("Softmax").unwrap();
    assert_eq!(op.signature().doc, "The softmax of each row.");
    let attrs: Vec<String> = op.signature().attrs.iter().map(ToString::to_string).collect();
    assert_eq!(attrs, ["T: {float16, bfloat16, float32, float64}", "axes: int >= 1 = 1"]);
    assert_eq!(op.gradient_wiring().unwrap().op, "SoftmaxGrad");
    let scaled = library.op("Scaled").unwrap().signature();
    let names: Vec<&str> = scaled.inputs.iter().chain(&scaled.outputs).map(|arg| arg.name.as_str()).collect();
    assert_eq!(names, ["x", "gamma", "weight", "scaled", "size", "saved_1"]);
    assert_eq!(library.op("ScaledGradGrad").unwrap().gradient_wiring().unwrap().op, "ScaledGradGradGrad");
    assert!(library.op("ScaledGradGradGrad").unwrap().gradient_wiring().is_none());
}

#[test]
fn shapes_are_inferred_for_every_order() {
    infer_ok!(testing::shapes::<softmax>(), "[2,3]", "[2,3]");
    infer_ok!(testing::shapes::<total>(), "[2,?,4]", "[2,d0_1]");
    infer_ok!(testing::shapes::<total>(), "?", "?");
    infer_ok!(testing::shapes::<with_everything>(), "[5,1,3];[3];[4]", "[5,4,3];[5,4];[5,4]");
    infer_error!(testing::shapes::<with_everything>(), "must equal", "[2,3];[4];[2]");
    infer_error!(testing::shapes::<total>(), "Total: `axes` is 1, but the inputs have only 0 dims", "[]");
}

#[test]
fn rows_of_every_length_and_layout() {
    for length in [1, 2, 7, 31, 32, 33, 127, 128, 129, 1000, 2048, 2049, 5000] {
        let x = numbers(&[3, 5, length], length as u64);
        let run = |x: &ArrayD<f64>| {
            let outputs = call::<softmax>().input(x).threads(2).run().unwrap();
            outputs.array::<f64, IxDyn>("y").unwrap()
        };
        assert_close(&run(&x), &expected_softmax(&x), 1e-14);
        let turned = x.clone().permuted_axes(IxDyn(&[2, 0, 1]));
        assert_close(&run(&turned), &expected_softmax(&turned.as_standard_layout().to_owned()), 1e-14);
        let cut = x.slice(s![..;-1, 1..;2, ..;-1]).into_dyn();
        let outputs = call::<total>().input(&cut).run().unwrap().array::<f64, IxDyn>("y").unwrap();
        assert_close(&outputs, &expected_total(&cut.to_owned(), 1), 1e-13);
    }
}

#[test]
fn many_short_rows() {
    for length in [1, 3, 20] {
        let x = numbers(&[1000, length], 3);
        let outputs = call::<softmax>().input(&x).threads(2).run().unwrap();
        assert_close(&outputs.array("y").unwrap(), &expected_softmax(&x), 1e-14);
        let outputs = call::<total>().input(&x).threads(2).run().unwrap();
        assert_close(&outputs.array("y").unwrap(), &expected_total(&x, 1), 1e-14);
    }
}

#[test]
fn many_short_rows_are_computed_as_each_alone() {
    // The rows of the whole are computed side by side; those of two rows are not.
    for length in [1, 2, 3, 15, 16, 17, 33, 64, 80, 81] {
        let x = numbers(&[2, 151, length], 4).mapv(|x| x as f32);
        let (gamma, weight) =
            (numbers(&[length], 5).mapv(|x| x as f32), numbers(&[151], 6).mapv(|x| x as f32));
        let run = |x: &ArrayD<f32>, weight: &ArrayD<f32>| {
            let outputs = call::<with_everything>().input(x).input(&gamma).input(weight).threads(2).run();
            let outputs = outputs.unwrap();
            let softmax = call::<softmax>().input(x).run().unwrap().array::<f32, IxDyn>("y").unwrap();
            let scaled = outputs.array::<f32, IxDyn>("scaled").unwrap();
            (softmax, scaled, outputs.array::<f32, IxDyn>("size").unwrap())
        };
        let (softmax, scaled, size) = run(&x, &weight);
        let turned = x.view().permuted_axes(IxDyn(&[1, 2, 0])).as_standard_layout().to_owned();
        let turned = run(&turned.permuted_axes(IxDyn(&[2, 0, 1])), &weight).1;
        assert_close(&turned.mapv(f64::from), &scaled.mapv(f64::from), 1e-5);
        for row in [0, 1, 77, 127, 128, 150] {
            let one = |all: &ArrayD<f32>, axis: usize| {
                all.index_axis(Axis(axis), row).insert_axis(Axis(axis)).to_owned()
            };
            let alone = run(&one(&x, 1), &one(&weight, 0));
            // A row alone may be summed in another order.
            for (alone, among) in [(alone.0, &softmax), (alone.1, &scaled), (alone.2, &size)] {
                let (alone, among) = (alone.mapv(f64::from), one(among, 1).mapv(f64::from));
                assert_close(&alone, &among, 1e-5);
            }
        }
    }
}

#[test]
fn gradients_of_many_short_rows_are_those_of_a_few() {
    let (x, weight) = (numbers(&[2, 151, 5], 1), numbers(&[151], 3));
    let (scaled, size) = (numbers(&[2, 151, 5], 4), numbers(&[2, 151], 5));
    for own in [[2, 1, 5], [1, 151, 5], [2, 151, 1], [1, 151, 1], [1, 1, 5]] {
        let gamma = numbers(&own, 2);
        // Rows of the dim that may be repeated in `gamma`.
        let run = |rows: std::ops::Range<usize>, threads: usize| {
            let cut = |array: &ArrayD<f64>, axis: usize| match array.len_of(Axis(axis)) {
                1 => array.clone(),
                _ => array.slice_axis(Axis(axis), rows.clone().into()).to_owned(),
            };
            let [x, gamma, weight] = [cut(&x, 1), cut(&gamma, 1), cut(&weight, 0)];
            let sum = saved(call::<with_everything>().input(&x).input(&gamma).input(&weight), 1);
            let inputs = [x, gamma, weight, sum, cut(&scaled, 1), cut(&size, 1)];
            let call = inputs.iter().fold(gradient::<with_everything>(1), |call, input| call.input(input));
            let outputs = call.threads(threads).run().unwrap();
            ["x_grad", "gamma_grad", "weight_grad"].map(|name| outputs.array::<f64, IxDyn>(name).unwrap())
        };
        let all = run(0..151, 1);
        assert!([2, 16].into_iter().all(|threads| run(0..151, threads) == all));
        let mut gamma_grad = ArrayD::zeros(own.to_vec());
        for first in (0..151).step_by(3) {
            let rows = first..151.min(first + 3);
            let [x_grad, of_gamma, weight_grad] = run(rows.clone(), 1);
            let mut place = gamma_grad.view_mut();
            if own[1] != 1 {
                place.slice_axis_inplace(Axis(1), rows.clone().into());
            }
            place += &of_gamma;
            assert_close(&all[0].slice_axis(Axis(1), rows.clone().into()).to_owned(), &x_grad, 1e-14);
            assert_close(&all[2].slice_axis(Axis(0), rows.into()).to_owned(), &weight_grad, 1e-14);
        }
        assert_close(&all[1], &gamma_grad, 1e-12);
    }
}

#[test]
fn several_axes_are_one_row() {
    let x = numbers(&[3, 4, 5], 1);
    for axes in [1, 2, 3] {
        let outputs = call::<total>().input(&x).attr("axes", axes as i64).run().unwrap();
        assert_close(&outputs.array("y").unwrap(), &expected_total(&x, axes), 1e-14);
    }
    let outputs = call::<softmax>().input(&x.t()).attr("axes", 3).run().unwrap();
    let flat = x.t().as_standard_layout().to_owned().into_shape_with_order(IxDyn(&[60])).unwrap();
    let expected = expected_softmax(&flat).into_shape_with_order(IxDyn(&[5, 4, 3])).unwrap();
    assert_close(&outputs.array("y").unwrap(), &expected, 1e-14);
    let error = call::<total>().input(&x).attr("axes", 4).run().unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("Total: `axes` is 4, but the inputs have only 3 dims"), "{error}");
    let error = call::<total>().input(&x).attr("axes", 0).run().unwrap_err();
    assert!(error.message().contains("`axes`"), "{error}");
}

#[test]
fn inputs_broadcast() {
    let cases: [(&[usize], &[usize], &[usize]); 5] = [
        (&[4, 300], &[300], &[4]),
        (&[4, 300], &[1], &[]),
        (&[7, 1, 5], &[6, 5], &[7, 1]),
        (&[3], &[2, 3], &[5, 1]),
        (&[2, 40], &[2, 1], &[3, 1]),
    ];
    for (x, gamma, weight) in cases {
        let (x, gamma, weight) = (numbers(x, 1), numbers(gamma, 2), numbers(weight, 3));
        let outputs = call::<with_everything>()
            .input(&x)
            .input(&gamma)
            .input(&weight)
            .attr("shift", 0.25)
            .attr("negate", true)
            .run()
            .unwrap();
        let positions = &x * 0.0 + &gamma * 0.0;
        let x = &x + &positions;
        let last = Axis(x.ndim() - 1);
        let length = x.len_of(last) as f64;
        let mean = x.sum_axis(last).insert_axis(last) / length;
        let column = weight.clone().insert_axis(Axis(weight.ndim()));
        let scaled = -((&x - &mean + 0.25) * &gamma * &column);
        assert_close(&outputs.array("scaled").unwrap(), &scaled, 1e-12);
        let size = (&x * &x).sum_axis(last) + &weight * length;
        assert_close(&outputs.array("size").unwrap(), &size, 1e-12);
    }
}

/// The gradient of all inputs, against differences of the outputs' sum with these weights.
#[test]
fn gradients_agree_with_differences() {
    for (x, gamma, weight) in [
        (vec![2, 3], vec![3], vec![2]),
        (vec![2, 3], vec![1], vec![]),
        (vec![3, 1, 4], vec![2, 4], vec![3, 1]),
        (vec![40], vec![3, 40], vec![1]),
    ] {
        let inputs = [numbers(&x, 1), numbers(&gamma, 2), numbers(&weight, 3)];
        let run = |inputs: &[ArrayD<f64>; 3]| {
            let outputs = call::<with_everything>().input(&inputs[0]).input(&inputs[1]).input(&inputs[2]);
            let outputs = outputs.run().unwrap();
            (outputs.array::<f64, IxDyn>("scaled").unwrap(), outputs.array::<f64, IxDyn>("size").unwrap())
        };
        let (scaled, size) = run(&inputs);
        let weights = (numbers(scaled.shape(), 4), numbers(size.shape(), 5));
        let sum = |inputs: &[ArrayD<f64>; 3]| {
            let (scaled, size) = run(inputs);
            (&scaled * &weights.0).sum() + (&size * &weights.1).sum()
        };
        let own = call::<with_everything>().input(&inputs[0]).input(&inputs[1]).input(&inputs[2]);
        let folded = saved::<f64>(own, 1);
        let call = gradient::<with_everything>(1).input(&inputs[0]).input(&inputs[1]).input(&inputs[2]);
        let outputs = call.input(&folded).input(&weights.0).input(&weights.1).threads(2).run().unwrap();
        for (index, name) in ["x_grad", "gamma_grad", "weight_grad"].iter().enumerate() {
            let mut slopes = inputs[index].clone();
            for place in 0..slopes.len() {
                let moved = |by: f64| {
                    let mut inputs = inputs.clone();
                    *inputs[index].iter_mut().nth(place).unwrap() += by;
                    sum(&inputs)
                };
                *slopes.iter_mut().nth(place).unwrap() = (moved(1e-4) - moved(-1e-4)) / 2e-4;
            }
            assert_close(&outputs.array(name).unwrap(), &slopes, 1e-6);
        }
        let only = gradient::<with_everything>(1).input(&inputs[0]).input(&inputs[1]).input(&inputs[2]);
        let only = only
            .input(&folded)
            .absent()
            .input(&weights.1)
            .without("x_grad")
            .without("gamma_grad")
            .run()
            .unwrap();
        assert!(!only.has("x_grad"));
        let expected = outputs_of_size(&inputs, &weights.1);
        assert_close(&only.array("weight_grad").unwrap(), &expected, 1e-12);
    }
}

/// The gradient of `weight` by `size` alone: its gradient times the length, summed over what was repeated.
fn outputs_of_size(inputs: &[ArrayD<f64>; 3], size_grad: &ArrayD<f64>) -> ArrayD<f64> {
    let length = (&inputs[0] * &inputs[1]).shape().last().copied().unwrap() as f64;
    summed_to(&(size_grad * length), inputs[2].shape())
}

/// What a full gradient is for an input of another shape: the sum over the dims along which it was repeated.
fn summed_to(full: &ArrayD<f64>, shape: &[usize]) -> ArrayD<f64> {
    let mut sum = full.clone();
    while sum.ndim() > shape.len() {
        sum = sum.sum_axis(Axis(0));
    }
    for (axis, &dim) in shape.iter().enumerate() {
        if dim == 1 && sum.shape()[axis] != 1 {
            sum = sum.sum_axis(Axis(axis)).insert_axis(Axis(axis));
        }
    }
    sum
}

#[test]
fn results_are_the_same_bits_for_any_number_of_threads() {
    for shape in [
        vec![1, 1_000_003],
        vec![3, 70_001],
        vec![17, 40_000],
        vec![700, 33],
        vec![5, 7, 3000],
        vec![40_001, 3],
    ] {
        let x = numbers(&shape, 7).mapv(|x| x as f32);
        let gamma = numbers(&shape[shape.len() - 1..], 8).mapv(|x| x as f32);
        let weight = Array::from_elem(IxDyn(&[1]), 0.5f32);
        let run = |threads: usize| {
            let y = call::<softmax>().input(&x).threads(threads).run().unwrap();
            let y: ArrayD<f32> = y.array("y").unwrap();
            let size = numbers(&shape[..shape.len() - 1], 9).mapv(|x| x as f32);
            let own = call::<with_everything>().input(&x).input(&gamma).input(&weight).threads(threads);
            let sum = saved::<f32>(own, 1);
            let outputs = gradient::<with_everything>(1).input(&x).input(&gamma).input(&weight).input(&sum);
            let outputs = outputs.input(&x).input(&size).threads(threads).run().unwrap();
            let grads = ["x_grad", "gamma_grad", "weight_grad"];
            (y, grads.map(|name| outputs.array::<f32, IxDyn>(name).unwrap()))
        };
        let one = run(1);
        assert!([2, 5, 16].into_iter().all(|threads| run(threads) == one), "{shape:?}");
    }
}

#[test]
fn sums_are_within_the_stated_bound() {
    for length in [100usize, 4096, 100_000, 3_000_000] {
        let x = numbers(&[length], 5).mapv(|x| x as f32);
        let exact: f64 = x.iter().map(|x| f64::from(*x)).sum();
        let magnitude: f64 = x.iter().map(|x| f64::from(x.abs())).sum();
        let outputs = call::<total>().input(&x).threads(2).run().unwrap();
        let got = f64::from(outputs.array::<f32, Ix0>("y").unwrap().into_scalar());
        let additions = 23.0 + (length as f64 / 2048.0).log2().ceil().max(0.0);
        let unit = f64::from(f32::EPSILON) / 2.0;
        assert!((got - exact).abs() <= additions * unit * magnitude, "{got} and {exact}");
    }
}

#[test]
fn halves_are_computed_in_single_precision() {
    let x = numbers(&[9, 300], 1);
    let half = x.mapv(f16::from_f64);
    let wide = call::<softmax>().input(&half.mapv(f16::to_f32)).run().unwrap();
    let wide: ArrayD<f32> = wide.array("y").unwrap();
    let outputs = call::<softmax>().input(&half).run().unwrap();
    assert_eq!(outputs.array::<f16, IxDyn>("y").unwrap(), wide.mapv(f16::from_f32));
    let brain = x.mapv(bf16::from_f64);
    let sums = call::<total>().input(&brain).run().unwrap().array::<bf16, Ix1>("y").unwrap();
    let wide =
        call::<total>().input(&brain.mapv(bf16::to_f32)).run().unwrap().array::<f32, Ix1>("y").unwrap();
    assert_eq!(sums, wide.mapv(bf16::from_f32));
}

#[test]
fn empty_rows_and_no_rows() {
    let outputs = call::<range>().input(&Array2::<f64>::zeros((2, 0))).run().unwrap();
    assert_eq!(outputs.array::<f64, Ix1>("smallest").unwrap(), array![f64::INFINITY, f64::INFINITY]);
    assert_eq!(outputs.array::<f64, Ix1>("largest").unwrap(), array![f64::NEG_INFINITY, f64::NEG_INFINITY]);
    let outputs = call::<total>().input(&Array2::<f32>::zeros((2, 0))).run().unwrap();
    assert_eq!(outputs.array::<f32, Ix1>("y").unwrap(), array![0.0, 0.0]);
    let outputs = call::<softmax>().input(&Array2::<f32>::zeros((0, 5))).run().unwrap();
    assert_eq!(outputs.array::<f32, Ix2>("y").unwrap().dim(), (0, 5));
    for (x, gamma, weight) in [((0, 5), 5, 1), ((3, 0), 1, 1), ((3, 0), 0, 3)] {
        let (x, gamma) = (Array2::<f64>::zeros(x), Array1::<f64>::zeros(gamma));
        let weight = Array1::<f64>::ones(weight);
        let size = Array1::<f64>::ones(x.nrows());
        let sum = saved::<f64>(call::<with_everything>().input(&x).input(&gamma).input(&weight), 1);
        let call = gradient::<with_everything>(1).input(&x).input(&gamma).input(&weight).input(&sum);
        let call = call.input(&x).input(&size);
        let outputs = call.run().unwrap();
        assert!(outputs.array::<f64, Ix1>("gamma_grad").unwrap().iter().all(|x| *x == 0.0));
        assert_eq!(outputs.array::<f64, Ix2>("x_grad").unwrap().dim(), x.dim());
        let weight_grad = outputs.array::<f64, Ix1>("weight_grad").unwrap();
        assert!(weight_grad.iter().all(|x| *x == 0.0), "{weight_grad}");
    }
}

#[test]
fn infinities_and_nan_go_through() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let x = array![[1.0, inf, 2.0], [-inf, 0.0, 0.0], [nan, 1.0, 2.0]];
    let outputs = call::<range>().input(&x).run().unwrap();
    let largest = outputs.array::<f64, Ix1>("largest").unwrap();
    assert_eq!((largest[0], largest[1]), (inf, 0.0));
    assert!(largest[2].is_nan());
    let outputs = gradient::<range>(1).input(&x).absent().input(&array![1.0, 1.0, 3.0]).run().unwrap();
    let expected = array![[0.0, 1.0, 0.0], [0.0, 0.5, 0.5], [1.0, 1.0, 1.0]];
    assert_eq!(outputs.array::<f64, Ix2>("x_grad").unwrap(), expected);
    let y = call::<softmax>().input(&x).run().unwrap().array::<f64, Ix2>("y").unwrap();
    assert_eq!(y.row(1), array![0.0, 0.5, 0.5]);
    assert!(y[[0, 1]].is_nan() && y.row(2).iter().all(|y| y.is_nan()));
}

#[test]
fn the_second_order_of_a_softmax() {
    let (x, g, h) = (numbers(&[4, 50], 1), numbers(&[4, 50], 2), numbers(&[4, 50], 3));
    let first = |x: &ArrayD<f64>| {
        let y = call::<softmax>().input(x).run().unwrap().array::<f64, IxDyn>("y").unwrap();
        let outputs = gradient::<softmax>(1).input(&y).input(&g).run().unwrap();
        (outputs.array::<f64, IxDyn>("x_grad").unwrap() * &h).sum()
    };
    let y = expected_softmax(&x);
    let outputs = gradient::<softmax>(2).input(&y).input(&g).input(&h).run().unwrap();
    // What depends on the output depends on the input through it.
    let by_y: ArrayD<f64> = outputs.array("y_grad_2").unwrap();
    let through = gradient::<softmax>(1).input(&y).input(&by_y).run().unwrap();
    let by_x: ArrayD<f64> = through.array("x_grad").unwrap();
    for place in [0, 77, 199] {
        let moved = |by: f64| {
            let mut x = x.clone();
            *x.iter_mut().nth(place).unwrap() += by;
            first(&x)
        };
        let (slope, got) = ((moved(1e-4) - moved(-1e-4)) / 2e-4, *by_x.iter().nth(place).unwrap());
        assert!((slope - got).abs() < 1e-7, "{slope} and {got}");
    }
    // The first order is linear in `g`, by the same matrix.
    let mut expected = &y * &h;
    Zip::from(expected.rows_mut()).and(y.rows()).for_each(|mut e, y| {
        let sum = e.sum();
        e.scaled_add(-sum, &y);
    });
    assert_close(&outputs.array("y_grad_grad").unwrap(), &expected, 1e-13);
}

#[test]
fn what_does_not_fit_is_told() {
    let error = call::<with_everything>()
        .input(&numbers(&[2, 3], 1))
        .input(&numbers(&[4], 1))
        .input(&numbers(&[2], 1))
        .run()
        .unwrap_err();
    assert!(error.message().contains("dim 0 of input `gamma` must equal dim 1"), "{error}");
    let error = call::<total>().input(&array![[1, 2]]).run().unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("int32"), "{error}");
    let error = gradient::<total>(1).input(&numbers(&[2, 3], 1)).input(&numbers(&[3], 1)).run().unwrap_err();
    assert!(error.message().starts_with("TotalGrad: "), "{error}");
}

#[reduce]
fn masked_mean<R: Rows>(x: R::Each) -> R::One {
    let (zero, one) = (R::Each::of(0.0), R::Each::of(1.0));
    let there = R::Each::select(x.eq(zero), zero, one).sum();
    let inverse = R::Each::select(x.eq(zero), zero, one / x).sum();
    R::One::select(there.eq(R::One::of(0.0)), R::One::of(0.0), inverse / there)
}

#[test]
fn what_is_not_taken_has_no_effect() {
    // A division by zero at single positions, and one for a whole row.
    let x = array![[0.0, 2.0, 4.0], [0.0, 0.0, -0.0], [f64::INFINITY, 1.0, 0.0]];
    let y = call::<masked_mean>().input(&x).run().unwrap().array::<f64, Ix1>("y").unwrap();
    assert_eq!(y, array![0.375, 0.0, 0.5]);
    let ones = Array1::<f64>::ones(3);
    let there = saved::<f64>(call::<masked_mean>().input(&x), 1);
    let outputs = gradient::<masked_mean>(1).input(&x).input(&there).input(&ones).run().unwrap();
    let expected = array![[0.0, -0.125, -0.03125], [0.0, 0.0, 0.0], [0.0, -0.5, 0.0]];
    assert_eq!(outputs.array::<f64, Ix2>("x_grad").unwrap(), expected);
    let all = Array2::<f64>::ones((3, 3));
    let outputs = gradient::<masked_mean>(2).input(&x).input(&there).input(&ones).input(&all).run().unwrap();
    let expected = array![[0.0, 0.125, 0.015625], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
    assert_eq!(outputs.array::<f64, Ix2>("x_grad").unwrap(), expected);
    assert_eq!(outputs.array::<f64, Ix1>("y_grad_grad").unwrap(), array![-0.15625, 0.0, -0.5]);
}

#[test]
fn more_elements_than_32_bits_count_are_folded() {
    // Nothing of that size is allocated: the inputs repeat what they have, and the outputs are folds and sums.
    let n = (1usize << 31) + 129;
    let one = Array1::<f32>::ones(1);
    let outputs = call::<total>().input(&one.broadcast(n).unwrap()).threads(2).run().unwrap();
    assert!((outputs.array::<f32, Ix0>("y").unwrap()[[]] / n as f32 - 1.0).abs() <= f32::EPSILON);
    let shape = (2049, 1 << 20);
    let (x, rows) = (one.broadcast(shape).unwrap(), one.broadcast(shape.0).unwrap());
    let sum = Array1::from_elem(1, shape.1 as f32);
    let sums = sum.broadcast(shape.0).unwrap();
    let outputs = gradient::<with_everything>(1).input(&x).input(&one).input(&one).input(&sums);
    let outputs = outputs.input(&x).input(&rows);
    let outputs = outputs.without("x_grad").without("weight_grad").threads(2).run().unwrap();
    // Every position adds the shift, as `x` is its own mean.
    assert_eq!(outputs.array::<f32, Ix1>("gamma_grad").unwrap()[0], (shape.0 * shape.1) as f32 * 0.5);
}

#[test]
fn all_of_this_holds_where_nothing_is_made_machine_code() {
    if std::env::var_os("OPSMITH_ISA").is_some() {
        return;
    }
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program).env("OPSMITH_ISA", "plain").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
