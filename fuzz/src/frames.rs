//! XLA's calls: well-formed structures of any content, as `opsmith-frameworks/src/jax/ffi.rs` reads them.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};

use arbitrary::Unstructured;
use opsmith_core::attr::AttrBase;
use opsmith_core::def::{ArgCount, ArgType, AttrDef};
use opsmith_core::{DType, Signature};
use opsmith_frameworks::jax::{CallFrame, Handler};

use crate::calls::{Choices, Kept, signatures};

unsafe extern "C" {
    /// What XLA calls for the op at a position of the library of test operators.
    fn opsmith_jax_handler(op: usize) -> Option<Handler>;
}

#[repr(C)]
struct Head {
    size: usize,
    extension: *mut c_void,
}

#[repr(C)]
struct Frame {
    head: Head,
    api: *const Api,
    context: *mut c_void,
    stage: i32,
    inputs: Buffers,
    outputs: Buffers,
    attrs: Attrs,
}

#[repr(C)]
struct Buffers {
    head: Head,
    count: i64,
    kinds: *const i32,
    buffers: *const *const Buffer,
}

#[repr(C)]
struct Attrs {
    head: Head,
    count: i64,
    kinds: *const i32,
    names: *const *const Span,
    values: *const *const c_void,
}

#[repr(C)]
struct Buffer {
    head: Head,
    dtype: i32,
    data: *mut u8,
    rank: i64,
    dims: *const i64,
}

#[repr(C)]
struct Span {
    data: *const u8,
    len: usize,
}

#[repr(C)]
struct Scalar {
    dtype: i32,
    value: *const c_void,
}

#[repr(C)]
struct Array {
    dtype: i32,
    count: usize,
    data: *const c_void,
}

#[repr(C)]
struct Api {
    head: Head,
    version: Head,
    number: [i32; 2],
    internal: *const c_void,
    error_create: unsafe extern "C" fn(*mut Create) -> *mut c_void,
    unused: [*const c_void; 10],
    schedule: unsafe extern "C" fn(*mut Task) -> *mut c_void,
    num_threads: unsafe extern "C" fn(*mut Threads) -> *mut c_void,
}

#[repr(C)]
struct Create {
    head: Head,
    message: *const c_char,
    code: i32,
}

#[repr(C)]
struct Task {
    head: Head,
    context: *mut c_void,
    task: unsafe extern "C" fn(*mut c_void),
    data: *mut c_void,
}

#[repr(C)]
struct Threads {
    head: Head,
    context: *mut c_void,
    count: *mut i64,
}

unsafe extern "C" fn error_create(args: *mut Create) -> *mut c_void {
    // SAFETY: it is the library's, with a C string.
    unsafe {
        let message = CStr::from_ptr((*args).message);
        assert!(!message.is_empty(), "an error without a word");
        assert!((1..=16).contains(&(*args).code), "an error of no kind");
    }
    // Not null is a failure; nobody looks into it.
    std::ptr::dangling_mut::<u64>().cast()
}

unsafe extern "C" fn schedule(args: *mut Task) -> *mut c_void {
    // SAFETY: a task may be run before this returns.
    unsafe { ((*args).task)((*args).data) };
    null_mut()
}

unsafe extern "C" fn num_threads(args: *mut Threads) -> *mut c_void {
    // SAFETY: it is a place to write to.
    unsafe { *(*args).count = 2 };
    null_mut()
}

fn head<T>() -> Head {
    Head { size: size_of::<T>(), extension: null_mut() }
}

/// The numbers that XLA has for dtypes, and one that it has for none of ours.
fn number_of(dtype: DType) -> i32 {
    match dtype {
        DType::Bool => 1,
        DType::Int8 => 2,
        DType::Int16 => 3,
        DType::Int32 => 4,
        DType::Int64 => 5,
        DType::UInt8 => 6,
        DType::UInt16 => 7,
        DType::UInt32 => 8,
        DType::UInt64 => 9,
        DType::Float16 => 10,
        DType::Float32 => 11,
        DType::Float64 => 12,
        DType::Complex64 => 15,
        DType::BFloat16 => 16,
        DType::Complex128 => 18,
        _ => 19,
    }
}

