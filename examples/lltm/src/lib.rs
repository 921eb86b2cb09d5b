//! A recurrent cell with a long-term memory (LLTM), with its gradient.
//!
//! An Opsmith library whose ops are a matrix product and one pass over the elements each way; the arithmetic of an
//! element is in `cell`. `one_body` has the same step as one body, which can be differentiated more than once.

mod cell;
#[cfg(test)]
mod cuda_tests;
mod launches;
mod one_body;
mod steps;
#[cfg(test)]
mod tests;

use opsmith::cuda::{CudaCall, CudaElement, DeviceView, DeviceViewMut};
use opsmith::prelude::*;

use crate::one_body::lltm_cell;
use crate::steps::{Backward, Products, Wanted};

/// One step of a recurrent cell with a long-term memory: like an LSTM's, without a forget gate and with an exponential
/// linear unit.
///
/// With `x = [old_h, input]` and `gate_weights = x · weightsᵀ + bias`, cut into three parts `g0`, `g1` and `g2` of `s`
/// columns: `new_cell = old_cell + elu(g2) · σ(g0)` and `new_h = tanh(new_cell) · σ(g1)`.
#[op(
    shape = "(b,f),(3 * s,s + f),(3 * s),(b,s),(b,s)->(b,s),(b,s),(b,s),(b,s),(b,s),(b,s + f),(b,3 * s)",
    gradient = lltm_grad,
    strided,
    cuda = "lltm.cu",
    parallel = "b"
)]
fn lltm<T: Float>(
    cx: &Compute,
    /// What the step reads: `f` numbers for each element of the batch.
    input: ArrayView2<T>,
    /// The weights of the three parts of the gates, one below the other; the columns of the first `s` are for `old_h`.
    weights: ArrayView2<T>,
    /// The bias of the three parts of the gates.
    bias: ArrayView1<T>,
    /// The output of the step before.
    old_h: ArrayView2<T>,
    /// The state after the step before.
    old_cell: ArrayView2<T>,
    /// The output.
    new_h: ArrayViewMut2<T>,
    /// The state.
    new_cell: ArrayViewMut2<T>,
    /// `σ(g0)`.
    #[saved]
    input_gate: ArrayViewMut2<T>,
    /// `σ(g1)`.
    #[saved]
    output_gate: ArrayViewMut2<T>,
    /// `elu(g2)`.
    #[saved]
    candidate_cell: ArrayViewMut2<T>,
    /// `old_h` and `input` side by side.
    #[saved]
    mut x: ArrayViewMut2<T>,
    /// `x · weightsᵀ + bias`.
    #[saved]
    mut gate_weights: ArrayViewMut2<T>,
) -> Result<()> {
    let (mut left, mut right) = x.view_mut().split_at(Axis(1), old_h.ncols());
    left.assign(&old_h);
    right.assign(&input);
    for mut row in gate_weights.rows_mut() {
        row.assign(&bias);
    }
    cx.gemm(T::one(), x.view(), weights.t(), T::one(), gate_weights.view_mut())?;
    let [g0, g1, g2] = steps::parts(gate_weights.view());
    let outputs = [new_h, new_cell, input_gate, output_gate, candidate_cell];
    cx.map(&cell::forward {}, [g0, g1, g2, old_cell], outputs)
}

#[expect(clippy::too_many_arguments, reason = "it has the op's parameters")]
fn lltm_cuda<T: CudaElement>(
    call: &CudaCall,
    input: DeviceView<T>,
    weights: DeviceView<T>,
    bias: DeviceView<T>,
    old_h: DeviceView<T>,
    old_cell: DeviceView<T>,
    new_h: DeviceViewMut<T>,
    new_cell: DeviceViewMut<T>,
    input_gate: DeviceViewMut<T>,
    output_gate: DeviceViewMut<T>,
    candidate_cell: DeviceViewMut<T>,
    x: DeviceViewMut<T>,
    gate_weights: DeviceViewMut<T>,
) -> Result<()> {
    let made = [new_h, new_cell, input_gate, output_gate, candidate_cell, x, gate_weights];
    launches::Step { input, weights, bias, old: [old_h, old_cell], made }.launch(call)
}

