//! Numbers as products are made of them: floats of 16 bits as float32, others as they are.

use opsmith::dtype::{bf16, f16};
use opsmith::prelude::*;

use crate::matmul::Gemm;

/// A number that products are made of.
pub(crate) trait Wide: RealNumber {
    type As: Gemm;

    /// The numbers, widened if they have to be.
    fn wide<'a>(cx: &Compute<'a>, numbers: &'a [Self]) -> Result<&'a [Self::As]>;

    /// Has `make` make all numbers, and narrows them.
    fn narrow(
        cx: &Compute<'_>,
        to: &mut [Self],
        make: impl FnOnce(&mut [Self::As]) -> Result<()>,
    ) -> Result<()>;
}

macro_rules! wide {
    ($($number:ty)*; $($half:ty)*) => {
        $(impl Wide for $number {
            type As = $number;

            fn wide<'a>(_: &Compute<'a>, numbers: &'a [Self]) -> Result<&'a [Self]> {
                Ok(numbers)
            }

            fn narrow(_: &Compute<'_>, to: &mut [Self], make: impl FnOnce(&mut [Self]) -> Result<()>) -> Result<()> {
                make(to)
            }
        })*
        $(impl Wide for $half {
            type As = f32;

            fn wide<'a>(cx: &Compute<'a>, numbers: &'a [Self]) -> Result<&'a [f32]> {
                let wide = cx.temp::<f32>(numbers.len())?;
                wide.iter_mut().zip(numbers).for_each(|(wide, number)| *wide = number.to_f32());
                Ok(wide)
            }

            fn narrow(cx: &Compute<'_>, to: &mut [Self], make: impl FnOnce(&mut [f32]) -> Result<()>) -> Result<()> {
                let wide = cx.temp::<f32>(to.len())?;
                make(wide)?;
                to.iter_mut().zip(wide).for_each(|(to, wide)| *to = <$half>::from_f32(*wide));
                Ok(())
            }
        })*
    };
}

wide! { f32 f64 i8 i16 i32 i64 u8 u16 u32 u64; f16 bf16 }
