//! Tensors of any dtype, shape, strides and alignment, in memory that ends where they end.

use opsmith_core::DType;
use opsmith_core::abi::{OPSMITH_DEVICE_CPU, OPSMITH_DEVICE_CUDA, OpsmithStr, OpsmithTensor};

use super::{Choices, Kept};

/// A tensor, whose dims are of these sizes mostly.
pub(super) fn tensor(
    dtype: DType,
    sizes: &[usize],
    choices: &mut Choices<'_>,
    kept: &Kept,
) -> *const OpsmithTensor {
    let rank = choices.below(5);
    let shape: Vec<i64> = (0..rank)
        .map(|_| match choices.byte() {
            0xf0..=0xff => 1,
            byte => sizes[usize::from(byte) % sizes.len()] as i64,
        })
        .collect();
    let given = choices.once_in(2);
    let strides = if given { any_strides(&shape, choices) } else { row_major(&shape) };
    // How far elements lie before and after the one at index 0.
    let reach = |sign: i64| {
        let along = shape.iter().zip(&strides).map(|(size, stride)| (size - 1).max(0) * stride);
        along.filter(|far| far.signum() == sign).sum::<i64>().unsigned_abs() as usize
    };
    let (before, after) = if shape.contains(&0) { (0, 0) } else { (reach(-1), reach(1) + 1) };
    let first = elements(dtype, before + after, choices, kept);
    // SAFETY: as many elements lie before.
    let data = unsafe { first.add(before * dtype.size()) };
    let mut tensor = OpsmithTensor {
        size: size_of::<OpsmithTensor>(),
        data: data.cast(),
        dtype: dtype as i32,
        device_kind: OPSMITH_DEVICE_CPU,
        device_index: 0,
        rank: rank as i32,
        shape: kept.list(shape),
        strides: if given { kept.list(strides) } else { std::ptr::null() },
    };
    if choices.once_in(64) {
        spoil(&mut tensor, choices);
    }
    kept.one(tensor)
}

fn row_major(shape: &[i64]) -> Vec<i64> {
    (0..shape.len()).map(|dim| shape[dim + 1..].iter().product()).collect()
}

/// Dims in any order, with gaps, backwards or repeated.
fn any_strides(shape: &[i64], choices: &mut Choices<'_>) -> Vec<i64> {
    let mut strides = vec![0; shape.len()];
    let mut left: Vec<usize> = (0..shape.len()).collect();
    let mut next = 1;
    while !left.is_empty() {
        let dim = left.swap_remove(choices.below(left.len()));
        let how = choices.below(8);
        strides[dim] = match how {
            0 => 0,
            1 => -next,
            2 => 2 * next,
            _ => next,
        };
        if how != 0 {
            next *= shape[dim].max(1) * if how == 2 { 2 } else { 1 };
        }
    }
    strides
}

/// Memory for so many elements and no more; sometimes not aligned.
fn elements(dtype: DType, count: usize, choices: &mut Choices<'_>, kept: &Kept) -> *mut u8 {
    let how = choices.below(8);
    if dtype == DType::String {
        let texts = (0..count).map(|_| text(choices, kept)).collect();
        return kept.list::<OpsmithStr>(texts).cast();
    }
    let gap = usize::from(how == 7);
    let mut bytes = vec![0; gap];
    for index in 0..count {
        let byte = choices.byte();
        match how {
            0 => bytes.extend((0..dtype.size()).map(|place| byte.wrapping_mul(place as u8 + 1))),
            _ => bytes.extend(number(dtype, i64::from(byte % 11) - 3 + (index as i64 & 1))),
        }
    }
    let at = kept.list(bytes);
    // SAFETY: the block begins with as many bytes more.
    unsafe { at.add(gap) }
}

/// A small number of a dtype, or near to it.
pub(super) fn number(dtype: DType, value: i64) -> Vec<u8> {
    let float = value as f64 * 0.5;
    match dtype {
        DType::Float32 => (float as f32).to_ne_bytes().to_vec(),
        DType::Float64 => float.to_ne_bytes().to_vec(),
        DType::BFloat16 => (float as f32).to_ne_bytes()[2..].to_vec(),
        DType::Float16 => [0, 0x38 + value as u8 % 8].to_vec(),
        DType::Complex64 => [(float as f32).to_ne_bytes(), 1f32.to_ne_bytes()].concat(),
        DType::Complex128 => [float.to_ne_bytes(), 1f64.to_ne_bytes()].concat(),
        DType::Bool => vec![value as u8 & 1],
        other => value.to_ne_bytes()[..other.size()].to_vec(),
    }
}

/// Some text, with memory of its own.
pub(super) fn text(choices: &mut Choices<'_>, kept: &Kept) -> OpsmithStr {
    let len = choices.below(5);
    if len == 0 && choices.once_in(2) {
        return OpsmithStr { data: std::ptr::null(), len: 0 };
    }
    let bytes: Vec<u8> = (0..len).map(|_| choices.byte()).collect();
    OpsmithStr { data: kept.list(bytes).cast(), len }
}

/// Makes one thing wrong of those that a callee can see.
fn spoil(tensor: &mut OpsmithTensor, choices: &mut Choices<'_>) {
    match choices.below(7) {
        0 => tensor.size = choices.below(size_of::<OpsmithTensor>()),
        1 => tensor.rank = -1 - choices.below(2) as i32,
        2 => tensor.dtype = choices.one_of(&[-1, 0, 20, 21, 24, 1 << 20]),
        3 => tensor.device_kind = choices.one_of(&[0, -1, OPSMITH_DEVICE_CUDA, 13]),
        4 => tensor.device_index = 1,
        5 => tensor.shape = std::ptr::null(),
        _ => tensor.data = std::ptr::null_mut(),
    }
}
