//! Kernels that fail, in every way.

use opsmith::{
    Error, KernelDef, OpDef, OpKernel, OpKernelConstruction, OpKernelContext, Result, bail, shape_fns,
};

use crate::arguments::kernel;

/// Where to panic.
struct Panics(String);

impl OpKernel for Panics {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let place: String = construction.attr("place")?;
        assert!(place != "new", "no instance today");
        Ok(Panics(place))
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        assert!(self.0 != "compute", "no result today");
        context.parallel_for(1000, 1_000_000, |range| {
            assert!(!range.contains(&999), "no thread today");
        });
        context.set_output(0, context.input(0)?)
    }
}

/// Panics in its constructor, in `compute`, or on a thread of the caller's.
pub(crate) fn panics() -> OpDef {
    OpDef::new("Panics")
        .attr("place: {'new', 'compute', 'thread'}")
        .input("x: float")
        .output("y: float")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<Panics>())
}

/// The message to fail with.
struct Fails(String);

impl OpKernel for Fails {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        construction.attr("message").map(Fails)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        context.set_output(0, context.input(0)?)?;
        bail!(OutOfRange, "{}", self.0)
    }
}

/// Makes its output, then fails.
pub(crate) fn fails() -> OpDef {
    failing("Fails", "message: string = 'it failed'")
}

/// Fails with a message that begins with its own name.
pub(crate) fn max() -> OpDef {
    failing("Max", "message: string = 'Maximum of 2 expected, got 3'")
}

fn failing(name: &str, attr: &str) -> OpDef {
    OpDef::new(name)
        .attr(attr)
        .input("x: float")
        .output("y: float")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<Fails>())
}

/// How many bytes, and of what.
struct Allocates {
    bytes: usize,
    temporary: bool,
}

impl OpKernel for Allocates {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Allocates { bytes: construction.attr("bytes")?, temporary: construction.attr("temporary")? })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        if self.temporary {
            context.temp::<u8>(self.bytes)?;
        }
        let len = if self.temporary { 0 } else { self.bytes };
        context.allocate_output(0, &[len]).map(drop)
    }
}

/// Allocates a temporary or an output of any size.
pub(crate) fn allocates() -> OpDef {
    OpDef::new("Allocates")
        .attr("bytes: int >= 0")
        .attr("temporary: bool = false")
        .output("y: uint8")
        .shape_fn(shape_fns::unknown)
        .kernel(KernelDef::cpu::<Allocates>())
}

kernel!(StringLength, |context| {
    let texts = context.input(0)?.strings()?;
    let mut lengths = context.allocate_output(0, &[texts.len()])?;
    for (length, text) in lengths.as_slice_mut::<i64>()?.iter_mut().zip(texts) {
        *length = i64::try_from(text.len()).map_err(|_| Error::out_of_range("a text is too long"))?;
    }
    Ok(())
});

/// The length of every text of a vector, in bytes: for frameworks that have string tensors.
pub(crate) fn string_length() -> OpDef {
    OpDef::new("StringLength")
        .input("texts: string")
        .output("lengths: int64")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<StringLength>())
}

kernel!(Quote, |context| {
    let input = context.input(0)?;
    let quoted: Vec<Vec<u8>> = input.strings()?.into_iter().map(|text| [b"<", text, b">"].concat()).collect();
    context.set_string_output(0, input.shape(), &quoted)
});

/// Every text of a tensor of any shape, in angle brackets.
pub(crate) fn quote() -> OpDef {
    OpDef::new("Quote")
        .input("texts: string")
        .output("quoted: string")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<Quote>())
}

kernel!(Forgets, |_context| Ok(()));

/// Forgets to make its output.
pub(crate) fn forgets() -> OpDef {
    OpDef::new("Forgets")
        .input("x: float")
        .output("y: float")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<Forgets>())
}
