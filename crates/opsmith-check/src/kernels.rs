//! The CUDA kernels of a library, as calls would launch them, found without a card.
//!
//! For each CUDA kernel of each op calls are generated as checks generate theirs, of tensors that nobody reads: so they may be as
//! large as only cards' are, and lie farther apart than 32 bits count.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use opsmith_core::tensor::checked_num_elements;
use opsmith_core::{DType, Error, Result};
use opsmith_cuda::Source;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::check::patterns_of;
use crate::generate::{Author, Dials, Generator, Numbers, Profile, Tensors};
use crate::lab::Lab;
use crate::layout::Layout;
use crate::process::Start;
use crate::properties::Setting;
use crate::source::LibrarySource;
use crate::subject::Subject;
use crate::values::Values;
use crate::wire::{Answer, Launched, Named, Outline, Placed, Request};

/// As many rounds of calls are generated for each kernel of an op, in each calls for each of [`Size::ALL`].
const ROUNDS: usize = 12;
/// The most elements of a tensor in host memory.
const MOST_IN_HOST_MEMORY: usize = 1 << 16;
/// The most bytes of a tensor on a card.
const MOST_BYTES: usize = 1 << 45;
/// What strides of a tensor are whose elements lie farther apart than 32 bits count.
const FAR: isize = 1 << 31;
const PROFILE: Profile = Profile {
    dims: (1, 4),
    dtypes: |_| true,
    numbers: Numbers::Plain,
    strided: true,
    scalars: false,
    positions: false,
};

/// A CUDA kernel that calls launch.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// What it is compiled from.
    pub source: Arc<Source>,
    /// Which kernel of the source: `doubled<float, int>`.
    pub name: String,
}

/// A kernel of an op that no generated call launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreached {
    /// The op.
    pub op: String,
    /// The dtypes that the kernel is for, `T = float32`; empty where it is for all.
    pub types: String,
    /// Whether only calls with indices of 64 bits are missing.
    pub only_wide: bool,
    /// What the op said of the last call.
    pub why: String,
}

/// The CUDA kernels of a library.
#[derive(Debug, Clone, Default)]
pub struct Kernels {
    /// Each once.
    pub kernels: Vec<Kernel>,
    /// What no call was found for.
    pub unreached: Vec<Unreached>,
    /// How many ops have CUDA kernels.
    pub ops: usize,
}

/// How large the tensors of a call are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Medium,
    Large,
    /// One dim is.
    Long,
    /// One dim is more than 32 bits count.
    Huge,
}

impl Size {
    const ALL: [Size; 5] = [Size::Small, Size::Medium, Size::Large, Size::Long, Size::Huge];

    /// The sizes of dims, from numbers of 1 to 4.
    fn dims(self, small: &[usize], round: usize) -> Vec<usize> {
        let pick = |sizes: [usize; 4]| small.iter().map(|dim| sizes[(dim - 1) % 4]).collect();
        let with_one = |size: usize| {
            let is_it = |at: usize| at == round % small.len().min(4);
            small.iter().enumerate().map(|(at, dim)| if is_it(at) { size } else { *dim }).collect()
        };
        match self {
            Size::Small => small.to_vec(),
            Size::Medium => pick([5, 33, 64, 100]),
            Size::Large => pick([128, 300, 1024, 4000]),
            Size::Long => with_one(1 << 20),
            Size::Huge => with_one((1 << 31) + 8),
        }
    }
}

