//! Calls of an op.

use std::num::NonZeroUsize;

use opsmith_core::def::ArgDef;
use opsmith_core::kernel::choose_kernel;
use opsmith_core::{
    AttrValue, Batch, Calls, DType, Device, DeviceKind, Error, FreeAxis, Parallel, Result, TensorView,
    TensorViewMut,
};
use smallvec::SmallVec;

use crate::attrs::Named;
use crate::call::{Arg, CallInputs, Called, OutputMemory, call};
use crate::device::Card;
use crate::kernel::{KernelInfo, resolve};
use crate::library::Op;
use crate::outputs::{CountsRoom, EngineMemory};
use crate::tensor::Tensor;

/// Everything wanted, in the form of a call's `wanted`.
pub(crate) const ALL: u64 = u64::MAX;

impl Op {
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

    /// The kernels that calls may get on a kind of device, the preferred ones first.
    pub fn kernels(&self, device: DeviceKind) -> impl Iterator<Item = &KernelInfo> {
        self.info().kernels.iter().filter(move |kernel| kernel.rule.device == device)
    }

    /// The kernel that a call gets on a kind of device, the one that the library takes: with so many tensors for each input of
    /// the definition, of these dtypes (none for an absent one), and the attributes that do not have their default value.
    ///
    /// # Errors
    /// `Unimplemented` where there is none; `InvalidArgument` when dtypes or attributes do not fit the definition.
    pub fn kernel_for(
        &self,
        device: DeviceKind,
        (counts, dtypes): (&[usize], &[Option<DType>]),
        attrs: &[(String, AttrValue)],
    ) -> Result<&KernelInfo> {
        let signature = self.signature();
        let attrs = resolve(signature, (counts, dtypes), attrs)?;
        let kernels = &self.info().kernels;
        let chosen = choose_kernel(signature, kernels, &attrs, device);
        chosen.map(|chosen| &kernels[chosen]).map_err(|error| error.with_op(&signature.name))
    }

    /// Calls the op: one [`Arg`] for each input of the definition, and the attributes that do not have their default
    /// value. Gives the tensors of all outputs, one after the other. It runs on the device that the tensors are on, but for
    /// those that the CUDA kernel reads in host memory; on a card it waits for nothing, the work is on the stream.
    ///
    /// # Errors
    /// `Unimplemented` for an op without a kernel there; `InvalidArgument` when inputs or attributes do not fit the
    /// definition, when tensors are on different devices, or when the op changes an input in place, for which there is [`call_in_place`](Self::call_in_place); and whatever the kernel says.
    pub fn call(&self, args: &[Arg<'_>], attrs: &[(&str, AttrValue)]) -> Result<Vec<Tensor>> {
        self.refuse_changes()?;
        self.call_args(args, &mut [], attrs, (ALL, None), |memory, _| memory.all_tensors())
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
        let made = |memory: &mut EngineMemory, count| memory.tensors(count).into_vec();
        self.call_args(args, &mut [], attrs, (wanted, None), made)
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
        self.call_args(args, &mut views, attrs, (ALL, threads), |memory, _| memory.all_tensors())
    }

    /// Calls the op with the `Ref` inputs from `changed` and the others from `args`. `made` takes the outputs, so many of them, from
    /// where they were made.
    fn call_args<R>(
        &self,
        args: &[Arg<'_>],
        changed: &mut [TensorViewMut<'_>],
        attrs: &[(&str, AttrValue)],
        (wanted, threads): (u64, Option<NonZeroUsize>),
        made: impl FnOnce(&mut EngineMemory, usize) -> R,
    ) -> Result<R> {
        self.check_count(changed.len() + args.len())?;
        let mut flat: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::new();
        let mut counts: SmallVec<[usize; 8]> = SmallVec::new();
        let (mut given, mut changed) = (args.iter(), changed.iter());
        for def in &self.signature().inputs {
            let before = flat.len();
            if def.is_ref {
                flat.push(changed.next().map(TensorViewMut::as_view));
            } else {
                self.push_arg(given.next().unwrap_or(&Arg::Absent), def, &mut flat)?;
            }
            counts.push(flat.len() - before);
        }
        let named: SmallVec<[Named<'_>; 4]> = attrs.iter().map(|(name, value)| (*name, value)).collect();
        let mut memory = EngineMemory::on(self.device_of(args)?, None);
        let mut room = CountsRoom::default();
        let output_counts = room.counts(self.signature().outputs.len());
        let inputs = CallInputs { flat: &flat, counts: &counts };
        // `Ref` inputs come from mutable views, which nobody else uses.
        let called = self.called(&named, wanted, threads);
        call(&called, inputs, output_counts, &mut memory)?;
        Ok(made(&mut memory, output_counts.iter().sum()))
    }

    /// The card that a call runs on: where its tensors are, but for those that a kernel reads in host memory. None of a
    /// call whose tensors are all in host memory.
    ///
    /// # Errors
    /// `InvalidArgument` for tensors on different devices.
    fn device_of(&self, args: &[Arg<'_>]) -> Result<Option<Card>> {
        if args.iter().flat_map(Arg::tensors).all(|tensor| tensor.device() == Device::CPU) {
            return Ok(None);
        }
        let defs = self.signature().inputs.iter().enumerate().filter(|(_, def)| !def.is_ref);
        let given: Vec<(usize, &ArgDef, &Tensor)> = defs
            .zip(args)
            .flat_map(|((at, def), arg)| arg.tensors().iter().map(move |tensor| (at, def, tensor)))
            .collect();
        let there = given.iter().find(|(.., tensor)| tensor.device() != Device::CPU);
        let Some(&(_, first, there)) = there else { return Ok(None) };
        let kernels = || self.kernels(there.device().kind);
        for (at, def, tensor) in given {
            let (expected, got) = (there.device(), tensor.device());
            // Of an op without kernels the library says so.
            let may_be_here =
                kernels().next().is_none() || kernels().any(|kernel| kernel.reads_in_host_memory(at));
            if got != expected && (got != Device::CPU || !may_be_here) {
                let (name, other) = (&def.name, &first.name);
                let text = format!(
                    "input `{name}` must be on {expected}, where input `{other}` is, got one on {got}: move it by `to`"
                );
                return Err(self.refusal(text).naming(name));
            }
        }
        Ok(there.card())
    }

    /// A call of the op, but for the tensors.
    pub(crate) fn called<'a>(
        &'a self,
        attrs: &'a [Named<'a>],
        wanted: u64,
        threads: Option<NonZeroUsize>,
    ) -> Called<'a> {
        let (table, index, name) = (self.library().table(), self.index(), self.signature().name.as_str());
        Called { table, index, name, attrs, wanted, prepared: None, threads }
    }

    fn push_arg<'a>(
        &self,
        arg: &Arg<'a>,
        def: &ArgDef,
        flat: &mut SmallVec<[Option<TensorView<'a>>; 8]>,
    ) -> Result<()> {
        self.check_is_list(matches!(arg, Arg::List(_)), def)?;
        match arg {
            Arg::Absent => flat.push(None),
            _ => flat.extend(arg.tensors().iter().map(|tensor| Some(tensor.as_view()))),
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
        call(&self.called(attrs, wanted, None), inputs, output_counts, memory)
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
