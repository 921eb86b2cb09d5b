//! Sums over the dims along which a smaller tensor is repeated.

use opsmith::prelude::*;
use opsmith::space::{IndexSpace, Layout, row_major_strides};

use crate::along::Near;
use crate::card::folds::fold_to;
use crate::elementwise::Shared;

/// From how many elements on they are cut in parts, and into how many at most.
const PART: usize = 1 << 16;
const PARTS: usize = 16;

/// Makes output `output` of `shape`, which broadcasts to the tensor's, by adding up what belongs to each of its elements.
///
/// Numbers are added up in double precision: those of fixed parts first, then the parts in their order.
pub(crate) fn sum_to(
    context: &OpKernelContext<'_>,
    tensor: TensorView<'_>,
    output: usize,
    shape: &[usize],
) -> Result<()> {
    sum_to_as(context, tensor, output, (shape, shape))
}

/// As [`sum_to`], where the output has a shape of its own, of as many elements as the one that broadcasts.
pub(crate) fn sum_to_as(
    context: &OpKernelContext<'_>,
    tensor: TensorView<'_>,
    output: usize,
    shapes: (&[usize], &[usize]),
) -> Result<()> {
    if crate::card::is_on_card(context) {
        return fold_to(context, "opsmith::Total<-1>", (tensor, None), (output, shapes.0, shapes.1));
    }
    dispatch!(tensor.dtype(), AnyFloat, |T| sum_floats_to(
        context,
        tensor.view::<T, IxDyn>()?,
        output,
        shapes
    ))
}

/// As [`sum_to`], of an array.
pub(crate) fn sum_array_to<T: Near>(
    context: &OpKernelContext<'_>,
    array: ArrayViewD<'_, T>,
    output: usize,
    shape: &[usize],
) -> Result<()> {
    sum_floats_to(context, array, output, (shape, shape))
}

fn sum_floats_to<T: Near>(
    context: &OpKernelContext<'_>,
    array: ArrayViewD<'_, T>,
    output: usize,
    (own, shape): (&[usize], &[usize]),
) -> Result<()> {
    let mut view = context.allocate_output(output, own)?;
    let sums = view.as_slice_mut::<T>()?;
    let strides = row_major_strides(shape);
    let space = IndexSpace::new(array.shape(), &[Layout::from(&array), Layout { shape, strides: &strides }])?;
    let parts = if sums.len() <= PART { (space.len() / PART).clamp(1, PARTS) } else { 1 };
    let cx = context.compute();
    let totals = cx.temp::<f64>(parts * sums.len())?;
    let (from, memory) = (Shared(array.as_ptr().cast_mut().cast()), Shared(totals.as_mut_ptr().cast()));
    cx.parallel_for(parts, space.len() / parts, |range| {
        let (from, memory) = (&from, &memory);
        for part in range {
            // SAFETY: each part has totals of its own.
            let totals = unsafe {
                std::slice::from_raw_parts_mut(memory.0.cast::<f64>().add(part * sums.len()), sums.len())
            };
            let all = space.len();
            space.runs([0, 1], all * part / parts..all * (part + 1) / parts, |_, [source, target], count| {
                let from = from.0.cast::<T>().wrapping_offset(source);
                // SAFETY: the space stays in the tensor.
                unsafe { add_run(from, &mut totals[target as usize..], space.steps([0, 1]), count) };
            });
        }
    });
    let count = sums.len();
    for (at, sum) in sums.iter_mut().enumerate() {
        let total: f64 = totals.iter().skip(at).step_by(count).sum();
        *sum = T::near(total);
    }
    Ok(())
}

/// Adds numbers along strides to totals.
///
/// # Safety
/// There must be so many numbers.
unsafe fn add_run<T: AnyFloat>(from: *const T, totals: &mut [f64], [a, b]: [isize; 2], count: usize) {
    let number = |i: usize| {
        // SAFETY: promised by the caller.
        unsafe { *from.offset(a * i as isize) }.to_f64().unwrap_or(f64::NAN)
    };
    if b == 0 {
        // By eight lanes, which is as exact and can be done at once.
        let mut lanes = [0.0; 8];
        for i in 0..count {
            lanes[i % 8] += number(i);
        }
        totals[0] += lanes.iter().sum::<f64>();
    } else {
        for i in 0..count {
            totals[(b * i as isize) as usize] += number(i);
        }
    }
}
