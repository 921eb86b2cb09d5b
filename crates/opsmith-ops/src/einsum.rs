//! Products of tensors along named dims.

mod card;
mod contract;
#[cfg(test)]
mod cuda_tests;
mod equation;
#[cfg(test)]
mod tests;

use opsmith::dtype::sets;
use opsmith::prelude::*;
use opsmith::space::Extents;
use opsmith::{Dim, Shape};

use self::contract::{Operand, contract, multiply_into, spread};
use self::equation::{Equation, Labels};
use crate::along::of_real_numbers;
use crate::define::ops;
use crate::linear::{FLOATS, floats_with, is_float};
use crate::matmul::Gemm;
use crate::wide::Wide;

ops! {
    /// The op `Einsum`: products of tensors along named dims.
    Einsum = forward(), with &[gradient, second_gradient];
}

/// The sizes of the dims of a call, which may be 1 in some tensors, and what they are in each tensor.
struct Call {
    labels: Labels,
    shapes: Vec<Extents>,
    /// The shape of the output.
    shape: Extents,
}

impl Call {
    fn new(equation: &Equation, tensors: &[TensorView<'_>]) -> Result<Call> {
        let ranks: Vec<usize> = tensors.iter().map(TensorView::rank).collect();
        let mut labels = equation.labels(&ranks)?;
        let shapes: Vec<Extents> = tensors.iter().map(|tensor| Extents::from_slice(tensor.shape())).collect();
        for (own, shape) in labels.inputs.iter().zip(&shapes) {
            for (at, (&label, &dim)) in own.iter().zip(shape).enumerate() {
                let first = own.iter().position(|other| *other == label).unwrap_or(at);
                ensure!(
                    shape[first] == dim,
                    InvalidArgument for "inputs",
                    "the dims of a letter that one tensor has several times, in `equation`, `{equation}`, must be equal, got shape \
                     {shape:?}"
                );
                let size = labels.sizes.entry(label).or_insert(dim);
                ensure!(
                    *size == dim || *size == 1 || dim == 1,
                    InvalidArgument for "inputs",
                    "the dims of one letter in `equation`, `{equation}`, must be equal or 1, got shapes {shapes:?}"
                );
                *size = if *size == 1 { dim } else { *size };
            }
        }
        let shape: Extents = labels.output.iter().map(|label| labels.sizes[label]).collect();
        ensure!(
            crate::parameters::elements(&shape).is_some(),
            ResourceExhausted,
            "a product of shape {shape:?} is too large"
        );
        Ok(Call { labels, shapes, shape })
    }

    /// An input, or a tensor of its shape.
    fn operand<'a, T: Gemm>(
        &self,
        cx: &Compute<'a>,
        index: usize,
        numbers: &'a [T],
    ) -> Result<Operand<ArrayViewD<'a, T>>> {
        Operand::new(cx, &self.labels.inputs[index], &self.shapes[index], numbers, &self.labels.sizes)
    }

    /// Adds the gradient of an input, from that of the output and all inputs, to `to`.
    fn gradient<'a, T: Gemm>(
        &self,
        cx: &Compute<'a>,
        index: usize,
        y_grad: &'a [T],
        inputs: &[&'a [T]],
        to: &mut [T],
    ) -> Result<()> {
        let own = self.operand(cx, index, inputs[index])?.labels;
        let mut operands =
            vec![Operand::new(cx, &self.labels.output, &self.shape, y_grad, &self.labels.sizes)?];
        for (other, numbers) in inputs.iter().enumerate().filter(|(other, _)| *other != index) {
            operands.push(self.operand(cx, other, numbers)?);
        }
        let found = contract(cx, operands, &own, &self.labels.sizes)?.arranged(&own);
        spread(found, &own, (&self.labels.inputs[index], &self.shapes[index]), to)
    }
}

/// All numbers of the tensors of a list.
fn wide<'a, T: Wide>(cx: &Compute<'a>, tensors: &[TensorView<'a>]) -> Result<Vec<&'a [T::As]>> {
    tensors.iter().map(|tensor| T::wide(cx, tensor.as_slice()?)).collect()
}

/// Adds what `operands` give to `to`.
fn add<'a, T: Gemm>(
    cx: &Compute<'a>,
    call: &Call,
    operands: Vec<Operand<ArrayViewD<'a, T>>>,
    to: &mut [T],
) -> Result<()> {
    let found = contract(cx, operands, &call.labels.output, &call.labels.sizes)?;
    spread(found.arranged(&call.labels.output), &call.labels.output, (&call.labels.output, &call.shape), to)
}

