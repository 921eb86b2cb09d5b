//! Averages and losses over run-length-encoded masks, with gradients.
//!
//! The definitions are here; `runs` checks and sorts the masks, `sweep` goes through an embedding, `rows` is the arithmetic, and
//! `averages` and `discriminative` put them together.

mod averages;
#[cfg(test)]
mod cuda_tests;
mod discriminative;
mod launches;
mod rows;
mod runs;
mod sweep;
#[cfg(test)]
mod tests;

use opsmith::cuda::{CudaCall, CudaElement, DeviceView, DeviceViewMut};
use opsmith::ndarray::{ArrayView, ArrayViewMut, Dimension};
use opsmith::prelude::*;

use discriminative::{Outputs, Weights};
use rows::Real;
use runs::{RunIndex, Runs};
use sweep::Scene;

/// The mean of an embedding over each mask, zero for a mask without places.
///
/// A mask is a run of places `start..end` along y for each x, empty where `end <= start`. Masks may overlap. There is no
/// dense mask in memory: the embedding is read once. A run that leaves its column is an error; on a card, which cannot tell of
/// one, it makes the mask's mean NaN.
#[op(
    shape = "(batch,x,y,d),(batch,max_masks,x,2)->(batch,max_masks,d)",
    dtypes(S = [i32, i64]),
    gradient = masked_averages_grad,
    cuda = "masks.cu",
    parallel = "batch, max_masks, d"
)]
fn masked_averages<T: Float + Real, S: RunIndex>(
    cx: &Compute,
    /// A vector of `d` numbers at each place.
    embedding: ArrayView4<T>,
    /// The start and the end of the run of each mask at each x, both from 0 to the size of y.
    rle_mask: ArrayView4<S>,
    /// The mean over each mask.
    mean: ArrayViewMut3<T>,
) -> Result<()> {
    let mean = dense_mut(mean)?;
    match scene(cx, embedding, rle_mask)? {
        Some(scene) => scene.means(cx, mean),
        None => fill(mean),
    }
}

fn masked_averages_cuda<T: CudaElement, S: CudaElement>(
    call: &CudaCall,
    embedding: DeviceView<T>,
    rle_mask: DeviceView<S>,
    mean: DeviceViewMut<T>,
) -> Result<()> {
    launches::means(call, embedding, rle_mask, mean)
}

/// The gradient of `MaskedAverages`: each place gets, of each mask that it is in, the mean's gradient over the number of
/// the mask's places.
#[op(
    shape = "(batch,x,y,d),(batch,max_masks,x,2),(batch,max_masks,d)->(batch,x,y,d)",
    dtypes(S = [i32, i64]),
    gradient = masked_averages_grad_grad,
    cuda = "masks.cu",
    parallel = "batch, +max_masks, d"
)]
fn masked_averages_grad<T: Float + Real, S: RunIndex>(
    cx: &Compute,
    /// The embedding of the forward call, of which only the shape counts.
    embedding: ArrayView4<T>,
    /// The masks of the forward call.
    rle_mask: ArrayView4<S>,
    /// The gradient with respect to the means.
    mean_grad: ArrayView3<T>,
    /// The gradient with respect to the embedding.
    embedding_grad: ArrayViewMut4<T>,
) -> Result<()> {
    let embedding_grad = dense_mut(embedding_grad)?;
    match scene(cx, embedding, rle_mask)? {
        Some(scene) => averages::means_backward(cx, scene, dense(mean_grad)?, embedding_grad),
        None => fill(embedding_grad),
    }
}

fn masked_averages_grad_cuda<T: CudaElement, S: CudaElement>(
    call: &CudaCall,
    _: DeviceView<T>,
    rle_mask: DeviceView<S>,
    mean_grad: DeviceView<T>,
    embedding_grad: DeviceViewMut<T>,
) -> Result<()> {
    launches::means_backward(call, rle_mask, mean_grad, embedding_grad)
}

/// The gradient of `MaskedAveragesGrad` with respect to `mean_grad`: means over the masks.
#[op(
    shape = "(batch,max_masks,x,2),(batch,x,y,d)->(batch,max_masks,d)",
    dtypes(S = [i32, i64]),
    cuda = "masks.cu",
    parallel = "batch, max_masks, d"
)]
fn masked_averages_grad_grad<T: Float + Real, S: RunIndex>(
    cx: &Compute,
    /// The masks of the forward call.
    rle_mask: ArrayView4<S>,
    /// The gradient with respect to `embedding_grad`.
    embedding_grad_grad: ArrayView4<T>,
    /// The gradient with respect to `mean_grad`.
    mean_grad_grad: ArrayViewMut3<T>,
) -> Result<()> {
    masked_averages(cx, embedding_grad_grad, rle_mask, mean_grad_grad)
}

fn masked_averages_grad_grad_cuda<T: CudaElement, S: CudaElement>(
    call: &CudaCall,
    rle_mask: DeviceView<S>,
    embedding_grad_grad: DeviceView<T>,
    mean_grad_grad: DeviceViewMut<T>,
) -> Result<()> {
    launches::means(call, embedding_grad_grad, rle_mask, mean_grad_grad)
}

