//! Kernels of `standard.cu` on a card: how they are launched.

pub(crate) mod elementwise;
pub(crate) mod folds;
pub(crate) mod strided;
#[cfg(test)]
pub(crate) mod tests;

use opsmith::DeviceKind;
use opsmith::cuda::{CudaElement, Source};
use opsmith::dtype::sets;
use opsmith::prelude::*;

pub(crate) static SOURCE: Source = Source::new("standard.cu", include_str!("standard.cu")).beside(file!());

/// Whether a call runs on a card.
pub(crate) fn is_on_card(context: &OpKernelContext<'_>) -> bool {
    context.device().kind == DeviceKind::Cuda
}

/// The dtype in CUDA C++.
pub(crate) fn name(dtype: DType) -> Result<&'static str> {
    dispatch!(dtype, [bool, f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64], |T| Ok(T::NAME))
}

/// Whether a dtype has a type of a card's that is one element.
pub(crate) fn is_plain(dtype: DType) -> bool {
    dtype == DType::Bool || sets::REAL_NUMBER.contains(&dtype)
}

/// The kernel on a card for each of these dtypes of the attribute `T`.
pub(crate) fn kernels<K: OpKernel>(dtypes: fn(DType) -> bool) -> impl Iterator<Item = KernelDef> {
    let all = DType::ALL.into_iter().filter(move |&dtype| dtypes(dtype));
    all.map(|dtype| KernelDef::cuda::<K>().dtype_constraint("T", dtype))
}
