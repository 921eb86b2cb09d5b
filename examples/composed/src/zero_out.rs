//! The gradient of an op as a composition: that of `ZeroOut`, as TensorFlow's guide to custom ops registers it.

use std::marker::PhantomData;

use opsmith::prelude::*;
use opsmith_ops::compose::{self, Composer, Composition, Value};
use opsmith_ops::indexing::SparseToDense;
use opsmith_ops::layout::Reshape;
use opsmith_ops::slice::Slice;
use opsmith_ops::values::{Shape, ZerosLike};

/// `ZeroOut(to_zero: T) -> (zeroed: T)`: only the first element is kept.
pub struct ZeroOut;

impl OpDefinition for ZeroOut {
    fn def() -> OpDef {
        OpDef::new("ZeroOut")
            .attr("T: {float, double}")
            .input("to_zero: T")
            .output("zeroed: T")
            .shape_fn(shape_fns::unchanged_with_rank_at_least(1))
            .kernels(kernels!(KeepFirst<T> for T in Float))
            .gradient("ZeroOutGrad")
            .doc(
                "Copies the input and sets every element but the first to zero.\n\
                 \n\
                 to_zero: Of rank 1 or more, with an element at least.\n\
                 zeroed: Of the same shape.",
            )
    }
}

struct KeepFirst<T>(PhantomData<fn() -> T>);

impl<T: Float> OpKernel for KeepFirst<T> {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(KeepFirst(PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let shape = context.input("to_zero")?.shape();
        ensure!(
            !shape.is_empty(),
            InvalidArgument,
            "input `to_zero` must have rank at least 1, got a scalar"
        );
        let to_zero = context.slice::<T>("to_zero")?;
        ensure!(!to_zero.is_empty(), InvalidArgument, "input `to_zero` must have an element, got none");
        let zeroed = context.allocate_output("zeroed", shape)?.into_slice::<T>()?;
        zeroed.fill(T::zero());
        zeroed[0] = to_zero[0];
        Ok(())
    }
}

/// `ZeroOutGrad(to_zero: T, zeroed_grad: T) -> (to_zero_grad: T)`: the first element of the gradient, among zeros.
pub struct ZeroOutGrad;

impl OpDefinition for ZeroOutGrad {
    const COMPANIONS: &'static [fn() -> OpDef] = compose::gradients::<ZeroOutGrad>();

    fn def() -> OpDef {
        let def = OpDef::new("ZeroOutGrad")
            .attr("T: {float, double}")
            .input("to_zero: T")
            .input("zeroed_grad: T")
            .output("to_zero_grad: T")
            .doc(
                "The gradient of `ZeroOut`: only the first element gets any.\n\
                 \n\
                 to_zero: The input.\n\
                 zeroed_grad: The gradient with respect to `zeroed`.\n\
                 to_zero_grad: The gradient with respect to `to_zero`, of the same shape.",
            );
        compose::define::<ZeroOutGrad>(def).shape_fn(shape_fns::merged)
    }
}

impl Composition for ZeroOutGrad {
    const ORDERS: usize = 1;

    fn compose(c: &Composer<'_>) -> Result<Vec<Value>> {
        let (to_zero, grad) = (c.input("to_zero")?, c.input("zeroed_grad")?);
        let shape = c.apply::<Shape>(&[to_zero])?;
        let index = c.apply::<ZerosLike>(&[shape])?;
        let flat = c.apply::<Reshape>(&[grad, c.integers(&[-1])])?;
        let first_grad = c.apply::<Slice>(&[flat, c.integers(&[0]), c.integers(&[1])])?;
        let index = c.apply::<Reshape>(&[index, c.integers(&[1, -1])])?;
        Ok(vec![c.apply::<SparseToDense>(&[first_grad, index, shape])?])
    }
}

#[cfg(test)]
mod tests {
    use opsmith::testing::{Call, call};
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    #[test]
    fn only_the_first_element_gets_a_gradient() {
        let (x, arriving) = (array![[1.0, 2.0], [3.0, 4.0]], array![[5.0, 6.0], [7.0, 8.0]]);
        let outputs = call::<ZeroOutGrad>().input(&x).input(&arriving).run().unwrap();
        assert_eq!(outputs.array::<f64, Ix2>("to_zero_grad").unwrap(), array![[5.0, 0.0], [0.0, 0.0]]);
    }

    #[test]
    fn its_gradient_is_derived() {
        let (x, arriving) = (array![1f32, 2.0, 3.0], array![5f32, 6.0, 7.0]);
        let second = Call::new(ZeroOutGrad::COMPANIONS[0]()).input(&x).input(&arriving).input(&arriving);
        let outputs = second.run().unwrap();
        assert_eq!(outputs.array::<f32, Ix1>("zeroed_grad_grad").unwrap(), array![5.0, 0.0, 0.0]);
        assert_eq!(outputs.array::<f32, Ix1>("to_zero_grad").unwrap(), array![0.0, 0.0, 0.0]);
    }

    #[test]
    fn shapes_are_those_of_the_input() {
        infer_ok!(testing::shapes::<ZeroOutGrad>(), "[?,n];[?,n]", "[?,n]");
        infer_error!(testing::shapes::<ZeroOutGrad>(), "must", "[2];[3]");
        let library = crate::library().unwrap();
        let wiring = library.op("ZeroOut").unwrap().gradient_wiring().unwrap();
        assert_eq!((&*wiring.op, &wiring.outputs[..]), ("ZeroOutGrad", &[0][..]));
    }

    #[test]
    fn an_error_names_the_composition_and_the_op_within() {
        let none = Array1::<f64>::zeros(0);
        let error = call::<ZeroOutGrad>().input(&none).input(&none).run().unwrap_err();
        assert!(error.message().starts_with("ZeroOutGrad: Slice: "), "{error}");
    }
}
