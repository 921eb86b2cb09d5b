//! Which CUDA kernels ops have, as their libraries describe them.

use opsmith_core::{AttrValue, DType, Error, Result, Signature, bail};
use serde_json::Value;

use crate::op::Op;

/// A CUDA kernel of an op.
#[derive(Debug, Clone)]
pub(crate) struct CudaKernel {
    /// The attributes of the definition that decide whether it serves a call, and the dtype that each must have.
    types: Vec<(usize, DType)>,
    /// The inputs of the definition that it reads in main memory, as bits.
    pub(crate) in_main_memory: u64,
}

impl CudaKernel {
    /// The CUDA kernels in the description of an op. One for a dtype that is not known here serves nobody here.
    pub(crate) fn all(signature: &Signature, json: &Value) -> Vec<CudaKernel> {
        let kernels = json["kernels"].as_array().map_or(&[][..], Vec::as_slice);
        let on_card = kernels.iter().filter(|kernel| kernel["device"] == "CUDA");
        on_card.filter_map(|kernel| CudaKernel::read(signature, kernel)).collect()
    }

    fn read(signature: &Signature, json: &Value) -> Option<CudaKernel> {
        let typed = |(attr, dtype): (&String, &Value)| {
            Some((signature.attr_index(attr)?, DType::parse(dtype.as_str()?)?))
        };
        let types = json["types"].as_object().into_iter().flatten().map(typed).collect::<Option<_>>()?;
        let names = json["host_memory"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let inputs = names.filter_map(|name| signature.input_index(name));
        Some(CudaKernel { types, in_main_memory: inputs.fold(0, |bits, input| bits | 1 << input) })
    }

    /// Whether it serves a call with these attributes, of which every one has its value.
    fn serves(&self, attrs: &[AttrValue]) -> bool {
        self.types.iter().all(|(attr, dtype)| match &attrs[*attr] {
            AttrValue::Type(value) => value == dtype,
            AttrValue::Types(values) => values.iter().all(|value| value == dtype),
            _ => false,
        })
    }
}

/// The CUDA kernel of an op that serves a call with these attributes, of which every one has its value.
///
/// # Errors
/// `Unimplemented` where there is none.
pub(crate) fn kernel_for<'a>(op: &'a Op, attrs: &[AttrValue]) -> Result<&'a CudaKernel> {
    let (signature, kernels) = (op.signature(), op.cuda_kernels());
    if let Some(kernel) = kernels.iter().find(|kernel| kernel.serves(attrs)) {
        return Ok(kernel);
    }
    let types = signature.attrs.iter().zip(attrs).filter_map(|(attr, value)| match value {
        AttrValue::Type(dtype) => Some(format!("{} = {dtype}", attr.name)),
        _ => None,
    });
    let types: Vec<String> = types.collect();
    if types.is_empty() || kernels.is_empty() {
        bail!(Unimplemented, "{}: has no CUDA kernel", signature.name);
    }
    Err(Error::unimplemented(format!("{}: has no CUDA kernel for {}", signature.name, types.join(", "))))
}
