//! Which sizes the axes of a call have, and which shapes its arguments.

use std::borrow::Cow;

use opsmith_body::{Axes, Axis, Kind};
use opsmith_core::family::{Family, Like};
use opsmith_core::space::{Extents, Layout, Strides, broadcast_shape};
use opsmith_core::{Dim, Error, InferenceContext, OpKernelContext, Result, Shape, bail};
use smallvec::SmallVec;

use super::{Arguments, AxesBody, AxisSize};
use crate::nests::{self, Placed};

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
        for (input, own) in arguments.inputs.iter().enumerate() {
            let shape = context.input_shape(input).ok()?;
            let dims = &shape[shape.len().checked_sub(own.len())?..];
            for (parts, &dim) in own.iter().zip(dims) {
                if let [axis] = **parts
                    && *sizes[axis].get_or_insert(dim) != dim
                {
                    return None;
                }
            }
            inputs.push(shape);
        }
        for (shape, own) in inputs.iter().zip(arguments.inputs) {
            for (parts, &dim) in own.iter().zip(&shape[shape.len() - own.len()..]) {
                if let Some(axis) = multiple_of(parts)
                    && sizes[axis].is_none()
                {
                    sizes[axis] = Some(dim / parts.len());
                }
            }
        }
        for (axis, size) in arguments.sizes.iter().enumerate() {
            if let AxisSize::Axis(other) = *size {
                let other = sizes[other]?;
                if *sizes[axis].get_or_insert(other) != other {
                    return None;
                }
            }
        }
        let sizes = sizes.into_iter().collect::<Option<Extents>>()?;
        let split = |(shape, own): (&&'a [usize], &&[&[usize]])| shape.split_at(shape.len() - own.len());
        let is_sum = |(parts, &dim): (&&[usize], &usize)| {
            parts.iter().try_fold(0, |sum: usize, &axis| sum.checked_add(sizes[axis])) == Some(dim)
        };
        let mut shapes = inputs.iter().zip(arguments.inputs);
        if !shapes.clone().all(|both| both.1.iter().zip(split(both).1).all(is_sum)) {
            return None;
        }
        let batch = broadcast_shape(shapes.by_ref().map(|both| split(both).0))?;
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

    /// How many parts an argument has.
    pub(super) fn parts_of(&self, like: Like) -> usize {
        match like {
            Like::Input(input) => self.arguments.inputs[input].iter().map(|parts| parts.len()).product(),
            Like::Output(_) => 1,
        }
    }

    /// The parts of an argument, those along the last dim one after another.
    pub(super) fn pieces(
        &self,
        like: Like,
        shape: &[usize],
        strides: &[isize],
    ) -> impl Iterator<Item = Piece> {
        let dims = self.arguments.like(like);
        (0..self.parts_of(like)).map(move |part| self.piece(&dims, part, (shape, strides)))
    }

    /// A part of an argument with these dims.
    fn piece(&self, dims: &[&[usize]], part: usize, (shape, strides): (&[usize], &[isize])) -> Piece {
        let (batch, _) = shape.split_at(shape.len() - dims.len());
        let (mut begin, mut rest) = (0, part);
        let mut axes: SmallVec<[usize; 8]> = SmallVec::from_elem(0, dims.len());
        for (dim, parts) in dims.iter().enumerate().rev() {
            let (before, after) = parts.split_at(rest % parts.len());
            rest /= parts.len();
            axes[dim] = after[0];
            let positions: usize = before.iter().map(|axis| self.sizes[*axis]).sum();
            begin += positions as isize * strides[batch.len() + dim];
        }
        let is_empty = batch.contains(&0) || axes.iter().any(|axis| self.sizes[*axis] == 0);
        // What is empty has its dims too, whatever its strides are.
        let ones = Strides::from_elem(1, shape.len());
        let (outer, inner) = if is_empty { &ones } else { strides }.split_at(batch.len());
        // Shapes have been checked.
        let mut all = Layout { shape: batch, strides: outer }.broadcast(&self.batch).unwrap_or_default();
        all.resize(self.batch.len() + self.sizes.len(), 0);
        for (&axis, &stride) in axes.iter().zip(inner) {
            all[self.batch.len() + axis] = stride;
        }
        Piece { begin, is_empty, strides: all }
    }
}

