//! Calls of ops at any size, for those who measure them.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use opsmith_core::def::{ArgDef, ArgType};
use opsmith_core::{AttrValue, DType, Result, Shape};
use opsmith_runtime::{Library, Op};

use crate::case::{Case, Inputs};
use crate::check::patterns_of;
use crate::generate::{Author, Dials, Generator, Numbers, Profile};
use crate::lab::{Lab, Outcome};
use crate::process::Start;
use crate::properties::Setting;
use crate::ranks::Pattern;
use crate::source::LibrarySource;
use crate::subject::Subject;
use crate::values::Values;

/// The most elements that the inputs of a call have.
const MOST_ELEMENTS: usize = 1 << 26;
/// The most memory that the outputs of a call may take.
const MOST_BYTES: u64 = 1 << 30;
/// The rank that tensors have where it is free.
const USUAL_RANK: usize = 2;
/// As many combinations of ranks are tried where the shape function accepts more than the kernel.
const MOST_PATTERNS: usize = 12;
/// As many calls are drawn for each of them where no plain one is accepted.
const DRAWN: usize = 48;
/// The size at which it is tried whether an op accepts what is generated.
const TRIED: usize = 4;
/// Which numbers are tried, one after the other: between 0 and 1 few functions are undefined, and few indices out of bounds.
const NUMBERS: [Values; 3] = [Values::Fractions(1), Values::Small(1), Values::Counting];
/// What a generated tensor may be like: all dtypes, any size.
const PROFILE: Profile = Profile {
    dims: (1, 1),
    dtypes: |_| true,
    numbers: Numbers::Plain,
    strided: false,
    scalars: false,
    positions: false,
};

/// For each input the shape that is given for it.
type Given = Vec<Option<Vec<usize>>>;

/// Finds out how the ops of a library are called, and makes calls.
pub struct Sampler<'a> {
    lab: Lab<'a>,
    library: Library,
    subjects: Vec<Subject>,
}

/// The calls of one op for one dtype: at one size, all dims that are free have that size.
pub struct Calls {
    subject: Subject,
    patterns: Vec<Pattern>,
    given: Given,
    /// Turned so that the op accepts the call; but for the size.
    dials: Dials,
}

/// A call.
pub struct Sample {
    /// The tensors.
    pub inputs: Inputs,
    /// The attributes that have not their default.
    pub attrs: Vec<(String, AttrValue)>,
}

