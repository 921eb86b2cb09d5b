//! From specs to a definition that is known to be well formed.

use std::ops::{Bound, Range};

use super::doc;
use super::fault::Fault;
use super::message::unknown_dtype;
use super::model::{Allowed, ArgCount, ArgDef, ArgType, AttrDef, Signature};
use super::parse::{self, ParsedArg};
use super::suggest::did_you_mean;
use crate::attr::{AttrBase, AttrValue};
use crate::{DType, Error, Result, ensure};

/// The most inputs that an op may have, and the most outputs.
const MAX_ARGUMENTS: usize = 64;

/// Collects the specs of a definition; [`build`](SignatureBuilder::build) checks them all.
///
/// ```
/// use opsmith_core::SignatureBuilder;
///
/// let signature = SignatureBuilder::new("ZeroOut")
///     .attr("preserve_index: int >= 0 = 0")
///     .attr("T: {float, double, int32}")
///     .input("to_zero: T")
///     .output("zeroed: T")
///     .doc("Zeroes all elements but one.\n\nto_zero: A vector.\nzeroed: One of the same shape.")
///     .build()?;
/// assert_eq!(signature.inputs[0].doc, "A vector.");
/// # Ok::<(), opsmith_core::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use = "a definition exists once it is built"]
pub struct SignatureBuilder {
    pub(super) name: String,
    pub(super) attrs: Vec<String>,
    pub(super) more_dtypes: Vec<(String, Vec<DType>)>,
    pub(super) inputs: Vec<String>,
    pub(super) outputs: Vec<String>,
    pub(super) optional: Vec<String>,
    pub(super) saved: Vec<String>,
    pub(super) stateful: bool,
    pub(super) doc: String,
    pub(super) descriptions: Vec<(String, String)>,
}

impl SignatureBuilder {
    /// Begins the definition of the op of this CamelCase name.
    pub fn new(name: impl Into<String>) -> SignatureBuilder {
        SignatureBuilder { name: name.into(), ..SignatureBuilder::default() }
    }

    /// Adds an attribute: `"preserve_index: int = 0"`. Arguments may refer to it wherever it is added.
    pub fn attr(mut self, spec: impl Into<String>) -> SignatureBuilder {
        self.attrs.push(spec.into());
        self
    }

    /// Lets a `type` attribute, added before or after, have more dtypes than its spec says.
    pub fn more_dtypes(mut self, attr: impl Into<String>, dtypes: &[DType]) -> SignatureBuilder {
        self.more_dtypes.push((attr.into(), dtypes.to_vec()));
        self
    }

    /// Adds an input: `"to_zero: T"`.
    pub fn input(mut self, spec: impl Into<String>) -> SignatureBuilder {
        self.inputs.push(spec.into());
        self
    }

    /// Adds an output: `"zeroed: T"`.
    pub fn output(mut self, spec: impl Into<String>) -> SignatureBuilder {
        self.outputs.push(spec.into());
        self
    }

    /// Marks the input of this name as one that may be absent, or the output as one that need not be computed.
    pub fn optional(mut self, argument: impl Into<String>) -> SignatureBuilder {
        self.optional.push(argument.into());
        self
    }

    /// Marks the output of this name as one for the gradient only, which wrappers drop.
    pub fn saved(mut self, output: impl Into<String>) -> SignatureBuilder {
        self.saved.push(output.into());
        self
    }

    /// Says that calls have effects or may differ for the same inputs, so that none is folded or dropped.
    pub fn stateful(mut self) -> SignatureBuilder {
        self.stateful = true;
        self
    }

    /// Documents the op in Markdown. Last lines of the form `name: description` document arguments and attributes.
    pub fn doc(mut self, text: impl AsRef<str>) -> SignatureBuilder {
        self.doc = doc::clean(text.as_ref());
        self
    }

