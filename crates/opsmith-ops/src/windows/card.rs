//! Kernels of `windows.cu` on a card: how they are launched.

use std::ffi::c_void;

use opsmith::cuda::{BLOCK, CudaCall, Index, KernelCall, Source, Structure, index_of};
use opsmith::prelude::*;
use opsmith::space::{Extents, IndexSpace, Layout, Strides};

use super::Along;

pub(crate) static SOURCE: Source = Source::new("windows.cu", include_str!("windows.cu")).beside(file!());

/// So many threads keep every card busy.
const BUSY: usize = 1 << 18;
/// The least places that are worth another thread.
const LEAST: usize = 16;
/// The most blocks, which go on by so many.
const MOST_BLOCKS: usize = 1 << 16;

/// A tensor as kernels get it: any dims in front, channels of up to two kinds, and the dims that windows go over.
pub(crate) struct Operand {
    data: *const c_void,
    shape: Extents,
    strides: Strides,
    channels: usize,
    dims: usize,
}

impl Operand {
    /// A tensor whose last dims are so many kinds of channels, and so many that windows go over.
    pub(crate) fn new(tensor: TensorView<'_>, channels: usize, dims: usize) -> Operand {
        let shape = tensor.shape();
        // Where there are no two elements, frameworks leave anything.
        let leads = |dim: usize| dim > 1 && !shape.contains(&0);
        let strides = shape.iter().zip(tensor.strides());
        let strides = strides.map(|(&dim, &stride)| if leads(dim) { stride } else { 0 }).collect();
        Operand { data: tensor.data_ptr().cast(), shape: shape.into(), strides, channels, dims }
    }

    /// Images whose channels are the last dim, behind two that windows go over.
    pub(crate) fn with_channels_last(images: TensorView<'_>) -> Operand {
        let mut this = Operand::new(images, 1, 2);
        let own = this.front();
        this.shape[own..].rotate_right(1);
        this.strides[own..].rotate_right(1);
        this
    }

    fn front(&self) -> usize {
        self.shape.len() - self.channels - self.dims
    }

    /// The dims in front.
    fn layout(&self) -> Layout<'_> {
        Layout { shape: &self.shape[..self.front()], strides: &self.strides[..self.front()] }
    }

    /// The structure `Tensor` of the source.
    fn packed(&self, index: Index) -> Result<Vec<u8>> {
        let (channels, dims) = self.strides[self.front()..].split_at(self.channels);
        let mut strides = [0; 5];
        strides[2 - channels.len()..2].copy_from_slice(channels);
        strides[5 - dims.len()..].copy_from_slice(dims);
        let mut structure = Structure::new(index);
        structure.address(self.data);
        for stride in strides {
            structure.index(stride as i128)?;
        }
        Ok(structure.finish())
    }
}

impl Along {
    /// More than any place that a kernel computes.
    fn far(&self) -> usize {
        let windows = self.stride.saturating_mul(self.count.saturating_add(1));
        let elements = self.dilation.saturating_mul(self.size.saturating_add(1));
        [windows, elements, self.dim, self.before].into_iter().fold(0, usize::saturating_add)
    }

    /// From a window that has an element to the next one: so many windows on.
    fn turn(&self) -> usize {
        let (mut divisor, mut rest) = (self.dilation, self.stride);
        while rest > 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        self.dilation / divisor
    }
}

/// What a kernel goes over: images of the dims in front of its tensors, and windows.
pub(crate) struct Over<'a> {
    along: &'a [Along; 3],
    operands: &'a [Operand],
    images: IndexSpace,
    pub(crate) index: Index,
}

impl<'a> Over<'a> {
    /// With images of so many channels, and other numbers up to `most`.
    pub(crate) fn new(
        along: &'a [Along; 3],
        front: &[usize],
        operands: &'a [Operand],
        (channels, most): (usize, usize),
    ) -> Result<Over<'a>> {
        let layouts: Vec<Layout<'_>> = operands.iter().map(Operand::layout).collect();
        let images = IndexSpace::new(front, &layouts)?;
        let numbers = images.len().max(1).saturating_mul(channels.max(1));
        let all = |of: fn(&Along) -> usize| {
            along.iter().fold(numbers, |product, along| product.saturating_mul(of(along)))
        };
        let spans = operands.iter().map(|own| Layout { shape: &own.shape, strides: &own.strides }.span());
        let far = spans.chain(along.iter().map(Along::far)).fold(most, usize::max);
        let far = far.max(all(|along| along.dim)).max(all(|along| along.count));
        let index = index_of(&[], 1, far.max(images.len()));
        Ok(Over { along, operands, images, index })
    }

    /// Launches a kernel, whose name goes on with `<` and all types but that of indices: its parameters are the tensors, what `add` adds,
    /// the images and the windows.
    ///
    /// # Safety
    /// What `add` adds must be what the kernel takes, on the call's card, and there must be room for what it makes.
    pub(crate) unsafe fn launch(
        &self,
        context: &OpKernelContext<'_>,
        kernel: &str,
        add: impl FnOnce(KernelCall<'_>) -> KernelCall<'_>,
    ) -> Result<()> {
        let call = CudaCall::new(context, &SOURCE);
        let mut launch = call.kernel(format!("{kernel}, {}>", self.index.name()));
        for operand in self.operands {
            launch = launch.raw(&operand.packed(self.index)?);
        }
        let mut windows = Structure::new(self.index);
        for along in self.along {
            let Along { dim, size, stride, dilation, before, count, .. } = *along;
            for number in [dim, size, stride, dilation, before, count, along.turn()] {
                windows.index(number as i128)?;
            }
        }
        let launch = add(launch).space(&self.images, self.operands.len(), self.index);
        // SAFETY: the tensors are the call's; the rest the caller promised.
        unsafe { launch.raw(&windows.finish_without_address()).launch() }
    }
}

/// The geometry of a pooling with so many results: where these are few, threads share the places of each.
pub(crate) fn shared<'a>(launch: KernelCall<'a>, results: usize, along: &[Along; 3]) -> KernelCall<'a> {
    let places = |product: usize, along: &Along| product.saturating_mul(along.size.min(along.dim));
    let places = along.iter().fold(1, places);
    let lanes = 1usize << (places / LEAST).min(BUSY / results.max(1)).clamp(1, BLOCK).ilog2();
    let rows = BLOCK / lanes;
    launch.grid([results.div_ceil(rows).min(MOST_BLOCKS), 1, 1]).block([lanes as u32, rows as u32, 1])
}
