//! What is checked of every op.

mod cuda;
pub(crate) mod gradient;
mod ill_formed;
mod parallel;
mod shapes;
mod values;
mod wanted;

use std::cell::RefCell;

use opsmith_core::{DType, Parallel, ShapeSignature};

use crate::case::Case;
use crate::generate::{Author, Numbers, Profile};
use crate::lab::{Lab, Trouble};
use crate::ranks::Pattern;
use crate::subject::Subject;
use crate::values::Tolerance;

/// What a property is checked with.
pub(crate) struct Setting<'a, 'b> {
    pub(crate) subject: &'a Subject,
    /// All ops of the library.
    pub(crate) library: &'a [Subject],
    pub(crate) author: &'a RefCell<Author<'b>>,
    /// What the author says of how exact the op is.
    pub(crate) relative: Option<f64>,
    pub(crate) absolute: Option<f64>,
}

impl<'a> Setting<'a, '_> {
    /// What the tensors of the outputs are called, of which each has so many.
    fn names(&self, counts: &[usize]) -> Vec<String> {
        names_of(self.subject, counts)
    }

    /// The op of this name.
    fn op(&self, name: &str) -> Option<&'a Subject> {
        self.library.iter().find(|subject| subject.signature.name == name)
    }

    /// The same where the author does not make the inputs of calls.
    pub(crate) fn forward(&self) -> Option<&'a Subject> {
        self.differentiated().filter(|_| self.author.borrow().inputs.is_none())
    }

    /// The op that is differentiated, perhaps several times, by this one; none where there is none.
    fn differentiated(&self) -> Option<&'a Subject> {
        let op_of = |gradient: &'a Subject| {
            let is_it = |other: &&Subject| {
                other.wiring.as_ref().is_some_and(|wiring| wiring.op == gradient.signature.name)
            };
            self.library.iter().find(is_it)
        };
        let orders = std::iter::successors(op_of(self.subject), |gradient| op_of(gradient));
        orders.take(self.library.len()).last()
    }

    /// The tolerance with the author's numbers in place of ours.
    fn tolerance(&self, ours: Tolerance) -> Tolerance {
        Tolerance {
            relative: self.relative.unwrap_or(ours.relative),
            absolute: self.absolute.unwrap_or(ours.absolute),
        }
    }

    /// What may be left of computing with other functions, in another order.
    fn of_other_arithmetic(&self) -> impl Fn(DType) -> Tolerance {
        |dtype| {
            let Tolerance { relative, absolute } = Tolerance::of_rounding(dtype);
            self.tolerance(Tolerance { relative: relative * 10.0, absolute: absolute * 10.0 })
        }
    }

    fn of_rounding(&self) -> impl Fn(DType) -> Tolerance {
        |dtype| self.tolerance(Tolerance::of_rounding(dtype))
    }
}

/// What the tensors of an op's outputs are called: `z`, and `zs[0]` in a list.
fn names_of(subject: &Subject, counts: &[usize]) -> Vec<String> {
    let outputs = subject.signature.outputs.iter().zip(counts);
    let names = outputs.flat_map(|(output, &count)| {
        let name = move |element| match output.count.is_list() {
            true => format!("{}[{element}]", output.name),
            false => output.name.clone(),
        };
        (0..count).map(name)
    });
    names.collect()
}

/// Something that holds of every call of every op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// Shapes that were inferred are those that are produced, with all dims known, symbolic or partly unknown.
    Shapes,
    /// An empty tensor is taken, or refused with an error.
    Empty,
    /// So is a tensor of rank 0, where the rank is free.
    Scalars,
    /// A tensor that lies in memory in another way gives the same.
    Strided,
    /// The same call gives the same bits, and all of every output is written.
    Determinism,
    /// Any number of threads gives the same.
    Threads,
    /// NaN, infinities and the largest numbers end in a result or an error.
    Extremes,
    /// The gradient is that of finite differences.
    Gradient,
    /// Parts along a free axis, put together, are the whole.
    Parallel,
    /// An output does not depend on which others are wanted.
    Wanted,
    /// A call that the definition forbids is an error.
    IllFormed,
    /// The outputs are those of the author's own function.
    Reference,
    /// A card gives what the CPU gives.
    Cuda,
}

