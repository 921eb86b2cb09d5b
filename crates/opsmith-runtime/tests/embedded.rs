//! Libraries that are part of the program.

use std::sync::Mutex;
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

/// A table that lasts, as one in a file does. It stays reachable, so that it counts as no leak.
fn lasting(table: OpsmithLibrary) -> &'static OpsmithLibrary {
    static KEPT: Mutex<Vec<&OpsmithLibrary>> = Mutex::new(Vec::new());
    let table: &OpsmithLibrary = Box::leak(Box::new(table));
    KEPT.lock().unwrap().push(table);
    table
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
    let table = lasting(OpsmithLibrary { describe: counted_describe, ..*doubling_too::table() });
    for _ in 0..3 {
        // SAFETY: it is that of the macro, but for who describes it.
        let library = unsafe { Library::from_table(table) }.unwrap();
        assert_eq!(library.version(), "1.0.0", "it is the first one");
    }
    assert_eq!(DESCRIBED.load(Ordering::Relaxed), 1);
}

/// The first field of an error, as one of another version of Opsmith might have it alone.
static OLD_ERROR: usize = size_of::<usize>();
/// How often it was given back.
static FREED: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn old_init() -> *mut OpsmithError {
    (&raw const OLD_ERROR).cast_mut().cast()
}

unsafe extern "C" fn counted_free(error: *mut OpsmithError) {
    assert_eq!(error, (&raw const OLD_ERROR).cast_mut().cast());
    FREED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn an_error_that_is_shorter_than_ours_is_told_and_given_back() {
    let table = lasting(OpsmithLibrary {
        init: old_init,
        error_free: counted_free,
        name: OpsmithStr::new("of_another_version"),
        ..*doubling::table()
    });
    // SAFETY: it is that of the macro, but for an error of which there are as many bytes as it says.
    let error = unsafe { Library::from_table(table) }.unwrap_err();
    let (size, ours) = (size_of::<usize>(), size_of::<OpsmithError>());
    let expected =
        format!("a library gave an error of {size} bytes, expected {ours}: it was built by another version");
    assert!(error.message().contains(&expected), "{error}");
    assert_eq!((error.code(), FREED.load(Ordering::Relaxed)), (Code::Internal, 1));
}
