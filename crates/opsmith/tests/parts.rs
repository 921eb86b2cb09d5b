//! Bodies over named axes whose arguments have dims that consist of parts, against the same bodies with the parts as arguments.

mod common;

use common::{assert_close, gradient, numbers};
use opsmith::ndarray::{ArrayD, Axis, Slice};
use opsmith::prelude::*;
use opsmith::testing::{Call, call, shapes};
use opsmith::{Library, OpDef, infer_error, infer_ok};

#[body("(b,f),(3 * s,r + f),(3 * s),(b,r = s),(b,s)->(b,s),(b,s)", outputs = [h, c])]
fn cell<S: Indexed>(x: S, w: [[S; 2]; 3], bias: [S; 3], old_h: S, old_c: S) -> (S, S) {
    let gate = |part: usize| {
        let [for_h, for_x] = w[part];
        (old_h * for_h).sum(r) + (x * for_x).sum(f) + bias[part]
    };
    let new_c = old_c + gate(2).elu() * gate(0).sigmoid();
    (new_c.tanh() * gate(1).sigmoid(), new_c)
}

#[body(
    "(b,f),(s,r),(s,f),(s,r),(s,f),(s,r),(s,f),(s),(s),(s),(b,r = s),(b,s)->(b,s),(b,s)",
    outputs = [h, c]
)]
#[allow(clippy::too_many_arguments)]
fn cell_of_parts<S: Indexed>(
    x: S,
    w00: S,
    w01: S,
    w10: S,
    w11: S,
    w20: S,
    w21: S,
    b0: S,
    b1: S,
    b2: S,
    old_h: S,
    old_c: S,
) -> (S, S) {
    let gate = |[for_h, for_x, bias]: [S; 3]| (old_h * for_h).sum(r) + (x * for_x).sum(f) + bias;
    let new_c = old_c + gate([w20, w21, b2]).elu() * gate([w00, w01, b0]).sigmoid();
    (new_c.tanh() * gate([w10, w11, b1]).sigmoid(), new_c)
}

/// What labels say of some of the numbers: a sum of parts of known size.
#[body("(i,2 * rgb),(),(2 * i)->(i),(rgb = 3)", outputs = [z, colours], orders = 1)]
fn mixed<S: Indexed>(x: [S; 2], scale: S, labels: [S::Index; 2]) -> (S, S) {
    let label = labels[0].number() - labels[1].number();
    (x[0].sum(rgb) + label, (x[0] * scale).sum(i))
}

/// A body that saves what is made of a part.
#[body("(2 * s,k),(b,k),(b,s)->(b,s)")]
fn gated<S: Indexed>(w: [S; 2], x: S, y: S) -> S {
    y * (x * w[1]).sum(k).saved() + (x * w[0]).sum(k)
}

/// Halves of the last dim, which no input has alone.
#[body("(n,2 * d),(2 * d)->(n,d)")]
fn swiglu<S: Indexed>(x: [S; 2], bias: [S; 2]) -> S {
    let [gate, up] = [x[0] + bias[0], x[1] + bias[1]];
    gate * gate.sigmoid() * up
}

/// Sizes of a call: b, f and s.
type Sizes = [usize; 3];

/// The lengths of the parts of each dim of the argument that is like this one.
fn parts(name: &str, [b, f, s]: Sizes) -> Vec<Vec<usize>> {
    match name.split("_grad").next().unwrap() {
        "x" => vec![vec![b], vec![f]],
        "w" => vec![vec![s; 3], vec![s, f]],
        "bias" => vec![vec![s; 3]],
        _ => vec![vec![b], vec![s]],
    }
}

/// The parts of an argument, those along the last dim one after another.
fn split(whole: &ArrayD<f64>, dims: &[Vec<usize>]) -> Vec<ArrayD<f64>> {
    let own = whole.ndim() - dims.len();
    dims.iter().enumerate().fold(vec![whole.clone()], |all, (dim, lengths)| {
        let cut = |array: &ArrayD<f64>| {
            let mut begin = 0;
            let part = |length: &usize| {
                let part = array.slice_axis(Axis(own + dim), Slice::from(begin..begin + length)).to_owned();
                begin += length;
                part
            };
            lengths.iter().map(part).collect::<Vec<_>>()
        };
        all.iter().flat_map(cut).collect()
    })
}