struct Forward(Equation);

impl OpKernel for Forward {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Equation::new(&construction.attr::<String>("equation")?).map(Forward)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensors = context.input_list("inputs")?;
        let call = Call::new(&self.0, &tensors)?;
        if crate::card::is_on_card(context) {
            return card::forward(context, &call, &tensors);
        }
        dispatch!(tensors[0].dtype(), RealNumber, |T| {
            let (cx, mut y) = (context.compute(), context.allocate_output(0, &call.shape)?);
            let inputs = wide::<T>(&cx, &tensors)?;
            let operands =
                inputs.iter().enumerate().map(|(index, numbers)| call.operand(&cx, index, numbers));
            let operands = operands.collect::<Result<Vec<_>>>()?;
            T::narrow(&cx, y.as_slice_mut()?, |to| {
                if multiply_into(&cx, &operands, &call.labels.output, to)? {
                    return Ok(());
                }
                to.fill(num_traits::Zero::zero());
                add(&cx, &call, operands, to)
            })
        })
    }
}

/// The gradients of the inputs; the `SECOND` one is of the sum, over the inputs, of the products with one input replaced by the gradient
/// of its gradient.
struct Gradient<const SECOND: bool>(Equation);

impl<const SECOND: bool> OpKernel for Gradient<SECOND> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Equation::new(&construction.attr::<String>("equation")?).map(Gradient)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (tensors, y_grad) = (context.input_list("inputs")?, context.input("y_grad")?);
        let call = Call::new(&self.0, &tensors)?;
        ensure!(
            y_grad.shape() == &call.shape[..],
            InvalidArgument for "y_grad",
            "input `y_grad` must have shape {:?}, got {:?}",
            call.shape,
            y_grad.shape()
        );
        let changes = if SECOND { context.input_list("inputs_grad_grad")? } else { Vec::new() };
        for (change, shape) in changes.iter().zip(&call.shapes) {
            ensure!(
                change.shape() == &shape[..],
                InvalidArgument for "inputs_grad_grad",
                "input `inputs_grad_grad` must have the shapes of `inputs`, {:?}, got {:?}",
                call.shapes,
                change.shape()
            );
        }
        if crate::card::is_on_card(context) {
            let changes = SECOND.then_some(&changes[..]);
            return card::gradients(context, &call, y_grad, (&tensors, changes));
        }
        dispatch!(y_grad.dtype(), AnyFloat, |T| {
            let cx = context.compute();
            let y_grad = <T as Wide>::wide(&cx, y_grad.as_slice()?)?;
            let (inputs, changes) = (wide::<T>(&cx, &tensors)?, wide::<T>(&cx, &changes)?);
            // One input at a time changes; none, of the first order.
            let replaced = |at: usize| {
                let mut numbers = inputs.clone();
                numbers[at] = changes[at];
                numbers
            };
            for (index, shape) in call.shapes.iter().enumerate() {
                let mut output = context.allocate_output_at(0, index, shape)?;
                T::narrow(&cx, output.as_slice_mut()?, |to| {
                    to.fill(0.0);
                    if !SECOND {
                        return call.gradient(&cx, index, y_grad, &inputs, to);
                    }
                    let mut others = (0..inputs.len()).filter(|&at| at != index);
                    others.try_for_each(|at| call.gradient(&cx, index, y_grad, &replaced(at), to))
                })?;
            }
            if SECOND {
                let mut output = context.allocate_output("y_grad_grad", &call.shape)?;
                T::narrow(&cx, output.as_slice_mut()?, |to| {
                    to.fill(0.0);
                    (0..inputs.len()).try_for_each(|at| {
                        let numbers = replaced(at);
                        let operands =
                            numbers.iter().enumerate().map(|(index, own)| call.operand(&cx, index, own));
                        add(&cx, &call, operands.collect::<Result<Vec<_>>>()?, to)
                    })
                })?;
            }
            Ok(())
        })
    }
}

