//! Which arguments of a gradient op belong to which of its forward op, by their names; while a library is wired, and already
//! while a crate is compiled.

use super::GradientInput;

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
    pub attrs: &'static [(&'static str, &'static str, bool)],
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
    match without_grad(name.as_bytes()) {
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
            let text = text.push(" is neither an input of ").push(forward.op).list(forward.inputs);
            let text = text.push(" nor an output").list(forward.outputs).push(" nor `<output>_grad`");
            panic!("{}", text.as_str());
        }
        index += 1;
    }
    let mut index = 0;
    while index < gradient.outputs.len() {
        let name = gradient.outputs[index];
        if target(forward.inputs, name).is_none() {
            let text = Text::about("output `", name, "` of the gradient op ", gradient.op);
            let text =
                text.push(" is not `<input>_grad` for an input of ").push(forward.op).list(forward.inputs);
            panic!("{}", text.as_str());
        }
        index += 1;
    }
    let mut index = 0;
    while index < gradient.attrs.len() {
        check_attribute(forward, gradient, index);
        index += 1;
    }
}

#[track_caller]
const fn check_attribute(forward: &Arguments, gradient: &Arguments, index: usize) {
    let (name, ty, may_be_left_out) = gradient.attrs[index];
    let mut other = 0;
    while other < forward.attrs.len() {
        let (other_name, other_ty, _) = forward.attrs[other];
        if equal(name.as_bytes(), other_name.as_bytes()) {
            if !equal(ty.as_bytes(), other_ty.as_bytes()) {
                let text = Text::about("attribute `", name, "` of the gradient op ", gradient.op);
                let text =
                    text.push(" is ").push(ty).push(", but ").push(other_ty).push(" in ").push(forward.op);
                panic!("{}", text.as_str());
            }
            return;
        }
        other += 1;
    }
    if !may_be_left_out {
        let text = Text::about("attribute `", name, "` of the gradient op ", gradient.op);
        let text = text.push(" needs a default, for ").push(forward.op).push(" has no such attribute");
        panic!("{}", text.as_str());
    }
}

/// A message in the making; what does not fit in is left out.
struct Text {
    bytes: [u8; 1024],
    len: usize,
}

impl Text {
    const fn about(kind: &str, name: &str, of: &str, op: &str) -> Text {
        Text { bytes: [0; 1024], len: 0 }.push(kind).push(name).push(of).push(op)
    }

    const fn push(mut self, text: &str) -> Text {
        let bytes = text.as_bytes();
        // A text that does not fit in whole could be cut within a character.
        if self.len + bytes.len() <= self.bytes.len() {
            let mut index = 0;
            while index < bytes.len() {
                self.bytes[self.len + index] = bytes[index];
                index += 1;
            }
            self.len += bytes.len();
        }
        self
    }

    /// Names in parentheses.
    const fn list(mut self, names: &[&str]) -> Text {
        let mut index = 0;
        while index < names.len() {
            self = self.push(if index == 0 { " (`" } else { "`, `" }).push(names[index]);
            index += 1;
        }
        if names.is_empty() { self } else { self.push("`)") }
    }

    const fn as_str(&self) -> &str {
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
