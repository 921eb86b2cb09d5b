//! The way back: the pass over the elements, and the products behind it.

use opsmith::ndarray::ShapeBuilder;
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

impl<'a, T: Float> Backward<'a, T> {
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

/// The most multiplications of products that are computed side by side, one thread each: a large product is cut in parts for all
/// threads.
const SIDE_BY_SIDE: usize = 1 << 22;

/// What the products read.
#[derive(Clone, Copy)]
pub(crate) struct Products<'a, T> {
    pub(crate) gates_grad: ArrayView2<'a, T>,
    pub(crate) weights: ArrayView2<'a, T>,
    pub(crate) x: ArrayView2<'a, T>,
}

/// What the products make, where it is wanted.
pub(crate) struct Wanted<'a, T> {
    pub(crate) old_h: Option<ArrayViewMut2<'a, T>>,
    pub(crate) input: Option<ArrayViewMut2<'a, T>>,
    pub(crate) weights: Option<ArrayViewMut2<'a, T>>,
    pub(crate) bias: Option<ArrayViewMut1<'a, T>>,
}

impl<T: Float> Products<'_, T> {
    /// Computes what is wanted.
    pub(crate) fn compute(self, cx: &Compute<'_>, wanted: Wanted<'_, T>) -> Result<()> {
        let Wanted { old_h, input, weights, bias } = wanted;
        let (rows, gates) = self.gates_grad.dim();
        let of_x = old_h.is_some() || input.is_some();
        if of_x
            && weights.is_some()
            && rows.saturating_mul(gates).saturating_mul(self.x.ncols()) <= SIDE_BY_SIDE
        {
            let product = |a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, c: ArrayViewMut2<'_, T>| {
                opsmith::gemm(T::one(), a, b, T::zero(), c)
            };
            let (of_x, of_parameters) =
                cx.join(|| self.of_x(old_h, input, product), || self.of_parameters(weights, bias, product));
            return of_x.and(of_parameters);
        }
        let product = |a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, c: ArrayViewMut2<'_, T>| {
            cx.gemm(T::one(), a, b, T::zero(), c)
        };
        self.of_x(old_h, input, product)?;
        self.of_parameters(weights, bias, product)
    }

    /// The gradients with respect to the two parts of `x`.
    fn of_x(
        self,
        old_h: Option<ArrayViewMut2<'_, T>>,
        input: Option<ArrayViewMut2<'_, T>>,
        product: impl Fn(ArrayView2<'_, T>, ArrayView2<'_, T>, ArrayViewMut2<'_, T>) -> Result<()>,
    ) -> Result<()> {
        let (for_h, for_input) = self.weights.split_at(Axis(1), self.gates_grad.ncols() / 3);
        old_h.map_or(Ok(()), |grad| product(self.gates_grad, for_h, grad))?;
        input.map_or(Ok(()), |grad| product(self.gates_grad, for_input, grad))
    }

    /// The gradients with respect to the weights and the bias.
    fn of_parameters(
        self,
        weights: Option<ArrayViewMut2<'_, T>>,
        bias: Option<ArrayViewMut1<'_, T>>,
        product: impl Fn(ArrayView2<'_, T>, ArrayView2<'_, T>, ArrayViewMut2<'_, T>) -> Result<()>,
    ) -> Result<()> {
        weights.map_or(Ok(()), |grad| product(self.gates_grad.reversed_axes(), self.x, grad))?;
        let Some(grad) = bias else { return Ok(()) };
        // The sum over the batch.
        let (one, rows) = (T::one(), self.gates_grad.nrows());
        let ones = ArrayView2::from_shape((1, rows).strides((0, 0)), std::slice::from_ref(&one));
        let ones = ones.map_err(|error| Error::internal(error.to_string()))?;
        product(ones, self.gates_grad, grad.insert_axis(Axis(0)))
    }
}

/// The three parts of gates, side by side in a matrix.
pub(crate) fn parts<T>(gates: ArrayView2<'_, T>) -> [ArrayView2<'_, T>; 3] {
    let size = gates.ncols() / 3;
    let (g0, rest) = gates.split_at(Axis(1), size);
    let (g1, g2) = rest.split_at(Axis(1), size);
    [g0, g1, g2]
}
