//! Ops made by `#[pointwise]`, called through the core.

mod common;

use common::{assert_close, gradient, numbers};
use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{Array1, Array2, Array3, ArrayD};
use opsmith::prelude::*;
use opsmith::testing::{self, call};
use opsmith::{Code, Library, infer_error, infer_ok, ndarray};

/// The Gaussian error linear unit.
///
/// x: Any numbers.
#[pointwise]
fn gelu<S: Scalar>(x: S) -> S {
    x * x.normal_cdf()
}

/// A line through the origin on either side.
#[pointwise]
fn leaky_relu<S: Scalar>(
    x: S,
    /// What negative numbers are multiplied by.
    #[attr(default = 0.01)]
    slope: S,
) -> S {
    S::select(x.gt(S::of(0.0)), x, x * slope)
}

/// A cell of a network, of which only the pointwise part is here.
#[pointwise(outputs = [hidden, cell])]
fn lltm_cell<S: Scalar>(g0: S, g1: S, g2: S, old_cell: S) -> (S, S) {
    let new_cell = old_cell + g2.elu() * g0.sigmoid();
    (new_cell.tanh() * g1.sigmoid(), new_cell)
}

/// Every option, and attributes of plain types.
#[pointwise(name = "Options", output = result, dtypes = [f32], orders = 1)]
fn with_options<S: Scalar>(
    y: S,
    #[attr(default = 2, min = 0, max = 3)] power: i64,
    #[attr(default = false)] negate: bool,
    #[attr] shift: f64,
) -> S {
    let value = y.powi(power as i32) + shift;
    if negate { -value } else { value }
}

#[pointwise(outputs = [product, quotient])]
fn both<S: Scalar>(x: S, y: S) -> [S; 2] {
    [x * y, x / y]
}

/// A number to a power that is safe where the other branch is not.
#[pointwise]
fn safe_log<S: Scalar>(x: S) -> S {
    S::select(x.gt(S::of(0.0)), (S::of(1.0) / x).log(), S::of(0.0))
}

fn library() -> Library {
    let mut defs = Vec::new();
    fn add<O: OpDefinition>(defs: &mut Vec<OpDef>) {
        defs.push(O::def());
        defs.extend(O::COMPANIONS.iter().map(|def| def()));
    }
    add::<gelu>(&mut defs);
    add::<leaky_relu>(&mut defs);
    add::<lltm_cell>(&mut defs);
    add::<with_options>(&mut defs);
    add::<both>(&mut defs);
    Library::new("test", "1.0.0", defs).unwrap()
}

#[test]
fn the_definition_is_read_off_the_function() {
    let library = library();
    let names: Vec<&str> = library.ops().iter().map(|op| op.signature().name.as_str()).collect();
    assert_eq!(names[..4], ["Gelu", "GeluGrad", "GeluGradGrad", "GeluGradGradGrad"]);
    assert_eq!(names[12..14], ["Options", "OptionsGrad"]);
    let gelu = library.op("Gelu").unwrap();
    assert_eq!(gelu.signature().doc, "The Gaussian error linear unit.");
    assert_eq!(gelu.signature().inputs[0].doc, "Any numbers.");
    assert_eq!(gelu.kernels().len(), 8); // four dtypes on two devices
    assert_eq!(gelu.gradient_wiring().unwrap().op, "GeluGrad");
    let leaky = library.op("LeakyRelu").unwrap().signature();
    assert_eq!(leaky.attrs[0].to_string(), "slope: float = 0.01");
    assert_eq!(leaky.attrs[0].doc, "What negative numbers are multiplied by.");
    let options = library.op("Options").unwrap();
    let attrs: Vec<String> = options.signature().attrs.iter().map(ToString::to_string).collect();
    assert_eq!(attrs, ["power: int >= 0 <= 3 = 2", "negate: bool = false", "shift: float", "T: {float32}"]);
    assert_eq!(options.signature().outputs[0].name, "result");
    let both = library.op("BothGrad").unwrap().signature();
    let optional: Vec<&str> = both
        .inputs
        .iter()
        .chain(&both.outputs)
        .filter(|argument| argument.optional)
        .map(|argument| argument.name.as_str())
        .collect();
    assert_eq!(optional, ["product_grad", "quotient_grad", "x_grad", "y_grad"]);
    assert_eq!(library.op("BothGradGrad").unwrap().gradient_wiring().unwrap().op, "BothGradGradGrad");
    assert!(library.op("BothGradGradGrad").unwrap().gradient_wiring().is_none());
}