fn run(def: OpDef, inputs: &[ArrayD<f64>], without: &[&str]) -> opsmith::testing::Outputs {
    let call = inputs.iter().fold(Call::new(def), |call, input| call.input(input));
    without.iter().fold(call, |call, name| call.without(name)).run().unwrap()
}

fn defs<O: OpDefinition>() -> Vec<OpDef> {
    std::iter::once(O::def()).chain(O::COMPANIONS.iter().map(|def| def())).collect()
}

/// The inputs of the op of an order: random ones, and what the op gives where a gradient reads that.
fn inputs(def: &OpDef, sizes: Sizes, front: &[usize]) -> Vec<ArrayD<f64>> {
    let signature = def.clone().signature().unwrap();
    let mut all: Vec<ArrayD<f64>> = Vec::new();
    for (seed, input) in signature.inputs.iter().enumerate() {
        let made = matches!(input.name.as_str(), "h" | "c")
            .then(|| run(cell::def(), &all[..5], &[]).array(&input.name).unwrap());
        let dims = parts(&input.name, sizes).into_iter().map(|lengths| lengths.iter().sum());
        let front = if matches!(input.name.as_str(), "w" | "bias") { &[] } else { front };
        let front = if input.name.starts_with("w_") || input.name.starts_with("bias_") { &[] } else { front };
        let shape: Vec<usize> = front.iter().copied().chain(dims).collect();
        all.push(made.unwrap_or_else(|| numbers(&shape, seed as u64 + 1) * 0.3));
    }
    all
}

#[test]
fn values_and_gradients_of_all_orders_are_those_of_the_parts() {
    for (sizes, front) in
        [([3, 4, 5], &[][..]), ([2, 1, 3], &[4]), ([70, 60, 70], &[]), ([2, 0, 3], &[]), ([0, 2, 3], &[])]
    {
        // Large ones are products of matrices, which are in the first two.
        let orders = if sizes[0] > 10 { 2 } else { 4 };
        for (whole, parted) in defs::<cell>().into_iter().zip(defs::<cell_of_parts>()).take(orders) {
            let (signature, of_parts) =
                (whole.clone().signature().unwrap(), parted.clone().signature().unwrap());
            let given = inputs(&whole, sizes, front);
            let named = signature.inputs.iter().zip(&given);
            let of_given: Vec<ArrayD<f64>> =
                named.flat_map(|(input, own)| split(own, &parts(&input.name, sizes))).collect();
            let (ours, theirs) = (run(whole, &given, &[]), run(parted, &of_given, &[]));
            let mut names = of_parts.outputs.iter();
            for output in &signature.outputs {
                let own = ours.array::<f64, IxDyn>(&output.name).unwrap();
                for part in split(&own, &parts(&output.name, sizes)) {
                    let name = &names.next().unwrap().name;
                    assert_close(&part, &theirs.array(name).unwrap(), 1e-9);
                }
            }
            assert!(names.next().is_none());
        }
    }
}

#[test]
fn any_strides_and_absent_outputs_do() {
    let sizes = [3, 4, 5];
    let def = || cell::COMPANIONS[0]();
    let given = inputs(&def(), sizes, &[]);
    let all = run(def(), &given, &[]);
    let turned: Vec<ArrayD<f64>> =
        given.iter().map(|own| own.t().slice_each_axis(|_| Slice::new(0, None, -1)).to_owned()).collect();
    let views: Vec<_> =
        turned.iter().map(|own| own.slice_each_axis(|_| Slice::new(0, None, -1)).reversed_axes()).collect();
    let strided = views.iter().fold(gradient::<cell>(1), |call, view| call.input(view)).run().unwrap();
    let names = ["x_grad", "w_grad", "bias_grad", "old_h_grad", "old_c_grad"];
    for wanted in names {
        let others: Vec<&str> = names.into_iter().filter(|name| *name != wanted).collect();
        let alone = run(def(), &given, &others);
        assert!(others.iter().all(|name| !alone.has(name)));
        let [one, other, whole] =
            [&alone, &strided, &all].map(|made| made.array::<f64, IxDyn>(wanted).unwrap());
        assert_close(&one, &whole, 1e-13);
        assert_close(&other, &whole, 1e-13);
    }
    let without_c = given.iter().take(given.len() - 1).fold(Call::new(def()), |call, own| call.input(own));
    let without_c = without_c.absent().run().unwrap();
    let mut zeroed = given.clone();
    zeroed.last_mut().unwrap().fill(0.0);
    let zeroed = run(def(), &zeroed, &[]);
    for name in names {
        assert_close(&without_c.array(name).unwrap(), &zeroed.array(name).unwrap(), 1e-13);
    }
}

