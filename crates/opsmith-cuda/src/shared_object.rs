//! Libraries that are opened at run time, and their functions.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// A library that stays open for the life of the process.
#[derive(Clone, Copy)]
pub(crate) struct SharedObject(NonNull<c_void>);

// SAFETY: a handle of `dlopen` may be used by any thread.
unsafe impl Send for SharedObject {}
// SAFETY: as above.
unsafe impl Sync for SharedObject {}

impl SharedObject {
    /// Opens a file, or a library by its bare name as the system finds it; else what the system says.
    pub(crate) fn open(path: &Path) -> Result<SharedObject, String> {
        Self::open_with(path, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    /// A library that is in the process already.
    pub(crate) fn present(name: &str) -> Option<SharedObject> {
        Self::open_with(Path::new(name), libc::RTLD_NOLOAD | libc::RTLD_LAZY).ok()
    }

    fn open_with(path: &Path, flags: i32) -> Result<SharedObject, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name has a NUL".to_owned())?;
        // SAFETY: the name is a C string. The libraries that are opened here are NVIDIA's own, whose initialisers ask
        // nothing of the process, or the file that the user names in `OPSMITH_NVRTC` and answers for.
        let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
        NonNull::new(handle).map(SharedObject).ok_or_else(|| {
            // SAFETY: `dlerror` gives null or a C string that is valid until this thread's next call of its kind.
            let message = unsafe {
                let message = libc::dlerror();
                (!message.is_null()).then(|| CStr::from_ptr(message).to_string_lossy().into_owned())
            };
            message.unwrap_or_else(|| "it could not be opened".to_owned())
        })
    }

    /// The address of a function, if the library has it.
    pub(crate) fn symbol(self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is open and the name a C string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }
}

/// A symbol's name as text: `cuInit`.
pub(crate) const fn name_of(symbol: &'static CStr) -> &'static str {
    match symbol.to_str() {
        Ok(name) => name,
        Err(_) => "a function whose name is no text",
    }
}

/// A table of functions, each looked up by the name of its symbol.
macro_rules! function_table {
    ($(#[$doc:meta])* $table:ident { $($name:ident = $symbol:literal: fn($($arg:ty),*) -> $ret:ty;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
        }

        impl $table {
            /// Looks the functions up; else the name of the first that is missing.
            ///
            /// # Safety
            /// Symbols of these names must be functions of these types.
            pub(crate) unsafe fn resolve(
                object: $crate::shared_object::SharedObject,
            ) -> ::core::result::Result<$table, &'static str> {
                $(
                    let symbol = object
                        .symbol($symbol)
                        .ok_or($crate::shared_object::name_of($symbol))?;
                    // SAFETY: promised by the caller.
                    let $name = unsafe {
                        ::core::mem::transmute::<*mut ::core::ffi::c_void, unsafe extern "C" fn($($arg),*) -> $ret>(
                            symbol.as_ptr(),
                        )
                    };
                )*
                Ok($table { $($name,)* })
            }
        }
    };
}

pub(crate) use function_table;
