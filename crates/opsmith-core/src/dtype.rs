//! Element types: their names, sizes, numbers on the wire, and the named sets that bounds refer to.

mod rounding;

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use num_complex::Complex;

pub use self::rounding::ToHalf;
use crate::{Error, Result};

/// The type of a tensor's elements. The numbers are those of TensorFlow's `DataType` and cross the C ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary32.
    Float32 = 1,
    /// IEEE 754 binary64.
    Float64 = 2,
    /// Signed 32-bit integer.
    Int32 = 3,
    /// Unsigned 8-bit integer.
    UInt8 = 4,
    /// Signed 16-bit integer.
    Int16 = 5,
    /// Signed 8-bit integer.
    Int8 = 6,
    /// A string of bytes, of any length.
    String = 7,
    /// Two `float32`: real and imaginary part.
    Complex64 = 8,
    /// Signed 64-bit integer.
    Int64 = 9,
    /// A byte that is 0 or 1.
    Bool = 10,
    /// Quantised signed 8-bit integer.
    QInt8 = 11,
    /// Quantised unsigned 8-bit integer.
    QUInt8 = 12,
    /// Quantised signed 32-bit integer.
    QInt32 = 13,
    /// The upper half of a `float32`.
    BFloat16 = 14,
    /// Quantised signed 16-bit integer.
    QInt16 = 15,
    /// Quantised unsigned 16-bit integer.
    QUInt16 = 16,
    /// Unsigned 16-bit integer.
    UInt16 = 17,
    /// Two `float64`: real and imaginary part.
    Complex128 = 18,
    /// IEEE 754 binary16.
    Float16 = 19,
    /// Unsigned 32-bit integer.
    UInt32 = 22,
    /// Unsigned 64-bit integer.
    UInt64 = 23,
}

/// What there is to know of a dtype: its canonical name, other spellings, and size and alignment in bytes.
struct Facts {
    dtype: DType,
    name: &'static str,
    /// The name after `DT_` in TensorFlow's protocol buffers.
    proto: &'static str,
    aliases: &'static [&'static str],
    size: usize,
}

const fn facts(
    dtype: DType,
    name: &'static str,
    proto: &'static str,
    aliases: &'static [&'static str],
    size: usize,
) -> Facts {
    Facts { dtype, name, proto, aliases, size }
}

/// In the order of [`DType::ALL`].
const FACTS: [Facts; 21] = [
    facts(DType::Float32, "float32", "FLOAT", &["float", "f32", "single"], 4),
    facts(DType::Float64, "float64", "DOUBLE", &["double", "f64"], 8),
    facts(DType::Int32, "int32", "INT32", &["i32"], 4),
    facts(DType::UInt8, "uint8", "UINT8", &["u8"], 1),
    facts(DType::Int16, "int16", "INT16", &["i16"], 2),
    facts(DType::Int8, "int8", "INT8", &["i8"], 1),
    facts(DType::String, "string", "STRING", &["str"], 16),
    facts(DType::Complex64, "complex64", "COMPLEX64", &["c64"], 8),
    facts(DType::Int64, "int64", "INT64", &["i64"], 8),
    facts(DType::Bool, "bool", "BOOL", &[], 1),
    facts(DType::QInt8, "qint8", "QINT8", &[], 1),
    facts(DType::QUInt8, "quint8", "QUINT8", &[], 1),
    facts(DType::QInt32, "qint32", "QINT32", &[], 4),
    facts(DType::BFloat16, "bfloat16", "BFLOAT16", &["bf16"], 2),
    facts(DType::QInt16, "qint16", "QINT16", &[], 2),
    facts(DType::QUInt16, "quint16", "QUINT16", &[], 2),
    facts(DType::UInt16, "uint16", "UINT16", &["u16"], 2),
    facts(DType::Complex128, "complex128", "COMPLEX128", &["c128"], 16),
    facts(DType::Float16, "float16", "HALF", &["half", "f16"], 2),
    facts(DType::UInt32, "uint32", "UINT32", &["u32"], 4),
    facts(DType::UInt64, "uint64", "UINT64", &["u64"], 8),
];

impl DType {
    /// Every dtype, in the order of their numbers.
    pub const ALL: [DType; 21] = {
        let mut all = [DType::Float32; 21];
        let mut i = 0;
        while i < 21 {
            all[i] = FACTS[i].dtype;
            i += 1;
        }
        all
    };

    fn facts(self) -> &'static Facts {
        let number = self as usize;
        // Numbers run from 1 without a gap to 19, then 22 and 23.
        &FACTS[if number < 20 { number - 1 } else { number - 3 }]
    }

    /// The dtype with this number.
    pub fn from_u8(number: u8) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| *dtype as u8 == number)
    }

    /// The canonical name, as NumPy spells it: `float32`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The name in TensorFlow's protocol buffers: `DT_FLOAT`.
    pub fn proto_name(self) -> String {
        format!("DT_{}", self.facts().proto)
    }

    /// The size of one element in bytes. For `string`, of the pointer and length that stand for one.
    pub fn size(self) -> usize {
        self.facts().size
    }

    /// What the addresses of its elements are multiples of.
    pub fn alignment(self) -> usize {
        self.size().min(size_of::<u64>())
    }

    /// The dtype that a usual spelling names: `float`, `float32`, `f32` or `DT_FLOAT`.
    pub fn parse(text: &str) -> Option<DType> {
        let proto = text.strip_prefix("DT_");
        FACTS
            .iter()
            .find(|facts| match proto {
                Some(proto) => facts.proto == proto,
                None => facts.name == text || facts.aliases.contains(&text),
            })
            .map(|facts| facts.dtype)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<DType> {
        DType::parse(text)
            .ok_or_else(|| Error::invalid_argument(format!("`{text}` is not a dtype that Opsmith has")))
    }
}