#[test]
fn parts_of_float32_and_positions_are_placed_by_their_own_sizes() {
    let given = inputs(&cell::def(), [3, 4, 5], &[]);
    let narrow: Vec<ArrayD<f32>> = given.iter().map(|own| own.mapv(|own| own as f32)).collect();
    let ours = narrow.iter().fold(call::<cell>(), |call, own| call.input(own)).run().unwrap();
    let ours = ours.array::<f32, IxDyn>("h").unwrap().mapv(f64::from);
    assert_close(&ours, &run(cell::def(), &given, &[]).array("h").unwrap(), 1e-5);
    let x = numbers(&[2, 6], 1);
    let labels = opsmith::ndarray::arr1(&[7_i64, 1, 2, 5]);
    let scale = opsmith::ndarray::arr0(2.0);
    let made = call::<mixed>().input(&x).input(&scale).input(&labels).run().unwrap();
    let left = x.slice_axis(Axis(1), Slice::from(0..3));
    let labels = opsmith::ndarray::arr1(&[5.0, -4.0]).into_dyn();
    assert_close(&made.array("z").unwrap(), &(left.sum_axis(Axis(1)) + labels), 1e-14);
    assert_close(&made.array("colours").unwrap(), &(left.sum_axis(Axis(0)) * 2.0), 1e-14);
}

#[test]
fn a_card_computes_the_same() {
    for def in [cell::def, cell::COMPANIONS[0], cell::COMPANIONS[1]] {
        let given = inputs(&def(), [3, 4, 5], &[]);
        let call = given.iter().fold(Call::new(def()), |call, own| call.input(own));
        let Some(ours) = call.run_cuda_on_processor().unwrap() else { return };
        let theirs = run(def(), &given, &[]);
        for output in &def().signature().unwrap().outputs {
            let [ours, theirs] = [&ours, &theirs].map(|made| made.array::<f64, IxDyn>(&output.name).unwrap());
            assert_close(&ours, &theirs, 1e-10);
        }
    }
}

#[test]
fn shapes_follow_and_errors_say_what_is_expected() {
    let op = shapes::<cell>();
    infer_ok!(op, "[b,f];[3 * s,s + f];[3 * s];[b,s];[b,s]", "[b,s];[b,s]");
    infer_ok!(op, "[4,2];[9,?];[?];[?,3];[?,3]", "[4,3];[4,3]");
    infer_ok!(op, "[7,4,2];[9,5];[9];[4,3];[4,3]", "[7,4,3];[7,4,3]");
    infer_error!(
        op,
        "dim 0 of `w` (shape [10,5]) must be 3 * s with s = 3: 10 ≠ 9",
        "[4,2];[10,5];[9];[4,3];[4,3]"
    );
    infer_error!(
        op,
        "dim 1 of `w` (shape [9,6]) must be r + f with f = 2, r = 3: 6 ≠ 5",
        "[4,2];[9,6];[9];[4,3];[4,3]"
    );
    infer_error!(
        op,
        "axis `r`, dim 1 of `old_h` (shape [4,2]), must be as long as axis `s`, dim 1 of `old_c` (shape [4,3]): 2 ≠ 3",
        "[4,2];[9,4];[9];[4,2];[4,3]"
    );
    infer_error!(
        op,
        "input `w` must have rank at least 2, (...,3 * s,r + f), got rank 1 (shape [9])",
        "[4,2];[9];[9];[4,3];[4,3]"
    );
    let wrong = [[4, 2], [9, 6], [1, 9], [4, 3], [4, 3]].map(|shape| numbers(&shape, 1));
    let bias = numbers(&[9], 1);
    let call =
        call::<cell>().input(&wrong[0]).input(&wrong[1]).input(&bias).input(&wrong[3]).input(&wrong[4]);
    let error = call.run().map(drop).unwrap_err().to_string();
    assert_eq!(
        error,
        "InvalidArgument: Cell: dim 1 of `w` (shape [9,6]) must be r + f with f = 2, r = 3: 6 ≠ 5"
    );
}

