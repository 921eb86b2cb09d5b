//! Questions about an op in JSON: how Python asks them, whose own structures JSON is.

use opsmith_core::attr::TensorValue;
use opsmith_core::def::ArgDef;
use opsmith_core::shape::{Constraint, Relation};
use opsmith_core::{AttrValue, DType, Error, Result, Shape, Signature, bail, ensure};
use serde_json::{Value, json};

use crate::library::Op;
use crate::told::{Call, Inferred, Known};

impl Op {
    /// Shape inference. The request is `{"inputs": [[shape, …] per argument], "dtypes": [[name, …] per argument], "attrs": {name:
    /// value}}`, null for an argument that is absent; a shape is null or a list of dims, a dim null, a number, a symbol's name or an
    /// expression `["+", a, b]`. Where some inputs are constants it has `"values"` too: for each tensor, or absent input, null or
    /// `{"dtype": name, "shape": dims, "values": [flat]}`. The response is `{"outputs": [[shape, …] per output], "dtypes": [[name, …] per
    /// output], "constraints": [{"relation", "left", "right", "message"}]}`, a relation being `"=="` or `">="`.
    ///
    /// # Errors
    /// `InvalidArgument` when the request is malformed or does not fit the op.
    pub fn infer_shapes_json(&self, request: &str) -> Result<String> {
        let call = read(request).and_then(|request| call(self, &request));
        let inferred = call.and_then(|call| self.infer_call(call));
        Ok(response(&inferred.map_err(|error| error.with_op(&self.signature().name))?).to_string())
    }

    /// As [`explain`](Self::explain). The request is `{"attrs": {name: value}}`, the response
    /// `{"formula": text, "cuda_source": text, "vectors": text}`.
    ///
    /// # Errors
    /// As [`explain`](Self::explain).
    pub fn explain_json(&self, request: &str) -> Result<String> {
        let attrs = read(request).and_then(|request| attributes(self.signature(), &request["attrs"]));
        let attrs = attrs.map_err(|error| error.with_op(&self.signature().name))?;
        let attrs: Vec<(&str, AttrValue)> =
            attrs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let told = self.explain(&attrs)?;
        let told = json!({
            "formula": told.formula,
            "cuda_source": told.cuda_source,
            "vectors": told.vectors,
        });
        Ok(told.to_string())
    }
}

fn read(request: &str) -> Result<Value> {
    serde_json::from_str(request).map_err(|error| Error::invalid_argument(format!("request {error}")))
}

/// What is asked of a call.
fn call(op: &Op, request: &Value) -> Result<Call> {
    let signature = op.signature();
    let shapes = arguments(signature, &request["inputs"], "inputs")?;
    let dtypes = arguments(signature, &request["dtypes"], "dtypes")?;
    let tensors: usize = shapes.iter().map(|list| list.map_or(1, Vec::len)).sum();
    let mut values = values(&request["values"], tensors)?.into_iter();
    let mut inputs = Vec::with_capacity(shapes.len());
    for ((arg, shapes), dtypes) in signature.inputs.iter().zip(shapes).zip(dtypes) {
        let (Some(shapes), Some(dtypes)) = (shapes, dtypes) else {
            values.next();
            inputs.push(None);
            continue;
        };
        let (name, count) = (&arg.name, dtypes.len());
        ensure!(
            shapes.len() == count,
            InvalidArgument for name,
            "input `{name}` has {} shapes, but {count} dtypes",
            shapes.len()
        );
        let tensor = |(shape, dtype): (&Value, &Value)| -> Result<Known> {
            let dtype: DType = dtype.as_str().unwrap_or_default().parse()?;
            Ok((dtype, Shape::from_json(shape)?, values.next().flatten()))
        };
        let list = shapes.iter().zip(dtypes).map(tensor).collect::<Result<Vec<_>>>();
        inputs.push(Some(list.map_err(|error| error.with_argument("input", name))?));
    }
    Ok(Call { op: op.index(), inputs, attrs: attributes(signature, &request["attrs"])? })
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

/// The values of the tensors that are constants.
fn values(values: &Value, tensors: usize) -> Result<Vec<Option<TensorValue>>> {
    let Some(values) = values.as_array() else { return Ok(Vec::new()) };
    let count = values.len();
    ensure!(
        count == tensors,
        InvalidArgument,
        "`values` of the request must be a list of {tensors} values or nulls, one for each tensor, got {count}"
    );
    let value = |json: &Value| match json {
        Value::Null => Ok(None),
        json => TensorValue::from_json(json).map(Some),
    };
    values.iter().map(value).collect()
}

/// The attributes that a request gives.
fn attributes(signature: &Signature, values: &Value) -> Result<Vec<(String, AttrValue)>> {
    let read = |(name, value): (&String, &Value)| {
        let index = signature.attr_index(name).ok_or_else(|| signature.unknown_attr(name))?;
        let value = signature.attrs[index].value_from_json(value);
        Ok((name.clone(), value.map_err(|error| error.with_argument("attribute", name))?))
    };
    values.as_object().into_iter().flatten().map(read).collect()
}

fn response(inferred: &Inferred) -> Value {
    let each = |of: fn(&(DType, Shape)) -> Value| -> Value {
        inferred.outputs.iter().map(|list| list.iter().map(of).collect::<Value>()).collect()
    };
    json!({
        "outputs": each(|(_, shape)| shape.to_json()),
        "dtypes": each(|(dtype, _)| dtype.name().into()),
        "constraints": inferred.constraints.iter().map(constraint).collect::<Value>(),
    })
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
