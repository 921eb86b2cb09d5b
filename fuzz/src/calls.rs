//! Calls of the C ABI: any op, any tensors, any attributes, some of them not as the header says where that is told.

mod attributes;
pub(crate) mod queries;
mod services;
mod tensors;

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::LazyLock;

use arbitrary::Unstructured;
use opsmith_core::abi::{
    OPSMITH_INTERNAL, OpsmithAttr, OpsmithCall, OpsmithError, OpsmithLibrary, OpsmithServices, OpsmithTensor,
};
use opsmith_core::def::{ArgCount, ArgDef, ArgType};
use opsmith_core::{DType, Signature};
use opsmith_runtime::Library;

use self::services::Lent;

// For its symbols.
use opsmith_testops as _;

unsafe extern "C" {
    /// The table of the library of test operators.
    #[allow(non_upper_case_globals, reason = "it is the symbol's name")]
    static opsmith_library_v1: OpsmithLibrary;
}

/// The table of the standard operators, or of those that are made for tests.
pub(crate) fn table(standard: bool) -> &'static OpsmithLibrary {
    if standard {
        return opsmith_ops::table();
    }
    // SAFETY: it is never written.
    unsafe { &opsmith_library_v1 }
}

/// The definitions of both, in the order of their positions.
pub(crate) fn signatures(standard: bool) -> &'static [Signature] {
    static BOTH: LazyLock<[Vec<Signature>; 2]> = LazyLock::new(|| {
        [false, true].map(|standard| {
            // SAFETY: the macro made it, and it is a static.
            let library = unsafe { Library::from_table(table(standard)) }.expect("it is sound");
            (0..library.num_ops())
                .map(|op| library.op_at(op).expect("it is there").signature().clone())
                .collect()
        })
    });
    &BOTH[usize::from(standard)]
}

/// Ops that panic, wait or do otherwise what no op should: for tests of just that.
const WRONG: [&str; 3] = ["Panics", "Forgets", "Allocates"];

/// What a call is made of, kept until it is over.
#[derive(Default)]
pub(crate) struct Kept(RefCell<Vec<Box<dyn Any>>>);

impl Kept {
    /// Where these are.
    pub(crate) fn list<T: 'static>(&self, list: Vec<T>) -> *mut T {
        let mut list = list.into_boxed_slice();
        let at = list.as_mut_ptr();
        self.0.borrow_mut().push(Box::new(list));
        at
    }

    pub(crate) fn one<T: 'static>(&self, value: T) -> *mut T {
        self.list(vec![value])
    }
}

/// Choices, of which the last ones are always the first that there is.
pub(crate) struct Choices<'a>(pub(crate) Unstructured<'a>);

impl Choices<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// One of so many.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    /// Something rare: once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub(crate) fn dtype(&mut self) -> DType {
        self.one_of(&DType::ALL)
    }
}

/// A call: which library, op, services and way, then tensors and attributes.
pub(crate) fn calls(data: &[u8]) {
    let mut choices = Choices(Unstructured::new(data));
    let standard = choices.byte() & 1 == 1;
    let signatures = signatures(standard);
    let op = choices.below(signatures.len());
    let signature = &signatures[op];
    if WRONG.contains(&signature.name.as_str()) {
        return;
    }
    let (kept, mut lent) = (Kept::default(), Lent::default());
    let (tensors, counts) = tensors_of(signature, &mut choices, &kept);
    let attrs = attributes::of(signature, &mut choices, &kept);
    let services = services(&mut choices, &mut lent);
    let mut output_counts = vec![usize::MAX; signature.outputs.len()];
    let mut call = OpsmithCall {
        size: size_of::<OpsmithCall>(),
        op,
        num_tensors: tensors.len(),
        tensors: kept.list(tensors),
        num_arguments: counts.len(),
        counts: kept.list(counts),
        num_attrs: attrs.len(),
        attrs: kept.list(attrs),
        wanted: if choices.once_in(4) { choices.byte().into() } else { u64::MAX },
        services: &services,
        output_counts: output_counts.as_mut_ptr(),
        num_outputs: output_counts.len(),
        plan: std::ptr::null(),
    };
    if choices.once_in(8) {
        spoil(&mut call, &mut choices);
    }
    let table = table(standard);
    let mut plan = std::ptr::null_mut();
    let planned = choices.once_in(3);
    // SAFETY: all that the call points to is kept until its end, and as large as it says.
    let succeeded = unsafe {
        let worked_out = !planned || end(table, (table.plan)(&call, &mut plan));
        call.plan = plan;
        let succeeded = worked_out && end(table, (table.call)(&call));
        (table.plan_free)(plan);
        succeeded
    };
    lent.check();
    if succeeded {
        lent.check_outputs(&output_counts, signature, call.wanted);
    }
}

