//! Products of matrices.

mod few_rows;
mod native;
mod room;
#[cfg(test)]
mod tests;
mod threads;
mod vector;

use half::{bf16, f16};
use ndarray::{ArrayView2, ArrayViewMut2, azip};
use opsmith_core::dtype::{AnyFloat, Float};
use opsmith_core::{Compute, Error, Result, ensure, memory};

/// A float that matrices are multiplied in: `f32` and `f64`, and `f16` and `bf16`, which are added up in float32.
pub trait GemmFloat: AnyFloat {
    /// `c = alpha · a · b + beta · c` for matrices that fit, on the threads of `compute` if there are any.
    #[doc(hidden)]
    fn product(product: Product<'_, Self>, compute: Option<&Compute<'_>>) -> Result<()>;
}

/// The operands of `c = alpha · a · b + beta · c`, which fit each other.
#[doc(hidden)]
pub struct Product<'a, T> {
    alpha: T,
    a: ArrayView2<'a, T>,
    b: ArrayView2<'a, T>,
    beta: T,
    c: ArrayViewMut2<'a, T>,
}

/// The product of two matrices on the calling thread, for loops that are on several threads themselves; else it is
/// [`ComputeExt::gemm`](crate::ComputeExt::gemm).
///
/// # Errors
/// As that has them.
pub fn gemm<T: GemmFloat>(
    alpha: T,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    beta: T,
    c: ArrayViewMut2<'_, T>,
) -> Result<()> {
    T::product(Product::new(alpha, a, b, beta, c)?, None)
}

impl<'a, T: AnyFloat> Product<'a, T> {
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

macro_rules! native {
    ($($float:ty)*) => {$(
        impl GemmFloat for $float {
            fn product(mut product: Product<'_, Self>, compute: Option<&Compute<'_>>) -> Result<()> {
                if product.is_trivial() { Ok(()) } else { threads::product(product, compute) }
            }
        }
    )*};
}

native! { f32 f64 }

macro_rules! half {
    ($($half:ty)*) => {$(
        impl GemmFloat for $half {
            fn product(mut product: Product<'_, Self>, compute: Option<&Compute<'_>>) -> Result<()> {
                if product.is_trivial() {
                    return Ok(());
                }
                let Product { alpha, a, b, beta, mut c } = product;
                let (alpha, beta) = (alpha.to_f32(), beta.to_f32());
                let ((n, k), m) = (a.dim(), b.ncols());
                let (mut wide_a, mut wide_b, mut wide_c) = (zeros::<f32>(n, k)?, zeros(k, m)?, zeros(n, m)?);
                azip!((wide in &mut wide_a, half in a) *wide = half.to_f32());
                azip!((wide in &mut wide_b, half in b) *wide = half.to_f32());
                let wide =
                    Product { alpha, a: wide_a.view(), b: wide_b.view(), beta: 0.0, c: wide_c.view_mut() };
                threads::product(wide, compute)?;
                if beta == 0.0 {
                    azip!((half in &mut c, wide in &wide_c) *half = <$half>::from_f32(*wide));
                } else {
                    azip!((half in &mut c, wide in &wide_c) *half = <$half>::from_f32(*wide + beta * half.to_f32()));
                }
                Ok(())
            }
        }
    )*};
}

half! { f16 bf16 }

/// A matrix of zeros.
fn zeros<T: Float>(rows: usize, columns: usize) -> Result<ndarray::Array2<T>> {
    let numbers = memory::filled(T::zero(), rows.saturating_mul(columns), "a matrix of float32")?;
    ndarray::Array2::from_shape_vec((rows, columns), numbers)
        .map_err(|error| Error::internal(error.to_string()))
}
