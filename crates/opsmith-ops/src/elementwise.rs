//! Kernels that compute each element by itself, of any dtypes: what bodies, which compute with floats alone, are not for.

use std::marker::PhantomData;

use opsmith::prelude::*;
use opsmith::{InferenceContext, Shape};

use crate::walk::{Walk, broadcast};

/// A loop over elements of `N` inputs of certain dtypes: places and strides of the inputs, the place of the output, whose
/// elements lie one after another, and how many there are.
pub(crate) struct Loop<const N: usize>(Run<N>);

type Run<const N: usize> = Box<dyn Fn([*const u8; N], [isize; N], *mut u8, usize) + Send + Sync>;

/// An element where a stride leads from the first.
///
/// # Safety
/// There must be one.
#[inline(always)]
unsafe fn at<T: Copy>(first: *const u8, stride: isize, index: usize) -> T {
    // SAFETY: promised by the caller.
    unsafe { *first.cast::<T>().offset(stride * index as isize) }
}

/// The loop of a function of one element.
pub(crate) fn unary<X: Element, Z: Element>(f: impl Fn(X) -> Z + Send + Sync + 'static) -> Loop<1> {
    Loop(Box::new(move |[x], [stride], z, count| {
        // SAFETY: whoever runs it has checked dtypes and shapes.
        unsafe {
            let z = std::slice::from_raw_parts_mut(z.cast::<Z>(), count);
            if stride == 1 {
                let x = std::slice::from_raw_parts(x.cast::<X>(), count);
                z.iter_mut().zip(x).for_each(|(z, &x)| *z = f(x));
            } else {
                z.iter_mut().enumerate().for_each(|(i, z)| *z = f(at(x, stride, i)));
            }
        }
    }))
}

/// The loop of a function of two elements.
pub(crate) fn binary<X: Element, Y: Element, Z: Element>(
    f: impl Fn(X, Y) -> Z + Send + Sync + 'static,
) -> Loop<2> {
    Loop(Box::new(move |[x, y], strides, z, count| {
        // SAFETY: whoever runs it has checked dtypes and shapes.
        unsafe {
            let z = std::slice::from_raw_parts_mut(z.cast::<Z>(), count);
            let slice = |x: *const u8| std::slice::from_raw_parts(x.cast::<X>(), count);
            match strides {
                [1, 1] => {
                    let y = std::slice::from_raw_parts(y.cast::<Y>(), count);
                    z.iter_mut().zip(slice(x)).zip(y).for_each(|((z, &x), &y)| *z = f(x, y));
                }
                [1, 0] => {
                    let y = at(y, 0, 0);
                    z.iter_mut().zip(slice(x)).for_each(|(z, &x)| *z = f(x, y));
                }
                [a, b] => z.iter_mut().enumerate().for_each(|(i, z)| *z = f(at(x, a, i), at(y, b, i))),
            }
        }
    }))
}

/// The loop of a function of three elements.
pub(crate) fn ternary<W: Element, X: Element, Y: Element, Z: Element>(
    f: impl Fn(W, X, Y) -> Z + Send + Sync + 'static,
) -> Loop<3> {
    Loop(Box::new(move |[w, x, y], [a, b, c], z, count| {
        // SAFETY: whoever runs it has checked dtypes and shapes.
        unsafe {
            let z = std::slice::from_raw_parts_mut(z.cast::<Z>(), count);
            z.iter_mut().enumerate().for_each(|(i, z)| *z = f(at(w, a, i), at(x, b, i), at(y, c, i)));
        }
    }))
}

/// The loops of an op of `N` inputs.
pub(crate) trait Elementwise<const N: usize>: 'static {
    /// The loop for the dtypes of an instance, whose inputs and output have them.
    fn pick(construction: &OpKernelConstruction<'_>) -> Result<Loop<N>>;
}

/// The kernel of an op that has loops.
pub(crate) struct ElementwiseKernel<E, const N: usize> {
    run: Loop<N>,
    loops: PhantomData<fn() -> E>,
}

impl<E: Elementwise<N>, const N: usize> OpKernel for ElementwiseKernel<E, N> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(ElementwiseKernel { run: E::pick(construction)?, loops: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.run.compute(context)
    }
}

/// Memory that several threads read, or write to in places of their own.
#[derive(Clone, Copy)]
pub(crate) struct Shared(pub(crate) *mut u8);

// SAFETY: whoever makes one keeps the threads that write to it apart.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl<const N: usize> Loop<N> {
    fn compute(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let inputs: Vec<TensorView<'_>> = (0..N).map(|input| context.input(input)).collect::<Result<_>>()?;
        let Some(shape) = broadcast(inputs.iter().map(TensorView::shape)) else {
            return Err(shape_error(context, N));
        };
        let output = context.allocate_output(0, &shape)?;
        let layouts = std::array::from_fn(|input| (inputs[input].shape(), inputs[input].strides()));
        let walk = Walk::<N>::new(&shape, layouts)
            .ok_or_else(|| Error::internal("the shape that inputs broadcast to does not fit one of them"))?;
        let sizes: [usize; N] = std::array::from_fn(|input| inputs[input].dtype().size());
        let (from, to) =
            (inputs.iter().map(|input| Shared(input.data_ptr().cast_mut())), Shared(output.data_ptr()));
        let (from, size): (Vec<Shared>, usize) = (from.collect(), output.dtype().size());
        context.compute().parallel_for(walk.len(), 1, |range| {
            let to = &to;
            walk.runs(range, |first, places, count| {
                let from = std::array::from_fn(|input| {
                    from[input].0.wrapping_offset(places[input] * sizes[input] as isize).cast_const()
                });
                (self.0)(from, walk.inner(), to.0.wrapping_add(first * size), count);
            });
        });
        Ok(())
    }
}

/// The error of a call whose inputs do not broadcast.
#[cold]
pub(crate) fn shape_error(context: &OpKernelContext<'_>, count: usize) -> Error {
    let signature = context.signature();
    let shape = |input: usize| {
        let shape = context.input_shape(input).unwrap_or_default();
        format!("`{}` {shape:?}", signature.inputs[input].name)
    };
    let shapes: Vec<String> = (0..count).map(shape).collect();
    Error::invalid_argument(format!(
        "{}: expected inputs that broadcast to one shape, got {}",
        signature.name,
        shapes.join(", ")
    ))
}

/// The shape that all inputs broadcast to.
pub(crate) fn broadcast_shape(c: &mut InferenceContext<'_>) -> Result<Shape> {
    let mut shape = c.input(0)?;
    for input in 1..c.num_inputs() {
        let other = c.input(input)?;
        shape = c.broadcast(&shape, &other)?;
    }
    Ok(shape)
}

/// The output has the shape that all inputs broadcast to.
pub(crate) fn broadcasting(c: &mut InferenceContext<'_>) -> Result<()> {
    let shape = broadcast_shape(c)?;
    c.set_output(0, shape)
}

/// The kernel of these loops for each of these dtypes of the attribute `T`.
pub(crate) fn for_each<E: Elementwise<N>, const N: usize>(
    dtypes: &'static [DType],
) -> impl Iterator<Item = KernelDef> {
    dtypes
        .iter()
        .map(|&dtype| KernelDef::cpu::<ElementwiseKernel<E, N>>().strided().dtype_constraint("T", dtype))
}
