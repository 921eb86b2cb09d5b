//! Pairwise Manhattan (L1) distances, with gradients of two orders.
//!
//! An Opsmith library whose kernels are written by hand: the definitions are here, the arithmetic is in `kernels`,
//! which knows nothing of operators; the CUDA kernels are in `distances.cu`, and how they are launched in `launches`.

mod kernels;
mod launches;
#[cfg(test)]
mod tests;

use kernels::Kernel;
use opsmith::cuda::{CudaCall, CudaElement, DeviceView, DeviceViewMut};
use opsmith::prelude::*;

/// Pairwise Manhattan (L1) distances between the rows of `x` and the rows of `y`:
/// `z[i, j] = Σₖ |x[i, k] − y[j, k]|`.
///
/// Needs next to no memory beyond the output: some sums over the rows of `x`. NaN and infinities propagate as in NumPy, and the result does not depend on the
/// number of threads.
#[op(
    shape = "(n,p),(m,p)->(n,m)",
    gradient = pairwise_manhattan_distance_grad,
    cuda = "distances.cu",
    capturable,
    autocast = "float32",
    parallel = "n, m"
)]
fn pairwise_manhattan_distance<T: Float + Kernel>(
    cx: &Compute,
    /// Points, one a row.
    x: ArrayView2<T>,
    /// Points, one a row, with as many columns as `x`.
    y: ArrayView2<T>,
    /// The distance of row `i` of `x` from row `j` of `y` at `[i, j]`.
    z: ArrayViewMut2<T>,
) -> Result<()> {
    let ((n, p), m) = (x.dim(), y.nrows());
    kernels::forward(cx, dense(x)?, dense(y)?, dense_mut(z)?, n, m, p);
    Ok(())
}

fn pairwise_manhattan_distance_cuda<T: CudaElement>(
    call: &CudaCall,
    x: DeviceView<T>,
    y: DeviceView<T>,
    z: DeviceViewMut<T>,
) -> Result<()> {
    launches::forward(call, x, y, z)
}

/// The gradient of `PairwiseManhattanDistance`: `x_grad[i, k] = Σⱼ z_grad[i, j] · sign(x[i, k] − y[j, k])` and
/// `y_grad[j, k] = Σᵢ z_grad[i, j] · sign(y[j, k] − x[i, k])`, with `sign(0) = 0` and the sign of NaN NaN.
#[op(
    shape = "(n,p),(m,p),(n,m)->(n,p),(m,p)",
    gradient = pairwise_manhattan_distance_grad_grad,
    cuda = "distances.cu",
    capturable,
    parallel = "+n, +m, p"
)]
fn pairwise_manhattan_distance_grad<T: Float + Kernel>(
    cx: &Compute,
    /// The points of the forward call.
    x: ArrayView2<T>,
    /// The points of the forward call.
    y: ArrayView2<T>,
    /// The gradient with respect to the distances.
    z_grad: ArrayView2<T>,
    /// Changes nothing: it shows an attribute that the forward op lacks.
    #[attr(default = 1)]
    _a: i64,
    /// The gradient with respect to `x`.
    x_grad: Option<ArrayViewMut2<T>>,
    /// The gradient with respect to `y`.
    y_grad: Option<ArrayViewMut2<T>>,
) -> Result<()> {
    let ((n, p), m) = (x.dim(), y.nrows());
    let x_grad = x_grad.map(dense_mut).transpose()?;
    let y_grad = y_grad.map(dense_mut).transpose()?;
    kernels::backward(cx, dense(x)?, dense(y)?, dense(z_grad)?, x_grad, y_grad, n, m, p);
    Ok(())
}

fn pairwise_manhattan_distance_grad_cuda<T: CudaElement>(
    call: &CudaCall,
    x: DeviceView<T>,
    y: DeviceView<T>,
    z_grad: DeviceView<T>,
    _a: i64,
    x_grad: Option<DeviceViewMut<T>>,
    y_grad: Option<DeviceViewMut<T>>,
) -> Result<()> {
    if let Some(x_grad) = &x_grad {
        launches::backward(call, (&x, &y), &z_grad, false, x_grad)?;
    }
    match &y_grad {
        Some(y_grad) => launches::backward(call, (&y, &x), &z_grad, true, y_grad),
        None => Ok(()),
    }
}

/// The gradient of `PairwiseManhattanDistanceGrad` with respect to `z_grad`:
/// `z_grad_grad[i, j] = Σₖ (x_grad_grad[i, k] − y_grad_grad[j, k]) · sign(x[i, k] − y[j, k])`.
///
/// With respect to `x` and `y` it is zero wherever it is defined.
#[op(shape = "(n,p),(m,p),(n,p),(m,p)->(n,m)", cuda = "distances.cu", capturable, parallel = "n, m, +p")]
fn pairwise_manhattan_distance_grad_grad<T: Float + Kernel>(
    cx: &Compute,
    /// The points of the forward call.
    x: ArrayView2<T>,
    /// The points of the forward call.
    y: ArrayView2<T>,
    /// The gradient with respect to `x_grad`; zeros where absent.
    x_grad_grad: Option<ArrayView2<T>>,
    /// The gradient with respect to `y_grad`; zeros where absent.
    y_grad_grad: Option<ArrayView2<T>>,
    /// The gradient with respect to `z_grad`.
    z_grad_grad: ArrayViewMut2<T>,
) -> Result<()> {
    let ((n, p), m) = (x.dim(), y.nrows());
    let x_grad_grad = x_grad_grad.map(dense).transpose()?;
    let y_grad_grad = y_grad_grad.map(dense).transpose()?;
    let z_grad_grad = dense_mut(z_grad_grad)?;
    kernels::second_order(cx, dense(x)?, dense(y)?, x_grad_grad, y_grad_grad, z_grad_grad, n, m, p);
    Ok(())
}

fn pairwise_manhattan_distance_grad_grad_cuda<T: CudaElement>(
    call: &CudaCall,
    x: DeviceView<T>,
    y: DeviceView<T>,
    x_grad_grad: Option<DeviceView<T>>,
    y_grad_grad: Option<DeviceView<T>>,
    z_grad_grad: DeviceViewMut<T>,
) -> Result<()> {
    launches::second_order(call, (x, y), x_grad_grad, y_grad_grad, z_grad_grad)
}

/// The elements of an input, which are row-major since no op here asks for strides.
fn dense<T: Float>(view: ArrayView2<'_, T>) -> Result<&[T]> {
    view.to_slice().ok_or_else(|| Error::internal("an input is not row-major"))
}

/// The elements of an output, which are always row-major.
fn dense_mut<T: Float>(view: ArrayViewMut2<'_, T>) -> Result<&mut [T]> {
    view.into_slice().ok_or_else(|| Error::internal("an output is not row-major"))
}

opsmith::library! {
    name = "distances",
    ops = [
        pairwise_manhattan_distance,
        pairwise_manhattan_distance_grad,
        pairwise_manhattan_distance_grad_grad,
    ]
}
