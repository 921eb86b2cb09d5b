//! Tensors on a card, and calls of ops there.
//!
//! A [`Card`] has memory that is used again and one stream, on which all work goes; [`CardTensor`]s share their memory, which
//! kernels write once. Copies in and out are asked for, and nothing moves by itself; sessions ask for them where a value of a
//! graph goes from one device to another.

mod memory;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use opsmith_core::fork::{Mutex, Turn};
use opsmith_core::tensor::{Extents, Strides, row_major_strides};
use opsmith_core::{AttrValue, DType, Device, Error, Result, TensorView, ensure};
use opsmith_cuda::CardMemory;
use smallvec::SmallVec;

use self::memory::{Allocator, Block};
use crate::attrs::Named;
use crate::buffer;
use crate::call::{CallInputs, Called, OutputMemory, call};
use crate::op::{ALL, Op};
use crate::pool::MemoryUse;
use crate::tensor::{Tensor, byte_size};

/// A CUDA device as the engine uses it. Clones are of one card, and so is every one of the same number.
#[derive(Clone)]
pub struct Card {
    allocator: Arc<Allocator>,
    device: Device,
}

/// A dense tensor in the memory of a card. Cloning shares the memory, which is not changed any more.
#[derive(Clone)]
pub struct CardTensor {
    block: Arc<Block>,
    dtype: DType,
    card: Card,
    shape: Extents,
    strides: Strides,
}

