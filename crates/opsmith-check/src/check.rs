//! Checks properties one after the other, and shrinks what fails.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use opsmith_core::{Error, Result};
use opsmith_runtime::Library;
use proptest::test_runner::{Config, Reason, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::case::Case;
use crate::generate::{Author, Dials, Generator, Profile};
use crate::lab::{Fault, Lab, Trouble};
use crate::process::Start;
use crate::properties::{Property, Setting, gradient};
use crate::python;
use crate::ranks::{self, Pattern};
use crate::report::{Failure, Report, Row, Verdict};
use crate::source::LibrarySource;
use crate::subject::Subject;

/// For so many cases that say nothing one that does is to be found.
const REJECTS: u32 = 40;
/// So long a failing case is shrunk, at most.
const SHRINKING: Duration = Duration::from_secs(10);
/// Cases that hang are shrunk by as many more that do, at most.
const HANGS: u32 = 2;

/// What is to be checked, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only these ops, by their CamelCase or snake_case names; all where there are none.
    pub ops: Vec<String>,
    /// The properties.
    pub properties: Vec<Property>,
    /// The same seed gives the same cases.
    pub seed: u64,
    /// As many cases for each property, instead of what is usual for it.
    pub cases: Option<u32>,
    /// The least and the most that dims have, instead of what is usual for the property.
    pub sizes: Option<(usize, usize)>,
    /// How far a result may be from what it is compared with, relative to it.
    pub relative: Option<f64>,
    /// The same in absolute terms.
    pub absolute: Option<f64>,
    /// How long a call may take; on a card, where its kernel may have to be compiled first, two minutes at least.
    pub limit: Duration,
    /// How long a property may be checked: after that no more cases are tried.
    pub budget: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ops: vec![],
            properties: Property::ALL.to_vec(),
            seed: 0,
            cases: None,
            sizes: None,
            relative: None,
            absolute: None,
            limit: Duration::from_secs(10),
            budget: Duration::from_secs(5),
        }
    }
}

/// Checks a library. `start` starts a program that calls [`work`](crate::work); `author` may bring inputs and
/// outputs along; `done` hears of each row as soon as it is there, and may put an end to it by an error.
///
/// # Errors
/// When the library cannot be opened, there is no such op, the process cannot be started, or a function of the author's, or
/// `done`, fails. That a property does not hold is no error.
pub fn check(
    source: &LibrarySource,
    options: &Options,
    start: &Start<'_>,
    author: Author<'_>,
    done: &mut dyn FnMut(&Row) -> Result<()>,
) -> Result<Report> {
    let mut lab = Lab::new(start, source, options.limit);
    // Whatever opening it does, it does to the other process first.
    lab.try_out()?;
    let library = source.open()?;
    let subjects = Subject::all(&library, source)?;
    let author = RefCell::new(author);
    let mut rows = Vec::new();
    for index in chosen(&library, options)? {
        let subject = &subjects[index];
        let (relative, absolute) = (options.relative, options.absolute);
        let setting = Setting { subject, library: &subjects, author: &author, relative, absolute };
        let patterns = patterns_of(&mut lab, &setting)?;
        let name = &subject.signature.name;
        let has_it = |other: &&Subject| other.wiring.as_ref().is_some_and(|wiring| wiring.op == *name);
        let gradient_of = subjects.iter().find(has_it).map(|source| source.signature.name.clone());
        for &property in &options.properties {
            let (verdict, cases) = check_one(&mut lab, &setting, &patterns, property, options)?;
            let (op, gradient_of) = (name.clone(), gradient_of.clone());
            let row = Row { op, gradient_of, property, verdict, cases };
            done(&row)?;
            rows.push(row);
        }
    }
    Ok(Report { library: library.name().to_owned(), seed: options.seed, rows })
}

/// The positions of the ops that are to be checked.
fn chosen(library: &Library, options: &Options) -> Result<Vec<usize>> {
    if options.ops.is_empty() {
        return Ok((0..library.num_ops()).collect());
    }
    options.ops.iter().map(|name| library.op(name).map(|op| op.index())).collect()
}

/// What the shapes of the op's inputs may be, where no signature says them and the author makes no inputs.
pub(crate) fn patterns_of(lab: &mut Lab<'_>, setting: &Setting<'_, '_>) -> Result<Vec<Pattern>> {
    let subject = setting.subject;
    if subject.shape.is_some() || subject.kernels.is_empty() || setting.author.borrow().inputs.is_some() {
        return Ok(vec![]);
    }
    let scalars = [Pattern::scalars(subject.signature.inputs.len())];
    let profile = Property::Determinism.profile(subject);
    let generator = Generator { subject, profile, patterns: &scalars, author: setting.author };
    for sample in generator.samples() {
        let patterns = ranks::accepted(lab, subject, &sample?)?;
        if !patterns.is_empty() {
            return Ok(patterns);
        }
    }
    Ok(vec![])
}

