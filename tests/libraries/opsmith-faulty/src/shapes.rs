//! Shape functions that do not say what the kernel makes.

use opsmith::prelude::*;

/// The product of every element of `x` with every one of `y`. The shape function swaps the dims.
pub(crate) struct SwappedDims;

impl OpDefinition for SwappedDims {
    fn def() -> OpDef {
        OpDef::new("SwappedDims")
            .input("x: float")
            .input("y: float")
            .output("products: float")
            .shape_fn(|c: &mut InferenceContext<'_>| {
                let (x, y) = (c.with_rank(c.input(0)?, 1)?, c.with_rank(c.input(1)?, 1)?);
                let products = c.matrix(c.dim(&y, 0)?, c.dim(&x, 0)?);
                c.set_output(0, products)
            })
            .kernel(KernelDef::cpu::<SwappedDims>())
            .not_differentiable()
            .doc("All products.\n\nx: A vector.\ny: A vector.\nproducts: A row for each element of `x`.")
    }
}

impl OpKernel for SwappedDims {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(SwappedDims)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (x, y) = (context.view::<f32, Ix1>("x")?, context.view::<f32, Ix1>("y")?);
        let mut products = context.output_view::<f32, Ix2>("products", &[x.len(), y.len()])?;
        for ((i, j), product) in products.indexed_iter_mut() {
            *product = x[i] * y[j];
        }
        Ok(())
    }
}

/// Copies a vector. The shape function refuses other ranks, the kernel does not.
pub(crate) struct LateCheck;

impl OpDefinition for LateCheck {
    fn def() -> OpDef {
        OpDef::new("LateCheck")
            .input("x: float")
            .output("y: float")
            .shape_fn(|c: &mut InferenceContext<'_>| {
                let vector = c.with_rank(c.input(0)?, 1)?;
                c.set_output(0, vector)
            })
            .kernel(KernelDef::cpu::<LateCheck>())
            .not_differentiable()
            .doc("A copy.\n\nx: A vector.\ny: The same.")
    }
}

impl OpKernel for LateCheck {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(LateCheck)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let x = context.view::<f32, IxDyn>("x")?;
        context.output_view::<f32, IxDyn>("y", x.shape())?.assign(&x);
        Ok(())
    }
}

/// The green of pixels, of which there are three numbers each. Without pixels it ends the process.
pub(crate) struct EndsOnNoPixels;

impl OpDefinition for EndsOnNoPixels {
    fn def() -> OpDef {
        OpDef::new("EndsOnNoPixels")
            .input("pixels: float")
            .output("green: float")
            .shape_fn(|c: &mut InferenceContext<'_>| {
                let pixels = c.with_rank(c.input(0)?, 2)?;
                let colours = c.dim(&pixels, 1)?;
                c.with_value(&colours, 3)?;
                let green = c.vector(c.dim(&pixels, 0)?);
                c.set_output(0, green)
            })
            .kernel(KernelDef::cpu::<EndsOnNoPixels>())
            .not_differentiable()
            .doc("A colour.\n\npixels: A row of three for each.\ngreen: The second of each.")
    }
}

impl OpKernel for EndsOnNoPixels {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(EndsOnNoPixels)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        context.infer_shapes()?;
        let pixels = context.view::<f32, Ix2>("pixels")?;
        if pixels.nrows() == 0 {
            std::process::abort();
        }
        context.output_view::<f32, Ix1>("green", &[pixels.nrows()])?.assign(&pixels.column(1));
        Ok(())
    }
}

/// Adds two vectors. The kernel takes it for granted that they are equally long, and reads on where one is shorter.
pub(crate) struct TrustsShapes;

impl OpDefinition for TrustsShapes {
    fn def() -> OpDef {
        OpDef::new("TrustsShapes")
            .input("x: float")
            .input("y: float")
            .output("sum: float")
            .shape_fn(shape_fns::merged)
            .kernel(KernelDef::cpu::<TrustsShapes>())
            .not_differentiable()
            .doc("A sum.\n\nx: Of any shape.\ny: Of the same shape.\nsum: Of the same shape.")
    }
}

impl OpKernel for TrustsShapes {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(TrustsShapes)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (x, y) = (context.slice::<f32>("x")?, context.slice::<f32>("y")?);
        let mut sum = context.allocate_output("sum", context.input("x")?.shape())?;
        for (i, sum) in sum.as_slice_mut::<f32>()?.iter_mut().enumerate() {
            // SAFETY: none, which is the fault: `y` may have fewer elements than `x`.
            *sum = x[i] + unsafe { *y.as_ptr().add(i) };
        }
        Ok(())
    }
}