#[test]
fn a_multiple_gives_the_size_of_its_axis() {
    let op = shapes::<swiglu>();
    infer_ok!(op, "[5,8];[8]", "[5,4]");
    infer_ok!(op, "[n,2 * k];[?]", "[n,k]");
    infer_ok!(op, "?;[6]", "?");
    infer_error!(op, "dim 1 of `x` (shape [5,7]) must be a multiple of 2, 2 * d: 7 ≠ 6", "[5,7];[?]");
    infer_error!(op, "dim 0 of `bias` (shape [6]) must be 2 * d with d = 4: 6 ≠ 8", "[5,8];[6]");
    let (x, bias) = (numbers(&[5, 8], 1), numbers(&[8], 2));
    let result = call::<swiglu>().input(&x).input(&bias).run().unwrap().array::<f64, IxDyn>("z").unwrap();
    let expected = ArrayD::from_shape_fn(vec![5, 4], |at| {
        let [gate, up] = [0, 4].map(|half| x[[at[0], at[1] + half]] + bias[[at[1] + half]]);
        gate / (1.0 + (-gate).exp()) * up
    });
    assert_close(&result, &expected, 1e-12);
    let error = call::<swiglu>().input(&numbers(&[5, 7], 1)).input(&numbers(&[7], 1)).run().map(drop);
    let expected =
        "InvalidArgument: Swiglu: dim 1 of `x` (shape [5,7]) must be a multiple of 2, 2 * d: 7 ≠ 6";
    assert_eq!(error.unwrap_err().to_string(), expected);
    for orders in [0, 1] {
        let given = [x.clone(), bias.clone(), numbers(&[5, 4], 3)];
        let def = [swiglu::def, swiglu::COMPANIONS[0]][orders];
        let call = given[..2 + orders].iter().fold(Call::new(def()), |call, own| call.input(own));
        let Some(card) = call.run_cuda_on_processor().unwrap() else { return };
        let ours = run(def(), &given[..2 + orders], &[]);
        for output in &def().signature().unwrap().outputs {
            let [ours, card] = [&ours, &card].map(|made| made.array::<f64, IxDyn>(&output.name).unwrap());
            assert_close(&ours, &card, 1e-12);
        }
    }
}

#[test]
fn formulas_name_the_parts_and_the_batch_alone_is_free() {
    let library = Library::new("parts", "0.1.0", vec![cell::def().not_differentiable()]).unwrap();
    let formula = library.op("cell").unwrap().explain(&[const { None }; 1]).unwrap().formula;
    assert!(formula.contains("w[2][0]") && formula.contains("bias[1]"), "{formula}");
    let ops = std::iter::once(gated::def()).chain(gated::COMPANIONS.iter().map(|def| def()));
    let library = Library::new("gated", "0.1.0", ops.collect()).unwrap();
    let formula = |op: &str| library.op(op).unwrap().explain(&[const { None }; 1]).unwrap().formula;
    assert!(formula("gated").contains("saved_1 = "), "{}", formula("gated"));
    assert!(formula("gated_grad").contains("w_grad[1] = "), "{}", formula("gated_grad"));
    let free = cell::def().build().unwrap().parallel().map(ToString::to_string);
    assert_eq!(
        free.as_deref(),
        Some("(..., b, _), (..., _, _), (..., _), (..., b, _), (..., b, _) -> (..., b, _), (..., b, _)")
    );
    assert!(cell::def().signature().unwrap().inputs[1].doc.contains("(..., 3 * s, r + f)"));
}
