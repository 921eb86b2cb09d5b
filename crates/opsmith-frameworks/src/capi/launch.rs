//! Launches that the caller of a call takes, in place of a card.

use std::ffi::c_void;

use opsmith_core::abi::{OpsmithHeader, OpsmithLaunch, OpsmithServices, OpsmithStr};
use opsmith_core::{Error, Result};
use opsmith_cuda::{Launch, with_launches_to};

/// The caller's function.
type Take = unsafe extern "C" fn(context: *mut c_void, launch: *const OpsmithLaunch) -> i32;

/// Runs a call whose launches go to its caller where that takes them.
pub(super) fn with_launches_of<R>(services: &OpsmithServices, body: impl FnOnce() -> R) -> R {
    match services.launch {
        Some(take) => with_launches_to(&mut |launch| give(services, take, launch), body),
        None => body(),
    }
}

fn give(services: &OpsmithServices, take: Take, launch: &mut Launch<'_>) -> Result<()> {
    let source = launch.source;
    let file = source.file();
    let headers = source.headers().iter();
    let headers: Vec<OpsmithHeader> = headers
        .map(|(name, text)| OpsmithHeader { name: OpsmithStr::new(name), text: OpsmithStr::new(text) })
        .collect();
    let sizes: Vec<usize> = (0..launch.arguments.len()).map(|at| launch.arguments.bytes(at).len()).collect();
    let arguments = launch.arguments.pointers();
    let given = OpsmithLaunch {
        size: size_of::<OpsmithLaunch>(),
        file: OpsmithStr::new(&file),
        source: OpsmithStr::new(source.text()),
        headers: headers.as_ptr(),
        num_headers: headers.len(),
        kernel: OpsmithStr::new(&launch.kernel),
        arguments: arguments.as_ptr().cast(),
        argument_sizes: sizes.as_ptr(),
        num_arguments: sizes.len(),
        grid: launch.grid,
        block: launch.block,
        shared: launch.shared,
        line: source.line(),
    };
    // SAFETY: the caller's function gets its own context, and a launch that is whole and there until it returns.
    match unsafe { take(services.context, &raw const given) } {
        0 => Ok(()),
        status => Err(Error::internal(format!(
            "kernel `{}`: the caller, who takes launches, failed with {status}",
            launch.kernel
        ))),
    }
}
