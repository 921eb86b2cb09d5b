//! Launches: which kernel, how many threads, with which arguments.

use std::cell::Cell;
use std::collections::HashMap;
use std::env;
use std::ffi::c_void;

use opsmith_core::fork::{OnceLock, RwLock, Turn};
use opsmith_core::{Result, ensure};

use crate::ahead;
use crate::arguments::Arguments;
use crate::cache::{self, Readers};
use crate::digest::Digest;
use crate::driver::{Card, Driver, Function, Geometry};
use crate::nvrtc::Nvrtc;
use crate::source::{Compiled, Source, Target};

/// The environment variable with more options for the compiler, told apart by spaces: `-lineinfo` for profilers, say.
pub const FLAGS_VARIABLE: &str = "OPSMITH_CUDA_FLAGS";

/// What a launch is made of.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// Where the kernel is written.
    pub source: &'a Source,
    /// Which one: `doubled`, or of a template `doubled<float, int>`.
    pub kernel: String,
    /// How many blocks, along x, y and z.
    pub grid: [u32; 3],
    /// How many threads a block has, along x, y and z.
    pub block: [u32; 3],
    /// How many bytes of shared memory a block gets beside what the kernel declares.
    pub shared: u32,
    /// What the kernel is given.
    pub arguments: Arguments,
}

/// Where launches go in place of a card.
type Sink<'a> = dyn FnMut(&mut Launch<'_>) -> Result<()> + 'a;

thread_local! {
    static SINK: Cell<Option<*mut Sink<'static>>> = const { Cell::new(None) };
}

/// Lets `sink` have the launches that `body` makes on this thread, in place of a card: for tests, which compile what would be
/// launched, or look at it.
pub fn with_launches_to<R>(sink: &mut Sink<'_>, body: impl FnOnce() -> R) -> R {
    /// Puts the former sink back, also when the body panics.
    struct Restore(Option<*mut Sink<'static>>);

    impl Drop for Restore {
        fn drop(&mut self) {
            SINK.set(self.0);
        }
    }

    let sink: *mut Sink<'_> = sink;
    // SAFETY: only the lifetime changes; the pointer is used on this thread while `sink` is borrowed, and gone after.
    let sink = unsafe { std::mem::transmute::<*mut Sink<'_>, *mut Sink<'static>>(sink) };
    let _restore = Restore(SINK.replace(Some(sink)));
    body()
}

impl Launch<'_> {
    /// Puts the kernel on a stream of a card, and waits for nothing. A grid without blocks is no work.
    ///
    /// # Errors
    /// `InvalidArgument` for a grid or block that no card has; what compiling, loading and launching may say.
    ///
    /// # Safety
    /// The arguments must fit the kernel's parameters, and the memory that they point to be valid on the card until the
    /// stream is through with it; `stream` must be one of that card's.
    pub unsafe fn run(mut self, device: i32, stream: *mut c_void) -> Result<()> {
        if self.grid.contains(&0) {
            return Ok(());
        }
        self.check()?;
        if let Some(sink) = SINK.get() {
            // Not again: a sink that makes launches of its own means the card.
            SINK.set(None);
            // SAFETY: the sink is borrowed by `with_launches_to` further up this thread's stack.
            let result = unsafe { (*sink)(&mut self) };
            SINK.set(Some(sink));
            return result;
        }
        let driver = Driver::get()?;
        let card = driver.card(device)?;
        let function = function(driver, &card, self.source, &self.kernel)?;
        let geometry = Geometry { grid: self.grid, block: self.block, shared: self.shared };
        // SAFETY: promised by the caller.
        unsafe { driver.launch(&card, function, &geometry, stream, &mut self.arguments.pointers()) }
    }

    fn check(&self) -> Result<()> {
        let Launch { grid, block, kernel, .. } = self;
        ensure!(
            grid[0] <= i32::MAX as u32 && grid[1] <= MAX_GRID && grid[2] <= MAX_GRID,
            InvalidArgument,
            "kernel `{kernel}`: a grid of {grid:?} blocks is too large; it may have 2147483647, {MAX_GRID} and {MAX_GRID}"
        );
        let threads = block.iter().try_fold(1u32, |threads, &dim| threads.checked_mul(dim));
        ensure!(
            threads.is_some_and(|threads| (1..=1024).contains(&threads)) && block[2] <= 64,
            InvalidArgument,
            "kernel `{kernel}`: a block of {block:?} threads is none that a card has; it may have 1 to 1024 in all"
        );
        Ok(())
    }
}

