//! Attributes: which element is kept, chosen by the caller.

use opsmith::prelude::*;

/// `ZeroOutPreserve`: the element at `preserve_index`, counted in row-major order, is kept.
///
/// The attribute has no default, so every call must give it.
pub struct ZeroOutPreserve {
    preserve_index: usize,
}

impl OpDefinition for ZeroOutPreserve {
    fn def() -> OpDef {
        OpDef::new("ZeroOutPreserve")
            .attr("preserve_index: int")
            .input("to_zero: int32")
            .output("zeroed: int32")
            .shape_fn(shape_fns::unchanged)
            .kernel(KernelDef::cpu::<ZeroOutPreserve>())
            .not_differentiable()
            .doc(
                "Copies the input and sets every element but that at `preserve_index` to zero.\n\
                 \n\
                 to_zero: Of any shape with more than `preserve_index` elements.\n\
                 zeroed: Of the same shape.\n\
                 preserve_index: Which element to keep, counted from 0 in row-major order.",
            )
    }
}

impl OpKernel for ZeroOutPreserve {
    /// What can be checked without the input is checked once, here. (`"preserve_index: int >= 0"` would say the same
    /// in the definition, where frameworks and documentation see it.)
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let index: i64 = construction.attr("preserve_index")?;
        let preserve_index = usize::try_from(index);
        ensure!(
            preserve_index.is_ok(),
            InvalidArgument for "preserve_index",
            "attribute `preserve_index` must not be negative, got {index}"
        );
        Ok(ZeroOutPreserve { preserve_index: preserve_index.unwrap_or_default() })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let to_zero = context.slice::<i32>("to_zero")?;
        check_index(self.preserve_index, to_zero.len())?;
        let mut output = context.allocate_output("zeroed", context.input("to_zero")?.shape())?;
        let zeroed = output.as_slice_mut::<i32>()?;
        zeroed.fill(0);
        zeroed[self.preserve_index] = to_zero[self.preserve_index];
        Ok(())
    }
}

/// `ZeroOutPreserveDefault`: as [`ZeroOutPreserve`], and the first element is kept unless the call says otherwise.
///
/// A default is what makes it safe to add an attribute to an op that is already in use.
pub struct ZeroOutPreserveDefault;

impl OpDefinition for ZeroOutPreserveDefault {
    fn def() -> OpDef {
        OpDef::new("ZeroOutPreserveDefault")
            .attr("preserve_index: int = 0")
            .input("to_zero: int32")
            .output("zeroed: int32")
            .shape_fn(shape_fns::unchanged)
            .kernel(KernelDef::cpu::<ZeroOutPreserve>())
            .not_differentiable()
            .doc(
                "Copies the input and sets every element but that at `preserve_index` to zero.\n\
                 \n\
                 to_zero: Of any shape with more than `preserve_index` elements.\n\
                 zeroed: Of the same shape.\n\
                 preserve_index: Which element to keep, counted from 0 in row-major order.",
            )
    }
}

/// An error unless there is an element at `index`.
pub(crate) fn check_index(index: usize, elements: usize) -> Result<()> {
    ensure!(
        index < elements,
        InvalidArgument for "preserve_index",
        "attribute `preserve_index` must be below the number of elements, {elements}, got {index}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::Array1;
    use opsmith::{infer_ok, testing};

    use super::*;

    #[test]
    fn keeps_the_chosen_element() {
        let x = array![[5, 4], [3, 2]];
        let outputs = testing::call::<ZeroOutPreserve>().input(&x).attr("preserve_index", 2).run().unwrap();
        assert_eq!(outputs.array::<i32, Ix2>("zeroed").unwrap(), array![[0, 0], [3, 0]]);
        let outputs = testing::call::<ZeroOutPreserveDefault>().input(&x).run().unwrap();
        assert_eq!(outputs.array::<i32, Ix2>("zeroed").unwrap(), array![[5, 0], [0, 0]]);
    }

    #[test]
    fn a_required_attribute_is_required() {
        let error = testing::call::<ZeroOutPreserve>().input(&array![1]).run().unwrap_err();
        let expected = "ZeroOutPreserve: attribute `preserve_index`, an int, is missing and has no default";
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn the_index_is_checked_by_the_constructor_and_against_the_size() {
        let call = |index: i64, x: &Array1<i32>| {
            let call = testing::call::<ZeroOutPreserveDefault>().input(x).attr("preserve_index", index);
            call.run().unwrap_err().to_string()
        };
        assert_eq!(
            call(-1, &array![1, 2]),
            "InvalidArgument: ZeroOutPreserveDefault: attribute `preserve_index` must not be negative, got -1"
        );
        let too_large = "InvalidArgument: ZeroOutPreserveDefault: attribute `preserve_index` must be below the number \
                         of elements";
        assert_eq!(call(2, &array![1, 2]), format!("{too_large}, 2, got 2"));
        assert_eq!(call(0, &array![]), format!("{too_large}, 0, got 0"));
    }

    #[test]
    fn shapes() {
        let op = testing::shapes::<ZeroOutPreserveDefault>();
        infer_ok!(op, "?", "in0");
        infer_ok!(op, "[n,3]", "[n,3]");
    }
}
