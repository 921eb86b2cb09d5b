//! What goes between the checker and the process that calls ops: a header in JSON, and behind it the tensors' bytes.

use std::io::{self, Read, Write};

use opsmith_core::attr::{AttrBase, AttrType, TensorValue};
use opsmith_core::def::AttrDef;
use opsmith_core::{AttrValue, DType, Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What the checker asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Opens the library, that of the standard operators where there is no path; the first request.
    Open { path: Option<String> },
    /// Shape inference, in the form in which it crosses the C ABI.
    Infer { op: usize, request: String },
    /// A call.
    Call(Call),
    /// What a call would launch on a card.
    Launches(Outline),
    /// Whether there is a card.
    Device,
    /// A call on a card, but for the inputs that stay in host memory.
    OnDevice { call: Call, in_host_memory: Vec<bool> },
}

/// A call of an op on a card, of which nobody reads or computes an element.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Outline {
    pub(crate) op: usize,
    /// How many tensors each input has.
    pub(crate) counts: Vec<usize>,
    /// The tensors, `None` for an absent one.
    pub(crate) tensors: Vec<Option<Placed>>,
    pub(crate) attrs: Vec<Named>,
    /// How many outputs the definition has.
    pub(crate) outputs: usize,
    /// A bit for each output that is to be computed.
    pub(crate) wanted: u64,
}

/// A tensor as it would lie on a card.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<isize>,
    /// Whether it begins one element behind what allocators align to.
    pub(crate) unaligned: bool,
    /// In place of all that, a tensor that the kernel reads in host memory.
    pub(crate) host: Option<Laid>,
}

/// A call of an op.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) op: usize,
    /// How many tensors each input has.
    pub(crate) counts: Vec<usize>,
    /// The tensors, `None` for an absent one.
    pub(crate) tensors: Vec<Option<Laid>>,
    pub(crate) attrs: Vec<Named>,
    /// How many outputs the definition has.
    pub(crate) outputs: usize,
    /// A bit for each output that is to be computed.
    pub(crate) wanted: u64,
    /// What the memory of outputs is filled with before the kernel runs.
    pub(crate) fill: u8,
}

/// A tensor as it lies in a buffer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Laid {
    pub(crate) dtype: String,
    pub(crate) shape: Vec<usize>,
    /// In elements.
    pub(crate) strides: Vec<isize>,
    /// The position in the buffer of the element at index 0 of every dim.
    pub(crate) offset: usize,
    /// Whether the buffer begins one byte off what the dtype is aligned to.
    pub(crate) unaligned: bool,
    /// Whether the op changes it in place.
    pub(crate) changed: bool,
    /// The buffer of a tensor of strings.
    pub(crate) strings: Vec<Vec<u8>>,
    /// The buffer of any other; its bytes travel behind the header.
    #[serde(skip)]
    pub(crate) buffer: Vec<u8>,
    /// How many bytes these are.
    pub(crate) bytes: usize,
}

/// An attribute, its value as definitions write it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Named {
    pub(crate) name: String,
    ty: String,
    list: bool,
    text: String,
}

/// What the process answers to one request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The library is open, or the device.
    Opened,
    /// What inference gave.
    Inferred(String),
    /// What the call gave.
    Given(Returned),
    /// What the call would launch.
    Launched(Vec<Launched>),
    /// An error of the op's, or of Opsmith's.
    Refused(Refusal),
}

/// A CUDA kernel that a call would launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Launched {
    /// What tells its source from others.
    pub(crate) source: String,
    /// The source, the first time that there is something of it.
    pub(crate) text: Option<SourceText>,
    /// Which kernel of the source.
    pub(crate) kernel: String,
}

/// A source in CUDA C++.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SourceText {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) text: String,
    pub(crate) headers: Vec<(String, String)>,
}

/// An error: its code and its message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) message: String,
}

/// The outcome of a call that succeeded.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Returned {
    /// How many tensors each output has.
    pub(crate) counts: Vec<usize>,
    pub(crate) outputs: Vec<Option<Output>>,
    /// The buffers of the tensors that were changed in place.
    pub(crate) changed: Vec<Buffer>,
    /// What the kernel wrote outside its memory.
    pub(crate) damage: Option<String>,
}

