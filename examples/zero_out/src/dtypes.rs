//! One op for several dtypes: the attribute `T` is what the input's dtype makes it.

use std::marker::PhantomData;

use opsmith::prelude::*;

use crate::index::check_index;

/// `ZeroOutFloatInt`: float32 and int32, one type of kernel for each.
///
/// Nothing is shared between the two kernels, so each may go about its work in its own way.
pub struct ZeroOutFloatInt;

impl OpDefinition for ZeroOutFloatInt {
    fn def() -> OpDef {
        OpDef::new("ZeroOutFloatInt")
            .attr("T: {float, int32}")
            .input("to_zero: T")
            .output("zeroed: T")
            .shape_fn(shape_fns::unchanged)
            .kernel(KernelDef::cpu::<ZeroOutFloat>().type_constraint::<f32>("T"))
            .kernel(KernelDef::cpu::<ZeroOutInt>().type_constraint::<i32>("T"))
            .gradient("ZeroOutGrad")
            .doc(
                "Copies the input and sets every element but the first to zero.\n\
                 \n\
                 to_zero: Of any shape; an empty one gives an empty output.\n\
                 zeroed: Of the same shape and dtype.",
            )
    }
}

/// The kernel of [`ZeroOutFloatInt`] for float32.
struct ZeroOutFloat;

impl OpKernel for ZeroOutFloat {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ZeroOutFloat)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let shape = context.input("to_zero")?.shape();
        let to_zero = context.slice::<f32>("to_zero")?;
        let zeroed = context.allocate_output("zeroed", shape)?.into_slice::<f32>()?;
        zeroed.fill(0.0);
        if let [kept, ..] = zeroed {
            *kept = to_zero[0];
        }
        Ok(())
    }
}

/// The kernel of [`ZeroOutFloatInt`] for int32.
struct ZeroOutInt;

impl OpKernel for ZeroOutInt {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ZeroOutInt)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let shape = context.input("to_zero")?.shape();
        let to_zero = context.slice::<i32>("to_zero")?;
        let zeroed = context.allocate_output("zeroed", shape)?.into_slice::<i32>()?;
        zeroed.fill(0);
        if let [kept, ..] = zeroed {
            *kept = to_zero[0];
        }
        Ok(())
    }
}

/// `ZeroOutDefaultType`: float32, float64 and int32, int32 unless something says otherwise, with one generic kernel.
///
/// `T` has a default so that graphs which were saved when the op was for int32 alone, and which do not name `T`,
/// still mean what they meant.
pub struct ZeroOutDefaultType;

impl OpDefinition for ZeroOutDefaultType {
    fn def() -> OpDef {
        OpDef::new("ZeroOutDefaultType")
            .attr("preserve_index: int = 0")
            .attr("T: {float, double, int32} = DT_INT32")
            .input("to_zero: T")
            .output("zeroed: T")
            .shape_fn(shape_fns::unchanged)
            .kernel(KernelDef::cpu::<KeepOne<f32>>().type_constraint::<f32>("T"))
            .kernel(KernelDef::cpu::<KeepOne<f64>>().type_constraint::<f64>("T"))
            .kernel(KernelDef::cpu::<KeepOne<i32>>().type_constraint::<i32>("T"))
            .gradient("ZeroOutGrad")
            .doc(
                "Copies the input and sets every element but that at `preserve_index` to zero.\n\
                 \n\
                 to_zero: Of any shape with more than `preserve_index` elements.\n\
                 zeroed: Of the same shape and dtype.\n\
                 preserve_index: Which element to keep, counted from 0 in row-major order.",
            )
    }
}

/// `ZeroOutReal`: every real dtype, with a generic kernel that `kernels!` registers for each.
pub struct ZeroOutReal;

impl OpDefinition for ZeroOutReal {
    fn def() -> OpDef {
        OpDef::new("ZeroOutReal")
            .attr("preserve_index: int = 0")
            .attr("T: realnumbertype")
            .input("to_zero: T")
            .output("zeroed: T")
            .shape_fn(shape_fns::unchanged)
            .kernels(kernels!(KeepOne<T> for T in RealNumber))
            .gradient("ZeroOutGrad")
            .doc(
                "Copies the input and sets every element but that at `preserve_index` to zero.\n\
                 \n\
                 to_zero: Of any shape with more than `preserve_index` elements.\n\
                 zeroed: Of the same shape and dtype.\n\
                 preserve_index: Which element to keep, counted from 0 in row-major order.",
            )
    }
}

