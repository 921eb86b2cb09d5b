//! An op of a loaded library, to be called.

use std::num::NonZeroUsize;

use opsmith_core::def::ArgDef;
use opsmith_core::{
    AttrValue, Batch, Calls, Error, FreeAxis, Gradient, GradientWiring, Parallel, Result, Signature,
    TensorView, TensorViewMut,
};
use serde_json::Value;
use smallvec::SmallVec;

use crate::attrs::Named;
use crate::call::{Arg, CallInputs, Called, EngineMemory, Made, OutputMemory, call};
use crate::gradient;
use crate::kernel::KernelInfo;
use crate::library::Library;
use crate::tensor::Tensor;

/// Everything wanted, in the form of a call's `wanted`.
pub(crate) const ALL: u64 = u64::MAX;

/// What a library says of one of its ops.
pub(crate) struct OpInfo {
    pub(crate) signature: Signature,
    pub(crate) gradient: Gradient,
    pub(crate) wiring: Option<GradientWiring>,
    pub(crate) kernels: Vec<KernelInfo>,
    pub(crate) parallel: Option<Parallel>,
}

impl OpInfo {
    pub(crate) fn from_json(json: &Value) -> Result<OpInfo> {
        let signature = Signature::from_json(json)?;
        let (gradient, wiring) = gradient::from_json(&signature, &json["gradient"])
            .map_err(|error| error.with_op(&signature.name))?;
        let kernels = KernelInfo::all(&signature, json);
        let rule = |text| Parallel::new(text, &signature, None);
        let parallel = json["parallel"].as_str().map(rule).transpose()?;
        Ok(OpInfo { signature, gradient, wiring, kernels, parallel })
    }
}

/// An op of a loaded library.
#[derive(Clone, Debug)]
pub struct Op {
    library: Library,
    index: usize,
}

impl Op {
    pub(crate) fn new(library: Library, index: usize) -> Op {
        Op { library, index }
    }

    /// The library that it is of.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// Its position in the library.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Its definition.
    pub fn signature(&self) -> &Signature {
        &self.info().signature
    }

    /// What it declares of its gradient.
    pub fn declared_gradient(&self) -> &Gradient {
        &self.info().gradient
    }

    /// How its gradient op is wired to it; none where no op computes its gradient.
    pub fn gradient_wiring(&self) -> Option<&GradientWiring> {
        self.info().wiring.as_ref()
    }

    /// Its free axes; none where it states none.
    pub fn parallel(&self) -> Option<&Parallel> {
        self.info().parallel.as_ref()
    }

    /// The ways in which a batch of calls with these attributes and ranks is one call, for the outputs that are wanted, as
    /// [`Parallel::batches`] tells them.
    pub fn batches(
        &self,
        attrs: &[(&str, AttrValue)],
        ranks: &[Option<usize>],
        batched: &[bool],
        wanted: &[bool],
    ) -> Vec<Batch> {
        let attr = |name: &str| self.attr(attrs, name);
        let calls = Calls { attr: &attr, ranks, batched, wanted };
        self.parallel().map_or_else(Vec::new, |parallel| parallel.batches(&calls))
    }

    /// The free axes of a call with these attributes and inputs of these ranks, as [`Parallel::free_axes`] tells them.
    pub fn free_axes(&self, attrs: &[(&str, AttrValue)], ranks: &[Option<usize>]) -> Vec<FreeAxis> {
        let attr = |name: &str| self.attr(attrs, name);
        self.parallel().map_or_else(Vec::new, |parallel| parallel.free_axes(&attr, ranks))
    }

