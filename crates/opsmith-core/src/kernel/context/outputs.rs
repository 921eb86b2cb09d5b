//! Outputs to make.

use std::cell::Cell;

use ndarray::{ArrayViewMut, Dimension};
use smallvec::SmallVec;

use super::{OpKernelContext, Slot};
use crate::kernel::ArgKey;
use crate::tensor::{TensorView, TensorViewMut, checked_num_elements, row_major_strides};
use crate::{DType, DeviceKind, Element, Error, Result, ensure};

impl OpKernelContext<'_> {
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
            // SAFETY: the caller gave memory for this many elements, on the CPU.
            unsafe { self.poison.fill(data, dtype, shape.iter().product()) };
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