/// The most blocks along y and z.
pub const MAX_GRID: u32 = 65_535;

/// The kernel on a card, compiled and loaded at its first use in the process.
fn function(driver: &Driver, card: &Card, source: &Source, kernel: &str) -> Result<Function> {
    static LOADED: OnceLock<RwLock<HashMap<u128, Function>>> = OnceLock::new();
    static TURN: Turn = Turn::new();
    let loaded = LOADED.get_or_init(RwLock::default);
    let device = card.index.to_le_bytes();
    let key = Digest::new().part(&source.key().to_le_bytes()).part(&device).part(kernel.as_bytes()).finish();
    let find = || loaded.read().get(&key).copied();
    if let Some(function) = find() {
        return Ok(function);
    }
    let _turn = TURN.take();
    if let Some(function) = find() {
        return Ok(function);
    }
    // The driver may be too old for what was compiled ahead, and not for what is compiled here.
    let ahead = compiled_ahead(source, kernel, card)?.and_then(|compiled| driver.load(card, &compiled).ok());
    let function = match ahead {
        Some(function) => function,
        None => {
            let nvrtc = Nvrtc::get()?;
            driver.load(card, &compiled(nvrtc, source, kernel, nvrtc.target_for(card.architecture)?)?)?
        }
    };
    loaded.write().insert(key, function);
    Ok(function)
}

/// A kernel, compiled: from the cache on disk where it is there, else by NVRTC, and put there.
///
/// # Errors
/// As [`Nvrtc::compile`].
pub fn compiled(nvrtc: &Nvrtc, source: &Source, kernel: &str, target: Target) -> Result<Compiled> {
    let flags = flags();
    let (major, minor) = nvrtc.version();
    let options = nvrtc.options(target, &flags);
    let key = Digest::new()
        .part(&source.key().to_le_bytes())
        .part(kernel.as_bytes())
        .part(options.join("\n").as_bytes())
        .part(format!("NVRTC {major}.{minor}").as_bytes())
        .finish();
    let mut folder = cache::folder();
    if let Some(place) = &folder {
        match cache::read(place, key, cache::VARIABLE) {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(error) => {
                cache::warn_of(&error);
                folder = None;
            }
        }
    }
    let compiled = nvrtc.compile(source, kernel, target, &flags)?;
    if let Some(folder) = folder {
        // A cache that cannot be written to costs time, not the result.
        let _ = cache::write(&folder, key, &compiled, Readers::User);
    }
    Ok(compiled)
}

/// A kernel that was compiled ahead of time; none where the environment asks for other options than that was done with.
fn compiled_ahead(source: &Source, kernel: &str, card: &Card) -> Result<Option<Compiled>> {
    if flags().is_empty() { ahead::find(source, kernel, card.architecture) } else { Ok(None) }
}

/// The options that the environment adds.
fn flags() -> Vec<String> {
    let said = env::var(FLAGS_VARIABLE).unwrap_or_default();
    said.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(grid: [u32; 3], block: [u32; 3]) -> Launch<'static> {
        static SOURCE: Source = Source::new("a.cu", "");
        let arguments = Arguments::default();
        Launch { source: &SOURCE, kernel: "a".to_owned(), grid, block, shared: 0, arguments }
    }

    #[test]
    fn grids_and_blocks_are_checked_and_empty_ones_are_no_work() {
        let run = |grid, block| {
            let mut count = 0;
            let mut sink = |_: &mut Launch<'_>| {
                count += 1;
                Ok(())
            };
            // SAFETY: nothing is launched.
            let result =
                with_launches_to(&mut sink, || unsafe { launch(grid, block).run(0, std::ptr::null_mut()) });
            result.map(|()| count)
        };
        assert_eq!(run([1, 1, 1], [32, 32, 1]), Ok(1));
        assert_eq!(run([0, 1, 1], [32, 32, 1]), Ok(0));
        assert!(run([1, 70_000, 1], [1, 1, 1]).unwrap_err().message().contains("a grid of [1, 70000, 1]"));
        assert!(run([1, 1, 1], [2048, 1, 1]).unwrap_err().message().contains("a block of [2048, 1, 1]"));
        assert!(run([1, 1, 1], [0, 1, 1]).is_err());
    }
}
