//! The ops against loops over their formulas, what they make of shapes, and what they refuse.

use opsmith::ndarray::{Array, Array1, Array2, Dimension, ShapeBuilder};
use opsmith::prelude::*;
use opsmith::testing::{Outputs, call, shapes};
use opsmith::{infer_error, infer_ok};

use super::{lltm, lltm_grad};

/// The inputs of a step, and the gradients that arrive for its outputs.
struct Step {
    input: Array2<f64>,
    weights: Array2<f64>,
    bias: Array1<f64>,
    old_h: Array2<f64>,
    old_cell: Array2<f64>,
    new_h_grad: Array2<f64>,
    new_cell_grad: Array2<f64>,
}

/// Numbers between −1 and 1, the same in every run.
fn numbers<D: Dimension>(shape: impl ShapeBuilder<Dim = D>, seed: u64) -> Array<f64, D> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Array::from_shape_simple_fn(shape, || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    })
}

impl Step {
    fn new(batch: usize, features: usize, size: usize) -> Step {
        Step {
            input: numbers((batch, features), 1),
            weights: numbers((3 * size, size + features), 2),
            bias: numbers(3 * size, 3),
            old_h: numbers((batch, size), 4),
            old_cell: numbers((batch, size), 5),
            new_h_grad: numbers((batch, size), 6),
            new_cell_grad: numbers((batch, size), 7),
        }
    }

    fn forward(&self, threads: usize) -> Outputs {
        let inputs = call::<lltm>().input(&self.input).input(&self.weights).input(&self.bias);
        inputs.input(&self.old_h).input(&self.old_cell).threads(threads).run().unwrap()
    }

    fn backward(&self, unwanted: &[&str], threads: usize) -> Outputs {
        let made = self.forward(threads);
        let saved = ["new_cell", "input_gate", "output_gate", "candidate_cell", "x", "gate_weights"];
        let saved = saved.map(|name| matrix(&made, name));
        let call = call::<lltm_grad>().input(&self.new_h_grad).input(&self.new_cell_grad).threads(threads);
        let call = saved.iter().fold(call, |call, saved| call.input(saved)).input(&self.weights);
        unwanted.iter().fold(call, |call, name| call.without(name)).run().unwrap()
    }

    /// What the gradients are of, by the formulas alone.
    fn value(&self) -> f64 {
        let mut value = 0.0;
        let size = self.old_h.ncols();
        for row in 0..self.input.nrows() {
            let x: Vec<f64> = self.old_h.row(row).iter().chain(self.input.row(row)).copied().collect();
            let gate = |column: usize| {
                let weights = self.weights.row(column);
                self.bias[column] + x.iter().zip(weights).map(|(x, weight)| x * weight).sum::<f64>()
            };
            for column in 0..size {
                let (g0, g1, g2) = (gate(column), gate(size + column), gate(2 * size + column));
                let elu = if g2 >= 0.0 { g2 } else { g2.exp_m1() };
                let cell = self.old_cell[[row, column]] + elu / (1.0 + (-g0).exp());
                let h = cell.tanh() / (1.0 + (-g1).exp());
                value += h * self.new_h_grad[[row, column]] + cell * self.new_cell_grad[[row, column]];
            }
        }
        value
    }
}

fn any(outputs: &Outputs, name: &str) -> Array<f64, IxDyn> {
    outputs.array(name).unwrap()
}

fn matrix(outputs: &Outputs, name: &str) -> Array2<f64> {
    outputs.array(name).unwrap()
}

