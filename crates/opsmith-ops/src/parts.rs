//! Ops that cut tensors in parts and put them together.

use opsmith::prelude::*;
use opsmith::space::Extents;
use opsmith::{Dim, Shape};
use opsmith_core::kernel::{Settled, SettledCall};

use crate::card;
use crate::define::ops;
use crate::few;
use crate::linear::{self, FLOATS, Facts, Linear, floats, is_float, last_input};
use crate::moved::{Moved, assemble, for_every_dtype, make};
use crate::moved_on_card::moves;
use crate::parameters::{axis_of, elements, known_integers, numbers};

ops! {
    /// The op `Pad`: a tensor with zeros around it.
    Pad = linear::forward::<Padding>(), with &[linear::gradient::<Padding>, linear::second::<Padding>];
    /// The op `Concat`: tensors one after another along a dim.
    Concat = concat(), with &[concat_grad, concat_grad_grad];
    /// The op `Stack`: tensors one after another along a new dim.
    Stack = stack(), with &[stack_grad, stack_grad_grad];
    /// The op `Split`: a tensor cut in equal parts along a dim.
    Split = split(), with &[split_grad, split_grad_grad];
}

struct Padding;

/// The numbers of zeros before and behind each dim, and the shape with them.
fn padded(shape: &[usize], paddings: &[i64]) -> Result<(Extents, Extents)> {
    let error = || {
        Error::invalid_argument(format!(
            "`paddings` must have two numbers, which are not negative, for each dim of an input of shape \
             {shape:?}, got {paddings:?}"
        ))
        .naming("paddings")
    };
    if paddings.len() != 2 * shape.len() {
        return Err(error());
    }
    let mut padded = (Extents::new(), Extents::new());
    for (&dim, pair) in shape.iter().zip(paddings.as_chunks::<2>().0) {
        let (before, behind) = (usize::try_from(pair[0]).ok(), usize::try_from(pair[1]).ok());
        let (before, behind) = before.zip(behind).ok_or_else(error)?;
        let all = dim.checked_add(before).and_then(|dim| dim.checked_add(behind));
        padded.0.push(before);
        padded.1.push(all.ok_or_else(error)?);
    }
    ensure!(
        elements(&padded.1).is_some(),
        ResourceExhausted,
        "a tensor with paddings {paddings:?} is too large"
    );
    Ok(padded)
}

impl Padding {
    fn padded(context: &OpKernelContext<'_>, shape: &[usize]) -> Result<(Extents, Extents)> {
        let tensor = context.input("paddings")?;
        ensure!(
            tensor.shape() == [shape.len(), 2] || (shape.is_empty() && tensor.num_elements() == 0),
            InvalidArgument for "paddings",
            "`paddings` must have shape [{}, 2], for an input of shape {shape:?}, got {:?}",
            shape.len(),
            tensor.shape()
        );
        padded(shape, &numbers(tensor, "paddings")?)
    }
}

impl Linear for Padding {
    const FACTS: Facts = Facts {
        name: "Pad",
        x: "x",
        attrs: &["Index: {int32, int64} = DT_INT64"],
        dtypes: "type",
        parameters: &["paddings: Index"],
        host: &["paddings"],
        dims: &[],
        doc: "A tensor with zeros around it; of text, empty text.\n\n\
              x: Any tensor.\n\
              paddings: For each dim of `x`, how many zeros come before and behind it: a matrix of two columns.\n\
              y: The larger tensor.",
        shape: |c| {
            let (input, known) = (c.input(0)?, known_integers(c, 1));
            let Some(dims) = input.dims() else { return Ok(input) };
            let Some(paddings) = known.filter(|paddings| paddings.len() == 2 * dims.len()) else {
                return Ok(Shape::unknown_of_rank(dims.len()));
            };
            if let Some(shape) = input.to_known() {
                return Ok(Shape::known(&padded(&shape, &paddings)?.1));
            }
            let sum = |(dim, pair): (&Dim, &[i64; 2])| match pair.map(u64::try_from) {
                [Ok(before), Ok(behind)] => c.add(&c.add(dim, before)?, behind),
                _ => {
                    let text = format!("`paddings` must not be negative, got {pair:?}");
                    Err(c.error(text).naming("paddings"))
                }
            };
            Ok(dims.iter().zip(paddings.as_chunks::<2>().0).map(sum).collect::<Result<Vec<_>>>()?.into())
        },
    };

    const ON_CARD: [fn(DType) -> bool; 2] = [moves; 2];

    fn new(_: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Padding)
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let input = context.input(0)?;
        let (start, shape) = Padding::padded(context, input.shape())?;
        assemble(context, (0, 0), &shape, vec![(Moved::new(input), start)], true)
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let shape = context.input_shape(0)?;
        let (start, padded) = Padding::padded(context, shape)?;
        make(context, (0, 0), Moved::new(last_input(context, &padded)?).region(&start, shape))
    }
}