    /// Documents one argument or attribute, in place of what [`doc`](SignatureBuilder::doc) says of it.
    pub fn describe(mut self, name: impl Into<String>, text: impl AsRef<str>) -> SignatureBuilder {
        self.descriptions.push((name.into(), doc::clean(text.as_ref())));
        self
    }

    /// The definition.
    ///
    /// # Errors
    /// `InvalidArgument` for the first thing that is not well formed: the message names the op and shows the
    /// text with a caret under the place.
    pub fn build(&self) -> Result<Signature> {
        self.check_name()?;
        self.check_number_of_arguments()?;
        let mut attrs = Vec::with_capacity(self.attrs.len());
        let mut names = Vec::new();
        let mut default_spans = Vec::with_capacity(self.attrs.len());
        for text in &self.attrs {
            let parsed = self.shown(text, parse::attr(text))?;
            if DType::parse(&parsed.def.name).is_some() {
                let message =
                    format!("an attribute cannot be called `{}`, which is a dtype", parsed.def.name);
                return Err(self.error(text, message, parsed.name_span));
            }
            self.add_name(&mut names, &parsed.def.name, text, parsed.name_span)?;
            attrs.push(parsed.def);
            default_spans.push(parsed.default_span);
        }
        for (name, dtypes) in &self.more_dtypes {
            let attr = attrs.iter_mut().find(|attr| attr.name == *name);
            let Some(Allowed::Types(allowed)) = attr.and_then(|attr| attr.allowed.as_mut()) else {
                let message = "no attribute of this name whose dtypes are listed";
                return Err(self.error(name, message, 0..name.len()));
            };
            let new = dtypes.iter().filter(|dtype| !allowed.contains(dtype));
            allowed.extend(new.copied().collect::<Vec<_>>());
        }
        let inputs = self.args(&self.inputs, &mut attrs, &mut names)?;
        for arg in &inputs {
            mark_inferred(arg, &mut attrs);
        }
        let outputs = self.args(&self.outputs, &mut attrs, &mut names)?;
        if let Some((text, _)) = self.outputs.iter().zip(&outputs).find(|(_, output)| output.is_ref) {
            let message = "an output cannot be `Ref(…)`: only an input is changed in place";
            return Err(self.error(text, message, 0..text.len()));
        }
        for ((text, attr), span) in self.attrs.iter().zip(&attrs).zip(default_spans) {
            if let Some(Err(violation)) = attr.default.as_ref().map(|default| attr.check(default)) {
                let message = format!("the default of `{}` {violation}", attr.name);
                return Err(self.error(text, message, span));
            }
        }
        let name = self.name.clone();
        let mut signature =
            Signature { name, inputs, outputs, attrs, doc: String::new(), stateful: self.stateful };
        self.set_flags(&mut signature)?;
        self.set_docs(&mut signature, &names)?;
        Ok(signature)
    }

    /// Which outputs are wanted, and which inputs are lent, is told in the bits of a word.
    fn check_number_of_arguments(&self) -> Result<()> {
        for (what, count) in [("inputs", self.inputs.len()), ("outputs", self.outputs.len())] {
            ensure!(
                count <= MAX_ARGUMENTS,
                InvalidArgument,
                "{}: has {count} {what}; at most {MAX_ARGUMENTS} are possible, each of which may be a list",
                self.name
            );
        }
        Ok(())
    }

    fn error(&self, text: &str, message: impl Into<String>, span: Range<usize>) -> Error {
        Fault::new(message, span).render(&self.name, text)
    }

    fn shown<T>(&self, text: &str, result: Result<T, Fault>) -> Result<T> {
        result.map_err(|fault| fault.render(&self.name, text))
    }

    fn check_name(&self) -> Result<()> {
        let name = &self.name;
        if !name.starts_with(|c: char| c.is_ascii_uppercase()) {
            let end = name.chars().next().map_or(0, char::len_utf8);
            return Err(self.error(name, "the name of an op must begin with a capital letter", 0..end));
        }
        match name.char_indices().find(|(_, c)| !(c.is_ascii_alphanumeric() || *c == '_')) {
            Some((at, c)) => {
                let message = "the name of an op may have only letters, digits and underscores";
                Err(self.error(name, message, at..at + c.len_utf8()))
            }
            None => Ok(()),
        }
    }

