//! The arithmetic of one element: what is between the matrix products, written once for every instruction set.

use opsmith::prelude::*;

/// From the three parts of the gates and the old state to the new state and output, with what backward needs.
#[pointwise(outputs = [new_h, new_cell, input_gate, output_gate, candidate_cell], orders = 0)]
pub(crate) fn forward<S: Scalar>(g0: S, g1: S, g2: S, old_cell: S) -> (S, S, S, S, S) {
    let (input_gate, output_gate, candidate_cell) = (g0.sigmoid(), g1.sigmoid(), g2.elu());
    let new_cell = old_cell + candidate_cell * input_gate;
    (new_cell.tanh() * output_gate, new_cell, input_gate, output_gate, candidate_cell)
}

/// From the gradients of the new output and state to those of the three parts of the gates and of the old state.
#[pointwise(outputs = [g0_grad, g1_grad, g2_grad, old_cell_grad], orders = 0)]
pub(crate) fn backward<S: Scalar>(
    new_h_grad: S,
    new_cell_grad: S,
    new_cell: S,
    input_gate: S,
    output_gate: S,
    candidate_cell: S,
    g2: S,
) -> (S, S, S, S) {
    let tanh = new_cell.tanh();
    let cell_grad = through_tanh(new_h_grad, new_cell_grad, tanh, output_gate);
    // Of the gate's own value, as σ′ = σ (1 − σ); of the candidate's, 1 + elu would lose what is left of eᶻ.
    let elu_slope = S::select(g2.ge(S::of(0.0)), S::of(1.0), g2.exp());
    (
        candidate_cell * cell_grad * through_sigmoid(input_gate),
        tanh * new_h_grad * through_sigmoid(output_gate),
        input_gate * cell_grad * elu_slope,
        cell_grad,
    )
}

/// The first three results of [`backward`], where nobody asks for that of the state.
#[pointwise(outputs = [g0_grad, g1_grad, g2_grad], orders = 0)]
pub(crate) fn gates_backward<S: Scalar>(
    new_h_grad: S,
    new_cell_grad: S,
    new_cell: S,
    input_gate: S,
    output_gate: S,
    candidate_cell: S,
    g2: S,
) -> (S, S, S) {
    let (g0_grad, g1_grad, g2_grad, _) =
        backward(new_h_grad, new_cell_grad, new_cell, input_gate, output_gate, candidate_cell, g2);
    (g0_grad, g1_grad, g2_grad)
}

/// The last result of [`backward`] alone, where nobody asks for what is behind the gates.
#[pointwise(outputs = [old_cell_grad], orders = 0)]
pub(crate) fn cell_backward<S: Scalar>(new_h_grad: S, new_cell_grad: S, new_cell: S, output_gate: S) -> S {
    through_tanh(new_h_grad, new_cell_grad, new_cell.tanh(), output_gate)
}

/// The gradient of the new state, which is that of the old one.
#[inline(always)]
fn through_tanh<S: Scalar>(new_h_grad: S, new_cell_grad: S, tanh: S, output_gate: S) -> S {
    (S::of(1.0) - tanh * tanh) * output_gate * new_h_grad + new_cell_grad
}

/// The slope of the sigmoid where it is `value`.
#[inline(always)]
fn through_sigmoid<S: Scalar>(value: S) -> S {
    value * (S::of(1.0) - value)
}