/// The axis of which a dim of several parts is a multiple: the dim gives its size.
fn multiple_of(parts: &[usize]) -> Option<usize> {
    match parts {
        [axis, others @ ..] if !others.is_empty() => {
            others.iter().all(|other| other == axis).then_some(*axis)
        }
        _ => None,
    }
}

/// A part of an argument, or all of it.
pub(super) struct Piece {
    /// Where it begins, in elements from where the argument does.
    begin: isize,
    is_empty: bool,
    /// Its strides along all dims of the call.
    strides: Strides,
}

impl Piece {
    /// The part of an argument that lies here, with elements of so many bytes.
    pub(super) fn placed(self, data: *mut u8, size: usize, kind: Kind) -> Placed {
        let data = if self.is_empty { data } else { data.wrapping_offset(self.begin * size as isize) };
        Placed::new(data, if self.is_empty { &[0] } else { &[] }, kind, self.strides)
    }
}

/// A dim of an input: its number, and the position among the dims of the axes.
type Position = (usize, usize);

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
    for (input, dims) in arguments.inputs.iter().enumerate() {
        let shape = context.input(input)?;
        let name = context.signature().inputs[input].name.clone();
        check_rank(&name, &shape, dims, arguments)?;
        let core = -(dims.len() as i64);
        for (position, parts) in dims.iter().enumerate() {
            let [axis] = **parts else { continue };
            let dim = match shape.rank() {
                Some(_) => context.dim(&shape, core + position as i64)?,
                None => Dim::Unknown,
            };
            let place = shape.rank().unwrap_or(dims.len()) - dims.len() + position;
            if let Some(size) = &own[axis] {
                let message = format!(
                    "axis `{}`, dim {place} of `{name}` (shape {shape}), must be {size}",
                    arguments.axes[axis]
                );
                context.assume_equal(size, &dim, message).map_err(|error| error.naming(&name))?;
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
                        "the batch dims {own} of `{name}` (shape {shape}) do not broadcast with those of the \
                         inputs before it, {batch}"
                    ))
                });
                Some(broadcast?)
            }
            _ => None,
        };
    }
    let (dims, giving) = axis_dims(context, arguments, own, seen)?;
    infer_sums(context, arguments, &dims, &giving)?;
    let shape = |axes: &Cow<'_, [usize]>| {
        let dims = axes.iter().map(|&axis| dims[axis].clone());
        batch.as_ref().map_or_else(Shape::unknown, |batch| context.concatenate(batch, &dims.collect()))
    };
    Ok(arguments.outputs.iter().map(shape).collect())
}

/// That an input has the dims of its axes.
fn check_rank(name: &str, shape: &Shape, dims: &[&[usize]], arguments: &Arguments) -> Result<()> {
    let Some(rank) = shape.rank().filter(|rank| *rank < dims.len()) else { return Ok(()) };
    let named: Vec<String> = dims.iter().map(|parts| sum_text(parts, arguments)).collect();
    let (least, named) = (dims.len(), named.join(","));
    bail!(
        InvalidArgument for name,
        "input `{name}` must have rank at least {least}, (...,{named}), got rank {rank} (shape {shape})"
    )
}

