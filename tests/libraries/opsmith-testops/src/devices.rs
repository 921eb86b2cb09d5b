//! Ops for devices: inputs that stay in host memory, and policies of autocast.

use opsmith::cuda::{CudaCall, CudaElement, DeviceView, DeviceViewMut, Index};
use opsmith::prelude::*;

fn scale<T: Float>(factor: ArrayView1<f64>, x: &ArrayViewD<T>, z: &mut ArrayViewMutD<T>) {
    let factor = T::from(factor[0]).unwrap_or_else(T::nan);
    azip!((z in z, &x in x) *z = factor * x);
}

fn scale_on_cuda<T: CudaElement + Float>(
    call: &CudaCall,
    factor: ArrayView1<f64>,
    x: &DeviceView<T>,
    z: &DeviceViewMut<T>,
) -> Result<()> {
    let index = Index::of(&[x, z]);
    let kernel = format!("scaled<{}, {}>", T::NAME, index.name());
    let factor = T::from(factor[0]).unwrap_or_else(T::nan);
    let launch = call.kernel(kernel).for_each(z.num_elements()).flat(x, index).value(factor).flat(z, index);
    // SAFETY: the kernel takes these three, with these types, and goes no further than `z.count()`.
    unsafe { launch.launch() }
}

/// `factor` times `x`. The factor stays in host memory.
#[op(shape = "(1),(...)->(...)", gradient = scaled_grad, cuda = "scaled.cu", capturable)]
pub(crate) fn scaled<T: Float>(#[host] factor: ArrayView1<f64>, x: ArrayViewD<T>, mut z: ArrayViewMutD<T>) {
    scale(factor, &x, &mut z);
}

fn scaled_cuda<T: CudaElement + Float>(
    call: &CudaCall,
    factor: ArrayView1<f64>,
    x: DeviceView<T>,
    z: DeviceViewMut<T>,
) -> Result<()> {
    scale_on_cuda(call, factor, &x, &z)
}

/// The gradient of `scaled` with respect to `x`.
#[op(shape = "(1),(...)->(...)", cuda = "scaled.cu")]
pub(crate) fn scaled_grad<T: Float>(
    #[host] factor: ArrayView1<f64>,
    z_grad: ArrayViewD<T>,
    mut x_grad: ArrayViewMutD<T>,
) {
    scale(factor, &z_grad, &mut x_grad);
}

fn scaled_grad_cuda<T: CudaElement + Float>(
    call: &CudaCall,
    factor: ArrayView1<f64>,
    z_grad: DeviceView<T>,
    x_grad: DeviceViewMut<T>,
) -> Result<()> {
    scale_on_cuda(call, factor, &z_grad, &x_grad)
}

/// The sum of squares; under autocast, in float32. A number of `offset` is added, whose dtype is its own.
#[op(shape = "(n),(1)->()", gradient = square_sum_grad, autocast = "float32")]
pub(crate) fn square_sum<T: Float>(x: ArrayView1<T>, offset: ArrayView1<f32>, mut sum: ArrayViewMut0<T>) {
    let offset = T::from(offset[0]).unwrap_or_else(T::nan);
    sum.fill(x.fold(offset, |sum, &x| sum + x * x));
}

/// The gradient of `square_sum` with respect to `x`.
#[op(shape = "(n),()->(n)")]
pub(crate) fn square_sum_grad<T: Float>(
    x: ArrayView1<T>,
    sum_grad: ArrayView0<T>,
    mut x_grad: ArrayViewMut1<T>,
) {
    let grad = sum_grad[()] + sum_grad[()];
    azip!((x_grad in &mut x_grad, &x in &x) *x_grad = grad * x);
}

/// `x y`; under autocast, in its dtype.
#[pointwise(autocast = "lower")]
pub(crate) fn product_lower<S: Scalar>(x: S, y: S) -> S {
    x * y
}

/// `x` to the power `y`. Its gradient reads it, and there is none of the third order.
#[pointwise(orders = 2)]
pub(crate) fn power<S: Scalar>(x: S, y: S) -> S {
    x.pow(y)
}

/// `x y`; under autocast, in the wider of the two dtypes.
#[pointwise(autocast = "widest")]
pub(crate) fn product_widest<S: Scalar>(x: S, y: S) -> S {
    x * y
}
