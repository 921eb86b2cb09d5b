//! Inputs and outputs: every dtype, lists, optional ones, several, shapes that depend on data, in place.

use opsmith::ndarray::{Ix1, Ix2, IxDyn};
use opsmith::{
    DType, Element, KernelDef, OpDef, OpKernel, OpKernelConstruction, OpKernelContext, Result, ensure,
    shape_fns,
};

/// A kernel without state that is one function.
macro_rules! kernel {
    ($name:ident, |$context:ident| $body:expr) => {
        struct $name;

        impl OpKernel for $name {
            fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
                Ok($name)
            }

            fn compute(&self, $context: &mut OpKernelContext<'_>) -> Result<()> {
                $body
            }
        }
    };
}
pub(crate) use kernel;

kernel!(Echo, |context| context.set_output(0, context.input(0)?));

/// The input, copied; of any dtype.
pub(crate) fn echo() -> OpDef {
    let kernels = DType::ALL.into_iter().filter(|dtype| *dtype != DType::String);
    OpDef::new("Echo")
        .attr("T: type")
        .input("x: T")
        .output("y: T")
        .shape_fn(shape_fns::unchanged)
        .kernels(kernels.map(|dtype| KernelDef::cpu::<Echo>().dtype_constraint("T", dtype)))
}

struct Pairwise<T>(std::marker::PhantomData<T>);

impl<T: opsmith::dtype::Float> OpKernel for Pairwise<T> {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Pairwise(std::marker::PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let shape = context.bind_shapes()?.output_shape(0);
        let (x, y) = (context.view::<T, Ix2>(0)?, context.view::<T, Ix2>(1)?);
        let mut z = context.output_view::<T, Ix2>(0, &shape)?;
        for (i, x) in x.rows().into_iter().enumerate() {
            for (j, y) in y.rows().into_iter().enumerate() {
                z[[i, j]] = x.iter().zip(&y).fold(T::zero(), |sum, (&a, &b)| sum + (a - b).abs());
            }
        }
        Ok(())
    }
}

/// Manhattan distances between rows, in the plainest way.
pub(crate) fn pairwise() -> OpDef {
    OpDef::new("Pairwise")
        .attr("T: {float, double}")
        .input("x: T")
        .input("y: T")
        .output("z: T")
        .shape("(n,p),(m,p)->(n,m)")
        .kernel(KernelDef::cpu::<Pairwise<f32>>().type_constraint::<f32>("T").strided())
        .kernel(KernelDef::cpu::<Pairwise<f64>>().type_constraint::<f64>("T").strided())
}

kernel!(DoubleAll, |context| {
    for (i, x) in context.input_list(0)?.into_iter().enumerate() {
        let y = context.allocate_output_at(0, i, x.shape())?;
        y.into_view::<f32, IxDyn>()?.zip_mut_with(&x.view::<f32, IxDyn>()?, |y, x| *y = 2.0 * x);
    }
    Ok(())
});

/// Every tensor of a list of at least two, doubled.
pub(crate) fn double_all() -> OpDef {
    OpDef::new("DoubleAll")
        .attr("N: int >= 2")
        .input("xs: N * float")
        .output("ys: N * float")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<DoubleAll>())
}

kernel!(PassAll, |context| {
    for (i, x) in context.input_list("xs")?.into_iter().enumerate() {
        let mut y = context.allocate_output_at("ys", i, x.shape())?;
        match x.dtype() {
            DType::Float32 => y.as_slice_mut::<f32>()?.copy_from_slice(x.as_slice()?),
            DType::Int64 => y.as_slice_mut::<i64>()?.copy_from_slice(x.as_slice()?),
            _ => y.as_slice_mut::<bool>()?.copy_from_slice(x.as_slice()?),
        }
    }
    let mut count = context.allocate_output("count", &[])?;
    count.as_slice_mut::<i64>()?[0] = context.output_count("ys")? as i64;
    Ok(())
});

/// A list whose tensors have different dtypes, copied, and how many there are.
pub(crate) fn pass_all() -> OpDef {
    OpDef::new("PassAll")
        .attr("Ts: list({float, int64, bool}) >= 0")
        .input("xs: Ts")
        .output("ys: Ts")
        .output("count: int64")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<PassAll>())
}

kernel!(AddOptional, |context| {
    let x = context.view::<f64, Ix1>("x")?;
    let bias = context.optional_view::<f64, Ix1>("bias")?;
    let mut y = context.output_view::<f64, Ix1>("y", &[x.len()])?;
    y.assign(&x);
    if let Some(bias) = bias {
        y += &bias;
    }
    Ok(())
});

