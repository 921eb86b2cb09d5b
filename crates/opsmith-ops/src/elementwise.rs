//! Kernels that compute each element by itself, of any dtypes: what bodies, which compute with floats alone, are not for.

use std::marker::PhantomData;

use opsmith::prelude::*;
use opsmith::space::{self, IndexSpace};
use opsmith::{DeviceKind, InferenceContext, Shape};

use crate::card;

/// A loop over elements of `N` inputs of certain dtypes.
pub(crate) type Loop<const N: usize> = Box<dyn Run<N>>;

/// What a loop does. (A trait of its own and not `Fn`, whose vtables have each body three times.)
pub(crate) trait Run<const N: usize>: Send + Sync {
    /// Computes `count` elements, which lie one after another from `output` on.
    ///
    /// # Safety
    /// There must be so many elements of the loop's dtypes, along the strides in the inputs, and nobody else has the output's.
    unsafe fn run(&self, inputs: [*const u8; N], strides: [isize; N], output: *mut u8, count: usize);
}

/// A function of elements, and their types.
struct Each<F, E>(F, PhantomData<fn() -> E>);

/// An element where a stride leads from the first.
///
/// # Safety
/// There must be one.
#[inline(always)]
unsafe fn at<T: Copy>(first: *const u8, stride: isize, index: usize) -> T {
    // SAFETY: promised by the caller.
    unsafe { *first.cast::<T>().offset(stride * index as isize) }
}

impl<X: Element, Z: Element, F: Fn(X) -> Z + Send + Sync> Run<1> for Each<F, (X, Z)> {
    unsafe fn run(&self, [x]: [*const u8; 1], [stride]: [isize; 1], z: *mut u8, count: usize) {
        // SAFETY: promised by the caller.
        unsafe {
            let z = std::slice::from_raw_parts_mut(z.cast::<Z>(), count);
            if stride == 1 {
                let x = std::slice::from_raw_parts(x.cast::<X>(), count);
                z.iter_mut().zip(x).for_each(|(z, &x)| *z = (self.0)(x));
            } else {
                z.iter_mut().enumerate().for_each(|(i, z)| *z = (self.0)(at(x, stride, i)));
            }
        }
    }
}

impl<X: Element, Y: Element, Z: Element, F: Fn(X, Y) -> Z + Send + Sync> Run<2> for Each<F, (X, Y, Z)> {
    unsafe fn run(&self, [x, y]: [*const u8; 2], strides: [isize; 2], z: *mut u8, count: usize) {
        // SAFETY: promised by the caller.
        unsafe {
            let z = std::slice::from_raw_parts_mut(z.cast::<Z>(), count);
            let slice = |x: *const u8| std::slice::from_raw_parts(x.cast::<X>(), count);
            match strides {
                [1, 1] => {
                    let y = std::slice::from_raw_parts(y.cast::<Y>(), count);
                    z.iter_mut().zip(slice(x)).zip(y).for_each(|((z, &x), &y)| *z = (self.0)(x, y));
                }
                [1, 0] => {
                    let y = at(y, 0, 0);
                    z.iter_mut().zip(slice(x)).for_each(|(z, &x)| *z = (self.0)(x, y));
                }
                [a, b] => {
                    z.iter_mut().enumerate().for_each(|(i, z)| *z = (self.0)(at(x, a, i), at(y, b, i)));
                }
            }
        }
    }
}

impl<W: Element, X: Element, Y: Element, Z: Element, F: Fn(W, X, Y) -> Z + Send + Sync> Run<3>
    for Each<F, (W, X, Y, Z)>
{
    unsafe fn run(&self, [w, x, y]: [*const u8; 3], [a, b, c]: [isize; 3], z: *mut u8, count: usize) {
        // SAFETY: promised by the caller.
        unsafe {
            let z = std::slice::from_raw_parts_mut(z.cast::<Z>(), count);
            z.iter_mut().enumerate().for_each(|(i, z)| *z = (self.0)(at(w, a, i), at(x, b, i), at(y, c, i)));
        }
    }
}

/// The loop of a function of one element.
pub(crate) fn unary<X: Element, Z: Element>(f: impl Fn(X) -> Z + Send + Sync + 'static) -> Loop<1> {
    Box::new(Each::<_, (X, Z)>(f, PhantomData))
}

