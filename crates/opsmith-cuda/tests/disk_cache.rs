//! Compiled kernels on disk, in a process of its own: the folder is said by the environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use opsmith_cuda::testing::nvrtc;
use opsmith_cuda::{Architecture, CACHE_VARIABLE, Source, Target, cache_folder, compiled};

#[test]
fn kernels_are_kept_and_damaged_ones_are_compiled_again() {
    let Some(nvrtc) = nvrtc() else { return };
    let root = std::env::temp_dir().join(format!("opsmith-cuda-cache-{}", std::process::id()));
    // SAFETY: this is the only test of its process, and no other thread is there yet that reads the environment.
    unsafe { std::env::set_var(CACHE_VARIABLE, &root) };
    let folder = cache_folder().unwrap();
    assert_eq!(folder, root.join("cuda"));
    let text = "template <typename T> __global__ void twice(T *x) { x[threadIdx.x] *= 2; }";
    let source = Source::generated("twice.cu", text);
    let target = Target::Machine(Architecture(80));
    let make = |kernel: &str, target| compiled(nvrtc, &source, kernel, target).unwrap();
    let files = || {
        let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    };

    let begin = Instant::now();
    let first = make("twice<float>", target);
    let (made, begin) = (begin.elapsed(), Instant::now());
    assert_eq!(make("twice<float>", target), first);
    eprintln!("compiled in {made:?}, found on disk in {:?}", begin.elapsed());
    let own = files();
    assert_eq!(own.len(), 1, "{own:?}");

    make("twice<double>", target);
    make("twice<float>", Target::Machine(Architecture(90)));
    assert_eq!(files().len(), 3, "each kernel and each generation of cards has its own");

    let whole = fs::read(&own[0]).unwrap();
    for damaged in [&whole[..whole.len() / 2], b"", &[&whole[..40], &[0xFF; 40], &whole[80..]].concat()] {
        fs::write(&own[0], damaged).unwrap();
        assert_eq!(make("twice<float>", target), first);
        assert_eq!(fs::read(&own[0]).unwrap(), whole, "it is made again");
    }
    assert_eq!(files().len(), 3, "no part of a file stays behind");

    for place in [&root, &folder] {
        fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
    }
    for file in files() {
        fs::remove_file(file).unwrap();
    }
    assert_eq!(make("twice<float>", target), first, "a cache that others write to is done without");
    assert_eq!(files().len(), 0, "nor is anything put there");

    fs::remove_dir_all(&root).unwrap();
    fs::write(&root, "no folder").unwrap();
    assert_eq!(make("twice<float>", target), first, "a cache that cannot be written to is done without");
    fs::remove_file(&root).unwrap();
}
