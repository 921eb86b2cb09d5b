//! Operators for PyTorch, TensorFlow, JAX, NumPy, ONNX Runtime, Rust and C, as one library.

use opsmith::prelude::*;

/// Scales each row of `x` by its own factor: `z[i, j] = factor[i] · x[i, j]`.
///
/// # Arguments
/// - `x`: A matrix.
/// - `factor`: A factor for each row.
#[op(shape = "(n,p),(n)->(n,p)", gradient = scale_rows_grad)]
fn scale_rows<T: Float>(x: ArrayView2<T>, factor: ArrayView1<T>, mut z: ArrayViewMut2<T>) {
    for ((x, &factor), mut z) in x.outer_iter().zip(factor).zip(z.outer_iter_mut()) {
        azip!((z in &mut z, &x in &x) *z = factor * x);
    }
}

/// The gradient of `scale_rows`. It is wired to it by the names of its arguments: it takes inputs, outputs and
/// `<output>_grad` as it needs them, and gives `<input>_grad`.
#[op(shape = "(n,p),(n),(n,p)->(n,p),(n)")]
fn scale_rows_grad<T: Float>(
    x: ArrayView2<T>,
    factor: ArrayView1<T>,
    z_grad: ArrayView2<T>,
    mut x_grad: ArrayViewMut2<T>,
    mut factor_grad: ArrayViewMut1<T>,
) {
    for (i, &factor) in factor.iter().enumerate() {
        let z_grad = z_grad.row(i);
        azip!((x in x_grad.row_mut(i), &z in z_grad) *x = factor * z);
        factor_grad[i] = z_grad.dot(&x.row(i));
    }
}

opsmith::library! { name = "{{name}}", ops = [scale_rows, scale_rows_grad] }

#[cfg(test)]
mod tests;
