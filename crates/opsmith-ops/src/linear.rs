//! Ops that are linear in their first input, which they move or add up: such an op, its gradient, and the gradient's
//! gradient, which is the op again.

use std::marker::PhantomData;

use opsmith::Shape;
use opsmith::dtype::sets;
use opsmith::prelude::*;
use opsmith_core::kernel::Settled;

use crate::card;
use crate::moved::for_every_dtype;

/// What is to be said of such an op.
pub(crate) struct Facts {
    /// Its name.
    pub(crate) name: &'static str,
    /// The name of its first input.
    pub(crate) x: &'static str,
    /// Its attributes, but for the dtype `T`.
    pub(crate) attrs: &'static [&'static str],
    /// The dtypes of its first input and its output `y`.
    pub(crate) dtypes: &'static str,
    /// The inputs after the first, each as its definition is written.
    pub(crate) parameters: &'static [&'static str],
    /// Those of the parameters that a kernel reads to know the shapes.
    pub(crate) host: &'static [&'static str],
    /// The dims of the inputs and of the output as [`OpDef::parallel`] has them; none where nothing is free. Where the
    /// output is a sum, `+(…)`, only the gradients have the rule: they are of floats, and other dtypes have no sums.
    pub(crate) dims: &'static [&'static str],
    /// The documentation.
    pub(crate) doc: &'static str,
    /// The shape of the output, from inputs that are like those of the op.
    pub(crate) shape: fn(&mut InferenceContext<'_>) -> Result<Shape>,
}

/// An op that is linear in its first input and has one output, `y`.
pub(crate) trait Linear: Send + Sync + Sized + 'static {
    /// What it says of itself.
    const FACTS: Facts;

    /// An instance, from its attributes.
    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self>;

    /// Makes output 0 from input 0.
    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()>;

    /// Makes output 0, of the shape of input 0, from the last input, which has the shape of `y`.
    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()>;

    /// What is left to do of forward calls on tensors of the same shapes.
    fn settle(&self, _context: &OpKernelContext<'_>) -> Option<Settled> {
        None
    }

    /// Whether inputs may have any strides.
    const STRIDED: bool = true;

    /// For which dtypes there is a kernel on a card: forward and, among floats, backward.
    const ON_CARD: [fn(DType) -> bool; 2] = [never; 2];

    /// The kernels of the op.
    fn kernels() -> Vec<KernelDef> {
        for_every_dtype::<Forward<Self>>(Self::STRIDED).collect()
    }
}

pub(crate) struct Forward<L>(L);
pub(crate) struct Backward<L>(L, PhantomData<fn() -> L>);

impl<L: Linear> OpKernel for Forward<L> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        L::new(construction).map(Forward)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.0.forward(context)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        self.0.settle(context)
    }
}

impl<L: Linear> OpKernel for Backward<L> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Backward(L::new(construction)?, PhantomData))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.0.backward(context)
    }
}

/// The dtypes that gradients are of.
pub(crate) const FLOATS: &str = "{float16, bfloat16, float32, float64}";

fn begin<L: Linear>(name: &str, dtypes: &str, first: &str) -> OpDef {
    let def = L::FACTS.attrs.iter().fold(OpDef::new(name), |def, attr| def.attr(attr));
    let def = def.attr(&format!("T: {dtypes}")).input(&format!("{first}: T"));
    L::FACTS.parameters.iter().fold(def, |def, parameter| def.input(parameter))
}

/// The op with the rule of its free axes, if there are any.
fn parallel(def: OpDef, inputs: &[&str], output: &str) -> OpDef {
    if inputs.is_empty() { def } else { def.parallel(&format!("{} -> {output}", inputs.join(", "))) }
}

/// What moves parts of the first input moves parts of the output.
fn parallel_forward<L: Linear>(def: OpDef) -> OpDef {
    let (output, inputs) = L::FACTS.dims.split_last().unwrap_or((&"", &[]));
    parallel(def, inputs, output)
}

fn in_host_memory<L: Linear>(kernel: KernelDef) -> KernelDef {
    L::FACTS.host.iter().fold(kernel, |kernel, parameter| kernel.host_memory(parameter))
}

