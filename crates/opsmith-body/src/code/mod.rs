//! Machine code for nests of loops, made when a body is first run for some sizes.

mod asm;
mod frame;
pub(crate) mod line;
mod loops;
mod lower;
mod nest;
mod place;
pub(crate) mod record;
mod segment;

pub use frame::Frame;
pub use nest::{Code, Held, Lies, Wanted, compile, fastest, width};
