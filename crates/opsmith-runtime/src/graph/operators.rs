//! The standard operators as methods and operators of outputs.

use std::ops;

use opsmith_core::{DType, Result};

use super::{CallBuilder, Output};
use crate::standard;
use crate::tensor::Tensor;

impl Output {
    /// A call of a standard operator whose first input is this output.
    #[track_caller]
    fn standard(&self, name: &str) -> Result<CallBuilder> {
        Ok(self.graph().call(&standard::op(name)?).arg(self))
    }

    /// The matrix product.
    ///
    /// # Errors
    /// `InvalidArgument` for shapes or dtypes that do not fit.
    #[track_caller]
    pub fn matmul(&self, other: &Output) -> Result<Output> {
        self.standard("MatMul")?.arg(other).build()?.output(0)
    }

    /// The sum over these dims, over all where none is given. Negative ones count from the last.
    ///
    /// # Errors
    /// `InvalidArgument` for dims that there are not.
    #[track_caller]
    pub fn sum(&self, axes: &[i64]) -> Result<Output> {
        self.standard("Sum")?.attr("axes", axes.to_vec()).build()?.output(0)
    }

    /// The mean over these dims, over all where none is given. Negative ones count from the last.
    ///
    /// # Errors
    /// `InvalidArgument` for dims that there are not.
    #[track_caller]
    pub fn mean(&self, axes: &[i64]) -> Result<Output> {
        self.standard("Mean")?.attr("axes", axes.to_vec()).build()?.output(0)
    }

    /// The same elements in another shape.
    ///
    /// # Errors
    /// `InvalidArgument` for a shape that cannot be.
    #[track_caller]
    pub fn reshape(&self, shape: &[i64]) -> Result<Output> {
        let shape = self.graph().constant("shape", Tensor::from_slice(shape, &[shape.len()])?)?;
        self.standard("Reshape")?.arg(&shape).build()?.output(0)
    }

    /// The elements as numbers of another type.
    ///
    /// # Errors
    /// `InvalidArgument` for a dtype that there is no conversion to.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Output> {
        self.standard("Cast")?.attr("dtype", dtype).build()?.output(0)
    }

    /// The same tensor, through which no gradient flows.
    ///
    /// # Errors
    /// None for an output of any dtype that the engine has.
    #[track_caller]
    pub fn stop_gradient(&self) -> Result<Output> {
        self.standard("StopGradient")?.build()?.output(0)
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $method:ident => $op:literal;)*) => {
        impl Output {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// `InvalidArgument` for a dtype that it is not defined for.
                #[track_caller]
                pub fn $method(&self) -> Result<Output> {
                    self.standard($op)?.build()?.output(0)
                }
            )*
        }
    };
}

unary! {
    /// The absolute value of each element.
    abs => "Abs";
    /// The square of each element.
    square => "Square";
    /// The square root of each element.
    sqrt => "Sqrt";
    /// The exponential of each element.
    exp => "Exp";
    /// The natural logarithm of each element.
    log => "Log";
    /// The hyperbolic tangent of each element.
    tanh => "Tanh";
    /// The logistic function of each element.
    sigmoid => "Sigmoid";
    /// Each element, or 0 where it is negative.
    relu => "Relu";
}

macro_rules! binary {
    ($($trait:ident $method:ident => $op:literal;)*) => {$(
        impl ops::$trait for &Output {
            type Output = Result<Output>;

            #[track_caller]
            fn $method(self, other: &Output) -> Result<Output> {
                self.standard($op)?.arg(other).build()?.output(0)
            }
        }
    )*};
}

binary! {
    Add add => "Add";
    Sub sub => "Sub";
    Mul mul => "Mul";
    Div div => "Div";
}

impl ops::Neg for &Output {
    type Output = Result<Output>;

    #[track_caller]
    fn neg(self) -> Result<Output> {
        self.standard("Neg")?.build()?.output(0)
    }
}
