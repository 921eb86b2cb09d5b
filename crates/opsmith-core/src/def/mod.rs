//! Definitions: what an op is called, takes and gives, written in the language of TensorFlow's op registration.
//!
//! [`SignatureBuilder`] turns specs (`"x: N * T"`, `"a: int >= 1 = 2"`) into a [`Signature`] that is known to be well
//! formed; [`Signature::resolve`] unifies a call's dtypes and attributes with it. Beyond TensorFlow's language there are
//! bounds from both sides on an `int` (`int >= 1 <= 9`) and on a `float`, which may be excluded (`float > 0`), and sets of integers (`{1, 2, 4}`).

mod bounds;
mod build;
mod check;
mod doc;
mod fault;
mod json;
mod lexer;
mod message;
mod model;
mod parse;
mod print;
mod resolve;
mod samples;
mod suggest;
mod tensor;
mod text;
mod value;
mod value_from_json;

pub use build::SignatureBuilder;
pub use model::{Allowed, ArgCount, ArgDef, ArgType, AttrDef, Signature, snake_case};
pub use resolve::{ArgDTypes, Resolved};
pub use suggest::{did_you_mean, find_op};

#[cfg(test)]
mod tests;
