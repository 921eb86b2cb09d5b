//! Shape inference of an op, through the library's JSON interface.

use opsmith_core::def::ArgDef;
use opsmith_core::{AttrValue, DType, Error, Result, Shape};
use serde_json::{Map, Value, json};

use crate::op::Op;

impl Op {
    /// The shapes of the outputs for inputs of these shapes and dtypes: for each input of the definition one of each, as
    /// many as its list has, or none where it is absent. Dims may be unknown or symbolic.
    ///
    /// # Errors
    /// `InvalidArgument` when shapes, dtypes or attributes do not fit the op.
    pub fn infer_shapes(
        &self,
        shapes: &[Vec<Shape>],
        dtypes: &[Vec<DType>],
        attrs: &[(&str, AttrValue)],
    ) -> Result<Vec<Vec<Shape>>> {
        let attrs: Map<String, Value> =
            attrs.iter().map(|(name, value)| ((*name).to_owned(), value.to_json())).collect();
        let inputs = &self.signature().inputs;
        // An empty list is a list where the definition says so, else an absent input.
        let argument = |list: Vec<Value>, def: &ArgDef| {
            if list.is_empty() && !def.count.is_list() { Value::Null } else { list.into() }
        };
        let shapes = shapes
            .iter()
            .zip(inputs)
            .map(|(list, def)| argument(list.iter().map(Shape::to_json).collect(), def));
        let dtypes = dtypes
            .iter()
            .zip(inputs)
            .map(|(list, def)| argument(list.iter().map(|dtype| dtype.name().into()).collect(), def));
        let request = json!({
            "inputs": shapes.collect::<Vec<_>>(),
            "dtypes": dtypes.collect::<Vec<_>>(),
            "attrs": attrs,
        });
        let malformed =
            || Error::internal(format!("{}: shape inference gave no shapes", self.signature().name));
        let response = self.infer_shapes_json(&request.to_string())?;
        let response: Value = serde_json::from_str(&response).map_err(|_| malformed())?;
        let outputs = response["outputs"].as_array().ok_or_else(malformed)?;
        let shapes =
            |list: &Value| list.as_array().ok_or_else(malformed)?.iter().map(Shape::from_json).collect();
        outputs.iter().map(shapes).collect()
    }

    /// Shape inference in the form in which it crosses the C ABI: request and response are JSON, see `infer_shapes` in
    /// `opsmith.h`. The response also has the equalities that inference assumed of unknown or symbolic dims.
    ///
    /// # Errors
    /// `InvalidArgument` when the request is malformed or does not fit the op.
    pub fn infer_shapes_json(&self, request: &str) -> Result<String> {
        self.ask(self.library().table().infer_shapes, request)
    }
}