/// Finds the CUDA kernels of the library at `path`. `start` starts a program that calls [`work`](crate::work), in which calls are
/// made, each in at most `limit`; `done` hears of each op before it is looked at.
///
/// # Errors
/// When the library cannot be opened, or the process not be started.
pub fn cuda_kernels(
    path: &Path,
    start: &Start<'_>,
    limit: Duration,
    done: &mut dyn FnMut(&str),
) -> Result<Kernels> {
    let source = &LibrarySource::File(path.to_owned());
    let mut lab = Lab::new(start, source, limit);
    // Whatever opening it does, it does to the other process first.
    lab.try_out()?;
    let library = source.open()?;
    let subjects: Vec<Subject> = Subject::all(&library, source)?;
    let on_cuda: Vec<Subject> = subjects.iter().filter_map(Subject::on_cuda).collect();
    let mut found = Found::default();
    for subject in &on_cuda {
        done(&subject.signature.name);
        found.look_at(&mut lab, subject, &subjects)?;
    }
    Ok(Kernels { kernels: found.kernels, unreached: found.unreached, ops: on_cuda.len() })
}

#[derive(Default)]
struct Found {
    sources: HashMap<String, Arc<Source>>,
    names: BTreeSet<(String, String)>,
    kernels: Vec<Kernel>,
    unreached: Vec<Unreached>,
}

impl Found {
    /// Calls an op with each of its kernels.
    fn look_at(&mut self, lab: &mut Lab<'_>, subject: &Subject, library: &[Subject]) -> Result<()> {
        let author = RefCell::new(Author::default());
        let setting = Setting { subject, library, author: &author, relative: None, absolute: None };
        let patterns = patterns_of(lab, &setting)?;
        let generator = Generator { subject, profile: PROFILE, patterns: &patterns, author: &author };
        for (at, types) in subject.kernels.iter().enumerate() {
            let mut runner = runner();
            let dials = generator.dials();
            let (mut reached, mut reached_wide) = (false, false);
            let mut why = "no call was generated".to_owned();
            for (round, size) in (0..ROUNDS).flat_map(|round| Size::ALL.map(|size| (round, size))) {
                let tree = dials.new_tree(&mut runner);
                let mut dials = tree.map_err(|reason| Error::internal(reason.to_string()))?.current();
                dials.kernel = at;
                dials.dims = size.dims(&dials.dims, round);
                let Some(call) = outline(&generator, &dials, round) else { continue };
                // Rows of a huge tensor as far apart would be farther than addresses go.
                let far = if size == Size::Huge { None } else { far_apart(&call) };
                for call in [Some(call), far].into_iter().flatten() {
                    let is_wide = call.tensors.iter().flatten().any(takes_wide_indices);
                    match self.ask(lab, call)? {
                        Ok(launched) => {
                            reached |= launched;
                            reached_wide |= is_wide && launched;
                        }
                        Err(refused) => {
                            why = refused;
                            break;
                        }
                    }
                }
            }
            if !reached || !reached_wide {
                let (op, types) = (subject.signature.name.clone(), types_of(subject, types));
                self.unreached.push(Unreached { op, types, only_wide: reached, why });
            }
        }
        Ok(())
    }

    /// Keeps what a call launches, and tells whether that is anything; or, in words, why the call is refused.
    fn ask(&mut self, lab: &mut Lab<'_>, call: Outline) -> Result<Result<bool, String>> {
        let answers = match lab.ask(vec![Request::Launches(call)])? {
            Ok(answers) => answers,
            Err(death) => return Ok(Err(format!("a call {}", death.how))),
        };
        match answers.into_iter().next() {
            Some(Answer::Launched(launched)) => {
                let is_any = !launched.is_empty();
                self.keep(launched)?;
                Ok(Ok(is_any))
            }
            Some(Answer::Refused(refusal)) => Ok(Err(refusal.message)),
            _ => Err(Error::internal("a call gave something else")),
        }
    }

    fn keep(&mut self, launched: Vec<Launched>) -> Result<()> {
        for Launched { source: key, text, kernel } in launched {
            if let Some(text) = text {
                let headers =
                    text.headers.into_iter().map(|(name, text)| (name.into(), text.into())).collect();
                let source = Source::of_library(text.file, text.line, text.text, headers);
                self.sources.entry(key.clone()).or_insert_with(|| Arc::new(source));
            }
            let source = self.sources.get(&key);
            let source = source.ok_or_else(|| Error::internal("a kernel was launched of no source"))?;
            if self.names.insert((key, kernel.clone())) {
                self.kernels.push(Kernel { source: Arc::clone(source), name: kernel });
            }
        }
        Ok(())
    }
}