/// The loop of a function of two elements.
pub(crate) fn binary<X: Element, Y: Element, Z: Element>(
    f: impl Fn(X, Y) -> Z + Send + Sync + 'static,
) -> Loop<2> {
    Box::new(Each::<_, (X, Y, Z)>(f, PhantomData))
}

/// The loop of a function of three elements.
pub(crate) fn ternary<W: Element, X: Element, Y: Element, Z: Element>(
    f: impl Fn(W, X, Y) -> Z + Send + Sync + 'static,
) -> Loop<3> {
    Box::new(Each::<_, (W, X, Y, Z)>(f, PhantomData))
}

/// The loops of an op of `N` inputs.
pub(crate) trait Elementwise<const N: usize>: 'static {
    /// What `standard.cu` calls it, if it has it.
    const ON_CARD: Option<&'static str> = None;

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
        // Inputs that are not read have a shape to keep to as well.
        if context.signature().inputs.len() > N {
            context.infer_shapes()?;
        }
        compute(&*self.run, E::ON_CARD, context)
    }
}

/// Memory that several threads read, or write to in places of their own.
#[derive(Clone, Copy)]
pub(crate) struct Shared(pub(crate) *mut u8);

// SAFETY: whoever makes one keeps the threads that write to it apart.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Makes output 0 from all inputs, which broadcast. It is not generic over loops, so it is compiled once.
fn compute<const N: usize>(
    run: &dyn Run<N>,
    on_card: Option<&'static str>,
    context: &OpKernelContext<'_>,
) -> Result<()> {
    let inputs: Vec<TensorView<'_>> = (0..N).map(|input| context.input(input)).collect::<Result<_>>()?;
    let Some(shape) = space::broadcast_shape(inputs.iter().map(TensorView::shape)) else {
        return Err(shape_error(context, N));
    };
    if let (DeviceKind::Cuda, Some(name)) = (context.device().kind, on_card) {
        return card::elementwise::compute(name, context, &inputs, &shape);
    }
    let output = context.allocate_output(0, &shape)?;
    let layouts: [_; N] = std::array::from_fn(|input| inputs[input].layout());
    let mut space = IndexSpace::with_room(shape.len(), N);
    space.add(&shape, &layouts)?;
    let operands = std::array::from_fn(|input| input);
    let steps = space.steps(operands);
    let sizes: [usize; N] = std::array::from_fn(|input| inputs[input].dtype().size());
    let from: [Shared; N] = std::array::from_fn(|input| Shared(inputs[input].data_ptr().cast_mut()));
    let (to, size) = (Shared(output.data_ptr()), output.dtype().size());
    context.compute().parallel_for(space.len(), 1, |range| {
        let (from, to) = (&from, &to);
        space.runs(operands, range, |first, places, count| {
            let from = std::array::from_fn(|input| {
                from[input].0.wrapping_offset(places[input] * sizes[input] as isize).cast_const()
            });
            // SAFETY: the kernel was picked for these dtypes, the space stays in the tensors, and each element of the output
            // is written by one thread.
            unsafe { run.run(from, steps, to.0.wrapping_add(first * size), count) };
        });
    });
    Ok(())
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
    Error::invalid_argument(format!("expected inputs that broadcast to one shape, got {}", shapes.join(", ")))
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

/// The kernels of these loops, on a card too where there are some.
pub(crate) fn both<E: Elementwise<N>, const N: usize>() -> impl Iterator<Item = KernelDef> {
    let on_card = E::ON_CARD.map(|_| KernelDef::cuda::<ElementwiseKernel<E, N>>());
    [KernelDef::cpu::<ElementwiseKernel<E, N>>().strided()].into_iter().chain(on_card)
}

/// The same for each of these dtypes of the attribute `T`.
pub(crate) fn for_each<E: Elementwise<N>, const N: usize>(
    dtypes: &'static [DType],
) -> impl Iterator<Item = KernelDef> {
    dtypes.iter().flat_map(|&dtype| both::<E, N>().map(move |kernel| kernel.dtype_constraint("T", dtype)))
}
