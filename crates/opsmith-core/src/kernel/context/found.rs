//! Outputs whose shape the kernel finds, from the data.

use ndarray::{Array, Dimension};

use super::OpKernelContext;
use crate::kernel::ArgKey;
use crate::shape::UNKNOWN_DIM;
use crate::{Element, Error, Result};

impl OpKernelContext<'_> {
    /// Makes an output of the shape of `values`, and copies them. `shape` is what the op's shape signature says of it
    /// ([`Bound::output_shape`](crate::shape::Bound::output_shape)).
    ///
    /// # Errors
    /// `Internal` where the values are not of that shape, and as [`output_view`](Self::output_view).
    pub fn give_output<T: Element, D: Dimension>(
        &self,
        key: impl ArgKey,
        shape: &[usize],
        values: &Array<T, D>,
    ) -> Result<()> {
        let arg = self.output_index(key)?;
        let found = values.shape();
        let fits = |(&said, &found): (&usize, &usize)| said == found || said == UNKNOWN_DIM;
        if shape.len() != found.len() || !shape.iter().zip(found).all(fits) {
            let said: Vec<_> = shape
                .iter()
                .map(|&dim| if dim == UNKNOWN_DIM { "?".to_owned() } else { dim.to_string() })
                .collect();
            let message =
                format!("expected shape [{}], but the kernel made shape {found:?}", said.join(", "));
            return Err(self.about_output(arg, Error::internal(message)));
        }
        self.output_view::<T, D>(arg, found)?.assign(values);
        Ok(())
    }
}
