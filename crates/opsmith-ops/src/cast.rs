//! Conversion between dtypes.

use opsmith::dtype::{ToHalf, bf16, f16};
use opsmith::prelude::*;

use crate::define::ops;
use crate::elementwise::{Elementwise, Loop, both, unary};
use crate::linear::FLOATS;

ops! {
    /// The op `Cast`: the same numbers in another dtype.
    Cast = cast(), with &[gradient, second_gradient];
}

/// The dtypes that are converted.
const DTYPES: &str =
    "{float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool}";

/// A number that converts as `as` does.
trait Converted: Element {
    /// The number as the widest of its kind.
    fn wide(self) -> Wide;
    /// The nearest number, towards zero where this is an integer; the largest or smallest where there is none so large.
    fn of(wide: Wide) -> Self;
}

/// A number as the widest of its kind.
#[derive(Clone, Copy)]
enum Wide {
    Float(f64),
    Signed(i64),
    Unsigned(u64),
}

macro_rules! converted {
    ($($ty:ty: $kind:ident, |$x:ident| $widen:expr, |$w:ident| $narrow:expr;)*) => {$(
        impl Converted for $ty {
            #[inline(always)]
            fn wide(self) -> Wide {
                let $x = self;
                Wide::$kind($widen)
            }

            #[inline(always)]
            fn of(wide: Wide) -> Self {
                match wide {
                    Wide::Float($w) => $narrow,
                    Wide::Signed($w) => $narrow,
                    Wide::Unsigned($w) => $narrow,
                }
            }
        }
    )*};
}

converted! {
    f16: Float, |x| x.to_f64(), |w| w.to_f16();
    bf16: Float, |x| x.to_f64(), |w| w.to_bf16();
    f32: Float, |x| x.into(), |w| w as f32;
    f64: Float, |x| x, |w| w as f64;
    i8: Signed, |x| x.into(), |w| w as i8;
    i16: Signed, |x| x.into(), |w| w as i16;
    i32: Signed, |x| x.into(), |w| w as i32;
    i64: Signed, |x| x, |w| w as i64;
    u8: Unsigned, |x| x.into(), |w| w as u8;
    u16: Unsigned, |x| x.into(), |w| w as u16;
    u32: Unsigned, |x| x.into(), |w| w as u32;
    u64: Unsigned, |x| x, |w| w as u64;
    bool: Unsigned, |x| x.into(), |w| w as f64 != 0.0;
}

/// From the dtype of one attribute to that of the other.
struct Conversion<const BACK: bool>;

impl<const BACK: bool> Elementwise<1> for Conversion<BACK> {
    const ON_CARD: Option<&'static str> = Some("cast");

    fn pick(construction: &OpKernelConstruction<'_>) -> Result<Loop<1>> {
        let (from, to) = if BACK { ("dtype", "S") } else { ("S", "dtype") };
        let (from, to): (DType, DType) = (construction.attr(from)?, construction.attr(to)?);
        dispatch!(from, [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool], |X| {
            dispatch!(to, [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool], |Y| {
                Ok(unary(|x: X| Y::of(x.wide())))
            })
        })
    }
}

fn cast() -> OpDef {
    OpDef::new("Cast")
        .attr(&format!("dtype: {DTYPES}"))
        .attr(&format!("S: {DTYPES}"))
        .input("x: S")
        .output("y: dtype")
        .parallel("(...) -> (...)")
        .doc(
            "The same numbers in another dtype. To floats numbers are rounded to the nearest. Floats become integers towards zero, and the largest or smallest integer where \
             they are beyond it; NaN becomes 0. Integers wrap around. As `bool`, what is not 0 is true.\n\n\
             x: Any numbers or truth values.\n\
             dtype: The dtype of the result.\n\
             y: Of the same shape.",
        )
        .shape_fn(shape_fns::unchanged)
        .gradient("CastGrad")
        .kernels(both::<Conversion<false>, 1>())
}

fn gradient() -> OpDef {
    OpDef::new("CastGrad")
        .attr(&format!("dtype: {FLOATS}"))
        .attr(&format!("S: {FLOATS}"))
        .input("y_grad: dtype")
        .input("x: S")
        .output("x_grad: S")
        .parallel("(...), (...) -> (...)")
        .doc("The gradient of `Cast`.")
        .shape_fn(shape_fns::merged)
        .gradient("CastGradGrad")
        .kernels(both::<Conversion<true>, 1>())
}

fn second_gradient() -> OpDef {
    OpDef::new("CastGradGrad")
        .attr(&format!("dtype: {FLOATS}"))
        .attr(&format!("S: {FLOATS}"))
        .input("x_grad_grad: S")
        .input("y_grad: dtype")
        .output("y_grad_grad: dtype")
        .parallel("(...), (...) -> (...)")
        .doc("The gradient of `CastGrad`.")
        .shape_fn(shape_fns::merged)
        .kernels(both::<Conversion<false>, 1>())
}

#[cfg(test)]
mod tests {
    use opsmith::testing;

    use super::*;

    #[test]
    fn floats_become_the_nearest_integers_that_there_are() -> Result<()> {
        let x = array![-1.9f64, 300.0, f64::NAN, 0.5];
        let outputs = testing::call::<Cast>().input(&x).attr("dtype", DType::UInt8).run()?;
        assert_eq!(outputs.array::<u8, Ix1>("y")?, array![0, 255, 0, 0]);
        let outputs = testing::call::<Cast>().input(&x).attr("dtype", DType::Bool).run()?;
        assert_eq!(outputs.array::<bool, Ix1>("y")?, array![true, true, true, true]);
        let outputs = testing::call::<Cast>().input(&array![-1i64, 256]).attr("dtype", DType::UInt8).run()?;
        assert_eq!(outputs.array::<u8, Ix1>("y")?, array![255, 0]);
        Ok(())
    }

    #[test]
    fn floats_of_16_bits_are_rounded_once() -> Result<()> {
        // A little more than half way from 1 to what follows it; in float32 it is half way.
        let x = array![1.0 + 2f64.powi(-11) + 2f64.powi(-40)];
        let outputs = testing::call::<Cast>().input(&x).attr("dtype", DType::Float16).run()?;
        assert_eq!(outputs.array::<f16, Ix1>("y")?, array![f16::from_bits(0x3C01)]);
        let x = array![1.0 + 2f64.powi(-8) + 2f64.powi(-40)];
        let outputs = testing::call::<Cast>().input(&x).attr("dtype", DType::BFloat16).run()?;
        assert_eq!(outputs.array::<bf16, Ix1>("y")?, array![bf16::from_bits(0x3F81)]);
        let x = array![(257i64 << 54) + 1, -(257i64 << 54) - 1];
        let outputs = testing::call::<Cast>().input(&x).attr("dtype", DType::BFloat16).run()?;
        assert_eq!(
            outputs.array::<bf16, Ix1>("y")?.mapv(|y| y.to_f64()),
            array![129.0, -129.0] * 2f64.powi(55)
        );
        Ok(())
    }
}
