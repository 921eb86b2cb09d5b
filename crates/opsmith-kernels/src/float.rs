//! The floats that kernels are generic over.

use half::{bf16, f16};
use opsmith_core::dtype::RealNumber;
use opsmith_core::space::Layout;
use opsmith_core::{Compute, Result};

use crate::arithmetic::Arithmetic;
use crate::pointwise::each_element;
use crate::product::{self, Product};

/// `float16`, `bfloat16`, `float32` and `float64`: arrays of them are what [`ComputeExt`](crate::ComputeExt) computes with.
/// Bodies and products of those of 16 bits are computed in float32.
pub trait AnyFloat: RealNumber + num_traits::Float {
    /// Applies a body to each element: `each_element`, which has the same parameters.
    ///
    /// # Safety
    /// As that asks.
    #[doc(hidden)]
    unsafe fn apply<'a>(
        compute: &Compute<'_>,
        body: &Arithmetic,
        shape: &[usize],
        inputs: &mut dyn Iterator<Item = (*const Self, Layout<'a>)>,
        outputs: &mut dyn Iterator<Item = (*mut Self, Layout<'a>)>,
    ) -> Result<()>;

    /// `c = alpha · a · b + beta · c` for matrices that fit, on the threads of `compute` if there are any.
    #[doc(hidden)]
    fn product(product: Product<'_, Self>, compute: Option<&Compute<'_>>) -> Result<()>;
}

/// `float32` and `float64`.
pub trait Float: AnyFloat + ndarray::NdFloat {}

impl Float for f32 {}
impl Float for f64 {}

macro_rules! any_float {
    ($($float:ty: $product:expr;)*) => {$(
        impl AnyFloat for $float {
            unsafe fn apply<'a>(
                compute: &Compute<'_>,
                body: &Arithmetic,
                shape: &[usize],
                inputs: &mut dyn Iterator<Item = (*const Self, Layout<'a>)>,
                outputs: &mut dyn Iterator<Item = (*mut Self, Layout<'a>)>,
            ) -> Result<()> {
                // SAFETY: promised by the caller.
                unsafe { each_element(compute, body, shape, inputs, outputs) }
            }

            fn product(product: Product<'_, Self>, compute: Option<&Compute<'_>>) -> Result<()> {
                $product(product, compute)
            }
        }
    )*};
}

any_float! {
    f32: product::of_f32;
    f64: product::of_f64;
    f16: |product, compute| product::of_half(product, compute, f16::from_f32);
    bf16: |product, compute| product::of_half(product, compute, bf16::from_f32);
}
