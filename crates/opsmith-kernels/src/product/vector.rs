//! Vector times matrix: each number of the matrix is read once, so it is a matter of reading it as it lies.

#![allow(
    clippy::needless_range_loop,
    reason = "several slices are gone through at once, and all of it is to be inlined into one function"
)]

use ndarray::{ArrayView1, ArrayView2, ArrayViewMut1, NdFloat};
use opsmith_body::{Isa, Kernel, dispatch};
use opsmith_core::{Result, memory};

use super::Product;

/// The product where `c` is a row or a column and the numbers of the matrix lie one after another along one of its dims;
/// elsewhere it is given back.
///
/// # Errors
/// `ResourceExhausted` without memory for a vector.
pub(super) fn product<T: NdFloat>(mut product: Product<'_, T>) -> Result<Option<Product<'_, T>>> {
    let is_row = product.c.nrows() == 1;
    if !is_row && product.c.ncols() != 1 {
        return Ok(Some(product));
    }
    let (x, m) = match is_row {
        true => (product.a, product.b),
        false => (product.b.reversed_axes(), product.a.reversed_axes()),
    };
    // A single column is summed up in many lanes: one sum after another would be less exact, and slower.
    let by_rows = m.ncols() > 1 && m.strides()[1] == 1;
    if !by_rows && m.nrows() > 1 && m.strides()[0] != 1 {
        return Ok(Some(product));
    }
    product.scale();
    let Product { alpha, mut c, .. } = product;
    times(alpha, x.row(0), m, by_rows, if is_row { c.row_mut(0) } else { c.column_mut(0) })?;
    Ok(None)
}

/// Adds `alpha · x · m` to `y`. The rows of `m` are dense, or else its columns.
fn times<T: NdFloat>(
    alpha: T,
    x: ArrayView1<'_, T>,
    m: ArrayView2<'_, T>,
    by_rows: bool,
    mut y: ArrayViewMut1<'_, T>,
) -> Result<()> {
    let own: Vec<T>;
    let x = match x.as_slice() {
        Some(x) if alpha.is_one() => x,
        _ => {
            own = memory::collected(x.iter().map(|&number| alpha * number), "a vector")?;
            &own
        }
    };
    let mut sums = Vec::new();
    let dense = match y.as_slice_mut() {
        Some(y) => y,
        None => {
            sums = memory::filled(T::zero(), m.ncols(), "the sums of a product with a vector")?;
            &mut sums
        }
    };
    match by_rows {
        true => dispatch(Combination { x, m, y: dense }),
        false => dispatch(Products { x, m, y: dense }),
    }
    if !sums.is_empty() {
        y.iter_mut().zip(sums).for_each(|(y, sum)| *y += sum);
    }
    Ok(())
}

/// `a * b + c`, rounded once where the processor has that as one operation.
#[inline(always)]
fn fused<I: Isa, T: NdFloat>(a: T, b: T, c: T) -> T {
    if I::FUSED { a.mul_add(b, c) } else { a * b + c }
}

/// How many rows are added at a time: with eight, a Zen 4 takes a tenth longer.
const ROWS: usize = 4;

/// Adds the rows of a matrix, each times a number of `x`; they lie one after another.
struct Combination<'a, T> {
    x: &'a [T],
    m: ArrayView2<'a, T>,
    y: &'a mut [T],
}

impl<T: NdFloat> Kernel for Combination<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Combination { x, m, y } = self;
        let columns = y.len();
        let row = |row: usize| {
            // SAFETY: the rows of the matrix are dense, of as many numbers as `y` has.
            unsafe { std::slice::from_raw_parts(m.as_ptr().offset(m.strides()[0] * row as isize), columns) }
        };
        let mut at = 0;
        while at + ROWS <= x.len() {
            let (a, b, c, d) = (row(at), row(at + 1), row(at + 2), row(at + 3));
            let [p, q, r, s] = [0, 1, 2, 3].map(|row| x[at + row]);
            for column in 0..columns {
                let sum = fused::<I, T>(a[column], p, y[column]);
                let sum = fused::<I, T>(b[column], q, sum);
                let sum = fused::<I, T>(c[column], r, sum);
                y[column] = fused::<I, T>(d[column], s, sum);
            }
            at += ROWS;
        }
        for at in at..x.len() {
            let (a, p) = (row(at), x[at]);
            for column in 0..columns {
                y[column] = fused::<I, T>(a[column], p, y[column]);
            }
        }
    }
}

/// How many sums of a scalar product there are side by side, and of a short one: there adding them up would take longer than they save.
const LANES: usize = 64;
const FEW_LANES: usize = 8;

/// Adds the scalar products of `x` and each column of a matrix; those lie one after another.
struct Products<'a, T> {
    x: &'a [T],
    m: ArrayView2<'a, T>,
    y: &'a mut [T],
}

impl<T: NdFloat> Kernel for Products<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        if self.x.len() < LANES { self.sums::<I, FEW_LANES>() } else { self.sums::<I, LANES>() }
    }
}

impl<T: NdFloat> Products<'_, T> {
    #[inline(always)]
    fn sums<I: Isa, const COUNT: usize>(self) {
        let Products { x, m, y } = self;
        for column in 0..y.len() {
            // SAFETY: the columns of the matrix are dense, of as many numbers as `x` has.
            let numbers = unsafe {
                std::slice::from_raw_parts(m.as_ptr().offset(m.strides()[1] * column as isize), x.len())
            };
            let mut lanes = [T::zero(); COUNT];
            let ((xs, x_rest), (ms, m_rest)) = (x.as_chunks::<COUNT>(), numbers.as_chunks::<COUNT>());
            for chunk in 0..xs.len().min(ms.len()) {
                for lane in 0..COUNT {
                    lanes[lane] = fused::<I, T>(xs[chunk][lane], ms[chunk][lane], lanes[lane]);
                }
            }
            for rest in 0..x_rest.len().min(m_rest.len()) {
                lanes[rest] = fused::<I, T>(x_rest[rest], m_rest[rest], lanes[rest]);
            }
            let mut half = COUNT / 2;
            while half > 0 {
                for lane in 0..half {
                    lanes[lane] += lanes[lane + half];
                }
                half /= 2;
            }
            y[column] += lanes[0];
        }
    }
}
