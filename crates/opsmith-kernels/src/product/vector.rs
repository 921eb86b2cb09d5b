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

/// A column of at least so many numbers is long.
const LONG: usize = 256;
/// How many sums a long column has side by side: adding them up takes less than they save.
const LANES: usize = 64;
/// The same of a short one. Four short columns are computed at a time: one by one, each would wait for its sums.
const FEW_LANES: usize = 16;

/// Adds the scalar products of `x` and each column of a matrix; those lie one after another.
///
/// Written out without closures, and without inner loops over the four columns, so that all is inlined into the function for the instruction
/// set and the sums stay in registers.
struct Products<'a, T> {
    x: &'a [T],
    m: ArrayView2<'a, T>,
    y: &'a mut [T],
}

impl<T: NdFloat> Kernel for Products<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(mut self) {
        let (columns, is_long) = (self.y.len(), self.x.len() >= LONG);
        let mut column = 0;
        while !is_long && column + 4 <= columns {
            self.four::<I, FEW_LANES>(column);
            column += 4;
        }
        while column < columns {
            self.y[column] += match is_long {
                true => self.one::<I, LANES>(column),
                false => self.one::<I, FEW_LANES>(column),
            };
            column += 1;
        }
    }
}

impl<'a, T: NdFloat> Products<'a, T> {
    /// A column in parts of some numbers, and the rest.
    #[inline(always)]
    fn column<const COUNT: usize>(&self, column: usize) -> (&'a [[T; COUNT]], &'a [T]) {
        let begin = self.m.strides()[1] * column as isize;
        // SAFETY: the columns of the matrix are dense, of as many numbers as `x` has.
        let numbers = unsafe { std::slice::from_raw_parts(self.m.as_ptr().offset(begin), self.x.len()) };
        numbers.as_chunks()
    }

    /// The scalar product with a column.
    #[inline(always)]
    fn one<I: Isa, const COUNT: usize>(&self, column: usize) -> T {
        let ((xs, rest), a) = (self.x.as_chunks::<COUNT>(), self.column::<COUNT>(column));
        let (mut p, mut last) = ([T::zero(); COUNT], T::zero());
        for chunk in 0..xs.len().min(a.0.len()) {
            add::<I, T, COUNT>(&xs[chunk], &a.0[chunk], &mut p);
        }
        // Apart from the others: sums that are chosen by a variable would not be in registers.
        for at in 0..rest.len().min(a.1.len()) {
            last = fused::<I, T>(rest[at], a.1[at], last);
        }
        if xs.is_empty() { last } else { total(&mut p) + last }
    }

    /// Adds those with four columns, each as if it were the only one.
    #[inline(always)]
    fn four<I: Isa, const COUNT: usize>(&mut self, first: usize) {
        let (xs, rest) = self.x.as_chunks::<COUNT>();
        let (a, b) = (self.column::<COUNT>(first), self.column::<COUNT>(first + 1));
        let (c, d) = (self.column::<COUNT>(first + 2), self.column::<COUNT>(first + 3));
        let (mut p, mut q, mut r, mut s) =
            ([T::zero(); COUNT], [T::zero(); COUNT], [T::zero(); COUNT], [T::zero(); COUNT]);
        let chunks = xs.len().min(a.0.len()).min(b.0.len()).min(c.0.len()).min(d.0.len());
        for chunk in 0..chunks {
            add::<I, T, COUNT>(&xs[chunk], &a.0[chunk], &mut p);
            add::<I, T, COUNT>(&xs[chunk], &b.0[chunk], &mut q);
            add::<I, T, COUNT>(&xs[chunk], &c.0[chunk], &mut r);
            add::<I, T, COUNT>(&xs[chunk], &d.0[chunk], &mut s);
        }
        let (mut t, mut u, mut v, mut w) = (T::zero(), T::zero(), T::zero(), T::zero());
        for at in 0..rest.len().min(a.1.len()).min(b.1.len()).min(c.1.len()).min(d.1.len()) {
            t = fused::<I, T>(rest[at], a.1[at], t);
            u = fused::<I, T>(rest[at], b.1[at], u);
            v = fused::<I, T>(rest[at], c.1[at], v);
            w = fused::<I, T>(rest[at], d.1[at], w);
        }
        let y = &mut self.y[first..first + 4];
        if !xs.is_empty() {
            (t, u) = (total(&mut p) + t, total(&mut q) + u);
            (v, w) = (total(&mut r) + v, total(&mut s) + w);
        }
        y[0] += t;
        y[1] += u;
        y[2] += v;
        y[3] += w;
    }
}

/// Adds the products of numbers, each to a sum of its own.
#[inline(always)]
fn add<I: Isa, T: NdFloat, const COUNT: usize>(x: &[T; COUNT], numbers: &[T; COUNT], sums: &mut [T; COUNT]) {
    for lane in 0..COUNT {
        sums[lane] = fused::<I, T>(x[lane], numbers[lane], sums[lane]);
    }
}

/// Adds sums up, by halves.
#[inline(always)]
fn total<T: NdFloat, const COUNT: usize>(sums: &mut [T; COUNT]) -> T {
    let mut half = COUNT / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0]
}