#[test]
fn shapes_are_inferred_for_every_order() {
    infer_ok!(testing::shapes::<both>(), "[2,1];[3]", "[2,3];[2,3]");
    infer_ok!(testing::shapes::<both>(), "[?,1];?", "?;?");
    infer_error!(
        testing::shapes::<both>(),
        "Both: input `x` of shape [2] and input `y` of shape [3] do not broadcast: dim 0 of input `y` must equal dim 0 of input `x`, or one of them be 1",
        "[2];[3]"
    );
}

#[test]
fn elements_are_computed_in_every_dtype_and_layout() {
    let x = numbers(&[37, 11, 5], 1);
    let expected = x.mapv(|x| if x > 0.0 { x } else { 0.25 * x });
    let run = |x: &ArrayD<f64>| {
        call::<leaky_relu>()
            .input(x)
            .attr("slope", 0.25)
            .threads(2)
            .run()
            .unwrap()
            .array::<f64, IxDyn>("y")
            .unwrap()
    };
    assert_eq!(run(&x), expected);
    let turned = x.clone().permuted_axes(ndarray::IxDyn(&[2, 0, 1]));
    assert_eq!(run(&turned), expected.clone().permuted_axes(ndarray::IxDyn(&[2, 0, 1])));
    let cut = x.slice(s![..;-2, 3.., 1..;3]).to_owned();
    let outputs =
        call::<leaky_relu>().input(&x.slice(s![..;-2, 3.., 1..;3])).attr("slope", 0.25).run().unwrap();
    let expected = cut.mapv(|x| if x > 0.0 { x } else { 0.25 * x });
    assert_eq!(outputs.array::<f64, Ix3>("y").unwrap(), expected);

    let half = x.mapv(f16::from_f64);
    let outputs = call::<gelu>().input(&half).run().unwrap();
    let single = half.mapv(f16::to_f32);
    let wide = call::<gelu>().input(&single).run().unwrap().array::<f32, IxDyn>("y").unwrap();
    assert_eq!(outputs.array::<f16, IxDyn>("y").unwrap(), wide.mapv(f16::from_f32));
    let brain = x.mapv(bf16::from_f64);
    let outputs = call::<gelu>().input(&brain.t()).run().unwrap();
    let wide =
        call::<gelu>().input(&brain.mapv(bf16::to_f32)).run().unwrap().array::<f32, IxDyn>("y").unwrap();
    assert_eq!(outputs.array::<bf16, IxDyn>("y").unwrap(), wide.t().mapv(bf16::from_f32));
}

