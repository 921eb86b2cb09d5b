//! Products of matrices of float32 and float64 on the calling thread.

use opsmith_core::Result;

use super::room::Room;
use super::{Product, few_rows, near, vector};

/// A float that products are computed in.
pub(crate) trait Native: few_rows::Tiles {
    /// The product, best where the columns of `c` are dense.
    fn by_columns(product: Product<'_, Self>) -> Result<()>;
}

/// The product on the calling thread.
///
/// # Errors
/// `ResourceExhausted` without memory for copies of factors.
pub(super) fn product<T: Native>(product: Product<'_, T>) -> Result<()> {
    let product = vector::product(product)?.and_then(near::product).and_then(few_rows::product);
    let Some(product) = product else { return Ok(()) };
    // The kernels want results whose columns are dense: of others they compute the transpose.
    let has_dense_rows = product.c.strides()[1].abs() < product.c.strides()[0].abs();
    T::by_columns(if has_dense_rows { product.turned() } else { product })
}

macro_rules! native {
    ($($float:ty, $gemm:path;)*) => {$(
        impl Native for $float {
            fn by_columns(product: Product<'_, Self>) -> Result<()> {
                let Product { alpha, a, b, beta, mut c } = product;
                let ((rows, inner), columns) = (a.dim(), b.ncols());
                let strides = |strides: &[isize]| (strides[0], strides[1]);
                let ((rsa, csa), (rsb, csb), (rsc, csc)) =
                    (strides(a.strides()), strides(b.strides()), strides(c.strides()));
                let (a, b, c) = (a.as_ptr(), b.as_ptr(), c.as_mut_ptr());
                let none = gemm_common::Parallelism::None;
                let _room = Room::new((rows, inner, columns), size_of::<Self>())?;
                // SAFETY: pointers, dims and strides are those of the views, of which the last is the only one of its
                // memory; the dims fit.
                unsafe {
                    $gemm()(
                        rows, columns, inner, c, csc, rsc, beta != 0.0, a, csa, rsa, b, csb, rsb, beta, alpha, false,
                        false, false, none,
                    );
                }
                Ok(())
            }
        }
    )*};
}

native! {
    f32, gemm_f32::gemm::f32::get_gemm_fn;
    f64, gemm_f64::gemm::f64::get_gemm_fn;
}
