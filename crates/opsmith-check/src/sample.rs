//! Calls of ops at any size, for those who measure them.

use std::cell::RefCell;
use std::ops::Bound;
use std::path::Path;
use std::time::{Duration, Instant};

use opsmith_core::attr::AttrBase;
use opsmith_core::def::{Allowed, ArgDef, ArgType};
use opsmith_core::{AttrValue, DType, Result, Shape, Signature};
use opsmith_runtime::Library;

use crate::attrs::fix;
use crate::case::Inputs;
use crate::check::patterns_of;
use crate::generate::{Author, Dials, Generator, Numbers, Profile};
use crate::lab::{Lab, Outcome};
use crate::limits;
use crate::process::Start;
use crate::properties::Setting;
use crate::ranks::Pattern;
use crate::source::LibrarySource;
use crate::subject::Subject;
use crate::values::Values;

/// The rank that tensors have where it is free.
const USUAL_RANK: usize = 2;
/// As many combinations of ranks are tried where the shape function accepts more than the kernel.
const MOST_PATTERNS: usize = 12;
/// As many calls are drawn for each of them where no plain one is accepted.
const DRAWN: usize = 48;
/// The size at which it is tried whether an op accepts what is generated.
const TRIED: usize = 4;
/// To this, given dims are cut for such a try: the first that makes the call small.
const CUTS: [usize; 5] = [usize::MAX, TRIED, 3, 2, 1];
/// The most bytes that the inputs of such a small call have, and its outputs: 4096 wide numbers.
const SMALL: u64 = 1 << 15;
/// No further call is tried after so long.
const TRYING: Duration = Duration::from_secs(20);
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
    /// no call of it can be generated. Inputs of a name that is in `shapes` have the shape there, and attributes of a name that is in
    /// `attrs` the value that the text there stands for.
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
        attrs: &[(String, String)],
    ) -> Result<Result<Calls, String>> {
        let mut subject = self.subjects[op].clone();
        if subject.kernels.is_empty() {
            return Ok(Err("it has no CPU kernel".into()));
        }
        if let Some(changed) = subject.signature.inputs.iter().find(|input| input.is_ref) {
            return Ok(Err(format!("it changes `{}` in place, so no two calls are alike", changed.name)));
        }
        let Some(kernel) = kernel_for(&subject, dtype) else {
            return Ok(Err(format!("it has no kernel for {dtype}; it has {}", dtypes_of(&subject))));
        };
        subject.kernels = vec![kernel];
        let shape_of = |name: &String| shapes.iter().find(|(other, _)| other == name);
        let inputs = subject.signature.inputs.iter();
        let given: Given = inputs.map(|input| Some(shape_of(&input.name)?.1.clone())).collect();
        fill_lists(&mut subject.signature, &given);
        for (name, text) in attrs {
            let def = subject.signature.attrs.iter_mut().find(|def| def.name == *name);
            if let Some(Err(why)) = def.map(|def| fix(def, text)) {
                return Ok(Err(why));
            }
        }
        if let Some(why) = too_many(&subject.signature) {
            return Ok(Err(why));
        }
        match self.patterns(&subject, &given)? {
            Ok(patterns) => self.accepted(subject, &patterns, given),
            Err(why) => Ok(Err(why)),
        }
    }

    /// What the shapes of inputs may be, the most usual first; none where a signature says them.
    fn patterns(&mut self, subject: &Subject, given: &Given) -> Result<Result<Vec<Pattern>, String>> {
        let author = RefCell::new(Author::default());
        let library = &self.subjects;
        let setting = Setting { subject, library, author: &author, relative: None, absolute: None };
        let mut patterns = patterns_of(&mut self.lab, &setting)?;
        if subject.shape.is_some() {
            return Ok(Ok(patterns));
        }
        if patterns.is_empty() {
            return Ok(Err("its shape function accepts no ranks that were tried".into()));
        }
        if given.iter().any(Option::is_some) {
            if let Some(ranks) = given.iter().map(|shape| Some(shape.as_ref()?.len())).collect() {
                patterns = vec![Pattern::of_ranks(ranks)];
            }
            patterns.retain(|pattern| pattern.with_shapes(given).is_some());
            if patterns.is_empty() {
                let missing = subject.signature.inputs.iter().zip(given).find(|(_, shape)| shape.is_none());
                let name = missing.map_or("", |(input, _)| &input.name);
                let told = told(subject, given);
                return Ok(Err(format!("no rank of `{name}` beside {told} was found: give its shape, too")));
            }
        }
        patterns.sort_by_key(how_unusual);
        patterns.truncate(MOST_PATTERNS);
        Ok(Ok(patterns))
    }

    /// Tries small calls until the op accepts one, for a while.
    fn accepted(
        &mut self,
        subject: Subject,
        patterns: &[Pattern],
        given: Given,
    ) -> Result<Result<Calls, String>> {
        let author = RefCell::new(Author::default());
        // Where a signature says the shapes, patterns have nothing to say.
        let choices: Vec<Option<&Pattern>> =
            if patterns.is_empty() { vec![None] } else { patterns.iter().map(Some).collect() };
        let begun = Instant::now();
        let mut why = None;
        // What is plain first; then what `check` would try.
        for is_plain in [true, false] {
            for choice in &choices {
                let Some((most, small)) = cut(&subject, *choice, &given) else {
                    why.get_or_insert_with(|| misfit(&subject, &given));
                    continue;
                };
                let generator =
                    Generator { subject: &subject, profile: PROFILE, patterns: &small, author: &author };
                let plain = generator.plain_dials(TRIED);
                let dials = if is_plain { vec![plain] } else { generator.drawn(&plain, DRAWN) };
                for dials in dials.iter().flat_map(|dials| NUMBERS.map(|values| dials.with_numbers(values))) {
                    match self.attempt(&generator, &dials, &given, most)? {
                        Attempt::Accepted => {
                            let pattern = choice.and_then(|own| own.with_shapes(&given));
                            let patterns = pattern.into_iter().collect();
                            return Ok(Ok(Calls { patterns, given, dials, subject }));
                        }
                        Attempt::Ended(how) => return Ok(Err(how)),
                        Attempt::Refused(refused) => why.get_or_insert(refused),
                    };
                    if let Some(why) = why.take_if(|_| begun.elapsed() > TRYING) {
                        return Ok(Err(why));
                    }
                }
            }
        }
        Ok(Err(why.unwrap_or_else(|| "no call of it was generated".into())))
    }

    /// Tries the call that the dials say with given dims of at most this size.
    fn attempt(
        &mut self,
        generator: &Generator<'_, '_>,
        dials: &Dials,
        given: &Given,
        most: usize,
    ) -> Result<Attempt> {
        let subject = generator.subject;
        let Some(fitted) = generator.fitted(dials, given, most) else {
            return Ok(Attempt::Refused(misfit(subject, given)));
        };
        // What is refused here, the op refuses, too.
        if let Some(planned) = generator.tensors(&fitted)
            && let Ok(Err(why)) = limits::check(&subject.op, &planned)
        {
            return Ok(Attempt::Refused(why));
        }
        let refused = match generator.build(&fitted)? {
            Err(reason) => reason.to_owned(),
            Ok(case) => match self.lab.call(case.call(subject, 0))? {
                Outcome::Given(_) => return Ok(Attempt::Accepted),
                Outcome::Died(death) => return Ok(Attempt::Ended(format!("a call of it {}", death.how))),
                Outcome::Refused(refusal) => refusal.message,
            },
        };
        let small = clipped(given, most);
        Ok(Attempt::Refused(match given.iter().any(Option::is_some) {
            false => format!("it accepts no call that was generated: {refused}"),
            // The message is about the shapes that are given.
            true if small == *given => refused,
            true => format!(
                "it accepts no smaller call with {} in place of {}: {refused}",
                told(subject, &small),
                told(subject, given)
            ),
        }))
    }
}

