//! What a kernel that is written once turns into, for a person to read.

use opsmith_body::{CudaType, Level};
use opsmith_core::DType;

/// The type of a dtype's elements in CUDA source, for the floats that bodies are computed with.
pub(crate) fn cuda_type(dtype: DType) -> Option<CudaType> {
    Some(match dtype {
        DType::Float32 => CudaType::Float,
        DType::Float64 => CudaType::Double,
        DType::Float16 => CudaType::Half,
        DType::BFloat16 => CudaType::Bfloat16,
        _ => return None,
    })
}

/// The instructions that bodies run with on this processor, and how many elements they take: `AVX2, 8 × float32`.
pub(crate) fn vectors(dtype: DType) -> String {
    let (name, bytes) = match Level::best() {
        Level::Plain if cfg!(target_arch = "aarch64") => ("NEON", 16),
        Level::Plain if cfg!(target_arch = "x86_64") => ("SSE2", 16),
        Level::Plain => ("plain", 16),
        Level::Avx2 => ("AVX2", 32),
        Level::Avx512 => ("AVX-512", 64),
    };
    // Half-precision numbers are computed in float32.
    let wide = if dtype == DType::Float64 { DType::Float64 } else { DType::Float32 };
    format!("{name}, {} × {wide}", bytes / wide.size())
}