#[test]
fn inputs_broadcast_as_in_numpy() {
    let shapes: [(&[usize], &[usize]); 8] = [
        (&[4, 300], &[300]),
        (&[4, 300], &[4, 1]),
        (&[7, 1, 5], &[1, 6, 1]),
        (&[], &[2, 3]),
        (&[1], &[200]),
        (&[2, 3, 4, 5], &[3, 1, 5]),
        (&[3, 1, 2], &[1]),
        (&[129], &[129]),
    ];
    for (a, b) in shapes {
        let (x, y) = (numbers(a, 3), numbers(b, 4));
        let outputs = call::<both>().input(&x).input(&y).threads(2).run().unwrap();
        assert_eq!(outputs.array::<f64, IxDyn>("product").unwrap(), &x * &y);
        assert_eq!(outputs.array::<f64, IxDyn>("quotient").unwrap(), &x / &y);
    }
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
fn gradients_are_summed_over_what_was_repeated() {
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[4, 300], &[300]),
        (&[4, 300], &[4, 1]),
        (&[7, 1, 5], &[1, 6, 1]),
        (&[], &[2, 3]),
        (&[1], &[200]),
        (&[2, 3, 4, 5], &[3, 1, 5]),
        (&[3, 1, 2], &[1]),
        (&[1000, 300], &[300]),
        (&[3, 70_000], &[3, 1]),
    ];
    for (a, b) in shapes {
        let (x, y) = (numbers(a, 3), numbers(b, 4));
        let all = (&x * &y).shape().to_vec();
        let (first, second) = (numbers(&all, 5), numbers(&all, 6));
        let make = || gradient::<both>(1).input(&x).input(&y);
        let outputs = make().input(&first).input(&second).threads(2).run().unwrap();
        let x_grad = &first * &y + &second / &y;
        let y_grad = &first * &x - &second * &x / (&y * &y);
        assert_close(&outputs.array("x_grad").unwrap(), &summed_to(&x_grad, a), 1e-9);
        assert_close(&outputs.array("y_grad").unwrap(), &summed_to(&y_grad, b), 1e-9);
        let only = make().absent().input(&second).without("x_grad").run().unwrap();
        let y_grad = -&second * &x / (&y * &y);
        assert!(!only.has("x_grad"));
        assert_close(&only.array("y_grad").unwrap(), &summed_to(&y_grad, b), 1e-9);
    }
}

#[test]
fn sums_are_the_same_bits_for_any_number_of_threads() {
    for shape in [vec![1000, 700], vec![3, 100_001], vec![200_000, 3], vec![10, 33, 777]] {
        let x = numbers(&shape, 7).mapv(|x| x as f32);
        for own in
            [vec![1; shape.len()], vec![shape[shape.len() - 1]], [&shape[..shape.len() - 1], &[1]].concat()]
        {
            let y = numbers(&own, 8).mapv(|x| x as f32);
            let run = |threads: usize| {
                let call = gradient::<both>(1).input(&x).input(&y).input(&x).input(&x);
                call.threads(threads).run().unwrap().array::<f32, IxDyn>("y_grad").unwrap()
            };
            let one = run(1);
            assert!([2, 5, 16].into_iter().all(|threads| run(threads) == one));
        }
    }
}

#[test]
fn sums_are_exact_but_for_the_last_rounding() {
    let (n, one) = (3_000_000, Array1::<f32>::ones(1));
    let x = Array1::from_iter((0..n).map(|i| 1.0 + (i % 7) as f32 * 1e-3));
    let outputs = gradient::<both>(1).input(&x).input(&one).input(&one.broadcast(n).unwrap()).absent().run();
    let exact: f64 = x.iter().map(|&x| f64::from(x)).sum();
    assert_eq!(outputs.unwrap().array::<f32, Ix1>("y_grad").unwrap()[0], exact as f32);
}

#[test]
fn the_second_order_is_the_derivative_of_the_first() {
    let (x, y) = (numbers(&[5, 4], 11), numbers(&[4], 12));
    let (dx, dy) = (numbers(&[5, 4], 13), numbers(&[4], 14));
    let (p, q) = (numbers(&[5, 4], 15), numbers(&[5, 4], 16));
    let outputs =
        gradient::<both>(2).input(&x).input(&y).input(&p).input(&q).input(&dx).input(&dy).run().unwrap();
    // With x_grad = p y + q / y and y_grad = p x − q x / y².
    let y2 = &y * &y;
    let x_grad = &dy * &p - &dy * &q / &y2;
    let y_grad = &dx * &p - &dx * &q / &y2 + &dy * &q * &x * 2.0 / (&y2 * &y);
    assert_close(&outputs.array("x_grad").unwrap(), &x_grad, 1e-9);
    assert_close(&outputs.array("y_grad").unwrap(), &summed_to(&y_grad, &[4]), 1e-9);
    assert_close(&outputs.array("product_grad_grad").unwrap(), &(&dx * &y + &dy * &x), 1e-9);
    assert_close(&outputs.array("quotient_grad_grad").unwrap(), &(&dx / &y - &dy * &x / &y2), 1e-9);
}

