//! Unification: what the inputs and the given attributes of a call make of the definition.

use std::fmt::{self, Display, Formatter};

use super::check::a;
use super::model::{ArgCount, ArgDef, ArgType, AttrDef, Signature};
use super::suggest::did_you_mean;
use super::text::{counted, joined};
use crate::attr::{AttrValue, MAX_LIST};
use crate::{DType, Error, Result, ensure};

/// [`MAX_LIST`] as an attribute counts: a count from a caller must not exhaust memory.
const MOST_TENSORS: i64 = MAX_LIST as i64;

/// What a call gives for one input, as far as dtypes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgDTypes<'a> {
    /// One tensor.
    One(DType),
    /// Nothing, for an optional input.
    Absent,
    /// A list of tensors, of these dtypes.
    List(&'a [DType]),
}

/// A call's attributes and what they make of the outputs.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// Every attribute's value, in the definition's order.
    pub attrs: Vec<AttrValue>,
    /// For each output the dtypes of its tensors: one, or as many as the list has.
    pub output_dtypes: Vec<Vec<DType>>,
}

impl Signature {
    /// Unifies the inputs of a call, in the definition's order, and the attributes given, by the definition's
    /// indices, with the definition.
    ///
    /// An inferred attribute may be given too if it agrees with the inputs. An int serves for a float.
    ///
    /// # Errors
    /// `InvalidArgument` for the first violation: it names the op, the argument, what was expected and what came.
    pub fn resolve(&self, inputs: &[ArgDTypes<'_>], attrs: &[Option<AttrValue>]) -> Result<Resolved> {
        self.unify(inputs, attrs).map_err(|error| error.with_op(&self.name))
    }

    /// As [`resolve`](Self::resolve), of so many tensors for each input, one after the other: the dtype of each, none for an
    /// absent one.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_flat(
        &self,
        (counts, dtypes): (&[usize], &[Option<DType>]),
        attrs: &[Option<AttrValue>],
    ) -> Result<Resolved> {
        let present: Vec<DType> = dtypes.iter().map(|dtype| dtype.unwrap_or(DType::Float32)).collect();
        let mut first = 0;
        let argument = |(def, &count): (&ArgDef, &usize)| {
            let range = first..first + count;
            first = range.end;
            if def.count.is_list() {
                return ArgDTypes::List(present.get(range).unwrap_or_default());
            }
            let dtype = dtypes.get(range.start).copied().flatten().filter(|_| count == 1);
            dtype.map_or(ArgDTypes::Absent, ArgDTypes::One)
        };
        let inputs: Vec<ArgDTypes<'_>> = self.inputs.iter().zip(counts).map(argument).collect();
        self.resolve(&inputs, attrs)
    }

    fn unify(&self, inputs: &[ArgDTypes<'_>], attrs: &[Option<AttrValue>]) -> Result<Resolved> {
        if inputs.len() != self.inputs.len() {
            return Err(self.wrong_number_of_inputs(inputs.len()));
        }
        let (expected, got) = (self.attrs.len(), attrs.len());
        ensure!(got == expected, InvalidArgument, "has {}, got {got}", counted(expected, "attribute"));
        let mut unifier = Unifier::new(self, attrs)?;
        for (index, &given) in inputs.iter().enumerate() {
            unifier.input(index, given)?;
        }
        unifier.finish()
    }

    /// The error of a call with this many inputs, when the op takes another number.
    pub fn wrong_number_of_inputs(&self, got: usize) -> Error {
        let names = joined(self.inputs.iter().map(|arg| &arg.name));
        let names = if names.is_empty() { names } else { format!(" ({names})") };
        let expected = counted(self.inputs.len(), "input");
        Error::invalid_argument(format!("takes {expected}{names}, got {got}"))
    }

    /// That the inputs hold as many tensors as a call gives.
    ///
    /// # Errors
    /// `InvalidArgument` where they hold more or fewer.
    pub fn check_counts(&self, counts: &[usize], given: usize) -> Result<()> {
        let held = counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count));
        ensure!(
            held == given,
            InvalidArgument,
            "the counts of its inputs add up to {}, got {given}",
            counted(held, "tensor")
        );
        Ok(())
    }

    /// The error that the op has no attribute of this name; it lists those that a caller may give.
    pub fn unknown_attr(&self, name: &str) -> Error {
        let known: Vec<&str> =
            self.attrs.iter().filter(|attr| !attr.inferred).map(|attr| attr.name.as_str()).collect();
        let list = if known.is_empty() { "none".to_owned() } else { joined(&known) };
        let hint = did_you_mean(name, known);
        Error::invalid_argument(format!("has no attribute `{name}`; it has: {list}{hint}"))
            .with_op(&self.name)
            .naming(name)
    }
}

