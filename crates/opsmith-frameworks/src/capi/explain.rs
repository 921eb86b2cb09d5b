//! What a kernel is made of, through the C ABI: a request and a response in JSON, which the header describes.

use opsmith_core::Result;
use serde_json::json;

use super::infer::{attributes, op_at, read};
use crate::StaticLibrary;

/// Explains the op that `request` asks for.
pub(super) fn respond(library: &'static StaticLibrary, op: usize, request: &str) -> Result<String> {
    let op = op_at(library, op)?;
    let explanation = read(request)
        .and_then(|request| attributes(op.signature(), &request["attrs"]))
        .and_then(|attrs| op.explain(&attrs))
        .map_err(|error| error.with_op(&op.signature().name))?;
    Ok(json!({
        "formula": explanation.formula,
        "cuda_source": explanation.cuda_source,
        "vectors": explanation.vectors,
    })
    .to_string())
}
