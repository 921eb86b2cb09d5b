//! Ops that pass values on or make them: copies, zeros, numbers of a shape, assignment.

use opsmith::prelude::*;

use crate::card;
use crate::define::ops;
use crate::linear::{self, FLOATS, Facts, Forward, Linear, is_float, last_input};
use crate::moved::{Moved, for_every_dtype, make, zeros};
use crate::moved_on_card::moves;
use crate::parameters::dims;
use crate::sums::sum_to_as;

ops! {
    /// The op `Identity`: what it is given.
    Identity = linear::forward::<Same>(), with &[linear::gradient::<Same>, linear::second::<Same>];
    /// The op `StopGradient`: what it is given, as a constant for derivatives.
    StopGradient = stop_gradient();
    /// The op `Shape`: the dims of a tensor.
    Shape = shape();
    /// The op `ZerosLike`: zeros of a tensor's shape.
    ZerosLike = zeros_like();
    /// The op `Fill`: one value in every place of a shape.
    Fill = fill(), with &[fill_grad, fill_grad_grad];
    /// The op `Assign`: a value in place of another.
    Assign = assign();
}

struct Same {
    is_text: bool,
}

impl Linear for Same {
    const FACTS: Facts = Facts {
        name: "Identity",
        x: "x",
        attrs: &[],
        dtypes: "type",
        parameters: &[],
        host: &[],
        dims: &["(...)", "(...)"],
        doc: "What it is given, in the same memory where nobody else needs that.\n\nx: Any tensor.\ny: The same values.",
        shape: |c| c.input(0),
    };

    const ON_CARD: [fn(DType) -> bool; 2] = [moves; 2];

    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Same { is_text: construction.attr::<DType>("T")? == DType::String })
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        if self.is_text {
            return context.set_output(0, context.input(0)?);
        }
        if crate::card::is_on_card(context) {
            return make(context, (0, 0), Moved::new(context.input(0)?));
        }
        let (mut output, given) =
            context.forward_input_or_allocate_output(&[0], 0, context.input_shape(0)?)?;
        if given.is_some() { Ok(()) } else { output.assign(context.input(0)?) }
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let shape = context.input_shape(0)?;
        make(context, (0, 0), Moved::new(last_input(context, shape)?))
    }
}

fn stop_gradient() -> OpDef {
    OpDef::new("StopGradient")
        .attr("T: type")
        .input("x: T")
        .output("y: T")
        .parallel("(...) -> (...)")
        .doc(
            "What it is given, as a constant for derivatives: no gradient flows back.\n\n\
             x: Any tensor.\n\
             y: The same values.",
        )
        .shape_fn(shape_fns::unchanged)
        .not_differentiable()
        .kernels(for_every_dtype::<Forward<Same>>(true))
        .kernels(card::kernels::<Forward<Same>>(moves))
}

/// A kernel without state that is one function.
macro_rules! kernel {
    ($name:ident, |$context:ident| $body:expr) => {
        struct $name;

        impl OpKernel for $name {
            fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
                Ok($name)
            }

            fn compute(&self, $context: &mut OpKernelContext<'_>) -> Result<()> {
                $body
            }
        }
    };
}

kernel!(ShapeKernel, |context| {
    let shape = context.input_shape(0)?;
    let mut output = context.allocate_output(0, &[shape.len()])?;
    match output.dtype() {
        DType::Int32 => {
            for (to, &dim) in output.as_slice_mut::<i32>()?.iter_mut().zip(shape) {
                *to = i32::try_from(dim).map_err(|_| {
                    Error::invalid_argument(format!("dim {dim} does not fit int32; ask for int64"))
                })?;
            }
        }
        _ => output.as_slice_mut::<i64>()?.iter_mut().zip(shape).for_each(|(to, &dim)| *to = dim as i64),
    }
    Ok(())
});

fn shape() -> OpDef {
    OpDef::new("Shape")
        .attr("dtype: {int32, int64} = DT_INT64")
        .attr("T: type")
        .input("x: T")
        .output("y: dtype")
        .doc("The dims of a tensor.\n\nx: Any tensor.\ndtype: The dtype of the dims.\ny: A vector of as many numbers as `x` has dims.")
        .shape_fn(|c| {
            let rank = c.input(0)?.rank();
            let shape = rank.map_or_else(|| c.unknown_shape_of_rank(1), |rank| c.vector(rank as u64));
            c.set_output(0, shape)
        })
        .not_differentiable()
        .kernels(DType::ALL.map(|dtype| KernelDef::cpu::<ShapeKernel>().strided().dtype_constraint("T", dtype)))
}

kernel!(Zeros, |context| {
    let like = context.input(0)?;
    if like.dtype() == DType::String {
        return context.allocate_output(0, like.shape()).map(drop);
    }
    zeros(context, like)
});

fn zeros_like() -> OpDef {
    OpDef::new("ZerosLike")
        .attr("T: type")
        .input("x: T")
        .output("y: T")
        .parallel("(...) -> (...)")
        .doc("Zeros, of a tensor's shape and dtype; of text, empty text.\n\nx: Any tensor.\ny: Of the same shape.")
        .shape_fn(shape_fns::unchanged)
        .not_differentiable()
        .kernels(DType::ALL.map(|dtype| KernelDef::cpu::<Zeros>().strided().dtype_constraint("T", dtype)))
        .kernels(card::kernels::<Zeros>(moves))
}

kernel!(Filling, |context| {
    let shape = dims(context, "dims")?;
    let value = Moved::new(only(context, 1)?).scalar();
    make(context, (0, 0), value.repeated(&shape).ok_or_else(|| Error::internal("a number fits every shape"))?)
});

