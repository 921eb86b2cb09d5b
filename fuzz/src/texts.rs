//! Texts: definitions, signatures of shapes, rules of free axes, programs, requests.

use std::sync::LazyLock;

use arbitrary::Unstructured;
use opsmith_body::Graph;
use opsmith_core::attr::{AttrBase, AttrType};
use opsmith_core::def::AttrDef;
use opsmith_core::shape::{Constraint, Dim, Relation};
use opsmith_core::{
    AttrValue, Calls, InferenceContext, Parallel, Shape, ShapeSignature, Signature, SignatureBuilder,
};
use opsmith_runtime::{Library, Tensor};

use crate::calls::table;

/// Lines of a definition, each behind a word that says what it is. What is well formed is the same when it is printed and read
/// again, as specs and as JSON.
pub(crate) fn definitions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut builder = SignatureBuilder::new("Op");
    for line in text.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        builder = match word {
            "attr" => builder.attr(rest),
            "input" => builder.input(rest),
            "output" => builder.output(rest),
            "optional" => builder.optional(rest),
            "saved" => builder.saved(rest),
            "stateful" => builder.stateful(),
            "doc" => builder.doc(rest.replace("\\n", "\n")),
            "value" => {
                value(rest);
                builder
            }
            _ => builder,
        };
    }
    let Ok(signature) = builder.build() else { return };
    let again = SignatureBuilder::from(&signature).build();
    assert_eq!(again.as_ref(), Ok(&signature), "by its specs");
    let json = signature.to_json().to_string();
    let read = serde_json::from_str(&json).map(|json| Signature::from_json(&json));
    assert_eq!(read.expect("it is JSON").as_ref(), Ok(&signature), "by its JSON");
    for attr in &signature.attrs {
        drop(attr.to_tensorflow_spec());
    }
}

/// A value of the type that the first word names: what is read is the same when it is printed and read again.
fn value(text: &str) {
    let (word, text) = text.split_once(' ').unwrap_or((text, ""));
    let (word, list) = word.strip_prefix('*').map_or((word, false), |word| (word, true));
    let Some(base) = AttrBase::ALL.iter().copied().find(|base| base.name() == word) else { return };
    let def = AttrDef::new("value", AttrType { base, list });
    let Ok(value) = def.parse_value(text) else { return };
    if let AttrValue::Tensor(tensor) = &value {
        crate::messages::check(tensor);
    }
    let printed = value.to_string();
    assert_eq!(def.parse_value(&printed).as_ref(), Ok(&value), "as text: {printed}");
}

/// A line of text, and the bytes behind it.
fn line(data: &[u8]) -> Option<(&str, Unstructured<'_>)> {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let text = std::str::from_utf8(&data[..end]).ok()?;
    Some((text, Unstructured::new(data.get(end + 1..).unwrap_or(&[]))))
}

/// A size: mostly a small one.
fn size(u: &mut Unstructured<'_>) -> usize {
    const LARGE: [usize; 4] = [1 << 31, 1 << 32, 1 << 62, i64::MAX as usize];
    match u.arbitrary::<u8>().unwrap_or(0) {
        byte @ 0xfc..=0xff => LARGE[usize::from(byte - 0xfc)],
        byte => usize::from(byte % 8),
    }
}

fn sizes(u: &mut Unstructured<'_>) -> Vec<usize> {
    let rank = u.int_in_range(0..=5).unwrap_or(0);
    (0..rank).map(|_| size(u)).collect()
}

/// An op of these inputs and outputs, with an `int` for each name of the signature that is no dim's.
fn op_of(signature: &ShapeSignature) -> Option<Signature> {
    let mut builder = SignatureBuilder::new("Op");
    for (name, _) in signature.attr_names() {
        builder = builder.attr(format!("{name}: int"));
    }
    for index in 0..signature.inputs().len() {
        builder = builder.input(format!("in{index}: float"));
    }
    for index in 0..signature.outputs().len() {
        builder = builder.output(format!("out{index}: float"));
    }
    builder.build().ok()
}

