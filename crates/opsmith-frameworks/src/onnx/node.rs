//! A node of a graph: read once, then run.

use std::ffi::c_int;

use opsmith_core::{AttrValue, DType, DeviceKind, Error, Op, Plan, Result, Signature, bail, memory};

use super::api::{Api, KernelContext, KernelInfo, Outcome, UNDEFINED, dtype_of};
use super::attrs::{self, OfKernel};
use super::card::{Card, CardCall};
use super::services::OrtServices;
use super::spec::{self, Variant};
use super::tensor::{Tensor, Texts, facts};
use crate::node::{Inputs, Planned};

/// The state of a kernel: what the node's attributes, inputs and outputs decide.
pub(super) struct Node {
    api: Api,
    planned: Planned,
    /// That of the node, where it is on one.
    card: Option<Card>,
    /// ONNX's number of the dtype of each tensor, for one that is there.
    codes: Vec<Option<c_int>>,
    /// Whether the node has each output tensor.
    present: Vec<bool>,
    wanted: u64,
}

/// A node that is being made.
struct NodeReader {
    api: Api,
    info: *const KernelInfo,
}

// In what follows the node is lent by ONNX Runtime, what is asked for is a local, and outcomes are used once.
impl NodeReader {
    fn count(&self, get: unsafe extern "C" fn(*const KernelInfo, *mut usize) -> Outcome) -> Result<usize> {
        let mut count = 0;
        // SAFETY: as above.
        unsafe { self.api.check(get(self.info, &mut count)) }?;
        Ok(count)
    }

    /// Whether an input or an output at a position has a name, without which it is absent.
    fn has(
        &self,
        get: unsafe extern "C" fn(*const KernelInfo, usize, *mut std::ffi::c_char, *mut usize) -> Outcome,
        index: usize,
    ) -> bool {
        let mut size = 0;
        // SAFETY: as above; without memory for it, the getter gives the size of the name with its NUL.
        let known = unsafe { self.api.succeeded(get(self.info, index, std::ptr::null_mut(), &mut size)) };
        known && size > 1
    }

    /// The dtype of an input as the graph has it.
    fn dtype(&self, index: usize) -> Result<DType> {
        let api = self.api;
        let (mut type_info, mut info) = (std::ptr::null_mut(), std::ptr::null());
        // SAFETY: as above; the first is ours to release, the second a part of it.
        unsafe {
            api.check((api.input_type())(self.info, index, &mut type_info))?;
            let read = api.check((api.tensor_info_of_type())(type_info, &mut info)).and_then(|()| match info
                .is_null()
            {
                true => Err(Error::invalid_argument("is not a tensor")),
                false => facts(api, info),
            });
            (api.release_type_info())(type_info);
            read.map(|(dtype, _)| dtype)
        }
    }
}

