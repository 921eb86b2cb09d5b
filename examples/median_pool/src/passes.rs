//! The loops over images: medians, what their gradient goes to, and where it came from.

use std::ops::Range;

use opsmith::isa::{Isa, Kernel, dispatch};
use opsmith::memory;
use opsmith::ndarray::ArrayViewMut2;
use opsmith::prelude::*;

use crate::element::{Differentiable, Pooled};
use crate::layout::{LANES, Layout};
use crate::medians::{Medians, Places, Scratch};
use crate::windows::Pool;

/// The fewest rows of an image whose gradient is added up at a time; windows that reach beyond are done twice.
const BAND: usize = 32;

/// The images of a call.
struct Images<'a, T> {
    how: &'a Medians,
    layout: Layout<'a>,
    elements: &'a [T],
}

impl<'a, T: Pooled> Images<'a, T> {
    fn new(how: &'a Medians, pool: &'a Pool, elements: &'a [T]) -> Result<Images<'a, T>> {
        Ok(Images { how, layout: Layout::new(pool)?, elements })
    }

    fn image(&self, image: usize) -> &'a [T] {
        let len = self.layout.pool.image_len();
        &self.elements[image * len..][..len]
    }
}

/// The median of every window.
pub(crate) fn forward<T: Pooled>(
    cx: &Compute<'_>,
    how: &Medians,
    pool: &Pool,
    x: &[T],
    y: &mut [T],
) -> Result<()> {
    let images = Images::new(how, pool, x)?;
    let rows = table(y, pool.batch * pool.rows, pool.row_len())?;
    cx.try_parallel_over(rows, Axis(0), how.cost(pool), |range, mut rows| {
        rows.as_slice_mut().map_or(Ok(()), |to| dispatch(Forward { images: &images, rows: range, to }))
    })
}

struct Forward<'a, T> {
    images: &'a Images<'a, T>,
    rows: Range<usize>,
    to: &'a mut [T],
}

impl<T: Pooled> Kernel for Forward<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<I: Isa>(self) -> Result<()> {
        let Images { how, layout, .. } = self.images;
        let (pool, mut scratch) = (layout.pool, Scratch::new(how, layout.pool)?);
        for (row, to) in self.rows.zip(self.to.chunks_exact_mut(pool.row_len())) {
            let (image, rows) = (self.images.image(row / pool.rows), pool.rows_of(row % pool.rows));
            for block in &layout.blocks {
                scratch.medians(how, layout, image, &rows, block, &mut to[block.range()]);
            }
        }
        Ok(())
    }
}

/// Adds the gradient of each median to the element that it is.
pub(crate) fn backward<T: Differentiable>(
    cx: &Compute<'_>,
    how: &Medians,
    pool: &Pool,
    x: &[T],
    y_grad: &[T],
    x_grad: &mut [T],
) -> Result<()> {
    let images = Images::new(how, pool, x)?;
    let (height, len) = (pool.height, pool.width * pool.channels);
    let rows = table(x_grad, pool.batch * height, len)?;
    let band = BAND.max(8 * how.windows.ksize[0]);
    cx.try_parallel_over(rows, Axis(0), 2 * how.cost(pool), |range, mut rows| {
        let Some(mut to) = rows.as_slice_mut() else { return Ok(()) };
        let mut sums = Vec::new();
        let mut next = range.start;
        while next < range.end {
            let (image, first) = (next / height, next % height);
            let end = (first + band).min(height).min(first + range.end - next);
            let (now, rest) = std::mem::take(&mut to).split_at_mut((end - first) * len);
            sums.clear();
            // Of large windows it is much of an image: there may be no memory for it.
            memory::reserve(&mut sums, now.len(), "the sums of a gradient")?;
            sums.resize(now.len(), T::Sum::default());
            let y_grad = &y_grad[image * pool.rows * pool.row_len()..];
            dispatch(Scatter { images: &images, image, band: first..end, y_grad, sums: &mut sums })?;
            for (to, &sum) in now.iter_mut().zip(&sums) {
                *to = T::narrowed(sum);
            }
            (to, next) = (rest, next + end - first);
        }
        Ok(())
    })
}

struct Scatter<'a, T: Differentiable> {
    images: &'a Images<'a, T>,
    image: usize,
    /// The rows of the image whose gradient is added up.
    band: Range<usize>,
    /// The gradient of the image's medians.
    y_grad: &'a [T],
    sums: &'a mut [T::Sum],
}

impl<T: Differentiable> Kernel for Scatter<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<I: Isa>(self) -> Result<()> {
        let Images { how, layout, .. } = self.images;
        let (pool, mut places) = (layout.pool, Places::new());
        let mut scratch = Scratch::new(how, pool)?;
        let image = self.images.image(self.image);
        let first = self.band.start * pool.width * pool.channels;
        let mut medians = [T::zero(); LANES];
        for row in pool.rows_at(&self.band) {
            let rows = pool.rows_of(row);
            let y_grad = &self.y_grad[row * pool.row_len()..][..pool.row_len()];
            for block in &layout.blocks {
                let medians = &mut medians[..block.lanes];
                scratch.medians(how, layout, image, &rows, block, medians);
                places.find(layout, image, &rows, block, medians);
                let y_grad = &y_grad[block.range()];
                places.each(layout, &rows, block, |lane, y, element| {
                    if self.band.contains(&y) {
                        self.sums[element - first] += y_grad[lane].widened();
                    }
                });
            }
        }
        Ok(())
    }
}

/// For each window, what `values` has where its median is.
pub(crate) fn gather<T: Pooled>(
    cx: &Compute<'_>,
    how: &Medians,
    pool: &Pool,
    x: &[T],
    values: &[T],
    to: &mut [T],
) -> Result<()> {
    let images = Images::new(how, pool, x)?;
    let rows = table(to, pool.batch * pool.rows, pool.row_len())?;
    cx.try_parallel_over(rows, Axis(0), 2 * how.cost(pool), |range, mut rows| {
        rows.as_slice_mut().map_or(Ok(()), |to| dispatch(Gather { images: &images, rows: range, values, to }))
    })
}

struct Gather<'a, T> {
    images: &'a Images<'a, T>,
    rows: Range<usize>,
    values: &'a [T],
    to: &'a mut [T],
}

impl<T: Pooled> Kernel for Gather<'_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run<I: Isa>(self) -> Result<()> {
        let Images { how, layout, .. } = self.images;
        let (pool, mut places) = (layout.pool, Places::new());
        let mut scratch = Scratch::new(how, pool)?;
        let mut medians = [T::zero(); LANES];
        for (row, to) in self.rows.zip(self.to.chunks_exact_mut(pool.row_len())) {
            let (number, rows) = (row / pool.rows, pool.rows_of(row % pool.rows));
            let image = self.images.image(number);
            let values = &self.values[number * pool.image_len()..];
            for block in &layout.blocks {
                let medians = &mut medians[..block.lanes];
                scratch.medians(how, layout, image, &rows, block, medians);
                places.find(layout, image, &rows, block, medians);
                let to = &mut to[block.range()];
                places.each(layout, &rows, block, |lane, _, element| to[lane] = values[element]);
            }
        }
        Ok(())
    }
}

/// An output, which is row-major, as rows.
fn table<T: Element>(elements: &mut [T], rows: usize, len: usize) -> Result<ArrayViewMut2<'_, T>> {
    ArrayViewMut2::from_shape((rows, len), elements).map_err(|error| Error::internal(error.to_string()))
}