/// Ops that do what no op should.
const WRONG: [&str; 3] = ["Panics", "Forgets", "Allocates"];

/// A call: which op, stage, and what comes with it.
pub(crate) fn jax(data: &[u8]) {
    let mut choices = Choices(Unstructured::new(data));
    let signatures = signatures(false);
    let op = choices.below(signatures.len());
    let signature = &signatures[op];
    // SAFETY: any position may be asked for.
    let Some(handler) = (unsafe { opsmith_jax_handler(op) }) else { return };
    if WRONG.contains(&signature.name.as_str()) {
        return;
    }
    let kept = Kept::default();
    let (inputs, outputs) = buffers(signature, &mut choices, &kept);
    let attrs = attrs(signature, &mut choices, &kept);
    let lends = choices.once_in(2);
    let api = Api {
        head: Head {
            size: if lends { size_of::<Api>() } else { size_of::<Api>() - 8 },
            extension: null_mut(),
        },
        version: head::<[usize; 3]>(),
        number: [0, 1],
        internal: null(),
        error_create,
        unused: [null(); 10],
        schedule,
        num_threads,
    };
    let size = if choices.once_in(32) { size_of::<Frame>() - 8 } else { size_of::<Frame>() };
    let mut frame = Frame {
        head: Head { size, extension: null_mut() },
        api: &api,
        context: null_mut(),
        stage: if choices.once_in(16) { choices.below(5) as i32 } else { 3 },
        inputs,
        outputs,
        attrs,
    };
    // SAFETY: it is as XLA's are, and what it points to is kept.
    let _ = unsafe { handler((&raw mut frame).cast::<CallFrame>()) };
}

/// Inputs and outputs. They have shapes of a few sizes, so that some fit.
fn buffers(signature: &Signature, choices: &mut Choices<'_>, kept: &Kept) -> (Buffers, Buffers) {
    let sizes = [choices.below(6), choices.below(6)];
    let dtypes: Vec<DType> = signature.attrs.iter().map(|_| choices.dtype()).collect();
    let list = choices.below(4);
    let one_rank = choices.below(3);
    let buffer = |own: ArgType, choices: &mut Choices<'_>, kept: &Kept| {
        let dtype = match own {
            _ if choices.once_in(32) => choices.dtype(),
            ArgType::Fixed(dtype) => dtype,
            ArgType::Attr(attr) => dtypes[attr],
            ArgType::List(_) => DType::Float32,
        };
        let rank = if choices.once_in(4) { choices.below(4) } else { one_rank };
        let shape = (0..rank).map(|dim| if choices.once_in(12) { choices.below(4) } else { sizes[dim % 2] });
        let shape: Vec<i64> = shape.map(|size| size as i64).collect();
        let bytes = shape.iter().product::<i64>() as usize * dtype.size().max(1);
        let data = (0..bytes).map(|_| if dtype == DType::Bool { choices.byte() & 1 } else { choices.byte() });
        let data = data.collect();
        let dtype = if choices.once_in(64) { choices.byte().into() } else { number_of(dtype) };
        let (rank, dims) = (shape.len() as i64, kept.list(shape));
        kept.one(Buffer { head: head::<Buffer>(), dtype, data: kept.list::<u8>(data), rank, dims })
    };
    let (mut inputs, mut outputs, mut changed) = (vec![], vec![], vec![]);
    for arg in &signature.inputs {
        let count = if arg.count == ArgCount::One { 1 } else { list };
        for _ in 0..count {
            let one = buffer(arg.dtype, choices, kept);
            inputs.push(one.cast_const());
            if arg.is_ref {
                changed.push(one.cast_const());
            }
        }
    }
    for arg in &signature.outputs {
        let count = if arg.count == ArgCount::One { 1 } else { list };
        outputs.extend((0..count).map(|_| buffer(arg.dtype, choices, kept).cast_const()));
    }
    outputs.extend(changed);
    if choices.once_in(16) {
        let all = if choices.once_in(2) { &mut inputs } else { &mut outputs };
        all.pop();
    }
    let gather = |all: Vec<*const Buffer>| Buffers {
        head: head::<Buffers>(),
        count: all.len() as i64,
        kinds: kept.list(vec![1; all.len()]),
        buffers: kept.list(all),
    };
    (gather(inputs), gather(outputs))
}

