//! Shape inference through the C ABI: a request and a response in JSON, which the header describes.

use opsmith_core::attr::TensorValue;
use opsmith_core::def::ArgDef;
use opsmith_core::shape::{Constraint, Relation};
use opsmith_core::{
    ArgDTypes, AttrValue, DType, Error, InferenceContext, Op, Result, Shape, Signature, bail, ensure,
};
use serde_json::{Value, json};

use crate::StaticLibrary;

/// Infers the shapes that `request` asks for.
pub(super) fn respond(library: &'static StaticLibrary, op: usize, request: &str) -> Result<String> {
    let op = op_at(library, op)?;
    infer(op, request).map_err(|error| error.with_op(&op.signature().name))
}

fn infer(op: &Op, request: &str) -> Result<String> {
    let signature = op.signature();
    let request = read(request)?;
    let shapes = arguments(signature, &request["inputs"], "inputs")?;
    let dtypes = arguments(signature, &request["dtypes"], "dtypes")?;
    let attrs = attributes(signature, &request["attrs"])?;
    let resolved = resolve(signature, &dtypes, &attrs)?;
    let shapes = shapes
        .iter()
        .map(|list| {
            list.map(|list| list.iter().map(Shape::from_json).collect::<Result<Vec<_>>>()).transpose()
        })
        .collect::<Result<Vec<_>>>()?;
    let values = values(&request["values"])?;
    let mut context = InferenceContext::new(signature, &resolved.attrs, shapes)?;
    if let Some(values) = &values {
        ensure!(
            values.len() == context.num_inputs(),
            InvalidArgument,
            "`values` of the request must be a list of {} values or nulls, one for each tensor, got {}",
            context.num_inputs(),
            values.len()
        );
        context = context.with_input_values(values.iter().map(Option::as_ref).collect());
    }
    op.infer_shapes(&mut context)?;
    let ranges = signature.outputs.iter().map(|output| context.output_range(&output.name));
    let outputs = ranges
        .map(|range| Ok(context.outputs()[range?].iter().map(Shape::to_json).collect::<Vec<_>>()))
        .collect::<Result<Vec<_>>>()?;
    let dtypes: Vec<Vec<&str>> =
        resolved.output_dtypes.iter().map(|list| list.iter().map(|dtype| dtype.name()).collect()).collect();
    let constraints: Vec<Value> = context.constraints().iter().map(constraint).collect();
    Ok(json!({ "outputs": outputs, "dtypes": dtypes, "constraints": constraints }).to_string())
}

/// The values of the tensors that are constants, where the request tells any.
fn values(values: &Value) -> Result<Option<Vec<Option<TensorValue>>>> {
    let Some(values) = values.as_array() else { return Ok(None) };
    let value = |json: &Value| match json {
        Value::Null => Ok(None),
        json => TensorValue::from_json(json).map(Some),
    };
    values.iter().map(value).collect::<Result<_>>().map(Some)
}

/// One list for each argument of the op, `None` for an absent one.
fn arguments<'a>(signature: &Signature, lists: &'a Value, what: &str) -> Result<Vec<Option<&'a Vec<Value>>>> {
    let lists = lists.as_array().filter(|lists| lists.len() == signature.inputs.len());
    let Some(lists) = lists else {
        bail!(
            InvalidArgument,
            "`{what}` of the request must be a list of {} lists, one for each input",
            signature.inputs.len()
        );
    };
    let read = |(list, arg): (&'a Value, &ArgDef)| match list {
        Value::Null => Ok(None),
        Value::Array(list) => Ok(Some(list)),
        other => {
            let arg = &arg.name;
            bail!(InvalidArgument for arg, "`{what}` of input `{arg}` must be a list or null, got {other}")
        }
    };
    lists.iter().zip(&signature.inputs).map(read).collect()
}

/// The op at a position that a caller gave.
pub(super) fn op_at(library: &'static StaticLibrary, index: usize) -> Result<&'static Op> {
    let ops = library.get()?.ops();
    ops.get(index).ok_or_else(|| {
        Error::not_found(format!("library `{}` has {} ops, no op {index}", library.name(), ops.len()))
    })
}

/// A request to an op, which is JSON.
pub(super) fn read(request: &str) -> Result<Value> {
    serde_json::from_str(request).map_err(|error| Error::invalid_argument(format!("request {error}")))
}

/// The attributes that a request gives, in the definition's order.
pub(super) fn attributes(signature: &Signature, values: &Value) -> Result<Vec<Option<AttrValue>>> {
    let mut attrs: Vec<Option<AttrValue>> = vec![None; signature.attrs.len()];
    for (name, value) in values.as_object().into_iter().flatten() {
        let index = signature.attr_index(name).ok_or_else(|| signature.unknown_attr(name))?;
        attrs[index] = Some(
            signature.attrs[index]
                .value_from_json(value)
                .map_err(|error| error.with_argument("attribute", name))?,
        );
    }
    Ok(attrs)
}

fn resolve(
    signature: &Signature,
    dtypes: &[Option<&Vec<Value>>],
    attrs: &[Option<AttrValue>],
) -> Result<opsmith_core::def::Resolved> {
    let read = |(list, arg): (&Option<&Vec<Value>>, &ArgDef)| {
        let read = list.map(|list| list.iter().map(dtype).collect::<Result<Vec<_>>>()).transpose();
        read.map_err(|error| error.with_argument("input", &arg.name))
    };
    let dtypes = dtypes.iter().zip(&signature.inputs).map(read).collect::<Result<Vec<_>>>()?;
    let mut arguments = Vec::with_capacity(dtypes.len());
    for (list, arg) in dtypes.iter().zip(&signature.inputs) {
        arguments.push(match list {
            None => ArgDTypes::Absent,
            Some(list) if arg.count.is_list() => ArgDTypes::List(list),
            Some(list) => {
                ensure!(
                    list.len() == 1,
                    InvalidArgument for &arg.name,
                    "input `{}` is one tensor, got {} dtypes",
                    arg.name,
                    list.len()
                );
                ArgDTypes::One(list[0])
            }
        });
    }
    signature.resolve(&arguments, attrs)
}

fn dtype(name: &Value) -> Result<DType> {
    name.as_str().unwrap_or_default().parse()
}

fn constraint(constraint: &Constraint) -> Value {
    let relation = match constraint.relation {
        Relation::Equal => "==",
        Relation::AtLeast => ">=",
    };
    json!({
        "relation": relation,
        "left": constraint.left.to_json(),
        "right": constraint.right.to_json(),
        "message": constraint.message,
    })
}
