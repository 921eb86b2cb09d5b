//! Calls whose shapes have been looked at: what is left to do for tensors of the same shapes.

use std::ptr::null;

use smallvec::SmallVec;

use super::compute::Compute;
use crate::Result;
use crate::tensor::{Extents, TensorView};

/// What is left to do of a call when all that its shapes decide is known.
///
/// # Safety
/// [`run`](Self::run) must read and write only what its own conditions give it.
pub unsafe trait SettledCall: Send + Sync {
    /// Computes the outputs.
    ///
    /// # Errors
    /// What goes wrong besides shapes, which have been checked.
    ///
    /// # Safety
    /// There must be the address of each tensor of the call, flat, null for an absent one: of inputs dense, aligned and readable, of
    /// outputs those of [`Settled::outputs`] in their order, writable and nobody else's. All are of the shapes and dtypes that the call was settled for.
    /// The address of one without elements may be any.
    unsafe fn run(&self, compute: &Compute<'_>, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()>;
}

/// A call on dense tensors in host memory, settled for their shapes.
pub struct Settled {
    /// The outputs to make: where each is in the flat order, and its shape.
    pub outputs: SmallVec<[(usize, Extents); 1]>,
    /// What is left to do.
    pub call: Box<dyn SettledCall>,
}

/// How an input of a settled call is: its rank, and the bits of its address that are 0.
#[derive(Clone, Copy)]
struct Input {
    rank: usize,
    aligned: usize,
}

/// One that is absent.
const ABSENT: Input = Input { rank: usize::MAX, aligned: 0 };

/// What is the same in all calls that are settled alike.
pub(crate) struct CallShapes {
    inputs: SmallVec<[Input; 4]>,
    /// The dims of all inputs, one after another.
    dims: SmallVec<[usize; 12]>,
    wanted: u64,
}

/// The most tensors of a settled call: their addresses have room on the stack.
pub(crate) const MOST_INPUTS: usize = 8;
pub(crate) const MOST_OUTPUTS: usize = 4;

impl CallShapes {
    /// Those of a call on these tensors.
    pub(crate) fn of(inputs: &[Option<TensorView<'_>>], wanted: u64) -> CallShapes {
        let mut shapes = CallShapes { inputs: SmallVec::new(), dims: SmallVec::new(), wanted };
        for tensor in inputs {
            shapes.inputs.push(tensor.as_ref().map_or(ABSENT, |tensor| Input {
                rank: tensor.rank(),
                aligned: tensor.dtype().alignment() - 1,
            }));
            shapes.dims.extend_from_slice(tensor.as_ref().map_or(&[], TensorView::shape));
        }
        shapes
    }

    /// The addresses of the tensors of a call, if it has these shapes and they are aligned: of each the address and the shape, as `tensor`
    /// tells it by its number; null for an absent one.
    ///
    /// Loops are written out, as what iterators make of them is most of a small call where code is made small.
    #[inline(always)]
    pub(crate) fn addresses<'a>(
        &self,
        wanted: u64,
        tensor: impl Fn(usize) -> Option<(*const u8, &'a [usize])>,
    ) -> Option<[*const u8; MOST_INPUTS]> {
        let (mut data, mut dim) = ([null(); MOST_INPUTS], 0);
        if wanted != self.wanted {
            return None;
        }
        let mut input = 0;
        while input < self.inputs.len() {
            let own = self.inputs[input];
            match tensor(input) {
                Some((address, shape)) => {
                    if shape.len() != own.rank || address as usize & own.aligned != 0 {
                        return None;
                    }
                    for &size in shape {
                        if size != self.dims[dim] {
                            return None;
                        }
                        dim += 1;
                    }
                    data[input] = address;
                }
                None if own.rank == ABSENT.rank => {}
                None => return None,
            }
            input += 1;
        }
        Some(data)
    }
}