/// The same calls for each kernel, whenever it is asked.
fn runner() -> TestRunner {
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]))
}

/// `T = float32, N = int64`.
fn types_of(subject: &Subject, types: &[(usize, DType)]) -> String {
    let name = |attr: usize| &subject.signature.attrs[attr].name;
    let types = types.iter().map(|(attr, dtype)| format!("{} = {dtype}", name(*attr)));
    types.collect::<Vec<_>>().join(", ")
}

/// The call that the dials say; none where they say none, or one that is too large.
fn outline(generator: &Generator<'_, '_>, dials: &Dials, round: usize) -> Option<Outline> {
    let subject = generator.subject;
    let (tensors, attrs): (Tensors, _) = generator.tensors(dials)?;
    let dtype = |tensor: &Option<(DType, Vec<usize>)>| tensor.as_ref().map(|(dtype, _)| *dtype);
    let dtypes: Vec<Vec<_>> = tensors.iter().map(|list| list.iter().map(dtype).collect()).collect();
    let mut placed = Vec::new();
    for (is_host, list) in subject.in_host_memory(&dtypes, &attrs).into_iter().zip(&tensors) {
        for tensor in list {
            let at = placed.len();
            let Some((dtype, shape)) = tensor else {
                placed.push(None);
                continue;
            };
            // In every other round all are dense, as they most often are.
            let layout = if round.is_multiple_of(2) { Layout::Dense } else { dials.layout(at) };
            placed.push(Some(match is_host {
                true => host(dials.values, *dtype, shape, at)?,
                false => on_device(*dtype, shape, layout)?,
            }));
        }
    }
    let wanted = if round.is_multiple_of(3) { u64::MAX } else { dials.wanted() };
    Some(Outline {
        op: subject.index,
        counts: tensors.iter().map(Vec::len).collect(),
        tensors: placed,
        attrs: attrs.iter().map(|(name, value)| Named::new(name, value)).collect(),
        outputs: subject.signature.outputs.len(),
        wanted,
    })
}

/// The same call with tensors whose rows lie farther apart than 32 bits count; none where no tensor has two of them.
fn far_apart(call: &Outline) -> Option<Outline> {
    let mut call = call.clone();
    let mut is_any = false;
    for tensor in call.tensors.iter_mut().flatten().filter(|tensor| tensor.host.is_none()) {
        if let Some(rows) = tensor.shape.iter().position(|dim| *dim > 1) {
            tensor.strides[rows] = FAR;
            is_any = true;
        }
    }
    is_any.then_some(call)
}

/// Whether 32 bits do not count the elements of a tensor, or what lies between them.
fn takes_wide_indices(tensor: &Placed) -> bool {
    let dims = || tensor.shape.iter().zip(&tensor.strides);
    let elements: usize = tensor.shape.iter().product();
    let last: usize = dims().map(|(dim, stride)| dim.saturating_sub(1) * stride.unsigned_abs()).sum();
    tensor.host.is_none() && elements.max(last) > i32::MAX as usize
}

fn host(values: Values, dtype: DType, shape: &[usize], at: usize) -> Option<Placed> {
    checked_num_elements(shape).filter(|elements| *elements <= MOST_IN_HOST_MEMORY)?;
    let laid = Layout::Dense.lay_out(&values.tensor(dtype, shape, at));
    Some(Placed { host: Some(laid), ..Placed::default() })
}

fn on_device(dtype: DType, shape: &[usize], layout: Layout) -> Option<Placed> {
    let bytes = checked_num_elements(shape)?.checked_mul(dtype.size())?;
    if bytes > MOST_BYTES {
        return None;
    }
    let strides = layout.strides(shape).0;
    let unaligned = layout == Layout::Unaligned;
    Some(Placed { dtype: dtype.name().to_owned(), shape: shape.to_vec(), strides, unaligned, host: None })
}
