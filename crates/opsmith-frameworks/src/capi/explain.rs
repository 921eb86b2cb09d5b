//! What a kernel is made of, through the C ABI: three texts, in JSON.

use opsmith_core::Result;
use opsmith_core::abi::OpsmithAttr;
use serde_json::json;

use super::call::attributes;
use super::infer::op_at;
use crate::StaticLibrary;

/// Explains an op.
///
/// # Safety
/// The attributes, a pointer and how many there are, must be valid as `opsmith_core::abi` says.
pub(super) unsafe fn respond(
    library: &'static StaticLibrary,
    op: usize,
    (attrs, num_attrs): (*const *const OpsmithAttr, usize),
) -> Result<String> {
    let op = op_at(library, op)?;
    // SAFETY: promised by the caller.
    let explanation = unsafe { attributes(op.signature(), attrs, num_attrs) }
        .and_then(|attrs| op.explain(&attrs))
        .map_err(|error| error.with_op(&op.signature().name))?;
    Ok(json!({
        "formula": explanation.formula,
        "cuda_source": explanation.cuda_source,
        "vectors": explanation.vectors,
    })
    .to_string())
}
