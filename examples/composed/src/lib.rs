//! Ops and gradients that are compositions of standard operators.
//!
//! - [`zero_out`]: an op with a kernel of its own, whose gradient is a composition, as in TensorFlow's guide;
//! - [`lltm`]: an op that is a composition, with derived gradients.

pub mod lltm;
pub mod zero_out;

opsmith::library! {
    name = "composed",
    ops = [zero_out::ZeroOut, zero_out::ZeroOutGrad, lltm::LltmOfOps],
}
