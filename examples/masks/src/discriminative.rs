//! The discriminative loss: places are drawn to the mean of their mask, means pushed apart.

use std::ops::Range;

use opsmith::isa::{Isa, Kernel, dispatch};
use opsmith::ndarray::ArrayViewMut2;
use opsmith::prelude::*;

use crate::rows::{self, Real};
use crate::runs::Runs;
use crate::sweep::{Places, Rows, Scene, Visit};

/// The attributes of the loss.
#[derive(Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) delta_v: f64,
    pub(crate) delta_d: f64,
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    pub(crate) gamma: f64,
}

/// What [`forward`] computes: the loss of each element of the batch, and what its gradient needs.
pub(crate) struct Outputs<'a, T> {
    pub(crate) loss: &'a mut [T],
    pub(crate) means: &'a mut [T],
    /// The derivative of the loss by each mean, over the number of the mask's places.
    pub(crate) slopes: &'a mut [T],
}

/// The loss.
pub(crate) fn forward<T: Real>(
    cx: &Compute<'_>,
    scene: Scene<'_, T>,
    weights: &Weights,
    outputs: Outputs<'_, T>,
) -> Result<()> {
    let Scene { runs, d, .. } = scene;
    scene.means(cx, outputs.means)?;
    let pulls = if d > 0 {
        let (means, delta) = (scene.of_masks(&*outputs.means), T::of(weights.delta_v));
        &*scene.gather(cx, d + 1, || Pull { means, delta })?
    } else {
        cx.temp::<f64>(runs.counts.len())?
    };
    let means = cx.temp::<f64>(outputs.means.len())?;
    rows::accumulate(outputs.means, means);
    let masks = Masks { means, d, pulls, runs, weights };
    let terms = cx.temp::<f64>(pulls.len())?;
    let view = ArrayViewMut2::from_shape((runs.counts.len(), d + 1), &mut *terms);
    let view = view.map_err(|error| Error::internal(error.to_string()))?;
    let cost = runs.masks.saturating_mul(d + 8) / 8;
    cx.parallel_over(view, Axis(0), cost, |range, mut view| {
        let terms = view.as_slice_mut().expect("rows of a slice");
        dispatch(Terms { masks, range, terms });
    });
    for (loss, terms) in outputs.loss.iter_mut().zip(terms.chunks_exact(runs.masks * (d + 1))) {
        *loss = T::of(terms.chunks_exact(d + 1).map(|terms| terms[d]).sum());
    }
    if d > 0 {
        for (slopes, terms) in outputs.slopes.chunks_exact_mut(d).zip(terms.chunks_exact(d + 1)) {
            slopes.iter_mut().zip(terms).for_each(|(slope, &term)| *slope = T::of(term));
        }
    }
    Ok(())
}

/// The gradient of the loss.
pub(crate) fn backward<T: Real>(
    cx: &Compute<'_>,
    scene: Scene<'_, T>,
    (delta_v, alpha): (f64, f64),
    [means, slopes, loss_grad]: [&[T]; 3],
    embedding_grad: &mut [T],
) -> Result<()> {
    let Scene { runs, d, .. } = scene;
    if d == 0 {
        return Ok(());
    }
    let factors = cx.temp::<T>(runs.counts.len())?;
    let shifts = cx.temp::<T>(slopes.len())?;
    let of_elements = factors.chunks_exact_mut(runs.masks).zip(shifts.chunks_exact_mut(runs.masks * d));
    for (element, (factors, shifts)) in of_elements.enumerate() {
        let grad: f64 = loss_grad[element].into();
        let present = runs.masks_with_places(element) as f64;
        for (factor, &count) in factors.iter_mut().zip(runs.counts_of(element)) {
            *factor = T::of(grad * 2.0 * alpha / (present * count as f64));
        }
        for (shift, &slope) in shifts.iter_mut().zip(&slopes[element * runs.masks * d..]) {
            *shift = slope * loss_grad[element];
        }
    }
    let (factors, delta) = (&*factors, T::of(delta_v));
    let (means, shifts) = (scene.of_masks(means), scene.of_masks(&*shifts));
    scene.scatter(cx, embedding_grad, || Put { means, shifts, factors, delta })
}

/// Sums the direction in which the places beyond `delta` pull the mean, and behind it the squares of what they have beyond.
struct Pull<'a, T> {
    means: Rows<'a, T>,
    delta: T,
}