/// The op.
pub(crate) fn forward<L: Linear>() -> OpDef {
    let def = begin::<L>(L::FACTS.name, L::FACTS.dtypes, L::FACTS.x).output("y: T");
    let is_free = !L::FACTS.dims.last().is_some_and(|output| output.starts_with('+'));
    let def = if is_free { parallel_forward::<L>(def) } else { def };
    def.doc(L::FACTS.doc)
        .shape_fn(|c| {
            let shape = (L::FACTS.shape)(c)?;
            c.set_output(0, shape)
        })
        .gradient(&format!("{}Grad", L::FACTS.name))
        .kernels(
            L::kernels()
                .into_iter()
                .chain(card::kernels::<Forward<L>>(L::ON_CARD[0]))
                .map(in_host_memory::<L>),
        )
}

/// Its gradient: of the inputs, the first one's shape is what counts.
pub(crate) fn gradient<L: Linear>() -> OpDef {
    let name = L::FACTS.name;
    let dims: Vec<&str> = L::FACTS.dims.iter().map(|dims| dims.trim_start_matches('+')).collect();
    let def = begin::<L>(&format!("{name}Grad"), FLOATS, L::FACTS.x)
        .input("y_grad: T")
        .output(&format!("{}_grad: T", L::FACTS.x));
    // Only parameters have axes that the first input lacks.
    let sum = if L::FACTS.parameters.is_empty() { "" } else { "+" };
    parallel(def, &dims, &format!("{sum}{}", dims.first().unwrap_or(&"")))
        .doc(&format!("The gradient of `{name}`."))
        .shape_fn(|c| {
            let (shape, given) = ((L::FACTS.shape)(c)?, c.input(c.num_inputs() - 1)?);
            c.merge_shapes(&shape, &given)?;
            let shape = c.input(0)?;
            c.set_output(0, shape)
        })
        .gradient(&format!("{name}GradGrad"))
        .kernels(floats_with::<Backward<L>>(L::STRIDED).map(in_host_memory::<L>))
        .kernels(
            card::kernels::<Backward<L>>(|dtype| is_float(dtype) && L::ON_CARD[1](dtype))
                .map(in_host_memory::<L>),
        )
}

/// The gradient's gradient.
pub(crate) fn second<L: Linear>() -> OpDef {
    let name = L::FACTS.name;
    let def = begin::<L>(&format!("{name}GradGrad"), FLOATS, &format!("{}_grad_grad", L::FACTS.x));
    parallel_forward::<L>(def.output("y_grad_grad: T"))
        .doc(&format!("The gradient of `{name}Grad`."))
        .shape_fn(|c| {
            let shape = (L::FACTS.shape)(c)?;
            c.set_output(0, shape)
        })
        .kernels(floats_with::<Forward<L>>(L::STRIDED).map(in_host_memory::<L>))
        .kernels(
            card::kernels::<Forward<L>>(|dtype| is_float(dtype) && L::ON_CARD[0](dtype))
                .map(in_host_memory::<L>),
        )
}

pub(crate) fn is_float(dtype: DType) -> bool {
    sets::ANY_FLOAT.contains(&dtype)
}

/// There is no such kernel.
pub(crate) fn never(_: DType) -> bool {
    false
}

/// The kernel for each float dtype, whose inputs may have any strides.
pub(crate) fn floats<K: OpKernel>() -> impl Iterator<Item = KernelDef> {
    floats_with::<K>(true)
}

/// As [`floats`], whose inputs may have any strides if it is `strided`.
pub(crate) fn floats_with<K: OpKernel>(strided: bool) -> impl Iterator<Item = KernelDef> {
    let kernel = if strided { KernelDef::cpu::<K>().strided() } else { KernelDef::cpu::<K>() };
    sets::ANY_FLOAT.iter().map(move |&dtype| kernel.clone().dtype_constraint("T", dtype))
}

/// The error of a gradient whose shape is not that of what it belongs to.
#[cold]
pub(crate) fn gradient_shape_error(context: &OpKernelContext<'_>, expected: &[usize]) -> Error {
    let signature = context.signature();
    let last = signature.inputs.len() - 1;
    let (name, got) = (&signature.inputs[last].name, context.input_shape(last).unwrap_or_default());
    Error::invalid_argument(format!("input `{name}` must have shape {expected:?}, got {got:?}")).naming(name)
}

/// The last input, which must have this shape.
pub(crate) fn last_input<'a>(context: &OpKernelContext<'a>, expected: &[usize]) -> Result<TensorView<'a>> {
    let tensor = context.input(context.signature().inputs.len() - 1)?;
    if tensor.shape() == expected { Ok(tensor) } else { Err(gradient_shape_error(context, expected)) }
}