fn attrs(signature: &Signature, choices: &mut Choices<'_>, kept: &Kept) -> Attrs {
    let (mut kinds, mut names, mut values) = (vec![], vec![], vec![]);
    let mut add = |name: &str, (kind, value): (i32, *const c_void), kept: &Kept| {
        kinds.push(kind);
        let text = kept.list(name.as_bytes().to_vec());
        names.push(kept.one(Span { data: text, len: name.len() }).cast_const());
        values.push(value);
    };
    for def in &signature.attrs {
        if !choices.once_in(3) {
            add(&def.name, value(Some(def), choices, kept), kept);
        }
    }
    for name in ["wanted", "present", "no_such_attribute"] {
        if choices.once_in(8) {
            add(name, value(None, choices, kept), kept);
        }
    }
    for input in &signature.inputs {
        if choices.once_in(8) {
            let text = "{ dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 1.5 }";
            let value = if choices.once_in(4) { any_text(choices) } else { text.as_bytes().to_vec() };
            add(&input.name, string(value, kept), kept);
        }
    }
    Attrs {
        head: head::<Attrs>(),
        count: kinds.len() as i64,
        kinds: kept.list(kinds),
        names: kept.list(names),
        values: kept.list(values),
    }
}

fn any_text(choices: &mut Choices<'_>) -> Vec<u8> {
    (0..choices.below(12)).map(|_| choices.byte()).collect()
}

fn string(text: Vec<u8>, kept: &Kept) -> (i32, *const c_void) {
    let len = text.len();
    let span = Span { data: kept.list(text), len };
    (4, kept.one(span).cast_const().cast())
}

/// A value as XLA has it: mostly one of the kind that the definition asks for.
fn value(def: Option<&AttrDef>, choices: &mut Choices<'_>, kept: &Kept) -> (i32, *const c_void) {
    let (base, list) = def.map_or((AttrBase::Int, false), |def| (def.ty.base, def.ty.list));
    let kind = match choices.byte() {
        0xf8..=0xff => choices.below(6),
        _ if list && matches!(base, AttrBase::Int | AttrBase::Float | AttrBase::Bool) => 1,
        _ if matches!(base, AttrBase::Int | AttrBase::Float | AttrBase::Bool) => 3,
        _ if base == AttrBase::Shape && !list && choices.once_in(2) => 1,
        _ => 4,
    };
    if kind != 1 && kind != 3 {
        let default = def.and_then(|def| def.default.as_ref()).map(ToString::to_string);
        let is_plain = base == AttrBase::String && !list;
        let text = match default {
            Some(text) if !choices.once_in(3) => {
                if is_plain { text.trim_matches('\'').to_owned() } else { text }.into()
            }
            _ => any_text(choices),
        };
        let (_, text) = string(text, kept);
        return (if kind == 4 { 4 } else { kind as i32 }, text);
    }
    let count = if kind == 3 { 1 } else { choices.below(5) };
    let dtype = match (choices.once_in(8), base) {
        (true, _) => choices.one_of(&[1, 4, 5, 6, 11, 12, 2, 10, 15, 99]),
        (_, AttrBase::Float) => 11,
        (_, AttrBase::Bool) => 1,
        _ => 5,
    };
    // Of the widest that there is, so that any dtype can be read.
    let mut words: Vec<u64> = (0..2 * count).map(|_| u64::from(choices.byte() % 7)).collect();
    if choices.once_in(8) {
        words.iter_mut().for_each(|word| *word = word.wrapping_neg());
    }
    let data = kept.list(words).cast_const().cast();
    let value: *const c_void = match kind {
        3 => kept.one(Scalar { dtype, value: data }).cast_const().cast(),
        _ => kept.one(Array { dtype, count, data }).cast_const().cast(),
    };
    (kind as i32, value)
}
