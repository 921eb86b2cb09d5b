//! Calls whose shapes have been looked at: what is left to do for tensors of the same shapes.

use std::cell::Cell;
use std::ptr::null;

use ndarray::{ArrayView, ArrayViewMut, Dimension};
use smallvec::SmallVec;

use super::compute::Compute;
use super::poison::Poison;
use crate::tensor::{Extents, Strides, TensorView, dense_shape, row_major_strides};
use crate::{DType, Device, Element, Error, Result, bail};

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
    pub rest: Rest,
}

/// What is left to do of a settled call.
pub enum Rest {
    /// This.
    Call(Box<dyn SettledCall>),
    /// All that the kernel does with its tensors, without a look at their shapes:
    /// [`OpKernel::compute_settled`](super::OpKernel::compute_settled).
    Kernel,
}

/// How an input of a settled call is: its rank, where its dims begin, and the bits of its address that are 0.
#[derive(Clone, Copy)]
struct Input {
    rank: usize,
    begin: usize,
    aligned: usize,
}

/// The rank of one that is absent.
const ABSENT: usize = usize::MAX;

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
            shapes.inputs.push(Input {
                rank: tensor.as_ref().map_or(ABSENT, TensorView::rank),
                begin: shapes.dims.len(),
                aligned: tensor.as_ref().map_or(0, |tensor| tensor.dtype().alignment() - 1),
            });
            shapes.dims.extend_from_slice(tensor.as_ref().map_or(&[], TensorView::shape));
        }
        shapes
    }

    fn dims_of(&self, input: &Input) -> &[usize] {
        &self.dims[input.begin..input.begin + input.rank]
    }

    /// The shape of each input, nothing for one that is absent.
    fn each(&self) -> impl Iterator<Item = Option<&[usize]>> {
        self.inputs.iter().map(|input| (input.rank != ABSENT).then(|| self.dims_of(input)))
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
                None if own.rank == ABSENT => {}
                None => return None,
            }
            input += 1;
        }
        Some(data)
    }
}

/// The tensors of a settled call, dense and in host memory, of which a kernel takes views.
pub struct SettledTensors<'a> {
    shapes: &'a CallShapes,
    inputs: (&'a [*const u8], &'a [Option<DType>]),
    outputs: (&'a [*mut u8], &'a [(usize, Extents)], &'a [DType]),
    /// Bit `i` is set when the view of output `i` has been given out.
    lent: Cell<u64>,
}

impl<'a> SettledTensors<'a> {
    /// Those of a call of these shapes: of inputs the addresses and dtypes, of outputs the addresses of those that are made, which these are,
    /// and the dtypes of all.
    ///
    /// # Safety
    /// As [`SettledCall::run`].
    pub(crate) unsafe fn new(
        shapes: &'a CallShapes,
        inputs: (&'a [*const u8], &'a [Option<DType>]),
        outputs: (&'a [*mut u8], &'a [(usize, Extents)], &'a [DType]),
    ) -> SettledTensors<'a> {
        SettledTensors { shapes, inputs, outputs, lent: Cell::new(0) }
    }

    /// The flat position of an output to which the kernel has written nothing, where that can be told.
    pub(crate) fn unwritten(&self, poison: Poison) -> Option<usize> {
        let shapes: Vec<Option<&[usize]>> = self.shapes.each().collect();
        let strides: Vec<Strides> =
            shapes.iter().map(|shape| row_major_strides(shape.unwrap_or_default())).collect();
        let view = |at: usize| {
            // SAFETY: the caller of `new` promised these tensors, and the kernel is done with them.
            Some(unsafe {
                TensorView::from_raw_parts(
                    self.inputs.0[at],
                    self.inputs.1[at]?,
                    Device::CPU,
                    shapes[at]?,
                    &strides[at],
                )
            })
        };
        let inputs: Vec<Option<TensorView<'_>>> = (0..shapes.len()).map(view).collect();
        let (made, outputs, dtypes) = self.outputs;
        let is_unwritten = |(data, (flat, shape)): &(&*mut u8, &(usize, Extents))| {
            let (dtype, strides) = (dtypes[*flat], row_major_strides(shape));
            // SAFETY: as above.
            let output = unsafe { TensorView::from_raw_parts(**data, dtype, Device::CPU, shape, &strides) };
            poison.is_untouched(&output, &inputs)
        };
        made.iter().zip(outputs).find(is_unwritten).map(|(_, (flat, _))| *flat)
    }

    /// A view of input `at`.
    ///
    /// # Errors
    /// `Internal` when it is absent, or has another dtype or rank.
    pub fn view<T: Element, D: Dimension>(&self, at: usize) -> Result<ArrayView<'a, T, D>> {
        self.optional_view(at)?.ok_or_else(unfit)
    }

    /// A view of input `at`, `None` when it is absent.
    ///
    /// # Errors
    /// `Internal` when it has another dtype or rank.
    pub fn optional_view<T: Element, D: Dimension>(&self, at: usize) -> Result<Option<ArrayView<'a, T, D>>> {
        let Some(input) = self.shapes.inputs.get(at) else { return Err(unfit()) };
        if input.rank == ABSENT {
            return Ok(None);
        }
        let dims = self.shapes.dims_of(input);
        let (data, dtype) = (self.inputs.0[at], self.inputs.1[at]);
        let (dims, data) = dense_shape::<T, D>(dtype, dims, data.cast_mut()).ok_or_else(unfit)?;
        // SAFETY: the caller of `new` promised elements of this dtype in these dims, readable as long as the call lasts.
        Ok(Some(unsafe { ArrayView::from_shape_ptr(dims, data) }))
    }

    /// Whether output `at` is made in this call.
    pub fn output_wanted(&self, at: usize) -> bool {
        self.outputs.1.iter().any(|(flat, _)| *flat == at)
    }

    /// The view of output `at`, to be written. Its elements are not set.
    ///
    /// # Errors
    /// `Internal` when it is not made in this call, has been given out already, or has another dtype or rank.
    pub fn output_view<T: Element, D: Dimension>(&self, at: usize) -> Result<ArrayViewMut<'a, T, D>> {
        let (made, outputs, dtypes) = self.outputs;
        let place = outputs.iter().position(|(flat, _)| *flat == at);
        let Some(place) = place.filter(|place| self.lent.get() >> place & 1 == 0) else {
            bail!(Internal, "a settled call has no such output");
        };
        self.lent.set(self.lent.get() | 1 << place);
        let (dims, data) =
            dense_shape::<T, D>(Some(dtypes[at]), &outputs[place].1, made[place]).ok_or_else(unfit)?;
        // SAFETY: the caller of `new` promised room for elements of this dtype in these dims, nobody else's as long as the call lasts, and
        // `lent` makes this the only view.
        Ok(unsafe { ArrayViewMut::from_shape_ptr(dims, data) })
    }
}

#[cold]
fn unfit() -> Error {
    Error::internal("a settled call has another tensor here")
}