impl Property {
    /// All of them, in the order in which they are checked.
    pub const ALL: [Property; 13] = [
        Property::Shapes,
        Property::Empty,
        Property::Scalars,
        Property::Strided,
        Property::Determinism,
        Property::Threads,
        Property::Extremes,
        Property::Gradient,
        Property::Parallel,
        Property::Wanted,
        Property::IllFormed,
        Property::Reference,
        Property::Cuda,
    ];

    /// What it is called in a report.
    pub fn name(self) -> &'static str {
        match self {
            Property::Shapes => "shapes",
            Property::Empty => "empty",
            Property::Scalars => "scalars",
            Property::Strided => "strided",
            Property::Determinism => "determinism",
            Property::Threads => "threads",
            Property::Extremes => "extremes",
            Property::Gradient => "gradient",
            Property::Parallel => "parallel",
            Property::Wanted => "wanted",
            Property::IllFormed => "ill-formed",
            Property::Reference => "reference",
            Property::Cuda => "cuda",
        }
    }

    /// Why there is nothing to check of this op; `None` where there is.
    pub(crate) fn skipped(self, setting: &Setting<'_, '_>, patterns: &[Pattern]) -> Option<String> {
        let subject = setting.subject;
        let signature = &subject.signature;
        if subject.kernels.is_empty() && self != Property::Cuda {
            return Some("it has no CPU kernel".into());
        }
        let has_tensors = !signature.inputs.is_empty();
        let is_stateful = signature.stateful;
        match self {
            Property::Strided | Property::Empty | Property::Extremes if !has_tensors => {
                Some("it takes no tensors".into())
            }
            Property::Strided
            | Property::Determinism
            | Property::Threads
            | Property::Wanted
            | Property::Reference
                if is_stateful =>
            {
                Some("it is stateful: two calls may differ".into())
            }
            Property::Scalars => no_scalars(setting, patterns),
            Property::Gradient => gradient::skipped(subject),
            Property::Parallel => subject.parallel.is_none().then(|| "it states no free axis".into()),
            Property::Wanted => wanted::skipped(subject),
            Property::Reference => {
                let none = setting.author.borrow().reference.is_none();
                none.then(|| "the author gives none".into())
            }
            Property::Cuda => cuda::skipped(subject),
            _ => None,
        }
    }

    /// What the cases of an op look like, of which those of its gradients are made.
    pub(crate) fn profile_by_gradients(self, subject: &Subject) -> Profile {
        let profile = self.profile(subject);
        match self {
            Property::Gradient | Property::Parallel => {
                Profile { dtypes: gradient::dtypes(subject), ..profile }
            }
            _ => profile,
        }
    }

    /// What its cases look like.
    pub(crate) fn profile(self, subject: &Subject) -> Profile {
        let plain = Profile {
            dims: (1, 4),
            dtypes: |_| true,
            numbers: Numbers::Plain,
            strided: false,
            scalars: false,
            positions: false,
        };
        match self {
            Property::Empty => Profile { dims: (0, 2), ..plain },
            Property::Scalars => Profile { scalars: true, ..plain },
            Property::Strided => Profile { strided: true, ..plain },
            Property::Threads => {
                Profile { dims: (1, threads_dims(subject)), numbers: Numbers::Formula, ..plain }
            }
            Property::Extremes => Profile { numbers: Numbers::Extreme, ..plain },
            Property::Cuda => Profile { dims: (1, threads_dims(subject).min(70)), ..plain },
            Property::Parallel => {
                // Sums of parts that were rounded say little of those of others.
                let sums = subject.parallel.as_ref().is_some_and(Parallel::has_sums);
                let dtypes = if sums { gradient::dtypes(subject) } else { plain.dtypes };
                Profile { dims: (1, 6), dtypes, ..plain }
            }
            Property::Gradient => {
                // Where integers are counts or labels, those below the least dim must be of some number.
                let dims = if subject.takes_integers() { (2, 4) } else { (1, 3) };
                Profile { dims, dtypes: gradient::dtypes(subject), positions: true, ..plain }
            }
            _ => plain,
        }
    }

    /// As many cases are tried.
    pub(crate) fn cases(self) -> u32 {
        match self {
            Property::Shapes | Property::Strided => 48,
            Property::Parallel => 24,
            Property::Determinism | Property::Extremes | Property::Reference | Property::Cuda => 32,
            Property::Empty | Property::Scalars => 16,
            Property::Gradient | Property::Wanted => 16,
            Property::Threads => 4,
            Property::IllFormed => 6,
        }
    }

    /// Tries one case. Gives how many calls the property was seen in.
    pub(crate) fn holds(
        self,
        lab: &mut Lab<'_>,
        setting: &Setting<'_, '_>,
        case: &Case,
    ) -> Result<u32, Trouble> {
        match self {
            Property::Shapes | Property::Scalars => {
                shapes::inferred_is_produced(lab, setting, case).map(|()| 1)
            }
            Property::Empty => shapes::empty(lab, setting, case).map(|()| 1),
            Property::Strided => values::strided(lab, setting, case).map(|()| 1),
            Property::Determinism => values::determinism(lab, setting, case).map(|()| 1),
            Property::Threads => values::threads(lab, setting, case).map(|()| 1),
            Property::Extremes => values::extremes(lab, setting, case).map(|()| 1),
            Property::Gradient => gradient::is_that_of_differences(lab, setting, case),
            Property::Parallel => parallel::parts_are_the_whole(lab, setting, case),
            Property::Wanted => wanted::others_are_the_same(lab, setting, case).map(|()| 1),
            Property::IllFormed => ill_formed::is_refused(lab, setting, case),
            Property::Reference => values::reference(lab, setting, case).map(|()| 1),
            Property::Cuda => cuda::is_that_of_the_cpu(lab, setting, case).map(|()| 1),
        }
    }
}

