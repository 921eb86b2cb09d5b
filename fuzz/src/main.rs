//! The program that `cargo xtask fuzz` runs: libFuzzer, and of the targets the one that `OPSMITH_FUZZ_TARGET` names.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use opsmith_fuzz::Target;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("OPSMITH_FUZZ_TARGET").expect("OPSMITH_FUZZ_TARGET names a target");
    opsmith_fuzz::target(&name).unwrap_or_else(|| panic!("there is no target `{name}`"))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
