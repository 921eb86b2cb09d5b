//! Which of an op's kernels a call gets: for libraries, which run it, and for callers, who have to know before a call.

use std::borrow::Borrow;
use std::cmp::Reverse;

use crate::{AttrValue, DType, DeviceKind, Result, Signature, bail};

/// What decides whether a kernel is the one that a call gets.
#[derive(Debug, Clone)]
pub struct KernelRule {
    /// Where it runs.
    pub device: DeviceKind,
    /// Its rank among kernels that fit a call.
    pub priority: i64,
    /// The attributes of the definition, by their index, that it is restricted by, and the dtype that each must have.
    pub types: Vec<(usize, DType)>,
}

impl KernelRule {
    /// Whether it serves a call with these attributes, of which every one has its value.
    fn serves(&self, attrs: &[AttrValue]) -> bool {
        self.types.iter().all(|(attr, dtype)| match &attrs[*attr] {
            AttrValue::Type(value) => value == dtype,
            AttrValue::Types(values) => values.iter().all(|value| value == dtype),
            _ => false,
        })
    }
}

/// The position of the kernel that a call gets on a kind of device: of those that fit the one with the highest priority, the first
/// among equals. `attrs` has the value of every attribute of the definition.
///
/// # Errors
/// `Unimplemented` where none fits.
pub fn choose_kernel<R: Borrow<KernelRule>>(
    signature: &Signature,
    kernels: &[R],
    attrs: &[AttrValue],
    device: DeviceKind,
) -> Result<usize> {
    let on_device = |kernel: &KernelRule| kernel.device == device;
    let rules = kernels.iter().map(Borrow::borrow).enumerate();
    let fitting = rules.filter(|(_, kernel)| on_device(kernel) && kernel.serves(attrs));
    if let Some((index, _)) = fitting.max_by_key(|(index, kernel)| (kernel.priority, Reverse(*index))) {
        return Ok(index);
    }
    let types = signature.attrs.iter().zip(attrs).filter_map(|(attr, value)| match value {
        AttrValue::Type(dtype) => Some(format!("{} = {dtype}", attr.name)),
        _ => None,
    });
    let types: Vec<String> = types.collect();
    if types.is_empty() || !kernels.iter().any(|kernel| on_device(kernel.borrow())) {
        bail!(Unimplemented, "has no {device} kernel");
    }
    bail!(Unimplemented, "has no {device} kernel for {}", types.join(", "))
}