impl Node {
    /// Reads the node and builds the instance of its kernel on this kind of device.
    ///
    /// # Errors
    /// What is wrong with the node, or what the kernel's constructor said.
    ///
    /// # Safety
    /// `info` must be live, and of a node of the op, registered as `variant` for this kind of device.
    pub(super) unsafe fn new(
        api: Api,
        (op, device): (&'static Op, DeviceKind),
        variant: &Variant,
        info: *const KernelInfo,
    ) -> Result<Node> {
        let signature = op.signature();
        let given = NodeReader { api, info };
        let attrs = attrs::read(signature, &OfKernel { api, info })?;
        let total = given.count(api.input_count())?;
        let unfit = |why: String| Error::invalid_argument(why).with_op(&signature.name);
        let counts = spec::counts(signature, |attr| count_of(&attrs[attr]), total).map_err(unfit)?;
        let mut dtypes = Vec::new();
        for (arg, count) in signature.inputs.iter().zip(&counts) {
            for _ in 0..*count {
                let index = dtypes.len();
                let is_there = index < total && given.has(api.input_name(), index);
                let stated = variant.inputs.get(index.min(variant.inputs.len() - 1)).copied();
                let named = |error: Error| error.with_argument("input", &arg.name).with_op(&signature.name);
                dtypes.push(match stated {
                    _ if !is_there => None,
                    Some(code) if code != UNDEFINED => Some(dtype_of(code)?),
                    _ => Some(given.dtype(index).map_err(named)?),
                });
            }
        }
        let planned = Planned::new(op, &attrs, &dtypes, &counts, device)?;
        check_dtypes(signature, &planned.plan)?;
        let outputs = given.count(api.output_count())?;
        let present: Vec<bool> = (0..outputs).map(|index| given.has(api.output_name(), index)).collect();
        let wanted = wanted(signature, &planned.plan, &present)?;
        let codes = dtypes.iter().map(|dtype| dtype.and_then(DType::to_onnx)).collect();
        let card = match device {
            DeviceKind::Cpu => None,
            // SAFETY: promised by the caller.
            DeviceKind::Cuda => Some(unsafe { Card::of(api, info) }?),
        };
        Ok(Node { api, planned, card, codes, present, wanted })
    }

    /// The functions of the copy of ONNX Runtime that has the node.
    pub(super) fn api(&self) -> Api {
        self.api
    }

    /// The name of its op, for errors.
    pub(super) fn name(&self) -> &str {
        &self.planned.op.signature().name
    }

    /// Runs the op. A panic is for the caller to catch, and the op to name.
    ///
    /// # Errors
    /// What the kernel says.
    ///
    /// # Safety
    /// `context` must be a live call of the node.
    pub(super) unsafe fn run(&self, context: *mut KernelContext) -> Result<()> {
        let Planned { op, plan } = &self.planned;
        let mut inputs = Inputs::new();
        // SAFETY: promised by the caller.
        unsafe { self.read_inputs(context, &mut inputs) }?;
        // SAFETY: promised by the caller.
        let card = self.card.as_ref().map(|card| unsafe { CardCall::new(card, context) }).transpose()?;
        let services = OrtServices::new(self.api, context, &self.present, card.as_ref());
        // SAFETY: ONNX Runtime keeps the inputs of a call until it is over, and those on a card until its stream is through with them; where
        // each lies, it was told when the op was registered.
        unsafe { plan.run_dense(op, |input| inputs.at(input), self.wanted, &services) }?;
        services.finish()
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn read_inputs(&self, context: *mut KernelContext, inputs: &mut Inputs<Texts>) -> Result<()> {
        let api = self.api;
        for (index, (dtype, code)) in self.planned.plan.dtypes().iter().zip(&self.codes).enumerate() {
            let Some(dtype) = *dtype else {
                inputs.push_absent();
                continue;
            };
            let mut value = std::ptr::null();
            // SAFETY: the call is live; what comes back is lent until it is over.
            unsafe { api.check((api.call_input())(context, index, &mut value)) }?;
            if value.is_null() {
                bail!(InvalidArgument, "tensor {index} of the inputs is missing");
            }
            let tensor = Tensor { api, value: value.cast_mut() };
            tensor.with_facts(|given, shape| {
                if Some(given) != *code {
                    bail!(
                        Internal,
                        "ONNX Runtime gave tensor {index} of the inputs as one of its dtype number {given}, not {dtype}"
                    );
                }
                if dtype == DType::String {
                    let texts = tensor.texts(shape.iter().product())?;
                    let strings = memory::collected(texts.refs(), "the elements of text")?;
                    inputs.push_texts(strings, texts, shape);
                } else {
                    inputs.push(tensor.data()?.cast_const(), shape);
                }
                Ok(())
            })?;
        }
        Ok(())
    }
}

/// The number of tensors that an attribute says, if it is given.
pub(super) fn count_of(attr: &Option<AttrValue>) -> Option<usize> {
    match attr {
        Some(AttrValue::Int(count)) => usize::try_from(*count).ok(),
        Some(AttrValue::Types(types)) => Some(types.len()),
        _ => None,
    }
}

/// That ONNX Runtime has the dtypes of the outputs, where attributes decide them.
fn check_dtypes(signature: &Signature, plan: &Plan) -> Result<()> {
    match plan.output_dtypes().iter().find(|dtype| dtype.to_onnx().is_none()) {
        Some(dtype) => {
            let text = format!("gives {dtype}, which ONNX Runtime does not have");
            Err(Error::unimplemented(text).with_op(&signature.name))
        }
        None => Ok(()),
    }
}

/// A bit for each output of the definition that a node with these output tensors wants.
fn wanted(signature: &Signature, plan: &Plan, present: &[bool]) -> Result<u64> {
    let made = plan.output_dtypes().len();
    let (mut wanted, mut least) = (0, 0);
    for (index, arg) in signature.outputs.iter().enumerate() {
        let own = plan.output_offset(index)..plan.output_offset(index + 1);
        let may_lack = arg.optional || arg.saved;
        if !may_lack {
            least = own.end;
        }
        if !may_lack || own.clone().any(|at| present.get(at) == Some(&true)) {
            wanted |= 1 << index;
        }
    }
    if !(least..=made).contains(&present.len()) {
        let expected = if least == made { made.to_string() } else { format!("{least} to {made}") };
        let text = format!("has {expected} output tensors, the node has {}", present.len());
        return Err(Error::invalid_argument(text).with_op(&signature.name));
    }
    Ok(wanted)
}
