//! The same with `#[op]`: a function whose parameters are the arguments, and a shape signature.
//!
//! The macro writes the definition, the shape function and a kernel for each dtype, all of which the other modules
//! spell out. `...` stands for any number of dims in front, so a batch of calls is one call, and `vmap` needs nothing
//! from the author.

use opsmith::cuda::{CudaCall, CudaElement, DeviceView, DeviceViewMut};
use opsmith::prelude::*;

use crate::launches::keep;

/// Copies `to_zero` and sets every element of each row but that at `preserve_index` to zero.
///
/// A row is what the last dim holds. An index outside it is an error.
#[op(shape = "(...,n)->(...,n)", gradient = zero_out_rows_grad, dtypes(T = [f32, f64, i32, i64]), cuda = "zero_out.cu", parallel = "...")]
pub fn zero_out_rows<T: RealNumber>(
    /// Rows of any length above `preserve_index`.
    to_zero: ArrayViewD<T>,
    /// Which element of each row to keep, counted from 0.
    #[attr(default = 0, min = 0)]
    preserve_index: usize,
    /// Of the same shape.
    zeroed: ArrayViewMutD<T>,
) -> Result<()> {
    keep_column(to_zero, preserve_index, zeroed)
}

/// The gradient of `zero_out_rows`: of each row only the element that was kept gets any.
#[op(shape = "(...,n)->(...,n)", gradient = zero_out_rows_grad_grad, dtypes(T = [f32, f64, i32, i64]), cuda = "zero_out.cu", parallel = "...")]
pub fn zero_out_rows_grad<T: RealNumber>(
    zeroed_grad: ArrayViewD<T>,
    #[attr(default = 0, min = 0)] preserve_index: usize,
    to_zero_grad: ArrayViewMutD<T>,
) -> Result<()> {
    keep_column(zeroed_grad, preserve_index, to_zero_grad)
}

/// The gradient of `zero_out_rows_grad`: of each row only the element that was kept gets any.
#[op(shape = "(...,n)->(...,n)", dtypes(T = [f32, f64, i32, i64]), cuda = "zero_out.cu", parallel = "...")]
pub fn zero_out_rows_grad_grad<T: RealNumber>(
    to_zero_grad_grad: ArrayViewD<T>,
    #[attr(default = 0, min = 0)] preserve_index: usize,
    zeroed_grad_grad: ArrayViewMutD<T>,
) -> Result<()> {
    keep_column(to_zero_grad_grad, preserve_index, zeroed_grad_grad)
}

/// The length of a row, which the index must be below.
fn row_length(shape: &[usize], index: usize) -> Result<usize> {
    let length = shape[shape.len() - 1];
    ensure!(
        index < length,
        InvalidArgument,
        "attribute `preserve_index` must be below the length of a row, {length}, got {index}"
    );
    Ok(length)
}

fn keep_on_card<T: CudaElement>(
    call: &CudaCall,
    from: DeviceView<T>,
    index: usize,
    to: DeviceViewMut<T>,
) -> Result<()> {
    keep(call, &from, row_length(from.shape(), index)?, index, &to)
}

fn zero_out_rows_cuda<T: CudaElement>(
    call: &CudaCall,
    to_zero: DeviceView<T>,
    preserve_index: usize,
    zeroed: DeviceViewMut<T>,
) -> Result<()> {
    keep_on_card(call, to_zero, preserve_index, zeroed)
}

fn zero_out_rows_grad_cuda<T: CudaElement>(
    call: &CudaCall,
    zeroed_grad: DeviceView<T>,
    preserve_index: usize,
    to_zero_grad: DeviceViewMut<T>,
) -> Result<()> {
    keep_on_card(call, zeroed_grad, preserve_index, to_zero_grad)
}

fn zero_out_rows_grad_grad_cuda<T: CudaElement>(
    call: &CudaCall,
    to_zero_grad_grad: DeviceView<T>,
    preserve_index: usize,
    zeroed_grad_grad: DeviceViewMut<T>,
) -> Result<()> {
    keep_on_card(call, to_zero_grad_grad, preserve_index, zeroed_grad_grad)
}

