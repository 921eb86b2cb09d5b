//! What dtypes are in forms that are not ours: DLPack's and ONNX's. Their own numbers are TensorFlow's.

use crate::DType;
use crate::abi::dlpack::{DLDataType, kDLBfloat, kDLBool, kDLComplex, kDLFloat, kDLInt, kDLUInt};

const DLPACK: [(DType, u8, u8); 15] = [
    (DType::Bool, kDLBool, 8),
    (DType::UInt8, kDLUInt, 8),
    (DType::UInt16, kDLUInt, 16),
    (DType::UInt32, kDLUInt, 32),
    (DType::UInt64, kDLUInt, 64),
    (DType::Int8, kDLInt, 8),
    (DType::Int16, kDLInt, 16),
    (DType::Int32, kDLInt, 32),
    (DType::Int64, kDLInt, 64),
    (DType::Float16, kDLFloat, 16),
    (DType::BFloat16, kDLBfloat, 16),
    (DType::Float32, kDLFloat, 32),
    (DType::Float64, kDLFloat, 64),
    (DType::Complex64, kDLComplex, 64),
    (DType::Complex128, kDLComplex, 128),
];

/// The numbers of ONNX's `TensorProto.DataType`.
const ONNX: [(DType, i32); 14] = [
    (DType::Float32, 1),
    (DType::UInt8, 2),
    (DType::Int8, 3),
    (DType::UInt16, 4),
    (DType::Int16, 5),
    (DType::Int32, 6),
    (DType::Int64, 7),
    (DType::String, 8),
    (DType::Bool, 9),
    (DType::Float16, 10),
    (DType::Float64, 11),
    (DType::UInt32, 12),
    (DType::UInt64, 13),
    (DType::BFloat16, 16),
];

impl DType {
    /// The dtype in DLPack's form, which has neither strings nor quantised numbers.
    pub fn to_dlpack(self) -> Option<DLDataType> {
        let (_, code, bits) = DLPACK.into_iter().find(|(dtype, ..)| *dtype == self)?;
        Some(DLDataType { code, bits, lanes: 1 })
    }

    /// The dtype that DLPack says elements have, where there is one like it here.
    pub fn from_dlpack(theirs: DLDataType) -> Option<DType> {
        let ours = |&(_, code, bits): &(DType, u8, u8)| theirs == DLDataType { code, bits, lanes: 1 };
        Some(DLPACK.into_iter().find(ours)?.0)
    }

    /// The number of the dtype in ONNX, where that has it.
    pub fn to_onnx(self) -> Option<i32> {
        ONNX.into_iter().find(|(dtype, _)| *dtype == self).map(|(_, number)| number)
    }

    /// The dtype of a number of ONNX's, where there is one like it here.
    pub fn from_onnx(number: i32) -> Option<DType> {
        ONNX.into_iter().find(|(_, own)| *own == number).map(|(dtype, _)| dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_dtypes_come_back() {
        for dtype in DType::ALL {
            let (dlpack, onnx) = (dtype.to_dlpack(), dtype.to_onnx());
            assert_eq!(dlpack.map(DType::from_dlpack), dlpack.map(|_| Some(dtype)));
            assert_eq!(onnx.map(DType::from_onnx), onnx.map(|_| Some(dtype)));
        }
        assert_eq!((DType::Complex64.to_onnx(), DType::from_onnx(14)), (None, None));
        assert_eq!(DType::from_dlpack(DLDataType { code: kDLFloat, bits: 32, lanes: 4 }), None);
    }
}