/// The shape of the output.
fn output_shape(c: &mut InferenceContext<'_>) -> Result<Shape> {
    let equation = Equation::new(c.get_string("equation")?)?;
    let shapes = c.input_list("inputs")?;
    let Some(ranks) = shapes.iter().map(Shape::rank).collect::<Option<Vec<_>>>() else {
        return Ok(Shape::unknown());
    };
    let labels = equation.labels(&ranks)?;
    let mut sizes: Vec<(equation::Label, Shape)> = Vec::new();
    for (own, shape) in labels.inputs.iter().zip(&shapes) {
        let mut dims: Vec<(equation::Label, Shape)> = Vec::new();
        for (&label, dim) in own.iter().zip(shape.dims().unwrap_or_default()) {
            let dim: Shape = vec![dim.clone()].into();
            match dims.iter_mut().find(|(known, _)| *known == label) {
                Some((_, size)) => *size = c.merge_shapes(size, &dim)?,
                None => dims.push((label, dim)),
            }
        }
        for (label, dim) in dims {
            match sizes.iter_mut().find(|(known, _)| *known == label) {
                Some((_, size)) => *size = c.broadcast(size, &dim)?,
                None => sizes.push((label, dim)),
            }
        }
    }
    let size = |label: &equation::Label| {
        let found = sizes
            .iter()
            .find(|(known, _)| known == label)
            .and_then(|(_, size)| size.dims()?.first().cloned());
        found.unwrap_or(Dim::Unknown)
    };
    Ok(labels.output.iter().map(size).collect())
}

fn begin(name: &str, dtypes: &str) -> OpDef {
    OpDef::new(name)
        .attr("equation: string")
        .attr("N: int >= 1")
        .attr(&format!("T: {dtypes}"))
        .input("inputs: N * T")
}

fn forward() -> OpDef {
    begin("Einsum", "realnumbertype")
        .output("y: T")
        .doc(
            "Products of tensors along named dims, summed over the dims that the output lacks, in Einstein's notation: `ij,jk->ik` is the \
             product of two matrices, `bii->b` the traces of some. Tensors are multiplied from left to right. float16 and bfloat16 are \
             added up in float32; sums and products of integers wrap around.\n\n\
             equation: A letter for each dim of each input, then `->` and those of the output. `...` stands for any number of dims, which \
             broadcast. Dims of one letter are equal, or 1 and repeated along those of other inputs; within one input they are equal. \
             Without `->` the output has the letters that are there once, in alphabetical order, behind what `...` stands for.\n\
             N: How many inputs there are.\n\
             inputs: Any numbers.\n\
             y: Of the dims that `equation` says.",
        )
        .shape_fn(|c| {
            let shape = output_shape(c)?;
            c.set_output(0, shape)
        })
        .gradient("EinsumGrad")
        .autocast(opsmith::Autocast::Lower)
        .kernels(of_real_numbers::<Forward>())
        .kernels(crate::card::kernels::<Forward>(|dtype| sets::REAL_NUMBER.contains(&dtype)))
}

/// The gradients of inputs are like them, and behind them comes that of the gradient of the output.
fn like_inputs(c: &mut InferenceContext<'_>) -> Result<()> {
    let (shape, own) = (output_shape(c)?, c.input_range("y_grad")?);
    let given = c.input(own.start)?;
    let shape = c.merge_shapes(&shape, &given)?;
    for index in 0..own.start {
        let shape = c.input(index)?;
        c.set_output(index, shape)?;
    }
    if c.num_outputs() > own.start { c.set_output(own.start, shape) } else { Ok(()) }
}

fn gradient() -> OpDef {
    begin("EinsumGrad", FLOATS)
        .input("y_grad: T")
        .output("inputs_grad: N * T")
        .doc("The gradient of `Einsum`.")
        .shape_fn(like_inputs)
        .gradient("EinsumGradGrad")
        .kernels(floats_with::<Gradient<false>>(false))
        .kernels(crate::card::kernels::<Gradient<false>>(is_float))
}

fn second_gradient() -> OpDef {
    begin("EinsumGradGrad", FLOATS)
        .input("y_grad: T")
        .input("inputs_grad_grad: N * T")
        .output("inputs_grad: N * T")
        .output("y_grad_grad: T")
        .doc("The gradient of `EinsumGrad`.")
        .shape_fn(like_inputs)
        .kernels(floats_with::<Gradient<true>>(false))
        .kernels(crate::card::kernels::<Gradient<true>>(is_float))
}
