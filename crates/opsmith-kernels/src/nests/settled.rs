//! Calls of nests whose shapes have been looked at.

use std::marker::PhantomData;

use half::{bf16, f16};
use opsmith_body::Kind;
use opsmith_core::kernel::{Rest, Settled, SettledCall};
use opsmith_core::space::Layout;
use opsmith_core::tensor::{Extents, Strides, row_major_strides};
use opsmith_core::{Compute, DType, Result};
use smallvec::SmallVec;

use super::{Argument, Arguments, Lying, Placed, Programs, Ready, Runner, Space};
use crate::stored::Stored;

/// Where tensors begin that stand for those of the calls to come, whose addresses are not known.
const STAND_IN: usize = 64;

/// Dense tensors that stand for those of calls, none for one that is absent.
pub(crate) struct StandIns(Vec<Option<(DType, Extents, Strides)>>);

impl StandIns {
    /// Of these dtypes and shapes.
    pub(crate) fn new(tensors: impl Iterator<Item = Option<(DType, Extents)>>) -> StandIns {
        let tensor = |(dtype, shape): (DType, Extents)| {
            let strides = row_major_strides(&shape);
            (dtype, shape, strides)
        };
        StandIns(tensors.map(|own| own.map(tensor)).collect())
    }

    /// Where a tensor begins, and how it lies.
    pub(crate) fn at(&self, position: usize) -> Option<Lying<'_>> {
        let (dtype, shape, strides) = self.0[position].as_ref()?;
        let data = std::ptr::without_provenance_mut(STAND_IN);
        Some(Lying { data, size: dtype.size(), layout: Layout { shape, strides } })
    }
}

/// A settled call of nests.
struct SettledNests<T> {
    ready: Ready,
    /// What each argument is; which tensor of the call it is, or is a part of, the inputs first; and how many bytes behind its begin.
    arguments: Vec<(Kind, usize, usize)>,
    /// How many inputs the call has.
    inputs: usize,
    of: PhantomData<fn() -> T>,
}

impl Runner {
    /// What is left to do of calls whose arguments are placed as these [`StandIns`], the first of which are its inputs; `outputs` are those
    /// to make, and their shapes. Nothing on a card, and where there are no elements.
    pub(crate) fn settle(
        &self,
        space: &Space<'_>,
        arguments: &Arguments,
        inputs: usize,
        outputs: impl Iterator<Item = (usize, Extents)>,
    ) -> Option<Settled> {
        let Runner::Processor(programs, dtype) = self else { return None };
        let is_empty = |placed: &Placed| !placed.is_absent && placed.data.is_null();
        if arguments.wanted.is_empty() || arguments.placed.iter().any(is_empty) {
            return None;
        }
        let call = match dtype {
            DType::Float32 => programs.settled::<f32>(space, arguments, inputs),
            DType::Float64 => programs.settled::<f64>(space, arguments, inputs),
            DType::Float16 => programs.settled::<f16>(space, arguments, inputs),
            DType::BFloat16 => programs.settled::<bf16>(space, arguments, inputs),
            _ => return None,
        };
        Some(Settled { outputs: outputs.collect(), rest: Rest::Call(call.ok()?) })
    }
}

impl Programs {
    fn settled<T: Stored>(
        &self,
        space: &Space<'_>,
        Arguments { placed, wanted, tensors }: &Arguments,
        inputs: usize,
    ) -> Result<Box<dyn SettledCall>> {
        let ready = self.ready::<T>(space, wanted, placed, None)?;
        let argument = |(placed, tensor): (&Placed, &usize)| {
            let behind = if placed.is_absent { 0 } else { placed.data.addr() - STAND_IN };
            (placed.kind, *tensor, behind)
        };
        let arguments = placed.iter().zip(tensors).map(argument).collect();
        Ok(Box::new(SettledNests::<T> { ready, arguments, inputs, of: PhantomData }))
    }
}

// SAFETY: it reads and writes elements of the tensors that it is given.
unsafe impl<T: Stored> SettledCall for SettledNests<T> {
    unsafe fn run(&self, compute: &Compute<'_>, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        let mut arguments: SmallVec<[Argument; 8]> = SmallVec::new();
        for &(kind, tensor, behind) in &self.arguments {
            let begin = match tensor.checked_sub(self.inputs) {
                None => inputs[tensor].cast_mut(),
                Some(output) => outputs[output],
            };
            arguments.push(Argument { data: begin.wrapping_add(behind), kind });
        }
        // SAFETY: promised by the caller; the tensors lie as the stand-ins did.
        unsafe { self.ready.run::<T>(compute, &arguments, true) }
    }
}