    /// An attribute of a call: as it is given, or its default.
    fn attr(&self, attrs: &[(&str, AttrValue)], name: &str) -> Option<AttrValue> {
        let given = attrs.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone());
        given.or_else(|| self.signature().attrs[self.signature().attr_index(name)?].default.clone())
    }

    pub(crate) fn info(&self) -> &OpInfo {
        self.library.op_info(self.index)
    }

    /// Calls the op: one [`Arg`] for each input of the definition, and the attributes that do not have their default
    /// value. Gives the tensors of all outputs, one after the other.
    ///
    /// # Errors
    /// `InvalidArgument` when inputs or attributes do not fit the definition, or when the op changes an input in place,
    /// for which there is [`call_in_place`](Self::call_in_place); and whatever the kernel says.
    pub fn call(&self, args: &[Arg<'_>], attrs: &[(&str, AttrValue)]) -> Result<Vec<Tensor>> {
        self.refuse_changes()?;
        self.call_args(args, &mut [], attrs, (ALL, None)).map(all)
    }

    /// Calls the op as [`call`](Self::call) does, for the outputs of the definition whose bits in `wanted` are set;
    /// an optional output that is not wanted may be `None`.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn call_wanted(
        &self,
        args: &[Arg<'_>],
        attrs: &[(&str, AttrValue)],
        wanted: u64,
    ) -> Result<Vec<Option<Tensor>>> {
        self.refuse_changes()?;
        self.call_args(args, &mut [], attrs, (wanted, None)).map(SmallVec::into_vec)
    }

    /// Refuses an op that changes inputs in place.
    pub(crate) fn refuse_changes(&self) -> Result<()> {
        let changed = self.signature().inputs.iter().find(|def| def.is_ref);
        if let Some(changed) = changed {
            let text = format!("input `{}` is changed in place; call it by `call_in_place`", changed.name);
            return Err(self.refusal(text).naming(&changed.name));
        }
        Ok(())
    }

    /// The error that a call does not fit the op.
    #[cold]
    pub(crate) fn refusal(&self, text: String) -> Error {
        Error::invalid_argument(text).with_op(&self.signature().name)
    }

    /// Calls an op that changes inputs in place: `changed` has a tensor for each `Ref` input of the definition, `args` one
    /// [`Arg`] for each of the others. A tensor that shares its memory is copied first, so that nobody else sees the
    /// change.
    ///
    /// # Errors
    /// As [`call`](Self::call); after one, a tensor in `changed` may be partly changed.
    pub fn call_in_place(
        &self,
        changed: &mut [&mut Tensor],
        args: &[Arg<'_>],
        attrs: &[(&str, AttrValue)],
    ) -> Result<Vec<Tensor>> {
        self.call_in_place_on(None, changed, args, attrs)
    }

    /// As [`call_in_place`](Self::call_in_place), on so many threads at most.
    pub(crate) fn call_in_place_on(
        &self,
        threads: Option<NonZeroUsize>,
        changed: &mut [&mut Tensor],
        args: &[Arg<'_>],
        attrs: &[(&str, AttrValue)],
    ) -> Result<Vec<Tensor>> {
        let signature = self.signature();
        let expected = signature.inputs.iter().filter(|def| def.is_ref).count();
        if changed.len() != expected {
            let got = changed.len();
            return Err(self.refusal(format!("changes {expected} inputs in place, got {got}")));
        }
        let mut views =
            changed.iter_mut().map(|tensor| tensor.as_view_mut()).collect::<Result<SmallVec<[_; 2]>>>()?;
        self.call_args(args, &mut views, attrs, (ALL, threads)).map(all)
    }

    /// Calls the op with the `Ref` inputs from `changed` and the others from `args`.
    fn call_args(
        &self,
        args: &[Arg<'_>],
        changed: &mut [TensorViewMut<'_>],
        attrs: &[(&str, AttrValue)],
        (wanted, threads): (u64, Option<NonZeroUsize>),
    ) -> Result<Made> {
        self.check_count(changed.len() + args.len())?;
        let mut flat: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::new();
        let mut counts: SmallVec<[usize; 8]> = SmallVec::new();
        let (mut args, mut changed) = (args.iter(), changed.iter());
        for def in &self.signature().inputs {
            let before = flat.len();
            if def.is_ref {
                flat.push(changed.next().map(TensorViewMut::as_view));
            } else {
                self.push_arg(args.next().unwrap_or(&Arg::Absent), def, &mut flat)?;
            }
            counts.push(flat.len() - before);
        }
        let named: SmallVec<[Named<'_>; 4]> = attrs.iter().map(|(name, value)| (*name, value)).collect();
        let mut memory = EngineMemory::default();
        let mut output_counts: SmallVec<[usize; 8]> = SmallVec::from_elem(0, self.signature().outputs.len());
        let inputs = CallInputs { flat: &flat, counts: &counts };
        // `Ref` inputs come from mutable views, which nobody else uses.
        let called = Called { op: self, attrs: &named, wanted, prepared: None, threads };
        call(&called, inputs, &mut output_counts, &mut memory)?;
        Ok(memory.into_tensors(output_counts.iter().sum()))
    }

    fn push_arg<'a>(
        &self,
        arg: &Arg<'a>,
        def: &ArgDef,
        flat: &mut SmallVec<[Option<TensorView<'a>>; 8]>,
    ) -> Result<()> {
        self.check_is_list(matches!(arg, Arg::List(_)), def)?;
        match arg {
            Arg::Tensor(tensor) => flat.push(Some(tensor.as_view())),
            Arg::List(tensors) => flat.extend(tensors.iter().map(|tensor| Some(tensor.as_view()))),
            Arg::Absent => flat.push(None),
        }
        Ok(())
    }

    pub(crate) fn check_is_list(&self, is_list: bool, def: &ArgDef) -> Result<()> {
        if is_list == def.count.is_list() {
            return Ok(());
        }
        let must = if is_list { "one tensor, got a list" } else { "a list of tensors, got one" };
        Err(self.refusal(format!("input `{}` must be {must}", def.name)).naming(&def.name))
    }

    /// Calls the op on borrowed tensors, `counts` of them for each input of the definition, with outputs in memory of the
    /// caller's. `output_counts`, one for each output of the definition, gets how many tensors it holds. The cheapest way
    /// to call: it allocates nothing itself for the usual numbers of inputs.
    ///
    /// # Safety
    /// A `Ref` input is written to, whatever the view's type says: during the call its memory must be writable, and nobody
    /// else may use it.
    ///
    /// # Errors
    /// As [`call`](Self::call); what `memory` said, where it failed.
    pub unsafe fn call_into<M: OutputMemory>(
        &self,
        inputs: CallInputs<'_>,
        attrs: &[(&str, &AttrValue)],
        wanted: u64,
        output_counts: &mut [usize],
        memory: &mut M,
    ) -> Result<()> {
        call(
            &Called { op: self, attrs, wanted, prepared: None, threads: None },
            inputs,
            output_counts,
            memory,
        )
    }

    pub(crate) fn check_count(&self, given: usize) -> Result<()> {
        let signature = self.signature();
        let expected = signature.inputs.len();
        if given == expected {
            return Ok(());
        }
        let names = signature.inputs.iter().map(|arg| arg.name.as_str()).collect::<Vec<_>>().join(", ");
        Err(self.refusal(format!("takes {expected} inputs ({names}), got {given}")))
    }
}

/// The outputs that were made.
fn all(made: Made) -> Vec<Tensor> {
    let mut tensors = Vec::with_capacity(made.len());
    tensors.extend(made.into_iter().flatten());
    tensors
}
