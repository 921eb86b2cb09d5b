//! Which sizes the axes of a call have, and which shapes its arguments.

use std::borrow::Cow;

use opsmith_body::Axes;
use opsmith_core::family::{Family, Like};
use opsmith_core::space::{Extents, Layout, Strides, broadcast_shape};
use opsmith_core::{Dim, Error, InferenceContext, OpKernelContext, Result, Shape};
use smallvec::SmallVec;

use super::{Arguments, AxesBody, AxisSize};
use crate::nests;

/// The shapes of a call.
pub(super) struct Call<'a> {
    arguments: &'a Arguments,
    /// Of the forward op's inputs.
    inputs: SmallVec<[&'a [usize]; 8]>,
    /// The sizes of the axes.
    pub(super) sizes: Extents,
    /// The dims before those of the axes, broadcast.
    pub(super) batch: Extents,
}

impl<'a> Call<'a> {
    /// The shapes, if they fit.
    pub(super) fn new(
        context: &OpKernelContext<'a>,
        arguments: &'a Arguments,
        sizes: &[Option<usize>],
        family: &Family,
    ) -> Option<Self> {
        let mut inputs: SmallVec<[&[usize]; 8]> = SmallVec::new();
        let mut sizes: SmallVec<[Option<usize>; 8]> = SmallVec::from_slice(sizes);
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

    /// All dims of the call: those of the batch, then those of the axes.
    pub(super) fn dims(&self) -> SmallVec<[nests::Dim; 8]> {
        let batch = self.batch.iter().map(|&size| nests::Dim { size, axis: None });
        let axes = self.sizes.iter().enumerate().map(|(axis, &size)| nests::Dim { size, axis: Some(axis) });
        batch.chain(axes).collect()
    }

    /// The strides of an argument along them.
    pub(super) fn strides(&self, like: Like, shape: &[usize], strides: &[isize]) -> Strides {
        // What is empty has its dims too, whatever its strides are.
        let ones = Strides::from_elem(1, shape.len());
        let strides = if shape.contains(&0) { &ones } else { strides };
        let axes = self.arguments.like(like);
        let batch = &shape[..shape.len() - axes.len()];
        let (outer, inner) = strides.split_at(batch.len());
        // Shapes have been checked.
        let mut all = Layout { shape: batch, strides: outer }.broadcast(&self.batch).unwrap_or_default();
        all.resize(self.batch.len() + self.sizes.len(), 0);
        for (&axis, &stride) in axes.iter().zip(inner) {
            all[self.batch.len() + axis] = stride;
        }
        all
    }
}

/// Where an axis was first seen: the input, its shape, the position of the dim, and the dim.
type Seen = (String, Shape, usize, Dim);

/// The shapes of the forward op's outputs.
pub(super) fn output_shapes<B: AxesBody>(
    context: &mut InferenceContext<'_>,
    saved: &[Axes],
) -> Result<Vec<Shape>> {
    infer(context, &Arguments::of::<B>(saved))
}

fn infer(context: &mut InferenceContext<'_>, arguments: &Arguments) -> Result<Vec<Shape>> {
    let mut seen: Vec<Option<Seen>> = vec![None; arguments.axes.len()];
    let own: Vec<Option<Dim>> = own_dims(context, arguments)?;
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
            if let Some(size) = &own[axis] {
                let message = format!(
                    "axis `{}`, dim {place} of `{name}` (shape {shape}), must be {size}",
                    arguments.axes[axis]
                );
                context.assume_equal(size, &dim, message)?;
            }
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
                let broadcast = context.broadcast(&batch, &own).map_err(|_| {
                    Error::invalid_argument(format!(
                        "the dims of `{name}` before its axes, {own} of shape {shape}, do not broadcast with those of the inputs before it, {batch}"
                    ))
                });
                Some(broadcast?)
            }
            _ => None,
        };
    }
    let shape = |axes: &Cow<'_, [usize]>| {
        let dim =
            |axis: usize| own[axis].clone().or_else(|| seen[axis].as_ref().map(|(.., dim)| dim.clone()));
        let dims = axes.iter().map(|&axis| dim(axis).unwrap_or(Dim::Unknown));
        batch.as_ref().map_or_else(Shape::unknown, |batch| context.concatenate(batch, &dims.collect()))
    };
    Ok(arguments.outputs.iter().map(shape).collect())
}

/// The sizes that axes have of their own.
fn own_dims(context: &InferenceContext<'_>, arguments: &Arguments) -> Result<Vec<Option<Dim>>> {
    let dim = |size: &AxisSize| match *size {
        AxisSize::Given => Ok(None),
        AxisSize::Fixed(size) => Ok(Some(Dim::Known(size as u64))),
        AxisSize::Attr(attr) => context.get_dim(attr).map(Some),
    };
    arguments.sizes.iter().map(dim).collect()
}