/// The inputs' names and a way to the elements of each.
type Elements = (&'static str, fn(&mut Step) -> &mut [f64]);

const INPUTS: [Elements; 5] = [
    ("old_h_grad", |step| step.old_h.as_slice_mut().unwrap()),
    ("input_grad", |step| step.input.as_slice_mut().unwrap()),
    ("weights_grad", |step| step.weights.as_slice_mut().unwrap()),
    ("bias_grad", |step| step.bias.as_slice_mut().unwrap()),
    ("old_cell_grad", |step| step.old_cell.as_slice_mut().unwrap()),
];

#[test]
fn values_are_those_of_the_formulas() {
    for (batch, features, size) in [(1, 1, 1), (3, 2, 5), (7, 1, 4), (2, 0, 3), (40, 3, 33)] {
        let step = Step::new(batch, features, size);
        let made = step.forward(1);
        let (h, cell) = (matrix(&made, "new_h"), matrix(&made, "new_cell"));
        let value = (&h * &step.new_h_grad).sum() + (&cell * &step.new_cell_grad).sum();
        assert!((value - step.value()).abs() <= 1e-12 * (batch * size) as f64, "{batch} {features} {size}");
        let x = matrix(&made, "x");
        assert_eq!(x.slice(s![.., ..size]), step.old_h);
        assert_eq!(x.slice(s![.., size..]), step.input);
        let gates = matrix(&made, "gate_weights");
        let linear = x.dot(&step.weights.t()) + &step.bias;
        assert!((gates - linear).iter().all(|difference| difference.abs() <= 1e-13));
    }
}

#[test]
fn gradients_are_those_of_finite_differences() {
    const STEP: f64 = 1e-6;
    for (batch, features, size) in [(1, 1, 1), (3, 2, 5), (2, 0, 3)] {
        let mut step = Step::new(batch, features, size);
        let made = step.backward(&[], 1);
        for (name, elements) in INPUTS {
            let gradient: Vec<f64> = any(&made, name).iter().copied().collect();
            assert_eq!(gradient.len(), elements(&mut step).len());
            for (index, &gradient) in gradient.iter().enumerate() {
                let before = elements(&mut step)[index];
                let [above, below] = [STEP, -STEP].map(|shift| {
                    elements(&mut step)[index] = before + shift;
                    step.value()
                });
                elements(&mut step)[index] = before;
                let expected = (above - below) / (2.0 * STEP);
                assert!((gradient - expected).abs() < 1e-8, "{name}[{index}]: {gradient}, not {expected}");
            }
        }
    }
}

#[test]
fn what_is_asked_for_alone_is_what_it_is_among_all() {
    let step = Step::new(6, 4, 5);
    let all = step.backward(&[], 1);
    for (wanted, _) in INPUTS {
        let unwanted: Vec<&str> =
            INPUTS.iter().map(|(name, _)| *name).filter(|name| *name != wanted).collect();
        let some = step.backward(&unwanted, 1);
        assert_eq!(any(&some, wanted), any(&all, wanted), "{wanted}");
        assert!(unwanted.iter().all(|name| !some.has(name)));
        let others = step.backward(&[wanted], 1);
        assert!(unwanted.iter().all(|name| any(&others, name) == any(&all, name)));
    }
}

#[test]
fn empty_steps_have_empty_outputs_and_zero_gradients() {
    for (batch, features, size) in [(0, 3, 4), (3, 2, 0), (3, 0, 0), (0, 0, 0)] {
        let step = Step::new(batch, features, size);
        assert_eq!(matrix(&step.forward(2), "new_h").dim(), (batch, size));
        let made = step.backward(&[], 2);
        for (name, _) in INPUTS {
            assert!(any(&made, name).iter().all(|&gradient| gradient == 0.0), "{name}");
        }
        assert_eq!(matrix(&made, "input_grad").dim(), (batch, features));
    }
}

#[test]
fn any_strides_do() {
    let step = Step::new(4, 3, 6);
    let turned = step.weights.t().as_standard_layout().into_owned();
    let weights = turned.t();
    let (old_h, every_other) = (step.old_h.slice(s![..;-1, ..]), step.old_cell.slice(s![..;-1, ..]));
    let inputs = call::<lltm>().input(&step.input).input(&weights).input(&step.bias);
    let made = inputs.input(&old_h).input(&every_other).run().unwrap();
    let dense = Step { old_h: old_h.to_owned(), old_cell: every_other.to_owned(), ..Step::new(4, 3, 6) };
    let difference = matrix(&made, "new_h") - matrix(&dense.forward(1), "new_h");
    assert!(difference.iter().all(|difference| difference.abs() <= 1e-15));
}

#[test]
fn nan_and_infinities_stay_in_their_rows() {
    let mut step = Step::new(4, 3, 6);
    step.input[[1, 2]] = f64::NAN;
    step.old_cell[[2, 3]] = f64::INFINITY;
    let made = step.forward(1);
    let (h, cell) = (matrix(&made, "new_h"), matrix(&made, "new_cell"));
    assert!(h.row(1).iter().chain(cell.row(1)).all(|number| number.is_nan()));
    assert!(h.rows().into_iter().enumerate().all(|(row, h)| row == 1 || h.iter().all(|h| h.is_finite())));
    assert_eq!(cell[[2, 3]], f64::INFINITY);
    assert!(matrix(&step.backward(&[], 1), "old_cell_grad").row(1).iter().all(|g| g.is_nan()));
}

#[test]
fn threads_change_next_to_nothing() {
    let step = Step::new(64, 50, 300);
    let [one, three] = [1, 3].map(|threads| (step.forward(threads), step.backward(&[], threads)));
    let close = |left: Array<f64, IxDyn>, right: Array<f64, IxDyn>| {
        left.iter().zip(&right).all(|(left, right)| (left - right).abs() <= 1e-12)
    };
    assert!(close(any(&one.0, "new_h"), any(&three.0, "new_h")));
    assert!(INPUTS.iter().all(|(name, _)| close(any(&one.1, name), any(&three.1, name))));
}

#[test]
fn shapes_follow_from_those_of_the_inputs() {
    let op = shapes::<lltm>();
    infer_ok!(
        op,
        "[b,f];[3 * s,s + f];[3 * s];[b,s];[b,s]",
        "[b,s];[b,s];[b,s];[b,s];[b,s];[b,s + f];[b,3 * s]"
    );
    infer_ok!(op, "[4,2];?;?;[?,3];?", "[4,3];[4,3];[4,3];[4,3];[4,3];[4,5];[4,9]");
    infer_error!(op, "dim 0 of input `weights` must be 3 * s: 8 ≠ 9", "[4,2];[8,5];[9];[4,3];[4,3]");
    infer_error!(op, "dim 1 of input `weights` must be s + f: 6 ≠ 5", "[4,2];[9,6];[9];[4,3];[4,3]");
    infer_error!(op, "dim 0 of input `bias` must be 3 * s: 3 ≠ 9", "[4,2];[9,5];[3];[4,3];[4,3]");
    infer_error!(
        op,
        "dim 0 of input `old_h` must equal dim 0 of input `input`",
        "[4,2];[9,5];[9];[5,3];[4,3]"
    );
    infer_error!(
        op,
        "dim 1 of input `old_cell` must equal dim 1 of input `old_h`",
        "[4,2];[9,5];[9];[4,3];[4,2]"
    );
    infer_error!(op, "input `bias` must have rank 1", "[4,2];[9,5];[9,1];[4,3];[4,3]");
    let op = shapes::<lltm_grad>();
    let saved = "[b,s];[b,s];[b,s];[b,s];[b,s];[b,s]";
    infer_ok!(
        op,
        &format!("{saved};[b,s + f];[b,3 * s];[3 * s,s + f]"),
        "[b,s];[b,f];[3 * s,s + f];[3 * s];[b,s]"
    );
    let saved = "[4,3];[4,3];[4,3];[4,3];[4,3];[4,3]";
    infer_error!(op, "must not be negative", &format!("{saved};[4,2];[4,9];[9,2]"));
}

#[test]
fn bad_calls_are_told_of() {
    let step = Step::new(4, 2, 3);
    let with = |weights: &Array2<f64>, bias: &Array1<f64>| {
        let inputs = call::<lltm>().input(&step.input).input(weights).input(bias);
        inputs.input(&step.old_h).input(&step.old_cell).run().map(drop).unwrap_err().to_string()
    };
    assert_eq!(
        with(&numbers((9, 4), 0), &step.bias),
        "InvalidArgument: Lltm: dim 1 of input `weights` must be s + f: 4 ≠ 5"
    );
    assert_eq!(
        with(&step.weights, &numbers(8, 0)),
        "InvalidArgument: Lltm: dim 0 of input `bias` must be 3 * s: 8 ≠ 9"
    );
    let (huge, none) = (Array2::<f64>::zeros((0, 1 << 62)), Array2::<f64>::zeros((0, 2)));
    let inputs = call::<lltm>().input(&none).input(&step.weights).input(&step.bias);
    let error = inputs.input(&huge).input(&huge).run().unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().starts_with("Lltm: "), "{error}");
}
