//! Convolutions as products of matrices. What windows have in common is copied tile by tile: a column for each window, a row for
//! each element of it.

use std::ops::Range;
use std::sync::Mutex;

use opsmith::memory;
use opsmith::ndarray::{ArrayView, ArrayViewMut, IntoDimension, ShapeError};
use opsmith::prelude::*;

use super::Plan;
use crate::windows::{self, is_plain, runs, tap};

/// How many bytes of columns there are at once: what an inner cache has room for.
const TILE: usize = 1 << 18;
/// The least number of columns that a product is worth.
const COLUMNS: usize = 64;
/// From how many rows of columns on they are shared among threads.
const ROWS: usize = 128;

/// Numbers as an array of this shape.
fn view<T, const N: usize>(
    shape: [usize; N],
    numbers: &[T],
) -> Result<ArrayView<'_, T, <[usize; N] as IntoDimension>::Dim>>
where
    [usize; N]: IntoDimension,
{
    ArrayView::from_shape(shape, numbers).map_err(internal)
}

fn view_mut<T, const N: usize>(
    shape: [usize; N],
    numbers: &mut [T],
) -> Result<ArrayViewMut<'_, T, <[usize; N] as IntoDimension>::Dim>>
where
    [usize; N]: IntoDimension,
{
    ArrayViewMut::from_shape(shape, numbers).map_err(internal)
}

fn internal(error: ShapeError) -> Error {
    Error::internal(error.to_string())
}

impl Plan {
    /// The rows of columns: the elements of a window in all channels of a group.
    fn rows(&self) -> usize {
        self.inside * windows::window(&self.along)
    }

    /// The shapes of images as groups, of the filter, and of what is made of both.
    fn x(&self) -> [usize; 3] {
        [self.images * self.groups, self.inside, windows::plane(&self.along)]
    }

    fn filter(&self) -> [usize; 3] {
        [self.groups, self.outside, self.rows()]
    }

    fn y(&self) -> [usize; 3] {
        [self.images * self.groups, self.outside, windows::count(&self.along)]
    }

    /// How many columns a tile of so many rows has.
    fn tile<T>(&self, rows: usize) -> usize {
        let fits = TILE / size_of::<T>() / rows.max(1);
        fits.next_multiple_of(16).max(COLUMNS).min(windows::count(&self.along).max(1))
    }

    /// Calls `act` with the tiles of so many columns.
    fn tiles(&self, columns: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let count = windows::count(&self.along);
        (0..count).step_by(columns).map(move |first| first..count.min(first + columns))
    }

    /// Some channels in groups of at least [`ROWS`] rows.
    fn channels(&self) -> usize {
        ROWS.div_ceil(windows::window(&self.along).max(1)).clamp(1, self.inside.max(1))
    }

    /// Copies columns of an image: those of some windows, with the rows of all channels of `x`.
    fn copy<T: Float>(&self, x: ArrayView2<'_, T>, tile: Range<usize>, columns: &mut [T]) {
        let (window, stride) = (windows::window(&self.along), self.along[2].stride);
        for (row, to) in columns.chunks_exact_mut(tile.len()).enumerate() {
            let channel = x.row(row / window);
            let Some(channel) = channel.as_slice() else { continue };
            to.fill(T::zero());
            runs(&self.along, tap(&self.along, row % window), tile.clone(), |first, from, count| {
                let to = &mut to[first..first + count];
                if stride == 1 {
                    to.copy_from_slice(&channel[from..from + count]);
                } else {
                    to.iter_mut()
                        .zip(channel[from..].iter().step_by(stride))
                        .for_each(|(to, &from)| *to = from);
                }
            });
        }
    }

    /// Adds columns to where they have been copied from.
    fn add<T: Float>(&self, columns: &[T], tile: Range<usize>, mut x: ArrayViewMut2<'_, T>) {
        let (window, stride) = (windows::window(&self.along), self.along[2].stride);
        for (row, from) in columns.chunks_exact(tile.len()).enumerate() {
            let mut channel = x.row_mut(row / window);
            let Some(channel) = channel.as_slice_mut() else { continue };
            runs(&self.along, tap(&self.along, row % window), tile.clone(), |first, to, count| {
                let from = &from[first..first + count];
                if stride == 1 {
                    channel[to..to + count].iter_mut().zip(from).for_each(|(to, &from)| *to += from);
                } else {
                    channel[to..].iter_mut().step_by(stride).zip(from).for_each(|(to, &from)| *to += from);
                }
            });
        }
    }

