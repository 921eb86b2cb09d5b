//! Tensors with named dims, multiplied two at a time.

use std::collections::BTreeMap;

use opsmith::ndarray::{ArrayView, ArrayViewMut, Dimension, ShapeError};
use opsmith::prelude::*;

use super::equation::Label;
use crate::matmul::Gemm;

pub(super) type Sizes = BTreeMap<Label, usize>;

/// A tensor, each of whose dims has a name of its own and the size of all dims of that name.
#[derive(Clone)]
pub(super) struct Operand<A> {
    pub(super) labels: Vec<Label>,
    pub(super) array: A,
}

/// Where tensors are, and what is done with them there.
pub(super) trait Backend<A> {
    /// The sum over all dims whose labels are not kept.
    fn folded(&self, x: Operand<A>, keep: &dyn Fn(&Label) -> bool) -> Result<Operand<A>>;

    /// The products of each two elements, with dims of these labels.
    fn each(&self, a: &Operand<A>, b: &Operand<A>, labels: Vec<Label>, sizes: &Sizes) -> Result<Operand<A>>;

    /// The products of matrices: the dims of a stack, of rows, of what is summed over, and of columns. The first factor has no
    /// columns, and the second no rows.
    fn product(
        &self,
        a: &Operand<A>,
        b: &Operand<A>,
        groups: [&[Label]; 4],
        sizes: &Sizes,
    ) -> Result<Operand<A>>;
}

fn internal(error: ShapeError) -> Error {
    Error::internal(error.to_string())
}

/// Zeros of this shape.
fn zeros<'a, T: Element>(cx: &Compute<'a>, shape: &[usize]) -> Result<ArrayViewMutD<'a, T>> {
    let count = crate::parameters::elements(shape).ok_or_else(|| {
        Error::resource_exhausted(format!("a product of tensors that has shape {shape:?} is too large"))
    })?;
    ArrayViewMut::from_shape(shape, cx.temp::<T>(count)?).map_err(internal)
}

