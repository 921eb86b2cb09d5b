//! Attributes of any value, most of them such as the definition asks for.

use std::ffi::c_void;
use std::ops::Bound;

use opsmith_core::abi::{
    OPSMITH_ATTR_TENSOR, OPSMITH_DEVICE_CPU, OpsmithAttr, OpsmithShape, OpsmithStr, OpsmithTensor,
};
use opsmith_core::attr::{AttrBase, AttrType};
use opsmith_core::def::{Allowed, AttrDef};
use opsmith_core::{AttrValue, DType, Signature};

use super::tensors::{number, text};
use super::{Choices, Kept};

/// Programs for the ops that take one.
const PROGRAMS: [&str; 4] = [
    "inputs 1\ninput 0\nexp 0\nadd 0 1\noutput 2 1",
    "inputs 1 1\ninput 0\ninput 1\nmul 0 1\nconstant 3ff8000000000000\nadd 2 3\noutput 4 1",
    "inputs 1\ninput 0\nfold_sum 0 0\noutput 1 0",
    "inputs 1 0\ninput 0\ninput 1\nmul 0 1\nfold_sum 2 0\noutput 3 0\noutput 2 1",
];

/// Those of a call.
pub(super) fn of(signature: &Signature, choices: &mut Choices<'_>, kept: &Kept) -> Vec<*const OpsmithAttr> {
    let mut attrs = Vec::new();
    for def in &signature.attrs {
        let rarely = def.inferred || def.default.is_some();
        if rarely && !choices.once_in(if def.inferred { 16 } else { 2 }) {
            continue;
        }
        let attr = attr(def, choices, kept);
        attrs.push(attr);
        if choices.once_in(64) {
            attrs.push(attr);
        }
    }
    attrs
}

fn attr(def: &AttrDef, choices: &mut Choices<'_>, kept: &Kept) -> *const OpsmithAttr {
    let wrong = choices.once_in(32);
    let ty = match wrong {
        true => AttrType { base: choices.one_of(AttrBase::ALL), list: choices.once_in(2) },
        false => def.ty,
    };
    let len = if ty.list { def.min_len.unwrap_or(0) + choices.below(4) } else { 1 };
    let name = match choices.once_in(64) {
        true => text(choices, kept),
        false => OpsmithStr { data: kept.list(def.name.clone().into_bytes()).cast(), len: def.name.len() },
    };
    let mut attr = OpsmithAttr {
        size: size_of::<OpsmithAttr>(),
        name,
        kind: kind(ty.base),
        is_list: ty.list.into(),
        len,
        values: values(def, ty.base, len, choices, kept),
    };
    if choices.once_in(64) {
        match choices.below(5) {
            0 => attr.size = choices.below(size_of::<OpsmithAttr>()),
            1 => attr.kind = choices.one_of(&[-1, 7, i32::MAX]),
            2 => attr.values = std::ptr::null(),
            3 => attr.len = attr.len.saturating_sub(1),
            _ => attr.is_list = 0,
        }
    }
    kept.one(attr)
}

/// The number of a type, those that `opsmith.h` has.
fn kind(base: AttrBase) -> i32 {
    AttrBase::ALL.iter().position(|other| *other == base).map_or(OPSMITH_ATTR_TENSOR, |at| at as i32)
}