fn no_scalars(setting: &Setting<'_, '_>, patterns: &[Pattern]) -> Option<String> {
    let subject = setting.subject;
    match &subject.shape {
        _ if subject.signature.inputs.is_empty() => Some("it takes no tensors".into()),
        _ if setting.author.borrow().inputs.is_some() => Some("the author makes the inputs".into()),
        Some(shape) => why_no_scalars(shape).map(|why| format!("its shape signature {why}")),
        None if !patterns.is_empty() && !patterns.iter().any(|pattern| pattern.ranks.contains(&0)) => {
            Some("its shape function takes no tensor of rank 0".into())
        }
        _ => None,
    }
}

/// What keeps a shape signature from taking scalars where it leaves ranks open.
fn why_no_scalars(shape: &ShapeSignature) -> Option<&'static str> {
    let free = shape.inputs().iter().filter(|arg| arg.has_batch_dims());
    match free.map(|arg| arg.core_rank()).min() {
        None => Some("fixes all ranks"),
        Some(1..) => Some("leaves no rank free to be 0"),
        Some(0) => None,
    }
}

/// The largest dim for which no tensor, and no product of all dims, gets too large to be quick.
fn threads_dims(subject: &Subject) -> usize {
    let Some(shape) = &subject.shape else { return 40 };
    let args = || shape.inputs().iter().chain(shape.outputs());
    let batch = if args().any(|arg| arg.has_batch_dims()) { 1 } else { 0 };
    let core = args().map(|arg| arg.core_rank()).max().unwrap_or(0);
    let names = shape.dim_names().len();
    let root = |elements: f64, dims: usize| elements.powf(1.0 / dims.max(1) as f64) as usize;
    root(60_000.0, core + batch).min(root(1_000_000.0, names)).clamp(3, 20_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_says_why_it_takes_no_scalars() {
        for (signature, why) in [
            ("(n,p),(p)->(n)", Some("fixes all ranks")),
            ("()->()", Some("fixes all ranks")),
            ("(...,n)->(...,n)", Some("leaves no rank free to be 0")),
            ("(...,n),()->(...)", Some("leaves no rank free to be 0")),
            ("(...),(...,n)->(...)", None),
        ] {
            let shape = ShapeSignature::parse(signature).unwrap();
            assert_eq!(why_no_scalars(&shape), why, "{signature}");
        }
    }
}
