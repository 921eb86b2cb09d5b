//! Lists of tensors as lists of typed views.

use ndarray::{ArrayView, ArrayViewMut, Dimension};

use super::OpKernelContext;
use crate::kernel::ArgKey;
use crate::{Element, Error, Result};

impl<'a> OpKernelContext<'a> {
    /// Typed views of the tensors of an input that is a list, each with `D` dims.
    ///
    /// # Errors
    /// As [`input_list`](Self::input_list), and `InvalidArgument` when a dtype or rank differs.
    pub fn view_list<T: Element, D: Dimension>(&self, key: impl ArgKey) -> Result<Vec<ArrayView<'a, T, D>>> {
        let arg = self.input_index(key)?;
        let view = |(element, tensor): (usize, crate::TensorView<'a>)| {
            let name = &self.signature().inputs[arg].name;
            let about = |error: Error| error.within(format_args!("input `{name}[{element}]`")).naming(name);
            tensor.view().map_err(about)
        };
        self.input_list(arg)?.into_iter().enumerate().map(view).collect()
    }

    /// Makes the tensors of an output that is a list, all of one shape and uninitialised, and gives typed views of them.
    ///
    /// # Errors
    /// As [`allocate_output_at`](Self::allocate_output_at), and `InvalidArgument` when dtype or rank differ.
    pub fn output_view_list<T: Element, D: Dimension>(
        &self,
        key: impl ArgKey,
        shape: &[usize],
    ) -> Result<Vec<ArrayViewMut<'_, T, D>>> {
        let arg = self.output_index(key)?;
        let make = |element| {
            let output = self.allocate_output_at(arg, element, shape)?;
            output.into_view().map_err(|error| self.about_output(arg, error))
        };
        (0..self.output_count(arg)?).map(make).collect()
    }
}
