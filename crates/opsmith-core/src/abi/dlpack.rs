//! Calls on tensors in DLPack's form. The structures of DLPack 1 are written here as they lie in memory.

#![expect(non_upper_case_globals, reason = "DLPack's own names")]

use std::ffi::c_void;

use super::OpsmithAttr;

/// The release of DLPack whose structures these are.
pub const DLPACK_MAJOR_VERSION: u32 = 1;
/// Its minor number.
pub const DLPACK_MINOR_VERSION: u32 = 1;
/// A bit of `flags`: nobody may write to the memory.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1;
/// `device_type` of host memory.
pub const kDLCPU: i32 = 1;
/// `code` of a dtype: signed integers.
pub const kDLInt: u8 = 0;
/// Unsigned integers.
pub const kDLUInt: u8 = 1;
/// IEEE 754 floats.
pub const kDLFloat: u8 = 2;
/// The upper half of a `float32`.
pub const kDLBfloat: u8 = 4;
/// Two floats, real and imaginary part.
pub const kDLComplex: u8 = 5;
/// A byte, 0 or 1.
pub const kDLBool: u8 = 6;

/// Where memory is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLDevice {
    /// What kind of device.
    pub device_type: i32,
    /// Which one.
    pub device_id: i32,
}

/// What elements are.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DLDataType {
    /// What kind of number.
    pub code: u8,
    /// Its bits.
    pub bits: u8,
    /// How many of them an element has.
    pub lanes: u16,
}

/// A tensor that somebody else owns.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLTensor {
    /// The memory; the elements begin `byte_offset` bytes behind.
    pub data: *mut c_void,
    /// Where it is.
    pub device: DLDevice,
    /// The number of dims.
    pub ndim: i32,
    /// What the elements are.
    pub dtype: DLDataType,
    /// The dims, `ndim` of them.
    pub shape: *mut i64,
    /// The strides in elements, `ndim` of them; null for row-major without gaps.
    pub strides: *mut i64,
    /// Where the element at index 0 of every dim is.
    pub byte_offset: u64,
}

/// The version of DLPack that a tensor is of.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DLPackVersion {
    /// What others may not read differs in this.
    pub major: u32,
    /// The rest.
    pub minor: u32,
}

/// A tensor with its owner.
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of this structure.
    pub version: DLPackVersion,
    /// The owner's.
    pub manager_ctx: *mut c_void,
    /// Gives the tensor back, with this structure; may be null.
    pub deleter: Option<unsafe extern "C" fn(tensor: *mut DLManagedTensorVersioned)>,
    /// Bits.
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// A call of an op on tensors in host memory, in DLPack's form.
#[repr(C)]
pub struct OpsmithDLPackCall {
    /// `sizeof(OpsmithDLPackCall)`.
    pub size: usize,
    /// The op's position in the library.
    pub op: usize,
    /// All inputs, lists written out; a null pointer is an absent one.
    pub tensors: *const *const DLTensor,
    /// How many pointers `tensors` has.
    pub num_tensors: usize,
    /// How many tensors each argument of the definition has; null when each has one.
    pub counts: *const usize,
    /// The length of `counts`.
    pub num_arguments: usize,
    /// The attributes that are given; the others have their defaults.
    pub attrs: *const *const OpsmithAttr,
    /// How many pointers `attrs` has.
    pub num_attrs: usize,
    /// Bit `i` is set when output `i` of the definition is wanted; all ones for everything.
    pub wanted: u64,
    /// For each output, lists written out, the tensor to compute it into, row-major and aligned to its elements, or null for one
    /// that the library is to make. Null where it is to make all.
    pub given: *const *const DLTensor,
    /// Places for the outputs that the library makes, each to be given back by its `deleter`. Null is written for one
    /// that is given or absent, and for all where the call fails. May be null where all are given.
    pub made: *mut *mut DLManagedTensorVersioned,
    /// How many there are of `given` and of `made`: at least as many as the op has outputs.
    pub num_outputs: usize,
}