impl<T: Real> Visit<T> for Pull<'_, T> {
    const ALONG: bool = false;

    #[inline(always)]
    fn visit<I: Isa, const D: usize>(&mut self, places: Places<'_, T>, sums: &mut [f64]) {
        let mean = self.means.of(places.mask);
        let mut squares = rows::squared_distances::<I, T, D>(places.rows, mean);
        let total = rows::hinges(&mut squares, self.delta);
        rows::add_weighted::<I, T, D>(places.rows, mean, &squares, sums);
        sums[mean.len()] += total.into();
    }
}

/// Adds the gradient at each place.
struct Put<'a, T> {
    means: Rows<'a, T>,
    shifts: Rows<'a, T>,
    factors: &'a [T],
    delta: T,
}

impl<T: Real> Visit<T, T> for Put<'_, T> {
    #[inline(always)]
    fn visit<I: Isa, const D: usize>(&mut self, places: Places<'_, T>, output: &mut [T]) {
        let (mean, shift) = (self.means.of(places.mask), self.shifts.of(places.mask));
        let mut weights = rows::squared_distances::<I, T, D>(places.rows, mean);
        rows::hinges(&mut weights, self.delta);
        let factor = self.factors[places.mask];
        weights.iter_mut().for_each(|weight| *weight *= factor);
        rows::put_weighted::<I, T, D>(places.rows, mean, &weights, shift, output);
    }
}

/// What is known of the masks after the passes.
#[derive(Clone, Copy)]
struct Masks<'a> {
    means: &'a [f64],
    d: usize,
    /// As [`Pull`] sums them.
    pulls: &'a [f64],
    runs: Runs<'a>,
    weights: &'a Weights,
}

/// The terms of some masks, numbered through the whole batch: for each its slope, and behind it what it adds to the loss.
struct Terms<'a, 'o> {
    masks: Masks<'a>,
    range: Range<usize>,
    terms: &'o mut [f64],
}

impl Kernel for Terms<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (mask, terms) in self.range.zip(self.terms.chunks_exact_mut(self.masks.d + 1)) {
            if self.masks.runs.counts[mask] > 0 {
                self.masks.terms_of::<I>(mask, terms);
            }
        }
    }
}

impl Masks<'_> {
    #[inline(always)]
    fn mean(&self, mask: usize) -> &[f64] {
        &self.means[mask * self.d..][..self.d]
    }

    #[inline(always)]
    fn terms_of<I: Isa>(&self, mask: usize, terms: &mut [f64]) {
        let Weights { alpha, gamma, .. } = *self.weights;
        let (slope, loss) = terms.split_at_mut(self.d);
        let distance = self.push::<I>(mask, slope);
        let present = self.runs.masks_with_places(mask / self.runs.masks) as f64;
        let count = self.runs.counts[mask] as f64;
        let (pull, hinges) = self.pulls[mask * (self.d + 1)..][..=self.d].split_at(self.d);
        let mean = self.mean(mask);
        let norm = mean.iter().map(|number| number * number).sum::<f64>().sqrt();
        for ((slope, &pull), &mean) in slope.iter_mut().zip(pull).zip(mean) {
            let by_variance = -2.0 * alpha / (present * count) * pull;
            *slope = (*slope + by_variance + gamma / present * rows::over(mean, norm)) / count;
        }
        loss[0] = alpha / (present * count) * hinges[0] + distance + gamma / present * norm;
    }

    /// The term of the distances of a mask from all others; adds its derivative by the mean to `slope`.
    #[inline(always)]
    fn push<I: Isa>(&self, mask: usize, slope: &mut [f64]) -> f64 {
        let Weights { delta_d, beta, .. } = *self.weights;
        let element = mask / self.runs.masks;
        let present = self.runs.masks_with_places(element) as f64;
        if present < 2.0 {
            return 0.0;
        }
        let factor = beta / (present * (present - 1.0));
        let (own, mut total) = (self.mean(mask), 0.0);
        for (other, &count) in (element * self.runs.masks..).zip(self.runs.counts_of(element)) {
            if count == 0 || other == mask {
                continue;
            }
            let mean = self.mean(other);
            let distance = rows::squared_distance::<I, f64>(own, mean).sqrt();
            let hinge = rows::beyond(2.0 * delta_d, distance);
            total += hinge * hinge;
            let push = -4.0 * factor * rows::over(hinge, distance);
            if push != 0.0 {
                for ((slope, &own), &other) in slope.iter_mut().zip(own).zip(mean) {
                    *slope += push * (own - other);
                }
            }
        }
        factor * total
    }
}