/// The generic kernel: copies input 0 to output 0 but for every element that is not at `preserve_index`.
struct KeepOne<T> {
    preserve_index: usize,
    dtype: PhantomData<fn() -> T>,
}

impl<T: RealNumber> OpKernel for KeepOne<T> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(KeepOne { preserve_index: construction.attr("preserve_index")?, dtype: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let shape = context.input_shape(0)?;
        check_index(self.preserve_index, shape.iter().product())?;
        // The input's own memory serves where nobody else will read it: the element is there already.
        let (mut output, reused) = context.forward_input_or_allocate_output(&[0], 0, shape)?;
        let zeroed = output.as_slice_mut::<T>()?;
        let kept = match reused {
            Some(_) => zeroed[self.preserve_index],
            None => context.slice::<T>(0)?[self.preserve_index],
        };
        zeroed.fill(T::zero());
        zeroed[self.preserve_index] = kept;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opsmith::dtype::{bf16, f16};
    use opsmith::ndarray::{Array1, Array3};
    use opsmith::{infer_ok, testing};

    use super::*;

    fn zero_out<O: OpDefinition, T: Element>(x: &Array1<T>, index: Option<i64>) -> Result<Array1<T>> {
        let call = testing::call::<O>().input(x);
        let call = match index {
            Some(index) => call.attr("preserve_index", index),
            None => call,
        };
        call.run()?.array::<T, Ix1>("zeroed")
    }

    #[test]
    fn each_dtype_has_its_kernel() {
        assert_eq!(zero_out::<ZeroOutFloatInt, _>(&array![2f32, 3.], None).unwrap(), array![2., 0.]);
        assert_eq!(zero_out::<ZeroOutFloatInt, _>(&array![2i32, 3], None).unwrap(), array![2, 0]);
        assert_eq!(zero_out::<ZeroOutDefaultType, _>(&array![2f64, 3.], Some(1)).unwrap(), array![0., 3.]);
        assert_eq!(zero_out::<ZeroOutReal, _>(&array![2u8, 3], Some(1)).unwrap(), array![0, 3]);
        let halves = [2.0, 3.0].map(f16::from_f32);
        assert_eq!(zero_out::<ZeroOutReal, _>(&Array1::from(halves.to_vec()), None).unwrap()[0], halves[0]);
        let brains = [2.0, 3.0].map(bf16::from_f32);
        assert_eq!(zero_out::<ZeroOutReal, _>(&Array1::from(brains.to_vec()), None).unwrap()[1], bf16::ZERO);
    }

    #[test]
    fn a_dtype_outside_the_set_is_refused() {
        let error = zero_out::<ZeroOutFloatInt, _>(&array![1f64], None).unwrap_err();
        assert_eq!(
            error.message(),
            "ZeroOutFloatInt: input `to_zero` is float64, but must be one of float32, int32; cast it"
        );
        let error = zero_out::<ZeroOutReal, _>(&array![true], None).unwrap_err();
        assert!(error.message().contains("input `to_zero` is bool, but must be one of"), "{error}");
    }

    #[test]
    fn nan_and_infinity_do_not_leak_through_the_zeroing() {
        let x = array![f32::NAN, f32::INFINITY, 1.0];
        let zeroed = zero_out::<ZeroOutReal, _>(&x, Some(1)).unwrap();
        assert_eq!(zeroed, array![0.0, f32::INFINITY, 0.0]);
    }

    #[test]
    fn an_empty_input_has_no_element_to_preserve() {
        let error = zero_out::<ZeroOutReal, f32>(&array![], None).unwrap_err();
        assert!(error.message().contains("below the number of elements, 0, got 0"), "{error}");
        assert_eq!(zero_out::<ZeroOutFloatInt, f32>(&array![], None).unwrap().len(), 0);
    }

    #[test]
    fn an_attribute_that_does_not_fit_the_kernels_type_is_refused() {
        let error = zero_out::<ZeroOutReal, _>(&array![1u8], Some(-1)).unwrap_err();
        let expected = "ZeroOutReal: attribute `preserve_index` must be a non-negative int, got -1";
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn higher_ranks_and_shapes() {
        let x = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (12 * i + 4 * j + k + 1) as f64);
        let outputs =
            testing::call::<ZeroOutDefaultType>().input(&x).attr("preserve_index", 17).run().unwrap();
        let zeroed = outputs.array::<f64, Ix3>("zeroed").unwrap();
        assert_eq!((zeroed[[1, 1, 1]], zeroed.sum()), (18.0, 18.0));
        infer_ok!(testing::shapes::<ZeroOutReal>(), "[n,?,3]", "[n,d0_1,3]");
    }
}