fn keep_column<T: RealNumber>(from: ArrayViewD<T>, index: usize, mut to: ArrayViewMutD<T>) -> Result<()> {
    let length = row_length(from.shape(), index)?;
    // Without `strided` inputs come row-major, as outputs always do, so both are slices.
    let (Some(from), Some(to)) = (from.as_slice(), to.as_slice_mut()) else {
        bail!(Internal, "a tensor is not row-major");
    };
    to.fill(T::zero());
    for (from, to) in from.chunks_exact(length).zip(to.chunks_exact_mut(length)) {
        to[index] = from[index];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::{Array2, Array3, arr0};
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    #[test]
    fn keeps_one_element_of_each_row() {
        let x = array![[1, 2], [3, 4]];
        let outputs = testing::call::<zero_out_rows>().input(&x).attr("preserve_index", 1).run().unwrap();
        assert_eq!(outputs.array::<i32, Ix2>("zeroed").unwrap(), array![[0, 2], [0, 4]]);
    }

    #[test]
    fn a_batch_is_the_calls_one_by_one() {
        let x = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (12 * i + 4 * j + k) as f32);
        let call =
            |x: &Array3<f32>| testing::call::<zero_out_rows>().input(x).attr("preserve_index", 2).run();
        let batch = call(&x).unwrap().array::<f32, Ix3>("zeroed").unwrap();
        for (i, one) in x.outer_iter().enumerate() {
            let outputs =
                testing::call::<zero_out_rows>().input(&one).attr("preserve_index", 2).run().unwrap();
            assert_eq!(outputs.array::<f32, Ix2>("zeroed").unwrap(), batch.index_axis(Axis(0), i));
        }
        assert!(crate::library().unwrap().op("zero_out_rows").unwrap().parallel().is_some());
    }

    #[test]
    fn empty_batches_are_fine_and_empty_rows_are_not() {
        let none = Array2::<f32>::zeros((0, 3));
        let outputs = testing::call::<zero_out_rows>().input(&none).run().unwrap();
        assert_eq!(outputs.array::<f32, Ix2>("zeroed").unwrap().dim(), (0, 3));
        let error = testing::call::<zero_out_rows>().input(&Array2::<f32>::zeros((3, 0))).run().unwrap_err();
        let expected = "ZeroOutRows: attribute `preserve_index` must be below the length of a row, 0, got 0";
        assert_eq!(error.message(), expected);
    }

    #[test]
    fn attributes_and_ranks_are_checked_by_the_definition() {
        let error = testing::call::<zero_out_rows>().input(&array![1, 2]).attr("preserve_index", -1).run();
        let expected = "ZeroOutRows: attribute `preserve_index` must be at least 0, got -1";
        assert_eq!(error.unwrap_err().message(), expected);
        assert!(testing::call::<zero_out_rows>().input(&arr0(1)).run().is_err());
        let op = testing::shapes::<zero_out_rows>();
        infer_ok!(op, "[?,n]", "[d0_0,n]");
        infer_ok!(op, "?", "?");
        infer_error!(op, "input `to_zero` must have rank at least 1, (...,n), got rank 0", "[]");
    }

    #[test]
    fn the_gradients_keep_the_same_element() {
        let arriving = array![[1f64, 2.], [3., 4.]];
        let kept = array![[0., 2.], [0., 4.]];
        let first = testing::call::<zero_out_rows_grad>().input(&arriving).attr("preserve_index", 1).run();
        assert_eq!(first.unwrap().array::<f64, Ix2>("to_zero_grad").unwrap(), kept);
        let second =
            testing::call::<zero_out_rows_grad_grad>().input(&arriving).attr("preserve_index", 1).run();
        assert_eq!(second.unwrap().array::<f64, Ix2>("zeroed_grad_grad").unwrap(), kept);
    }
}
