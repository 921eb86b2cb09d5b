//! Outputs: several of different dtypes, a dtype that the caller names, a shape that depends on the data.

use std::marker::PhantomData;
use std::str::FromStr;

use opsmith::prelude::*;
use opsmith::{Dim, space};

/// The largest element of a vector, and where it first occurs.
///
/// A NaN counts as larger than any number. An empty vector is an error.
#[op(shape = "(n)->(),()", gradient = max_with_index_grad)]
pub fn max_with_index<T: Float>(
    values: ArrayView1<T>,
    mut max: ArrayViewMut0<T>,
    mut position: ArrayViewMut0<i64>,
) -> Result<()> {
    ensure!(!values.is_empty(), InvalidArgument, "input `values` has no elements, so none is the largest");
    let mut largest = 0;
    for (i, &value) in values.iter().enumerate() {
        if value > values[largest] || (value.is_nan() && !values[largest].is_nan()) {
            largest = i;
        }
    }
    max.fill(values[largest]);
    position.fill(largest as i64);
    Ok(())
}

/// The gradient of `max_with_index`: the element that was the largest gets all of it.
///
/// The forward op's output `position` says which it was, so nothing is compared again.
#[op(shape = "(n),(),()->(n)", gradient = max_with_index_grad_grad)]
pub fn max_with_index_grad<T: Float>(
    values: ArrayView1<T>,
    position: ArrayView0<i64>,
    max_grad: ArrayView0<T>,
    mut values_grad: ArrayViewMut1<T>,
) -> Result<()> {
    let position = element_at(position, values.len())?;
    values_grad.fill(T::zero());
    values_grad[position] = max_grad[()];
    Ok(())
}

/// The gradient of `max_with_index_grad` with respect to `max_grad`; it does not depend on `values`.
#[op(shape = "(),(n)->()")]
pub fn max_with_index_grad_grad<T: Float>(
    position: ArrayView0<i64>,
    values_grad_grad: ArrayView1<T>,
    mut max_grad_grad: ArrayViewMut0<T>,
) -> Result<()> {
    max_grad_grad.fill(values_grad_grad[element_at(position, values_grad_grad.len())?]);
    Ok(())
}

/// A position that came from outside, checked.
fn element_at(position: ArrayView0<i64>, elements: usize) -> Result<usize> {
    let position = position[()];
    match usize::try_from(position) {
        Ok(index) if index < elements => Ok(index),
        _ => bail!(InvalidArgument, "input `position` is {position}, but there are {elements} elements"),
    }
}

/// `StringToNumber`: nothing in the input says what dtype is wanted, so an attribute does.
pub struct StringToNumber;

impl OpDefinition for StringToNumber {
    fn def() -> OpDef {
        OpDef::new("StringToNumber")
            .attr("out_type: {float, int32} = DT_FLOAT")
            .input("string_tensor: string")
            .output("output: out_type")
            .shape_fn(shape_fns::unchanged)
            .parallel("(...) -> (...)")
            .kernel(KernelDef::cpu::<ReadNumbers<f32>>().type_constraint::<f32>("out_type"))
            .kernel(KernelDef::cpu::<ReadNumbers<i32>>().type_constraint::<i32>("out_type"))
            .not_differentiable()
            .doc(
                "Reads a number from each string.\n\
                 \n\
                 string_tensor: Of any shape; blanks around a number do not matter.\n\
                 output: Of the same shape.\n\
                 out_type: The dtype of the output.",
            )
    }
}

struct ReadNumbers<T>(PhantomData<fn() -> T>);

impl<T: Element + FromStr> OpKernel for ReadNumbers<T> {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ReadNumbers(PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let texts = context.input("string_tensor")?;
        let numbers = context.allocate_output("output", texts.shape())?.into_slice::<T>()?;
        for (i, (number, bytes)) in numbers.iter_mut().zip(texts.strings()?).enumerate() {
            let text = String::from_utf8_lossy(bytes);
            let Ok(read) = text.trim().parse() else {
                bail!(
                    InvalidArgument for "string_tensor",
                    "input `string_tensor`: element {i}, `{text}`, is no {}",
                    T::DTYPE
                );
            };
            *number = read;
        }
        Ok(())
    }
}

/// `NonZero`: how many rows the output has only the data can tell. The shape function says what is known before.
pub struct NonZero;

impl OpDefinition for NonZero {
    fn def() -> OpDef {
        OpDef::new("NonZero")
            .attr("T: realnumbertype")
            .input("x: T")
            .output("indices: int64")
            .shape_fn(|c: &mut InferenceContext<'_>| {
                let indices = match c.input(0)?.rank() {
                    Some(rank) => c.matrix(Dim::Unknown, rank as u64),
                    None => c.unknown_shape_of_rank(2),
                };
                c.set_output(0, indices)
            })
            .kernels(kernels!(FindNonZero<T> for T in RealNumber))
            .not_differentiable()
            .doc(
                "Where the elements are that are not zero, in row-major order. A NaN is not zero.\n\
                 \n\
                 x: Of any shape.\n\
                 indices: A row for each such element, with as many columns as `x` has dims.",
            )
    }
}

