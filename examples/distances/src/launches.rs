//! How the kernels of `distances.cu` are launched.

use opsmith::cuda::{CudaCall, CudaElement, DeviceTensor, DeviceView, DeviceViewMut, Index, KernelCall};
use opsmith::prelude::*;

/// A block has so many threads along either side, as in `distances.cu`.
const SIDE: usize = 16;

/// Outputs of a thread along either side: large tiles read less, and small ones give a card enough blocks to be busy.
fn edge<T: CudaElement>(rows: usize, columns: usize) -> usize {
    let blocks = rows.div_ceil(8 * SIDE) * columns.div_ceil(8 * SIDE);
    if size_of::<T>() == 4 && blocks >= 256 { 8 } else { 4 }
}

/// The launch of a kernel whose blocks are tiles of an output with so many rows and columns.
fn tiles<'a, T: CudaElement>(
    call: &'a CudaCall,
    kernel: &str,
    more: &str,
    index: Index,
    [rows, columns]: [usize; 2],
) -> KernelCall<'a> {
    let edge = edge::<T>(rows, columns);
    let kernel = format!("{kernel}<{}, {}, {edge}{more}>", T::NAME, index.name());
    let blocks = |size: usize| size.div_ceil(SIDE * edge);
    // All along x: a card has 65,535 blocks at most along y.
    let blocks = blocks(rows).saturating_mul(blocks(columns));
    call.kernel(kernel).grid([blocks, 1, 1]).block([SIDE as u32, SIDE as u32, 1])
}

pub(crate) fn forward<T: CudaElement>(
    call: &CudaCall,
    x: DeviceView<T>,
    y: DeviceView<T>,
    z: DeviceViewMut<T>,
) -> Result<()> {
    let index = Index::of(&[&x, &y, &z]);
    let launch = tiles::<T>(call, "distances", "", index, z.dims()?);
    let launch = launch.tensor::<2>(&x, index).tensor::<2>(&y, index).tensor::<2>(&z, index);
    // SAFETY: these are the kernel's parameters, and it stays within the three matrices, whose dims have been checked.
    unsafe { launch.launch() }
}

/// The gradient with respect to the points `a`, which are the rows of `z_grad`, or its columns if `b` are its rows.
pub(crate) fn backward<T: CudaElement>(
    call: &CudaCall,
    (a, b): (&DeviceView<T>, &DeviceView<T>),
    z_grad: &DeviceView<T>,
    b_are_rows: bool,
    a_grad: &DeviceViewMut<T>,
) -> Result<()> {
    let index = Index::of(&[a, b, z_grad, a_grad]);
    let launch = tiles::<T>(call, "gradient", &format!(", {b_are_rows}"), index, a_grad.dims()?);
    let launch = launch.tensor::<2>(a, index).tensor::<2>(b, index);
    let launch = launch.tensor::<2>(z_grad, index).tensor::<2>(a_grad, index);
    // SAFETY: as above, for four matrices.
    unsafe { launch.launch() }
}

pub(crate) fn second_order<T: CudaElement>(
    call: &CudaCall,
    (x, y): (DeviceView<T>, DeviceView<T>),
    x_grad_grad: Option<DeviceView<T>>,
    y_grad_grad: Option<DeviceView<T>>,
    z_grad_grad: DeviceViewMut<T>,
) -> Result<()> {
    let own = [x_grad_grad.as_ref(), y_grad_grad.as_ref()];
    let present = own.into_iter().flatten().map(|tensor| tensor as &dyn DeviceTensor);
    let all: Vec<&dyn DeviceTensor> =
        [&x as &dyn DeviceTensor, &y, &z_grad_grad].into_iter().chain(present).collect();
    let index = Index::of(&all);
    let mut launch = tiles::<T>(call, "second_order", "", index, z_grad_grad.dims()?);
    launch = launch.tensor::<2>(&x, index).tensor::<2>(&y, index);
    for (grad, like) in own.into_iter().zip([&x, &y]) {
        launch = launch.tensor::<2>(grad.unwrap_or(like), index).value(grad.is_some());
    }
    // SAFETY: as above, for five matrices, of which those that are absent are not read.
    unsafe { launch.tensor::<2>(&z_grad_grad, index).launch() }
}
