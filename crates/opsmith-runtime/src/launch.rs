//! Launches that a library gives its caller, in place of a device.

use std::slice;

use opsmith_core::abi::{OPSMITH_ABI_VERSION, OpsmithLaunch, OpsmithStr};
use opsmith_core::{Result, ensure};
use opsmith_cuda::{Arguments, Launch, Source};

/// Reads a launch, and lends it to `body`.
///
/// # Safety
/// `launch` must be null or point to one as the ABI has it, of as many bytes as it says itself, which is there until this
/// returns.
pub(crate) unsafe fn with_launch<R>(
    launch: *const OpsmithLaunch,
    body: impl FnOnce(&mut Launch<'_>) -> Result<R>,
) -> Result<R> {
    ensure!(!launch.is_null(), InvalidArgument, "a launch is null");
    // SAFETY: every structure of the ABI begins with its size.
    let size = unsafe { (&raw const (*launch).size).read() };
    let needed = size_of::<OpsmithLaunch>();
    ensure!(
        size >= needed,
        FailedPrecondition,
        "a launch of {size} bytes; version {OPSMITH_ABI_VERSION} of the ABI has {needed}"
    );
    // SAFETY: it is at least as large as this version's.
    let given = unsafe { &*launch };
    // SAFETY: the library's texts, headers and arguments are as many as it says, and there until this returns; an argument has
    // as many bytes as its size says.
    let (source, arguments) = unsafe {
        let headers = list(given.headers, given.num_headers).iter();
        let headers = headers.map(|header| (text(header.name).into(), text(header.text).into())).collect();
        let source = Source::of_library(text(given.file), given.line, text(given.source), headers);
        let mut arguments = Arguments::default();
        let sizes = list(given.argument_sizes, given.num_arguments);
        for (&data, &size) in list(given.arguments, given.num_arguments).iter().zip(sizes) {
            arguments.raw(list(data.cast::<u8>(), size));
        }
        (source, arguments)
    };
    let OpsmithLaunch { grid, block, shared, .. } = *given;
    // SAFETY: as above.
    let kernel = unsafe { text(given.kernel) };
    body(&mut Launch { source: &source, kernel, grid, block, shared, arguments })
}

/// # Safety
/// The text must be readable.
unsafe fn text(text: OpsmithStr) -> String {
    // SAFETY: promised by the caller.
    String::from_utf8_lossy(unsafe { text.as_bytes() }).into_owned()
}

/// # Safety
/// There must be as many elements for `'a`, where it is not 0.
unsafe fn list<'a, T>(data: *const T, len: usize) -> &'a [T] {
    // SAFETY: promised by the caller.
    if len == 0 { &[] } else { unsafe { slice::from_raw_parts(data, len) } }
}