/// The sets of dtypes that bounds and constraints name.
pub mod sets {
    use super::DType::{self, *};

    /// The bound `Float`, which `opsmith-kernels` has.
    pub const FLOAT: &[DType] = &[Float32, Float64];
    /// The bound `AnyFloat`, as well.
    pub const ANY_FLOAT: &[DType] = &[Float16, BFloat16, Float32, Float64];
    /// The bound [`Integer`](super::Integer).
    pub const INTEGER: &[DType] = &[Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64];
    /// The bound [`RealNumber`](super::RealNumber), and the constraint `realnumbertype`.
    pub const REAL_NUMBER: &[DType] =
        &[Float32, Float64, Int32, UInt8, Int16, Int8, Int64, BFloat16, UInt16, Float16, UInt32, UInt64];
    /// The bound [`Number`](super::Number): what arithmetic is defined on in Rust.
    pub const NUMBER: &[DType] = &[
        Float32, Float64, Int32, UInt8, Int16, Int8, Complex64, Int64, BFloat16, UInt16, Complex128, Float16,
        UInt32, UInt64,
    ];
    /// The constraint `numbertype` (also `numerictype`), as TensorFlow defines it.
    pub const NUMBER_TYPE: &[DType] = &[
        Float32, Float64, Int32, UInt8, Int16, Int8, Complex64, Int64, QInt8, QUInt8, QInt32, BFloat16,
        UInt16, Complex128, Float16, UInt32, UInt64,
    ];
    /// The constraint `quantizedtype`.
    pub const QUANTIZED: &[DType] = &[QInt8, QUInt8, QInt32, QInt16, QUInt16];
}

/// A Rust type that a tensor's elements can have.
///
/// # Safety
/// The type must have the size, alignment at most its size, and the valid bit patterns of `DTYPE`.
pub unsafe trait Element: Copy + Send + Sync + fmt::Debug + PartialEq + Default + 'static {
    /// The dtype that this type stands for.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {
        $(
            const _: () = assert!(std::mem::size_of::<$rust>() == FACTS[fact_index(DType::$dtype)].size);
            // SAFETY: the size is asserted above; every bit pattern that a framework stores for the dtype is valid
            // (a `bool` tensor holds bytes 0 and 1 only, in every framework).
            unsafe impl Element for $rust {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

const fn fact_index(dtype: DType) -> usize {
    let mut i = 0;
    while FACTS[i].dtype as u8 != dtype as u8 {
        i += 1;
    }
    i
}

macro_rules! quantised {
    ($($(#[$doc:meta])* $name:ident($repr:ty);)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
            #[repr(transparent)]
            pub struct $name(pub $repr);
        )*
    };
}

quantised! {
    /// A quantised signed 8-bit integer.
    QInt8(i8);
    /// A quantised unsigned 8-bit integer.
    QUInt8(u8);
    /// A quantised signed 16-bit integer.
    QInt16(i16);
    /// A quantised unsigned 16-bit integer.
    QUInt16(u16);
    /// A quantised signed 32-bit integer.
    QInt32(i32);
}

elements! {
    f32 => Float32, f64 => Float64, f16 => Float16, bf16 => BFloat16,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64,
    bool => Bool, Complex<f32> => Complex64, Complex<f64> => Complex128,
    QInt8 => QInt8, QUInt8 => QUInt8, QInt16 => QInt16, QUInt16 => QUInt16, QInt32 => QInt32,
}

/// Numbers: the integers, the floats and the complex numbers.
pub trait Number: Element + num_traits::NumAssign {}
/// Real numbers: the integers and the floats.
pub trait RealNumber: Number + PartialOrd + num_traits::NumCast {}
/// Signed and unsigned integers of 8 to 64 bits.
pub trait Integer: RealNumber + num_traits::PrimInt {}

macro_rules! implement {
    ($($trait:ident: $($rust:ty),*;)*) => { $($(impl $trait for $rust {})*)* };
}

implement! {
    Number: f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, Complex<f32>, Complex<f64>;
    RealNumber: f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64;
    Integer: i8, i16, i32, i64, u8, u16, u32, u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_by_number_and_by_every_spelling() {
        for dtype in DType::ALL {
            assert_eq!(DType::from_u8(dtype as u8), Some(dtype));
            assert_eq!(dtype.facts().dtype, dtype);
            assert_eq!(DType::parse(dtype.name()), Some(dtype));
            assert_eq!(DType::parse(&dtype.proto_name()), Some(dtype));
        }
        assert_eq!(DType::parse("float"), Some(DType::Float32));
        assert_eq!(DType::parse("half"), Some(DType::Float16));
        assert_eq!(DType::parse("DT_float"), None);
        let error = "float8_e5m2".parse::<DType>().unwrap_err();
        assert_eq!(error.message(), "`float8_e5m2` is not a dtype that Opsmith has");
    }
}
