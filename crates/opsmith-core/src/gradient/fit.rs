//! Which arguments of a gradient op belong to which of its forward op, by their names; while a library is wired, and already
//! while a crate is compiled.

use super::GradientInput;

/// An attribute: its name, its type, and whether a call may leave it out.
pub(super) type Attribute<'a> = (&'a str, &'a str, bool);

/// What an op's arguments are called: what macros know of an op while it is compiled.
#[derive(Debug, Clone, Copy)]
pub struct Arguments {
    /// The op's name.
    pub op: &'static str,
    /// The inputs, in order.
    pub inputs: &'static [&'static str],
    /// The outputs, in order.
    pub outputs: &'static [&'static str],
    /// The attributes: name, type, and whether a call may leave it out.
    pub attrs: &'static [Attribute<'static>],
}

/// Where the input `name` of a gradient op comes from, if the forward op has these inputs and outputs.
pub(super) const fn source(inputs: &[&str], outputs: &[&str], name: &str) -> Option<GradientInput> {
    if let Some(input) = position(inputs, name.as_bytes()) {
        return Some(GradientInput::Input(input));
    }
    if let Some(output) = position(outputs, name.as_bytes()) {
        return Some(GradientInput::Output(output));
    }
    match without_grad(without_number(name.as_bytes())) {
        Some(own) => match position(outputs, own) {
            Some(output) => Some(GradientInput::OutputGradient(output)),
            None => None,
        },
        None => None,
    }
}

/// The input of the forward op whose gradient the output `name` is.
pub(super) const fn target(inputs: &[&str], name: &str) -> Option<usize> {
    let plain = without_number(name.as_bytes());
    // A number tells it from an input of that name.
    let plain = if position(inputs, plain).is_some() { plain } else { name.as_bytes() };
    match without_grad(plain) {
        Some(own) => position(inputs, own),
        None => None,
    }
}

/// Compares an op with its gradient op while they are compiled; where something is not known of one of them, a library finds
/// it when it is made.
///
/// # Panics
/// Where an argument of the gradient op is none that the forward op gives it, at the place of the call.
#[track_caller]
pub const fn check_gradient(forward: &Option<Arguments>, gradient: &Option<Arguments>) {
    let (Some(forward), Some(gradient)) = (forward, gradient) else { return };
    let mut index = 0;
    while index < gradient.inputs.len() {
        let name = gradient.inputs[index];
        if source(forward.inputs, forward.outputs, name).is_none() {
            let text = Text::about("input `", name, "` of the gradient op ", gradient.op);
            let text = text.push(" is neither an input of ").push(forward.op).list(forward.inputs, "");
            let text = text.push(" nor an output").list(forward.outputs, "");
            let text = text.push(" nor the gradient of one").list(forward.outputs, "_grad");
            panic!("{}", text.as_str());
        }
        index += 1;
    }
    let mut index = 0;
    while index < gradient.outputs.len() {
        let name = gradient.outputs[index];
        if target(forward.inputs, name).is_none() {
            let text = Text::about("output `", name, "` of the gradient op ", gradient.op);
            let text = text.push(" is not the gradient of an input of ").push(forward.op);
            let text = text.list(forward.inputs, "_grad");
            panic!("{}", text.as_str());
        }
        index += 1;
    }
    let mut index = 0;
    while index < gradient.attrs.len() {
        if let Some(text) = misfit(forward.op, forward.attrs, gradient.op, gradient.attrs[index]) {
            panic!("{}", text.as_str());
        }
        index += 1;
    }
}