/// What became of a call that was tried.
enum Attempt {
    Accepted,
    /// In words, why not: another may be accepted.
    Refused(String),
    /// In words, how the process ended: no other is tried.
    Ended(String),
}

/// The size to which given dims are cut so that a call is small, and the pattern with shapes cut so; `None` where the
/// shapes do not fit a signature.
fn cut(subject: &Subject, pattern: Option<&Pattern>, given: &Given) -> Option<(usize, Vec<Pattern>)> {
    let author = RefCell::new(Author::default());
    for most in CUTS {
        let fitting = pattern.and_then(|pattern| pattern.with_shapes(&clipped(given, most)));
        let patterns: Vec<Pattern> = fitting.into_iter().collect();
        let generator = Generator { subject, profile: PROFILE, patterns: &patterns, author: &author };
        let dials = generator.fitted(&generator.plain_dials(TRIED), given, most)?;
        let is_small = generator.tensors(&dials).is_some_and(|planned| {
            limits::bytes_of_inputs(&planned) <= SMALL
                && limits::bytes_of_outputs(&subject.op, &planned).unwrap_or(0) <= SMALL
        });
        if is_small || most == 1 || given.iter().all(Option::is_none) {
            return Some((most, patterns));
        }
    }
    None
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
        let Some(planned) = generator.tensors(&dials) else {
            return Ok(Err("its dims are too large for any tensor".into()));
        };
        // Of sums and products of dims not all may be said.
        let is_given = |(tensors, given): (&Vec<_>, &Option<Vec<usize>>)| {
            let is_it = |(_, shape): &(DType, Vec<usize>)| given.as_ref().is_none_or(|given| given == shape);
            tensors.iter().flatten().all(is_it)
        };
        if !planned.0.iter().zip(&self.given).all(is_given) {
            let advice =
                if self.given.contains(&None) { "; give those of the other inputs, too" } else { "" };
            return Ok(Err(misfit(&self.subject, &self.given) + advice));
        }
        if let Err(why) = limits::check(&self.subject.op, &planned)? {
            return Ok(Err(why));
        }
        let case = generator.build(&dials)?;
        Ok(case.map(|case| Sample { inputs: case.inputs, attrs: case.attrs }).map_err(str::to_owned))
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

/// Why no call is generated of an op with a list of more tensors than there can be; none where there is no such list.
fn too_many(signature: &Signature) -> Option<String> {
    let args = signature.inputs.iter().chain(&signature.outputs);
    let defs = args.filter_map(Subject::length_attr).map(|attr| &signature.attrs[attr]);
    let is_over = |least: i64| usize::try_from(least).is_ok_and(|least| least > Subject::MOST_TENSORS);
    let over = defs.filter_map(|def| match def.min {
        Bound::Included(AttrValue::Int(least)) if is_over(least) => Some((&def.name, least)),
        _ => None,
    });
    over.map(|(name, least)| {
        format!("`{name}` is {least}, and at most {} tensors are generated for a list", Subject::MOST_TENSORS)
    })
    .next()
}

/// Lets lists whose shape is given have a tensor at least.
fn fill_lists(signature: &mut Signature, given: &Given) {
    for (input, _) in signature.inputs.iter().zip(given).filter(|(_, shape)| shape.is_some()) {
        let Some(attr) = Subject::length_attr(input) else { continue };
        let def = &mut signature.attrs[attr];
        match &mut def.min {
            Bound::Included(AttrValue::Int(least)) => *least = 1.max(*least),
            min => *min = Bound::Included(AttrValue::Int(1.max(def.min_len.unwrap_or(1) as i64))),
        }
    }
}

/// The same shapes with dims of at most this size: what is 1 stays 1, and equal dims stay equal.
fn clipped(given: &Given, most: usize) -> Given {
    let clip = |shape: &Vec<usize>| shape.iter().map(|size| *size.min(&most)).collect();
    given.iter().map(|shape| shape.as_ref().map(clip)).collect()
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

/// The dtypes of type attributes in the first kernel for tensors of this dtype. Where a kernel states none of an input, what the
/// definition allows counts, of outputs too; any dtype does where the definition leaves none open.
fn kernel_for(subject: &Subject, dtype: DType) -> Option<Vec<(usize, DType)>> {
    let inputs = types_of(&subject.signature.inputs);
    let all = [&inputs[..], &types_of(&subject.signature.outputs)].concat();
    let is_allowed = |attr: usize| match &subject.signature.attrs[attr].allowed {
        Some(Allowed::Types(types)) => types.contains(&dtype),
        _ => true,
    };
    let fits = |kernel: &&Vec<(usize, DType)>| {
        let stated =
            |attr: usize| kernel.iter().find(|(other, _)| *other == attr).map(|(_, own)| *own == dtype);
        let mut of_inputs = inputs.iter().filter_map(|attr| stated(*attr)).peekable();
        match of_inputs.peek() {
            Some(_) => of_inputs.any(|fits| fits),
            None => {
                all.is_empty() || all.iter().any(|attr| stated(*attr).unwrap_or_else(|| is_allowed(*attr)))
            }
        }
    };
    let mut kernel = subject.kernels.iter().find(fits)?.clone();
    for (attr, def) in subject.signature.attrs.iter().enumerate() {
        if def.ty.base == AttrBase::Type && is_allowed(attr) && kernel.iter().all(|(other, _)| *other != attr)
        {
            kernel.push((attr, dtype));
        }
    }
    Some(kernel)
}

/// The attributes that say dtypes of arguments.
fn types_of(args: &[ArgDef]) -> Vec<usize> {
    let attr = |arg: &ArgDef| match arg.dtype {
        ArgType::Attr(attr) | ArgType::List(attr) => Some(attr),
        ArgType::Fixed(_) => None,
    };
    args.iter().filter_map(attr).collect()
}

/// The dtypes of all kernels, or those that the definition allows: `float32, float64`.
fn dtypes_of(subject: &Subject) -> String {
    let mut dtypes: Vec<DType> = subject.kernels.iter().flatten().map(|(_, dtype)| *dtype).collect();
    if dtypes.is_empty() {
        let args = [&subject.signature.inputs[..], &subject.signature.outputs].concat();
        dtypes = types_of(&args).into_iter().flat_map(|attr| subject.dtypes(attr)).collect();
    }
    let mut names: Vec<&str> = dtypes.iter().map(|dtype| dtype.name()).collect();
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
    use opsmith_core::SignatureBuilder;

    use super::*;

    fn pattern(ranks: &[usize]) -> Pattern {
        Pattern {
            ranks: ranks.to_vec(),
            dims: ranks.iter().map(|rank| (0..*rank).collect()).collect(),
            sizes: vec![],
        }
    }

    #[test]
    fn lists_whose_shape_is_given_are_not_empty() {
        let leasts = |spec: &str, given: Given| {
            let op = SignatureBuilder::new("Op").attr(spec).attr("M: int >= 0");
            let op = op.input("xs: N * float").input("ys: M * float").output("z: float");
            let mut signature = op.build().unwrap();
            fill_lists(&mut signature, &given);
            signature.attrs.into_iter().map(|attr| attr.min).collect::<Vec<_>>()
        };
        let least = |least: i64| Bound::Included(AttrValue::Int(least));
        assert_eq!(leasts("N: int >= 0", vec![Some(vec![3]), None]), [least(1), least(0)]);
        assert_eq!(leasts("N: int >= 2", vec![Some(vec![3]), Some(vec![])]), [least(2), least(1)]);
    }

    #[test]
    fn many_dims_are_cut_further() {
        let given = vec![Some(vec![4, 1, 9]), None];
        assert_eq!(clipped(&given, 3), [Some(vec![3, 1, 3]), None]);
        assert_eq!(clipped(&given, usize::MAX), given);
    }

    #[test]
    fn matrices_are_usual_and_then_what_is_nearest_to_them() {
        let mut all = [&[0, 0][..], &[1, 1], &[3, 1], &[2, 1], &[2, 2]].map(pattern);
        all.sort_by_key(how_unusual);
        assert_eq!(all.map(|pattern| pattern.ranks), [[2, 2], [1, 1], [0, 0], [2, 1], [3, 1]]);
    }
}
