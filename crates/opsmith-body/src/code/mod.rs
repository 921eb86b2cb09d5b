//! Machine code for nests of loops, made when a body is first run for some sizes.

pub(crate) mod line;
pub(crate) mod record;
