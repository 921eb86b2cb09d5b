//! An op as its author states it, and as a library keeps it.

mod dense;
mod describe;
mod plan;
mod settled;

use std::sync::Arc;

pub use plan::{Plan, PlanRef, Request};

use self::plan::{Instances, Plans};
use crate::explain::{ExplainFn, Explanation};
use crate::gradient::{Arguments, Gradient, GradientWiring};
use crate::kernel::{KernelDef, OpFacts, OpKernelConstruction};
use crate::parallel::{FreeAxis, Parallel};
use crate::program::{Program, ProgramFn};
use crate::resource::Resources;
use crate::shape::{InferenceContext, ShapeFn, ShapeSignature};
use crate::{AttrValue, Autocast, DType, Error, Result, Signature, SignatureBuilder, bail};

/// The statement of an op: its definition, shape function, kernels and gradient.
///
/// ```
/// use opsmith_core::{OpDef, shape_fns};
///
/// let def = OpDef::new("ZeroOut")
///     .attr("preserve_index: int = 0")
///     .input("to_zero: int32")
///     .output("zeroed: int32")
///     .shape_fn(shape_fns::unchanged);
/// ```
///
/// Nothing is checked until the library is assembled, which then names the op and the place of what is wrong.
#[derive(Clone)]
#[must_use]
pub struct OpDef {
    signature: SignatureBuilder,
    shapes: Shapes,
    kernels: Vec<KernelDef>,
    gradient: Gradient,
    parallel: Option<String>,
    autocast: Option<Autocast>,
    explain: Option<ExplainFn>,
    program: Option<ProgramFn>,
    fault: Option<Error>,
}

#[derive(Clone)]
enum Shapes {
    Unknown,
    Function(ShapeFn),
    Signature(String),
}

impl OpDef {
    /// Begins the statement of the op `name`, CamelCase.
    pub fn new(name: &str) -> OpDef {
        OpDef {
            signature: SignatureBuilder::new(name),
            shapes: Shapes::Unknown,
            kernels: Vec::new(),
            gradient: Gradient::Undeclared,
            parallel: None,
            autocast: None,
            explain: None,
            program: None,
            fault: None,
        }
    }

    fn with(mut self, change: impl FnOnce(SignatureBuilder) -> SignatureBuilder) -> OpDef {
        self.signature = change(self.signature);
        self
    }

    /// Adds an attribute: `"preserve_index: int = 0"`.
    pub fn attr(self, spec: &str) -> OpDef {
        self.with(|signature| signature.attr(spec))
    }

    /// Lets a `type` attribute have more dtypes than its spec says: for kernels that are added by hand to an op that a macro
    /// made, as those for integers to a body, which computes with floats.
    pub fn more_dtypes(self, attr: &str, dtypes: &[DType]) -> OpDef {
        self.with(|signature| signature.more_dtypes(attr, dtypes))
    }

    /// Adds an input: `"to_zero: T"`.
    pub fn input(self, spec: &str) -> OpDef {
        self.with(|signature| signature.input(spec))
    }

    /// Adds an output: `"zeroed: T"`.
    pub fn output(self, spec: &str) -> OpDef {
        self.with(|signature| signature.output(spec))
    }

    /// Lets the input `arg` be absent, or the output `arg` be left out when nobody wants it.
    pub fn optional(self, arg: &str) -> OpDef {
        self.with(|signature| signature.optional(arg))
    }

    /// Says that the output `arg` serves the gradient only; wrappers drop it.
    pub fn saved(self, arg: &str) -> OpDef {
        self.with(|signature| signature.saved(arg))
    }

    /// Says that calls have effects or memory: they are never folded, merged or dropped.
    pub fn stateful(self) -> OpDef {
        self.with(SignatureBuilder::stateful)
    }

    /// Documents the op, in Markdown; lines `name: text` at the end document arguments.
    pub fn doc(self, text: &str) -> OpDef {
        self.with(|signature| signature.doc(text))
    }

