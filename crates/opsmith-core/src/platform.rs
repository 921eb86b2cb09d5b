//! Where Opsmith runs: everything that compiles it compiles this first.

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")))]
compile_error!(
    "Opsmith runs on Linux on x86-64 with the GNU C library, and this build is for something else; on Windows use WSL 2, on macOS \
     and elsewhere a container (`docker run --platform linux/amd64 -it rust bash`)"
);