impl<'a> Sampler<'a> {
    /// Opens the library at `path`, here and in a process that `start` starts, which calls [`work`](crate::work): what is
    /// generated is tried there first, and may take at most `limit`.
    ///
    /// # Errors
    /// When the library cannot be opened or the process not be started.
    pub fn open(path: &Path, start: &'a Start<'a>, limit: Duration) -> Result<Sampler<'a>> {
        let source = &LibrarySource::File(path.to_owned());
        let mut lab = Lab::new(start, source, limit);
        // Whatever opening it does, it does to the other process first.
        lab.try_out()?;
        let library = source.open()?;
        let subjects = Subject::all(&library, source)?;
        Ok(Sampler { lab, library, subjects })
    }

    /// The library.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// How the op at a position is called with tensors of `dtype`, where its definition leaves that open; or, in words, why
    /// no call of it can be generated. Inputs of a name that is in `shapes` have the shape there.
    ///
    /// # Errors
    /// When the other process cannot be asked.
    ///
    /// # Panics
    /// When there are not as many ops.
    pub fn calls(
        &mut self,
        op: usize,
        dtype: DType,
        shapes: &[(String, Vec<usize>)],
    ) -> Result<Result<Calls, String>> {
        let subject = self.subjects[op].clone();
        if subject.kernels.is_empty() {
            return Ok(Err("it has no CPU kernel".into()));
        }
        if let Some(changed) = subject.signature.inputs.iter().find(|input| input.is_ref) {
            return Ok(Err(format!("it changes `{}` in place, so no two calls are alike", changed.name)));
        }
        let Some(kernel) = kernel_for(&subject, dtype) else {
            return Ok(Err(format!("it has no kernel for {dtype}; it has {}", dtypes_of(&subject))));
        };
        let author = RefCell::new(Author::default());
        let library = &self.subjects;
        let setting = Setting { subject: &subject, library, author: &author, relative: None, absolute: None };
        let mut patterns = patterns_of(&mut self.lab, &setting)?;
        if subject.shape.is_none() && patterns.is_empty() {
            return Ok(Err("its shape function accepts no ranks that were tried".into()));
        }
        let shape_of = |name: &String| shapes.iter().find(|(other, _)| other == name);
        let inputs = subject.signature.inputs.iter();
        let given: Given = inputs.map(|input| Some(shape_of(&input.name)?.1.clone())).collect();
        let is_given = given.iter().any(Option::is_some);
        if subject.shape.is_none() && is_given {
            if let Some(ranks) = given.iter().map(|shape| Some(shape.as_ref()?.len())).collect() {
                patterns = vec![Pattern::of_ranks(ranks)];
            }
            patterns.retain(|pattern| pattern.with_shapes(&given).is_some());
            if patterns.is_empty() {
                let missing = subject.signature.inputs.iter().zip(&given).find(|(_, shape)| shape.is_none());
                let name = missing.map_or("", |(input, _)| &input.name);
                let told = told(&subject, &given);
                return Ok(Err(format!("no rank of `{name}` beside {told} was found: give its shape, too")));
            }
        }
        patterns.sort_by_key(how_unusual);
        patterns.truncate(MOST_PATTERNS);
        let small: Given = given.iter().map(|shape| Some(clipped(shape.as_ref()?))).collect();
        let smaller: Vec<Pattern> =
            patterns.iter().filter_map(|pattern| pattern.with_shapes(&small)).collect();
        // Where a signature says the shapes, patterns have nothing to say.
        let choices: Vec<&[Pattern]> =
            if smaller.is_empty() { vec![&[]] } else { smaller.chunks(1).collect() };
        let mut why = None;
        // What is plain first; then what `check` would try.
        for is_plain in [true, false] {
            for (choice, tried) in choices.iter().enumerate() {
                let generator =
                    Generator { subject: &subject, profile: PROFILE, patterns: tried, author: &author };
                let plain = dials(&generator, kernel, dtype);
                let dials = if is_plain { vec![plain] } else { generator.drawn(&plain, DRAWN) };
                for dials in dials.iter().flat_map(|dials| NUMBERS.map(|values| dials.with_numbers(values))) {
                    let Some(fitted) = generator.fitted(&dials, &given, TRIED) else {
                        why.get_or_insert_with(|| misfit(&subject, &given));
                        continue;
                    };
                    // Many dims are large even where each is small.
                    if is_given && let Err(why) = check_inputs(&generator, &fitted) {
                        return Ok(Err(why));
                    }
                    let built = generator.build(&fitted)?;
                    if is_given
                        && let Ok(case) = &built
                        && let Ok(Err(why)) = Sample::of(case.clone()).check_outputs(&subject.op)
                    {
                        return Ok(Err(why));
                    }
                    let refused = match built {
                        Err(reason) => reason.to_owned(),
                        Ok(case) => match self.lab.call(case.call(&subject, 0))? {
                            Outcome::Given(_) => {
                                let pattern = patterns.get(choice).and_then(|own| own.with_shapes(&given));
                                let patterns = pattern.into_iter().collect();
                                return Ok(Ok(Calls { patterns, given, dials, subject: subject.clone() }));
                            }
                            Outcome::Refused(refusal) => refusal.message,
                            Outcome::Died(death) => return Ok(Err(format!("a call of it {}", death.how))),
                        },
                    };
                    why.get_or_insert_with(|| format!("it accepts no call that was generated: {refused}"));
                }
            }
        }
        Ok(Err(why.unwrap_or_else(|| "no call of it was generated".into())))
    }
}

/// The plain dials turned to a kernel, and a dtype where the definition leaves it open.
fn dials(generator: &Generator<'_, '_>, kernel: usize, dtype: DType) -> Dials {
    let mut dials = generator.plain_dials(TRIED);
    dials.kernel = kernel;
    for (attr, types) in dials.types.chunks_mut(4).enumerate() {
        let at = generator.subject.dtypes(attr).iter().position(|other| *other == dtype);
        types.fill(at.unwrap_or(0));
    }
    dials
}

impl Calls {
    /// The call with dims of this size; or, in words, why there is none.
    ///
    /// # Errors
    /// When tensors cannot be generated.
    pub fn at(&self, size: usize) -> Result<Result<Sample, String>> {
        let author = RefCell::new(Author::default());
        let generator = self.generator(&author);
        let Some(dials) = generator.fitted(&self.dials.resized(size), &self.given, usize::MAX) else {
            return Ok(Err(misfit(&self.subject, &self.given)));
        };
        if let Err(why) = check_inputs(&generator, &dials) {
            return Ok(Err(why));
        }
        // Of sums and products of dims not all may be said.
        let is_given = |(tensors, given): (&Vec<_>, &Option<Vec<usize>>)| {
            let is_it = |(_, shape): &(DType, Vec<usize>)| given.as_ref().is_none_or(|given| given == shape);
            tensors.iter().flatten().all(is_it)
        };
        if generator.tensors(&dials).is_some_and(|(all, _)| !all.iter().zip(&self.given).all(is_given)) {
            let advice =
                if self.given.contains(&None) { "; give those of the other inputs, too" } else { "" };
            return Ok(Err(misfit(&self.subject, &self.given) + advice));
        }
        let case = generator.build(&dials)?;
        Ok(case.map(Sample::of).map_err(str::to_owned))
    }

