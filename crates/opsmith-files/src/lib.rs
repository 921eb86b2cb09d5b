//! Files from outside. Whoever opens a file whose path a caller gives does it here, and so does whoever takes code from a folder
//! that others may be able to write to.

mod read;
mod trust;

pub use read::{open, read, read_text, take};
pub use trust::{Trust, check_own, check_own_tree};