    /// Notes a name, which no other attribute or argument may have.
    fn add_name(&self, names: &mut Vec<String>, name: &str, text: &str, span: Range<usize>) -> Result<()> {
        if names.iter().any(|other| other == name) {
            return Err(self.error(text, format!("`{name}` is defined twice"), span));
        }
        names.push(name.to_owned());
        Ok(())
    }

    fn args(&self, specs: &[String], attrs: &mut [AttrDef], names: &mut Vec<String>) -> Result<Vec<ArgDef>> {
        let mut args = Vec::with_capacity(specs.len());
        for text in specs {
            let parsed = self.shown(text, parse::arg(text))?;
            self.add_name(names, &parsed.name, text, parsed.name_span.clone())?;
            args.push(self.shown(text, look_up(text, parsed, attrs))?);
        }
        Ok(args)
    }

    fn set_flags(&self, signature: &mut Signature) -> Result<()> {
        let Signature { inputs, outputs, .. } = signature;
        for name in &self.optional {
            if inputs.iter().any(|arg| arg.name == *name && arg.count.is_list()) {
                let message = "a list of inputs cannot be optional; allow it to be empty instead";
                return Err(self.error(name, message, 0..name.len()));
            }
            let arg = inputs.iter_mut().chain(outputs.iter_mut()).find(|arg| arg.name == *name);
            let message = "no input or output of this name to mark as optional";
            arg.ok_or_else(|| self.error(name, message, 0..name.len()))?.optional = true;
        }
        for name in &self.saved {
            let output = outputs.iter_mut().find(|arg| arg.name == *name);
            let message = "no output of this name to mark as saved";
            output.ok_or_else(|| self.error(name, message, 0..name.len()))?.saved = true;
        }
        Ok(())
    }

    fn set_docs(&self, signature: &mut Signature, names: &[String]) -> Result<()> {
        let (doc, entries) = doc::split(&self.doc, |name| names.iter().any(|known| known == name));
        signature.doc = doc;
        for (name, description) in entries.into_iter().chain(self.descriptions.iter().cloned()) {
            let message = "no attribute, input or output of this name to describe";
            let doc = doc_of(signature, &name);
            *doc.ok_or_else(|| self.error(&name, message, 0..name.len()))? = description;
        }
        Ok(())
    }
}

/// The specs of a definition, in canonical spelling: to build it again, or one like it.
impl From<&Signature> for SignatureBuilder {
    fn from(signature: &Signature) -> SignatureBuilder {
        let args = || signature.inputs.iter().chain(&signature.outputs);
        let marked =
            |flag: fn(&ArgDef) -> bool| args().filter(|arg| flag(arg)).map(|arg| arg.name.clone()).collect();
        let docs = signature.attrs.iter().map(|attr| (&attr.name, &attr.doc));
        let docs = docs.chain(args().map(|arg| (&arg.name, &arg.doc)));
        SignatureBuilder {
            name: signature.name.clone(),
            attrs: signature.attrs.iter().map(ToString::to_string).collect(),
            more_dtypes: Vec::new(),
            inputs: signature.inputs.iter().map(|arg| signature.arg_spec(arg)).collect(),
            outputs: signature.outputs.iter().map(|arg| signature.arg_spec(arg)).collect(),
            optional: marked(|arg| arg.optional),
            saved: marked(|arg| arg.saved),
            stateful: signature.stateful,
            doc: signature.doc.clone(),
            descriptions: docs.map(|(name, doc)| (name.clone(), doc.clone())).collect(),
        }
    }
}

