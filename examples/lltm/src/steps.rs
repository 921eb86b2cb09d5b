//! The pass over the elements on the way back.

use opsmith::BodyFloat;
use opsmith::prelude::*;

use crate::cell;

/// What the pass reads: the gradients that arrive, and what the forward call made, each of shape (b, s).
pub(crate) struct Backward<'a, T> {
    pub(crate) new_h_grad: ArrayView2<'a, T>,
    pub(crate) new_cell_grad: ArrayView2<'a, T>,
    pub(crate) new_cell: ArrayView2<'a, T>,
    pub(crate) input_gate: ArrayView2<'a, T>,
    pub(crate) output_gate: ArrayView2<'a, T>,
    pub(crate) candidate_cell: ArrayView2<'a, T>,
    pub(crate) g2: ArrayView2<'a, T>,
}

impl<'a, T: Float + BodyFloat> Backward<'a, T> {
    /// The gradient with respect to the gates, of shape (b, 3 s), and where it is wanted that with respect to `old_cell`.
    pub(crate) fn gates(
        self,
        cx: &Compute<'a>,
        old_cell_grad: Option<ArrayViewMut2<T>>,
    ) -> Result<ArrayViewMut2<'a, T>> {
        let (rows, size) = self.g2.dim();
        let mut grad = ArrayViewMut2::from_shape((rows, 3 * size), cx.temp(rows * 3 * size)?)
            .map_err(|error| Error::internal(error.to_string()))?;
        let (g0, rest) = grad.view_mut().split_at(Axis(1), size);
        let (g1, g2) = rest.split_at(Axis(1), size);
        let inputs = [
            self.new_h_grad,
            self.new_cell_grad,
            self.new_cell,
            self.input_gate,
            self.output_gate,
            self.candidate_cell,
            self.g2,
        ];
        match old_cell_grad {
            Some(old_cell_grad) => cx.map(&cell::backward {}, inputs, [g0, g1, g2, old_cell_grad])?,
            None => cx.map(&cell::gates_backward {}, inputs, [g0, g1, g2])?,
        }
        Ok(grad)
    }

    /// The gradient with respect to `old_cell` alone.
    pub(crate) fn old_cell(self, cx: &Compute<'a>, grad: ArrayViewMut2<T>) -> Result<()> {
        let inputs = [self.new_h_grad, self.new_cell_grad, self.new_cell, self.output_gate];
        cx.map(&cell::cell_backward {}, inputs, [grad])
    }
}

/// The three parts of gates, side by side in a matrix.
pub(crate) fn parts<T>(gates: ArrayView2<'_, T>) -> [ArrayView2<'_, T>; 3] {
    let size = gates.ncols() / 3;
    let (g0, rest) = gates.split_at(Axis(1), size);
    let (g1, g2) = rest.split_at(Axis(1), size);
    [g0, g1, g2]
}
