//! What a kernel sees of one call: inputs, outputs to make, the caller's services.

mod again;
mod found;
mod lists;
mod outputs;
mod shapes;
mod written;

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::ops::Deref;
use std::sync::Arc;

use ndarray::{ArrayView, Dimension};
use smallvec::SmallVec;

use super::argument::ArgKey;
use super::compute::Compute;
use super::facts::{OpFacts, Resolved};
use super::poison::Poison;
use super::services::Services;
use crate::resource::Resource;
use crate::tensor::{Extents, Strides, TensorView, TensorViewMut};
use crate::{DType, Element, Error, Result, Signature, bail};

/// An output that has been made.
struct Slot {
    data: *mut u8,
    shape: Extents,
    strides: Strides,
    lent: Cell<bool>,
}

/// One call of a kernel.
///
/// Arguments are named by their position in the definition or by their name: `context.input(0)`,
/// `context.input("to_zero")`. Every error names the op and the argument.
pub struct OpKernelContext<'a> {
    op: &'a OpFacts,
    resolved: &'a Resolved,
    inputs: &'a [Option<TensorView<'a>>],
    wanted: u64,
    services: &'a dyn Services,
    compute: Compute<'a>,
    slots: SmallVec<[OnceCell<Slot>; 2]>,
    /// Bit `i` is set when the elements of input `i` have been given out to be read, or to be written: changed in place,
    /// or as an output. An op has at most 64 inputs.
    read: Cell<u64>,
    written: Cell<u64>,
    poison: Poison,
}

impl<'a> Deref for OpKernelContext<'a> {
    type Target = Compute<'a>;

    fn deref(&self) -> &Compute<'a> {
        &self.compute
    }
}