fn check_one(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    patterns: &[Pattern],
    property: Property,
    options: &Options,
) -> Result<(Verdict, u32)> {
    if let Some(why) = property.skipped(setting, patterns) {
        return Ok((Verdict::Skipped(why), 0));
    }
    let on_cuda = if property == Property::Cuda { setting.subject.on_cuda() } else { None };
    let setting = &Setting { subject: on_cuda.as_ref().unwrap_or(setting.subject), ..*setting };
    if on_cuda.is_some()
        && let Err(why) = lab.has_device()?
    {
        return Ok((Verdict::Skipped(format!("not run: {}", reason_alone(&why))), 0));
    }
    let sized = |profile: Profile| Profile { dims: options.sizes.unwrap_or(profile.dims), ..profile };
    let profile = sized(property.profile(setting.subject));
    let tried = try_cases(lab, setting, (profile, patterns), property, options, None)?;
    let forward = setting.forward();
    let (Verdict::Skipped(_), Some(forward)) = (&tried.0, forward) else { return Ok(tried) };
    let setting_of_forward = Setting { subject: forward, ..*setting };
    let patterns = patterns_of(lab, &setting_of_forward)?;
    // That there is nothing to check of the forward op's own gradient, or of what it gives, says nothing of this one.
    if property == Property::Scalars
        && let Some(why) = property.skipped(&setting_of_forward, &patterns)
    {
        return Ok((Verdict::Skipped(why), 0));
    }
    let cases = (sized(property.profile_by_gradients(forward)), &patterns[..]);
    try_cases(lab, &setting_of_forward, cases, property, options, Some(setting.subject))
}

/// Tries cases of an op; those of the gradient op `target`, where one is given, are made of them.
fn try_cases(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    (profile, patterns): (Profile, &[Pattern]),
    property: Property,
    options: &Options,
    target: Option<&Subject>,
) -> Result<(Verdict, u32)> {
    let generator = Generator { subject: setting.subject, profile, patterns, author: setting.author };
    let trial = RefCell::new(Trial::new(lab, target));
    let started = Instant::now();
    let mut runner = runner(setting, property, options);
    let outcome = runner.run(&generator.dials(), |dials| {
        let mut trial = trial.borrow_mut();
        let is_enough = match trial.failed {
            Some(failed) => failed.elapsed() > SHRINKING || trial.hangs > HANGS,
            None => started.elapsed() > options.budget,
        };
        if is_enough {
            return Ok(());
        }
        let begun = Instant::now();
        let outcome = trial.run(property, setting, &generator, &dials);
        trial.hangs += u32::from(begun.elapsed() >= options.limit);
        outcome
    });
    trial.into_inner().verdict(setting, outcome)
}

/// Why there is no device, without what is to be done about it and the system's own words, which are for who calls an op on one:
/// of `cuInit: CUDA_ERROR_NO_DEVICE, no CUDA-capable device is detected` what is behind the comma.
fn reason_alone(why: &str) -> &str {
    let reason = match why.split_once(": ") {
        Some((function, error)) if !function.contains(' ') => {
            error.split_once(", ").map_or(error, |(_, reason)| reason)
        }
        _ => why,
    };
    reason.split([':', ';', '(']).next().unwrap_or_default().trim()
}

fn runner(setting: &Setting<'_, '_>, property: Property, options: &Options) -> TestRunner {
    let cases = options.cases.unwrap_or(property.cases());
    let config = Config {
        cases,
        max_global_rejects: cases * REJECTS,
        // `Trial` says when there has been enough of it; proptest would print that it has.
        max_shrink_iters: u32::MAX - 1,
        failure_persistence: None,
        ..Config::default()
    };
    // Each op and property has cases of its own, whatever else is checked.
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&options.seed.to_le_bytes());
    let name = format!("{} {}", setting.subject.signature.name, property.name());
    for (i, byte) in name.bytes().enumerate() {
        seed[8 + i % 24] = seed[8 + i % 24].wrapping_mul(31).wrapping_add(byte);
    }
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed))
}

/// What the cases of a property leave behind.
struct Trial<'a, 'b> {
    lab: &'a mut Lab<'b>,
    /// The gradient op whose calls are made of the cases.
    target: Option<&'a Subject>,
    /// In how many cases it holds, before one in which it does not.
    seen: u32,
    /// Why the first case was rejected that was.
    refused: String,
    /// Cases that were tried while shrinking, and what is wrong, if anything. Many dials change nothing of a case, and
    /// where a case ends the process it costs a new one.
    tried: Vec<(Case, Option<Fault>)>,
    /// How many cases have taken as long as a call may.
    hangs: u32,
    /// The last case in which it does not hold: while shrinking, the smallest.
    fault: Option<Fault>,
    /// When the first was found.
    failed: Option<Instant>,
    broken: Option<Error>,
}

impl<'a, 'b> Trial<'a, 'b> {
    fn new(lab: &'a mut Lab<'b>, target: Option<&'a Subject>) -> Trial<'a, 'b> {
        Trial {
            lab,
            target,
            seen: 0,
            refused: String::new(),
            tried: vec![],
            hangs: 0,
            fault: None,
            failed: None,
            broken: None,
        }
    }

