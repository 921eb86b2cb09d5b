//! What is not well formed is refused, with the place.

use super::{attr, message};
use crate::def::SignatureBuilder;

fn attr_message(spec: &str) -> String {
    attr(spec).expect_err(spec).message().to_owned()
}

fn input_message(spec: &str) -> String {
    let attrs = ["T: type", "Ts: list(type)", "N: int", "few: int <= 0", "below: int >= -1", "a: {'x'}"];
    let builder = attrs.into_iter().fold(SignatureBuilder::new("Op"), SignatureBuilder::attr);
    message(builder.input(spec))
}

/// Checks paragraphs of the whole message: what is wrong, the spec, the caret.
fn check(cases: &str, message: impl Fn(&str) -> String) {
    for case in cases.trim_end().split("\n\n") {
        let spec = case.lines().nth(1).and_then(|line| line.strip_prefix("    ")).expect("an indented spec");
        assert_eq!(message(spec), case);
    }
}

#[test]
fn attributes() {
    check(include_str!("malformed_attrs.txt"), attr_message);
}

#[test]
fn arguments() {
    check(include_str!("malformed_args.txt"), input_message);
}

#[test]
fn specs_of_several_lines_and_of_none() {
    assert_eq!(
        attr_message("l: list(int) = [\n\t1,\n\tx]\n"),
        "Op: expected an integer, but found `x`\n     x]\n     ^"
    );
    assert_eq!(attr_message(""), "Op: expected the name of an attribute, but the text ends\n    \n    ^");
}

#[test]
fn names_of_ops() {
    let name_message = |name: &str| message(SignatureBuilder::new(name));
    assert_eq!(
        name_message("zeroOut"),
        "zeroOut: the name of an op must begin with a capital letter\n    zeroOut\n    ^"
    );
    assert_eq!(
        name_message("Lib>ZeroOut"),
        "Lib>ZeroOut: the name of an op may have only letters, digits and underscores\n    Lib>ZeroOut\n       ^"
    );
    assert_eq!(name_message(""), ": the name of an op must begin with a capital letter\n    \n    ^");
}

#[test]
fn only_inputs_are_changed_in_place() {
    let op = || SignatureBuilder::new("Op").attr("N: int").input("x: Ref(float)");
    assert_eq!(
        message(op().output("z: float").output("y: Ref(float)")),
        "Op: an output cannot be `Ref(…)`: only an input is changed in place\n    y: Ref(float)\n    ^^^^^^^^^^^^^"
    );
    let list = message(op().output("ys: Ref(N * float)"));
    assert!(list.starts_with("Op: an output cannot be `Ref(…)`"), "{list}");
    assert!(op().build().is_ok());
}

#[test]
fn names_are_unique_and_marks_find_them() {
    let op = || {
        SignatureBuilder::new("Op").attr("N: int").input("x: float").input("xs: N * float").output("z: float")
    };
    assert_eq!(message(op().output("x: float")), "Op: `x` is defined twice\n    x: float\n    ^");
    assert_eq!(message(op().attr("x: int")), "Op: `x` is defined twice\n    x: float\n    ^");
    assert_eq!(
        message(op().optional("y")),
        "Op: no input or output of this name to mark as optional\n    y\n    ^"
    );
    assert_eq!(
        message(op().optional("xs")),
        "Op: a list of inputs cannot be optional; allow it to be empty instead\n    xs\n    ^^"
    );
    assert_eq!(message(op().saved("x")), "Op: no output of this name to mark as saved\n    x\n    ^");
    assert_eq!(
        message(op().describe("y", "What?")),
        "Op: no attribute, input or output of this name to describe\n    y\n    ^"
    );
    let signature = op().optional("x").optional("z").saved("z").build().unwrap();
    assert!(signature.inputs[0].optional && signature.outputs[0].optional && signature.outputs[0].saved);
}