/// The gradient of `Lltm`.
///
/// The gradients of the gates come from one pass, and the others from products of theirs. Nothing is computed that
/// nobody asks for.
#[op(
    shape = "(b,s),(b,s),(b,s),(b,s),(b,s),(b,s),(b,k),(b,3 * s),(3 * s,k)->(b,s),(b,k - s),(3 * s,k),(3 * s),(b,s)",
    strided,
    cuda = "lltm.cu",
    parallel = "+b"
)]
fn lltm_grad<T: Float>(
    cx: &Compute,
    /// The gradient with respect to the output.
    new_h_grad: ArrayView2<T>,
    /// The gradient with respect to the state.
    new_cell_grad: ArrayView2<T>,
    /// The state that the forward call made.
    new_cell: ArrayView2<T>,
    /// As the forward call saved it.
    input_gate: ArrayView2<T>,
    /// As the forward call saved it.
    output_gate: ArrayView2<T>,
    /// As the forward call saved it.
    candidate_cell: ArrayView2<T>,
    /// As the forward call saved it.
    x: ArrayView2<T>,
    /// As the forward call saved it.
    gate_weights: ArrayView2<T>,
    /// The weights of the forward call.
    weights: ArrayView2<T>,
    /// The gradient with respect to `old_h`.
    old_h_grad: Option<ArrayViewMut2<T>>,
    /// The gradient with respect to `input`.
    input_grad: Option<ArrayViewMut2<T>>,
    /// The gradient with respect to `weights`.
    weights_grad: Option<ArrayViewMut2<T>>,
    /// The gradient with respect to `bias`.
    bias_grad: Option<ArrayViewMut1<T>>,
    /// The gradient with respect to `old_cell`.
    old_cell_grad: Option<ArrayViewMut2<T>>,
) -> Result<()> {
    let [_, _, g2] = steps::parts(gate_weights);
    let step = Backward { new_h_grad, new_cell_grad, new_cell, input_gate, output_gate, candidate_cell, g2 };
    let products =
        old_h_grad.is_some() || input_grad.is_some() || weights_grad.is_some() || bias_grad.is_some();
    if !products {
        return old_cell_grad.map_or(Ok(()), |grad| step.old_cell(cx, grad));
    }
    let gates_grad = step.gates(cx, old_cell_grad)?;
    let wanted = Wanted { old_h: old_h_grad, input: input_grad, weights: weights_grad, bias: bias_grad };
    Products { gates_grad: gates_grad.view(), weights, x }.compute(cx, wanted)
}

#[expect(clippy::too_many_arguments, reason = "it has the op's parameters")]
fn lltm_grad_cuda<T: CudaElement>(
    call: &CudaCall,
    new_h_grad: DeviceView<T>,
    new_cell_grad: DeviceView<T>,
    new_cell: DeviceView<T>,
    input_gate: DeviceView<T>,
    output_gate: DeviceView<T>,
    candidate_cell: DeviceView<T>,
    x: DeviceView<T>,
    gate_weights: DeviceView<T>,
    weights: DeviceView<T>,
    old_h: Option<DeviceViewMut<T>>,
    input: Option<DeviceViewMut<T>>,
    weights_grad: Option<DeviceViewMut<T>>,
    bias: Option<DeviceViewMut<T>>,
    old_cell: Option<DeviceViewMut<T>>,
) -> Result<()> {
    let elements =
        [new_h_grad, new_cell_grad, new_cell, input_gate, output_gate, candidate_cell, gate_weights];
    let wanted = launches::Wanted { old_h, input, weights: weights_grad, bias, old_cell };
    launches::Backward { elements, x, weights }.launch(call, &wanted)
}

opsmith::library! { name = "lltm", ops = [lltm, lltm_grad, lltm_cell] }
