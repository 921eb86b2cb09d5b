//! Which kernels ops have, as their libraries describe them.

use std::borrow::Borrow;

use opsmith_core::kernel::KernelRule;
use opsmith_core::{AttrValue, DType, DeviceKind, Result, Signature};
use serde_json::Value;

/// A kernel of an op, as its library describes it.
#[derive(Debug, Clone)]
pub struct KernelInfo {
    pub(crate) rule: KernelRule,
    /// The inputs of the definition that it reads in host memory, as bits.
    in_host_memory: u64,
}

impl KernelInfo {
    /// The kernels in the description of an op that calls here may get, the preferred ones first: none that is for a dtype that is
    /// not known here, or never comes first.
    pub(crate) fn all(signature: &Signature, json: &Value) -> Vec<KernelInfo> {
        let described = json["kernels"].as_array().map_or(&[][..], Vec::as_slice);
        let mut found: Vec<_> =
            described.iter().filter_map(|kernel| KernelInfo::read(signature, kernel)).collect();
        // Among equals the library takes the first, and this sort keeps their order.
        found.sort_by_key(|kernel| std::cmp::Reverse(kernel.rule.priority));
        let mut kernels: Vec<KernelInfo> = Vec::with_capacity(found.len());
        for kernel in found {
            if !kernels.iter().any(|preferred| preferred.serves_all_of(&kernel)) {
                kernels.push(kernel);
            }
        }
        kernels
    }

    fn read(signature: &Signature, json: &Value) -> Option<KernelInfo> {
        let device = match json["device"].as_str()? {
            "CPU" => DeviceKind::Cpu,
            "CUDA" => DeviceKind::Cuda,
            _ => return None,
        };
        let priority = json["priority"].as_i64().unwrap_or(0);
        let typed = |(attr, dtype): (&String, &Value)| {
            Some((signature.attr_index(attr)?, DType::parse(dtype.as_str()?)?))
        };
        let types = json["types"].as_object().into_iter().flatten().map(typed).collect::<Option<_>>()?;
        let names = json["host_memory"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let inputs = names.filter_map(|name| signature.input_index(name));
        let in_host_memory = inputs.fold(0, |bits, input| bits | 1 << input);
        Some(KernelInfo { rule: KernelRule { device, priority, types }, in_host_memory })
    }

    /// The attributes of the definition, by their index, that decide whether it serves a call, and the dtype that each must have.
    pub fn types(&self) -> &[(usize, DType)] {
        &self.rule.types
    }

    /// Whether it reads the input at this position of the definition in host memory, whatever device it runs on.
    pub fn reads_in_host_memory(&self, input: usize) -> bool {
        self.in_host_memory >> input & 1 == 1
    }

    /// The inputs of the definition that it reads in host memory, as bits.
    pub(crate) fn in_host_memory(&self) -> u64 {
        self.in_host_memory
    }

    /// Whether it serves every call that another one does.
    fn serves_all_of(&self, other: &KernelInfo) -> bool {
        let (own, others) = (&self.rule, &other.rule);
        own.device == others.device && own.types.iter().all(|typed| others.types.contains(typed))
    }
}

impl Borrow<KernelRule> for KernelInfo {
    fn borrow(&self) -> &KernelRule {
        &self.rule
    }
}

/// Every attribute of a call, in the definition's order: from so many tensors for each input, their dtypes, and the attributes
/// that are given.
///
/// # Errors
/// What the definition says of inputs or attributes that do not fit it.
pub(crate) fn resolve(
    signature: &Signature,
    (counts, dtypes): (&[usize], &[Option<DType>]),
    given: &[(String, AttrValue)],
) -> Result<Vec<AttrValue>> {
    let mut attrs: Vec<Option<AttrValue>> = vec![None; signature.attrs.len()];
    for (name, value) in given {
        if let Some(index) = signature.attr_index(name) {
            attrs[index] = Some(value.clone());
        }
    }
    Ok(signature.resolve_flat((counts, dtypes), &attrs)?.attrs)
}
