//! Where tensors are, and copies of them elsewhere.

use std::ptr::NonNull;
use std::sync::Arc;

use opsmith_core::tensor::row_major_strides;
use opsmith_core::{DType, Device, DeviceKind, Error, Result, bail, ensure};

use super::{Tensor, byte_size};
use crate::buffer::{self, Buffer};
use crate::device::{Block, Card};

/// A tensor in host memory, without gaps.
struct Dense(Tensor);

impl AsRef<[u8]> for Dense {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Tensor {
    /// The device that has its memory.
    pub fn device(&self) -> Device {
        match &self.buffer {
            Buffer::Device(block) => block.device(),
            Buffer::Own(_) | Buffer::Foreign(_) => Device::CPU,
        }
    }

    /// This tensor on a device: itself where it is there, else a copy. A copy to host memory is there when this returns. One
    /// from host memory is waited for only where the memory is not the engine's own, as an array's of NumPy's, which may change
    /// after this.
    ///
    /// # Errors
    /// As [`Card::open`]; `InvalidArgument` for strings, which are in host memory only; `ResourceExhausted` where the
    /// device has no memory for it; `Internal` for what went wrong on a device until then.
    pub fn to(&self, device: Device) -> Result<Tensor> {
        if device == self.device() {
            return Ok(self.clone());
        }
        match device.kind {
            DeviceKind::Cpu => {
                let mut copied = Tensor::to_host(&[self])?;
                copied.pop().ok_or_else(|| Error::internal("what was copied is missing"))
            }
            DeviceKind::Cuda => self.to_cuda(&Card::open(device.index)?),
        }
    }

    /// A copy on a device that is open.
    pub(crate) fn to_cuda(&self, device: &Card) -> Result<Tensor> {
        let made = self.lent_to(device);
        if !self.is_own() {
            device.wait()?;
        }
        made
    }

    /// As [`to_cuda`](Self::to_cuda), of a tensor whose memory stays as it is until the device was waited for.
    pub(crate) fn lent_to(&self, device: &Card) -> Result<Tensor> {
        let name = device.device();
        ensure!(self.dtype != DType::String, InvalidArgument, "a string tensor cannot be on {name}");
        let from = self.to(Device::CPU)?.to_contiguous()?;
        let made = Tensor::on_device(device, self.dtype, &self.shape)?;
        if let Buffer::Device(block) = &made.buffer {
            device.allocator().copy_in(block, Box::new(Dense(from)))?;
        }
        Ok(made)
    }

    /// Copies of tensors of one device in host memory; the device is waited for once.
    pub(crate) fn to_host(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
        let Some(device) = tensors.first().and_then(|tensor| tensor.card()) else {
            return Ok(tensors.iter().map(|&tensor| tensor.clone()).collect());
        };
        let (mut made, mut copies) = (Vec::with_capacity(tensors.len()), Vec::with_capacity(tensors.len()));
        for &tensor in tensors {
            let Buffer::Device(block) = &tensor.buffer else {
                bail!(Internal, "a tensor on {} is not there", device.device());
            };
            // Of a part, or one whose dims changed places, all is copied that its elements lie in.
            let is_whole = tensor.is_contiguous();
            let (data, bytes) = match is_whole {
                true => (tensor.data, tensor.num_bytes()),
                false => (block.data().as_ptr(), block.size()),
            };
            let mut copy = Tensor::own(buffer::Block::new(bytes)?, tensor.dtype, &tensor.shape);
            copies.push((copy.data, data, bytes));
            if !is_whole {
                copy.data = copy.data.wrapping_add(tensor.data as usize - data as usize);
                copy.strides = tensor.strides.clone();
            }
            made.push(copy);
        }
        let started = copies.into_iter().try_for_each(|(to, from, bytes)| {
            let Some(from) = NonNull::new(from) else { return Ok(()) };
            // SAFETY: the memory is new and nobody else's, both have so many bytes, and it is waited for below. Nobody reads it
            // before.
            unsafe { device.allocator().raw().copy_out(to, from, bytes) }
        });
        // Also where one did not start: others write to what was made here.
        device.wait()?;
        started.map(|()| made)
    }

    /// A dense tensor on a device whose elements are anything.
    pub(crate) fn on_device(device: &Card, dtype: DType, shape: &[usize]) -> Result<Tensor> {
        let block: Block = device.allocate(byte_size(dtype, shape)?)?;
        let data = block.data().as_ptr();
        let buffer = Buffer::Device(Arc::new(block));
        Ok(Tensor { buffer, data, dtype, shape: shape.into(), strides: row_major_strides(shape) })
    }

    /// The card that it is on; none of one in host memory.
    pub(crate) fn card(&self) -> Option<Card> {
        match &self.buffer {
            Buffer::Device(block) => Some(Card::of(block)),
            Buffer::Own(_) | Buffer::Foreign(_) => None,
        }
    }

    /// Refuses a tensor that is not in host memory, where its elements are looked at.
    pub(crate) fn check_host(&self) -> Result<()> {
        let device = self.device();
        ensure!(
            device == Device::CPU,
            InvalidArgument,
            "expected a tensor in host memory, got one on {device}: move it by `to(Device::CPU)`"
        );
        Ok(())
    }
}
