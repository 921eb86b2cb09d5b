//! The gradient, as an op of the same library.
//!
//! A gradient op is wired to its forward op by the names of its arguments: an input is one of the forward op's inputs
//! or outputs, or `<output>_grad`, the gradient that arrives; an output is `<input>_grad`. Attributes of the same name
//! have the forward op's values, others take their defaults. So one gradient op serves every version of `ZeroOut`.
//!
//! Zeroing all but one element is linear, and is its own transpose: the element that was kept gets its gradient, and
//! the others get zero. The gradient of the gradient is the same once more, under other names.

use std::marker::PhantomData;

use opsmith::prelude::*;

/// `ZeroOutGrad(zeroed_grad: T) -> (to_zero_grad: T)`: the gradient of the versions that take floats.
pub struct ZeroOutGrad;

impl OpDefinition for ZeroOutGrad {
    fn def() -> OpDef {
        OpDef::new("ZeroOutGrad")
            .attr("preserve_index: int >= 0 = 0")
            .attr("T: realnumbertype")
            .input("zeroed_grad: T")
            .output("to_zero_grad: T")
            .shape_fn(shape_fns::unchanged)
            .kernels(kernels!(PassOne<T> for T in RealNumber))
            .gradient("ZeroOutGradGrad")
            .doc(
                "The gradient of the `ZeroOut` ops: only the element that was kept gets any.\n\
                 \n\
                 zeroed_grad: The gradient with respect to `zeroed`.\n\
                 to_zero_grad: The gradient with respect to `to_zero`, of the same shape.\n\
                 preserve_index: Which element was kept.",
            )
    }
}

/// `ZeroOutGradGrad(to_zero_grad_grad: T) -> (zeroed_grad_grad: T)`: the gradient of [`ZeroOutGrad`].
///
/// It declares no gradient of its own, so differentiating a third time is an error that names it, never silent zeros.
pub struct ZeroOutGradGrad;

impl OpDefinition for ZeroOutGradGrad {
    fn def() -> OpDef {
        OpDef::new("ZeroOutGradGrad")
            .attr("preserve_index: int >= 0 = 0")
            .attr("T: realnumbertype")
            .input("to_zero_grad_grad: T")
            .output("zeroed_grad_grad: T")
            .shape_fn(shape_fns::unchanged)
            .kernels(kernels!(PassOne<T> for T in RealNumber))
            .doc(
                "The gradient of `ZeroOutGrad`: only the element that was kept gets any.\n\
                 \n\
                 to_zero_grad_grad: The gradient with respect to `to_zero_grad`.\n\
                 zeroed_grad_grad: The gradient with respect to `zeroed_grad`, of the same shape.\n\
                 preserve_index: Which element was kept.",
            )
    }
}

/// Copies input 0 to output 0 but for every element that is not at `preserve_index`.
///
/// Unlike the forward kernel it takes an empty input: some versions of the forward op do.
struct PassOne<T> {
    preserve_index: usize,
    dtype: PhantomData<fn() -> T>,
}

impl<T: RealNumber> OpKernel for PassOne<T> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(PassOne { preserve_index: construction.attr("preserve_index")?, dtype: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let arriving = context.slice::<T>(0)?;
        let passed = context.allocate_output(0, context.input(0)?.shape())?.into_slice::<T>()?;
        passed.fill(T::zero());
        match (passed.get_mut(self.preserve_index), arriving.get(self.preserve_index)) {
            (Some(passed), Some(arriving)) => *passed = *arriving,
            _ => ensure!(
                arriving.is_empty(),
                InvalidArgument for "preserve_index",
                "attribute `preserve_index` must be below the number of elements, {}, got {}",
                arriving.len(),
                self.preserve_index
            ),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::Array1;
    use opsmith::{infer_ok, testing};
    use opsmith_core::{Gradient, GradientInput};

    use super::*;
    use crate::dtypes::ZeroOutDefaultType;

    #[test]
    fn every_version_is_wired_to_it_by_names() {
        for name in ["ZeroOutFloatInt", "ZeroOutDefaultType", "ZeroOutReal"] {
            let wiring = crate::library().unwrap().op(name).unwrap().gradient_wiring().unwrap();
            assert_eq!(wiring.op, "ZeroOutGrad");
            assert_eq!(
                (&wiring.inputs[..], &wiring.outputs[..]),
                (&[GradientInput::OutputGradient(0)][..], &[0][..])
            );
        }
    }

    /// The op is linear, so a difference of any size gives the derivative along a direction, up to rounding.
    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let zero_out = |x: &Array1<f64>| {
            let call = testing::call::<ZeroOutDefaultType>().input(x).attr("preserve_index", 1);
            call.run().unwrap().array::<f64, Ix1>("zeroed").unwrap()
        };
        let (x, arriving) = (array![0.3, -1.2, 2.5], array![0.7, 1.1, -0.4]);
        let call = testing::call::<ZeroOutGrad>().input(&arriving).attr("preserve_index", 1);
        let gradient = call.run().unwrap().array::<f64, Ix1>("to_zero_grad").unwrap();
        for i in 0..3 {
            let mut step = Array1::zeros(3);
            step[i] = 0.5;
            let difference = (zero_out(&(&x + &step)) - zero_out(&(&x - &step))).dot(&arriving);
            assert!((gradient[i] - difference).abs() < 1e-12, "{i}: {} and {difference}", gradient[i]);
        }
    }

    #[test]
    fn the_second_gradient_keeps_the_same_element_and_ends_there() {
        let arriving = array![2f32, 3.];
        let call = testing::call::<ZeroOutGradGrad>().input(&arriving).attr("preserve_index", 1);
        let gradient = call.run().unwrap().array::<f32, Ix1>("zeroed_grad_grad").unwrap();
        assert_eq!(gradient, array![0., 3.]);
        let op = crate::library().unwrap().op("ZeroOutGradGrad").unwrap();
        assert_eq!(op.gradient(), &Gradient::Undeclared);
    }

    #[test]
    fn an_empty_gradient_is_empty_and_an_index_outside_is_an_error() {
        let empty = Array1::<f32>::zeros(0);
        assert!(testing::call::<ZeroOutGrad>().input(&empty).run().is_ok());
        let error = testing::call::<ZeroOutGrad>().input(&array![1f32]).attr("preserve_index", 1).run();
        assert!(error.unwrap_err().message().contains("below the number of elements, 1, got 1"));
        infer_ok!(testing::shapes::<ZeroOutGrad>(), "[?,n]", "[d0_0,n]");
    }
}