/// Where an attribute's value came from.
#[derive(Debug, Clone, Copy)]
enum Origin {
    Given,
    Input { index: usize, element: Option<usize> },
}

/// The attributes as far as they are known.
struct Unifier<'a> {
    signature: &'a Signature,
    known: Vec<Option<(AttrValue, Origin)>>,
}

impl<'a> Unifier<'a> {
    fn new(signature: &'a Signature, attrs: &[Option<AttrValue>]) -> Result<Unifier<'a>> {
        let given = |(attr, value): (&AttrDef, &Option<AttrValue>)| {
            let Some(value) = value else { return Ok(None) };
            let value = attr.coerce(value.clone()).map_err(|wrong| wrong_attr(attr, wrong))?;
            attr.check(&value).map_err(|wrong| wrong_attr(attr, wrong))?;
            Ok(Some((value, Origin::Given)))
        };
        let known = signature.attrs.iter().zip(attrs).map(given).collect::<Result<_>>()?;
        Ok(Unifier { signature, known })
    }

    /// Takes in what is given for the input at `index`.
    fn input(&mut self, index: usize, given: ArgDTypes<'_>) -> Result<()> {
        let arg = &self.signature.inputs[index];
        let whole = Origin::Input { index, element: None };
        match (given, arg.count) {
            (ArgDTypes::Absent, _) if arg.optional => Ok(()),
            (ArgDTypes::Absent, _) => Err(wrong_input(arg, "is missing")),
            (ArgDTypes::One(dtype), ArgCount::One) => self.dtype(arg, dtype, whole),
            (ArgDTypes::One(_), _) => Err(wrong_input(arg, "must be a list of tensors, got one tensor")),
            (ArgDTypes::List(dtypes), ArgCount::One) => {
                Err(wrong_input(arg, format_args!("must be one tensor, got a list of {}", dtypes.len())))
            }
            (ArgDTypes::List(dtypes), ArgCount::Attr(attr)) => {
                let count = AttrValue::Int(dtypes.len() as i64);
                self.bind(attr, count, whole, || format!("has {}", counted(dtypes.len(), "tensor")))?;
                dtypes.iter().enumerate().try_for_each(|(element, &dtype)| {
                    self.dtype(arg, dtype, Origin::Input { index, element: Some(element) })
                })
            }
            (ArgDTypes::List(dtypes), ArgCount::Types(attr)) => {
                let types = AttrValue::Types(dtypes.to_vec());
                self.bind(attr, types, whole, || format!("has dtypes [{}]", joined(dtypes)))
            }
        }
    }

    /// Takes in the dtype of one tensor of an argument.
    fn dtype(&mut self, arg: &ArgDef, dtype: DType, source: Origin) -> Result<()> {
        match arg.dtype {
            ArgType::Fixed(expected) if expected == dtype => Ok(()),
            ArgType::Fixed(expected) => {
                Err(self.wrong(source, format_args!("is {dtype}, but must be {expected}")))
            }
            ArgType::Attr(attr) | ArgType::List(attr) => {
                self.bind(attr, AttrValue::Type(dtype), source, || format!("is {dtype}"))
            }
        }
    }

    /// Makes the attribute have this value; `what` says what of the source asks for it: "is float64".
    fn bind(
        &mut self,
        attr: usize,
        value: AttrValue,
        source: Origin,
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        let def = &self.signature.attrs[attr];
        match &self.known[attr] {
            Some((known, _)) if *known == value => Ok(()),
            Some((known, Origin::Given)) => {
                let given = Plain(known);
                let text = format_args!("{}, but {} was given as {given}", what(), def.name);
                Err(self.wrong(source, text))
            }
            Some((known, maker)) => Err(match (known, &value) {
                (AttrValue::Type(made), AttrValue::Type(came)) => {
                    let [first, second] = [*maker, source].map(|origin| self.place(origin));
                    let differ =
                        format!("inputs {first} and {second} must have one dtype, got {made} and {came}");
                    self.about(source, format!("{differ}; cast one of them"))
                }
                _ => {
                    let (maker, made) = (self.named(*maker), Plain(known));
                    self.wrong(source, format_args!("{}, but {maker} set {} to {made}", what(), def.name))
                }
            }),
            None => {
                def.check(&value).map_err(|wrong| match value {
                    AttrValue::Type(dtype) if dtype != DType::String => {
                        self.wrong(source, format_args!("{}, but {}; cast it", what(), wrong.must))
                    }
                    _ => self.wrong(source, format_args!("{}, but {} {}", what(), def.name, wrong.must)),
                })?;
                self.known[attr] = Some((value, source));
                Ok(())
            }
        }
    }

    /// ``input `x` ``, or ``input `x[1]` `` for an element of a list.
    fn named(&self, source: Origin) -> String {
        match source {
            Origin::Given => "the call".to_owned(),
            Origin::Input { .. } => format!("input {}", self.place(source)),
        }
    }

    /// `` `x` ``, or `` `x[1]` `` for an element of a list.
    fn place(&self, source: Origin) -> String {
        match source {
            Origin::Given => "the call".to_owned(),
            Origin::Input { index, element: None } => format!("`{}`", self.signature.inputs[index].name),
            Origin::Input { index, element: Some(element) } => {
                format!("`{}[{element}]`", self.signature.inputs[index].name)
            }
        }
    }

    /// The error that a source of values `is wrong`.
    fn wrong(&self, source: Origin, is_wrong: impl Display) -> Error {
        self.about(source, format!("{} {is_wrong}", self.named(source)))
    }

    /// The error with this text, which is about a source of values.
    fn about(&self, source: Origin, text: String) -> Error {
        let error = Error::invalid_argument(text);
        match source {
            Origin::Given => error,
            Origin::Input { index, .. } => error.naming(&self.signature.inputs[index].name),
        }
    }

    /// Fills in the defaults, and tells the dtypes of the outputs.
    fn finish(self) -> Result<Resolved> {
        let filled = self.known.into_iter().zip(&self.signature.attrs).map(|(known, attr)| match known {
            Some((value, _)) => Ok(value),
            None => attr.default.clone().ok_or_else(|| missing(attr)),
        });
        let attrs = filled.collect::<Result<Vec<_>>>()?;
        let outputs = self.signature.outputs.iter();
        let output_dtypes =
            outputs.map(|arg| self.signature.dtypes_of(arg, &attrs)).collect::<Result<_, _>>()?;
        Ok(Resolved { attrs, output_dtypes })
    }
}

impl Signature {
    /// The dtypes of the tensors that an output holds.
    fn dtypes_of(&self, output: &ArgDef, attrs: &[AttrValue]) -> Result<Vec<DType>> {
        let dtype = match output.dtype {
            ArgType::Fixed(dtype) => dtype,
            ArgType::Attr(attr) | ArgType::List(attr) => match &attrs[attr] {
                AttrValue::Type(dtype) => *dtype,
                AttrValue::Types(dtypes) => return Ok(dtypes.clone()),
                other => unreachable!("the builder made sure that this is a type, not {other}"),
            },
        };
        let ArgCount::Attr(attr) = output.count else { return Ok(vec![dtype]) };
        match attrs[attr] {
            AttrValue::Int(count @ 0..=MOST_TENSORS) => Ok(vec![dtype; count as usize]),
            ref count => {
                let text = format_args!("must be at most {MOST_TENSORS}, got {count}");
                Err(wrong_attr(&self.attrs[attr], text))
            }
        }
    }
}

fn wrong_input(arg: &ArgDef, is_wrong: impl Display) -> Error {
    Error::invalid_argument(format!("input `{}` {is_wrong}", arg.name)).naming(&arg.name)
}

fn wrong_attr(attr: &AttrDef, is_wrong: impl Display) -> Error {
    Error::invalid_argument(format!("attribute `{}` {is_wrong}", attr.name)).naming(&attr.name)
}

fn missing(attr: &AttrDef) -> Error {
    let name = &attr.name;
    let text = if attr.inferred {
        format!(
            "attribute `{name}` cannot be inferred, because no tensor that decides it was given; pass `{name}`"
        )
    } else {
        format!("attribute `{name}`, {}, is missing and has no default", a(attr.ty))
    };
    Error::invalid_argument(text).naming(name)
}

/// A value as messages show it: dtypes by their own names.
struct Plain<'a>(&'a AttrValue);

impl Display for Plain<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            AttrValue::Type(dtype) => write!(f, "{dtype}"),
            AttrValue::Types(dtypes) => write!(f, "[{}]", joined(dtypes)),
            other => write!(f, "{other}"),
        }
    }
}