#[test]
fn a_cell_and_its_gradient_agree_with_differences() {
    let inputs: Vec<ArrayD<f64>> = (0..4).map(|seed| numbers(&[2, 150], 20 + seed)).collect();
    let run = |inputs: &[ArrayD<f64>]| {
        let outputs = inputs.iter().fold(call::<lltm_cell>(), |call, input| call.input(input)).run().unwrap();
        (outputs.array::<f64, IxDyn>("hidden").unwrap(), outputs.array::<f64, IxDyn>("cell").unwrap())
    };
    let weights = (numbers(&[2, 150], 30), numbers(&[2, 150], 31));
    let outputs = inputs
        .iter()
        .chain([&weights.0, &weights.1])
        .fold(gradient::<lltm_cell>(1), |call, input| call.input(input));
    let outputs = outputs.run().unwrap();
    let step = 1e-5;
    for (k, name) in ["g0_grad", "g1_grad", "g2_grad", "old_cell_grad"].into_iter().enumerate() {
        let moved = |by: f64| {
            let mut inputs = inputs.clone();
            inputs[k] += by;
            let (hidden, cell) = run(&inputs);
            hidden * &weights.0 + cell * &weights.1
        };
        assert_close(&outputs.array(name).unwrap(), &((moved(step) - moved(-step)) / (2.0 * step)), 1e-7);
    }
}

#[test]
fn plain_attributes_are_constants() {
    let y = array![2.0f32, -3.0];
    let run = |power: i64, negate: bool| {
        let call = call::<with_options>().input(&y).attr("power", power).attr("negate", negate);
        call.attr("shift", 0.5).run().unwrap().array::<f32, Ix1>("result").unwrap()
    };
    assert_eq!(run(2, false), array![4.5, 9.5]);
    assert_eq!(run(3, true), array![-8.5, 26.5]);
    let outputs = gradient::<with_options>(1).input(&y).input(&y).attr("shift", 0.5).run().unwrap();
    assert_eq!(outputs.array::<f32, Ix1>("y_grad").unwrap(), array![8.0, 18.0]);
}

