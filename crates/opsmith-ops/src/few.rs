//! Small calls whose shapes have been looked at: what is left of them is a few copies on the calling thread.

use opsmith::prelude::*;
use opsmith::space::Extents;
use opsmith_core::kernel::{Rest, Settled, SettledCall};

use crate::parameters::elements;

/// A larger result, or one of more copies, is worth threads.
const MOST_BYTES: usize = 1 << 16;
const MOST_COPIES: usize = 1 << 10;

/// Whether a result of this shape, made by so many copies of bytes, is small. What is empty may need any number of copies, and text is not
/// bytes alone.
pub(crate) fn is_small(dtype: DType, shape: &[usize], copies: usize) -> bool {
    let fits = |count: usize| (1..=MOST_BYTES / dtype.size()).contains(&count);
    dtype != DType::String && copies <= MOST_COPIES && elements(shape).is_some_and(fits)
}

/// A call that makes output 0, of this shape.
pub(crate) fn settled(shape: Extents, call: impl SettledCall + 'static) -> Settled {
    Settled { outputs: std::iter::once((0, shape)).collect(), rest: Rest::Call(Box::new(call)) }
}
