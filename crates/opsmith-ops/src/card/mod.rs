//! Kernels of `standard.cu` on a card: how they are launched.

pub(crate) mod elementwise;
pub(crate) mod folds;
#[cfg(test)]
pub(crate) mod tests;

use opsmith::DeviceKind;
use opsmith::cuda::{CudaElement, Index, Source, Structure};
use opsmith::dtype::sets;
use opsmith::prelude::*;
use opsmith::space::IndexSpace;

pub(crate) static SOURCE: Source = Source::new("standard.cu", include_str!("standard.cu")).beside(file!());

/// The most dims that a kernel goes through.
const MAX_RANK: usize = 8;

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

/// The indices that all counts fit, and places of `N` operands, which are sums of those in each space and of `more`.
pub(crate) fn index_of<const N: usize>(spaces: &[&IndexSpace], more: usize) -> Index {
    let most = i32::MAX as usize - (1 << 16);
    let far = |operand: usize| spaces.iter().fold(more, |far, space| far.saturating_add(space.span(operand)));
    let fits = spaces.iter().all(|space| space.len() <= most) && (0..N).all(|operand| far(operand) <= most);
    if fits { Index::Bits32 } else { Index::Bits64 }
}

/// The structure `Space` of `N` operands. An index space has the last dim first too.
pub(crate) fn packed<const N: usize>(space: &IndexSpace, index: Index) -> Result<Vec<u8>> {
    let rank = space.dims().len();
    ensure!(rank <= MAX_RANK, Unimplemented, "tensors of {rank} dims are not gone through on a card");
    let mut structure = Structure::new(index);
    structure.index(space.len() as i128)?.int(rank as i32);
    let padded = |numbers: &mut dyn Iterator<Item = i128>, rest: i128| {
        numbers.chain(std::iter::repeat(rest)).take(MAX_RANK).collect::<Vec<_>>()
    };
    let mut all = padded(&mut space.dims().iter().map(|&dim| dim as i128), 1);
    for operand in 0..N {
        all.extend(padded(&mut space.strides(operand).iter().map(|&stride| stride as i128), 0));
    }
    for number in all {
        structure.index(number)?;
    }
    Ok(structure.finish_without_address())
}