#[test]
fn what_is_not_taken_has_no_effect() {
    let x = array![0.0, -0.0, -1.0, f64::NEG_INFINITY, f64::NAN, f64::INFINITY, 2.0];
    let y = call::<safe_log>().input(&x).run().unwrap().array::<f64, Ix1>("y").unwrap();
    assert_eq!(y.slice(s![..5]), array![0.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(y[5], f64::NEG_INFINITY);
    let ones = Array1::<f64>::ones(7);
    for weights in [ones.clone(), ones.clone() * 1e300] {
        let outputs = gradient::<safe_log>(1).input(&x).input(&weights).run().unwrap();
        let x_grad = outputs.array::<f64, Ix1>("x_grad").unwrap();
        assert_eq!(x_grad.slice(s![..5]), array![0.0, 0.0, 0.0, 0.0, 0.0]);
    }
    let second = gradient::<safe_log>(2).input(&x).input(&ones).input(&ones).run().unwrap();
    assert_eq!(second.array::<f64, Ix1>("x_grad").unwrap().slice(s![..5]), array![0.0, 0.0, 0.0, 0.0, 0.0]);
    let gelu = call::<gelu>().input(&array![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]).run().unwrap();
    let y = gelu.array::<f64, Ix1>("y").unwrap();
    assert!(y[0].is_nan() && y[1] == f64::INFINITY);
}

#[test]
fn empty_arrays_and_scalars_are_computed() {
    let empty = Array2::<f32>::zeros((0, 3));
    let outputs = call::<both>().input(&empty).input(&Array1::<f32>::ones(3)).run().unwrap();
    assert_eq!(outputs.array::<f32, Ix2>("product").unwrap(), empty);
    let outputs = gradient::<both>(1)
        .input(&empty)
        .input(&Array1::<f32>::ones(3))
        .input(&empty)
        .input(&empty)
        .threads(2)
        .run()
        .unwrap();
    assert_eq!(outputs.array::<f32, Ix2>("x_grad").unwrap(), empty);
    assert_eq!(outputs.array::<f32, Ix1>("y_grad").unwrap(), Array1::<f32>::zeros(3));
    let scalar = ndarray::arr0(2.0);
    let outputs = call::<both>().input(&scalar).input(&scalar).run().unwrap();
    assert_eq!(outputs.array::<f64, Ix0>("product").unwrap()[[]], 4.0);
}

#[test]
fn what_does_not_fit_is_told() {
    let (two, three) = (array![1.0, 2.0], array![1.0, 2.0, 3.0]);
    let error = call::<both>().input(&two).input(&three).run().unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(
        error.message(),
        "Both: input `x` of shape [2] and input `y` of shape [3] do not broadcast: dim 0 of input `y` must equal dim 0 of input `x`, or one of them be 1: 3 ≠ 2"
    );
    let error = call::<lltm_cell>().input(&two).input(&two).input(&three).input(&two).run().unwrap_err();
    assert_eq!(
        error.message(),
        "LltmCell: shape [2] and input `g2` of shape [3] do not broadcast: dim 0 of input `g2` must equal dim 0 of shape [2], or one of them be 1: 3 ≠ 2"
    );
    let error = gradient::<gelu>(1).input(&two).input(&three).run().unwrap_err();
    assert_eq!(error.message(), "GeluGrad: dim 0 of input `y_grad` must equal dim 0 of input `x`: 3 ≠ 2");
    let error = call::<gelu>().input(&array![1, 2]).run().unwrap_err();
    assert_eq!(
        error.message(),
        "Gelu: input `x` is int32, but must be one of float16, bfloat16, float32, float64; cast it"
    );
}

#[pointwise]
fn product<S: Scalar>(x: S, y: S) -> S {
    x * y
}

#[test]
fn more_elements_than_32_bits_count_are_summed() {
    // Nothing of that size is allocated: the inputs repeat what they have, and the outputs are sums. It is the second
    // order, which is not compiled here, without optimisation.
    let n = (1usize << 31) + 129;
    let one = Array1::<f32>::ones(1);
    let wide = one.broadcast(n).unwrap();
    let outputs = gradient::<product>(2)
        .input(&wide)
        .input(&one)
        .input(&wide)
        .input(&wide)
        .input(&one)
        .without("x_grad")
        .without("z_grad_grad")
        .threads(2)
        .run()
        .unwrap();
    assert_eq!(outputs.array::<f32, Ix1>("y_grad").unwrap()[0], n as f32);
}

#[pointwise]
fn sum_of_forty<S: Scalar>(
    a0: S,
    a1: S,
    a2: S,
    a3: S,
    a4: S,
    a5: S,
    a6: S,
    a7: S,
    a8: S,
    a9: S,
    b0: S,
    b1: S,
    b2: S,
    b3: S,
    b4: S,
    b5: S,
    b6: S,
    b7: S,
    b8: S,
    b9: S,
    c0: S,
    c1: S,
    c2: S,
    c3: S,
    c4: S,
    c5: S,
    c6: S,
    c7: S,
    c8: S,
    c9: S,
    d0: S,
    d1: S,
    d2: S,
    d3: S,
    d4: S,
    d5: S,
    d6: S,
    d7: S,
    d8: S,
    d9: S,
) -> S {
    let a = a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9;
    let b = b0 + b1 + b2 + b3 + b4 + b5 + b6 + b7 + b8 + b9;
    let c = c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8 + c9;
    let d = d0 + d1 + d2 + d3 + d4 + d5 + d6 + d7 + d8 + d9;
    a * 2.0 + b * c * 3.0 + d * d
}

#[test]
fn forty_inputs_are_computed() {
    assert_eq!(sum_of_forty::COMPANIONS.len(), 1, "the second order would have 81 inputs");
    let inputs: Vec<ArrayD<f64>> =
        (0..40).map(|k| numbers([&[3, 1][..], &[1, 50], &[3, 50], &[]][k % 4], k as u64)).collect();
    let sum = |from: usize| inputs[from..from + 10].iter().fold(ArrayD::zeros(vec![3, 50]), |sum, x| sum + x);
    let (a, b, c, d) = (sum(0), sum(10), sum(20), sum(30));
    let all = || inputs.iter().fold(call::<sum_of_forty>(), |call, input| call.input(input));
    let y = all().run().unwrap().array("y").unwrap();
    assert_close(&y, &(&a * 2.0 + &b * &c * 3.0 + &d * &d), 1e-12);
    let weights = numbers(&[3, 50], 99);
    let outputs =
        inputs.iter().chain([&weights]).fold(gradient::<sum_of_forty>(1), |call, input| call.input(input));
    let outputs = outputs.threads(2).run().unwrap();
    for (name, k, slope) in [
        ("a9_grad", 9, &a * 0.0 + 2.0),
        ("b1_grad", 11, &c * 3.0),
        ("c4_grad", 24, &b * 3.0),
        ("d7_grad", 37, &d * 2.0),
    ] {
        assert_close(&outputs.array(name).unwrap(), &summed_to(&(slope * &weights), inputs[k].shape()), 1e-9);
    }
}

/// A hand-written kernel with a body as a step of it.
#[op(shape = "(n,m)->(n,m)")]
fn gelu_of_rows<T: AnyFloat>(
    cx: &Compute,
    x: ArrayView2<T>,
    #[attr(default = 0.5)] slope: f64,
    mut z: ArrayViewMut2<T>,
) -> Result<()> {
    cx.map(&gelu {}, [x], [z.view_mut()])?;
    let first = x.slice(s![.., ..1]);
    let mut last = z.slice_mut(s![.., ..;-2]);
    cx.map(&leaky_relu { slope }, [first], [last.view_mut()])
}

#[test]
fn bodies_are_steps_of_other_kernels() {
    let x = numbers(&[300, 7], 40);
    let z: Array2<f64> = call::<gelu_of_rows>().input(&x).threads(2).run().unwrap().array("z").unwrap();
    let y: Array2<f64> = call::<gelu>().input(&x).run().unwrap().array("y").unwrap();
    for ((row, column), &z) in z.indexed_iter() {
        let first = x[[row, 0]];
        let leaky = if first > 0.0 { first } else { 0.5 * first };
        assert_eq!(z, if column % 2 == 0 { leaky } else { y[[row, column]] });
    }
    let error = testing::call::<wrong_map>().input(&array![1.0, 2.0]).run().unwrap_err();
    assert_eq!(
        error.message(),
        "WrongMap: the inputs of a body must broadcast to the shape that all its outputs have, got inputs of \
         shapes [[2]] and outputs of shapes [[1]]"
    );
}

#[op(shape = "(n)->(n)")]
fn wrong_map(cx: &Compute, x: ArrayView1<f64>, mut z: ArrayViewMut1<f64>) -> Result<()> {
    z.fill(0.0);
    cx.map(&gelu {}, [x], [z.slice_mut(s![..1])])
}

#[test]
fn three_dims_are_walked_in_any_order() {
    let x: Array3<f64> = numbers(&[13, 9, 31], 50).into_dimensionality().unwrap();
    let y = numbers(&[9, 1], 51);
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let turned = x.view().permuted_axes(order);
        let shape = [turned.shape()[1], 1];
        let y = if shape == [9, 1] { y.clone() } else { numbers(&shape, 52) };
        let product =
            call::<both>().input(&turned).input(&y).run().unwrap().array::<f64, Ix3>("product").unwrap();
        assert_eq!(product.into_dyn(), &turned * &y);
    }
}

#[test]
fn a_kernel_is_explained() {
    let library = library();
    let op = library.op("leaky_relu").unwrap();
    let told = op.explain(&[Some(0.5.into()), None]).unwrap();
    assert_eq!(told.formula, "y = select(0 < x, x, x * slope)");
    assert!(told.cuda_source.contains("leaky_relu_32(Operands"));
    assert!(told.vectors.ends_with("× float32"));
    let told = library.op("GeluGrad").unwrap().explain(&[None]).unwrap();
    assert_eq!(told.formula, "x_grad = y_grad * normal_cdf(x) + x * y_grad * normal_pdf(x)");
}

#[pointwise(orders = 4)]
fn fifth_power<S: Scalar>(x: S) -> S {
    x.powi(5)
}

#[test]
fn gradients_of_high_order_are_wired_and_right() {
    let mut defs = vec![fifth_power::def()];
    defs.extend(fifth_power::COMPANIONS.iter().map(|def| def()));
    let library = Library::new("test", "1.0.0", defs).unwrap();
    assert!(library.op("FifthPowerGradGradGrad").unwrap().gradient_wiring().is_some());
    assert!(library.op("FifthPowerGradGradGradGrad").unwrap().gradient_wiring().is_none());
    let (x, g, h) = (numbers(&[9], 1), numbers(&[9], 2), numbers(&[9], 3));
    let (a, b) = (numbers(&[9], 4), numbers(&[9], 5));
    let outputs = gradient::<fifth_power>(3).input(&x).input(&g).input(&h).input(&a).input(&b).run().unwrap();
    // Of the second order's x_grad = h g f'' and y_grad_grad = h f'.
    let f = |order: usize| {
        let factor: usize = (0..order).map(|k| 5 - k).product();
        x.mapv(|x| factor as f64 * x.powi(5 - order as i32))
    };
    let x_grad = &a * &h * &g * f(3) + &b * &h * f(2);
    assert_close(&outputs.array("x_grad").unwrap(), &x_grad, 1e-12);
    assert_close(&outputs.array("y_grad_grad").unwrap(), &(&a * &h * f(2)), 1e-12);
    let x_grad_grad_grad = &a * &g * f(2) + &b * f(1);
    assert_close(&outputs.array("x_grad_grad_grad").unwrap(), &x_grad_grad_grad, 1e-12);
}

#[test]
fn arrays_that_lie_along_other_dims_are_computed_in_columns() -> Result<()> {
    for shape in [[70, 1001], [300, 128], [130, 512]] {
        let x = Array2::from_shape_fn([shape[1], shape[0]], |(i, j)| (i as f32 - 500.0) * 0.01 + j as f32);
        let y = Array2::from_shape_fn(shape, |(i, j)| 1.0 + ((i * 31 + j) % 17) as f32);
        let outputs = call::<both>().input(&x.t()).input(&y).run()?;
        assert_eq!(outputs.array::<f32, ndarray::Ix2>("product")?, &x.t() * &y);
        assert_eq!(outputs.array::<f32, ndarray::Ix2>("quotient")?, &x.t() / &y);
        let outputs = call::<both>().input(&x.t()).input(&x.slice(ndarray::s![..;-1, ..]).t()).run()?;
        assert_eq!(
            outputs.array::<f32, ndarray::Ix2>("product")?,
            &x.t() * &x.slice(ndarray::s![..;-1, ..]).t()
        );
    }
    Ok(())
}
