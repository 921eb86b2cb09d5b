//! Arguments that are lists of tensors: a number of one dtype, or of several dtypes.

use std::marker::PhantomData;

use opsmith::prelude::*;

/// `SumInts(N * int32)`: any number of tensors of a fixed dtype. `N` is what the caller's list has.
pub struct SumInts;

impl OpDefinition for SumInts {
    fn def() -> OpDef {
        OpDef::new("SumInts")
            .attr("N: int")
            .input("terms: N * int32")
            .output("sum: int32")
            .shape_fn(shape_fns::merged)
            .parallel("(...) -> (...)")
            .kernel(KernelDef::cpu::<Sum<i32>>())
            .not_differentiable()
            .doc(
                "The sum of int32 tensors, which wraps around on overflow.\n\
                 \n\
                 terms: One tensor or more, all of one shape.\n\
                 sum: Of the same shape.",
            )
    }
}

/// `SumAll(N * T)`: at least two tensors of one dtype, whichever it is.
pub struct SumAll;

impl OpDefinition for SumAll {
    fn def() -> OpDef {
        OpDef::new("SumAll")
            .attr("N: int >= 2")
            .attr("T: {float, double, int32, int64}")
            .input("terms: N * T")
            .output("sum: T")
            .shape_fn(shape_fns::merged)
            .parallel("(...) -> (...)")
            .kernels(kernels!(Sum<T> for T in [f32, f64, i32, i64]))
            .gradient("SumAllGrad")
            .doc(
                "The sum of tensors; of integers, it wraps around on overflow.\n\
                 \n\
                 terms: Two tensors or more, all of one shape and dtype.\n\
                 sum: Of the same shape and dtype.",
            )
    }
}

/// The gradient of `SumAll`: the arriving one, for each term.
///
/// It takes the terms so that there are as many gradients.
///
/// # Arguments
/// - `terms`: The terms.
/// - `sum_grad`: The gradient with respect to `sum`.
/// - `terms_grad`: The gradient with respect to each term.
#[op(
    shape = "(...),(...)->(...)",
    dtypes(T = [f32, f64, i32, i64]),
    gradient = sum_all_grad_grad,
    parallel = "..."
)]
pub fn sum_all_grad<T: RealNumber>(
    _terms: &[ArrayViewD<T>],
    sum_grad: ArrayViewD<T>,
    terms_grad: Vec<ArrayViewMutD<T>>,
) {
    for mut term_grad in terms_grad {
        term_grad.assign(&sum_grad);
    }
}

/// The gradient of `SumAllGrad` with respect to what it was given is a sum again.
///
/// # Arguments
/// - `terms_grad_grad`: The gradients with respect to `terms_grad`.
/// - `sum_grad_grad`: The gradient with respect to `sum_grad`.
#[op(shape = "(...)->(...)", dtypes(T = [f32, f64, i32, i64]), parallel = "...")]
pub fn sum_all_grad_grad<T: Wrapping>(
    terms_grad_grad: &[ArrayViewD<T>],
    mut sum_grad_grad: ArrayViewMutD<T>,
) {
    sum_grad_grad.fill(T::zero());
    for term in terms_grad_grad {
        azip!((sum in &mut sum_grad_grad, &term in term) *sum = sum.plus(term));
    }
}

/// Adds the tensors of input 0, which is a list.
struct Sum<T>(PhantomData<fn() -> T>);

impl<T: Wrapping> OpKernel for Sum<T> {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Sum(PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let terms = context.input_list(0)?;
        let shape = terms[0].shape();
        for (i, term) in terms.iter().enumerate() {
            let list = &context.signature().inputs[0].name;
            ensure!(
                term.shape() == shape,
                InvalidArgument for list,
                "input `{list}[{i}]` has shape {:?}, but `{list}[0]` has {shape:?}",
                term.shape()
            );
        }
        let sum = context.allocate_output(0, shape)?.into_slice::<T>()?;
        sum.fill(T::zero());
        for term in terms {
            for (sum, &term) in sum.iter_mut().zip(term.as_slice::<T>()?) {
                *sum = sum.plus(term);
            }
        }
        Ok(())
    }
}

/// Addition that is the same in every build: of integers it wraps around.
pub trait Wrapping: Number {
    /// The sum.
    fn plus(self, other: Self) -> Self;
}

macro_rules! wrapping {
    ($($integer:ty),*; $($float:ty),*) => {
        $(impl Wrapping for $integer {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        })*
        $(impl Wrapping for $float {
            fn plus(self, other: Self) -> Self {
                self + other
            }
        })*
    };
}

wrapping!(i32, i64; f32, f64);

/// `ZeroOutEach(list(type))`: a list of tensors of which each has its own dtype, in and out.
///
/// No gradient is declared: some of the tensors may be integers, which have none.
pub struct ZeroOutEach;

