//! Numbers as products are made of them: floats of 16 bits as float32, other floats as they are, and integers, whose sums and products
//! wrap around, as int64: what a smaller or unsigned one keeps of that is the same.

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
    ($($number:ty)*; $($narrow:ty as $wide:ty: |$x:ident| $widen:expr, |$w:ident| $back:expr;)*) => {
        $(impl Wide for $number {
            type As = $number;

            fn wide<'a>(_: &Compute<'a>, numbers: &'a [Self]) -> Result<&'a [Self]> {
                Ok(numbers)
            }

            fn narrow(_: &Compute<'_>, to: &mut [Self], make: impl FnOnce(&mut [Self]) -> Result<()>) -> Result<()> {
                make(to)
            }
        })*
        $(impl Wide for $narrow {
            type As = $wide;

            fn wide<'a>(cx: &Compute<'a>, numbers: &'a [Self]) -> Result<&'a [$wide]> {
                let wide = cx.temp::<$wide>(numbers.len())?;
                wide.iter_mut().zip(numbers).for_each(|(wide, &$x)| *wide = $widen);
                Ok(wide)
            }

            fn narrow(cx: &Compute<'_>, to: &mut [Self], make: impl FnOnce(&mut [$wide]) -> Result<()>) -> Result<()> {
                let wide = cx.temp::<$wide>(to.len())?;
                make(wide)?;
                to.iter_mut().zip(wide).for_each(|(to, &mut $w)| *to = $back);
                Ok(())
            }
        })*
    };
    (of integers: $($int:ty)*) => {
        wide! { ; $($int as i64: |x| x as i64, |w| w as $int;)* }
    };
}

wide! { f32 f64 i64; f16 as f32: |x| x.to_f32(), |w| f16::from_f32(w); bf16 as f32: |x| x.to_f32(), |w| bf16::from_f32(w); }
wide! { of integers: i8 i16 i32 u8 u16 u32 u64 }
