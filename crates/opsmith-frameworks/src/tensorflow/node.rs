//! A node of a graph, or an eager op with its attributes: read once, then run.

use opsmith_core::attr::{AttrBase, AttrType, AttrValue};
use opsmith_core::def::{ArgCount, ArgType};
use opsmith_core::tensor::Extents;
use opsmith_core::{DType, DeviceKind, Error, Op, Result, Signature, bail, memory, panic};

use super::api::{Api, BufferGuard, Call, Construction, Context, Status};
use super::proto;
use super::services::TfServices;
use super::spec::Binding;
use super::strings::TString;
use crate::node::{Inputs, Planned};
use crate::single;

/// The state of a kernel: what the node's attributes decide.
pub(super) struct Node {
    pub(super) api: &'static Api,
    planned: Planned,
    wanted: u64,
}

impl Node {
    /// Reads the node and builds the instance of its kernel.
    ///
    /// # Errors
    /// What is wrong with the attributes, or what the kernel's constructor said.
    ///
    /// # Safety
    /// `construction` must be live, and its node one of the op that `binding` stands for.
    pub(super) unsafe fn new(
        api: &'static Api,
        op: &'static Op,
        binding: &Binding,
        construction: Construction,
    ) -> Result<Node> {
        let status = Status::new(api);
        // SAFETY: the construction and the status are live, and the buffer is ours.
        let buffer =
            unsafe { (api.functions.TF_OpKernelConstruction_GetNodeDef)(construction, status.raw()) };
        let node = BufferGuard { api, buffer };
        status.check()?;
        let given = ParsedNode::read(op.signature(), binding, node.bytes().unwrap_or(&[]));
        let named = |error: Error| error.with_op(&op.signature().name);
        let (given, (counts, dtypes)) = given
            .and_then(|given| given.inputs(op.signature()).map(|inputs| (given, inputs)))
            .map_err(named)?;
        let planned = Planned::new(op, &given.attrs, &dtypes, &counts, DeviceKind::Cpu)?;
        Ok(Node { api, planned, wanted: given.wanted })
    }

    /// Runs the op. What goes wrong is handed over to TensorFlow.
    ///
    /// # Safety
    /// `context` must be a live call of the node.
    pub(super) unsafe fn run(&self, context: Context) {
        // SAFETY: promised by the caller.
        let call = unsafe { Call::new(self.api, context) };
        if let Err(error) = panic::catch(|| self.compute(&call)) {
            call.fail(&error.with_op(&self.planned.op.signature().name));
        }
    }

    fn compute(&self, call: &Call<'_>) -> Result<()> {
        let Planned { op, plan } = &self.planned;
        let mut inputs = Inputs::new();
        self.read_inputs(call, &mut inputs)?;
        let services = TfServices::new(call, plan, &inputs);
        // SAFETY: TensorFlow keeps the inputs of a call until it is over.
        unsafe { plan.run_dense(op, |input| inputs.at(input), self.wanted, &services) }?;
        services.finish()
    }

    fn read_inputs(&self, call: &Call<'_>, inputs: &mut Inputs) -> Result<()> {
        let mut position = 0;
        for dtype in self.planned.plan.dtypes() {
            let Some(dtype) = dtype else {
                inputs.push_absent();
                continue;
            };
            // The call itself keeps the tensor. Ours is let go of at once: one that somebody holds is never forwarded.
            let tensor = call.input(position)?;
            position += 1;
            if tensor.dtype() != *dtype as i32 {
                bail!(Internal, "TensorFlow gave an input of dtype number {}, not {dtype}", tensor.dtype());
            }
            let shape: Extents = tensor.dims().collect();
            let data: *const u8 = tensor.data();
            if *dtype == DType::String {
                let count = if data.is_null() { 0 } else { shape.iter().product() };
                let strings = data.cast::<TString>();
                // SAFETY: a string tensor has this many strings, which stay as long as the tensor.
                let strings = (0..count).map(|i| unsafe { (*strings.add(i)).as_str_ref() });
                let strings = memory::collected(strings, "the elements of text")?;
                inputs.push_texts(strings, (), &shape);
            } else {
                inputs.push(data, &shape);
            }
        }
        Ok(())
    }
}

/// What a node says.
struct ParsedNode {
    attrs: Vec<Option<AttrValue>>,
    presence: Vec<usize>,
    wanted: u64,
}

impl ParsedNode {
    fn read(signature: &Signature, binding: &Binding, node: &[u8]) -> Result<ParsedNode> {
        let mut given = ParsedNode {
            attrs: vec![None; signature.attrs.len()],
            presence: vec![1; signature.inputs.len()],
            wanted: u64::MAX,
        };
        let int = AttrType { base: AttrBase::Int, list: false };
        for (name, value) in proto::node_attrs(node) {
            let name = std::str::from_utf8(name).unwrap_or_default();
            let read =
                |ty| proto::attr_value(ty, value).map_err(|error| error.with_argument("attribute", name));
            let is_it = |other: &Option<String>| other.as_deref() == Some(name);
            if let Some(index) = binding.attrs.iter().position(|attr| attr == name) {
                let def = &signature.attrs[index];
                given.attrs[index] = Some(single::restored(def, read(def.ty)?));
            } else if let Some(input) = binding.presence.iter().position(is_it) {
                let AttrValue::Int(count) = read(int)? else { continue };
                given.presence[input] = match count {
                    0 | 1 => count as usize,
                    _ => bail!(
                        InvalidArgument for &signature.inputs[input].name,
                        "input `{}` may be absent, so it is a list of at most 1 tensor, got {count}",
                        signature.inputs[input].name
                    ),
                };
            } else if is_it(&binding.wanted) {
                let AttrValue::Int(bits) = read(int)? else { continue };
                given.wanted = bits as u64;
            }
        }
        Ok(given)
    }

    /// How many tensors each input holds, and the dtype of each.
    fn inputs(&self, signature: &Signature) -> Result<(Vec<usize>, Vec<Option<DType>>)> {
        let missing = |attr: usize| {
            let name = &signature.attrs[attr].name;
            Error::internal(format!("TensorFlow's node lacks attribute `{name}`")).naming(name)
        };
        let (mut counts, mut dtypes) = (Vec::new(), Vec::new());
        for (arg, &presence) in signature.inputs.iter().zip(&self.presence) {
            let count = match arg.count {
                ArgCount::One => 1,
                ArgCount::Attr(attr) => match self.attrs[attr] {
                    Some(AttrValue::Int(count)) => usize::try_from(count).unwrap_or(0),
                    _ => return Err(missing(attr)),
                },
                ArgCount::Types(attr) => match &self.attrs[attr] {
                    Some(AttrValue::Types(types)) => types.len(),
                    _ => return Err(missing(attr)),
                },
            };
            counts.push(count);
            for element in 0..count {
                dtypes.push(match arg.dtype {
                    _ if presence == 0 => None,
                    ArgType::Fixed(dtype) => Some(dtype),
                    ArgType::Attr(attr) | ArgType::List(attr) => match &self.attrs[attr] {
                        Some(AttrValue::Type(dtype)) => Some(*dtype),
                        Some(AttrValue::Types(types)) => types.get(element).copied(),
                        _ => return Err(missing(attr)),
                    },
                });
            }
        }
        Ok((counts, dtypes))
    }
}
