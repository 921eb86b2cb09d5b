//! Tensors from and to DLPack, the frameworks' common form of tensors in memory, with no copy.

use std::sync::Arc;

use dlpark::DlpackFlags;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use dlpark::versioned::Dlpack;
use opsmith_core::abi::dlpack;
use opsmith_core::{DType, Error, Result, bail, ensure};
use smallvec::SmallVec;

use super::Tensor;

/// Memory that a CPU can read: its own, and what CUDA or ROCm pinned or manage.
const READABLE: [DLDeviceType; 4] =
    [DLDeviceType::CPU, DLDeviceType::CUDAHOST, DLDeviceType::ROCMHOST, DLDeviceType::CUDAMANAGED];

/// A tensor that was given away, with what its description points to.
struct Exported {
    managed: DLManagedTensorVersioned,
    shape: SmallVec<[i64; 6]>,
    strides: SmallVec<[i64; 6]>,
    /// Held for its memory.
    _tensor: Tensor,
}

impl Tensor {
    /// The tensor in the form of DLPack, with no copy: the memory stays until the receiver has given it back. It is marked
    /// read-only where somebody else has the memory too.
    ///
    /// # Errors
    /// `Unimplemented` for strings and quantised numbers, which DLPack does not have; `InvalidArgument` for a tensor that is
    /// not in host memory.
    pub fn into_dlpack(mut self) -> Result<Dlpack> {
        self.check_host()?;
        let Some(dlpack::DLDataType { code, bits, lanes }) = self.dtype().to_dlpack() else {
            bail!(Unimplemented, "a {} tensor cannot be given away through DLPack", self.dtype());
        };
        let mut flags = DlpackFlags::empty();
        flags.set(DlpackFlags::READ_ONLY, !self.is_exclusive());
        let dims = |dims: &[usize]| dims.iter().map(|&dim| dim as i64).collect();
        let tensor = DLTensor {
            data: self.data.cast(),
            device: DLDevice { device_type: DLDeviceType::CPU, device_id: 0 },
            ndim: self.shape().len() as i32,
            dtype: DLDataType { code: DLDataTypeCode(code), bits, lanes },
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let exported = Box::into_raw(Box::new(Exported {
            shape: dims(self.shape()),
            strides: self.strides().iter().map(|&stride| stride as i64).collect(),
            managed: DLManagedTensorVersioned {
                version: DLPackVersion::CURRENT,
                manager_ctx: std::ptr::null_mut(),
                deleter: Some(delete),
                flags,
                dl_tensor: tensor,
            },
            _tensor: self,
        }));
        // SAFETY: the box stays where it is until `delete`, which the pointer is taken back by.
        unsafe {
            (*exported).managed.manager_ctx = exported.cast();
            (*exported).managed.dl_tensor.shape = (*exported).shape.as_mut_ptr();
            (*exported).managed.dl_tensor.strides = (*exported).strides.as_mut_ptr();
            Dlpack::from_raw(&raw mut (*exported).managed)
                .map_err(|error| Error::internal(format!("DLPack: {error}")))
        }
    }

    /// A tensor over the memory of another library's, with no copy; that gets it back when the last tensor that uses it is
    /// gone.
    ///
    /// # Safety
    /// The description must be true, and while a tensor over the memory is read nobody may write to it.
    ///
    /// # Errors
    /// `InvalidArgument` for memory that a CPU cannot read, for a dtype that is not ours, and for elements that are not
    /// aligned, or are `bool` with bytes other than 0 and 1.
    pub unsafe fn from_dlpack(tensor: Dlpack) -> Result<Tensor> {
        let invalid = |error: dlpark::tensor::Error| Error::invalid_argument(format!("DLPack: {error}"));
        let view = tensor.validate().map_err(invalid)?;
        let (device, theirs) = (view.device(), view.dtype());
        ensure!(
            READABLE.contains(&device.device_type),
            InvalidArgument,
            "DLPack: the tensor is on a device of kind {} (index {}), which the CPU cannot read",
            device.device_type.0,
            device.device_id
        );
        let known = dlpack::DLDataType { code: theirs.code.0, bits: theirs.bits, lanes: theirs.lanes };
        let Some(dtype) = DType::from_dlpack(known) else {
            bail!(
                InvalidArgument,
                "DLPack: the elements are of kind {} with {} bits and {} lanes, a dtype not known here",
                theirs.code.0,
                theirs.bits,
                theirs.lanes
            );
        };
        let shape: SmallVec<[usize; 6]> = view.shape().iter().map(|&dim| dim as usize).collect();
        let strides = view.strides_or_compact().map_err(invalid)?;
        let strides: SmallVec<[isize; 6]> = strides.iter().map(|&stride| stride as isize).collect();
        let data = if shape.contains(&0) {
            // Nobody looks at it, but it is to be aligned.
            std::ptr::NonNull::<u128>::dangling().as_ptr().cast_const().cast()
        } else {
            // SAFETY: promised by the caller.
            unsafe { view.offset_bytes_ptr() }.map_err(invalid)?
        };
        // SAFETY: promised by the caller; the owner keeps the memory.
        let tensor = unsafe { Tensor::from_foreign(Arc::new(tensor), data, dtype, &shape, &strides) };
        ensure!(
            tensor.as_view().is_well_formed(),
            InvalidArgument,
            "DLPack: the elements are not aligned for {dtype}, or are bool with bytes other than 0 and 1"
        );
        Ok(tensor)
    }
}

/// Frees what [`Tensor::into_dlpack`] gave away.
unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    if !managed.is_null() {
        // SAFETY: it is the box that was given away, and is given back once.
        drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Exported>()) });
    }
}