/// What has been made, as it is read.
fn read<T>(array: ArrayViewMutD<'_, T>) -> Result<ArrayViewD<'_, T>> {
    let shape = array.shape().to_vec();
    let elements = array.into_slice().ok_or_else(|| Error::internal("what has been made is dense"))?;
    ArrayView::from_shape(shape, &*elements).map_err(internal)
}

/// The dims of a tensor that count: those of 1 where others of the name are larger do not, they are repeated.
pub(super) fn counting(labels: &[Label], shape: &[usize], sizes: &Sizes) -> Vec<bool> {
    labels.iter().zip(shape).map(|(label, &dim)| sizes.get(label).is_none_or(|&size| size == dim)).collect()
}

/// Each label once, in the order in which they are there.
pub(super) fn once(labels: &[Label]) -> Vec<Label> {
    let mut once: Vec<Label> = Vec::new();
    labels.iter().for_each(|label| {
        if !once.contains(label) {
            once.push(*label);
        }
    });
    once
}

/// The place in a tensor with these labels, among which some are several times, of a place where each is once.
fn place(labels: &[Label], once: &[Label], at: &[usize]) -> Vec<usize> {
    let of = |label: &Label| once.iter().position(|own| own == label).map_or(0, |index| at[index]);
    labels.iter().map(of).collect()
}

impl<'a, T: Gemm> Operand<ArrayViewD<'a, T>> {
    pub(super) fn new(
        cx: &Compute<'a>,
        labels: &[Label],
        shape: &[usize],
        numbers: &'a [T],
        sizes: &Sizes,
    ) -> Result<Self> {
        let mut array = ArrayView::from_shape(shape, numbers).map_err(internal)?;
        let counting = counting(labels, shape, sizes);
        for axis in (0..labels.len()).rev().filter(|&axis| !counting[axis]) {
            array = array.index_axis_move(Axis(axis), 0);
        }
        let labels: Vec<Label> =
            labels.iter().zip(counting).filter(|(_, counts)| *counts).map(|(label, _)| *label).collect();
        let single = once(&labels);
        if single.len() == labels.len() {
            return Ok(Operand { labels, array });
        }
        // The diagonal.
        let shape: Vec<usize> = single.iter().map(|label| sizes[label]).collect();
        let mut diagonal = zeros::<T>(cx, &shape)?;
        for (at, to) in diagonal.indexed_iter_mut() {
            *to = array[&place(&labels, &single, at.slice())[..]];
        }
        Ok(Operand { labels: single, array: read(diagonal)? })
    }

    /// With dims in the order of these labels, 1 along those that it lacks.
    pub(super) fn arranged(&self, labels: &[Label]) -> ArrayViewD<'a, T> {
        let own: Vec<usize> =
            labels.iter().filter_map(|label| self.labels.iter().position(|own| own == label)).collect();
        let mut array = self.array.clone().permuted_axes(own);
        for (axis, _) in labels.iter().enumerate().filter(|(_, label)| !self.labels.contains(label)) {
            array = array.insert_axis(Axis(axis));
        }
        array
    }

    /// With three dims, each of which stands for the labels of a group: copied where strides do not allow it.
    fn grouped(&self, cx: &Compute<'a>, groups: [&[Label]; 3]) -> Result<ArrayViewD<'a, T>> {
        let mut array = self.arranged(&groups.concat());
        let sizes = |group: usize| {
            let first = groups[..group].iter().map(|labels| labels.len()).sum::<usize>();
            first..first + groups[group].len()
        };
        let shape: Vec<usize> = (0..3).map(|group| array.shape()[sizes(group)].iter().product()).collect();
        // Dims that are merged must not be empty.
        if array.is_empty() {
            return read(zeros::<T>(cx, &shape)?);
        }
        let mut merged = array.clone();
        let mut pairs = (0..3).flat_map(|group| sizes(group).skip(1));
        if pairs.all(|axis| merged.merge_axes(Axis(axis - 1), Axis(axis))) {
            for (group, labels) in groups.iter().enumerate().rev() {
                let axes = sizes(group);
                if labels.is_empty() {
                    merged = merged.insert_axis(Axis(axes.start));
                }
                for axis in axes.rev().skip(1) {
                    merged = merged.index_axis_move(Axis(axis), 0);
                }
            }
            return Ok(merged);
        }
        let mut copy = zeros::<T>(cx, array.shape())?;
        copy.assign(&array);
        array = read(copy)?;
        array.into_shape_with_order(shape).map_err(internal)
    }
}

impl<'a, T: Gemm> Backend<ArrayViewD<'a, T>> for Compute<'a> {
    /// The product with ones.
    fn folded(
        &self,
        x: Operand<ArrayViewD<'a, T>>,
        keep: &dyn Fn(&Label) -> bool,
    ) -> Result<Operand<ArrayViewD<'a, T>>> {
        let (kept, folded): (Vec<Label>, Vec<Label>) = x.labels.iter().partition(|label| keep(label));
        if folded.is_empty() {
            return Ok(x);
        }
        let matrix = x.grouped(self, [&[], &kept, &folded])?;
        let mut ones = zeros::<T>(self, &[1, matrix.len_of(Axis(2)), 1])?;
        ones.fill(T::one());
        let size = |label: &Label| {
            let at = x.labels.iter().position(|own| own == label);
            at.map_or(1, |at| x.array.len_of(Axis(at)))
        };
        let shape: Vec<usize> = kept.iter().map(size).collect();
        let array = multiplied(self, matrix, read(ones)?, &shape)?;
        Ok(Operand { labels: kept, array })
    }

    fn each(
        &self,
        a: &Operand<ArrayViewD<'a, T>>,
        b: &Operand<ArrayViewD<'a, T>>,
        labels: Vec<Label>,
        sizes: &Sizes,
    ) -> Result<Operand<ArrayViewD<'a, T>>> {
        let shape: Vec<usize> = labels.iter().map(|label| sizes[label]).collect();
        let mut product = zeros::<T>(self, &shape)?;
        let (a, b) = (a.arranged(&labels), b.arranged(&labels));
        let fits = || Error::internal("factors broadcast to their product");
        let (a, b) = (a.broadcast(&shape[..]).ok_or_else(fits)?, b.broadcast(&shape[..]).ok_or_else(fits)?);
        match labels.is_empty() {
            true => azip!((to in &mut product, &a in &a, &b in &b) *to = a.times(b)),
            false => {
                let cost = product.len() / product.len_of(Axis(0)).max(1);
                self.try_parallel_over(product.view_mut(), Axis(0), cost, |range, mut to| {
                    let (a, b) =
                        (a.slice_axis(Axis(0), range.clone().into()), b.slice_axis(Axis(0), range.into()));
                    azip!((to in &mut to, &a in a, &b in b) *to = a.times(b));
                    Ok(())
                })?;
            }
        }
        Ok(Operand { labels, array: read(product)? })
    }

    fn product(
        &self,
        a: &Operand<ArrayViewD<'a, T>>,
        b: &Operand<ArrayViewD<'a, T>>,
        [stack, left, inner, right]: [&[Label]; 4],
        sizes: &Sizes,
    ) -> Result<Operand<ArrayViewD<'a, T>>> {
        let labels = [stack, left, right].concat();
        let shape: Vec<usize> = labels.iter().map(|label| sizes[label]).collect();
        let (a, b) = (a.grouped(self, [stack, left, inner])?, b.grouped(self, [stack, inner, right])?);
        Ok(Operand { array: multiplied(self, a, b, &shape)?, labels })
    }
}

/// The products of the matrices of two stacks, with the dims of all that they stand for.
fn multiplied<'a, T: Gemm>(
    cx: &Compute<'a>,
    a: ArrayViewD<'_, T>,
    b: ArrayViewD<'_, T>,
    shape: &[usize],
) -> Result<ArrayViewD<'a, T>> {
    let stack = a.len_of(Axis(0));
    let mut product = zeros::<T>(cx, &[stack, a.len_of(Axis(1)), b.len_of(Axis(2))])?;
    T::add_products(cx, &[stack], &[(a, b)], product.view_mut(), false)?;
    read(product)?.into_shape_with_order(shape).map_err(internal)
}

