//! Sums of matrix products, stack by stack, on the threads of the call.

use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{ArrayView2, ArrayViewMut2, ArrayViewMut3};
use opsmith::prelude::*;

use super::{Stack, vector};

/// The element type of a matrix.
pub(super) trait Gemm: AnyFloat {
    /// Sets each matrix of `output`, which is transposed if it says so, to the sum of the products of those of the terms.
    ///
    /// All broadcast to the dims `stack`; the products of matrices of `stack` that are one of `output` are added up.
    fn add_products(
        cx: &Compute<'_>,
        stack: &[usize],
        terms: &[(Stack<'_, Self>, Stack<'_, Self>)],
        output: ArrayViewMutD<'_, Self>,
        transposed: bool,
    ) -> Result<()>;
}

/// A float that products are computed in.
trait Native: Gemm + Float {
    /// `c = a · b`, or with `accumulate` added to `c`, on the calling thread.
    fn gemm(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>, c: ArrayViewMut2<'_, Self>, accumulate: bool) {
        // The kernels want results whose columns are dense: of others they compute the transpose.
        if c.strides()[1].abs() < c.strides()[0].abs() {
            return Self::gemm_columns(b.reversed_axes(), a.reversed_axes(), c.reversed_axes(), accumulate);
        }
        Self::gemm_columns(a, b, c, accumulate);
    }

    /// The same, best where the columns of `c` are dense.
    fn gemm_columns(
        a: ArrayView2<'_, Self>,
        b: ArrayView2<'_, Self>,
        c: ArrayViewMut2<'_, Self>,
        accumulate: bool,
    );
}

macro_rules! native {
    ($($float:ty, $gemm:path;)*) => {$(
        impl Native for $float {
            fn gemm_columns(
                a: ArrayView2<'_, Self>,
                b: ArrayView2<'_, Self>,
                mut c: ArrayViewMut2<'_, Self>,
                accumulate: bool,
            ) {
                let ((rows, inner), columns) = (a.dim(), b.ncols());
                let strides = |strides: &[isize]| (strides[0], strides[1]);
                let ((rsa, csa), (rsb, csb), (rsc, csc)) =
                    (strides(a.strides()), strides(b.strides()), strides(c.strides()));
                let (of_c, of_product) = (if accumulate { 1.0 } else { 0.0 }, 1.0);
                let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
                let none = gemm_common::Parallelism::None;
                // SAFETY: pointers, dims and strides are those of the views, of which the last is the only one of its
                // memory; the inner dims are equal, as the caller has checked.
                unsafe {
                    $gemm()(
                        rows, columns, inner, c, csc, rsc, accumulate, a, csa, rsa, b, csb, rsb, of_c, of_product, false,
                        false, false, none,
                    );
                }
            }
        }

        impl Gemm for $float {
            fn add_products(
                cx: &Compute<'_>,
                stack: &[usize],
                terms: &[(Stack<'_, Self>, Stack<'_, Self>)],
                output: ArrayViewMutD<'_, Self>,
                transposed: bool,
            ) -> Result<()> {
                add_products(cx, stack, terms, output, transposed)
            }
        }
    )*};
}

native! {
    f32, gemm_f32::gemm::f32::get_gemm_fn;
    f64, gemm_f64::gemm::f64::get_gemm_fn;
}

macro_rules! half {
    ($($half:ty)*) => {$(
        impl Gemm for $half {
            fn add_products(
                cx: &Compute<'_>,
                stack: &[usize],
                terms: &[(Stack<'_, Self>, Stack<'_, Self>)],
                mut output: ArrayViewMutD<'_, Self>,
                transposed: bool,
            ) -> Result<()> {
                let widen = |stack: &Stack<'_, Self>| {
                    let mut wide = ArrayViewMutD::from_shape(stack.raw_dim(), cx.temp::<f32>(stack.len())?)
                        .map_err(|error| Error::internal(error.to_string()))?;
                    azip!((wide in &mut wide, half in stack) *wide = half.to_f32());
                    Ok(wide)
                };
                let wide = terms.iter().map(|(a, b)| Ok((widen(a)?, widen(b)?))).collect::<Result<Vec<_>>>()?;
                let wide: Vec<_> = wide.iter().map(|(a, b)| (a.view(), b.view())).collect();
                let mut sum = ArrayViewMutD::from_shape(output.raw_dim(), cx.temp::<f32>(output.len())?)
                    .map_err(|error| Error::internal(error.to_string()))?;
                add_products(cx, stack, &wide, sum.view_mut(), transposed)?;
                azip!((half in &mut output, sum in &sum) *half = <$half>::from_f32(*sum));
                Ok(())
            }
        }
    )*};
}

half! { f16 bf16 }

/// One of the matrices of a stack.
fn matrix<'a, T>(stack: &'a Stack<'_, T>, dims: &[usize], mut index: usize) -> ArrayView2<'a, T> {
    let mut rest = stack.view();
    for &dim in dims.iter().rev() {
        let at = index % dim;
        index /= dim;
        // It may have fewer dims in front, or one of 1 in this place.
        if let Some(last) = rest.ndim().checked_sub(3) {
            let at = if rest.len_of(Axis(last)) == 1 { 0 } else { at };
            rest.index_axis_inplace(Axis(last), at);
        }
    }
    rest.into_dimensionality().unwrap_or_else(|_| unreachable!("all dims but the last two are gone"))
}