#[cfg(test)]
mod tests {
    use dlpark::allocation::dynamic;
    use ndarray::{Array2, Ix2, array};

    use super::*;

    fn of(array: Array2<f32>) -> Dlpack {
        let made: dynamic::Initialized<DLManagedTensorVersioned> = Box::new(array).try_into().unwrap();
        // SAFETY: the array is dense and initialised.
        unsafe { made.finish() }
    }

    #[test]
    fn another_librarys_memory_is_looked_at() {
        let array = array![[1f32, 2., 3.], [4., 5., 6.]].reversed_axes();
        let (expected, address) = (array.clone(), array.as_ptr());
        // SAFETY: nobody writes to the array.
        let mut tensor = unsafe { Tensor::from_dlpack(of(array)) }.unwrap();
        assert_eq!((tensor.as_view().data_ptr(), tensor.strides()), (address.cast(), &[1, 3][..]));
        assert_eq!(tensor.view::<f32, Ix2>().unwrap(), expected);
        // It is not ours to write to.
        tensor.view_mut::<f32, Ix2>().unwrap()[[0, 0]] = 7.0;
        assert_ne!(tensor.as_view().data_ptr(), address.cast());
    }

    #[test]
    fn a_tensor_is_given_away_with_its_memory() {
        let tensor = Tensor::from_slice(&[1i64, 2, 3, 4, 5, 6], &[2, 3]).unwrap();
        let address = tensor.as_view().data_ptr();
        let kept = tensor.clone();
        let shared = tensor.into_dlpack().unwrap();
        assert!(shared.flags().contains(DlpackFlags::READ_ONLY));
        drop(shared);
        let alone = kept.into_dlpack().unwrap();
        assert!(!alone.flags().contains(DlpackFlags::READ_ONLY));
        let view = alone.validate().unwrap();
        // SAFETY: the elements are initialised.
        let elements = unsafe { view.cpu_slice::<i64>() }.unwrap();
        assert_eq!((view.shape(), elements), (&[2, 3][..], &[1, 2, 3, 4, 5, 6][..]));
        assert_eq!(elements.as_ptr().cast(), address);
        // SAFETY: as above.
        let back = unsafe { Tensor::from_dlpack(alone) }.unwrap();
        assert_eq!(back.as_view().data_ptr(), address);
    }

    #[test]
    fn every_dtype_that_both_have_goes_there_and_back() {
        for dtype in DType::ALL {
            for shape in [&[2usize, 0][..], &[], &[3, 2]] {
                let given = Tensor::zeros(dtype, shape).unwrap().into_dlpack();
                if dtype == DType::String || dtype.to_string().starts_with('q') {
                    assert!(given.err().unwrap().message().contains(&dtype.to_string()));
                    continue;
                }
                // SAFETY: nobody else has the memory.
                let back = unsafe { Tensor::from_dlpack(given.unwrap()) }.unwrap();
                assert_eq!((back.dtype(), back.shape()), (dtype, shape));
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let edited = |edit: fn(&mut DLTensor)| {
            let tensor = Tensor::from_slice(&[2u8; 64], &[64]).unwrap().into_dlpack().unwrap();
            // SAFETY: nobody else uses the description; the memory has 64 bytes, whatever they are called.
            unsafe {
                edit(&mut (*tensor.as_ptr()).dl_tensor);
                Tensor::from_dlpack(tensor).map(|_| ())
            }
        };
        let message = |edit| edited(edit).unwrap_err().message().to_owned();
        assert!(
            message(|tensor| tensor.device.device_type = DLDeviceType::CUDA).contains("device of kind 2")
        );
        assert!(message(|tensor| tensor.dtype.lanes = 4).contains("4 lanes"));
        assert!(message(|tensor| tensor.dtype.code = DLDataTypeCode::BOOL).contains("bool"));
        let unaligned = |tensor: &mut DLTensor| {
            (tensor.dtype.bits, tensor.byte_offset) = (32, 2);
            // SAFETY: the shape has one dim.
            unsafe { *tensor.shape = 8 };
        };
        assert!(message(unaligned).contains("aligned"));
        assert!(edited(|_| ()).is_ok());
    }
}