/// What is wrong with an attribute of the op `gradient`, if `forward` has these.
pub(super) const fn misfit(
    forward: &str,
    attrs: &[Attribute<'_>],
    gradient: &str,
    (name, ty, may_be_left_out): Attribute<'_>,
) -> Option<Text> {
    let text = Text::about("attribute `", name, "` of the gradient op ", gradient);
    let mut index = 0;
    while index < attrs.len() {
        let (other_name, other_ty, _) = attrs[index];
        if equal(name.as_bytes(), other_name.as_bytes()) {
            let is_same = equal(ty.as_bytes(), other_ty.as_bytes());
            let text = text.push(" is ").push(ty).push(", but ").push(other_ty).push(" in ").push(forward);
            return if is_same { None } else { Some(text) };
        }
        index += 1;
    }
    let text = text.push(" needs a default, for ").push(forward).push(" has no such attribute");
    if may_be_left_out { None } else { Some(text) }
}

/// A message in the making; it ends in dots where no more fits in.
pub(super) struct Text {
    bytes: [u8; 1024],
    len: usize,
    is_cut: bool,
}

impl Text {
    const fn about(kind: &str, name: &str, of: &str, op: &str) -> Text {
        Text { bytes: [0; 1024], len: 0, is_cut: false }.push(kind).push(name).push(of).push(op)
    }

    const fn push(mut self, text: &str) -> Text {
        const DOTS: &[u8] = "…".as_bytes();
        if self.is_cut {
            return self;
        }
        // A text that does not fit in whole could be cut within a character.
        self.is_cut = self.len + text.len() + DOTS.len() > self.bytes.len();
        let bytes = if self.is_cut { DOTS } else { text.as_bytes() };
        let mut index = 0;
        while index < bytes.len() {
            self.bytes[self.len + index] = bytes[index];
            index += 1;
        }
        self.len += bytes.len();
        self
    }

    /// Names, each with this ending, in parentheses.
    const fn list(mut self, names: &[&str], ending: &str) -> Text {
        let mut index = 0;
        while index < names.len() {
            self = self.push(if index == 0 { " (`" } else { "`, `" }).push(names[index]).push(ending);
            index += 1;
        }
        if names.is_empty() { self } else { self.push("`)") }
    }

    pub(super) const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "a gradient op does not fit its op",
        }
    }
}

const fn equal(left: &[u8], right: &[u8]) -> bool {
    let mut index = 0;
    while index < left.len() && index < right.len() {
        if left[index] != right[index] {
            return false;
        }
        index += 1;
    }
    left.len() == right.len()
}

const fn position(names: &[&str], name: &[u8]) -> Option<usize> {
    let mut index = 0;
    while index < names.len() {
        if equal(names[index].as_bytes(), name) {
            return Some(index);
        }
        index += 1;
    }
    None
}

const fn without_grad(name: &[u8]) -> Option<&[u8]> {
    const ENDING: &[u8] = b"_grad";
    if name.len() < ENDING.len() {
        return None;
    }
    let (own, ending) = name.split_at(name.len() - ENDING.len());
    if equal(ending, ENDING) { Some(own) } else { None }
}

/// `x_grad_2` is the gradient of `x` where an input has the name `x_grad`: gradients of high order need it.
const fn without_number(name: &[u8]) -> &[u8] {
    let mut end = name.len();
    while end > 0 && name[end - 1].is_ascii_digit() {
        end -= 1;
    }
    if end == name.len() || end == 0 || name[end - 1] != b'_' {
        return name;
    }
    let rest = name.split_at(end - 1).0;
    if without_grad(rest).is_some() { rest } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_ends_in_dots() {
        let text = Text::about("a", "b", "c", "d").list(&["a_name_of_some_length"; 60], "").push(" and more");
        let text = text.as_str();
        assert!(text.starts_with("abcd (`a_name_of_some_length`, `a_name"), "{text}");
        assert!(text.ends_with("a_name_of_some_length`, `…"), "{text}");
        assert!(text.len() <= 1024);
    }

    #[test]
    fn attributes_are_those_of_the_op_or_may_be_left_out() {
        let misfit = |attr| misfit("Power", &[("p", "int", false)], "PowerGrad", attr);
        assert!(misfit(("p", "int", false)).is_none() && misfit(("q", "int", true)).is_none());
        let message = |attr| misfit(attr).unwrap().as_str().to_owned();
        let of = "of the gradient op PowerGrad";
        assert_eq!(message(("p", "float", true)), format!("attribute `p` {of} is float, but int in Power"));
        let needs = "needs a default, for Power has no such attribute";
        assert_eq!(message(("q", "int", false)), format!("attribute `q` {of} {needs}"));
    }
}
