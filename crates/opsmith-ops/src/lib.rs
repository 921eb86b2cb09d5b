#![doc = include_str!("../README.md")]

pub mod arithmetic;
mod define;
pub mod matmul;
pub mod reductions;

/// The library of these ops, with whatever else `library!` is to know of it. Not for direct use.
#[doc(hidden)]
#[macro_export]
macro_rules! __library {
    ($($option:tt)*) => {
        ::opsmith::library! {
            name = "opsmith",
            ops = [
                $crate::arithmetic::Add,
                $crate::matmul::MatMul,
                $crate::reductions::Sum,
            ],
            $($option)*
        }
    };
}

__library! { embedded = true }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_well_formed_and_documented() {
        let library = library().unwrap_or_else(|error| panic!("{error}"));
        for op in library.ops() {
            let signature = op.signature();
            assert!(!signature.doc.is_empty(), "{} says nothing of itself", signature.name);
            assert!(!op.kernels().is_empty(), "{} has no kernel", signature.name);
        }
    }

    #[test]
    fn the_table_has_the_library() {
        let table = table();
        // SAFETY: a name in the table is text that lives as long as the library.
        let name = unsafe { std::slice::from_raw_parts(table.name.data.cast::<u8>(), table.name.len) };
        assert_eq!(name, b"opsmith");
        // SAFETY: it may be called from any thread.
        assert!(unsafe { (table.init)() }.is_null());
    }
}
