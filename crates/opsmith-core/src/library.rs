//! A library: the ops that one shared object offers, under one name.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::def::find_op;
use crate::gradient::{Gradient, GradientInput, GradientWiring};
use crate::op::{Op, OpDef};
use crate::resource::Resources;
use crate::{Error, Result, bail, ensure};

/// The ops of one shared object. Its name is their namespace in every framework.
pub struct Library {
    name: String,
    version: String,
    ops: Vec<Op>,
}

impl Library {
    /// Checks the statements of all ops, and that every gradient op exists and fits.
    ///
    /// # Errors
    /// The first thing that is wrong: `InvalidArgument` for a malformed definition, `AlreadyExists` for a name
    /// given twice, `NotFound` for a gradient op that is not in the library.
    pub fn new(name: &str, version: &str, defs: Vec<OpDef>) -> Result<Library> {
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        ensure!(is_name, InvalidArgument, "library name `{name}` is not snake_case: [a-z][a-z0-9_]*");
        let mut ops = defs.into_iter().map(OpDef::build).collect::<Result<Vec<_>>>()?;
        let by_name = index_names(name, &ops)?;
        let wirings = ops
            .iter()
            .map(|op| {
                let Gradient::Op(gradient) = op.gradient() else { return Ok(None) };
                let Some(&index) = by_name.get(gradient) else {
                    let text = format!(
                        "its gradient op {gradient} is not in library `{name}`: list it among the ops of `library!`"
                    );
                    return Err(Error::not_found(text).with_op(&op.signature().name));
                };
                GradientWiring::new(op.signature(), ops[index].signature()).map(Some)
            })
            .collect::<Result<Vec<_>>>()?;
        let resources = Arc::new(Resources::default());
        for (op, wiring) in ops.iter_mut().zip(wirings) {
            op.join(wiring, resources.clone());
        }
        Ok(Library { name: name.to_owned(), version: version.to_owned(), ops })
    }

    /// The library's name, snake_case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of the library, as its author gives it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The ops, in the order in which the library lists them.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The op of this name, CamelCase or snake_case.
    ///
    /// # Errors
    /// `NotFound`, with the names there are.
    pub fn op(&self, name: &str) -> Result<&Op> {
        self.op_index(name).map(|index| &self.ops[index])
    }

    /// The position of the op of this name, as [`find_op`] reads it.
    ///
    /// # Errors
    /// `NotFound`, with the names there are.
    pub fn op_index(&self, name: &str) -> Result<usize> {
        find_op(&self.name, name, self.ops.iter().map(|op| op.signature()))
    }

    /// The library as JSON: name, version and, for each op, its definition, gradient, shapes and kernels.
    ///
    /// An op is what [`Signature::to_json`](crate::Signature::to_json) gives plus
    /// `gradient` (`null`, `"not_differentiable"`, or `{op, inputs, outputs}` where an input is
    /// `["input" | "output" | "output_gradient", position]` and an output the position of a forward input),
    /// `shape` (the shape signature or `null`),
    /// `parallel` (the rule of the free axes, as [`Parallel`](crate::Parallel) prints it, or `null`),
    /// `explained` (whether [`Op::explain`] has something to say), `autocast` (the name of an
    /// [`Autocast`](crate::Autocast), or `null`) and `kernels` (`[{device, types, host_memory}]`, the last the names of inputs
    /// that the kernel reads in host memory; and `priority` of a kernel that has another than 0).
    pub fn to_json(&self) -> Value {
        let ops: Vec<Value> = self.ops.iter().map(op_to_json).collect();
        json!({ "name": self.name, "version": self.version, "ops": ops })
    }
}

fn index_names(library: &str, ops: &[Op]) -> Result<HashMap<String, usize>> {
    let mut by_name = HashMap::new();
    let mut by_snake: HashMap<String, &str> = HashMap::new();
    for (index, op) in ops.iter().enumerate() {
        let name = &op.signature().name;
        if let Some(other) = by_snake.insert(op.signature().snake_name(), name) {
            bail!(
                AlreadyExists,
                "library `{library}` has the ops `{other}` and `{name}`, whose functions would have the same name"
            );
        }
        by_name.insert(name.clone(), index);
    }
    Ok(by_name)
}

fn op_to_json(op: &Op) -> Value {
    let mut value = op.signature().to_json();
    value["gradient"] = match (op.gradient(), op.gradient_wiring()) {
        (Gradient::NotDifferentiable, _) => json!("not_differentiable"),
        (_, Some(wiring)) => json!({
            "op": wiring.op,
            "inputs": wiring.inputs.iter().map(gradient_input_to_json).collect::<Vec<_>>(),
            "outputs": wiring.outputs,
        }),
        _ => Value::Null,
    };
    value["shape"] = op.shape_signature().map_or(Value::Null, |shapes| json!(shapes.to_string()));
    value["explained"] = json!(op.explain_fn().is_some());
    value["parallel"] = op.parallel().map_or(Value::Null, |parallel| json!(parallel.to_string()));
    value["autocast"] = op.autocast().map_or(Value::Null, |policy| json!(policy.name()));
    let kernels = op.kernels().iter().map(|kernel| {
        // One by one: to collect a map sorts, which takes a sorter's code.
        let mut types = serde_json::Map::new();
        for (attr, dtype) in &kernel.constraints {
            types.insert((*attr).to_owned(), json!(dtype.name()));
        }
        let device = kernel.device.to_string();
        let mut told =
            json!({ "device": device, "types": types, "host_memory": kernel.host_memory_arguments() });
        if kernel.priority != 0 {
            told["priority"] = json!(kernel.priority);
        }
        told
    });
    value["kernels"] = kernels.collect();
    value
}

fn gradient_input_to_json(input: &GradientInput) -> Value {
    match input {
        GradientInput::Input(position) => json!(["input", position]),
        GradientInput::Output(position) => json!(["output", position]),
        GradientInput::OutputGradient(position) => json!(["output_gradient", position]),
    }
}
