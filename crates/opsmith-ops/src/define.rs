//! Ops as types that `library!` lists.

/// A type for each op: its statement, and those of the gradient ops that come with it.
macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $def:expr $(, with $companions:expr)?;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub struct $name;

            impl opsmith::OpDefinition for $name {
                $(const COMPANIONS: &'static [fn() -> opsmith::OpDef] = $companions;)?

                fn def() -> opsmith::OpDef {
                    $def
                }
            }
        )*
    };
}
pub(crate) use ops;