    /// Whether no shape depends on the size.
    pub fn is_of_one_size(&self) -> bool {
        let author = RefCell::new(Author::default());
        let generator = self.generator(&author);
        let tensors = |size: usize| {
            let dials = generator.fitted(&self.dials.resized(size), &self.given, usize::MAX)?;
            Some(generator.tensors(&dials)?.0)
        };
        tensors(1) == tensors(1000)
    }

    fn generator<'a>(&'a self, author: &'a RefCell<Author<'static>>) -> Generator<'a, 'static> {
        Generator { subject: &self.subject, profile: PROFILE, patterns: &self.patterns, author }
    }
}

impl Sample {
    fn of(case: Case) -> Sample {
        Sample { inputs: case.inputs, attrs: case.attrs }
    }

    /// Says, in words, that the outputs would take too much memory, as far as that is known before the call.
    ///
    /// # Errors
    /// What the op's shape function says.
    pub fn check_outputs(&self, op: &Op) -> Result<Result<(), String>> {
        let present = || self.inputs.iter().map(|list| list.iter().flatten());
        let shapes: Vec<Vec<Shape>> =
            present().map(|list| list.map(|value| Shape::known(&value.shape)).collect()).collect();
        let dtypes: Vec<Vec<DType>> = present().map(|list| list.map(|value| value.dtype).collect()).collect();
        let attrs: Vec<(&str, AttrValue)> =
            self.attrs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let outputs = op.infer_shapes(&shapes, &dtypes, &attrs)?;
        // As wide as the widest numbers: dtypes do not matter to a limit.
        let bytes = |shape: &Shape| {
            let mut dims = shape.dims()?.iter().map(|dim| dim.value());
            dims.try_fold(8u64, |product, dim| Some(product.saturating_mul(dim?)))
        };
        let all = outputs.iter().flatten().filter_map(bytes).fold(0, u64::saturating_add);
        let is_small = all <= MOST_BYTES;
        Ok(if is_small { Ok(()) } else { Err("its outputs would take more than 1 GiB".into()) })
    }
}

/// Says, in words, that the inputs would be too large.
fn check_inputs(generator: &Generator<'_, '_>, dials: &Dials) -> Result<(), String> {
    match generator.elements(dials) {
        Some(..=MOST_ELEMENTS) => Ok(()),
        _ => Err(format!("its inputs would have more than {MOST_ELEMENTS} elements")),
    }
}

/// A shape that is tried before this one: what is 1 stays so, and what is equal.
fn clipped(shape: &[usize]) -> Vec<usize> {
    shape.iter().map(|size| *size.min(&TRIED)).collect()
}

/// Why the shapes that are given cannot be.
fn misfit(subject: &Subject, given: &Given) -> String {
    let signature = subject.shape.as_ref().map(ToString::to_string).unwrap_or_default();
    format!("no call has {}: the shapes are {signature}", told(subject, given))
}

/// `x=[3,4] y=[4]`.
fn told(subject: &Subject, given: &Given) -> String {
    let named = subject.signature.inputs.iter().zip(given);
    let one = |(input, shape): (&ArgDef, &Option<Vec<usize>>)| {
        Some(format!("{}={}", input.name, Shape::known(shape.as_ref()?)))
    };
    named.filter_map(one).collect::<Vec<_>>().join(" ")
}

/// The position of a kernel for tensors of this dtype, or of one for whose inputs the definition says the dtypes.
fn kernel_for(subject: &Subject, dtype: DType) -> Option<usize> {
    let is_of_input =
        |attr: usize| subject.signature.inputs.iter().any(|input| input.dtype == ArgType::Attr(attr));
    let fits = |kernel: &Vec<(usize, DType)>| {
        let mut stated = kernel.iter().filter(|(attr, _)| is_of_input(*attr)).peekable();
        stated.peek().is_none() || stated.any(|(_, other)| *other == dtype)
    };
    subject.kernels.iter().position(fits)
}

/// The dtypes of all kernels: `float32, float64`.
fn dtypes_of(subject: &Subject) -> String {
    let mut names: Vec<&str> = subject.kernels.iter().flatten().map(|(_, dtype)| dtype.name()).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}

/// How far a pattern is from what calls usually have: matrices where they may be, all of one rank if possible.
fn how_unusual(pattern: &Pattern) -> (bool, usize) {
    let off = pattern.ranks.iter().map(|rank| rank.abs_diff(USUAL_RANK)).sum();
    (!pattern.is_even(), off)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(ranks: &[usize]) -> Pattern {
        Pattern {
            ranks: ranks.to_vec(),
            dims: ranks.iter().map(|rank| (0..*rank).collect()).collect(),
            sizes: vec![],
        }
    }

    #[test]
    fn matrices_are_usual_and_then_what_is_nearest_to_them() {
        let mut all = [&[0, 0][..], &[1, 1], &[3, 1], &[2, 1], &[2, 2]].map(pattern);
        all.sort_by_key(how_unusual);
        assert_eq!(all.map(|pattern| pattern.ranks), [[2, 2], [1, 1], [0, 0], [2, 1], [3, 1]]);
    }
}
