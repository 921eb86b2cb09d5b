//! Calls on a card, to be compared with those on the CPU.

use opsmith_core::attr::TensorValue;
use opsmith_core::def::ArgDef;
use opsmith_core::{AttrValue, Result};
use opsmith_runtime::{Card, CardArg, CardTensor, Library, Tensor};

use crate::wire::{Call, Given, Laid, Output, read_dtype};

/// The card that calls are made on.
///
/// # Errors
/// As [`Card::open`].
pub(crate) fn card() -> Result<Card> {
    Card::open(0)
}

/// An input of a call.
enum Argument {
    OnCard(CardTensor),
    List(Vec<CardTensor>),
    Host(Tensor),
    HostList(Vec<Tensor>),
    Absent,
}

impl Argument {
    /// Puts the tensors of an input where the kernel has them.
    fn new(card: &Card, def: &ArgDef, is_host: bool, tensors: Vec<Option<Laid>>) -> Result<Argument> {
        let mut tensors = tensors.into_iter().flatten().map(dense).collect::<Result<Vec<_>>>()?;
        if def.count.is_list() && is_host {
            return Ok(Argument::HostList(tensors));
        }
        if def.count.is_list() {
            return tensors.iter().map(|tensor| card.put(tensor)).collect::<Result<_>>().map(Argument::List);
        }
        match tensors.pop() {
            None => Ok(Argument::Absent),
            Some(tensor) if is_host => Ok(Argument::Host(tensor)),
            Some(tensor) => card.put(&tensor).map(Argument::OnCard),
        }
    }

    fn as_arg(&self) -> CardArg<'_> {
        match self {
            Argument::OnCard(tensor) => CardArg::Tensor(tensor),
            Argument::List(tensors) => CardArg::List(tensors),
            Argument::Host(tensor) => CardArg::Host(tensor),
            Argument::HostList(tensors) => CardArg::HostList(tensors),
            Argument::Absent => CardArg::Absent,
        }
    }
}

/// The tensor that lies dense in its buffer.
fn dense(laid: Laid) -> Result<Tensor> {
    let Laid { dtype, shape, buffer, strings, .. } = laid;
    Tensor::from_value(&TensorValue { dtype: read_dtype(&dtype)?, shape, bytes: buffer, strings })
}

/// Makes a call, all of whose tensors are dense; `in_main_memory` says which inputs the kernel reads there.
pub(crate) fn run(library: &Library, call: Call, in_main_memory: &[bool]) -> Result<Given> {
    let (card, op) = (card()?, library.op_at(call.op)?);
    let mut tensors = call.tensors.into_iter();
    let mut arguments = Vec::new();
    for (input, (def, &count)) in op.signature().inputs.iter().zip(&call.counts).enumerate() {
        let is_host = in_main_memory.get(input).copied().unwrap_or_default();
        arguments.push(Argument::new(&card, def, is_host, tensors.by_ref().take(count).collect())?);
    }
    let args: Vec<CardArg<'_>> = arguments.iter().map(Argument::as_arg).collect();
    let attr = |attr: &crate::wire::Named| Ok((attr.name.clone(), attr.value()?));
    let attrs = call.attrs.iter().map(attr).collect::<Result<Vec<(String, AttrValue)>>>()?;
    let attrs: Vec<(&str, AttrValue)> =
        attrs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let outputs = card.call(&op, &args, &attrs)?;
    let outputs = outputs.iter().map(|output| Ok(Some(Output::from(output.get()?.to_value()?))));
    Ok(Given { outputs: outputs.collect::<Result<_>>()?, ..Given::default() })
}