    /// What a product of columns takes, in nanoseconds.
    fn cost(&self, outside: usize, rows: usize, columns: usize) -> usize {
        (outside + 8).saturating_mul(rows).saturating_mul(columns) / 32
    }
}

/// Images and filters whose convolutions are added up.
pub(super) struct Terms<'a, T>(Vec<(ArrayView3<'a, T>, ArrayView3<'a, T>)>);

impl<'a, T> Terms<'a, T> {
    pub(super) fn of(plan: &Plan, terms: [Option<(&'a [T], &'a [T])>; 2]) -> Result<Terms<'a, T>> {
        let terms = terms.into_iter().flatten();
        terms
            .map(|(x, filter)| Ok((view(plan.x(), x)?, view(plan.filter(), filter)?)))
            .collect::<Result<_>>()
            .map(Terms)
    }
}

/// `c = a · b`, or `c + a · b`.
fn multiply<T: Float>(
    cx: Option<&Compute<'_>>,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    added: bool,
    c: ArrayViewMut2<'_, T>,
) -> Result<()> {
    let of_c = if added { T::one() } else { T::zero() };
    match cx {
        Some(cx) => cx.gemm(T::one(), a, b, of_c, c),
        None => opsmith::gemm(T::one(), a, b, of_c, c),
    }
}

/// Parts of an output, each made by one thread: calls `make` with where the part is and the part. It is given the threads of the call
/// where there is only one part.
fn each<K: Sync, T: Element>(
    cx: &Compute<'_>,
    parts: Vec<(K, ArrayViewMut2<'_, T>)>,
    cost: usize,
    make: impl Fn(&K, ArrayViewMut2<'_, T>, &mut Vec<T>, Option<&Compute<'_>>) -> Result<()> + Sync,
) -> Result<()> {
    let parts: Vec<(K, Mutex<ArrayViewMut2<'_, T>>)> =
        parts.into_iter().map(|(key, part)| (key, Mutex::new(part))).collect();
    let run = |range: Range<usize>, threads: Option<&Compute<'_>>| {
        let mut columns = Vec::new();
        parts[range].iter().try_for_each(|(key, part)| {
            let mut part = part.lock().map_err(|_| Error::internal("a part is made once"))?;
            make(key, part.view_mut(), &mut columns, threads)
        })
    };
    match parts.len() {
        1 => run(0..1, Some(cx)),
        count => cx.try_parallel_for(count, cost, |range| run(range, None)),
    }
}

/// Memory for columns.
fn room<T: Float>(columns: &mut Vec<T>, length: usize) -> Result<&mut [T]> {
    if columns.len() < length {
        *columns = memory::filled(T::zero(), length, "the windows of images")?;
    }
    Ok(&mut columns[..length])
}

/// Makes `y` of the convolutions of the terms.
pub(super) fn output_terms<T: Float>(
    cx: &Compute<'_>,
    plan: &Plan,
    terms: &Terms<'_, T>,
    y: &mut [T],
) -> Result<()> {
    let rows = plan.rows();
    if terms.0.is_empty() || rows == 0 || y.is_empty() {
        y.fill(T::zero());
        return Ok(());
    }
    let tile = plan.tile::<T>(rows);
    let mut y = view_mut(plan.y(), y)?;
    let parts = y.outer_iter_mut().enumerate().flat_map(|(group, y)| {
        let tiles = plan.tiles(tile).zip(split(y, Axis(1), tile));
        tiles.map(move |(tile, part)| ((group, tile), part))
    });
    let parts = memory::collected(parts, "the parts of a convolution")?;
    each(cx, parts, plan.cost(plan.outside, rows, tile), |(group, tile), mut part, columns, threads| {
        for (number, (x, filter)) in terms.0.iter().enumerate() {
            let (x, filter) =
                (x.index_axis(Axis(0), *group), filter.index_axis(Axis(0), group % plan.groups));
            if is_plain(&plan.along) {
                let x = x.slice(s![.., tile.clone()]);
                multiply(threads, filter, x, number > 0, part.view_mut())?;
                continue;
            }
            let columns = room(columns, rows * tile.len())?;
            plan.copy(x, tile.clone(), columns);
            multiply(threads, filter, view([rows, tile.len()], columns)?, number > 0, part.view_mut())?;
        }
        Ok(())
    })
}

/// Parts of so many along an axis.
fn split<T>(
    mut whole: ArrayViewMut2<'_, T>,
    axis: Axis,
    length: usize,
) -> impl Iterator<Item = ArrayViewMut2<'_, T>> {
    std::iter::from_fn(move || {
        if whole.is_empty() {
            return None;
        }
        let at = length.min(whole.len_of(axis));
        let empty = ArrayViewMut2::from_shape((0, 0), &mut []).ok()?;
        let (part, rest) = std::mem::replace(&mut whole, empty).split_at(axis, at);
        whole = rest;
        Some(part)
    })
}

