//! Libraries that are part of the program.

use std::sync::atomic::{AtomicUsize, Ordering};

use opsmith::Code;
use opsmith_core::abi::{OpsmithError, OpsmithLibrary, OpsmithStr};
use opsmith_runtime::Library;

/// Doubles, as a library of one name.
mod doubling {
    use opsmith::prelude::*;

    #[pointwise]
    fn scaled<S: Scalar>(x: S) -> S {
        x + x
    }

    opsmith::library! { name = "embedded_numbers", version = "1.0.0", ops = [scaled], embedded = true }
}

/// The same definitions under the same name.
mod doubling_too {
    use opsmith::prelude::*;

    #[pointwise]
    fn scaled<S: Scalar>(x: S) -> S {
        x + x
    }

    opsmith::library! { name = "embedded_numbers", version = "1.0.1", ops = [scaled], embedded = true }
}

/// Another op under the same name.
mod adding {
    use opsmith::prelude::*;

    #[pointwise]
    fn scaled<S: Scalar>(x: S, y: S) -> S {
        x + y
    }

    opsmith::library! { name = "embedded_numbers", version = "1.0.0", ops = [scaled], embedded = true }
}

#[test]
fn a_name_stands_for_one_library() {
    let open = |table| {
        // SAFETY: the macro made these tables, and they are statics.
        unsafe { Library::from_table(table) }
    };
    let [first, again, same, other] =
        [doubling::table(), doubling::table(), doubling_too::table(), adding::table()].map(open);
    let first = first.unwrap();
    for library in [again, same] {
        assert_eq!(library.unwrap().version(), first.version(), "it is the first one");
    }
    let error = other.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    for part in ["this program", "`embedded_numbers`", "other definitions"] {
        assert!(error.message().contains(part), "{error}");
    }
}

/// How often the table below was asked what is in it.
static DESCRIBED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn counted_describe(json: *mut OpsmithStr) -> *mut OpsmithError {
    DESCRIBED.fetch_add(1, Ordering::Relaxed);
    // SAFETY: promised by the caller.
    unsafe { (doubling_too::table().describe)(json) }
}

#[test]
fn a_second_table_of_the_same_definitions_is_read_once() {
    // SAFETY: the macro made the table, and it is a static.
    unsafe { Library::from_table(doubling::table()) }.unwrap();
    let table: &OpsmithLibrary =
        Box::leak(Box::new(OpsmithLibrary { describe: counted_describe, ..*doubling_too::table() }));
    for _ in 0..3 {
        // SAFETY: it is that of the macro, but for who describes it.
        let library = unsafe { Library::from_table(table) }.unwrap();
        assert_eq!(library.version(), "1.0.0", "it is the first one");
    }
    assert_eq!(DESCRIBED.load(Ordering::Relaxed), 1);
}
