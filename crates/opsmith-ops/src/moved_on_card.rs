//! Elements moved on a card: how `moved.cu` is launched.

use std::ffi::c_void;

use opsmith::cuda::{CudaCall, Index, Source, Structure};
use opsmith::prelude::*;
use opsmith::space::{Extents, Strides};

static SOURCE: Source = Source::new("moved.cu", include_str!("moved.cu")).beside(file!());

/// The most dims that the kernel goes through.
const MAX_RANK: usize = 8;

/// What is moved: the dims that are gone through, each with where the input's begin and how many they are, and strides.
pub(crate) struct Move<'a> {
    /// The dims of the part of the output that is written.
    pub(crate) dims: &'a [usize],
    /// Where the input begins along each.
    pub(crate) start: &'a [usize],
    /// How many elements the input has along each; elsewhere is zero.
    pub(crate) size: &'a [usize],
    /// The strides of the input.
    pub(crate) from: &'a [isize],
    /// The strides of the output.
    pub(crate) to: &'a [isize],
}

/// Dtypes whose elements the kernel moves: by their size.
pub(crate) fn moves(dtype: DType) -> bool {
    dtype != DType::String && name(dtype.size()).is_some()
}

/// The type that stands for elements of a size.
pub(crate) fn name(size: usize) -> Option<&'static str> {
    Some(match size {
        1 => "unsigned char",
        2 => "unsigned short",
        4 => "unsigned",
        8 => "unsigned long long",
        _ => return None,
    })
}

impl Move<'_> {
    /// Puts the move on the stream of the call.
    ///
    /// # Safety
    /// The addresses must be those of memory on the call's card in which the dims and strides stay.
    pub(crate) unsafe fn launch(
        &self,
        context: &OpKernelContext<'_>,
        size: usize,
        from: *const c_void,
        to: *const c_void,
    ) -> Result<()> {
        let call = CudaCall::new(context, &SOURCE);
        let (count, index) = (self.dims.iter().product(), self.index());
        let element = name(size)
            .ok_or_else(|| Error::internal(format!("elements of {size} bytes are not moved on a card")))?;
        let launch = call.kernel(format!("move<{element}, {}>", index.name())).for_each(count);
        let launch = launch.address(from).address(to).raw(&self.packed(count, index)?);
        // SAFETY: these are the kernel's parameters; the rest the caller promised.
        unsafe { launch.launch() }
    }

    /// The indices that all places fit.
    fn index(&self) -> Index {
        let most = i32::MAX as usize - (1 << 16);
        let reach = |sizes: &[usize], strides: &[isize]| {
            let along = sizes.iter().zip(strides);
            along.fold(0usize, |far, (&size, stride)| {
                far.saturating_add(stride.unsigned_abs().saturating_mul(size))
            })
        };
        // Places of the input are computed outside of it too, before they are found to be there.
        let from = self.input_strides();
        let far = reach(self.dims, &from).max(reach(self.dims, self.to));
        let start = reach(self.start, &from);
        let fits = far.max(start).max(self.dims.iter().product()) <= most
            && self.dims.iter().chain(self.start).all(|&dim| dim <= most);
        if fits { Index::Bits32 } else { Index::Bits64 }
    }

    /// The strides of the input, 0 along a dim of one element, which leads nowhere: frameworks leave anything there.
    fn input_strides(&self) -> Strides {
        self.size.iter().zip(self.from).map(|(&size, &stride)| if size > 1 { stride } else { 0 }).collect()
    }

    /// The structure `Space`, without dims that are 1 in both.
    fn packed(&self, count: usize, index: Index) -> Result<Vec<u8>> {
        let dims: Extents =
            (0..self.dims.len()).rev().filter(|&dim| (self.dims[dim], self.size[dim]) != (1, 1)).collect();
        let rank = dims.len();
        ensure!(rank <= MAX_RANK, Unimplemented, "tensors of {rank} dims are not moved on a card");
        let of = |sizes: &[usize]| dims.iter().map(|&dim| sizes[dim] as isize).collect::<Strides>();
        let strides = |strides: &[isize]| dims.iter().map(|&dim| strides[dim]).collect::<Strides>();
        let mut structure = Structure::new(index);
        structure.index(count as i128)?.int(rank as i32);
        for (numbers, rest) in [
            (of(self.dims), 1),
            (of(self.start), 0),
            (of(self.size), 1),
            (strides(&self.input_strides()), 0),
            (strides(self.to), 0),
        ] {
            for &number in numbers.iter().chain(std::iter::repeat(&rest)).take(MAX_RANK) {
                structure.index(number as i128)?;
            }
        }
        Ok(structure.finish_without_address())
    }
}
