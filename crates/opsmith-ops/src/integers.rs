//! What ops that are written once for floats compute of integers: sums, differences and products wrap around, as in NumPy.

use opsmith::dtype::sets;
use opsmith::prelude::*;

use crate::elementwise::{Elementwise, Loop, binary, for_each, unary};

/// The op, with kernels for integers too.
pub(crate) fn also<E: Elementwise<N>, const N: usize>(def: OpDef) -> OpDef {
    def.more_dtypes("T", sets::INTEGER).kernels(for_each::<E, N>(sets::INTEGER))
}

/// What is another thing for signed and for unsigned integers.
trait Signed: Integer {
    fn magnitude(self) -> Self;
    fn direction(self) -> Self;
}

macro_rules! signed {
    ($($int:ty)*) => {$(
        impl Signed for $int {
            fn magnitude(self) -> Self {
                self.wrapping_abs()
            }
            fn direction(self) -> Self {
                self.signum()
            }
        }
    )*};
}

macro_rules! unsigned {
    ($($int:ty)*) => {$(
        impl Signed for $int {
            fn magnitude(self) -> Self {
                self
            }
            fn direction(self) -> Self {
                (self != 0).into()
            }
        }
    )*};
}

signed! { i8 i16 i32 i64 }
unsigned! { u8 u16 u32 u64 }

macro_rules! loops {
    ($($name:ident, $on_card:literal: $kind:ident($($x:ident),+) $body:expr;)*) => {$(
        pub(crate) struct $name;

        impl Elementwise<{ [$(stringify!($x)),+].len() }> for $name {
            const ON_CARD: Option<&'static str> = Some($on_card);

            fn pick(construction: &OpKernelConstruction<'_>) -> Result<Loop<{ [$(stringify!($x)),+].len() }>> {
                dispatch!(construction.attr::<DType>("T")?, Integer, |T| Ok($kind(|$($x: T),+| -> T { $body })))
            }
        }
    )*};
}

loops! {
    Add, "plus": binary(x, y) x.wrapping_add(y);
    Sub, "minus": binary(x, y) x.wrapping_sub(y);
    Mul, "times": binary(x, y) x.wrapping_mul(y);
    Maximum, "larger": binary(x, y) x.max(y);
    Minimum, "smaller": binary(x, y) x.min(y);
    Neg, "negative": unary(x) x.wrapping_neg();
    Abs, "magnitude": unary(x) x.magnitude();
    Sign, "direction": unary(x) x.direction();
    Square, "squared": unary(x) x.wrapping_mul(x);
}
