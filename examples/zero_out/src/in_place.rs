//! An input that is changed in place: `Ref(T)`.

use std::marker::PhantomData;

use opsmith::prelude::*;

/// `ZeroOutInPlace(to_zero: Ref(T))`: zeroes the caller's own tensor and gives nothing back.
///
/// The caller lends the tensor for writing, as it is, strides included, and refuses one that shares memory with another
/// input. No gradient is declared: the value that a gradient would start from is gone.
pub struct ZeroOutInPlace;

impl OpDefinition for ZeroOutInPlace {
    fn def() -> OpDef {
        OpDef::new("ZeroOutInPlace")
            .attr("T: {float, double, int32, int64}")
            .input("to_zero: Ref(T)")
            .shape_fn(shape_fns::no_outputs)
            .kernels(kernels!(KeepFirst<T> for T in [f32, f64, i32, i64]))
            .doc(
                "Sets every element of the input but the first to zero, in place.\n\
                 \n\
                 to_zero: Of any shape.",
            )
    }
}

struct KeepFirst<T>(PhantomData<fn() -> T>);

impl<T: RealNumber> OpKernel for KeepFirst<T> {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(KeepFirst(PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let mut to_zero = context.input_mut("to_zero")?.into_view::<T, IxDyn>()?;
        to_zero.iter_mut().skip(1).for_each(|element| *element = T::zero());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opsmith::{infer_ok, testing};

    use super::*;

    #[test]
    fn changes_the_callers_tensor_through_its_strides() {
        let mut x = array![[1f32, 2., 3.], [4., 5., 6.]];
        testing::call::<ZeroOutInPlace>().input_mut(&mut x.column_mut(1)).run().unwrap();
        assert_eq!(x, array![[1., 2., 3.], [4., 0., 6.]]);
        testing::call::<ZeroOutInPlace>().input_mut(&mut x).run().unwrap();
        assert_eq!(x, array![[1., 0., 0.], [0., 0., 0.]]);
    }

    #[test]
    fn it_has_no_outputs() {
        infer_ok!(testing::shapes::<ZeroOutInPlace>(), "[?,n]", "");
    }
}
