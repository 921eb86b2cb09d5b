//! Moving elements without looking at them: views of tensors that are permuted, cut and repeated, and copies of them into
//! outputs, of any dtype.

use opsmith::prelude::*;
use opsmith::space::{Extents, IndexSpace, Layout, Strides, row_major_strides};

use crate::elementwise::Shared;
use crate::moved_on_card::Move;
use crate::parameters::empty_text;

/// A tensor, or a part of it, seen in another way: all its elements are the tensor's.
#[derive(Clone)]
pub(crate) struct Moved<'a> {
    tensor: TensorView<'a>,
    /// Where the first element is, in elements from the tensor's.
    offset: isize,
    shape: Extents,
    strides: Strides,
}

impl<'a> Moved<'a> {
    /// The tensor as it is.
    pub(crate) fn new(tensor: TensorView<'a>) -> Moved<'a> {
        Moved { offset: 0, shape: tensor.shape().into(), strides: tensor.strides().into(), tensor }
    }

    /// The dims.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// With the dims in another order.
    pub(crate) fn permuted(self, order: &[usize]) -> Moved<'a> {
        let shape = order.iter().map(|&axis| self.shape[axis]).collect();
        let strides = order.iter().map(|&axis| self.strides[axis]).collect();
        Moved { shape, strides, ..self }
    }

    /// With another dim of 1.
    pub(crate) fn inserted(mut self, axis: usize) -> Moved<'a> {
        self.shape.insert(axis, 1);
        self.strides.insert(axis, 0);
        self
    }

    /// Without a dim: the part at a position along it.
    pub(crate) fn at(mut self, axis: usize, index: usize) -> Moved<'a> {
        self = self.part(axis, index, 1);
        self.shape.remove(axis);
        self.strides.remove(axis);
        self
    }

    /// The part along a dim from `start` on, of `length`.
    ///
    /// # Panics
    /// When the dim is shorter.
    pub(crate) fn part(mut self, axis: usize, start: usize, length: usize) -> Moved<'a> {
        assert!(start <= self.shape[axis] && length <= self.shape[axis] - start, "the part is in the tensor");
        if length > 0 {
            self.offset += start as isize * self.strides[axis];
        }
        self.shape[axis] = length;
        self
    }

    /// The part along every dim.
    ///
    /// # Panics
    /// As [`part`](Self::part).
    pub(crate) fn region(self, start: &[usize], length: &[usize]) -> Moved<'a> {
        (0..start.len()).fold(self, |moved, axis| moved.part(axis, start[axis], length[axis]))
    }

    /// The first element by itself, with no dims.
    pub(crate) fn scalar(self) -> Moved<'a> {
        (0..self.shape.len()).fold(self, |moved, _| moved.at(0, 0))
    }

    /// Repeated to a shape that it broadcasts to. Nothing if it does not.
    pub(crate) fn repeated(self, shape: &[usize]) -> Option<Moved<'a>> {
        let strides = Layout { shape: &self.shape, strides: &self.strides }.broadcast(shape)?;
        Some(Moved { shape: shape.into(), strides, ..self })
    }
}

/// What an output is made of: tensors, and the places of their first elements in it. Elsewhere it is zero.
pub(crate) type Parts<'a> = Vec<(Moved<'a>, Extents)>;

/// Makes element `element` of output `output` from one tensor that has all of its elements.
pub(crate) fn make(context: &OpKernelContext<'_>, output: (usize, usize), tensor: Moved<'_>) -> Result<()> {
    let shape = tensor.shape.clone();
    make_as(context, output, &shape, tensor)
}

/// As [`make`], of another shape with as many elements, which go on in row-major order.
pub(crate) fn make_as(
    context: &OpKernelContext<'_>,
    output: (usize, usize),
    shape: &[usize],
    tensor: Moved<'_>,
) -> Result<()> {
    let (seen, start) = (tensor.shape.clone(), Extents::from_elem(0, tensor.shape.len()));
    write(context, output, (shape, &seen), &vec![(tensor, start)], false)
}

/// Makes element `element` of output `output` from parts. With `zeros`, they do not cover it.
pub(crate) fn assemble(
    context: &OpKernelContext<'_>,
    output: (usize, usize),
    shape: &[usize],
    parts: Parts<'_>,
    zeros: bool,
) -> Result<()> {
    write(context, output, (shape, shape), &parts, zeros)
}

/// Makes output 0 of zeros of the shape of a tensor, which is not of text.
pub(crate) fn zeros(context: &OpKernelContext<'_>, like: TensorView<'_>) -> Result<()> {
    let (shape, count) = (like.shape(), like.num_elements());
    let none =
        Moved { tensor: like, offset: 0, shape: Extents::from_elem(0, 1), strides: Strides::from_elem(1, 1) };
    write(context, (0, 0), (shape, &[count]), &vec![(none, Extents::from_elem(0, 1))], true)
}