/// The sizes of the axes: their own, or those of the dims that are they or multiples of them. With the multiples that gave one.
fn axis_dims(
    context: &mut InferenceContext<'_>,
    arguments: &Arguments,
    own: Vec<Option<Dim>>,
    seen: Vec<Option<Seen>>,
) -> Result<(Vec<Dim>, Vec<Position>)> {
    let dim_of = |seen: &Option<Seen>| seen.as_ref().map(|(.., dim)| dim.clone());
    let own = own.into_iter().zip(&seen).map(|(own, seen)| own.or_else(|| dim_of(seen)));
    let mut dims: Vec<Dim> = own.map(|dim| dim.unwrap_or(Dim::Unknown)).collect();
    let mut giving = Vec::new();
    for (input, all) in arguments.inputs.iter().enumerate() {
        let shape = context.input(input)?;
        let Some(rank) = shape.rank() else { continue };
        for (position, parts) in all.iter().enumerate() {
            let Some(axis) = multiple_of(parts) else { continue };
            if matches!(dims[axis], Dim::Unknown) {
                let whole = context.dim(&shape, (rank - all.len() + position) as i64)?;
                dims[axis] = context.divide(&whole, Dim::Known(parts.len() as u64), false)?;
                giving.push((input, position));
            }
        }
    }
    for (axis, size) in arguments.sizes.iter().enumerate() {
        let AxisSize::Axis(place) = *size else { continue };
        let named = |axis: usize| match &seen[axis] {
            Some((input, shape, dim, _)) => {
                format!("axis `{}`, dim {dim} of `{input}` (shape {shape}),", arguments.axes[axis])
            }
            None => format!("axis `{}`", arguments.axes[axis]),
        };
        let other_named = named(place);
        let message = format!("{} must be as long as {}", named(axis), other_named.trim_end_matches(','));
        let (one, other) = (dims[axis].clone(), dims[place].clone());
        context.assume_equal(&one, &other, message)?;
        match (one, other) {
            (Dim::Unknown, known) => dims[axis] = known,
            (known, Dim::Unknown) => dims[place] = known,
            _ => {}
        }
    }
    Ok((dims, giving))
}

/// A dim that consists of parts is as long as they are together.
fn infer_sums(
    context: &mut InferenceContext<'_>,
    arguments: &Arguments,
    sizes: &[Dim],
    giving: &[Position],
) -> Result<()> {
    for (input, dims) in arguments.inputs.iter().enumerate() {
        let shape = context.input(input)?;
        let Some(rank) = shape.rank() else { continue };
        for (position, parts) in dims.iter().enumerate().filter(|(_, parts)| parts.len() != 1) {
            let place = rank - dims.len() + position;
            let given = context.dim(&shape, place as i64)?;
            let mut sum = Dim::Known(0);
            for &axis in *parts {
                sum = context.add(&sum, sizes[axis].clone())?;
            }
            let name = context.signature().inputs[input].name.clone();
            let what = if giving.contains(&(input, position)) {
                format!("a multiple of {0}, {0} * {1}", parts.len(), arguments.axes[parts[0]])
            } else {
                sum_of(parts, arguments, sizes)
            };
            let message = format!("dim {place} of `{name}` (shape {shape}) must be {what}");
            context.assume_equal(&given, &sum, message).map_err(|error| error.naming(&name))?;
        }
    }
    Ok(())
}

/// A sum of axes as a signature has it: `3 * s + f`.
fn sum_text(parts: &[usize], arguments: &Arguments) -> String {
    let term = |equal: &[usize]| match (equal.len(), arguments.axes[equal[0]]) {
        (1, name) => name.to_owned(),
        (count, name) => format!("{count} * {name}"),
    };
    let terms: Vec<String> = parts.chunk_by(|one, next| one == next).map(term).collect();
    terms.join(" + ")
}

/// A sum of axes for a reader: `3 * s + f with s = 4, f = 2`.
fn sum_of(parts: &[usize], arguments: &Arguments, sizes: &[Dim]) -> String {
    let size = |axis: Axis| format!("{} = {}", arguments.axes[axis.index()], sizes[axis.index()]);
    let known: Vec<String> = Axes::at(parts).iter().map(size).collect();
    format!("{} with {}", sum_text(parts, arguments), known.join(", "))
}

/// The sizes that axes have of their own.
fn own_dims(context: &InferenceContext<'_>, arguments: &Arguments) -> Result<Vec<Option<Dim>>> {
    let dim = |size: &AxisSize| match *size {
        AxisSize::Given | AxisSize::Axis(_) => Ok(None),
        AxisSize::Fixed(size) => Ok(Some(Dim::Known(size as u64))),
        AxisSize::Attr(attr) => context.get_dim(attr).map(Some),
    };
    arguments.sizes.iter().map(dim).collect()
}
