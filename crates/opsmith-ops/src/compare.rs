//! Comparisons and logic, whose results are `bool`.

use opsmith::dtype::sets;
use opsmith::prelude::*;

use crate::define::ops;
use crate::elementwise::{Elementwise, Loop, binary, both, broadcasting, for_each, unary};

ops! {
    /// The op `Equal`.
    Equal = comparison::<IsEqual>("Equal", "equal; NaN is equal to nothing");
    /// The op `NotEqual`.
    NotEqual = comparison::<IsNotEqual>("NotEqual", "not equal; NaN is equal to nothing");
    /// The op `Less`.
    Less = comparison::<IsLess>("Less", "in order, the first one smaller");
    /// The op `LessEqual`.
    LessEqual = comparison::<IsAtMost>("LessEqual", "in order, the first one not larger");
    /// The op `Greater`.
    Greater = comparison::<IsGreater>("Greater", "in order, the first one larger");
    /// The op `GreaterEqual`.
    GreaterEqual = comparison::<IsAtLeast>("GreaterEqual", "in order, the first one not smaller");
    /// The op `LogicalAnd`.
    LogicalAnd = logic("LogicalAnd", "Whether both of each two elements are true.", both::<And, 2>());
    /// The op `LogicalOr`.
    LogicalOr = logic("LogicalOr", "Whether one of each two elements is true.", both::<Or, 2>());
    /// The op `LogicalNot`.
    LogicalNot = not();
}

macro_rules! comparisons {
    ($($name:ident, $on_card:literal: |$x:ident, $y:ident| $body:expr;)*) => {$(
        struct $name;

        impl Elementwise<2> for $name {
            const ON_CARD: Option<&'static str> = Some($on_card);

            fn pick(construction: &OpKernelConstruction<'_>) -> Result<Loop<2>> {
                dispatch!(construction.attr::<DType>("T")?, RealNumber, |T| Ok(binary(|$x: T, $y: T| $body)))
            }
        }
    )*};
}

comparisons! {
    IsEqual, "is_equal": |x, y| x == y;
    IsNotEqual, "is_not_equal": |x, y| x != y;
    IsLess, "is_less": |x, y| x < y;
    IsAtMost, "is_at_most": |x, y| x <= y;
    IsGreater, "is_greater": |x, y| x > y;
    IsAtLeast, "is_at_least": |x, y| x >= y;
}

fn comparison<E: Elementwise<2>>(name: &str, what: &str) -> OpDef {
    OpDef::new(name)
        .attr("T: realnumbertype")
        .input("x: T")
        .input("y: T")
        .output("z: bool")
        .parallel("(...), (...) -> (...)")
        .doc(&format!(
            "Whether each two elements are {what}. The tensors broadcast by NumPy's rules.\n\n\
             x: Any numbers.\n\
             y: Any numbers.\n\
             z: Of the shape that both broadcast to."
        ))
        .shape_fn(broadcasting)
        .not_differentiable()
        .kernels(for_each::<E, 2>(sets::REAL_NUMBER))
}

struct And;
struct Or;
struct Not;

impl Elementwise<2> for And {
    const ON_CARD: Option<&'static str> = Some("both");

    fn pick(_: &OpKernelConstruction<'_>) -> Result<Loop<2>> {
        Ok(binary(|x: bool, y: bool| x & y))
    }
}

impl Elementwise<2> for Or {
    const ON_CARD: Option<&'static str> = Some("one_of");

    fn pick(_: &OpKernelConstruction<'_>) -> Result<Loop<2>> {
        Ok(binary(|x: bool, y: bool| x | y))
    }
}

impl Elementwise<1> for Not {
    const ON_CARD: Option<&'static str> = Some("not_so");

    fn pick(_: &OpKernelConstruction<'_>) -> Result<Loop<1>> {
        Ok(unary(|x: bool| !x))
    }
}

fn logic(name: &str, what: &str, kernels: impl Iterator<Item = KernelDef>) -> OpDef {
    OpDef::new(name)
        .input("x: bool")
        .input("y: bool")
        .output("z: bool")
        .parallel("(...), (...) -> (...)")
        .doc(&format!(
            "{what} The tensors broadcast by NumPy's rules.\n\n\
             x: Truth values.\n\
             y: Truth values.\n\
             z: Of the shape that both broadcast to."
        ))
        .shape_fn(broadcasting)
        .not_differentiable()
        .kernels(kernels)
}

fn not() -> OpDef {
    OpDef::new("LogicalNot")
        .input("x: bool")
        .output("y: bool")
        .parallel("(...) -> (...)")
        .doc("Whether each element is not true.\n\nx: Truth values.\ny: Of the same shape.")
        .shape_fn(shape_fns::unchanged)
        .not_differentiable()
        .kernels(both::<Not, 1>())
}

#[cfg(test)]
mod tests {
    use opsmith::testing;

    use super::*;

    #[test]
    fn nan_is_equal_to_nothing() -> Result<()> {
        let x = array![f32::NAN, 1.0, 2.0];
        let outputs = testing::call::<Equal>().input(&x).input(&x).run()?;
        assert_eq!(outputs.array::<bool, Ix1>("z")?, array![false, true, true]);
        let outputs = testing::call::<LessEqual>().input(&x).input(&array![2.0f32]).run()?;
        assert_eq!(outputs.array::<bool, Ix1>("z")?, array![false, true, true]);
        let outputs = testing::call::<LogicalNot>().input(&array![true, false]).run()?;
        assert_eq!(outputs.array::<bool, Ix1>("y")?, array![false, true]);
        Ok(())
    }
}