/// The product of two tensors, summed over what is not kept.
fn pair<A>(
    on: &impl Backend<A>,
    a: Operand<A>,
    b: Operand<A>,
    keep: &dyn Fn(&Label) -> bool,
    sizes: &Sizes,
) -> Result<Operand<A>> {
    let (of_a, of_b) = (a.labels.clone(), b.labels.clone());
    let a = on.folded(a, &|label| keep(label) || of_b.contains(label))?;
    let b = on.folded(b, &|label| keep(label) || of_a.contains(label))?;
    let (both, left): (Vec<Label>, Vec<Label>) = a.labels.iter().partition(|label| b.labels.contains(label));
    let right: Vec<Label> = b.labels.iter().copied().filter(|label| !a.labels.contains(label)).collect();
    let (stack, inner): (Vec<Label>, Vec<Label>) = both.iter().partition(|label| keep(label));
    // Matrices of one row and one column are not worth a product of their own.
    if inner.is_empty() || (left.is_empty() && right.is_empty() && !stack.is_empty()) {
        let labels = [&stack[..], &left, &right, &inner].concat();
        return on.folded(on.each(&a, &b, labels, sizes)?, keep);
    }
    on.product(&a, &b, [&stack, &left, &inner, &right], sizes)
}

/// The product of all tensors, from left to right, summed over the dims that the output lacks.
pub(super) fn contract<A>(
    on: &impl Backend<A>,
    operands: Vec<Operand<A>>,
    output: &[Label],
    sizes: &Sizes,
) -> Result<Operand<A>> {
    let later: Vec<Vec<Label>> = operands.iter().map(|operand| operand.labels.clone()).collect();
    let mut operands = operands.into_iter().enumerate();
    let (_, mut product) = operands.next().ok_or_else(|| Error::internal("a product has a factor"))?;
    for (at, operand) in operands {
        let keep =
            |label: &Label| output.contains(label) || later[at + 1..].iter().any(|own| own.contains(label));
        product = pair(on, product, operand, &keep, sizes)?;
    }
    on.folded(product, &|label| output.contains(label))
}

/// Sets `to` to the product of two tensors and says so, where it is one of matrices whose dims are in the order of the output's.
pub(super) fn multiply_into<'a, T: Gemm>(
    cx: &Compute<'a>,
    operands: &[Operand<ArrayViewD<'a, T>>],
    output: &[Label],
    to: &mut [T],
) -> Result<bool> {
    let [a, b] = operands else { return Ok(false) };
    let (both, left): (Vec<Label>, Vec<Label>) = a.labels.iter().partition(|label| b.labels.contains(label));
    let right: Vec<Label> = b.labels.iter().copied().filter(|label| !a.labels.contains(label)).collect();
    let (stack, inner): (Vec<Label>, Vec<Label>) = both.iter().partition(|label| output.contains(label));
    if [&stack[..], &left, &right].concat() != output || inner.is_empty() || left.len() + right.len() == 0 {
        return Ok(false);
    }
    let (a, b) = (a.grouped(cx, [&stack, &left, &inner])?, b.grouped(cx, [&stack, &inner, &right])?);
    let shape = [a.len_of(Axis(0)), a.len_of(Axis(1)), b.len_of(Axis(2))];
    let to = ArrayViewMut::from_shape(IxDyn(&shape), to).map_err(internal)?;
    T::add_products(cx, &shape[..1], &[(a, b)], to, false)?;
    Ok(true)
}

/// Adds a tensor, each of whose dims has a label of its own, to those of a tensor with labels that are some several times, whose dims
/// it may be repeated along.
pub(super) fn spread<T: Gemm>(
    found: ArrayViewD<'_, T>,
    own: &[Label],
    (labels, shape): (&[Label], &[usize]),
    to: &mut [T],
) -> Result<()> {
    let mut to = ArrayViewMut::from_shape(shape, to).map_err(internal)?;
    // Dims of 1 that `own` lacks are repeated ones.
    let mut left = labels.to_vec();
    for axis in (0..labels.len()).rev().filter(|&axis| !own.contains(&labels[axis])) {
        to = to.index_axis_move(Axis(axis), 0);
        left.remove(axis);
    }
    if left.len() == own.len() {
        let from = found
            .broadcast(to.raw_dim())
            .ok_or_else(|| Error::internal("a product has the dims of its labels"))?;
        azip!((to in &mut to, &from in &from) *to = to.plus(from));
        return Ok(());
    }
    let shape: Vec<usize> = own
        .iter()
        .map(|label| left.iter().position(|other| other == label).map_or(1, |at| to.len_of(Axis(at))))
        .collect();
    let from =
        found.broadcast(&shape[..]).ok_or_else(|| Error::internal("a product has the dims of its labels"))?;
    for (at, &from) in from.indexed_iter() {
        let place = &mut to[&place(&left, own, at.slice())[..]];
        *place = place.plus(from);
    }
    Ok(())
}
