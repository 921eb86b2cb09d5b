//! What a kernel sees of one call: inputs, outputs to make, the caller's services.

mod found;
mod lists;
#[cfg(debug_assertions)]
mod poison;
mod shapes;

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::ops::Deref;
use std::sync::Arc;

use ndarray::{ArrayView, ArrayViewMut, Dimension};
use smallvec::SmallVec;

#[cfg(debug_assertions)]
use self::poison::Poison;
use super::argument::ArgKey;
use super::compute::Compute;
use super::facts::{OpFacts, Resolved};
use super::services::Services;
use crate::resource::Resource;
use crate::tensor::{Extents, Strides, TensorView, TensorViewMut, checked_num_elements, row_major_strides};
use crate::{DType, DeviceKind, Element, Error, Result, Signature, bail, ensure};

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
    #[cfg(debug_assertions)]
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
            #[cfg(debug_assertions)]
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

    /// Whether the caller wants this output. Only an optional output may be left unmade, and then only when it is
    /// not wanted.
    ///
    /// # Errors
    /// `NotFound` for no such output.
    pub fn output_wanted(&self, key: impl ArgKey) -> Result<bool> {
        let arg = self.output_index(key)?;
        Ok(!self.signature().outputs[arg].optional || self.wanted >> arg & 1 == 1)
    }

    /// How many tensors an output that is a list holds.
    ///
    /// # Errors
    /// `NotFound` for no such output.
    pub fn output_count(&self, key: impl ArgKey) -> Result<usize> {
        let arg = self.output_index(key)?;
        Ok(self.resolved.output_offset(arg + 1) - self.resolved.output_offset(arg))
    }

    /// Makes an output of this shape, dense, row-major and uninitialised: write every element before reading it. (Those
    /// of `bool` and `string` outputs, of which not every bit pattern is a value, begin as `false` and empty.)
    ///
    /// # Errors
    /// `NotFound` for no such output, `FailedPrecondition` when it is made already, `ResourceExhausted` when the
    /// memory cannot be had.
    pub fn allocate_output(&self, key: impl ArgKey, shape: &[usize]) -> Result<TensorViewMut<'_>> {
        self.allocate_output_at(key, 0, shape)
    }

    /// As [`allocate_output`](Self::allocate_output), for element `element` of an output that is a list.
    ///
    /// # Errors
    /// As [`allocate_output`](Self::allocate_output), and `OutOfRange` for no such element.
    pub fn allocate_output_at(
        &self,
        key: impl ArgKey,
        element: usize,
        shape: &[usize],
    ) -> Result<TensorViewMut<'_>> {
        let arg = self.output_index(key)?;
        let flat = self.flat_output(arg, element)?;
        let dtype = self.resolved.output_dtypes[flat];
        self.check_size(arg, dtype, shape)?;
        let data = self
            .services
            .allocate_output(flat, dtype, shape)
            .map_err(|error| self.about_output(arg, error))?;
        if self.services.device().kind == DeviceKind::Cpu && !shape.contains(&0) {
            let elements: usize = shape.iter().product();
            if dtype == DType::Bool {
                // SAFETY: the caller gave memory for this many elements of one byte.
                unsafe { data.write_bytes(0, elements) };
            }
            #[cfg(debug_assertions)]
            // SAFETY: the caller gave memory for this many elements, on the CPU.
            unsafe {
                self.poison.fill(data, dtype, elements * dtype.size());
            }
        }
        self.make(arg, flat, data, shape)
    }

    /// Makes an output from the memory of the first of `candidates`, inputs by position, that has its shape and dtype and
    /// that nobody else will read; else makes it anew. Gives the input's position in the first case: the output then
    /// begins with the input's elements, and the input is gone. An input that has been given out before, by
    /// [`input`](Self::input) or a view, is not taken: [`input_shape`](Self::input_shape) tells its dims without that.
    ///
    /// # Errors
    /// As [`allocate_output`](Self::allocate_output).
    pub fn forward_input_or_allocate_output(
        &self,
        candidates: &[usize],
        key: impl ArgKey,
        shape: &[usize],
    ) -> Result<(TensorViewMut<'_>, Option<usize>)> {
        let signature = self.signature();
        let arg = self.output_index(key)?;
        let flat = self.flat_output(arg, 0)?;
        let mut fitting: SmallVec<[usize; 4]> = SmallVec::new();
        for &candidate in candidates {
            let candidate = self.input_index(candidate)?;
            if self.may_forward(candidate, self.resolved.output_dtypes[flat], shape) {
                fitting.push(self.resolved.input_offset(candidate));
            }
        }
        let forwarded = if fitting.is_empty() { None } else { self.services.forward_input(&fitting, flat) };
        let Some((taken, data)) = forwarded else { return Ok((self.allocate_output(arg, shape)?, None)) };
        // A list, which is never taken, may be empty and begin where the next input does.
        let is_it =
            |i: &usize| self.resolved.input_offset(*i) == taken && !signature.inputs[*i].count.is_list();
        let candidate = candidates.iter().copied().find(is_it);
        let Some(candidate) = candidate else {
            return Err(self.about_output(arg, Error::internal("the caller forwarded another input")));
        };
        self.written.set(self.written.get() | 1 << candidate);
        Ok((self.make(arg, flat, data, shape)?, Some(candidate)))
    }

    /// Whether an input's memory would do for an output of this dtype and shape, and nobody has a view of it.
    fn may_forward(&self, arg: usize, dtype: DType, shape: &[usize]) -> bool {
        let def = &self.signature().inputs[arg];
        let is_untouched = (self.read.get() | self.written.get()) >> arg & 1 == 0;
        // The text of strings is not the input's alone.
        is_untouched
            && !def.is_ref
            && !def.count.is_list()
            && dtype != DType::String
            && self.inputs[self.resolved.input_offset(arg)].is_some_and(|input| {
                // Dim by dim: a call of `memcmp` on no dims costs more than the rest.
                input.shape().iter().eq(shape) && input.dtype() == dtype && input.is_contiguous()
            })
    }

    /// Makes an output as a copy of a tensor; of a `string` tensor, the text too.
    ///
    /// # Errors
    /// As [`allocate_output`](Self::allocate_output), and `InvalidArgument` when the dtypes differ.
    pub fn set_output(&self, key: impl ArgKey, value: TensorView<'_>) -> Result<()> {
        let arg = self.output_index(key)?;
        if value.dtype() == DType::String {
            let text = value.strings().map_err(|error| self.about_output(arg, error))?;
            return self.set_string_output(arg, value.shape(), &text);
        }
        let mut output = self.allocate_output(arg, value.shape())?;
        self.copy(value, &mut output).map_err(|error| self.about_output(arg, error))
    }

    /// Makes a `string` output of this shape from its elements, row-major.
    ///
    /// # Errors
    /// As [`allocate_output`](Self::allocate_output); `InvalidArgument` when the number of elements differs.
    pub fn set_string_output<S: AsRef<[u8]>>(
        &self,
        key: impl ArgKey,
        shape: &[usize],
        elements: &[S],
    ) -> Result<()> {
        let arg = self.output_index(key)?;
        let slots =
            self.allocate_output(arg, shape)?.into_str_refs().map_err(|e| self.about_output(arg, e))?;
        let (name, expected, got) = (&self.signature().outputs[arg].name, slots.len(), elements.len());
        ensure!(
            got == expected,
            InvalidArgument for name,
            "output `{name}` of shape {shape:?} needs {expected} strings, got {got}"
        );
        for (slot, element) in slots.iter_mut().zip(elements) {
            let bytes = element.as_ref();
            slot.data = self.services.keep_string(bytes)?.as_ptr();
            slot.len = bytes.len();
        }
        Ok(())
    }

    /// Makes an output of `D` dims, uninitialised, and gives a typed view of it.
    ///
    /// # Errors
    /// As [`allocate_output`](Self::allocate_output), and `InvalidArgument` when dtype or rank differ.
    pub fn output_view<T: Element, D: Dimension>(
        &self,
        key: impl ArgKey,
        shape: &[usize],
    ) -> Result<ArrayViewMut<'_, T, D>> {
        let arg = self.output_index(key)?;
        self.allocate_output(arg, shape)?.into_view().map_err(|error| self.about_output(arg, error))
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
            #[cfg(debug_assertions)]
            self.check_written(arg)?;
        }
        Ok(())
    }

    fn flat_output(&self, arg: usize, element: usize) -> Result<usize> {
        let flat = self.resolved.output_offset(arg) + element;
        if flat >= self.resolved.output_offset(arg + 1) {
            return Err(self.about_output(arg, Error::out_of_range(format!("has no element {element}"))));
        }
        if self.slots[flat].get().is_some() {
            return Err(self.about_output(arg, Error::failed_precondition("is made already")));
        }
        Ok(flat)
    }

    fn check_size(&self, arg: usize, dtype: DType, shape: &[usize]) -> Result<()> {
        let bytes = checked_num_elements(shape).and_then(|n| n.checked_mul(dtype.size()));
        if bytes.is_none_or(|bytes| bytes > isize::MAX as usize) {
            let error =
                Error::resource_exhausted(format!("a {dtype} tensor of shape {shape:?} is too large"));
            return Err(self.about_output(arg, error));
        }
        Ok(())
    }

    fn make(&self, arg: usize, flat: usize, data: *mut u8, shape: &[usize]) -> Result<TensorViewMut<'_>> {
        let slot = self.slots[flat].get_or_init(|| Slot {
            data,
            shape: shape.into(),
            strides: row_major_strides(shape),
            lent: Cell::new(false),
        });
        if slot.lent.replace(true) {
            return Err(self.about_output(arg, Error::failed_precondition("is made already")));
        }
        // SAFETY: the caller gave dense memory for this dtype and shape, for this output alone, and `lent` makes
        // this the only view of it.
        Ok(unsafe {
            TensorViewMut::from_raw_parts(
                slot.data,
                self.resolved.output_dtypes[flat],
                self.services.device(),
                &slot.shape,
                &slot.strides,
            )
        })
    }
}
