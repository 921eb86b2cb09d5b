//! Tests of the definition language as a whole.

mod guide;
mod malformed;
mod properties;
mod resolve;
mod values;

use super::{AttrDef, SignatureBuilder};
use crate::Result;

/// The attribute that one spec defines.
fn attr(spec: &str) -> Result<AttrDef> {
    let mut signature = SignatureBuilder::new("Op").attr(spec).build()?;
    Ok(signature.attrs.remove(0))
}

/// The message of the error that building this definition gives.
fn message(builder: SignatureBuilder) -> String {
    builder.build().expect_err("the definition should not be well formed").message().to_owned()
}