impl<'a> OpKernelContext<'a> {
    /// The context of a call. Bit `i` of `copied` is set when input `i` is a copy of what the caller lent.
    pub(crate) fn new(
        op: &'a OpFacts,
        resolved: &'a Resolved,
        inputs: &'a [Option<TensorView<'a>>],
        copied: u64,
        wanted: u64,
        services: &'a dyn Services,
    ) -> Self {
        let compute = Compute::of_kernel(services, resolved.capturable);
        let mut context = OpKernelContext {
            op,
            resolved,
            inputs,
            wanted,
            services,
            compute,
            slots: SmallVec::new(),
            // The caller would give the memory of the original for an output, not that of the copy.
            read: Cell::new(copied),
            written: Cell::new(0),
            poison: Poison::of_call(),
        };
        // Where they lie: collected before, all that they have room for would be copied.
        context.slots.resize_with(resolved.output_dtypes.len(), OnceCell::new);
        context
    }

    /// The definition of the op.
    pub fn signature(&self) -> &'a Signature {
        &self.op.signature
    }

    /// Threads, scratch memory and the device.
    pub fn compute(&self) -> Compute<'a> {
        self.compute
    }

    fn input_index(&self, key: impl ArgKey) -> Result<usize> {
        key.input_of(self.signature()).ok_or_else(|| self.unknown("input", &key.text()))
    }

    fn output_index(&self, key: impl ArgKey) -> Result<usize> {
        key.output_of(self.signature()).ok_or_else(|| self.unknown("output", &key.text()))
    }

    #[cold]
    fn unknown(&self, what: &str, key: &str) -> Error {
        Error::not_found(format!("has no {what} {key}")).with_op(&self.signature().name)
    }

    #[cold]
    #[inline(never)]
    fn about_input(&self, arg: usize, error: Error) -> Error {
        let signature = self.signature();
        error.with_argument("input", &signature.inputs[arg].name).with_op(&signature.name)
    }

    #[cold]
    #[inline(never)]
    fn about_output(&self, arg: usize, error: Error) -> Error {
        let signature = self.signature();
        error.with_argument("output", &signature.outputs[arg].name).with_op(&signature.name)
    }

    /// The tensor of an input that is not a list.
    ///
    /// # Errors
    /// `NotFound` for no such input, `InvalidArgument` when it is a list or absent, `FailedPrecondition` when it is being
    /// written: lent out by [`input_mut`](Self::input_mut), or an output's memory by
    /// [`forward_input_or_allocate_output`](Self::forward_input_or_allocate_output).
    pub fn input(&self, key: impl ArgKey) -> Result<TensorView<'a>> {
        self.read_present(self.input_index(key)?).copied()
    }

    /// The tensor of an optional input, `None` when it is absent.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn optional_input(&self, key: impl ArgKey) -> Result<Option<TensorView<'a>>> {
        self.read(self.input_index(key)?).map(Option::<&_>::copied)
    }

    /// Gives an input out that is not a list. By reference, as a `TensorView` is large.
    fn read(&self, arg: usize) -> Result<Option<&'a TensorView<'a>>> {
        if self.signature().inputs[arg].count.is_list() {
            return Err(self.about_input(arg, Error::invalid_argument("is a list; use `input_list`")));
        }
        self.begin_reading(arg)?;
        Ok(self.inputs[self.resolved.input_offset(arg)].as_ref())
    }

    fn read_present(&self, arg: usize) -> Result<&'a TensorView<'a>> {
        self.read(arg)?.ok_or_else(|| self.about_input(arg, Error::invalid_argument("is absent")))
    }

    /// The dims of an input that is not a list. It does not count as reading the input, whose memory may still become an
    /// output's.
    ///
    /// # Errors
    /// `NotFound` for no such input, `InvalidArgument` when it is a list or absent.
    pub fn input_shape(&self, key: impl ArgKey) -> Result<&'a [usize]> {
        let arg = self.input_index(key)?;
        let own = self.resolved.input_offset(arg)..self.resolved.input_offset(arg + 1);
        match (self.signature().inputs[arg].count.is_list(), self.inputs[own].first()) {
            (false, Some(Some(tensor))) => Ok(tensor.shape()),
            (true, _) => Err(self.about_input(arg, Error::invalid_argument("is a list; use `input_list`"))),
            _ => Err(self.about_input(arg, Error::invalid_argument("is absent"))),
        }
    }

    /// The tensors of an input: of a list as many as it holds, else one.
    ///
    /// # Errors
    /// `NotFound` for no such input, `InvalidArgument` when one is absent, `FailedPrecondition` when they are being
    /// written.
    pub fn input_list(&self, key: impl ArgKey) -> Result<Vec<TensorView<'a>>> {
        let arg = self.input_index(key)?;
        self.begin_reading(arg)?;
        let range = self.resolved.input_offset(arg)..self.resolved.input_offset(arg + 1);
        let present = self.inputs[range].iter().map(|tensor| {
            tensor.ok_or_else(|| self.about_input(arg, Error::invalid_argument("has an absent element")))
        });
        present.collect()
    }

    /// A typed view of an input with `D` dims.
    ///
    /// # Errors
    /// As [`input`](Self::input), and `InvalidArgument` when dtype or rank differ.
    pub fn view<T: Element, D: Dimension>(&self, key: impl ArgKey) -> Result<ArrayView<'a, T, D>> {
        let arg = self.input_index(key)?;
        self.read_present(arg)?.view().map_err(|error| self.about_input(arg, error))
    }

    /// A typed view of an optional input with `D` dims, `None` when it is absent.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn optional_view<T: Element, D: Dimension>(
        &self,
        key: impl ArgKey,
    ) -> Result<Option<ArrayView<'a, T, D>>> {
        let arg = self.input_index(key)?;
        let view = self.read(arg)?.map(TensorView::view);
        view.transpose().map_err(|error| self.about_input(arg, error))
    }

    /// The elements of an input as a slice.
    ///
    /// # Errors
    /// As [`input`](Self::input), and `InvalidArgument` when the dtype differs or the elements are not row-major.
    pub fn slice<T: Element>(&self, key: impl ArgKey) -> Result<&'a [T]> {
        let arg = self.input_index(key)?;
        let (tensor, count) = self.flat_input(arg, T::DTYPE)?;
        // SAFETY: these are the elements of this tensor, checked for this dtype.
        Ok(unsafe { tensor.flat(count) })
    }

    /// An input whose elements make a slice of this dtype, and their number. Of what asks there is one for each type; of this, one.
    fn flat_input(&self, arg: usize, dtype: DType) -> Result<(&'a TensorView<'a>, usize)> {
        let tensor = self.read_present(arg)?;
        let count = tensor.check_flat(dtype).map_err(|error| self.about_input(arg, error))?;
        Ok((tensor, count))
    }

    /// The tensor of a `Ref` input, to be changed in place. It is lent once a call, and not after it was given out to
    /// be read: nobody may read what is being changed.
    ///
    /// # Errors
    /// `InvalidArgument` when the input is not a `Ref`, a list or absent; `FailedPrecondition` when it has been lent
    /// already, or [`input`](Self::input) or a view has given it out.
    pub fn input_mut(&self, key: impl ArgKey) -> Result<TensorViewMut<'a>> {
        let arg = self.input_index(key)?;
        if self.signature().inputs[arg].count.is_list() {
            return Err(self.about_input(arg, Error::invalid_argument("is a list; use `input_list_mut`")));
        }
        let lent = self.input_list_mut(arg)?.pop();
        lent.ok_or_else(|| self.about_input(arg, Error::invalid_argument("is absent")))
    }

    /// The tensors of a `Ref` input that is a list, to be changed in place.
    ///
    /// # Errors
    /// As [`input_mut`](Self::input_mut).
    pub fn input_list_mut(&self, key: impl ArgKey) -> Result<SmallVec<[TensorViewMut<'a>; 1]>> {
        let arg = self.input_index(key)?;
        self.begin_changing(arg)?;
        let own = self.resolved.input_offset(arg)..self.resolved.input_offset(arg + 1);
        let lend = |tensor: &TensorView<'a>| {
            let data = tensor.data_ptr().cast_mut();
            // SAFETY: the caller lends a `Ref` input for writing, the plan refused overlap with other inputs and within
            // it, and `read` and `written` make this the only access.
            unsafe {
                let (shape, strides) = (tensor.shape(), tensor.strides());
                TensorViewMut::from_raw_parts(data, tensor.dtype(), tensor.device(), shape, strides)
            }
        };
        Ok(self.inputs[own].iter().flatten().map(lend).collect())
    }

    /// Notes that an input is given out to be read, which one that is being written cannot be.
    fn begin_reading(&self, arg: usize) -> Result<()> {
        if self.written.get() >> arg & 1 == 1 {
            let is_ref = self.signature().inputs[arg].is_ref;
            let how = if is_ref { "is being changed in place" } else { "is an output now" };
            return Err(self.about_input(arg, Error::failed_precondition(how)));
        }
        self.read.set(self.read.get() | 1 << arg);
        Ok(())
    }

    /// Notes that an input is lent to be changed, which one that somebody may read cannot be.
    fn begin_changing(&self, arg: usize) -> Result<()> {
        if !self.signature().inputs[arg].is_ref {
            return Err(self.about_input(arg, Error::invalid_argument("is not a Ref and cannot be changed")));
        }
        if self.read.get() >> arg & 1 == 1 && self.written.get() >> arg & 1 == 0 {
            let error = Error::failed_precondition("is already being read; take it only with `input_mut`");
            return Err(self.about_input(arg, error));
        }
        self.begin_reading(arg)?;
        self.written.set(self.written.get() | 1 << arg);
        Ok(())
    }

    /// State that kernels of the library share under a name: made by `init` at first use, and again in a forked child where
    /// another thread was changing it at the fork.
    ///
    /// # Errors
    /// `InvalidArgument` when the name holds a value of another type, or what `init` said.
    pub fn resource<R: Any + Send>(
        &self,
        container: &str,
        name: &str,
        init: impl FnOnce() -> Result<R>,
    ) -> Result<Arc<Resource<R>>> {
        self.op.resources.get_or_init(container, name, init)
    }

    /// Ends the call: every output that had to be made must have been.
    pub(crate) fn finish(&self) -> Result<()> {
        let signature = self.signature();
        for (arg, output) in signature.outputs.iter().enumerate() {
            if !self.output_wanted(arg)? {
                continue;
            }
            let made = (self.resolved.output_offset(arg)..self.resolved.output_offset(arg + 1))
                .all(|flat| self.slots[flat].get().is_some());
            if !made {
                let name = &output.name;
                bail!(Internal for name, "the kernel did not make output `{name}`");
            }
            if cfg!(debug_assertions) {
                self.check_written(arg)?;
            }
        }
        Ok(())
    }
}