/// The argument with its names looked up among the attributes; lists that leave it open get a least length of 1.
fn look_up(text: &str, parsed: ParsedArg, attrs: &mut [AttrDef]) -> Result<ArgDef, Fault> {
    let mut count = match parsed.count {
        Some(span) => ArgCount::Attr(count_attr(text, span, attrs)?),
        None => ArgCount::One,
    };
    let span = parsed.dtype;
    let word = &text[span.clone()];
    let dtype = match (DType::parse(word), attrs.iter().position(|attr| attr.name == word)) {
        (Some(dtype), _) => ArgType::Fixed(dtype),
        (None, None) => {
            let names: Vec<&str> = attrs.iter().map(|attr| attr.name.as_str()).collect();
            let fault = unknown_dtype(word, span, &names);
            let message = fault.message.replacen("is not a dtype", "is neither a dtype nor an attribute", 1);
            return Err(Fault { message, ..fault });
        }
        (None, Some(index)) if attrs[index].ty.base != AttrBase::Type => {
            let message = format!("`{word}` is {}, not a type", super::check::a(attrs[index].ty));
            return Err(Fault::new(message, span));
        }
        (None, Some(index)) if !attrs[index].ty.list => ArgType::Attr(index),
        (None, Some(index)) => {
            if count.is_list() {
                let message = format!("`{word}` is a list of types, which says how many tensors there are");
                return Err(Fault::new(message, span));
            }
            attrs[index].min_len.get_or_insert(1);
            count = ArgCount::Types(index);
            ArgType::List(index)
        }
    };
    let ParsedArg { name, is_ref, .. } = parsed;
    Ok(ArgDef { name, dtype, count, is_ref, optional: false, saved: false, doc: String::new() })
}

/// The index of the attribute that counts tensors.
fn count_attr(text: &str, span: Range<usize>, attrs: &mut [AttrDef]) -> Result<usize, Fault> {
    let word = &text[span.clone()];
    let Some(index) = attrs.iter().position(|attr| attr.name == word) else {
        let hint = did_you_mean(word, attrs.iter().map(|attr| attr.name.as_str()));
        return Err(Fault::new(format!("there is no attribute `{word}`{hint}"), span));
    };
    let attr = &mut attrs[index];
    if attr.ty.base != AttrBase::Int || attr.ty.list {
        let message =
            format!("`{word}` is {}, not an int that could count tensors", super::check::a(attr.ty));
        return Err(Fault::new(message, span));
    }
    let least = match (&attr.allowed, &attr.min, &attr.max) {
        (Some(Allowed::Ints(ints)), ..) => ints.iter().copied().min().unwrap_or(0),
        (_, Bound::Included(AttrValue::Int(min)), _) => *min,
        (_, _, Bound::Included(AttrValue::Int(max))) if *max < 1 => {
            let message = format!(
                "`{word}` counts tensors, so it is at least 1 by default, but its upper bound is {max}"
            );
            return Err(Fault::new(message, span));
        }
        _ => {
            attr.min = Bound::Included(AttrValue::Int(1));
            1
        }
    };
    if least < 0 {
        return Err(Fault::new(format!("`{word}` counts tensors, so it cannot be {least}"), span));
    }
    Ok(index)
}

/// Marks the attributes that an input determines.
fn mark_inferred(input: &ArgDef, attrs: &mut [AttrDef]) {
    if let ArgType::Attr(index) | ArgType::List(index) = input.dtype {
        attrs[index].inferred = true;
    }
    if let ArgCount::Attr(index) = input.count {
        attrs[index].inferred = true;
    }
}

/// The documentation of the attribute or argument of this name.
fn doc_of<'a>(signature: &'a mut Signature, name: &str) -> Option<&'a mut String> {
    let Signature { inputs, outputs, attrs, .. } = signature;
    let args = inputs.iter_mut().chain(outputs.iter_mut()).map(|arg| (&arg.name, &mut arg.doc));
    let mut docs = attrs.iter_mut().map(|attr| (&attr.name, &mut attr.doc)).chain(args);
    docs.find(|(known, _)| *known == name).map(|(_, doc)| doc)
}