/// A tensor that a call gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Output {
    dtype: String,
    shape: Vec<usize>,
    strings: Vec<Vec<u8>>,
    data: Buffer,
}

/// Bytes that travel behind the header.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Buffer {
    #[serde(skip)]
    pub(crate) bytes: Vec<u8>,
    len: usize,
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer { len: bytes.len(), bytes }
    }
}

impl From<TensorValue> for Output {
    fn from(value: TensorValue) -> Output {
        Output {
            dtype: value.dtype.name().to_owned(),
            shape: value.shape,
            strings: value.strings,
            data: value.bytes.into(),
        }
    }
}

impl Output {
    /// The tensor.
    pub(crate) fn into_value(self) -> Result<TensorValue> {
        let Output { dtype, shape, strings, data } = self;
        Ok(TensorValue { dtype: read_dtype(&dtype)?, shape, bytes: data.bytes, strings })
    }
}

impl Named {
    pub(crate) fn new(name: &str, value: &AttrValue) -> Named {
        let AttrType { base, list } = value.attr_type();
        Named { name: name.to_owned(), ty: base.name().to_owned(), list, text: value.to_string() }
    }

    /// The value.
    pub(crate) fn value(&self) -> Result<AttrValue> {
        let base = AttrBase::ALL.iter().find(|base| base.name() == self.ty);
        let base = *base.ok_or_else(|| Error::internal(format!("no attribute type `{}`", self.ty)))?;
        let def = AttrDef::new(&self.name, AttrType { base, list: self.list });
        def.parse_value(&self.text)
    }
}

/// The dtype of this name.
pub(crate) fn read_dtype(name: &str) -> Result<DType> {
    DType::parse(name).ok_or_else(|| Error::internal(format!("no dtype `{name}`")))
}

/// What has bytes that travel behind the header.
pub(crate) trait Message: Serialize + DeserializeOwned {
    /// Each buffer with the length that the header says.
    fn buffers(&mut self) -> Vec<(&mut Vec<u8>, usize)>;
}

impl Message for Vec<Request> {
    fn buffers(&mut self) -> Vec<(&mut Vec<u8>, usize)> {
        let tensors = self.iter_mut().flat_map(|request| match request {
            Request::Call(call) | Request::OnDevice { call, .. } => {
                call.tensors.iter_mut().flatten().collect()
            }
            Request::Launches(call) => {
                let placed = call.tensors.iter_mut().flatten();
                placed.filter_map(|tensor| tensor.host.as_mut()).collect()
            }
            Request::Open { .. } | Request::Infer { .. } | Request::Device => Vec::new(),
        });
        tensors.map(|tensor| (&mut tensor.buffer, tensor.bytes)).collect()
    }
}

impl Message for Vec<Answer> {
    fn buffers(&mut self) -> Vec<(&mut Vec<u8>, usize)> {
        let given = self.iter_mut().filter_map(|answer| match answer {
            Answer::Given(given) => Some(given),
            Answer::Opened | Answer::Inferred(_) | Answer::Launched(_) | Answer::Refused(_) => None,
        });
        let buffers = given.flat_map(|Returned { outputs, changed, .. }| {
            outputs.iter_mut().flatten().map(|output| &mut output.data).chain(changed)
        });
        buffers.map(|buffer| (&mut buffer.bytes, buffer.len)).collect()
    }
}

/// Writes a message: the header's length, the header, the buffers.
pub(crate) fn send<M: Message>(to: &mut impl Write, message: &mut M) -> io::Result<()> {
    let header = serde_json::to_vec(message)?;
    to.write_all(&(header.len() as u64).to_le_bytes())?;
    to.write_all(&header)?;
    for (bytes, _) in message.buffers() {
        to.write_all(bytes)?;
    }
    to.flush()
}

/// Reads what [`send`] wrote; `None` at the end.
pub(crate) fn receive<M: Message>(from: &mut impl Read) -> io::Result<Option<M>> {
    let mut length = [0; 8];
    match from.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let mut header = vec![0; u64::from_le_bytes(length) as usize];
    from.read_exact(&mut header)?;
    let mut message: M = serde_json::from_slice(&header)?;
    for (bytes, length) in message.buffers() {
        bytes.resize(length, 0);
        from.read_exact(bytes)?;
    }
    Ok(Some(message))
}
