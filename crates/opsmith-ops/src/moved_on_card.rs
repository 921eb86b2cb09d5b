//! Elements moved on a card: how `moved.cu` is launched.

use std::ffi::c_void;

use opsmith::cuda::{CudaCall, Source, Structure, index_of, lanes_along, lanes_of};
use opsmith::prelude::*;
use opsmith::space::{Extents, IndexSpace, Strides};

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
        let element = name(size)
            .ok_or_else(|| Error::internal(format!("elements of {size} bytes are not moved on a card")))?;
        let Gone { space, start, size: inside, is_whole } = self.gone_over();
        let index = index_of(&[&space], 2, self.reach_outside());
        let lanes = lanes_of([size]);
        let is_multiple = |sizes: &[usize]| sizes.first().is_none_or(|size| size.is_multiple_of(lanes));
        let lanes = match is_whole || is_multiple(&start) && is_multiple(&inside) {
            true => lanes_along(&space, lanes, &[(from.cast(), size), (to.cast(), size)], 2),
            false => 1,
        };
        let call = CudaCall::new(context, &SOURCE);
        let launch = call.kernel(format!("move<{element}, {}>", index.name())).for_packs(space.len(), lanes);
        let launch = launch.address(from).address(to).space_in_packs(&space, 2, index, lanes);
        let mut structure = Structure::new(index);
        for (sizes, rest) in [(&start, 0), (&inside, 1)] {
            for &size in sizes.iter().chain(std::iter::repeat(&rest)).take(MAX_RANK) {
                structure.index(size as i128)?;
            }
        }
        // SAFETY: these are the kernel's parameters; the rest the caller promised.
        unsafe { launch.raw(&structure.finish_without_address()).launch() }
    }

    /// The dims as the kernel goes over them, without those of one element.
    fn gone_over(&self) -> Gone {
        let strides = self.input_strides();
        let is_whole = self.dims == self.size;
        let mut space = IndexSpace::with_room(self.dims.len(), 3);
        let (mut start, mut size) = (Extents::new(), Extents::new());
        for dim in (0..self.dims.len()).rev().filter(|&dim| self.dims[dim] != 1) {
            // What lies in zeros is gone through along each dim: a mark keeps two of them from becoming one.
            let mark = if is_whole { 0 } else { (start.len() % 2) as isize };
            space.push(self.dims[dim], [strides[dim], self.to[dim], mark]);
            start.push(self.start[dim]);
            size.push(self.size[dim]);
        }
        if is_whole {
            (start, size) = (Extents::new(), space.dims().into());
        } else if self.size.contains(&0) {
            // Nothing is inside.
            size = Extents::from_elem(0, size.len().max(1));
        }
        Gone { space, start, size, is_whole }
    }

    /// How far places of the input are from it that are computed before they are found not to be there.
    fn reach_outside(&self) -> usize {
        let along = self.start.iter().zip(self.input_strides());
        along.fold(0usize, |far, (&start, stride)| {
            far.saturating_add(stride.unsigned_abs().saturating_mul(start))
        })
    }

    /// The strides of the input, 0 along a dim of one element, which leads nowhere: frameworks leave anything there.
    fn input_strides(&self) -> Strides {
        self.size.iter().zip(self.from).map(|(&size, &stride)| if size > 1 { stride } else { 0 }).collect()
    }
}

/// Dims that are gone over, and the part of each, the last one first, that comes from the input: from where on, and how many.
struct Gone {
    space: IndexSpace,
    start: Extents,
    size: Extents,
    /// Whether all of it does.
    is_whole: bool,
}
