//! TensorFlow's services for one call: memory for outputs and temporaries. It lends no threads, so ours serve.

use std::cell::RefCell;
use std::ptr::NonNull;

use opsmith_core::kernel::Services;
use opsmith_core::tensor::{StrRef, checked_num_elements};
use opsmith_core::{DType, Error, Plan, Result, memory};
use opsmith_threads::Body;
use smallvec::SmallVec;

use super::api::{Call, Tensor};
use super::strings::TString;
use crate::memory::Texts;
use crate::node::Inputs;

/// The services of one call, and what it has made so far.
pub(super) struct TfServices<'a> {
    call: &'a Call<'a>,
    plan: &'a Plan,
    inputs: &'a Inputs,
    outputs: RefCell<SmallVec<[Output; 4]>>,
    kept: RefCell<Kept<'a>>,
    texts: Texts,
}

/// How far an output has come.
#[derive(Clone, Copy)]
enum Output {
    /// TensorFlow has none yet.
    Absent,
    /// Made when an input was to be forwarded and could not be.
    Spare(*mut u8),
    /// The kernel has it.
    Made,
}

/// What lives as long as the call.
#[derive(Default)]
struct Kept<'a> {
    temporaries: Vec<Tensor<'a>>,
    /// Outputs of strings: the kernel's, and where TensorFlow wants them.
    strings: Vec<(Box<[StrRef]>, *mut TString)>,
}

impl<'a> TfServices<'a> {
    /// The services of a call of `plan` with these inputs.
    pub(super) fn new(call: &'a Call<'a>, plan: &'a Plan, inputs: &'a Inputs) -> TfServices<'a> {
        let outputs = SmallVec::from_elem(Output::Absent, plan.output_dtypes().len());
        TfServices {
            call,
            plan,
            inputs,
            outputs: RefCell::new(outputs),
            kept: RefCell::default(),
            texts: Texts::default(),
        }
    }

    /// Hands over the strings, and an empty tensor for each output that nobody wanted.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had.
    pub(super) fn finish(&self) -> Result<()> {
        for (index, output) in self.outputs.borrow().iter().enumerate() {
            if let Output::Absent = output {
                self.call.allocate_output(index, self.plan.output_dtypes()[index], &[0], 0)?;
            }
        }
        for (texts, target) in &self.kept.borrow().strings {
            for (position, text) in texts.iter().enumerate() {
                // SAFETY: TensorFlow's tensor has as many strings, all empty; the texts are kept until the call ends.
                unsafe { (*target.add(position)).set(*text) }?;
            }
        }
        Ok(())
    }
}

// SAFETY: TensorFlow's allocator gives what it is asked for, aligned to 64 bytes, and keeps it until the call ends or, for
// temporaries, until they are dropped with this; the loops are those of our own pool.
unsafe impl Services for TfServices<'_> {
    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let state = std::mem::replace(&mut self.outputs.borrow_mut()[index], Output::Made);
        if let Output::Spare(data) = state {
            return Ok(data);
        }
        let count = checked_num_elements(shape).unwrap_or(usize::MAX);
        let tensor = self.call.allocate_output(index, dtype, shape, count.saturating_mul(dtype.size()))?;
        if dtype != DType::String {
            return Ok(tensor.data());
        }
        let empty = StrRef { data: std::ptr::null(), len: 0 };
        let mut texts = memory::filled(empty, count, "the elements of text")?.into_boxed_slice();
        let data = texts.as_mut_ptr();
        self.kept.borrow_mut().strings.push((texts, tensor.data().cast()));
        Ok(data.cast())
    }

    fn forward_input(&self, inputs: &[usize], output: usize) -> Option<(usize, *mut u8)> {
        // What could not be read where it lies has been copied, and is not among them.
        let shape = self.inputs.at(*inputs.first()?)?.shape;
        // TensorFlow leaves absent inputs out of its count.
        let position =
            |input: &usize| (0..*input).filter(|before| self.inputs.at(*before).is_some()).count() as i32;
        let positions: SmallVec<[i32; 4]> = inputs.iter().map(position).collect();
        let tensor = self.call.forward_input(&positions, output, shape).ok()?;
        let data = tensor.data();
        let taken = inputs.iter().find(|input| {
            !data.is_null() && self.inputs.at(**input).is_some_and(|input| input.data == data.cast_const())
        });
        self.outputs.borrow_mut()[output] = if taken.is_some() { Output::Made } else { Output::Spare(data) };
        taken.map(|&input| (input, data))
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        let tensor = self.call.allocate_temp(bytes.max(1))?;
        let data = NonNull::new(tensor.data());
        self.kept.borrow_mut().temporaries.push(tensor);
        data.ok_or_else(|| Error::resource_exhausted(format!("cannot allocate a temporary of {bytes} bytes")))
    }

    fn keep_string(&self, bytes: &[u8]) -> Result<NonNull<u8>> {
        self.texts.keep(bytes)
    }

    fn num_threads(&self) -> usize {
        opsmith_threads::num_threads()
    }

    fn parallel_for(&self, total: usize, grain: usize, body: Body<'_>) {
        opsmith_threads::parallel_for(total, grain, body);
    }
}