/// Makes the gradient of images from that of `y` and the filter.
pub(super) fn image_terms<T: Float>(
    cx: &Compute<'_>,
    plan: &Plan,
    term: Option<(&[T], &[T])>,
    x: &mut [T],
) -> Result<()> {
    x.fill(T::zero());
    let Some((y, filter)) = term.filter(|(y, filter)| !y.is_empty() && !filter.is_empty()) else {
        return Ok(());
    };
    let (y, filter) = (view(plan.y(), y)?, view(plan.filter(), filter)?);
    let (window, channels) = (windows::window(&plan.along), plan.channels());
    let mut x = view_mut(plan.x(), x)?;
    let parts = x.outer_iter_mut().enumerate().flat_map(|(group, x)| {
        let parts = split(x, Axis(0), channels).enumerate();
        parts.map(move |(at, part)| ((group, at * channels * window), part))
    });
    let parts = memory::collected(parts, "the parts of a gradient")?;
    let cost = plan.cost(plan.outside, channels * window, windows::count(&plan.along));
    each(cx, parts, cost, |&(group, first), mut part, columns, threads| {
        let rows = part.nrows() * window;
        let (y, filter) = (y.index_axis(Axis(0), group), filter.index_axis(Axis(0), group % plan.groups));
        let filter = filter.slice_move(s![.., first..first + rows]).reversed_axes();
        if is_plain(&plan.along) {
            return multiply(threads, filter, y, false, part);
        }
        for tile in plan.tiles(plan.tile::<T>(rows)) {
            let columns = room(columns, rows * tile.len())?;
            let product = view_mut([rows, tile.len()], columns)?;
            multiply(threads, filter, y.slice(s![.., tile.clone()]), false, product)?;
            plan.add(columns, tile, part.view_mut());
        }
        Ok(())
    })
}

/// Makes the gradient of the filter from images and that of `y`.
pub(super) fn filter_terms<T: Float>(
    cx: &Compute<'_>,
    plan: &Plan,
    term: Option<(&[T], &[T])>,
    filter: &mut [T],
) -> Result<()> {
    filter.fill(T::zero());
    let Some((x, y)) = term.filter(|(x, y)| !x.is_empty() && !y.is_empty()) else { return Ok(()) };
    if filter.is_empty() {
        return Ok(());
    }
    let (x, y) = (view(plan.x(), x)?, view(plan.y(), y)?);
    let (window, channels) = (windows::window(&plan.along), plan.channels());
    let mut filter = view_mut(plan.filter(), filter)?;
    let parts = filter.outer_iter_mut().enumerate().flat_map(|(group, filter)| {
        let parts = split(filter, Axis(1), channels * window).enumerate();
        parts.map(move |(at, part)| ((group, at * channels), part))
    });
    let parts = memory::collected(parts, "the parts of a gradient")?;
    let cost =
        plan.cost(plan.outside, channels * window, windows::count(&plan.along)).saturating_mul(plan.images);
    each(cx, parts, cost, |&(group, first), mut part, columns, threads| {
        let rows = part.ncols();
        for image in 0..plan.images {
            let at = image * plan.groups + group;
            let x = x.index_axis(Axis(0), at).slice_move(s![first..first + rows / window, ..]);
            let y = y.index_axis(Axis(0), at);
            if is_plain(&plan.along) {
                multiply(threads, y, x.reversed_axes(), image > 0, part.view_mut())?;
                continue;
            }
            for tile in plan.tiles(plan.tile::<T>(rows)) {
                let columns = room(columns, rows * tile.len())?;
                plan.copy(x, tile.clone(), columns);
                let (y, columns) = (y.slice(s![.., tile.clone()]), view([rows, tile.len()], columns)?);
                multiply(threads, y, columns.reversed_axes(), true, part.view_mut())?;
            }
        }
        Ok(())
    })
}