    /// What the cases say of the property, and in how many it holds.
    fn verdict(
        self,
        setting: &Setting<'_, '_>,
        outcome: std::result::Result<(), TestError<Dials>>,
    ) -> Result<(Verdict, u32)> {
        let Trial { seen, refused, fault, broken, .. } = self;
        match (broken, outcome) {
            (Some(error), _) => Err(error),
            (None, Err(TestError::Fail(reason, _))) => {
                let failure = fault.map(|fault| failure(setting, &fault));
                let failure =
                    failure.unwrap_or_else(|| Failure { message: reason.to_string(), python: String::new() });
                Ok((Verdict::Failed(failure), seen))
            }
            _ if seen == 0 && refused.is_empty() => {
                Ok((Verdict::Skipped("no case was found in time".into()), 0))
            }
            _ if seen == 0 => Ok((Verdict::Skipped(format!("no call was accepted: {refused}")), 0)),
            _ => Ok((Verdict::Passed, seen)),
        }
    }

    fn run(
        &mut self,
        property: Property,
        setting: &Setting<'_, '_>,
        generator: &Generator<'_, '_>,
        dials: &Dials,
    ) -> std::result::Result<(), TestCaseError> {
        if self.broken.is_some() {
            return Ok(());
        }
        match self.attempt(property, setting, generator, dials) {
            Ok(seen) => {
                if self.fault.is_none() {
                    self.seen += seen;
                }
                Ok(())
            }
            Err(Trouble::Reject(why)) => {
                if self.refused.is_empty() {
                    self.refused.clone_from(&why);
                }
                Err(TestCaseError::Reject(Reason::from(why)))
            }
            Err(Trouble::Fail(fault)) => {
                let message = fault.message.clone();
                self.fault = Some(*fault);
                self.failed.get_or_insert_with(Instant::now);
                Err(TestCaseError::Fail(Reason::from(message)))
            }
            Err(Trouble::Broken(error)) => {
                self.broken = Some(error);
                Ok(())
            }
        }
    }

    fn attempt(
        &mut self,
        property: Property,
        setting: &Setting<'_, '_>,
        generator: &Generator<'_, '_>,
        dials: &Dials,
    ) -> std::result::Result<u32, Trouble> {
        let case: Case = generator.build(dials)?.map_err(|why| Trouble::Reject(why.to_owned()))?;
        if let Some((_, known)) = self.tried.iter().find(|(tried, _)| *tried == case) {
            return known.clone().map_or(Ok(0), |fault| Err(Trouble::Fail(Box::new(fault))));
        }
        let outcome = self.attempt_case(property, setting, &case);
        match &outcome {
            Err(Trouble::Fail(fault)) => self.tried.push((case, Some((**fault).clone()))),
            _ if self.fault.is_some() => self.tried.push((case, None)),
            _ => {}
        }
        outcome
    }

    fn attempt_case(
        &mut self,
        property: Property,
        setting: &Setting<'_, '_>,
        case: &Case,
    ) -> std::result::Result<u32, Trouble> {
        let is_guessed = setting.subject.shape.is_none() && setting.author.borrow().inputs.is_none();
        if is_guessed
            && let Err(refusal) = self.lab.infer(case.infer(setting.subject, &case.shapes()), case)?
        {
            return Err(Trouble::Reject(refusal.message));
        }
        match self.target {
            Some(target) => gradient::holds_of_gradient((self.lab, property), setting, case, target),
            None => property.holds(self.lab, setting, case),
        }
    }
}

fn failure(setting: &Setting<'_, '_>, fault: &Fault) -> Failure {
    let by_another = fault.call.as_ref().and_then(|(op, case)| {
        let subject = setting.library.iter().find(|subject| subject.signature.name == *op)?;
        Some((subject, case))
    });
    let (subject, case) = by_another.unwrap_or((setting.subject, &fault.case));
    Failure { message: fault.message.clone(), python: python::line(subject, case) }
}

#[cfg(test)]
mod tests {
    use super::reason_alone;

    #[test]
    fn the_reason_why_there_is_no_card_is_in_plain_words() {
        for (why, reason) in [
            (
                "there is no NVIDIA driver on this machine (libcuda.so.1: cannot open): install it, or give",
                "there is no NVIDIA driver on this machine",
            ),
            (
                "cuInit: CUDA_ERROR_NO_DEVICE, no CUDA-capable device is detected",
                "no CUDA-capable device is detected",
            ),
            (
                "cuInit: CUDA_ERROR_NOT_INITIALIZED, initialization error; the process was forked",
                "initialization error",
            ),
            ("cuInit: error 999, error 999", "error 999"),
            ("there is no card 0: the driver has 0", "there is no card 0"),
            (
                "the process that opened a device crashed by signal 11 (SIGSEGV: it read)",
                "the process that opened a device crashed by signal 11",
            ),
        ] {
            assert_eq!(reason_alone(why), reason);
        }
    }
}