fn values(
    def: &AttrDef,
    base: AttrBase,
    len: usize,
    choices: &mut Choices<'_>,
    kept: &Kept,
) -> *const c_void {
    let each = 0..len;
    match base {
        AttrBase::Int => kept.list(each.map(|_| int(def, choices)).collect::<Vec<i64>>()).cast_const().cast(),
        AttrBase::Float => kept.list(each.map(|_| float(choices)).collect::<Vec<f64>>()).cast_const().cast(),
        AttrBase::Bool => {
            kept.list(each.map(|_| choices.byte() & 1).collect::<Vec<u8>>()).cast_const().cast()
        }
        AttrBase::Type => {
            let number = |choices: &mut Choices<'_>| match choices.once_in(32) {
                true => choices.one_of(&[0, -1, 21, 1000]),
                false => dtype(def, choices) as i32,
            };
            kept.list(each.map(|_| number(choices)).collect::<Vec<i32>>()).cast_const().cast()
        }
        AttrBase::String => {
            let all: Vec<OpsmithStr> = each.map(|_| string(def, choices, kept)).collect();
            kept.list(all).cast_const().cast()
        }
        AttrBase::Shape => {
            let all: Vec<OpsmithShape> = each.map(|_| shape(choices, kept)).collect();
            kept.list(all).cast_const().cast()
        }
        AttrBase::Tensor => {
            let all: Vec<*const OpsmithTensor> = each.map(|_| tensor(choices, kept)).collect();
            kept.list(all).cast_const().cast()
        }
    }
}

fn int(def: &AttrDef, choices: &mut Choices<'_>) -> i64 {
    if let (Some(Allowed::Ints(ints)), false) = (&def.allowed, choices.once_in(8)) {
        return choices.one_of(ints);
    }
    match choices.byte() {
        0xff => i64::MAX,
        0xfe => i64::MIN,
        0xfd => 1 << 40,
        byte => match &def.min {
            Bound::Included(AttrValue::Int(min)) if byte < 0xc0 => min.saturating_add(i64::from(byte % 5)),
            _ => i64::from(byte % 9) - 3,
        },
    }
}

fn float(choices: &mut Choices<'_>) -> f64 {
    choices.one_of(&[
        0.5,
        0.0,
        1.0,
        -1.0,
        2.5,
        -0.0,
        1e-300,
        1e300,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ])
}

/// A dtype that the attribute may be, mostly.
pub(super) fn dtype(def: &AttrDef, choices: &mut Choices<'_>) -> DType {
    match &def.allowed {
        Some(Allowed::Types(types)) if !choices.once_in(32) => choices.one_of(types),
        _ => choices.dtype(),
    }
}

fn string(def: &AttrDef, choices: &mut Choices<'_>, kept: &Kept) -> OpsmithStr {
    let known = match (&def.allowed, &def.default) {
        (Some(Allowed::Strings(all)), _) => all[choices.below(all.len())].clone(),
        (_, Some(AttrValue::String(text))) => text.to_string(),
        _ if def.name == "program" => choices.one_of(&PROGRAMS).to_owned(),
        _ => String::new(),
    };
    if choices.once_in(8) {
        return text(choices, kept);
    }
    OpsmithStr { len: known.len(), data: kept.list(known.into_bytes()).cast() }
}

fn shape(choices: &mut Choices<'_>, kept: &Kept) -> OpsmithShape {
    let rank = choices.below(5) as i64 - 1;
    let dims = (0..rank.max(0)).map(|_| choices.below(6) as i64 - 1).collect();
    OpsmithShape { rank, dims: kept.list::<i64>(dims) }
}

fn tensor(choices: &mut Choices<'_>, kept: &Kept) -> *const OpsmithTensor {
    if choices.once_in(32) {
        return std::ptr::null();
    }
    let (dtype, count) = (choices.dtype(), choices.below(5));
    let data: *mut c_void = match dtype {
        DType::String => {
            let texts: Vec<OpsmithStr> = (0..count).map(|_| text(choices, kept)).collect();
            kept.list(texts).cast()
        }
        dtype => kept.list((0..count as i64).flat_map(|index| number(dtype, index)).collect()).cast(),
    };
    kept.one(OpsmithTensor {
        size: size_of::<OpsmithTensor>(),
        data,
        dtype: dtype as i32,
        device_kind: OPSMITH_DEVICE_CPU,
        device_index: 0,
        rank: 1,
        shape: kept.list(vec![count as i64]),
        strides: std::ptr::null(),
    })
}
