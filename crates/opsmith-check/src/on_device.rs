//! Calls on a card, to be compared with those on the CPU.

use opsmith_core::attr::TensorValue;
use opsmith_core::{AttrValue, Device, Result};
use opsmith_runtime::{Arg, Card, Library, Tensor};

use crate::wire::{Call, Laid, Output, Returned, read_dtype};

/// The device that calls are made on.
const DEVICE: Device = Device::cuda(0);

/// Opens the device.
///
/// # Errors
/// As [`Card::open`].
pub(crate) fn open() -> Result<()> {
    Card::open(DEVICE.index).map(drop)
}

/// The tensor that lies dense in its buffer.
fn dense(laid: Laid) -> Result<Tensor> {
    let Laid { dtype, shape, buffer, strings, .. } = laid;
    Tensor::from_value(&TensorValue { dtype: read_dtype(&dtype)?, shape, bytes: buffer, strings })
}

fn arg(tensors: &[Tensor], is_list: bool) -> Arg<'_> {
    match tensors {
        list if is_list => Arg::List(list),
        [tensor] => Arg::Tensor(tensor),
        _ => Arg::Absent,
    }
}

/// Makes a call, all of whose tensors are dense; `in_host_memory` says which inputs the kernel reads there.
pub(crate) fn run(library: &Library, call: Call, in_host_memory: &[bool]) -> Result<Returned> {
    let op = library.op_at(call.op)?;
    let mut tensors = call.tensors.into_iter();
    let mut arguments: Vec<Vec<Tensor>> = Vec::new();
    for (input, &count) in call.counts.iter().enumerate() {
        let is_here = in_host_memory.get(input).copied().unwrap_or_default();
        let device = if is_here { Device::CPU } else { DEVICE };
        let given = tensors.by_ref().take(count).flatten();
        arguments.push(given.map(|tensor| dense(tensor)?.to(device)).collect::<Result<_>>()?);
    }
    let lists = op.signature().inputs.iter().map(|def| def.count.is_list());
    let args: Vec<Arg<'_>> =
        arguments.iter().zip(lists).map(|(tensors, is_list)| arg(tensors, is_list)).collect();
    let attr = |attr: &crate::wire::Named| Ok((attr.name.clone(), attr.value()?));
    let attrs = call.attrs.iter().map(attr).collect::<Result<Vec<(String, AttrValue)>>>()?;
    let attrs: Vec<(&str, AttrValue)> =
        attrs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let outputs = op.call(&args, &attrs)?;
    let outputs = outputs.iter().map(|output| Ok(Some(Output::from(output.to_value()?))));
    Ok(Returned { outputs: outputs.collect::<Result<_>>()?, ..Returned::default() })
}
