//! One op on a page.

use std::fmt::Write;

use opsmith_core::def::{Allowed, ArgDef, AttrDef};
use opsmith_core::{GradientInput, GradientWiring, Signature};

use crate::definitions::{Gradient, Kernel, Op};
use crate::text::{FAINT, STRONG, WIDTH, styled, wrapped};

/// Where the items of a section begin; what explains them begins as far behind that.
const INDENT: usize = 4;

/// Everything that a library says of an op. What a section has nothing for, it leaves out.
pub(super) fn page(op: &Op) -> String {
    let mut page = headline(&op.signature);
    if !op.signature.doc.is_empty() {
        for paragraph in op.signature.doc.trim().split("\n\n") {
            page += &format!("{}\n", prose(paragraph, INDENT));
        }
    }
    let (inputs, outputs) = shapes(op);
    let formula = op.explanation.iter().flat_map(|explanation| explanation.formula.lines());
    let title = match op.explained_for.as_str() {
        "" => "formula".into(),
        given => format!("formula, for {given}"),
    };
    let vectors = op.explanation.iter().map(|explanation| (explanation.vectors.clone(), String::new()));
    let parallel = op.parallel.iter().map(|parallel| (parallel.to_string(), parallel.words()));
    let sections = [
        (title.as_str(), formula.map(|line| (line.to_owned(), String::new())).collect()),
        ("inputs", args(&op.signature, &op.signature.inputs, inputs)),
        ("outputs", args(&op.signature, &op.signature.outputs, outputs)),
        ("attributes", op.signature.attrs.iter().map(attr).collect()),
        ("free axes", parallel.collect()),
        ("kernels", kernels(&op.kernels)),
        ("on this processor", vectors.collect()),
        ("gradient", vec![(gradient(&op.signature, &op.gradient), String::new())]),
    ];
    for (title, items) in sections.iter().filter(|(_, items)| !items.is_empty()) {
        let _ = writeln!(page, "  {}", styled(FAINT, title));
        for (item, explanation) in items {
            let _ = writeln!(page, "{}", wrapped(item, INDENT));
            if !explanation.is_empty() {
                let _ = writeln!(page, "{}", prose(explanation, 2 * INDENT));
            }
        }
    }
    page
}

/// `PairwiseDistance(x, y, *, p = 1) -> z`, wrapped.
fn headline(signature: &Signature) -> String {
    let given = |defaulted: bool| {
        signature.attrs.iter().filter(move |attr| !attr.inferred && attr.default.is_some() == defaulted)
    };
    let mut taken: Vec<String> = signature.inputs.iter().map(|arg| arg.name.clone()).collect();
    taken.extend(given(false).map(|attr| attr.name.clone()));
    taken.extend(given(true).filter_map(|attr| Some(format!("{} = {}", attr.name, attr.default.as_ref()?))));
    let given: Vec<&str> = signature.outputs.iter().map(|arg| arg.name.as_str()).collect();
    let stateful = if signature.stateful { ", stateful" } else { "" };
    let text = format!("({}) -> {}{stateful}", taken.join(", "), given.join(", "));
    let text = text.trim_end_matches(" -> ");
    let options = textwrap::Options::new(WIDTH).subsequent_indent("    ");
    let filled = textwrap::fill(&format!("{}{text}", signature.name), options);
    let rest = filled.strip_prefix(&signature.name).unwrap_or_default();
    format!("{}{rest}\n", styled(STRONG, &signature.name))
}