/// A signature of shapes, and shapes: both evaluators have the same answer, and so has the one with symbols where these have the
/// sizes of the shapes.
pub(crate) fn shapes(data: &[u8]) {
    let Some((text, mut u)) = line(data) else { return };
    drop((Dim::parse(text), Shape::parse(text)));
    let signature = match ShapeSignature::parse(text) {
        Ok(signature) => signature,
        Err(error) => {
            assert!(error.offset + error.len <= text.len(), "an error beyond the text");
            drop(error.render(text));
            return;
        }
    };
    assert_eq!(signature.to_string(), text);
    let Some(op) = op_of(&signature) else { return };
    if signature.check(&op).is_err() {
        return;
    }
    let attrs: Vec<AttrValue> =
        op.attrs.iter().map(|_| AttrValue::Int(u.arbitrary::<i8>().unwrap_or(0).into())).collect();
    let given: Vec<Vec<usize>> = op.inputs.iter().map(|_| sizes(&mut u)).collect();
    let shapes: Vec<_> = given.iter().map(|shape| Some(&shape[..])).collect();
    let known = |shape: &[usize]| shape.iter().all(|size| *size != usize::MAX);
    let bound = signature
        .bind(&op, &shapes, &attrs)
        .map(|bound| (0..op.outputs.len()).map(|output| bound.output_shape(output)).collect::<Vec<_>>());
    let inputs = given.iter().map(|shape| Some(vec![Shape::known(shape)])).collect();
    let mut context = InferenceContext::new(&op, &attrs, inputs).expect("there are as many");
    let inferred = signature.shape_fn()(&mut context).map(|()| context.outputs().to_vec());
    match (&bound, &inferred) {
        (Ok(bound), Ok(inferred)) => {
            for (bound, inferred) in bound.iter().zip(inferred) {
                assert!(!known(bound) || Shape::known(bound) == *inferred, "{bound:?} and {inferred}");
            }
        }
        (Err(bound), Err(inferred)) => assert_eq!(bound.message(), inferred.message()),
        _ => panic!("{text}: {bound:?}, but {inferred:?}"),
    }
    if let Ok(bound) = bound {
        with_symbols(&signature, &op, &attrs, &given, &bound);
    }
}

/// A call that is right is so with symbols for its sizes: what is assumed of them holds, and the outputs are the same.
fn with_symbols(
    signature: &ShapeSignature,
    op: &Signature,
    attrs: &[AttrValue],
    given: &[Vec<usize>],
    bound: &[opsmith_core::shape::Sizes],
) {
    let symbols =
        |input: usize| (0..given[input].len()).map(move |dim| Dim::symbol(&format!("s{input}_{dim}")));
    let inputs = (0..given.len()).map(|input| Some(vec![symbols(input).collect::<Shape>()])).collect();
    let mut context = InferenceContext::new(op, attrs, inputs).expect("there are as many");
    signature.shape_fn()(&mut context).expect("it is right for these sizes");
    let size = |name: &str| {
        let (input, dim) = name.strip_prefix('s')?.split_once('_')?;
        Some(given[input.parse::<usize>().ok()?][dim.parse::<usize>().ok()?] as u64)
    };
    let holds = |constraint: &Constraint| {
        let sides = (constraint.left.substitute(&size), constraint.right.substitute(&size));
        // A product that overflows on its way is one that does not in another order.
        let (Ok(left), Ok(right)) = sides else { return true };
        match constraint.relation {
            Relation::Equal => left == right,
            Relation::AtLeast => left.value() >= right.value(),
        }
    };
    if let Some(constraint) = context.constraints().iter().find(|constraint| !holds(constraint)) {
        panic!("{constraint:?} does not hold for {given:?}");
    }
    for (bound, inferred) in bound.iter().zip(context.outputs()) {
        let Ok(inferred) = inferred.substitute(&size) else { continue };
        let is_known = bound.iter().all(|size| *size != usize::MAX);
        assert!(!is_known || Shape::known(bound) == inferred, "{bound:?}, but with symbols {inferred}");
    }
}

/// A rule of free axes, or names and behind `|` the shapes that have them, and a call.
pub(crate) fn axes(data: &[u8]) {
    let Some((text, mut u)) = line(data) else { return };
    let parallel = match text.split_once('|') {
        Some((names, shapes)) => {
            let Ok(shapes) = ShapeSignature::parse(shapes) else { return };
            let Some(op) = op_of(&shapes) else { return };
            let Ok(parallel) = Parallel::new(names, &op, Some(&shapes)) else { return };
            parallel
        }
        None => match Parallel::parse(text) {
            Ok(parallel) => parallel,
            Err(error) => {
                assert!(error.offset + error.len <= text.len(), "an error beyond the text");
                return;
            }
        },
    };
    let printed = parallel.to_string();
    let again = Parallel::parse(&printed).map(|again| again.to_string());
    assert_eq!(again.as_ref(), Ok(&printed));
    drop((parallel.words(), parallel.is_elementwise(), parallel.has_sums()));
    let rank = |u: &mut Unstructured<'_>| match u.arbitrary::<u8>().unwrap_or(0) {
        0xff => None,
        0xfe => Some(1 << 20),
        byte => Some(usize::from(byte % 6)),
    };
    let inputs = printed.split("->").next().map_or(0, |inputs| inputs.matches('(').count());
    let ranks: Vec<Option<usize>> = (0..inputs).map(|_| rank(&mut u)).collect();
    let values: Vec<Option<AttrValue>> = (0..8).map(|_| axes_value(&mut u)).collect();
    let attr = |name: &str| {
        let sum: usize = name.bytes().map(usize::from).sum();
        values[sum % values.len()].clone()
    };
    for axis in parallel.free_axes(&attr, &ranks) {
        for (dim, rank) in axis.inputs.iter().zip(&ranks) {
            assert!(
                dim.is_none_or(|dim| dim >= 1 && rank.is_some_and(|rank| dim <= rank)),
                "{axis:?} of {ranks:?}"
            );
        }
    }
    let bits = u.arbitrary::<u16>().unwrap_or(0);
    let batched: Vec<bool> = (0..ranks.len()).map(|bit| bits >> bit & 1 == 1).collect();
    let wanted: Vec<bool> = (0..4).map(|bit| bits >> (8 + bit) & 1 == 1).collect();
    drop(parallel.batches(&Calls { attr: &attr, ranks: &ranks, batched: &batched, wanted: &wanted }));
}

