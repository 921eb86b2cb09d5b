//! Products of matrices of integers, whose sums and products wrap around, as NumPy's do.

use num_traits::{WrappingAdd, WrappingMul};
use opsmith::memory;
use opsmith::ndarray::{ArrayViewMut2, Zip};
use opsmith::prelude::*;

/// An integer that matrices are multiplied in.
pub(super) trait Wrapping: Integer + WrappingAdd + WrappingMul {}

impl<T: Integer + WrappingAdd + WrappingMul> Wrapping for T {}

/// How many rows and columns of the second factor are gone through for every row of the first: 128 KiB of the widest.
const PANEL: (usize, usize) = (32, 512);
/// With fewer columns, each number of the product is a sum along a row of the first factor.
const FEW_COLUMNS: usize = 8;

/// `c = a · b`, or `c + a · b` if it is added, on the threads of `cx` if there are any.
pub(super) fn multiply<T: Wrapping>(
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    added: bool,
    mut c: ArrayViewMut2<'_, T>,
    cx: Option<&Compute<'_>>,
) -> Result<()> {
    if !added {
        c.fill(T::zero());
    }
    let few = c.ncols() < FEW_COLUMNS;
    // What is read one after another should lie so.
    let b = if few { b.reversed_axes() } else { b };
    let copy: Vec<T>;
    let b = match b.is_standard_layout() {
        true => b,
        false => {
            copy = memory::collected(b.iter().copied(), "a copy of the second factor")?;
            ArrayView2::from_shape(b.dim(), &copy).map_err(|error| Error::internal(error.to_string()))?
        }
    };
    let rows = |range: std::ops::Range<usize>, c: ArrayViewMut2<'_, T>| {
        let a = a.slice(s![range, ..]);
        if few { add_sums(a, b, c) } else { add_panels(a, b, c) }
    };
    let Some(cx) = cx else {
        rows(0..c.nrows(), c);
        return Ok(());
    };
    // Some four multiplications with an addition are done in a nanosecond.
    let cost = c.ncols().saturating_mul(a.ncols()) / 4;
    cx.try_parallel_over(c, Axis(0), cost, |range, c| {
        rows(range, c);
        Ok(())
    })
}

/// Adds to each number of `c` the sum of a row of `a` times a row of `b`, the second factor transposed.
fn add_sums<T: Wrapping>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, mut c: ArrayViewMut2<'_, T>) {
    for (a, mut c) in a.outer_iter().zip(c.outer_iter_mut()) {
        for (b, c) in b.outer_iter().zip(&mut c) {
            let sum = Zip::from(a).and(b).fold(T::zero(), |sum, a, b| sum.wrapping_add(&a.wrapping_mul(b)));
            *c = c.wrapping_add(&sum);
        }
    }
}

/// Adds to each row of `c` the rows of `b` times the numbers of a row of `a`, a panel of `b` at a time.
fn add_panels<T: Wrapping>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, mut c: ArrayViewMut2<'_, T>) {
    let (inner, columns) = b.dim();
    for first in (0..columns).step_by(PANEL.1) {
        let columns = first..columns.min(first + PANEL.1);
        for first in (0..inner).step_by(PANEL.0) {
            let inner = first..inner.min(first + PANEL.0);
            let panel = b.slice(s![inner.clone(), columns.clone()]);
            for (a, mut c) in a.outer_iter().zip(c.outer_iter_mut()) {
                let mut c = c.slice_mut(s![columns.clone()]);
                for (&a, b) in a.slice(s![inner.clone()]).iter().zip(panel.outer_iter()) {
                    Zip::from(&mut c).and(b).for_each(|c, b| *c = c.wrapping_add(&a.wrapping_mul(b)));
                }
            }
        }
    }
}