/// Text of the documentation: paragraphs and items of lists are wrapped, code and tables stay as they are.
fn prose(text: &str, indent: usize) -> String {
    let mut blocks: Vec<(String, bool)> = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        let is_verbatim = is_code || is_fence || line.starts_with(['|', '#']);
        is_code ^= is_fence;
        let begins = line.starts_with("- ") || line.starts_with("* ");
        match blocks.last_mut() {
            Some((block, false)) if !is_verbatim && !begins => *block = format!("{block} {}", line.trim()),
            _ => blocks.push((line.to_owned(), is_verbatim)),
        }
    }
    let spaces = " ".repeat(indent);
    let shown = blocks.iter().map(|(block, is_verbatim)| match is_verbatim {
        true => format!("{spaces}{block}"),
        false => wrapped(block, indent),
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// The shapes of the inputs and of the outputs, as far as a signature says them.
fn shapes(op: &Op) -> (Vec<String>, Vec<String>) {
    let texts = |args: &[opsmith_core::shape::ArgShape]| args.iter().map(ToString::to_string).collect();
    op.shape.as_ref().map_or_else(Default::default, |shape| (texts(shape.inputs()), texts(shape.outputs())))
}

fn args(signature: &Signature, args: &[ArgDef], shapes: Vec<String>) -> Vec<(String, String)> {
    let item = |(at, arg): (usize, &ArgDef)| {
        let mut facts = vec![signature.arg_spec(arg)];
        facts.extend(shapes.get(at).map(|shape| format!("shape {shape}")));
        let is_input = signature.input_index(&arg.name).is_some();
        let words = if is_input { "may be absent" } else { "computed where wanted" };
        facts.extend(arg.optional.then(|| words.to_owned()));
        facts.extend(arg.saved.then(|| "serves the gradient only".to_owned()));
        facts.extend(arg.is_ref.then(|| "changed in place".to_owned()));
        (facts.join(", "), arg.doc.clone())
    };
    args.iter().enumerate().map(item).collect()
}

fn attr(attr: &AttrDef) -> (String, String) {
    let mut facts = vec![attr.to_string()];
    facts.extend(members(attr));
    facts.extend(attr.inferred.then(|| "inferred from the inputs".to_owned()));
    (facts.join(", "), attr.doc.clone())
}

/// The dtypes of a set that the spec has by its name only.
fn members(attr: &AttrDef) -> Option<String> {
    let Some(Allowed::Types(dtypes)) = &attr.allowed else { return None };
    let names = dtypes.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(", ");
    (!attr.to_string().contains(&names)).then(|| format!("one of {names}"))
}

/// One line for each device: `cpu: T = float32; T = float64`.
fn kernels(kernels: &[Kernel]) -> Vec<(String, String)> {
    let mut devices: Vec<(&str, Vec<String>)> = Vec::new();
    for kernel in kernels {
        let types = kernel.types.iter().map(|(attr, dtype)| format!("{attr} = {dtype}"));
        let types = types.collect::<Vec<_>>().join(", ");
        match devices.iter_mut().find(|(device, _)| *device == kernel.device) {
            Some((_, all)) if all.contains(&types) => {}
            Some((_, all)) => all.push(types),
            None => devices.push((&kernel.device, vec![types])),
        }
    }
    let line = |(device, types): &(&str, Vec<String>)| {
        let types: Vec<&str> = types.iter().map(String::as_str).filter(|types| !types.is_empty()).collect();
        let types = if types.is_empty() { String::new() } else { format!(": {}", types.join("; ")) };
        (format!("{device}{types}"), String::new())
    };
    devices.iter().map(line).collect()
}

fn gradient(signature: &Signature, gradient: &Gradient) -> String {
    match gradient {
        Gradient::Undeclared => "none is declared: differentiating through it is an error".to_owned(),
        Gradient::NotDifferentiable => "not differentiable: zeros flow back".to_owned(),
        Gradient::Op(wiring) => wired(signature, wiring),
    }
}

/// `PairwiseDistanceGrad, from x, y and z_grad, with respect to x and y`.
fn wired(signature: &Signature, wiring: &GradientWiring) -> String {
    let input = |at: usize| signature.inputs[at].name.clone();
    let output = |at: usize| signature.outputs[at].name.clone();
    let sources = wiring.inputs.iter().map(|source| match *source {
        GradientInput::Input(at) => input(at),
        GradientInput::Output(at) => output(at),
        GradientInput::OutputGradient(at) => format!("{}_grad", output(at)),
    });
    // One of that name may be there already.
    let mut named: Vec<String> = Vec::new();
    for name in sources {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let free = std::iter::once(name.clone()).chain(numbered).find(|name| !named.contains(name));
        named.extend(free);
    }
    let targets = wiring.outputs.iter().map(|&at| input(at));
    let targets = targets.collect::<Vec<_>>();
    format!("{}, from {}, with respect to {}", wiring.op, named.join(", "), targets.join(", "))
}