/// Makes an output of a shape, which parts have their places in as if it were of another, `seen`.
fn write(
    context: &OpKernelContext<'_>,
    (output, element): (usize, usize),
    (shape, seen): (&[usize], &[usize]),
    parts: &Parts<'_>,
    zeros: bool,
) -> Result<()> {
    let strides = row_major_strides(seen);
    let places = parts.iter().map(|(part, start)| {
        let first = first_place(part, start, seen, &strides);
        first.ok_or_else(|| Error::internal("a part of an output lies outside of it"))
    });
    let places = places.collect::<Result<Vec<_>>>()?;
    if parts.first().is_some_and(|(part, _)| part.tensor.dtype() == DType::String) {
        return write_strings(context, (output, element), (shape, &strides), parts, &places);
    }
    let to = context.allocate_output_at(output, element, shape)?;
    if crate::card::is_on_card(context) {
        return write_on_card(context, &to, seen, parts, zeros);
    }
    let (size, memory) = (to.dtype().size(), Shared(to.data_ptr()));
    if zeros && !shape.contains(&0) {
        // SAFETY: the output has so many bytes, and zeros are a value of every dtype but text.
        unsafe { memory.0.write_bytes(0, shape.iter().product::<usize>() * size) };
    }
    for ((part, _), first) in parts.iter().zip(&places) {
        let (from, to) = (part.tensor.data_ptr(), memory.0);
        // SAFETY: the part's elements are the tensor's, those of its place the output's, and no two parts have the same.
        let (from, mut to) = unsafe {
            (
                TensorView::from_raw_parts(
                    from.wrapping_offset(part.offset * size as isize),
                    part.tensor.dtype(),
                    part.tensor.device(),
                    &part.shape,
                    &part.strides,
                ),
                TensorViewMut::from_raw_parts(
                    to.wrapping_offset(first * size as isize),
                    part.tensor.dtype(),
                    part.tensor.device(),
                    &part.shape,
                    &strides,
                ),
            )
        };
        context.copy(from, &mut to)?;
    }
    Ok(())
}

/// As [`write`], on a card: with `zeros`, the first part brings those around it along.
fn write_on_card(
    context: &OpKernelContext<'_>,
    to: &TensorViewMut<'_>,
    seen: &[usize],
    parts: &Parts<'_>,
    zeros: bool,
) -> Result<()> {
    ensure!(!zeros || !parts.is_empty(), Internal, "zeros come with the first part, and there is none");
    let (size, strides) = (to.dtype().size(), row_major_strides(seen));
    let none = Extents::from_elem(0, seen.len());
    for (number, (part, start)) in parts.iter().enumerate() {
        let own =
            Move { dims: &part.shape, start: &none, size: &part.shape, from: &part.strides, to: &strides };
        let (all, first) = match zeros && number == 0 {
            true => (Move { dims: seen, start, ..own }, 0),
            false => (own, start.iter().zip(&strides).map(|(&start, stride)| start as isize * stride).sum()),
        };
        let at = |data: *const u8, offset: isize| data.wrapping_offset(offset * size as isize).cast();
        // SAFETY: the part's elements are the tensor's, and its place, which has been checked, is in the output.
        unsafe {
            all.launch(context, size, at(part.tensor.data_ptr(), part.offset), at(to.data_ptr(), first))?
        };
    }
    Ok(())
}

/// Text is the framework's own, element by element.
fn write_strings(
    context: &OpKernelContext<'_>,
    (output, element): (usize, usize),
    (shape, strides): (&[usize], &[isize]),
    parts: &Parts<'_>,
    places: &[isize],
) -> Result<()> {
    ensure!(element == 0, Unimplemented, "a list of tensors of text is not made here");
    let mut elements = empty_text(shape)?;
    for ((part, _), first) in parts.iter().zip(places) {
        let layout = |strides| Layout { shape: &part.shape, strides };
        let space = IndexSpace::new(&part.shape, &[layout(&part.strides), layout(strides)])?;
        let (strings, [a, b]) = (part.tensor.strings()?, space.steps([0, 1]));
        space.runs([0, 1], 0..space.len(), |_, [source, target], count| {
            for i in 0..count as isize {
                elements[(first + target + i * b) as usize] =
                    strings[(part.offset + source + i * a) as usize];
            }
        });
    }
    context.set_string_output(output, shape, &elements)
}

/// The place of a part's first element in the output. Nothing if the part is not in the output.
fn first_place(part: &Moved<'_>, start: &[usize], shape: &[usize], strides: &[isize]) -> Option<isize> {
    let fits = |((&start, &length), &dim): ((&usize, &usize), &usize)| start <= dim && length <= dim - start;
    if part.shape.len() != shape.len() || !start.iter().zip(&part.shape).zip(shape).all(fits) {
        return None;
    }
    Some(start.iter().zip(strides).map(|(&start, stride)| start as isize * stride).sum())
}

/// The kernel for every dtype, with strides if they are `strided` and elements are memory alone.
pub(crate) fn for_every_dtype<K: OpKernel>(strided: bool) -> impl Iterator<Item = KernelDef> {
    DType::ALL.into_iter().map(move |dtype| {
        let kernel = KernelDef::cpu::<K>().dtype_constraint("T", dtype);
        if strided && dtype != DType::String { kernel.strided() } else { kernel }
    })
}
