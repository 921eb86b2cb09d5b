//! Products of matrices between nests, run by the kernels that [`ComputeExt::gemm`](crate::ComputeExt::gemm) has.

use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder};
use opsmith_body::{Axes, Axis, Product};
use opsmith_core::{Compute, Result};

use super::memory::Address;
use crate::product::{self, PER_NANOSECOND};
use crate::stored::Wide;

/// Dims along which two arrays are gone through as if they were one, or one of several loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    size: usize,
    /// Strides in bytes along the one and along the other.
    strides: [isize; 2],
}

/// The axes as few runs, the longest first.
fn runs(axes: Axes, sizes: &[usize], [one, other]: [&Address; 2]) -> Vec<Run> {
    let run = |axis: Axis| Run { size: sizes[axis.index()], strides: [one.stride(axis), other.stride(axis)] };
    let mut all: Vec<Run> = axes.iter().map(run).filter(|run| run.size != 1).collect();
    all.sort_by_key(|run| run.strides);
    let mut merged: Vec<Run> = Vec::new();
    for run in all {
        match merged.last_mut() {
            Some(inner)
                if inner.strides.map(|stride| stride.wrapping_mul(inner.size as isize)) == run.strides =>
            {
                inner.size *= run.size;
            }
            _ => merged.push(run),
        }
    }
    merged.sort_by_key(|run| std::cmp::Reverse(run.size));
    merged
}

/// A loop around products, and its strides in bytes along the factors and what is computed.
struct Loop {
    size: usize,
    strides: [isize; 3],
}

/// The longest run of some axes, and a loop for each of the others.
fn longest(axes: Axes, sizes: &[usize], arrays: [&Address; 2], at: [usize; 2], loops: &mut Vec<Loop>) -> Run {
    let mut runs = runs(axes, sizes, arrays).into_iter();
    let longest = runs.next().unwrap_or(Run { size: 1, strides: [0; 2] });
    loops.extend(runs.map(|run| {
        let mut strides = [0; 3];
        (strides[at[0]], strides[at[1]]) = (run.strides[0], run.strides[1]);
        Loop { size: run.size, strides }
    }));
    longest
}

/// Computes a product of two arrays into a third one, in parts of so many multiplications.
///
/// # Safety
/// The arrays must have numbers of this type wherever their strides along the product's axes reach, which are not negative; those of the
/// third must be nobody else's.
pub(super) unsafe fn run<W: Wide>(
    product: &Product,
    sizes: &[usize],
    [a, b, to]: [&Address; 3],
    (compute, of_a_part): (&Compute<'_>, usize),
) -> Result<()> {
    let (mut loops, mut again) = (Vec::new(), Vec::new());
    let rows = longest(product.sides[0], sizes, [a, to], [0, 2], &mut loops);
    let columns = longest(product.sides[1], sizes, [b, to], [1, 2], &mut loops);
    let inner = longest(product.summed, sizes, [a, b], [0, 1], &mut again);
    let of_axis =
        |axis: Axis| Loop { size: sizes[axis.index()], strides: [a, b, to].map(|array| array.stride(axis)) };
    loops.extend(product.shared.iter().map(of_axis));
    let each = std::mem::size_of::<W>() as isize;
    let strides = |one: isize, other: isize| ((one / each) as usize, (other / each) as usize);
    let (count, times) = (total(&loops), total(&again));
    let one = |position: usize, compute: Option<&Compute<'_>>| {
        for term in 0..times {
            let (here, there) = (place(&loops, position), place(&again, term));
            let at = |array: &Address, own: usize| array.begin().wrapping_offset(here[own] + there[own]);
            let of_a = (rows.size, inner.size).strides(strides(rows.strides[0], inner.strides[0]));
            let of_b = (inner.size, columns.size).strides(strides(inner.strides[1], columns.strides[0]));
            let of_c = (rows.size, columns.size).strides(strides(rows.strides[1], columns.strides[1]));
            // SAFETY: promised by the caller; the positions of the loops have parts of the third array of their own.
            let (a, b, c) = unsafe {
                (
                    ArrayView2::from_shape_ptr(of_a, at(a, 0).cast::<W>().cast_const()),
                    ArrayView2::from_shape_ptr(of_b, at(b, 1).cast::<W>().cast_const()),
                    ArrayViewMut2::from_shape_ptr(of_c, at(to, 2).cast::<W>()),
                )
            };
            let before = if term > 0 || product.adds { W::one() } else { W::zero() };
            product::by_shape(product::Product::new(W::one(), a, b, before, c)?, compute, of_a_part)?;
        }
        Ok(())
    };
    if count == 1 {
        return one(0, Some(compute));
    }
    let work = [rows.size, columns.size, inner.size, times].into_iter().fold(1, usize::saturating_mul);
    compute.try_parallel_for(count, work / PER_NANOSECOND, |mut positions| {
        positions.try_for_each(|position| one(position, None))
    })
}

fn total(loops: &[Loop]) -> usize {
    loops.iter().map(|own| own.size).product()
}

/// How far each array is gone through at a position of loops.
fn place(loops: &[Loop], mut position: usize) -> [isize; 3] {
    let mut place = [0; 3];
    for own in loops {
        let at = (position % own.size) as isize;
        position /= own.size;
        for (place, stride) in place.iter_mut().zip(own.strides) {
            *place += at * stride;
        }
    }
    place
}
