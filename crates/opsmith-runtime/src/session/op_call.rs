//! Calls of ops in a run.

use std::num::NonZeroUsize;
use std::sync::Arc;

use opsmith_core::fork::OnceLock;
use opsmith_core::{AttrValue, Result, TensorView};
use smallvec::SmallVec;

use crate::attrs::Named;
use crate::call::{CallInputs, Called, Prepared, call, prepare};
use crate::device::Card;
use crate::library::Op;
use crate::outputs::{CountsRoom, EngineMemory, Made};
use crate::pool::MemoryPool;
use crate::tensor::Tensor;

/// The tensors that a step gave, one for each of its outputs; none for one that was not wanted.
pub(super) type Given = Made;

/// What a step calls.
pub(super) struct OpCall<'a> {
    pub(super) op: &'a Op,
    pub(super) attrs: &'a [(String, AttrValue)],
    /// How many tensors each input of the definition holds.
    pub(super) counts: &'a [usize],
    /// The outputs that are wanted, as bits.
    pub(super) wanted: u64,
    /// On how many threads it runs at most.
    pub(super) threads: Option<NonZeroUsize>,
}

impl OpCall<'_> {
    /// Calls the op on flat inputs. What is worked out of the call stays in `prepared`, where it may.
    pub(super) fn run(
        &self,
        inputs: &[Option<&Tensor>],
        prepared: Option<&OnceLock<Option<Prepared>>>,
        (device, pool): (Option<&Card>, &Arc<MemoryPool>),
    ) -> Result<Given> {
        let mut flat: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::new();
        flat.extend(inputs.iter().map(|input| input.map(Tensor::as_view)));
        let inputs = CallInputs { flat: &flat, counts: self.counts };
        let mut room = CountsRoom::default();
        let output_counts = room.counts(self.op.signature().outputs.len());
        let mut memory = EngineMemory::on(device.cloned(), Some(pool));
        self.prepared(inputs, prepared, |called| call(called, inputs, output_counts, &mut memory))?;
        Ok(memory.tensors(output_counts.iter().sum()))
    }

    /// Gives `body` the call of the op, worked out before where it may be.
    #[inline]
    fn prepared<R>(
        &self,
        inputs: CallInputs<'_>,
        prepared: Option<&OnceLock<Option<Prepared>>>,
        body: impl FnOnce(&Called<'_>) -> R,
    ) -> R {
        let mut called = self.op.called(&[], self.wanted, self.threads);
        called.prepared = prepared.and_then(|place| place.get()?.as_ref());
        let named: SmallVec<[Named<'_>; 4]>;
        if called.prepared.is_none() {
            named = self.attrs.iter().map(|(name, value)| (name.as_str(), value)).collect();
            called.attrs = &named;
            // The state of stateful ops is the library's to find; what cannot be worked out fails in the call.
            if let Some(place) = prepared.filter(|_| !self.op.signature().stateful) {
                called.prepared = place.get_or_init(|| prepare(&called, inputs).ok()).as_ref();
            }
        }
        body(&called)
    }
}
