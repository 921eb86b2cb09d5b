//! Which sizes the axes of a call have, and which shapes its arguments.

use opsmith_body::Axes;
use opsmith_core::family::{Family, Like};
use opsmith_core::tensor::Extents;
use opsmith_core::{Dim, Error, InferenceContext, OpKernelContext, Result, Shape};
use smallvec::SmallVec;

use super::{Arguments, AxesBody};
use crate::axes::broadcast_shape;

/// The shapes of a call.
pub(super) struct Call<'a> {
    arguments: Arguments,
    /// Of the forward op's inputs.
    inputs: SmallVec<[&'a [usize]; 8]>,
    /// The sizes of the axes.
    pub(super) sizes: Extents,
    /// The dims before those of the axes, broadcast.
    pub(super) batch: Extents,
}

impl<'a> Call<'a> {
    /// The shapes, if they fit.
    pub(super) fn new(context: &OpKernelContext<'a>, arguments: Arguments, family: &Family) -> Option<Self> {
        let mut inputs: SmallVec<[&[usize]; 8]> = SmallVec::new();
        let mut sizes: SmallVec<[Option<usize>; 8]> = SmallVec::from_elem(None, arguments.axes.len());
        for (input, axes) in arguments.inputs.iter().enumerate() {
            let shape = context.input_shape(input).ok()?;
            let dims = &shape[shape.len().checked_sub(axes.len())?..];
            for (&axis, &dim) in axes.iter().zip(dims) {
                if *sizes[axis].get_or_insert(dim) != dim {
                    return None;
                }
            }
            inputs.push(shape);
        }
        let batches =
            inputs.iter().zip(arguments.inputs).map(|(shape, axes)| &shape[..shape.len() - axes.len()]);
        let batch = broadcast_shape(batches)?;
        let sizes = sizes.into_iter().collect::<Option<Extents>>()?;
        let call = Call { arguments, inputs, sizes, batch };
        let fits = |(input, argument): (usize, &opsmith_core::family::FamilyArgument)| {
            context.input_shape(input).map_or(true, |shape| shape == &call.shape(argument.like)[..])
        };
        family.inputs.iter().enumerate().skip(arguments.inputs.len()).all(fits).then_some(call)
    }

    /// The shape of an argument that is like one of the forward op's.
    pub(super) fn shape(&self, like: Like) -> Extents {
        match like {
            Like::Input(input) => Extents::from_slice(self.inputs[input]),
            Like::Output(output) => {
                let own = self.arguments.outputs[output].iter().map(|axis| self.sizes[*axis]);
                self.batch.iter().copied().chain(own).collect()
            }
        }
    }

    /// The shape of temporary memory: these dims of the batch, then the axes.
    pub(super) fn temporary(&self, batch: &[usize], axes: Axes) -> Extents {
        batch.iter().copied().chain(axes.iter().map(|axis| self.sizes[axis.index()])).collect()
    }
}

/// How many bytes temporary memory of this shape takes.
///
/// # Errors
/// `ResourceExhausted` if no memory has so many.
pub(super) fn bytes_of(context: &OpKernelContext<'_>, shape: &[usize], element: usize) -> Result<usize> {
    let bytes = shape.iter().try_fold(element, |bytes, &dim| bytes.checked_mul(dim));
    bytes.ok_or_else(|| {
        let name = &context.signature().name;
        Error::resource_exhausted(format!("{name}: a temporary of {shape:?} is too large"))
    })
}

/// Where an axis was first seen: the input, its shape, the position of the dim, and the dim.
type Seen = (String, Shape, usize, Dim);

/// The shapes of the forward op's outputs.
pub(super) fn output_shapes<B: AxesBody>(context: &mut InferenceContext<'_>) -> Result<Vec<Shape>> {
    infer(context, Arguments::of::<B>())
}

fn infer(context: &mut InferenceContext<'_>, arguments: Arguments) -> Result<Vec<Shape>> {
    let mut seen: Vec<Option<Seen>> = vec![None; arguments.axes.len()];
    let mut batch = Some(Shape::scalar());
    for (input, axes) in arguments.inputs.iter().enumerate() {
        let shape = context.with_rank_at_least(context.input(input)?, axes.len())?;
        let name = context.signature().inputs[input].name.clone();
        let core = -(axes.len() as i64);
        for (position, &axis) in axes.iter().enumerate() {
            let dim = match shape.rank() {
                Some(_) => context.dim(&shape, core + position as i64)?,
                None => Dim::Unknown,
            };
            let place = shape.rank().unwrap_or(axes.len()) - axes.len() + position;
            match &seen[axis] {
                None => seen[axis] = Some((name.clone(), shape.clone(), place, dim)),
                Some((other, its, its_place, its_dim)) => {
                    let message = format!(
                        "axis `{}` is dim {its_place} of `{other}` (shape {its}) and dim {place} of `{name}` (shape {shape}), \
                         which must be equal",
                        arguments.axes[axis]
                    );
                    let its_dim = its_dim.clone();
                    context.assume_equal(&its_dim, &dim, message)?;
                    if matches!(its_dim, Dim::Unknown) {
                        seen[axis] = Some((name.clone(), shape.clone(), place, dim));
                    }
                }
            }
        }
        batch = match (batch, shape.rank()) {
            (Some(batch), Some(rank)) => {
                let own = context.subshape(&shape, 0, rank as i64 + core)?;
                Some(context.broadcast(&batch, &own)?)
            }
            _ => None,
        };
    }
    let shape = |axes: &&[usize]| {
        let dims = axes.iter().map(|&axis| seen[axis].as_ref().map_or(Dim::Unknown, |(.., dim)| dim.clone()));
        batch.as_ref().map_or_else(Shape::unknown, |batch| context.concatenate(batch, &dims.collect()))
    };
    Ok(arguments.outputs.iter().map(shape).collect())
}