/// An input that has one element.
fn only<'a>(context: &OpKernelContext<'a>, input: usize) -> Result<TensorView<'a>> {
    let (tensor, signature) = (context.input(input)?, context.signature());
    ensure!(
        tensor.num_elements() == 1,
        InvalidArgument,
        "input `{}` must have one element, got shape {:?}",
        signature.inputs[input].name,
        tensor.shape()
    );
    Ok(tensor)
}

/// The ops of this family but for their first input and their output.
fn filling(name: &str, dtypes: &str) -> OpDef {
    OpDef::new(name)
        .attr("Index: {int32, int64} = DT_INT64")
        .attr(&format!("T: {dtypes}"))
        .input("dims: Index")
}

fn fill() -> OpDef {
    filling("Fill", "type")
        .input("value: T")
        .output("y: T")
        .doc(
            "One value in every place of a shape.\n\n\
             dims: The shape, a vector.\n\
             value: A tensor of one element.\n\
             y: Of that shape.",
        )
        .shape_fn(filled_shape)
        .gradient("FillGrad")
        .kernels(
            for_every_dtype::<Filling>(true)
                .chain(card::kernels::<Filling>(moves))
                .map(|kernel| kernel.host_memory("dims")),
        )
}

fn filled_shape(c: &mut InferenceContext<'_>) -> Result<()> {
    let shape = c.shape_from_input(0)?;
    c.set_output(0, shape)
}

kernel!(FillGrad, |context| {
    let shape = context.input_shape("value")?;
    let gradient = last_input(context, &dims(context, "dims")?)?;
    let ones = vec![1; gradient.rank().max(shape.len())];
    // A sum to one element is of any shape that has one.
    sum_to_as(context, gradient, 0, (shape, &ones[..gradient.rank()]))
});

fn fill_grad() -> OpDef {
    filling("FillGrad", FLOATS)
        .input("value: T")
        .input("y_grad: T")
        .output("value_grad: T")
        .doc("The gradient of `Fill`.")
        .shape_fn(|c| {
            let shape = c.input(1)?;
            c.set_output(0, shape)
        })
        .gradient("FillGradGrad")
        .kernels(
            linear::floats::<FillGrad>()
                .chain(card::kernels::<FillGrad>(is_float))
                .map(|kernel| kernel.host_memory("dims")),
        )
}

fn fill_grad_grad() -> OpDef {
    filling("FillGradGrad", FLOATS)
        .input("value_grad_grad: T")
        .output("y_grad_grad: T")
        .doc("The gradient of `FillGrad`.")
        .shape_fn(filled_shape)
        .kernels(
            linear::floats::<Filling>()
                .chain(card::kernels::<Filling>(is_float))
                .map(|kernel| kernel.host_memory("dims")),
        )
}

kernel!(Assigning, |context| {
    let value = context.input("value")?;
    let mut target = context.input_mut("x")?;
    ensure!(
        target.shape() == value.shape(),
        InvalidArgument for "value",
        "input `value` must have the shape of `x`, {:?}, got {:?}",
        target.shape(),
        value.shape()
    );
    target.assign(value)
});

fn assign() -> OpDef {
    let dtypes = DType::ALL.into_iter().filter(|dtype| *dtype != DType::String);
    OpDef::new("Assign")
        .attr("T: type")
        .input("x: Ref(T)")
        .input("value: T")
        .doc(
            "Puts a value in place of another.\n\n\
             x: What is changed in place; not text.\n\
             value: The new value, of the same shape.",
        )
        .shape_fn(|c| {
            let (x, value) = (c.input(0)?, c.input(1)?);
            c.merge_shapes(&x, &value).map(drop)
        })
        .not_differentiable()
        .kernels(dtypes.map(|dtype| KernelDef::cpu::<Assigning>().strided().dtype_constraint("T", dtype)))
}

#[cfg(test)]
mod tests {
    use opsmith::{infer_ok, testing};

    use super::*;

    #[test]
    fn assignment_needs_the_same_shape() -> Result<()> {
        let (mut x, value) = (array![[1, 2], [3, 4]], array![[5, 6], [7, 8]]);
        testing::call::<Assign>().input_mut(&mut x).input(&value.t()).run()?;
        assert_eq!(x, array![[5, 7], [6, 8]]);
        let error = testing::call::<Assign>().input_mut(&mut x).input(&array![1]).run().unwrap_err();
        assert_eq!(error.message(), "Assign: input `value` must have the shape of `x`, [2, 2], got [1]");
        Ok(())
    }

    #[test]
    fn values_of_a_shape() -> Result<()> {
        let outputs = testing::call::<Fill>().input(&array![2i32, 1]).input(&array![[true]]).run()?;
        assert_eq!(outputs.array::<bool, Ix2>("y")?, array![[true], [true]]);
        let error = testing::call::<Fill>().input(&array![-1i32]).input(&array![1.0]).run().unwrap_err();
        assert_eq!(error.message(), "Fill: `dims` is a shape, but -1 is not the size of a dim: [-1]");
        let outputs = testing::call::<Shape>().input(&array![[1.0, 2.0]]).run()?;
        assert_eq!(outputs.array::<i64, Ix1>("y")?, array![1, 2]);
        infer_ok!(testing::shapes::<Shape>(), "[2,?,3]", "[3]");
        infer_ok!(testing::shapes::<Fill>(), "[3];[]", "[?,?,?]");
        Ok(())
    }
}
