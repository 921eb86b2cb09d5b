//! The median of sliding windows over images, with gradients of two orders.
//!
//! An Opsmith library whose kernels are written by hand. The definitions are here; `windows` knows shapes, `network` and
//! `medians` find the medians of many windows at once, `passes` goes over images.

mod element;
mod layout;
mod medians;
mod network;
mod passes;
#[cfg(test)]
mod tests;
mod windows;

use std::marker::PhantomData;

use element::{Differentiable, Pooled};
use medians::Medians;
use opsmith::prelude::*;
use windows::Windows;

const ATTRIBUTES: [&str; 3] =
    ["ksize: list(int)", "strides: list(int) = [1, 1]", "padding: {'SAME', 'VALID'} = 'VALID'"];

const ATTRIBUTES_DOC: &str = "ksize: Height and width of a window, or four numbers as TensorFlow has them, of which the first and \
     last are 1.\n\
     strides: How far a window is from the next, down and across; likewise.\n\
     padding: VALID for windows inside of the images alone; SAME for one at every stride, which has what there is of it.";

/// The median of each window of images.
struct MedianPool;

impl OpDefinition for MedianPool {
    fn def() -> OpDef {
        with_attributes(OpDef::new("MedianPool"))
            .attr("T: realnumbertype")
            .input("x: T")
            .output("y: T")
            .gradient("MedianPoolGrad")
            .shape_fn(|context: &mut InferenceContext<'_>| {
                let shape = Windows::infer(context)?;
                context.set_output(0, shape)
            })
            .parallel("(n, _, _, c) -> (n, _, _, c)")
            .kernels(kernels!(Forward<T> for T in RealNumber))
            .doc(&format!(
                "The median of each window of images: of k sorted elements number k // 2, counted from 0.\n\n\
                 A window that reaches beyond an image has only the elements inside. A window with a NaN has the median NaN. \
                 The gradient goes to the first element of the window, row by row, that is the median. Memory is needed for \
                 the output and next to nothing else.\n\n\
                 x: Images, (batch, height, width, channels).\n\
                 y: Their medians, (batch, rows, columns, channels).\n{ATTRIBUTES_DOC}"
            ))
    }
}

/// The gradient. Medians are found again, so nothing but `x` is kept for it.
struct MedianPoolGrad;

impl OpDefinition for MedianPoolGrad {
    fn def() -> OpDef {
        with_attributes(OpDef::new("MedianPoolGrad"))
        .attr("T: {half, bfloat16, float, double}")
        .input("x: T")
        .input("y_grad: T")
        .output("x_grad: T")
        .gradient("MedianPoolGradGrad")
        .shape_fn(|context: &mut InferenceContext<'_>| {
            let (expected, given) = (Windows::infer(context)?, context.input(1)?);
            context.merge_shapes(&expected, &given)?;
            let shape = context.with_rank(context.input(0)?, 4)?;
            context.set_output(0, shape)
        })
        .parallel("(n, _, _, c), (n, _, _, c) -> (n, _, _, c)")
        .kernels(kernels!(Backward<T> for T in AnyFloat))
        .doc(&format!(
            "The gradient of `MedianPool`: that of each median goes to the first element of its window that is it.\n\n\
             x: The images.\n\
             y_grad: The gradient with respect to the medians.\n\
             x_grad: The gradient with respect to the images.\n{ATTRIBUTES_DOC}"
        ))
    }
}

/// The gradient of the gradient by `y_grad`; by `x` it is zero wherever it is defined.
struct MedianPoolGradGrad;

impl OpDefinition for MedianPoolGradGrad {
    fn def() -> OpDef {
        with_attributes(OpDef::new("MedianPoolGradGrad"))
        .attr("T: {half, bfloat16, float, double}")
        .input("x: T")
        .input("x_grad_grad: T")
        .output("y_grad_grad: T")
        .shape_fn(|context: &mut InferenceContext<'_>| {
            let (x, given) = (context.input(0)?, context.input(1)?);
            context.merge_shapes(&x, &given)?;
            let shape = Windows::infer(context)?;
            context.set_output(0, shape)
        })
        .parallel("(n, _, _, c), (n, _, _, c) -> (n, _, _, c)")
        .kernels(kernels!(SecondOrder<T> for T in AnyFloat))
        .doc(&format!(
            "The gradient of `MedianPoolGrad` by `y_grad`: what `x_grad_grad` has where the medians are.\n\n\
             x: The images.\n\
             x_grad_grad: The gradient with respect to `x_grad`.\n\
             y_grad_grad: The gradient with respect to `y_grad`.\n{ATTRIBUTES_DOC}"
        ))
    }
}

fn with_attributes(def: OpDef) -> OpDef {
    ATTRIBUTES.into_iter().fold(def, OpDef::attr)
}

/// The kernel of [`MedianPool`].
struct Forward<T> {
    medians: Medians,
    element: PhantomData<fn() -> T>,
}

impl<T: Pooled> OpKernel for Forward<T> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Forward { medians: Medians::of(construction)?, element: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let pool = self.medians.windows.on(context.input("x")?.shape())?;
        let x = context.slice::<T>("x")?;
        let y = context.allocate_output("y", &pool.shape())?.into_slice::<T>()?;
        if y.is_empty() {
            return Ok(());
        }
        passes::forward(&context.compute(), &self.medians, &pool, x, y)
    }
}

/// The kernel of [`MedianPoolGrad`].
struct Backward<T>(Forward<T>);

impl<T: Differentiable> OpKernel for Backward<T> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Forward::new(construction).map(Backward)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (medians, given) = (&self.0.medians, context.input("y_grad")?);
        let shape = context.input("x")?.shape();
        let pool = medians.windows.on(shape)?;
        check_shape("y_grad", given.shape(), &pool.shape())?;
        let (x, y_grad) = (context.slice::<T>("x")?, context.slice::<T>("y_grad")?);
        let x_grad = context.allocate_output("x_grad", shape)?.into_slice::<T>()?;
        if x_grad.is_empty() {
            return Ok(());
        }
        passes::backward(&context.compute(), medians, &pool, x, y_grad, x_grad)
    }
}

/// The kernel of [`MedianPoolGradGrad`].
struct SecondOrder<T>(Forward<T>);

impl<T: Differentiable> OpKernel for SecondOrder<T> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Forward::new(construction).map(SecondOrder)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (medians, given) = (&self.0.medians, context.input("x_grad_grad")?);
        let shape = context.input("x")?.shape();
        let pool = medians.windows.on(shape)?;
        check_shape("x_grad_grad", given.shape(), shape)?;
        let (x, values) = (context.slice::<T>("x")?, context.slice::<T>("x_grad_grad")?);
        let to = context.allocate_output("y_grad_grad", &pool.shape())?.into_slice::<T>()?;
        if to.is_empty() {
            return Ok(());
        }
        passes::gather(&context.compute(), medians, &pool, x, values, to)
    }
}

fn check_shape(name: &str, given: &[usize], expected: &[usize]) -> Result<()> {
    ensure!(given == expected, InvalidArgument, "input `{name}` must have shape {expected:?}, got {given:?}");
    Ok(())
}

opsmith::library! { name = "median_pool", ops = [MedianPool, MedianPoolGrad, MedianPoolGradGrad] }