/// What an attribute may be that says something of dims.
fn axes_value(u: &mut Unstructured<'_>) -> Option<AttrValue> {
    let int = |u: &mut Unstructured<'_>| match u.arbitrary::<i8>().unwrap_or(0) {
        i8::MIN => i64::MIN,
        i8::MAX => i64::MAX,
        small => i64::from(small % 8),
    };
    Some(match u.arbitrary::<u8>().unwrap_or(0) % 5 {
        0 => return None,
        1 => AttrValue::Int(int(u)),
        2 => AttrValue::Bool(u.arbitrary().unwrap_or(false)),
        3 => AttrValue::Ints((0..u.int_in_range(0..=5).unwrap_or(0)).map(|_| int(u)).collect()),
        _ => AttrValue::Float(1.5),
    })
}

/// A program as the ops `Pointwise` and `OverAxes` take one: read, printed, and run on a few numbers.
pub(crate) fn programs(data: &[u8]) {
    static OPS: LazyLock<[opsmith_runtime::Op; 2]> = LazyLock::new(|| {
        let library = Library::standard().expect("it is sound");
        ["Pointwise", "OverAxes"].map(|name| library.op(name).expect("it is there"))
    });
    let Some((first, mut u)) = line(data) else { return };
    let rows = first.len() % 2 == 1;
    let columns = usize::from(u.arbitrary::<u8>().unwrap_or(0) % 40);
    let Ok(text) = std::str::from_utf8(u.take_rest()) else { return };
    let Ok(graph) = Graph::parse(text) else { return };
    if let Some(printed) = graph.to_text() {
        let again = Graph::parse(&printed).expect("what is printed can be read");
        assert_eq!(again.to_text().as_ref(), Some(&printed));
    }
    drop(graph.formula());
    let (inputs, outputs) = (graph.input_axes().count(), graph.outputs().len());
    let numbers: Vec<f32> = (0..3 * columns).map(|i| (i as f32 - 7.5) * 0.75).collect();
    let tensor = Tensor::from_slice(&numbers, &[3, columns]).expect("it is small");
    let list = vec![tensor; inputs];
    let (text, int) = (AttrValue::from(text), |n: usize| AttrValue::Int(n as i64));
    let mut attrs = vec![("program", text), ("N", int(inputs)), ("M", int(outputs))];
    if rows {
        let all = graph.input_axes().chain(graph.output_axes());
        let dims = all.flat_map(|axes| [2, 0, if axes.is_empty() { -1 } else { 1 }]).collect();
        attrs.extend([("space", AttrValue::Ints(vec![-1, 0])), ("dims", AttrValue::Ints(dims))]);
    }
    let told = OPS[usize::from(rows)].call(&[list[..].into()], &attrs);
    if let Ok(tensors) = told {
        assert_eq!(tensors.len(), outputs);
    }
}

/// Which op, which of the two, and a request in JSON, as Python asks: it crosses the C ABI as structures.
pub(crate) fn requests(data: &[u8]) {
    let [op, which, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    // SAFETY: the macro made the table, and it is a static.
    let library = unsafe { Library::from_table(table(which & 2 != 0)) }.expect("it is sound");
    let Ok(op) = library.op_at(usize::from(*op)) else { return };
    let answer = if which & 1 == 0 { op.infer_shapes_json(text) } else { op.explain_json(text) };
    if let Ok(answer) = answer {
        serde_json::from_str::<serde_json::Value>(&answer).expect("it is JSON");
    }
}