/// Half the squared distance of each place from the mean of its mask, 0 outside all masks.
///
/// A place in several masks has the sum over them, so the order of the masks is of no account.
#[op(
    shape = "(batch,x,y,d),(batch,max_masks,x,2)->(batch,x,y)",
    dtypes(S = [i32, i64]),
    gradient = average_embedding_mask_grad,
    parallel = "batch"
)]
fn average_embedding_mask<T: Float + Real, S: RunIndex>(
    cx: &Compute,
    /// A vector of `d` numbers at each place.
    embedding: ArrayView4<T>,
    /// The start and the end of the run of each mask at each x, both from 0 to the size of y; empty where the end is not
    /// beyond the start.
    rle_mask: ArrayView4<S>,
    /// Half the squared distance at each place.
    swarm_loss: ArrayViewMut3<f32>,
) -> Result<()> {
    let swarm_loss = dense_mut(swarm_loss)?;
    match scene(cx, embedding, rle_mask)? {
        Some(scene) => averages::swarm_loss(cx, scene, swarm_loss),
        None => fill(swarm_loss),
    }
}

/// The gradient of `AverageEmbeddingMask`, through the means as well: with D the deviations of the places of a mask from their
/// mean, `swarm_loss_grad * D` less its mean over the mask, summed over the masks.
#[op(
    shape = "(batch,x,y,d),(batch,max_masks,x,2),(batch,x,y)->(batch,x,y,d)",
    dtypes(S = [i32, i64]),
    gradient = average_embedding_mask_grad_grad,
    parallel = "batch, +max_masks, d"
)]
fn average_embedding_mask_grad<T: Float + Real, S: RunIndex>(
    cx: &Compute,
    /// The embedding of the forward call.
    embedding: ArrayView4<T>,
    /// The masks of the forward call.
    rle_mask: ArrayView4<S>,
    /// The gradient with respect to the loss of each place.
    swarm_loss_grad: ArrayView3<f32>,
    /// The gradient with respect to the embedding.
    embedding_grad: ArrayViewMut4<T>,
) -> Result<()> {
    let embedding_grad = dense_mut(embedding_grad)?;
    match scene(cx, embedding, rle_mask)? {
        Some(scene) => averages::swarm_loss_backward(cx, scene, dense(swarm_loss_grad)?, embedding_grad),
        None => fill(embedding_grad),
    }
}

/// The gradient of `AverageEmbeddingMaskGrad`.
#[op(
    shape = "(batch,x,y,d),(batch,max_masks,x,2),(batch,x,y),(batch,x,y,d)->(batch,x,y,d),(batch,x,y)",
    dtypes(S = [i32, i64]),
    parallel = "batch, +max_masks, +d"
)]
fn average_embedding_mask_grad_grad<T: Float + Real, S: RunIndex>(
    cx: &Compute,
    /// The embedding of the forward call.
    embedding: ArrayView4<T>,
    /// The masks of the forward call.
    rle_mask: ArrayView4<S>,
    /// The gradient with respect to the loss of each place.
    swarm_loss_grad: ArrayView3<f32>,
    /// The gradient with respect to the gradient of the embedding.
    embedding_grad_grad: ArrayView4<T>,
    /// The gradient with respect to the embedding.
    embedding_grad: Option<ArrayViewMut4<T>>,
    /// The gradient with respect to `swarm_loss_grad`.
    swarm_loss_grad_grad: Option<ArrayViewMut3<f32>>,
) -> Result<()> {
    let scene = scene(cx, embedding, rle_mask)?;
    let direction = dense(embedding_grad_grad)?;
    if let Some(embedding_grad) = embedding_grad {
        let embedding_grad = dense_mut(embedding_grad)?;
        match scene {
            Some(scene) => {
                let along = Scene { embedding: direction, ..scene };
                averages::swarm_loss_backward(cx, along, dense(swarm_loss_grad)?, embedding_grad)?;
            }
            None => fill(embedding_grad)?,
        }
    }
    if let Some(grad_grad) = swarm_loss_grad_grad {
        let grad_grad = dense_mut(grad_grad)?;
        match scene {
            Some(scene) => averages::swarm_loss_by_weights(cx, scene, direction, grad_grad)?,
            None => fill(grad_grad)?,
        }
    }
    Ok(())
}

