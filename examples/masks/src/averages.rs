//! Means over masks, and half the squared distances from them.

use opsmith::isa::Isa;
use opsmith::prelude::*;

use crate::rows::{self, BLOCK, Real};
use crate::sweep::{Places, Rows, Scene, Visit};

/// The gradient of the means: what arrives for each is shared by the places of the mask.
pub(crate) fn means_backward<T: Real>(
    cx: &Compute<'_>,
    scene: Scene<'_, T>,
    mean_grad: &[T],
    embedding_grad: &mut [T],
) -> Result<()> {
    if scene.d == 0 {
        return Ok(());
    }
    let shares = cx.temp::<T>(mean_grad.len())?;
    let of_masks = shares.chunks_exact_mut(scene.d).zip(mean_grad.chunks_exact(scene.d));
    for ((shares, grads), &count) in of_masks.zip(scene.runs.counts) {
        for (share, &grad) in shares.iter_mut().zip(grads) {
            *share = T::of(grad.into() / count as f64);
        }
    }
    let shares = scene.of_masks(&*shares);
    scene.scatter(cx, embedding_grad, || AddRow { shares })
}

/// Half the squared distance of each place from the mean of its mask; of several masks the sum.
pub(crate) fn swarm_loss<T: Real>(
    cx: &Compute<'_>,
    scene: Scene<'_, T>,
    swarm_loss: &mut [f32],
) -> Result<()> {
    if scene.d == 0 {
        swarm_loss.fill(0.0);
        return Ok(());
    }
    let means = scene.of_masks(&*scene.temporary_means(cx)?);
    scene.scatter(cx, swarm_loss, || AddHalfSquare { means })
}

/// The gradient of [`swarm_loss`]. With weights g and deviations D of a mask's places from their mean it is `g D - mean(g D)`,
/// so the derivative along another embedding is the same of that.
pub(crate) fn swarm_loss_backward<T: Real>(
    cx: &Compute<'_>,
    scene: Scene<'_, T>,
    weights: &[f32],
    embedding_grad: &mut [T],
) -> Result<()> {
    if scene.d == 0 {
        return Ok(());
    }
    let means = scene.of_masks(&*scene.temporary_means(cx)?);
    let sums = scene.gather(cx, scene.d, || SumWeighted { means, weights })?;
    let shifts = cx.temp::<T>(sums.len())?;
    for ((shifts, sums), &count) in
        shifts.chunks_exact_mut(scene.d).zip(sums.chunks_exact(scene.d)).zip(scene.runs.counts)
    {
        for (shift, &sum) in shifts.iter_mut().zip(sums) {
            *shift = T::of(-sum / count as f64);
        }
    }
    let shifts = scene.of_masks(&*shifts);
    scene.scatter(cx, embedding_grad, || PutWeighted { means, shifts, weights })
}

/// The derivative of [`swarm_loss_backward`], along `direction`, by the weights: products of the deviations of both
/// embeddings from their means.
pub(crate) fn swarm_loss_by_weights<T: Real>(
    cx: &Compute<'_>,
    scene: Scene<'_, T>,
    direction: &[T],
    weights_grad: &mut [f32],
) -> Result<()> {
    if scene.d == 0 {
        weights_grad.fill(0.0);
        return Ok(());
    }
    let means = scene.of_masks(&*scene.temporary_means(cx)?);
    let along = Scene { embedding: direction, ..scene };
    let direction_means = scene.of_masks(&*along.temporary_means(cx)?);
    scene.scatter(cx, weights_grad, || AddProduct { means, direction, direction_means })
}

/// Adds the mask's row.
struct AddRow<'a, T> {
    shares: Rows<'a, T>,
}

impl<T: Real> Visit<T, T> for AddRow<'_, T> {
    #[inline(always)]
    fn visit<I: Isa, const D: usize>(&mut self, places: Places<'_, T>, output: &mut [T]) {
        rows::add_row::<T, D>(self.shares.of(places.mask), output);
    }
}

/// Adds half the squared distance from the mean.
struct AddHalfSquare<'a, T> {
    means: Rows<'a, T>,
}

impl<T: Real> Visit<T, f32> for AddHalfSquare<'_, T> {
    #[inline(always)]
    fn visit<I: Isa, const D: usize>(&mut self, places: Places<'_, T>, output: &mut [f32]) {
        let squares = rows::squared_distances::<I, T, D>(places.rows, self.means.of(places.mask));
        for (output, &square) in output.iter_mut().zip(&squares) {
            *output += (0.5 * square.into()) as f32;
        }
    }
}

/// The weights of up to [`BLOCK`] places.
#[inline(always)]
fn block_of<T: Real>(weights: &[f32], places: &Places<'_, T>) -> [T; BLOCK] {
    let mut block = [T::zero(); BLOCK];
    for (own, &weight) in block.iter_mut().zip(&weights[places.places.clone()]) {
        *own = T::of(weight.into());
    }
    block
}

/// Sums weighted deviations from the mean.
struct SumWeighted<'a, T> {
    means: Rows<'a, T>,
    weights: &'a [f32],
}

impl<T: Real> Visit<T> for SumWeighted<'_, T> {
    const ALONG: bool = false;

    #[inline(always)]
    fn visit<I: Isa, const D: usize>(&mut self, places: Places<'_, T>, sums: &mut [f64]) {
        let weights = block_of(self.weights, &places);
        rows::add_weighted::<I, T, D>(places.rows, self.means.of(places.mask), &weights, sums);
    }
}

/// Adds weighted deviations from the mean, and the mask's shift.
struct PutWeighted<'a, T> {
    means: Rows<'a, T>,
    shifts: Rows<'a, T>,
    weights: &'a [f32],
}

impl<T: Real> Visit<T, T> for PutWeighted<'_, T> {
    #[inline(always)]
    fn visit<I: Isa, const D: usize>(&mut self, places: Places<'_, T>, output: &mut [T]) {
        let weights = block_of(self.weights, &places);
        let (mean, shift) = (self.means.of(places.mask), self.shifts.of(places.mask));
        rows::put_weighted::<I, T, D>(places.rows, mean, &weights, shift, output);
    }
}

/// Adds the product of the deviations of two embeddings.
struct AddProduct<'a, T> {
    means: Rows<'a, T>,
    direction: &'a [T],
    direction_means: Rows<'a, T>,
}

impl<T: Real> Visit<T, f32> for AddProduct<'_, T> {
    #[inline(always)]
    fn visit<I: Isa, const D: usize>(&mut self, places: Places<'_, T>, output: &mut [f32]) {
        let (mean, other_mean) = (self.means.of(places.mask), self.direction_means.of(places.mask));
        let d = mean.len();
        let others = &self.direction[places.places.start * d..places.places.end * d];
        let pairs = places.rows.chunks_exact(d).zip(others.chunks_exact(d));
        for (output, (row, other)) in output.iter_mut().zip(pairs) {
            *output += rows::dot::<I, T>(row, mean, other, other_mean).into() as f32;
        }
    }
}
