//! What happens when somebody differentiates through an op without the Python package, which has the gradients.
//!
//! Left alone, PyTorch warns and gives no gradient at all. With the fallback that it has for its own ops without a
//! derivative, backward is an error that names the op. That fallback is a C++ function: it is used where its
//! calling convention is known (x86-64) and the functions are there; elsewhere PyTorch warns.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;

use super::LibraryHandle;

/// Room for a `torch::CppFunction`, whose size is some 120 bytes and nowhere promised.
#[repr(C, align(64))]
struct CppFunction(MaybeUninit<[u8; 1024]>);

/// `torch::autograd::autogradNotImplementedFallback()` and what registers it.
pub(in crate::torch) struct Fallback {
    make: unsafe extern "C" fn(*mut CppFunction) -> *mut CppFunction,
    register: unsafe extern "C" fn(LibraryHandle, *const c_char, *mut CppFunction, i32) -> LibraryHandle,
    destroy: unsafe extern "C" fn(*mut CppFunction),
}

impl Fallback {
    /// The functions, looked up by name.
    pub(in crate::torch) fn resolve(symbol: impl Fn(&str) -> *mut c_void) -> Option<Fallback> {
        // A C++ function returns an object through a pointer in the first argument's register here, and elsewhere not.
        if !cfg!(all(target_arch = "x86_64", unix)) {
            return None;
        }
        let make = symbol("_ZN5torch8autograd30autogradNotImplementedFallbackEv");
        let register = symbol("_ZNR5torch7Library5_implEPKcONS_11CppFunctionENS_17_RegisterOrVerifyE");
        let destroy = symbol("_ZN5torch11CppFunctionD1Ev");
        if make.is_null() || register.is_null() || destroy.is_null() {
            return None;
        }
        // SAFETY: the mangled names give the arguments' types: the first returns a `torch::CppFunction`, the second
        // is `Library::_impl(const char*, CppFunction&&, _RegisterOrVerify) &`, which returns the library, and the
        // third is a destructor.
        unsafe {
            Some(Fallback {
                make: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut CppFunction) -> *mut CppFunction,
                >(make),
                register: std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(
                        LibraryHandle,
                        *const c_char,
                        *mut CppFunction,
                        i32,
                    ) -> LibraryHandle,
                >(register),
                destroy: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut CppFunction)>(destroy),
            })
        }
    }

    /// Makes backward through the op `name` an error.
    ///
    /// # Safety
    /// `library` must be live, for kernels of the key `Autograd`, and the op must be defined in its namespace.
    pub(in crate::torch) unsafe fn register(&self, library: LibraryHandle, name: &CStr) {
        const REGISTER: i32 = 0;
        let mut function = CppFunction(MaybeUninit::uninit());
        // SAFETY: the object is made in its final place, moved from, and destroyed once, as C++ would.
        unsafe {
            (self.make)(&mut function);
            (self.register)(library, name.as_ptr(), &mut function, REGISTER);
            (self.destroy)(&mut function);
        }
    }
}