/// The position among the matrices of an output, whose dims are `own`, of the one that this matrix of the stack adds to.
fn place(own: &[usize], dims: &[usize], mut index: usize) -> usize {
    let (mut place, mut step) = (0, 1);
    for (back, &dim) in dims.iter().rev().enumerate() {
        let at = index % dim;
        index /= dim;
        if let Some(axis) = own.len().checked_sub(back + 1) {
            place += if own[axis] == 1 { 0 } else { at * step };
            step *= own[axis];
        }
    }
    place
}

/// The nanoseconds that a multiplication and an addition take, as a divisor: so many are done in one.
const PER_NANOSECOND: usize = 64;

fn add_products<T: Native>(
    cx: &Compute<'_>,
    stack: &[usize],
    terms: &[(Stack<'_, T>, Stack<'_, T>)],
    mut output: ArrayViewMutD<'_, T>,
    transposed: bool,
) -> Result<()> {
    let rank = output.ndim();
    let own = output.shape()[..rank - 2].to_vec();
    let (rows, columns) = (output.shape()[rank - 2], output.shape()[rank - 1]);
    let count: usize = stack.iter().product();
    let inner = terms.iter().map(|(a, _)| a.shape()[a.ndim() - 1]).sum::<usize>();
    if count == 0 || inner == 0 {
        output.fill(T::zero());
        return Ok(());
    }
    if output.is_empty() {
        return Ok(());
    }
    let matrices = output.len() / (rows * columns);
    let mut output = output
        .into_shape_with_order((matrices, rows, columns))
        .map_err(|error| Error::internal(error.to_string()))?;
    let products = |index: usize, output: ArrayViewMut2<'_, T>, added: bool, cx: Option<&Compute<'_>>| {
        let mut output = if transposed { output.reversed_axes() } else { output };
        for (number, (a, b)) in terms.iter().enumerate() {
            let (a, b) = (matrix(a, stack, index), matrix(b, stack, index));
            let added = added || number > 0;
            match cx {
                Some(cx) => parallel(cx, a, b, output.view_mut(), added),
                None => multiply(a, b, output.view_mut(), added),
            }
        }
    };
    let cost = (rows * columns).saturating_mul(inner) / PER_NANOSECOND;
    if matrices == count && count >= 2 * cx.num_threads() {
        cx.parallel_over(output, Axis(0), cost, |range, mut output: ArrayViewMut3<'_, T>| {
            for (index, output) in range.zip(output.outer_iter_mut()) {
                products(index, output, false, None);
            }
        });
        return Ok(());
    }
    let mut added = vec![false; matrices];
    for index in 0..count {
        let place = place(&own, stack, index);
        let added = std::mem::replace(&mut added[place], true);
        products(index, output.index_axis_mut(Axis(0), place), added, Some(cx));
    }
    Ok(())
}

/// `c = a · b`, or with `added` added to `c`, on the calling thread.
fn multiply<T: Native>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, mut c: ArrayViewMut2<'_, T>, added: bool) {
    let done = match c.dim() {
        (1, _) => vector::times(a.row(0), b, c.row_mut(0), added),
        (_, 1) => vector::times(b.column(0), a.reversed_axes(), c.column_mut(0), added),
        _ => false,
    };
    if !done {
        T::gemm(a, b, c, added);
    }
}

/// The least work, in nanoseconds, that is worth a thread of its own. It is less than that of other loops: the threads of a
/// model that multiplies matrices are awake.
const MIN_COST: usize = 4_000;

/// `c = a · b`, or with `added` added to `c`, on the threads of the call: as many parts as there are threads, as each packs
/// the other factor for itself.
fn parallel<T: Native>(
    cx: &Compute<'_>,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    mut c: ArrayViewMut2<'_, T>,
    added: bool,
) {
    let (rows, columns) = c.dim();
    let (axis, length) = if rows >= columns { (Axis(0), rows) } else { (Axis(1), columns) };
    let cost = (rows * columns).saturating_mul(a.ncols()) / PER_NANOSECOND;
    let parts = cx.num_threads().min(cost / MIN_COST).min(length / GRANULE).max(1);
    if parts == 1 {
        return multiply(a, b, c, added);
    }
    let size = length.div_ceil(parts).next_multiple_of(GRANULE);
    let parts = std::sync::Mutex::new(
        c.axis_chunks_iter_mut(axis, size)
            .enumerate()
            .map(|(part, c)| (part * size, Some(c)))
            .collect::<Vec<_>>(),
    );
    let count = length.div_ceil(size);
    // Each part is worth a thread, whatever it takes.
    cx.parallel_for(count, WORTH_A_THREAD, |range| {
        for part in range {
            let taken = parts.lock().ok().and_then(|mut parts| Some((parts[part].0, parts[part].1.take()?)));
            let Some((first, c)) = taken else { continue };
            let part = opsmith::ndarray::Slice::from(first..first + c.len_of(axis));
            match axis {
                Axis(0) => multiply(a.slice_axis(axis, part), b.view(), c, added),
                _ => multiply(a.view(), b.slice_axis(axis, part), c, added),
            }
        }
    });
}

/// The rows or columns that a part is a multiple of: those of the widest register tile.
const GRANULE: usize = 16;

/// So many nanoseconds are a unit of a loop that no thread gets more than one of, unless it has to.
const WORTH_A_THREAD: usize = 1 << 20;
