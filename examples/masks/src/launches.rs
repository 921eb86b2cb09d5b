//! How the kernels of `masks.cu` are launched.

use opsmith::cuda::{BLOCK, CudaCall, CudaElement, DeviceView, DeviceViewMut, Index};
use opsmith::prelude::*;

/// Into how many blocks sums are cut, roughly: enough for a large card.
const BLOCKS: usize = 1024;

/// How many numbers of a column a block of the gradient has, at least.
const NUMBERS: usize = 16 * BLOCK;

/// The mean over each mask: sums over parts of the columns, and their sums.
pub(crate) fn means<T: CudaElement, S: CudaElement>(
    call: &CudaCall,
    embedding: DeviceView<T>,
    masks: DeviceView<S>,
    mean: DeviceViewMut<T>,
) -> Result<()> {
    let ([_, columns, _, _], [batch, count, d]) = (embedding.dims()?, mean.dims()?);
    let (rows, chunks) = (batch * count, d.div_ceil(BLOCK));
    if rows == 0 || d == 0 {
        return Ok(());
    }
    let parts = (BLOCKS / rows.saturating_mul(chunks)).clamp(1, columns.max(1));
    let (sums, counts) = (call.temp::<f64>(rows * parts * d)?, call.temp::<f64>(rows * parts)?);
    let index = Index::of(&[&embedding, &masks, &mean, &sums]);
    let kernel = format!("sums<{}, {}, {}>", T::NAME, S::NAME, index.name());
    let launch = call.kernel(kernel).grid([rows * parts * chunks, 1, 1]);
    let launch = launch.tensor::<4>(&embedding, index).tensor::<4>(&masks, index).index(parts, index);
    // SAFETY: these are the kernel's parameters; it stays within the tensors, whose dims have been checked, and has a row of sums
    // for each mask and part.
    unsafe { launch.pointer(&sums).pointer(&counts).launch()? };
    let launch = call.kernel(format!("means<{}, {}>", T::NAME, index.name())).for_each(rows * d);
    let launch = launch.pointer(&sums).pointer(&counts).index(parts, index).index(rows, index);
    // SAFETY: as above; the means are dense.
    unsafe { launch.index(d, index).pointer(&mean).launch() }
}

/// The gradient of [`means`]: what each mask has for its places, then for each place the sum over its masks.
pub(crate) fn means_backward<T: CudaElement, S: CudaElement>(
    call: &CudaCall,
    masks: DeviceView<S>,
    mean_grad: DeviceView<T>,
    embedding_grad: DeviceViewMut<T>,
) -> Result<()> {
    let ([batch, columns, y, d], [_, count, _]) = (embedding_grad.dims()?, mean_grad.dims()?);
    if embedding_grad.num_elements() == 0 {
        return Ok(());
    }
    let shares = call.temp::<T>(batch * count * d)?;
    let index = Index::of(&[&masks, &mean_grad, &embedding_grad]);
    let types = format!("<{}, {}, {}>", T::NAME, S::NAME, index.name());
    let launch = call.kernel(format!("shares{types}")).grid([batch * count, 1, 1]);
    let launch = launch.tensor::<4>(&masks, index).tensor::<3>(&mean_grad, index).index(y, index);
    // SAFETY: these are the kernel's parameters; it stays within the tensors, whose dims have been checked.
    unsafe { launch.pointer(&shares).launch()? };
    let parts = y.saturating_mul(d).div_ceil(NUMBERS).clamp(1, y);
    let launch = call.kernel(format!("spread{types}")).grid([batch * columns * parts, 1, 1]);
    let launch = launch.tensor::<4>(&masks, index).pointer(&shares).index(parts, index);
    // SAFETY: as above.
    unsafe { launch.tensor::<4>(&embedding_grad, index).launch() }
}