struct FindNonZero<T>(PhantomData<fn() -> T>);

impl<T: RealNumber> OpKernel for FindNonZero<T> {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(FindNonZero(PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (x, shape) = (context.slice::<T>("x")?, context.input("x")?.shape());
        let count = x.iter().filter(|element| **element != T::zero()).count();
        let indices = context.allocate_output("indices", &[count, shape.len()])?.into_slice::<i64>()?;
        if shape.is_empty() {
            return Ok(());
        }
        let found = x.iter().enumerate().filter(|(_, element)| **element != T::zero());
        for (row, (position, _)) in indices.chunks_exact_mut(shape.len()).zip(found) {
            for (index, at) in row.iter_mut().zip(space::coordinates(shape, position)) {
                *index = at as i64;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::{Array1, Array2, arr0};
    use opsmith::{infer_ok, testing};

    use super::*;

    fn max(values: &Array1<f64>) -> Result<(f64, i64)> {
        let outputs = testing::call::<max_with_index>().input(values).run()?;
        Ok((outputs.array::<f64, Ix0>("max")?[()], outputs.array::<i64, Ix0>("position")?[()]))
    }

    #[test]
    fn the_largest_and_its_place_have_their_own_dtypes() {
        assert_eq!(max(&array![1., 3., 3., 2.]), Ok((3., 1)));
        assert_eq!(max(&array![f64::NEG_INFINITY]), Ok((f64::NEG_INFINITY, 0)));
        let (largest, position) = max(&array![f64::INFINITY, f64::NAN, f64::NAN]).unwrap();
        assert!(largest.is_nan() && position == 1);
        let error = max(&array![]).unwrap_err();
        let expected = "MaxWithIndex: input `values` has no elements, so none is the largest";
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn the_gradient_is_that_of_finite_differences() {
        let values = array![0.5, 2.0, -1.0];
        let (place, one) = (arr0(1i64), arr0(1f64));
        let call = testing::call::<max_with_index_grad>().input(&values).input(&place).input(&one);
        let gradient = call.run().unwrap().array::<f64, Ix1>("values_grad").unwrap();
        for i in 0..3 {
            let mut step = Array1::zeros(3);
            step[i] = 1e-3;
            let difference = (max(&(&values + &step)).unwrap().0 - max(&(&values - &step)).unwrap().0) / 2e-3;
            assert!((gradient[i] - difference).abs() < 1e-9);
        }
        let call = testing::call::<max_with_index_grad_grad>().input(&place).input(&values);
        assert_eq!(call.run().unwrap().array::<f64, Ix0>("max_grad_grad").unwrap(), arr0(2.0));
    }

    #[test]
    fn a_position_outside_is_an_error() {
        let (values, one) = (array![1f32], arr0(1f32));
        for position in [-1i64, 1] {
            let place = arr0(position);
            let call = testing::call::<max_with_index_grad>().input(&values).input(&place).input(&one);
            let expected =
                format!("MaxWithIndexGrad: input `position` is {position}, but there are 1 elements");
            assert_eq!(call.run().unwrap_err().message(), expected);
        }
    }

    #[test]
    fn non_zero_has_a_row_for_each_element() {
        let x = array![[0., 1., f64::NAN], [-0., 0., -2.]];
        let indices =
            testing::call::<NonZero>().input(&x).run().unwrap().array::<i64, Ix2>("indices").unwrap();
        assert_eq!(indices, array![[0, 1], [0, 2], [1, 2]]);
        let none = testing::call::<NonZero>().input(&Array2::<i32>::zeros((2, 0))).run().unwrap();
        assert_eq!(none.array::<i64, Ix2>("indices").unwrap().dim(), (0, 2));
        let scalar = testing::call::<NonZero>().input(&arr0(3u8)).run().unwrap();
        assert_eq!(scalar.array::<i64, Ix2>("indices").unwrap().dim(), (1, 0));
    }

    #[test]
    fn shapes() {
        infer_ok!(testing::shapes::<max_with_index>(), "[?]", "[];[]");
        infer_ok!(testing::shapes::<max_with_index_grad>(), "[n];[];[]", "[n]");
        infer_ok!(testing::shapes::<StringToNumber>(), "[?,2]", "[d0_0,2]");
        infer_ok!(testing::shapes::<NonZero>(), "[3,4,5]", "[?,3]");
        infer_ok!(testing::shapes::<NonZero>(), "?", "[?,?]");
    }
}
