//! The dtypes that DLPack has too.

use crate::DType;
use crate::abi::dlpack::{DLDataType, kDLBfloat, kDLBool, kDLComplex, kDLFloat, kDLInt, kDLUInt};

const DTYPES: [(DType, u8, u8); 15] = [
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

impl DType {
    /// The dtype in DLPack's form, which has neither strings nor quantised numbers.
    pub fn to_dlpack(self) -> Option<DLDataType> {
        let (_, code, bits) = DTYPES.into_iter().find(|(dtype, ..)| *dtype == self)?;
        Some(DLDataType { code, bits, lanes: 1 })
    }

    /// The dtype that DLPack says elements have, where there is one like it here.
    pub fn from_dlpack(theirs: DLDataType) -> Option<DType> {
        let ours = |&(_, code, bits): &(DType, u8, u8)| theirs == DLDataType { code, bits, lanes: 1 };
        Some(DTYPES.into_iter().find(ours)?.0)
    }
}
