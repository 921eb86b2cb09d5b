//! The process that calls ops, so that one that crashes or hangs takes nobody with it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::os::fd::FromRawFd;

use opsmith_core::attr::TensorValue;
use opsmith_core::tensor::StrRef;
use opsmith_core::{AttrValue, Code, DType, Error, Result, TensorView};
use opsmith_runtime::{CallInputs, Library, OutputMemory};

use crate::launched;
use crate::memory::{Guarded, Input};
use crate::on_device;
use crate::source::LibrarySource;
use crate::wire::{Answer, Call, Refusal, Request, Returned, receive, send};

/// What an output of the engine is aligned to.
const ALIGNMENT: usize = 64;

/// Answers requests until there are none: the whole of a program that [`check`](crate::check) starts. Requests come on
/// standard input, answers go to what was standard output; what an op prints goes to standard error.
///
/// # Errors
/// When the other side is gone.
pub fn work() -> io::Result<()> {
    let mut answers = BufWriter::new(take_standard_output()?);
    let mut requests = BufReader::new(io::stdin().lock());
    let (mut library, mut known) = (None, HashSet::new());
    while let Some(batch) = receive::<Vec<Request>>(&mut requests)? {
        let answer = |request| answer(&mut library, &mut known, request).unwrap_or_else(refusal);
        let mut batch: Vec<Answer> = batch.into_iter().map(answer).collect();
        send(&mut answers, &mut batch)?;
    }
    Ok(())
}

/// Standard output for us alone: whoever prints from now on prints to standard error. A crash leaves no core file.
fn take_standard_output() -> io::Result<File> {
    // SAFETY: plain calls on this process's own descriptors and limits; the new descriptor is ours.
    unsafe {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        let ours = libc::fcntl(1, libc::F_DUPFD_CLOEXEC, 3);
        if ours < 0 || libc::dup2(2, 1) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(File::from_raw_fd(ours))
    }
}

fn refusal(error: Error) -> Answer {
    Answer::Refused(Refusal { code: error.code() as i32, message: error.message().to_owned() })
}

/// Answers a request; `known` are the CUDA sources that the other side has.
fn answer(library: &mut Option<Library>, known: &mut HashSet<u128>, request: Request) -> Result<Answer> {
    let opened = |library: &Option<Library>| {
        library.clone().ok_or_else(|| Error::new(Code::FailedPrecondition, "no library is open"))
    };
    match request {
        Request::Open { path } => {
            *library = Some(LibrarySource::read(path).open()?);
            Ok(Answer::Opened)
        }
        Request::Infer { op, request } => {
            opened(library)?.op_at(op)?.infer_shapes_json(&request).map(Answer::Inferred)
        }
        Request::Call(call) => run(&opened(library)?, call).map(Answer::Given),
        Request::Device => on_device::open().map(|()| Answer::Opened),
        Request::OnDevice { call, in_host_memory } => {
            on_device::run(&opened(library)?, call, &in_host_memory).map(Answer::Given)
        }
        Request::Launches(call) => launched::run(&opened(library)?, call, known).map(Answer::Launched),
    }
}

fn run(library: &Library, call: Call) -> Result<Returned> {
    let inputs = call.tensors.into_iter().map(|tensor| tensor.map(Input::new).transpose());
    let inputs: Vec<Option<Input>> = inputs.collect::<Result<_>>()?;
    let views: Vec<Option<TensorView<'_>>> =
        inputs.iter().map(|input| input.as_ref().map(Input::view)).collect();
    let values = call.attrs.iter().map(|attr| attr.value()).collect::<Result<Vec<AttrValue>>>()?;
    let attrs: Vec<(&str, &AttrValue)> =
        call.attrs.iter().map(|attr| attr.name.as_str()).zip(&values).collect();
    let mut counts = vec![0; call.outputs];
    let mut memory = Outputs { outputs: Vec::new(), strings: Vec::new(), fill: call.fill };
    let tensors = CallInputs { flat: &views, counts: &call.counts };
    // SAFETY: every tensor has memory of its own, writable, that nobody else knows.
    unsafe {
        library.op_at(call.op)?.call_into(tensors, &attrs, call.wanted, &mut counts, &mut memory)?;
    }
    let damaged_input = inputs.iter().flatten().any(|input| !input.memory.is_intact());
    let damaged_output = memory.outputs.iter().flatten().any(|output| !output.memory.is_intact());
    let damage = (damaged_input || damaged_output).then(|| {
        let what = if damaged_input { "an input" } else { "an output" };
        format!("it wrote behind the memory of {what}")
    });
    let changed = inputs.iter().flatten().filter(|input| input.laid.changed);
    let changed = changed.map(|input| input.memory.bytes().to_vec().into()).collect();
    let number = counts.iter().sum();
    let mut outputs = memory.into_values();
    outputs.resize_with(number, || None);
    let outputs = outputs.into_iter().map(|output| output.map(Into::into)).collect();
    Ok(Returned { counts, outputs, changed, damage })
}

/// Memory for outputs, guarded and filled.
struct Outputs {
    outputs: Vec<Option<OutputBlock>>,
    strings: Vec<Box<[u8]>>,
    fill: u8,
}

struct OutputBlock {
    memory: Guarded,
    dtype: DType,
    shape: Vec<usize>,
}

impl OutputMemory for Outputs {
    fn allocate(&mut self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let elements = opsmith_core::tensor::checked_num_elements(shape);
        let bytes = elements.and_then(|elements| elements.checked_mul(dtype.size()));
        // What checks ask for is small: more than this is a shape gone wrong.
        let bytes = bytes.filter(|bytes| *bytes <= 1 << 32);
        let bytes = bytes
            .ok_or_else(|| Error::resource_exhausted(format!("an output of shape {shape:?} is too large")))?;
        let mut memory = Guarded::new(bytes, ALIGNMENT, false)?;
        memory.bytes_mut().fill(match dtype {
            DType::String => 0,
            DType::Bool => self.fill & 1,
            _ => self.fill,
        });
        let data = memory.as_ptr();
        if self.outputs.len() <= index {
            self.outputs.resize_with(index + 1, || None);
        }
        self.outputs[index] = Some(OutputBlock { memory, dtype, shape: shape.to_vec() });
        Ok(data)
    }

    fn keep_string(&mut self, bytes: &[u8]) -> Result<*const u8> {
        self.strings.push(bytes.into());
        Ok(self.strings[self.strings.len() - 1].as_ptr())
    }
}

impl Outputs {
    fn into_values(self) -> Vec<Option<TensorValue>> {
        let value = |OutputBlock { memory, dtype, shape }: OutputBlock| {
            if dtype != DType::String {
                return TensorValue { dtype, shape, bytes: memory.bytes().to_vec(), strings: vec![] };
            }
            let elements = shape.iter().product();
            // SAFETY: the block holds as many elements, which were zero or have been set by `keep_string`.
            let refs = unsafe { std::slice::from_raw_parts(memory.as_ptr().cast::<StrRef>(), elements) };
            let text = |element: &StrRef| match element.len {
                0 => Vec::new(),
                // SAFETY: the text is kept in `strings`.
                len => unsafe { std::slice::from_raw_parts(element.data, len) }.to_vec(),
            };
            TensorValue { dtype, shape, bytes: vec![], strings: refs.iter().map(text).collect() }
        };
        self.outputs.into_iter().map(|output| output.map(value)).collect()
    }
}
