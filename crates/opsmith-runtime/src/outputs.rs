//! The outputs of a call as the engine's own tensors.

use std::ffi::c_void;
use std::sync::Arc;

use opsmith_core::{DType, Error, Result, memory};
use smallvec::SmallVec;

use crate::buffer::Block;
use crate::call::OutputMemory;
use crate::device::{self, Card};
use crate::pool::MemoryPool;
use crate::tensor::{Tensor, byte_size};

/// Room for how many tensors each output holds. For the usual numbers it is on the stack, and is not moved.
#[derive(Default)]
pub(crate) struct CountsRoom {
    few: [usize; 8],
    many: Vec<usize>,
}

impl CountsRoom {
    /// The counts of so many outputs, all 0.
    pub(crate) fn counts(&mut self, outputs: usize) -> &mut [usize] {
        if outputs > self.few.len() {
            self.many.resize(outputs, 0);
            return &mut self.many;
        }
        &mut self.few[..outputs]
    }
}

/// The outputs of a call, `None` where one was not made.
pub(crate) type Made = SmallVec<[Option<Tensor>; 1]>;

/// Outputs as the engine's own tensors, on the device of the call.
///
/// An output is moved but once: a tensor is large to move for a small call.
#[derive(Default)]
pub(crate) struct EngineMemory {
    outputs: SmallVec<[Tensor; 1]>,
    /// Which output each is.
    indices: SmallVec<[usize; 4]>,
    strings: Vec<Vec<u8>>,
    source: Source,
}

/// Where the memory of outputs comes from.
#[derive(Default)]
enum Source {
    /// The global allocator.
    #[default]
    Host,
    Pool(Arc<MemoryPool>),
    /// With what the call is lent besides: that serves again after it, for work that comes later on the same stream.
    Device(Card, Vec<device::Block>),
}

impl OutputMemory for EngineMemory {
    fn allocate(&mut self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let bytes = byte_size(dtype, shape)?;
        let block = match &self.source {
            Source::Device(device, _) if dtype != DType::String => {
                return Ok(self.keep(index, Tensor::on_device(device, dtype, shape)?));
            }
            Source::Device(device, _) => return Err(no_strings(device)),
            _ if dtype == DType::String => Block::zeroed(bytes),
            Source::Pool(pool) => Block::pooled(bytes, pool),
            Source::Host => Block::new(bytes),
        }?;
        Ok(self.keep(index, Tensor::own(block, dtype, shape)))
    }

    fn keep_string(&mut self, bytes: &[u8]) -> Result<*const u8> {
        if let Source::Device(device, _) = &self.source {
            return Err(no_strings(device));
        }
        memory::reserve(&mut self.strings, 1, "text")?;
        self.strings.push(memory::copied(bytes, "text")?);
        Ok(self.strings[self.strings.len() - 1].as_ptr())
    }

    fn stream(&self) -> Option<*mut c_void> {
        match &self.source {
            Source::Device(device, _) => Some(device.stream()),
            Source::Host | Source::Pool(_) => None,
        }
    }

    fn allocate_temp(&mut self, bytes: usize) -> Result<*mut u8> {
        let Source::Device(device, temps) = &mut self.source else {
            return Err(Error::unimplemented("temporary memory is lent on devices that have a stream"));
        };
        let block = device.allocate(bytes)?;
        let data = block.data().as_ptr();
        temps.push(block);
        Ok(data)
    }
}

fn no_strings(device: &Card) -> Error {
    Error::unimplemented(format!("a string tensor cannot be on {}", device.device()))
}

impl EngineMemory {
    /// Outputs on a device; none is the CPU, with memory of this pool where there is one.
    pub(crate) fn on(device: Option<Card>, pool: Option<&Arc<MemoryPool>>) -> EngineMemory {
        let source = match (device, pool) {
            (Some(device), _) => Source::Device(device, vec![]),
            (None, Some(pool)) => Source::Pool(pool.clone()),
            (None, None) => Source::Host,
        };
        EngineMemory { source, ..EngineMemory::default() }
    }

    /// Keeps an output, and gives its memory.
    fn keep(&mut self, index: usize, made: Tensor) -> *mut u8 {
        let data = made.as_view().data_ptr().cast_mut();
        self.outputs.push(made);
        self.indices.push(index);
        data
    }

    /// The `count` outputs of a call that succeeded, taken.
    pub(crate) fn tensors(&mut self, count: usize) -> Made {
        self.complete();
        let mut made = Made::new();
        made.resize_with(count, || None);
        for (index, tensor) in self.indices.drain(..).zip(self.outputs.drain(..)) {
            if let Some(made) = made.get_mut(index) {
                *made = Some(tensor);
            }
        }
        made
    }

    /// Those that were made, in their order.
    pub(crate) fn all_tensors(&mut self) -> Vec<Tensor> {
        self.complete();
        if !self.indices.is_sorted() {
            let mut made: Vec<_> = self.indices.drain(..).zip(self.outputs.drain(..)).collect();
            made.sort_by_key(|(index, _)| *index);
            self.outputs.extend(made.into_iter().map(|(_, tensor)| tensor));
        }
        self.outputs.drain(..).collect()
    }

    fn complete(&mut self) {
        if !self.strings.is_empty() {
            let text = Arc::new(std::mem::take(&mut self.strings));
            let texts = self.outputs.iter_mut().filter(|tensor| tensor.dtype() == DType::String);
            texts.for_each(|tensor| tensor.keep(text.clone()));
        }
    }
}