/// One input of a call on a card.
#[derive(Clone, Copy, Debug)]
pub enum CardArg<'a> {
    /// A tensor on the card.
    Tensor(&'a CardTensor),
    /// A list of tensors on the card.
    List(&'a [CardTensor]),
    /// A tensor that the CUDA kernel has in main memory.
    Host(&'a Tensor),
    /// A list of tensors that the CUDA kernel has in main memory.
    HostList(&'a [Tensor]),
    /// An optional input that is not given.
    Absent,
}

impl<'a> From<&'a CardTensor> for CardArg<'a> {
    fn from(tensor: &'a CardTensor) -> CardArg<'a> {
        CardArg::Tensor(tensor)
    }
}

impl<'a> From<&'a [CardTensor]> for CardArg<'a> {
    fn from(tensors: &'a [CardTensor]) -> CardArg<'a> {
        CardArg::List(tensors)
    }
}

impl<'a> From<&'a Tensor> for CardArg<'a> {
    fn from(tensor: &'a Tensor) -> CardArg<'a> {
        CardArg::Host(tensor)
    }
}

impl<'a> From<&'a [Tensor]> for CardArg<'a> {
    fn from(tensors: &'a [Tensor]) -> CardArg<'a> {
        CardArg::HostList(tensors)
    }
}

impl Card {
    /// The CUDA device of this number, from 0.
    ///
    /// # Errors
    /// `FailedPrecondition`, with what to do, where there is no driver or it does not work; `NotFound` where there is no such
    /// device.
    pub fn open(index: i32) -> Result<Card> {
        static OPEN: Mutex<Option<HashMap<i32, Card>>> = Mutex::new(None);
        static TURN: Turn = Turn::new();
        let _turn = TURN.take();
        if let Some(card) = OPEN.lock().get_or_insert_default().get(&index) {
            return Ok(card.clone());
        }
        let allocator = Allocator::new(Box::new(CardMemory::open(index)?));
        let card = Card { allocator, device: Device::cuda(index) };
        OPEN.lock().get_or_insert_default().insert(index, card.clone());
        Ok(card)
    }

    /// The device.
    pub fn device(&self) -> Device {
        self.device
    }

    /// Copies a tensor to the card. It waits for what is on the card's stream only where the tensor's memory is not the
    /// engine's own, as an array's of NumPy's, which may change after this.
    ///
    /// # Errors
    /// `InvalidArgument` for one of strings; `ResourceExhausted` when the card has no memory for it.
    pub fn put(&self, tensor: &Tensor) -> Result<CardTensor> {
        let made = self.put_lent(tensor);
        if !tensor.is_own() {
            self.wait()?;
        }
        made
    }

    /// As [`put`](Self::put), of a tensor whose memory stays as it is until the card was waited for.
    pub(crate) fn put_lent(&self, tensor: &Tensor) -> Result<CardTensor> {
        ensure!(
            tensor.dtype() != DType::String,
            InvalidArgument,
            "a string tensor cannot be on {}",
            self.device
        );
        let from = if tensor.as_view().is_contiguous() { tensor.clone() } else { tensor.to_dense()? };
        let made = self.empty(tensor.dtype(), tensor.shape())?;
        self.allocator.copy_in(&made.block, from)?;
        Ok(made)
    }

    /// Copies tensors of this card to main memory, and waits once.
    pub(crate) fn get_all(&self, tensors: &[&CardTensor]) -> Result<Vec<Tensor>> {
        let mut made = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let block = buffer::Block::new(byte_size(tensor.dtype, &tensor.shape)?)?;
            made.push(Tensor::own(block, tensor.dtype, &tensor.shape));
        }
        let started = tensors.iter().zip(&mut made).try_for_each(|(from, to)| {
            let to = to.as_view_mut()?.data_ptr();
            // SAFETY: the tensor is new and nobody else's, both have as many bytes, and it is waited for below. Nobody reads it
            // before.
            unsafe { self.allocator.raw().copy_out(to, from.block.data(), from.num_bytes()) }
        });
        // Also where one did not start: others write to what was made here.
        self.wait()?;
        started.map(|()| made)
    }

    /// Waits until all that was put on the card's stream is done: for who measures.
    ///
    /// # Errors
    /// `Internal` for what went wrong on the card until then.
    pub fn wait(&self) -> Result<()> {
        self.allocator.wait()
    }

    /// A tensor whose elements are anything.
    fn empty(&self, dtype: DType, shape: &[usize]) -> Result<CardTensor> {
        let block = Arc::new(self.allocator.allocate(byte_size(dtype, shape)?)?);
        let strides = row_major_strides(shape);
        Ok(CardTensor { block, dtype, card: self.clone(), shape: shape.into(), strides })
    }

    /// Calls an op on the card: one [`CardArg`] for each input of the definition, and the attributes that do not have their
    /// default value. Gives the tensors of all outputs. It waits for nothing: the work is on the card's stream.
    ///
    /// # Errors
    /// `Unimplemented` for an op without a CUDA kernel; `InvalidArgument` when inputs or attributes do not fit the definition, are
    /// on another card or none is on this one, or when the op changes an input in place; and whatever the kernel says.
    pub fn call(
        &self,
        op: &Op,
        args: &[CardArg<'_>],
        attrs: &[(&str, AttrValue)],
    ) -> Result<Vec<CardTensor>> {
        op.refuse_changes()?;
        op.check_count(args.len())?;
        let signature = op.signature();
        let mut flat: SmallVec<[Option<TensorView<'_>>; 8]> = SmallVec::new();
        let mut counts: SmallVec<[usize; 8]> = SmallVec::new();
        for (arg, def) in args.iter().zip(&signature.inputs) {
            let before = flat.len();
            let is_list = matches!(arg, CardArg::List(_) | CardArg::HostList(_));
            op.check_is_list(is_list, def)?;
            match *arg {
                CardArg::Tensor(tensor) => flat.push(Some(tensor.as_view())),
                CardArg::List(tensors) => flat.extend(tensors.iter().map(|tensor| Some(tensor.as_view()))),
                CardArg::Host(tensor) => flat.push(Some(tensor.as_view())),
                CardArg::HostList(tensors) => {
                    flat.extend(tensors.iter().map(|tensor| Some(tensor.as_view())));
                }
                CardArg::Absent => flat.push(None),
            }
            counts.push(flat.len() - before);
        }
        self.check_devices(op, &flat)?;
        let named: SmallVec<[Named<'_>; 4]> = attrs.iter().map(|(name, value)| (*name, value)).collect();
        let called = Called { op, attrs: &named, wanted: ALL, prepared: None, threads: None };
        let made = self.call_flat(&called, CallInputs { flat: &flat, counts: &counts })?;
        Ok(made.into_iter().flatten().collect())
    }

    /// A call of which at least one input is on this card, and none on another one: the tensors that it gave, none for one that
    /// was not made.
    pub(crate) fn call_flat(
        &self,
        called: &Called<'_>,
        inputs: CallInputs<'_>,
    ) -> Result<Vec<Option<CardTensor>>> {
        let mut memory = CallMemory { card: self, outputs: Vec::new(), temps: Vec::new() };
        let mut output_counts: SmallVec<[usize; 8]> =
            SmallVec::from_elem(0, called.op.signature().outputs.len());
        call(called, inputs, &mut output_counts, &mut memory)?;
        memory.outputs.resize_with(output_counts.iter().sum(), || None);
        Ok(memory.outputs)
    }

    /// Checks that the call runs here: outputs are made in this card's memory, and a library that finds its inputs elsewhere
    /// would write to them from there.
    fn check_devices(&self, op: &Op, inputs: &[Option<TensorView<'_>>]) -> Result<()> {
        let mut cards =
            inputs.iter().flatten().map(TensorView::device).filter(|device| *device != Device::CPU);
        if let Some(other) = cards.clone().find(|device| *device != self.device) {
            return Err(op.refusal(format!("an input is on {other}, and the call on {}", self.device)));
        }
        match cards.next() {
            Some(_) => Ok(()),
            None => Err(op.refusal(format!("no input is on {}", self.device))),
        }
    }

    /// How much of the card's memory tensors take.
    pub fn memory_use(&self) -> MemoryUse {
        self.allocator.memory_use()
    }

    /// Gives memory that no tensor uses back to the card, for others in this process or another.
    pub fn release_memory(&self) {
        self.allocator.release();
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Card({})", self.device)
    }
}

impl CardTensor {
    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The dims.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Where it is.
    pub fn device(&self) -> Device {
        self.card.device
    }

    /// The card that it is on.
    pub(crate) fn card(&self) -> &Card {
        &self.card
    }

    /// Copies it to main memory, when what computes it is done.
    ///
    /// # Errors
    /// `ResourceExhausted` without memory; `Internal` for what went wrong on the card until then.
    pub fn get(&self) -> Result<Tensor> {
        let mut found = self.card.get_all(&[self])?;
        found.pop().ok_or_else(|| Error::internal("what was copied is missing"))
    }

    pub(crate) fn num_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    pub(crate) fn as_view(&self) -> TensorView<'_> {
        let data = self.block.data().as_ptr();
        // SAFETY: the block was made for this dtype and shape, and `&self` keeps it; kernels wrote all elements, or will have
        // before others on the stream read them.
        unsafe { TensorView::from_raw_parts(data, self.dtype, self.device(), &self.shape, &self.strides) }
    }
}

impl fmt::Debug for CardTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CardTensor({}{:?} on {})", self.dtype, self.shape(), self.device())
    }
}

/// What a call on a card is lent.
struct CallMemory<'a> {
    card: &'a Card,
    outputs: Vec<Option<CardTensor>>,
    /// They serve again after the call: by work that comes after its own, on the same stream.
    temps: Vec<Block>,
}

impl OutputMemory for CallMemory<'_> {
    fn allocate(&mut self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        ensure!(dtype != DType::String, Unimplemented, "a string tensor cannot be on {}", self.card.device);
        let made = self.card.empty(dtype, shape)?;
        let data = made.block.data().as_ptr();
        if self.outputs.len() <= index {
            self.outputs.resize_with(index + 1, || None);
        }
        self.outputs[index] = Some(made);
        Ok(data)
    }

    fn keep_string(&mut self, _: &[u8]) -> Result<*const u8> {
        Err(Error::unimplemented(format!("a string tensor cannot be on {}", self.card.device)))
    }

    fn stream(&self) -> Option<*mut c_void> {
        Some(self.card.allocator.raw().stream())
    }

    fn allocate_temp(&mut self, bytes: usize) -> Result<*mut u8> {
        let block = self.card.allocator.allocate(bytes)?;
        let data = block.data().as_ptr();
        self.temps.push(block);
        Ok(data)
    }
}