impl OpDefinition for ZeroOutEach {
    fn def() -> OpDef {
        OpDef::new("ZeroOutEach")
            .attr("T: list({float, double, int32, int64})")
            .input("to_zero: T")
            .output("zeroed: T")
            .shape_fn(|c: &mut InferenceContext<'_>| {
                let shapes = c.input_list("to_zero")?;
                c.set_output_list("zeroed", shapes)
            })
            .kernel(KernelDef::cpu::<ZeroOutEach>())
            .doc(
                "Copies tensors and sets every element of each but the first to zero.\n\
                 \n\
                 to_zero: One tensor or more, each of any shape and of its own dtype.\n\
                 zeroed: For each a tensor of the same shape and dtype.",
            )
    }
}

impl OpKernel for ZeroOutEach {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ZeroOutEach)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        for (element, to_zero) in context.input_list("to_zero")?.into_iter().enumerate() {
            let zeroed = context.allocate_output_at("zeroed", element, to_zero.shape())?;
            // From here on the dtype is a type.
            dispatch!(to_zero.dtype(), [f32, f64, i32, i64], |T| keep_first::<T>(to_zero, zeroed))?;
        }
        Ok(())
    }
}

fn keep_first<T: Number>(to_zero: TensorView<'_>, zeroed: TensorViewMut<'_>) -> Result<()> {
    let (to_zero, zeroed) = (to_zero.as_slice::<T>()?, zeroed.into_slice::<T>()?);
    zeroed.fill(T::zero());
    if let [kept, ..] = zeroed {
        *kept = to_zero[0];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use opsmith::testing::{self, view};
    use opsmith::{infer_error, infer_ok};

    use super::*;

    #[test]
    fn sums_a_list_of_any_length() {
        let (a, b, c) = (array![1, i32::MAX], array![2, 1], array![4, 0]);
        let outputs = testing::call::<SumInts>().input_list([view(&a), view(&b), view(&c)]).run().unwrap();
        assert_eq!(outputs.array::<i32, Ix1>("sum").unwrap(), array![7, i32::MIN]);
        let outputs = testing::call::<SumInts>().input_list([view(&a)]).run().unwrap();
        assert_eq!(outputs.array::<i32, Ix1>("sum").unwrap(), a);
    }

    #[test]
    fn lists_are_checked() {
        let message = |call: testing::Call<'_>| call.run().unwrap_err().message().to_owned();
        let (a, b, c) = (array![1f32, 2.], array![1f64, 2.], array![1f32]);
        assert!(message(testing::call::<SumInts>().input_list([])).contains("at least 1"));
        assert!(message(testing::call::<SumAll>().input_list([view(&a)])).contains("at least 2"));
        assert_eq!(
            message(testing::call::<SumAll>().input_list([view(&a), view(&b)])),
            "SumAll: inputs `terms[0]` and `terms[1]` must have one dtype, got float32 and float64; cast one of them"
        );
        assert_eq!(
            message(testing::call::<SumAll>().input_list([view(&a), view(&c)])),
            "SumAll: input `terms[1]` has shape [1], but `terms[0]` has [2]"
        );
        let error = message(testing::call::<SumInts>().input(&a));
        assert_eq!(error, "SumInts: input `terms[0]` is float32, but must be int32");
    }

    #[test]
    fn each_term_gets_the_gradient_of_the_sum() {
        let (a, b, g) = (array![1f64, 2.], array![3., 4.], array![0.5, -1.]);
        let call = testing::call::<sum_all_grad>().input_list([view(&a), view(&b)]).input(&g);
        let outputs = call.run().unwrap();
        assert_eq!(outputs.count("terms_grad"), 2);
        for term in 0..2 {
            assert_eq!(outputs.element::<f64, Ix1>("terms_grad", term).unwrap(), g);
        }
        let outputs = testing::call::<sum_all_grad_grad>().input_list([view(&a), view(&b)]).run().unwrap();
        assert_eq!(outputs.array::<f64, Ix1>("sum_grad_grad").unwrap(), array![4., 6.]);
    }

    #[test]
    fn each_tensor_of_a_mixed_list_keeps_its_dtype() {
        let (a, b) = (array![1f32, 2.], array![[3i64, 4], [5, 6]]);
        let outputs = testing::call::<ZeroOutEach>().input_list([view(&a), view(&b)]).run().unwrap();
        assert_eq!(outputs.element::<f32, Ix1>("zeroed", 0).unwrap(), array![1., 0.]);
        assert_eq!(outputs.element::<i64, Ix2>("zeroed", 1).unwrap(), array![[3, 0], [0, 0]]);
    }

    #[test]
    fn shapes() {
        infer_ok!(testing::shapes::<SumAll>(), "[?,3];[2,?]", "[2,3]");
        infer_error!(testing::shapes::<SumAll>(), "terms", "[2];[3]");
        infer_ok!(testing::shapes::<sum_all_grad>(), "[2];[2];[2]", "[2];[2]");
        infer_ok!(testing::shapes::<ZeroOutEach>(), "[n];?;[]", "[n];?;[]");
    }
}
