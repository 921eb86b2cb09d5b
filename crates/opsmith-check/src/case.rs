//! A call that was generated: its inputs, its attributes, and how the inputs lie in memory.

use std::sync::Arc;

use opsmith_core::attr::TensorValue;
use opsmith_core::{AttrValue, Shape};
use serde_json::{Map, Value, json};

use crate::layout::Layout;
use crate::subject::Subject;
use crate::wire::{Call, Laid, Named, Request};

/// The tensors of a call, by inputs of the definition; `None` for an optional one that is absent.
pub type Inputs = Vec<Vec<Option<Arc<TensorValue>>>>;

/// A call that was generated.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Case {
    pub(crate) inputs: Inputs,
    /// The attributes that are given; the others have their defaults.
    pub(crate) attrs: Vec<(String, AttrValue)>,
    /// How each tensor lies, those of lists one by one; dense beyond the end.
    pub(crate) layouts: Vec<Layout>,
}

impl Case {
    /// The tensors one by one.
    pub(crate) fn flat(&self) -> impl Iterator<Item = &Option<Arc<TensorValue>>> {
        self.inputs.iter().flatten()
    }

    /// The tensors that are there.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Arc<TensorValue>> {
        self.flat().flatten()
    }

    /// What is given for the input of this name; nothing where the op has none.
    pub(crate) fn named(&self, subject: &Subject, name: &str) -> Vec<Option<Arc<TensorValue>>> {
        let input = subject.signature.inputs.iter().position(|input| input.name == name);
        input.and_then(|input| self.inputs.get(input)).cloned().unwrap_or_default()
    }

    /// How the tensor at a flat position lies.
    pub(crate) fn layout(&self, position: usize) -> Layout {
        self.layouts.get(position).copied().unwrap_or(Layout::Dense)
    }

    /// The same case with every tensor dense, and with the values that the layouts leave.
    pub(crate) fn dense(&self) -> Case {
        let mut position = 0;
        let mut value = |tensor: &Option<Arc<TensorValue>>| {
            let layout = self.layout(position);
            position += 1;
            tensor.as_ref().map(|tensor| Arc::new(layout.value(tensor)))
        };
        let inputs = self.inputs.iter().map(|list| list.iter().map(&mut value).collect()).collect();
        Case { inputs, attrs: self.attrs.clone(), layouts: vec![] }
    }

    /// The same case with another tensor at a position of an input.
    pub(crate) fn with(&self, input: usize, element: usize, value: TensorValue) -> Case {
        let mut case = self.clone();
        case.inputs[input][element] = Some(Arc::new(value));
        case
    }

    /// The call, with memory of outputs that is filled with `fill` before.
    pub(crate) fn call(&self, subject: &Subject, fill: u8) -> Call {
        let mut position = 0;
        let mut lay_out = |tensor: &Option<Arc<TensorValue>>, changed: bool| -> Option<Laid> {
            let layout = self.layout(position);
            position += 1;
            tensor.as_ref().map(|tensor| Laid { changed, ..layout.lay_out(&layout.value(tensor)) })
        };
        let defs = &subject.signature.inputs;
        let is_ref = |input: usize| defs.get(input).is_some_and(|def| def.is_ref);
        let mut tensors = Vec::new();
        for (input, list) in self.inputs.iter().enumerate() {
            tensors.extend(list.iter().map(|tensor| lay_out(tensor, is_ref(input))));
        }
        Call {
            op: subject.index,
            counts: self.inputs.iter().map(Vec::len).collect(),
            tensors,
            attrs: self.attrs.iter().map(|(name, value)| Named::new(name, value)).collect(),
            outputs: subject.signature.outputs.len(),
            wanted: u64::MAX,
            fill,
        }
    }

    /// The shapes of the tensors.
    pub(crate) fn shapes(&self) -> Vec<Vec<Shape>> {
        let shapes = |list: &Vec<Option<Arc<TensorValue>>>| {
            list.iter().flatten().map(|tensor| Shape::known(&tensor.shape)).collect()
        };
        self.inputs.iter().map(shapes).collect()
    }

    /// Shape inference for tensors of these shapes instead of the case's own.
    pub(crate) fn infer(&self, subject: &Subject, shapes: &[Vec<Shape>]) -> Request {
        let is_list =
            |input: usize| subject.signature.inputs.get(input).is_some_and(|def| def.count.is_list());
        let argument = |input: usize, list: Vec<Value>| {
            if list.is_empty() && !is_list(input) { Value::Null } else { list.into() }
        };
        let shapes = shapes
            .iter()
            .enumerate()
            .map(|(input, list)| argument(input, list.iter().map(Shape::to_json).collect()));
        let dtypes = self.inputs.iter().enumerate().map(|(input, list)| {
            argument(input, list.iter().flatten().map(|tensor| tensor.dtype.name().into()).collect())
        });
        let attrs: Map<String, Value> =
            self.attrs.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
        let request = json!({
            "inputs": shapes.collect::<Vec<_>>(),
            "dtypes": dtypes.collect::<Vec<_>>(),
            "attrs": attrs,
        });
        Request::Infer { op: subject.index, request: request.to_string() }
    }
}