/// `x + bias`, or `x` when there is no bias.
pub(crate) fn add_optional() -> OpDef {
    OpDef::new("AddOptional")
        .input("x: double")
        .input("bias: double")
        .output("y: double")
        .optional("bias")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<AddOptional>())
}

kernel!(Extremes, |context| {
    let x = context.view::<f32, Ix1>(0)?;
    let ordered = |least: bool| {
        let better = |a: f32, b: f32| if least { a < b } else { a > b };
        (1..x.len()).fold(0, |best, i| if better(x[i], x[best]) { i } else { best })
    };
    context.output_view::<f32, IxDyn>("least", &[])?.fill(x[ordered(true)]);
    if context.output_wanted("greatest")? {
        context.output_view::<f32, IxDyn>("greatest", &[])?.fill(x[ordered(false)]);
    }
    if context.output_wanted("at")? {
        let mut at = context.output_view::<i64, Ix1>("at", &[2])?;
        at[0] = ordered(true) as i64;
        at[1] = ordered(false) as i64;
    }
    Ok(())
});

/// Least and greatest element of a vector and where they are; all but the first if wanted.
pub(crate) fn extremes() -> OpDef {
    OpDef::new("Extremes")
        .input("x: float")
        .output("least: float")
        .output("greatest: float")
        .output("at: int64")
        .optional("greatest")
        .optional("at")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<Extremes>())
}

struct NonZero<T>(std::marker::PhantomData<T>);

impl<T: Element> OpKernel for NonZero<T> {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(NonZero(std::marker::PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let x = context.view::<T, IxDyn>(0)?;
        let found: Vec<_> = x.indexed_iter().filter(|(_, value)| **value != T::default()).collect();
        let mut at = context.output_view::<i64, Ix2>(0, &[found.len(), x.ndim()])?;
        for (row, (index, _)) in found.iter().enumerate() {
            for axis in 0..x.ndim() {
                at[[row, axis]] = index[axis] as i64;
            }
        }
        Ok(())
    }
}

/// The indices of the elements that are not zero: how many there are depends on the data.
pub(crate) fn non_zero() -> OpDef {
    OpDef::new("NonZero")
        .attr("T: {float, int32}")
        .input("x: T")
        .output("indices: int64")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<NonZero<f32>>().type_constraint::<f32>("T"))
        .kernel(KernelDef::cpu::<NonZero<i32>>().type_constraint::<i32>("T"))
}

kernel!(Strides, |context| {
    let strides: Vec<i64> = context.input(0)?.strides().iter().map(|&stride| stride as i64).collect();
    let mut output = context.allocate_output(0, &[strides.len()])?;
    output.as_slice_mut::<i64>()?.copy_from_slice(&strides);
    Ok(())
});

/// The strides that the kernel sees: with `T` float it asks for strided views, with double it does not.
pub(crate) fn strides() -> OpDef {
    OpDef::new("Strides")
        .attr("T: {float, double}")
        .input("x: T")
        .output("strides: int64")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<Strides>().type_constraint::<f32>("T").strided())
        .kernel(KernelDef::cpu::<Strides>().type_constraint::<f64>("T"))
}

kernel!(Increment, |context| {
    context.input_mut(0)?.into_view::<f32, IxDyn>()?.mapv_inplace(|x| x + 1.0);
    Ok(())
});

/// Adds one to every element, in place.
pub(crate) fn increment() -> OpDef {
    OpDef::new("Increment")
        .input("x: Ref(float)")
        .shape_fn(shape_fns::no_outputs)
        .kernel(KernelDef::cpu::<Increment>().strided())
}

kernel!(AddInto, |context| {
    let x = context.view::<f32, Ix1>("x")?;
    let mut sum = context.input_mut("sum")?.into_view::<f32, Ix1>()?;
    ensure!([1, sum.len()].contains(&x.len()), InvalidArgument, "`x` must be as long as `sum`");
    sum += &x;
    context.output_view::<f32, IxDyn>(0, &[])?.fill(sum.sum());
    Ok(())
});

/// Adds `x` to `sum`, in place, and gives the total.
pub(crate) fn add_into() -> OpDef {
    OpDef::new("AddInto")
        .input("sum: Ref(float)")
        .input("x: float")
        .output("total: float")
        .shape_fn(shape_fns::scalar)
        .kernel(KernelDef::cpu::<AddInto>().strided())
}

kernel!(Lambda, |context| context.set_output(0, context.input(0)?));

/// Names that Python keeps to itself.
pub(crate) fn lambda() -> OpDef {
    OpDef::new("Lambda")
        .attr("from: int = 1")
        .input("in: float")
        .output("return: float")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<Lambda>())
}