/// How tensors are put together along a dim.
#[derive(Clone, Copy)]
enum Along {
    /// One after another along one that they have.
    Own,
    /// Along a new one.
    New,
}

/// The attributes of these ops.
fn parts(name: &str, dtypes: &str) -> OpDef {
    OpDef::new(name).attr("axis: int = 0").attr("N: int >= 1").attr(&format!("T: {dtypes}"))
}

/// The tensors of the list at input 0, all with the dim along which they are put together, and which one that is.
fn laid_out<'a>(context: &OpKernelContext<'a>, axis: i64, along: Along) -> Result<(Vec<Moved<'a>>, usize)> {
    let list = &context.signature().inputs[0].name;
    let tensors = context.input_list(0)?;
    let rank = tensors.first().map_or(0, TensorView::rank);
    let shapes: Vec<&[usize]> = tensors.iter().map(TensorView::shape).collect();
    let axis = match along {
        Along::Own if rank == 0 => {
            bail!(InvalidArgument for list, "`{list}` must have dims, got shapes {shapes:?}")
        }
        Along::Own => axis_of(axis, rank)?,
        Along::New => axis_of(axis, rank + 1)?,
    };
    let free = match along {
        Along::Own => Some(axis),
        Along::New => None,
    };
    let agree = |other: &&[usize]| {
        other.len() == rank && (0..rank).all(|dim| shapes[0][dim] == other[dim] || Some(dim) == free)
    };
    ensure!(
        shapes.iter().all(agree),
        InvalidArgument for list,
        "`{list}` must have one shape{}, got {shapes:?}",
        free.map(|dim| format!(", but for dim {dim}")).unwrap_or_default()
    );
    let moved = tensors.into_iter().map(Moved::new);
    Ok((moved.map(|moved| if free.is_some() { moved } else { moved.inserted(axis) }).collect(), axis))
}

/// The shape of the tensors put together, and the place of each in it.
fn places(tensors: &[Moved<'_>], axis: usize) -> (Extents, Vec<Extents>) {
    let mut shape = Extents::from_slice(tensors[0].shape());
    let mut start = Extents::from_elem(0, shape.len());
    let mut places = Vec::new();
    for tensor in tensors {
        places.push(start.clone());
        start[axis] += tensor.shape()[axis];
    }
    shape[axis] = start[axis];
    (shape, places)
}

/// Puts the tensors of the list at input 0 together, along a new dim if `NEW`.
struct Joining<const NEW: bool>(i64);

/// Cuts the last input in parts like the tensors of the list at input 0, which were put together along a new dim if `NEW`.
struct Parting<const NEW: bool>(i64);

/// Cuts input 0 in as many parts as there are outputs.
struct Cutting(i64);

const fn along(new: bool) -> Along {
    if new { Along::New } else { Along::Own }
}

impl<const NEW: bool> OpKernel for Joining<NEW> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Joining(construction.attr("axis")?))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (tensors, axis) = laid_out(context, self.0, along(NEW))?;
        let (shape, places) = places(&tensors, axis);
        assemble(context, (0, 0), &shape, tensors.into_iter().zip(places).collect(), false)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        let (tensors, axis) = laid_out(context, self.0, along(NEW)).ok()?;
        let (shape, _) = places(&tensors, axis);
        let dtype = context.input_list(0).ok()?.first()?.dtype();
        let rows = shape[..axis].iter().fold(1, |rows: usize, dim| rows.saturating_mul(*dim));
        if !few::is_small(dtype, &shape, rows.saturating_mul(tensors.len())) {
            return None;
        }
        let bytes = |tensor: &Moved<'_>| tensor.shape()[axis..].iter().product::<usize>() * dtype.size();
        Some(few::settled(shape, FewParts { bytes: tensors.iter().map(bytes).collect(), rows }))
    }
}

/// Tensors put together: of each the bytes of a part, of which there is one for every row.
struct FewParts {
    bytes: Vec<usize>,
    rows: usize,
}

// SAFETY: it reads the parts of all inputs, and writes those of the output.
unsafe impl SettledCall for FewParts {
    unsafe fn run(&self, _: &Compute<'_>, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        let mut to = outputs[0];
        for row in 0..self.rows {
            for (&bytes, from) in self.bytes.iter().zip(inputs) {
                // SAFETY: promised by the caller; both parts are in their tensors, which are dense.
                unsafe {
                    to.copy_from_nonoverlapping(from.add(row * bytes), bytes);
                    to = to.add(bytes);
                }
            }
        }
        Ok(())
    }
}