/// The discriminative loss of De Brabandere et al. (2017) for each element of a batch, of which C masks have places.
///
/// `alpha / C * Σ_c mean over the places of max(0, |mean_c - e| - delta_v)²`
/// `+ beta / (C (C - 1)) * Σ_{a ≠ b} max(0, 2 delta_d - |mean_a - mean_b|)²`
/// `+ gamma / C * Σ_c |mean_c|`.
///
/// With fewer than two masks there is no second term, with none the loss is 0. The derivative of a norm at zero is taken for
/// 0. A place in several masks counts in each.
#[op(
    shape = "(batch,x,y,d),(batch,max_masks,x,2)->(batch),(batch,max_masks,d),(batch,max_masks,d)",
    dtypes(S = [i32, i64]),
    gradient = discriminative_loss_grad,
    parallel = "batch"
)]
fn discriminative_loss<T: Float + Real, S: RunIndex>(
    cx: &Compute,
    /// A vector of `d` numbers at each place.
    embedding: ArrayView4<T>,
    /// The start and the end of the run of each mask at each x, both from 0 to the size of y; empty where the end is not
    /// beyond the start.
    rle_mask: ArrayView4<S>,
    /// How far from the mean of its mask a place may be.
    #[attr(min = 0)]
    delta_v: f64,
    /// Half of how far apart two means should be.
    #[attr(min = 0)]
    delta_d: f64,
    /// The weight of the distances of places from their mean.
    #[attr(default = 1)]
    alpha: f64,
    /// The weight of the distances between means.
    #[attr(default = 1)]
    beta: f64,
    /// The weight of the distances of means from zero.
    #[attr(default = 0.001)]
    gamma: f64,
    /// The loss of each element of the batch.
    loss: ArrayViewMut1<T>,
    /// The mean over each mask.
    #[saved]
    means: ArrayViewMut3<T>,
    /// The derivative of the loss by each mean, over the number of the mask's places.
    #[saved]
    slopes: ArrayViewMut3<T>,
) -> Result<()> {
    let weights = Weights { delta_v, delta_d, alpha, beta, gamma };
    let (loss, means, slopes) = (dense_mut(loss)?, dense_mut(means)?, dense_mut(slopes)?);
    match scene(cx, embedding, rle_mask)? {
        Some(scene) => discriminative::forward(cx, scene, &weights, Outputs { loss, means, slopes }),
        None => fill(loss).and(fill(means)).and(fill(slopes)),
    }
}

/// The gradient of `DiscriminativeLoss`.
#[op(
    shape = "(batch,x,y,d),(batch,max_masks,x,2),(batch,max_masks,d),(batch,max_masks,d),(batch)->(batch,x,y,d)",
    dtypes(S = [i32, i64]),
    parallel = "batch"
)]
fn discriminative_loss_grad<T: Float + Real, S: RunIndex>(
    cx: &Compute,
    /// The embedding of the forward call.
    embedding: ArrayView4<T>,
    /// The masks of the forward call.
    rle_mask: ArrayView4<S>,
    /// The means that the forward call saved.
    means: ArrayView3<T>,
    /// The slopes that the forward call saved.
    slopes: ArrayView3<T>,
    /// The gradient with respect to the loss of each element of the batch.
    loss_grad: ArrayView1<T>,
    /// As in the forward call.
    #[attr(min = 0)]
    delta_v: f64,
    /// As in the forward call.
    #[attr(default = 1)]
    alpha: f64,
    /// The gradient with respect to the embedding.
    embedding_grad: ArrayViewMut4<T>,
) -> Result<()> {
    let saved = [dense(means)?, dense(slopes)?, dense(loss_grad)?];
    let embedding_grad = dense_mut(embedding_grad)?;
    match scene(cx, embedding, rle_mask)? {
        Some(scene) => discriminative::backward(cx, scene, (delta_v, alpha), saved, embedding_grad),
        None => fill(embedding_grad),
    }
}

/// An embedding and its masks, which are checked; `None` where the masks have no runs, for lack of masks or of columns.
fn scene<'a, T: Real, S: RunIndex>(
    cx: &Compute<'a>,
    embedding: ArrayView4<'a, T>,
    rle_mask: ArrayView4<'_, S>,
) -> Result<Option<Scene<'a, T>>> {
    let (_, _, y, d) = embedding.dim();
    let runs = Runs::new(cx, rle_mask, y)?;
    let embedding = dense(embedding)?;
    Ok(runs.map(|runs| Scene { embedding, runs, y, d }))
}

/// The elements of an input, which are row-major since no op here asks for strides.
fn dense<T, D: Dimension>(view: ArrayView<'_, T, D>) -> Result<&[T]> {
    view.to_slice().ok_or_else(|| Error::internal("an input is not row-major"))
}

/// The elements of an output, which are always row-major.
fn dense_mut<T, D: Dimension>(view: ArrayViewMut<'_, T, D>) -> Result<&mut [T]> {
    view.into_slice().ok_or_else(|| Error::internal("an output is not row-major"))
}

/// The output where there are no masks.
fn fill<T: Float>(output: &mut [T]) -> Result<()> {
    output.fill(T::zero());
    Ok(())
}

opsmith::library! {
    name = "masks",
    ops = [
        masked_averages,
        masked_averages_grad,
        masked_averages_grad_grad,
        average_embedding_mask,
        average_embedding_mask_grad,
        average_embedding_mask_grad_grad,
        discriminative_loss,
        discriminative_loss_grad,
    ]
}