/// Whether a call was without an error, which is given back.
///
/// # Safety
/// The library must have given it.
unsafe fn end(table: &OpsmithLibrary, error: *mut OpsmithError) -> bool {
    if error.is_null() {
        return true;
    }
    // SAFETY: promised by the caller.
    unsafe {
        let message = std::ffi::CStr::from_ptr((*error).text);
        let (code, message) = ((*error).code, message.to_string_lossy().into_owned());
        let op = (!(*error).op.is_null()).then(|| std::ffi::CStr::from_ptr((*error).op).to_owned());
        (table.error_free)(error);
        // A kernel may have nothing to say; then the op is told alone.
        assert!(!message.is_empty() || op.is_some(), "an error without a word");
        // A panic is one. Some ops that are made for tests leave checks out.
        let is_standard = std::ptr::eq(table, opsmith_ops::table());
        assert!(!is_standard || code != OPSMITH_INTERNAL, "{message}");
    }
    false
}

/// The tensors of all arguments, and how many each has.
fn tensors_of(
    signature: &Signature,
    choices: &mut Choices<'_>,
    kept: &Kept,
) -> (Vec<*const OpsmithTensor>, Vec<usize>) {
    let sizes = [0; 3].map(|_| choices.below(7));
    // One dtype for each attribute that is one: what arguments share is the same mostly.
    let dtypes: Vec<DType> = signature.attrs.iter().map(|attr| attributes::dtype(attr, choices)).collect();
    let list = choices.below(4);
    let (mut tensors, mut counts) = (Vec::new(), Vec::new());
    for arg in &signature.inputs {
        if arg.optional && choices.once_in(3) {
            tensors.push(std::ptr::null());
            counts.push(1);
            continue;
        }
        let count = match arg.count {
            ArgCount::One => 1,
            ArgCount::Attr(_) | ArgCount::Types(_) => list,
        };
        for _ in 0..count {
            let again = tensors.last().copied().filter(|_| choices.once_in(12));
            let dtype = dtype_of(arg, &dtypes, choices);
            tensors.push(again.unwrap_or_else(|| tensors::tensor(dtype, &sizes, choices, kept)));
        }
        counts.push(count);
    }
    (tensors, counts)
}

fn dtype_of(arg: &ArgDef, dtypes: &[DType], choices: &mut Choices<'_>) -> DType {
    if choices.once_in(24) {
        return choices.dtype();
    }
    match arg.dtype {
        ArgType::Fixed(dtype) => dtype,
        ArgType::Attr(attr) => dtypes[attr],
        ArgType::List(_) => choices.dtype(),
    }
}

/// What the caller lends, or less.
fn services(choices: &mut Choices<'_>, lent: &mut Lent) -> OpsmithServices {
    let what = choices.byte();
    let threads = what & 3 != 3;
    OpsmithServices {
        size: size_of::<OpsmithServices>(),
        context: std::ptr::from_mut(lent).cast::<c_void>(),
        allocate_output: (what & 0x70 != 0x70).then_some(services::allocate_output),
        num_threads: threads.then_some(services::num_threads),
        parallel_for: threads.then_some(services::parallel_for),
        keep_string: (what & 0x0c != 0x0c).then_some(services::keep_string),
        stream: std::ptr::null_mut(),
        allocate_temp: None,
        launch: None,
    }
}

/// Makes one thing wrong of those that a callee can see.
fn spoil(call: &mut OpsmithCall, choices: &mut Choices<'_>) {
    match choices.below(8) {
        0 => call.size = choices.below(size_of::<OpsmithCall>()),
        1 => call.op = usize::MAX - choices.below(2),
        2 => call.tensors = std::ptr::null(),
        3 => call.counts = std::ptr::null(),
        4 => call.services = std::ptr::null(),
        5 => call.attrs = std::ptr::null::<*const OpsmithAttr>(),
        6 => call.num_tensors = call.num_tensors.saturating_sub(1),
        _ => call.num_arguments = call.num_arguments.saturating_sub(1),
    }
}