impl<const NEW: bool> OpKernel for Parting<NEW> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Parting(construction.attr("axis")?))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (tensors, axis) = laid_out(context, self.0, along(NEW))?;
        let (shape, places) = places(&tensors, axis);
        let gradient = Moved::new(last_input(context, &shape)?);
        for (element, (tensor, start)) in tensors.iter().zip(&places).enumerate() {
            let part = gradient.clone().part(axis, start[axis], tensor.shape()[axis]);
            make(context, (0, element), if NEW { part.at(axis, 0) } else { part })?;
        }
        Ok(())
    }
}

impl OpKernel for Cutting {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Cutting(construction.attr("axis")?))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (input, count) = (context.input(0)?, context.output_count(0)?);
        let shape = input.shape();
        let axis = axis_of(self.0, shape.len())?;
        ensure!(
            shape[axis].is_multiple_of(count),
            InvalidArgument,
            "dim {axis} must be a multiple of `N`, {count}, got shape {shape:?}"
        );
        let length = shape[axis] / count;
        for element in 0..count {
            make(context, (0, element), Moved::new(input).part(axis, element * length, length))?;
        }
        Ok(())
    }
}

/// The shape of the tensors of the list input put together.
fn joined(c: &mut InferenceContext<'_>, along: Along) -> Result<Shape> {
    let (axis, list) = (c.get_int("axis")?, c.signature().inputs[0].name.clone());
    let shapes = c.input_list(&list)?;
    let mut all = Shape::unknown();
    let mut sum = Dim::Known(0);
    for shape in &shapes {
        let mut rest = shape.clone();
        if matches!(along, Along::Own) {
            sum = c.add(&sum, c.dim(shape, axis)?)?;
            rest = c.replace_dim(shape, axis, Dim::Unknown)?;
        }
        all = c.merge_shapes(&all, &rest)?;
    }
    let Some(dims) = all.dims() else { return Ok(all) };
    match along {
        Along::Own => c.replace_dim(&all, axis, sum),
        Along::New => {
            let axis = axis_of(axis, dims.len() + 1)?;
            let mut dims = dims.to_vec();
            dims.insert(axis, Dim::Known(shapes.len() as u64));
            Ok(dims.into())
        }
    }
}

fn infer_joined<const NEW: bool>(c: &mut InferenceContext<'_>) -> Result<()> {
    let shape = joined(c, along(NEW))?;
    c.set_output(0, shape)
}

/// The parts are like the tensors of the list input.
fn infer_parted<const NEW: bool>(c: &mut InferenceContext<'_>) -> Result<()> {
    let (shape, given) = (joined(c, along(NEW))?, c.input(c.num_inputs() - 1)?);
    c.merge_shapes(&shape, &given)?;
    for index in 0..c.num_outputs() {
        let shape = c.input(index)?;
        c.set_output(index, shape)?;
    }
    Ok(())
}

fn infer_cut(c: &mut InferenceContext<'_>) -> Result<()> {
    let (input, axis, count) = (c.with_rank_at_least(c.input(0)?, 1)?, c.get_int("axis")?, c.num_outputs());
    let dim = c.dim(&input, axis)?;
    let length = c.divide(&dim, count as u64, true)?;
    let part = c.replace_dim(&input, axis, length)?;
    (0..count).try_for_each(|index| c.set_output(index, part.clone()))
}

const AXIS_DOC: &str = "axis: Which dim; counted from the end where negative.";

fn concat() -> OpDef {
    parts("Concat", "type")
        .input("xs: N * T")
        .output("y: T")
        .parallel("(... but axis) -> (... but axis)")
        .doc(&format!("Tensors one after another along a dim.\n\nxs: Tensors of shapes that are equal but for that dim.\n{AXIS_DOC}\ny: All of them."))
        .shape_fn(infer_joined::<false>)
        .gradient("ConcatGrad")
        .kernels(for_every_dtype::<Joining<false>>(true))
        .kernels(card::kernels::<Joining<false>>(moves))
}

fn concat_grad() -> OpDef {
    parts("ConcatGrad", FLOATS)
        .input("xs: N * T")
        .input("y_grad: T")
        .output("xs_grad: N * T")
        .parallel("(... but axis), (... but axis) -> (... but axis)")
        .doc("The gradient of `Concat`.")
        .shape_fn(infer_parted::<false>)
        .gradient("ConcatGradGrad")
        .kernels(floats::<Parting<false>>())
        .kernels(card::kernels::<Parting<false>>(is_float))
}

fn concat_grad_grad() -> OpDef {
    parts("ConcatGradGrad", FLOATS)
        .input("xs_grad_grad: N * T")
        .output("y_grad_grad: T")
        .parallel("(... but axis) -> (... but axis)")
        .doc("The gradient of `ConcatGrad`.")
        .shape_fn(infer_joined::<false>)
        .kernels(floats::<Joining<false>>())
        .kernels(card::kernels::<Joining<false>>(is_float))
}

