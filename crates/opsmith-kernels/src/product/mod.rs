//! Products of matrices.

mod few_rows;
mod native;
mod near;
mod room;
#[cfg(test)]
mod tests;
mod threads;
mod vector;

use ndarray::{ArrayView2, ArrayViewMut2, azip};
use num_traits::Float;
use opsmith_core::{Compute, Error, Result, ensure, memory};

pub(crate) use self::native::Native;
pub(crate) use self::threads::{OF_A_PART, OF_A_SMALL_PART, PER_NANOSECOND};

/// The operands of `c = alpha · a · b + beta · c`, which fit each other.
#[doc(hidden)]
pub struct Product<'a, T> {
    alpha: T,
    a: ArrayView2<'a, T>,
    b: ArrayView2<'a, T>,
    beta: T,
    c: ArrayViewMut2<'a, T>,
}

impl<'a, T: Float> Product<'a, T> {
    /// # Errors
    /// `InvalidArgument` when the matrices do not fit.
    pub(crate) fn new(
        alpha: T,
        a: ArrayView2<'a, T>,
        b: ArrayView2<'a, T>,
        beta: T,
        c: ArrayViewMut2<'a, T>,
    ) -> Result<Self> {
        ensure!(
            a.ncols() == b.nrows() && c.dim() == (a.nrows(), b.ncols()),
            InvalidArgument,
            "gemm: expected `a` of shape (n, k), `b` of shape (k, m) and `c` of shape (n, m), got {:?}, {:?} and {:?}",
            a.dim(),
            b.dim(),
            c.dim()
        );
        Ok(Product { alpha, a, b, beta, c })
    }

    /// The transpose, of which `c` is the transpose too.
    fn turned(self) -> Self {
        let Product { alpha, a, b, beta, c } = self;
        Product { alpha, a: b.reversed_axes(), b: a.reversed_axes(), beta, c: c.reversed_axes() }
    }

    /// Whether the product of the matrices is zero or nothing, whatever they hold: then `c` becomes what it is to be.
    fn is_trivial(&mut self) -> bool {
        if !self.alpha.is_zero() && self.a.ncols() > 0 && !self.c.is_empty() {
            return false;
        }
        self.scale();
        true
    }

    /// `c = beta · c`, which is not read where `beta` is 0.
    fn scale(&mut self) {
        let beta = self.beta;
        if beta.is_zero() {
            self.c.fill(T::zero());
        } else if !beta.is_one() {
            self.c.mapv_inplace(|number| number * beta);
        }
    }
}

/// The product of matrices of float32.
pub(crate) fn of_f32(mut product: Product<'_, f32>, compute: Option<&Compute<'_>>) -> Result<()> {
    if product.is_trivial() { Ok(()) } else { threads::product(product, compute) }
}

/// The product of matrices of float64.
pub(crate) fn of_f64(mut product: Product<'_, f64>, compute: Option<&Compute<'_>>) -> Result<()> {
    if product.is_trivial() { Ok(()) } else { threads::product(product, compute) }
}

/// The product of matrices, on the threads of `compute` if there are any, in parts of so many multiplications: it does not depend on the
/// number of threads.
///
/// # Errors
/// `ResourceExhausted` without memory for copies of factors.
pub(crate) fn by_shape<T: Native>(
    mut product: Product<'_, T>,
    compute: Option<&Compute<'_>>,
    of_a_part: usize,
) -> Result<()> {
    if product.is_trivial() { Ok(()) } else { threads::product_by_shape(product, compute, of_a_part) }
}

/// The product of matrices of floats of 16 bits, which `narrow` makes of float32.
pub(crate) fn of_half<T: Float + Into<f32>>(
    mut product: Product<'_, T>,
    compute: Option<&Compute<'_>>,
    narrow: fn(f32) -> T,
) -> Result<()> {
    if product.is_trivial() {
        return Ok(());
    }
    let Product { alpha, a, b, beta, mut c } = product;
    let (alpha, beta): (f32, f32) = (alpha.into(), beta.into());
    let ((n, k), m) = (a.dim(), b.ncols());
    let (mut wide_a, mut wide_b, mut wide_c) = (zeros::<f32>(n, k)?, zeros(k, m)?, zeros(n, m)?);
    azip!((wide in &mut wide_a, half in a) *wide = (*half).into());
    azip!((wide in &mut wide_b, half in b) *wide = (*half).into());
    let wide = Product { alpha, a: wide_a.view(), b: wide_b.view(), beta: 0.0, c: wide_c.view_mut() };
    threads::product(wide, compute)?;
    if beta == 0.0 {
        azip!((half in &mut c, wide in &wide_c) *half = narrow(*wide));
    } else {
        azip!((half in &mut c, wide in &wide_c) *half = narrow(*wide + beta * (*half).into()));
    }
    Ok(())
}

/// A matrix of zeros.
fn zeros<T: Float>(rows: usize, columns: usize) -> Result<ndarray::Array2<T>> {
    let numbers = memory::filled(T::zero(), rows.saturating_mul(columns), "a matrix of float32")?;
    ndarray::Array2::from_shape_vec((rows, columns), numbers)
        .map_err(|error| Error::internal(error.to_string()))
}