    /// Infers the outputs' shapes by a function: one of [`shape_fns`](crate::shape_fns), or the author's own.
    pub fn shape_fn(
        mut self,
        function: impl Fn(&mut InferenceContext<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> OpDef {
        self.shapes = Shapes::Function(Arc::new(function));
        self
    }

    /// Infers the outputs' shapes by a signature: `"(n,p),(m,p)->(n,m)"`.
    pub fn shape(mut self, signature: &str) -> OpDef {
        self.shapes = Shapes::Signature(signature.to_owned());
        self
    }

    /// Adds a kernel.
    pub fn kernel(mut self, kernel: KernelDef) -> OpDef {
        self.kernels.push(kernel);
        self
    }

    /// Adds kernels.
    pub fn kernels(mut self, kernels: impl IntoIterator<Item = KernelDef>) -> OpDef {
        self.kernels.extend(kernels);
        self
    }

    /// Names the op of the same library that computes the gradient.
    pub fn gradient(mut self, op: &str) -> OpDef {
        self.gradient = Gradient::Op(op.to_owned());
        self
    }

    /// Says that no gradient flows through the op: zeros flow back.
    pub fn not_differentiable(mut self) -> OpDef {
        self.gradient = Gradient::NotDifferentiable;
        self
    }

    /// Says which axes are free, as [`Parallel`] has it: the names of dims of the shape signature, `"n, m"`, or a rule of its own,
    /// `"(..., n, _), (m, _) -> (..., n, m)"`. Where every argument of the shape signature has batch dims, these are free unless other
    /// axes are said to be; not of an op that is stateful or changes inputs in place.
    pub fn parallel(mut self, axes: &str) -> OpDef {
        self.parallel = Some(axes.to_owned());
        self
    }

    /// The definition as far as it is stated.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn signature(&self) -> Result<Signature> {
        self.signature.clone().build()
    }

    /// Says what PyTorch's autocast does with the inputs.
    pub fn autocast(mut self, policy: Autocast) -> OpDef {
        self.autocast = Some(policy);
        self
    }

    /// Says what the kernel is made of, for [`Op::explain`].
    pub fn explain(
        mut self,
        function: impl Fn(&OpKernelConstruction<'_>) -> Result<Explanation> + Send + Sync + 'static,
    ) -> OpDef {
        self.explain = Some(Arc::new(function));
        self
    }

    /// Says what is computed of each element, for [`Op::program`].
    pub fn program(
        mut self,
        function: impl Fn(&OpKernelConstruction<'_>) -> Result<Option<Program>> + Send + Sync + 'static,
    ) -> OpDef {
        self.program = Some(Arc::new(function));
        self
    }

    /// Says what is wrong with the op where the statement does not show it, as whoever made it from something else has found.
    pub fn fault(mut self, error: Error) -> OpDef {
        self.fault = Some(error);
        self
    }

    /// Checks the statement.
    ///
    /// # Errors
    /// What is said to be [wrong](Self::fault); else `InvalidArgument` with the offending text and a caret under the place.
    pub fn build(self) -> Result<Op> {
        let signature = self.signature.build()?;
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let (shape_fn, shape_signature): (ShapeFn, _) = match self.shapes {
            Shapes::Unknown => (Arc::new(crate::shape_fns::unknown), None),
            Shapes::Function(function) => (function, None),
            Shapes::Signature(text) => {
                let shapes = ShapeSignature::parse(&text)
                    .and_then(|shapes| shapes.of_op(&signature))
                    .map_err(|error| Error::invalid_argument(error.render(&text)).with_op(&signature.name))?;
                shapes.check(&signature)?;
                (shapes.shape_fn(), Some(shapes))
            }
        };
        // What batch dims mean.
        let is_pure = !signature.stateful && signature.inputs.iter().all(|input| !input.is_ref);
        let is_batchable = is_pure
            && !signature.inputs.is_empty()
            && shape_signature.as_ref().is_some_and(ShapeSignature::is_batchable);
        let stated = self.parallel.as_deref().or(is_batchable.then_some("..."));
        let parallel = |text: &str| Parallel::new(text, &signature, shape_signature.as_ref());
        let parallel = stated.map(parallel).transpose()?;
        for kernel in &self.kernels {
            check_kernel(&signature, kernel).map_err(|error| error.with_op(&signature.name))?;
        }
        if let Some(policy) = self.autocast {
            policy.check(&signature).map_err(|error| error.with_op(&signature.name))?;
        }
        Ok(Op {
            facts: OpFacts { signature, shape_fn, shape_signature, resources: Arc::default() },
            kernels: self.kernels,
            gradient: self.gradient,
            parallel,
            autocast: self.autocast,
            explain: self.explain,
            program: self.program,
            wiring: None,
            plans: Plans::default(),
            instances: Instances::default(),
        })
    }
}

fn check_kernel(signature: &Signature, kernel: &KernelDef) -> Result<()> {
    for (attr, dtype) in &kernel.constraints {
        let Some(index) = signature.attr_index(attr) else {
            bail!(InvalidArgument, "a kernel is constrained by `{attr}`, which is not an attribute");
        };
        let allowed = match &signature.attrs[index].allowed {
            Some(crate::def::Allowed::Types(allowed)) => allowed.contains(dtype),
            _ => true,
        };
        if !allowed {
            bail!(InvalidArgument, "a kernel is for {attr} = {dtype}, which the definition does not allow");
        }
    }
    for arg in &kernel.host_memory {
        if signature.input_index(arg).is_none() {
            bail!(InvalidArgument, "a kernel keeps `{arg}` in host memory, which is not an input");
        }
    }
    Ok(())
}

/// A type that stands for an op, so that `library!` can list it. `#[op]` implements it.
pub trait OpDefinition {
    /// The statements of ops that come with it, at most [`MAX_COMPANIONS`]: the gradients of a kernel that is written once.
    const COMPANIONS: &'static [fn() -> OpDef] = &[];

    /// What its arguments are called, where a macro knows it.
    #[doc(hidden)]
    const ARGUMENTS: Option<Arguments> = None;

    /// The op's statement.
    fn def() -> OpDef;
}

/// The most ops that may come with one.
pub const MAX_COMPANIONS: usize = 4;

/// An op of a library: checked, with its kernels and what has been built of them.
pub struct Op {
    facts: OpFacts,
    kernels: Vec<KernelDef>,
    gradient: Gradient,
    parallel: Option<Parallel>,
    autocast: Option<Autocast>,
    explain: Option<ExplainFn>,
    program: Option<ProgramFn>,
    wiring: Option<GradientWiring>,
    plans: Plans,
    instances: Instances,
}

impl Op {
    /// The definition.
    pub fn signature(&self) -> &Signature {
        &self.facts.signature
    }

    /// The shape signature, for an op that has one.
    pub fn shape_signature(&self) -> Option<&ShapeSignature> {
        self.facts.shape_signature.as_ref()
    }

    /// What it declares of its gradient.
    pub fn gradient(&self) -> &Gradient {
        &self.gradient
    }

    /// How its gradient op is wired, for an op that has one.
    pub fn gradient_wiring(&self) -> Option<&GradientWiring> {
        self.wiring.as_ref()
    }

    /// Which of its axes are free, where some are.
    pub fn parallel(&self) -> Option<&Parallel> {
        self.parallel.as_ref()
    }

    /// The free axes of a call with these attributes, in the definition's order, and inputs of these ranks, as
    /// [`Parallel::free_axes`] has them.
    pub fn free_axes(&self, attrs: &[AttrValue], ranks: &[Option<usize>]) -> Vec<FreeAxis> {
        let attr = |name: &str| attrs.get(self.facts.signature.attr_index(name)?).cloned();
        self.parallel.as_ref().map_or_else(Vec::new, |parallel| parallel.free_axes(&attr, ranks))
    }

    /// What PyTorch's autocast does with its inputs, where it says so.
    pub fn autocast(&self) -> Option<Autocast> {
        self.autocast
    }

    pub(crate) fn explain_fn(&self) -> Option<&ExplainFn> {
        self.explain.as_ref()
    }

    /// The registered kernels.
    pub fn kernels(&self) -> &[KernelDef] {
        &self.kernels
    }

    /// Infers the shapes of the outputs: `context` has the inputs' and gets the outputs'.
    ///
    /// # Errors
    /// `InvalidArgument` when the inputs' shapes do not fit the op.
    pub fn infer_shapes(&self, context: &mut InferenceContext<'_>) -> Result<()> {
        self.facts.infer_shapes(context)
    }

    pub(crate) fn join(&mut self, wiring: Option<GradientWiring>, resources: Arc<Resources>) {
        self.wiring = wiring;
        self.facts.resources = resources;
    }
}