fn stack() -> OpDef {
    parts("Stack", "type")
        .input("xs: N * T")
        .output("y: T")
        .parallel("(... less axis) -> (... but axis)")
        .doc(&format!("Tensors one after another along a new dim.\n\nxs: Tensors of one shape.\n{AXIS_DOC}\ny: All of them, of a rank that is larger by one."))
        .shape_fn(infer_joined::<true>)
        .gradient("StackGrad")
        .kernels(for_every_dtype::<Joining<true>>(true))
        .kernels(card::kernels::<Joining<true>>(moves))
}

fn stack_grad() -> OpDef {
    parts("StackGrad", FLOATS)
        .input("xs: N * T")
        .input("y_grad: T")
        .output("xs_grad: N * T")
        .parallel("(... less axis), (... but axis) -> (... less axis)")
        .doc("The gradient of `Stack`.")
        .shape_fn(infer_parted::<true>)
        .gradient("StackGradGrad")
        .kernels(floats::<Parting<true>>())
        .kernels(card::kernels::<Parting<true>>(is_float))
}

fn stack_grad_grad() -> OpDef {
    parts("StackGradGrad", FLOATS)
        .input("xs_grad_grad: N * T")
        .output("y_grad_grad: T")
        .parallel("(... less axis) -> (... but axis)")
        .doc("The gradient of `StackGrad`.")
        .shape_fn(infer_joined::<true>)
        .kernels(floats::<Joining<true>>())
        .kernels(card::kernels::<Joining<true>>(is_float))
}

fn split() -> OpDef {
    parts("Split", "type")
        .input("x: T")
        .output("ys: N * T")
        .parallel("(... but axis) -> (... but axis)")
        .doc(&format!("A tensor cut in equal parts along a dim.\n\nx: Any tensor but one of text.\n{AXIS_DOC}\nN: How many parts there are; the dim is a multiple of it.\nys: The parts."))
        .shape_fn(infer_cut)
        .gradient("SplitGrad")
        .kernels(
            DType::ALL
                .into_iter()
                .filter(|dtype| *dtype != DType::String)
                .map(|dtype| KernelDef::cpu::<Cutting>().strided().dtype_constraint("T", dtype)),
        )
        .kernels(card::kernels::<Cutting>(moves))
}

fn split_grad() -> OpDef {
    parts("SplitGrad", FLOATS)
        .input("ys_grad: N * T")
        .output("x_grad: T")
        .parallel("(... but axis) -> (... but axis)")
        .doc("The gradient of `Split`.")
        .shape_fn(infer_joined::<false>)
        .gradient("SplitGradGrad")
        .kernels(floats::<Joining<false>>())
        .kernels(card::kernels::<Joining<false>>(is_float))
}

fn split_grad_grad() -> OpDef {
    parts("SplitGradGrad", FLOATS)
        .input("ys_grad: N * T")
        .input("x_grad_grad: T")
        .output("ys_grad_grad: N * T")
        .parallel("(... but axis), (... but axis) -> (... but axis)")
        .doc("The gradient of `SplitGrad`, whose parts need not be equal.")
        .shape_fn(infer_parted::<false>)
        .kernels(floats::<Parting<false>>())
        .kernels(card::kernels::<Parting<false>>(is_float))
}

#[cfg(test)]
mod tests {
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    #[test]
    fn paddings_are_not_negative() -> Result<()> {
        let x = array![[1, 2, 3], [4, 5, 6]];
        let error = testing::call::<Pad>().input(&x).input(&array![[0, 0], [-1, 0]]).run().unwrap_err();
        assert!(error.message().contains("two numbers, which are not negative"));
        Ok(())
    }

    #[test]
    fn tensors_are_put_together_and_cut() -> Result<()> {
        let (a, b) = (array![[1.0, 2.0]], array![[3.0, 4.0], [5.0, 6.0]]);
        let views = || [testing::view(&a), testing::view(&b)];
        let outputs = testing::call::<Concat>().input_list(views()).run()?;
        let all = outputs.array::<f64, Ix2>("y")?;
        assert_eq!(all, array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
        let error = testing::call::<Stack>().input_list(views()).run().unwrap_err();
        assert_eq!(error.message(), "Stack: `xs` must have one shape, got [[1, 2], [2, 2]]");
        let error = testing::call::<Split>().input(&all).attr("N", 2).run().unwrap_err();
        assert!(error.message().contains("dim 0 must be a multiple of `N`, 2, got shape [3, 2]"), "{error}");
        infer_ok!(testing::shapes::<Concat>(), "[2,?];[?,3]", "[?,3]");
        infer_ok!(testing::shapes::<Stack>().attr("axis", 1.into()), "[2,?];[?,3]", "[2,2,3]");
        infer_error!(testing::shapes::<Concat>().attr("axis", 1.into()), "dim 0", "[2,1];[3,1]");
        Ok(())
    }
}
