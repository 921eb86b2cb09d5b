//! Kernels compiled ahead of time: made, found, and not taken where they are stale. A test program of its own, as it sets the
//! environment; where there is no NVRTC it says so and passes.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use opsmith_core::Code;
use opsmith_cuda::testing::{ARCHITECTURES, compile_everywhere, nvrtc};
use opsmith_cuda::{Architecture, Arguments, Launch, Source, ahead};

fn launch(source: &Source) -> Launch<'_> {
    let (kernel, arguments) = ("set<int>".to_owned(), Arguments::default());
    Launch { source, kernel, grid: [1; 3], block: [1; 3], shared: 0, arguments }
}

#[test]
fn kernels_are_made_found_and_not_taken_of_another_source() -> Result<(), Box<dyn std::error::Error>> {
    let Some(nvrtc) = nvrtc() else { return Ok(()) };
    let folder = std::env::temp_dir().join(format!("opsmith-ahead-{}", std::process::id()));
    // SAFETY: this program has one test, so no other thread reads the environment.
    unsafe { std::env::set_var(ahead::VARIABLE, &folder) };
    let source = Source::generated("set.cu", "template <typename T> __global__ void set(T *x) { *x = 1; }");
    compile_everywhere(nvrtc, &launch(&source))?;
    for architecture in ARCHITECTURES {
        let found = ahead::read(&folder, &source, "set<int>", architecture)?.ok_or("it was made")?;
        assert!(found.image.starts_with(b"\x7fELF") && found.symbol.contains("set"), "{}", found.symbol);
    }
    assert_eq!(ahead::read(&folder, &source, "set<int>", Architecture(86))?, None, "of another generation");
    let of_80 = ahead::read(&folder, &source, "set<int>", Architecture(80))?;
    assert_eq!(ahead::find(&source, "set<int>", Architecture(86))?, of_80, "the family's");
    assert_eq!(ahead::find(&source, "set<int>", Architecture(70))?, None, "a card runs no later code");
    assert_eq!(ahead::read(&folder, &source, "set<float>", Architecture(80))?, None, "of another instance");
    let other = Source::generated("set.cu", "template <typename T> __global__ void set(T *x) { *x = 2; }");
    assert_eq!(ahead::read(&folder, &other, "set<int>", Architecture(80))?, None, "the source has changed");
    for file in std::fs::read_dir(&folder)? {
        let path = file?.path();
        let mut bytes = std::fs::read(&path)?;
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(&path, bytes)?;
    }
    assert_eq!(ahead::read(&folder, &source, "set<int>", Architecture(80))?, None, "it is damaged");
    std::fs::set_permissions(&folder, Permissions::from_mode(0o777))?;
    let error = ahead::find(&source, "set<int>", Architecture(80)).unwrap_err();
    assert_eq!(error.code(), Code::PermissionDenied);
    assert!(error.message().contains("set OPSMITH_CUDA_KERNELS"), "{error}");
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
