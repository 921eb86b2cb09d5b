//! Definitions as text: the canonical spelling, which parses back to the same definition.

use std::fmt::{self, Display, Formatter, Write};
use std::ops::Bound;

use super::model::{Allowed, ArgCount, ArgDef, ArgType, AttrDef, Signature};
use super::tensor;
use super::text::{Float, Quoted, Shape, joined};
use crate::attr::{AttrBase, AttrValue};
use crate::dtype::sets;

/// The value as the definition language writes a default: `7`, `'foo'`, `DT_INT32`, `[1, 2]`.
impl Display for AttrValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            AttrValue::String(text) => Quoted(text.as_bytes()).fmt(f),
            AttrValue::Int(n) => write!(f, "{n}"),
            AttrValue::Float(x) => Float(*x).fmt(f),
            AttrValue::Bool(truth) => write!(f, "{truth}"),
            AttrValue::Type(dtype) => f.write_str(&dtype.proto_name()),
            AttrValue::Shape(shape) => Shape(shape).fmt(f),
            AttrValue::Tensor(value) => tensor::Printed(value).fmt(f),
            AttrValue::Strings(list) => bracketed(f, list.iter().map(|text| Quoted(text.as_bytes()))),
            AttrValue::Ints(list) => bracketed(f, list),
            AttrValue::Floats(list) => bracketed(f, list.iter().copied().map(Float)),
            AttrValue::Bools(list) => bracketed(f, list),
            AttrValue::Types(list) => bracketed(f, list.iter().map(|dtype| dtype.proto_name())),
            AttrValue::Shapes(list) => bracketed(f, list.iter().map(Shape)),
            AttrValue::Tensors(list) => bracketed(f, list.iter().map(|value| tensor::Printed(value))),
        }
    }
}

fn bracketed(f: &mut Formatter<'_>, items: impl IntoIterator<Item: Display>) -> fmt::Result {
    write!(f, "[{}]", joined(items))
}

/// The set as the definition language writes it; `numbertype` and its like by their names.
impl Display for Allowed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let members = match self {
            Allowed::Types(types) if types == sets::NUMBER_TYPE => return f.write_str("numbertype"),
            Allowed::Types(types) if types == sets::REAL_NUMBER => return f.write_str("realnumbertype"),
            Allowed::Types(types) if types == sets::QUANTIZED => return f.write_str("quantizedtype"),
            Allowed::Types(types) => joined(types),
            Allowed::Ints(ints) => joined(ints),
            Allowed::Strings(texts) => joined(texts.iter().map(|text| Quoted(text.as_bytes()))),
        };
        write!(f, "{{{members}}}")
    }
}

/// The attribute's spec: `preserve_index: int >= 0 = 0`.
impl Display for AttrDef {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write_spec(f, self.min.as_ref(), self.max.as_ref(), self.allowed.as_ref())
    }
}

impl AttrDef {
    /// The spec as TensorFlow takes it: without bounds on floats, greatest values and sets of integers, which
    /// are checked by Opsmith alone.
    pub fn to_tensorflow_spec(&self) -> String {
        let min = if self.ty.base == AttrBase::Int { self.min.as_ref() } else { Bound::Unbounded };
        let allowed = self.allowed.as_ref().filter(|allowed| !matches!(allowed, Allowed::Ints(_)));
        let mut spec = String::new();
        self.write_spec(&mut spec, min, Bound::Unbounded, allowed).expect("writing to a string cannot fail");
        spec
    }

    fn write_spec(
        &self,
        f: &mut impl Write,
        min: Bound<&AttrValue>,
        max: Bound<&AttrValue>,
        allowed: Option<&Allowed>,
    ) -> fmt::Result {
        let base: &dyn Display = match allowed {
            Some(allowed) => allowed,
            None => &self.ty.base.name(),
        };
        write!(f, "{}: ", self.name)?;
        if self.ty.list {
            write!(f, "list({base})")?
        } else {
            write!(f, "{base}")?
        }
        if let Some(min_len) = self.min_len {
            write!(f, " >= {min_len}")?;
        }
        for (bound, sign) in [(min, '>'), (max, '<')] {
            match bound {
                Bound::Included(end) => write!(f, " {sign}= {end}")?,
                Bound::Excluded(end) => write!(f, " {sign} {end}")?,
                Bound::Unbounded => {}
            }
        }
        if let Some(default) = &self.default {
            write!(f, " = {default}")?;
        }
        Ok(())
    }
}

impl Signature {
    /// The spec of one of this definition's arguments: `values: N * T`.
    pub fn arg_spec(&self, arg: &ArgDef) -> String {
        let dtype = match arg.dtype {
            ArgType::Fixed(dtype) => dtype.name(),
            ArgType::Attr(attr) | ArgType::List(attr) => &self.attrs[attr].name,
        };
        let count = match arg.count {
            ArgCount::Attr(attr) => format!("{} * ", self.attrs[attr].name),
            ArgCount::One | ArgCount::Types(_) => String::new(),
        };
        let name = &arg.name;
        if arg.is_ref { format!("{name}: Ref({count}{dtype})") } else { format!("{name}: {count}{dtype}") }
    }
}

/// The definition for a person, a line per attribute, input and output, without the docs.
impl Display for Signature {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name, if self.stateful { " (stateful)" } else { "" })?;
        for attr in &self.attrs {
            write!(f, "\n    attr {attr}")?;
        }
        let inputs = self.inputs.iter().map(|arg| ("input", arg));
        for (role, arg) in inputs.chain(self.outputs.iter().map(|arg| ("output", arg))) {
            write!(f, "\n    {role} {}", self.arg_spec(arg))?;
            if arg.optional {
                f.write_str(" (optional)")?;
            }
            if arg.saved {
                f.write_str(" (saved)")?;
            }
        }
        Ok(())
    }
}
