//! Shape inference of an op, through the library's JSON interface.

use opsmith_core::attr::TensorValue;
use opsmith_core::def::ArgDef;
use opsmith_core::{AttrValue, DType, Device, Error, Result, Shape, ensure, memory};
use serde_json::{Map, Value, json};

use crate::library::Op;
use crate::storage::from_bytes;
use crate::tensor::{Tensor, byte_size};
use crate::told::{Call, Inferred, Known};

/// The most elements of a constant that shape inference is told: shapes, paddings and the like are small.
const MOST_TOLD: usize = 256;

/// What is known of one tensor that an op would take.
#[derive(Debug, Clone)]
pub struct Argument {
    /// The type of its elements.
    pub dtype: DType,
    /// As much of its shape as is known.
    pub shape: Shape,
    /// Its value, where that is known too.
    pub value: Option<Tensor>,
}

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
        // An empty list is a list where the definition says so, else an absent input.
        let argument = |((shapes, dtypes), def): ((&Vec<Shape>, &Vec<DType>), &ArgDef)| {
            let known =
                |(shape, &dtype): (&Shape, &DType)| Argument { dtype, shape: shape.clone(), value: None };
            let arguments: Vec<Argument> = shapes.iter().zip(dtypes).map(known).collect();
            (!arguments.is_empty() || def.count.is_list()).then_some(arguments)
        };
        let arguments: Vec<_> =
            shapes.iter().zip(dtypes).zip(&self.signature().inputs).map(argument).collect();
        let attrs: Vec<(&str, &AttrValue)> = attrs.iter().map(|(name, value)| (*name, value)).collect();
        let shapes = |list: Vec<(DType, Shape)>| list.into_iter().map(|(_, shape)| shape).collect();
        Ok(self.infer(&arguments, &attrs)?.outputs.into_iter().map(shapes).collect())
    }

    /// The dtypes and shapes of the outputs, from what is known of the inputs: for each input of the definition its
    /// tensors, or none where it is absent.
    ///
    /// # Errors
    /// `InvalidArgument` when shapes, dtypes or attributes do not fit the op.
    pub fn infer(&self, inputs: &[Option<Vec<Argument>>], attrs: &[(&str, &AttrValue)]) -> Result<Inferred> {
        let told = |argument: &Argument| {
            let value = argument.value.as_ref().filter(|value| is_told(value)).map(Tensor::to_value);
            Ok((argument.dtype, argument.shape.clone(), value.transpose()?))
        };
        let list = |list: &Vec<Argument>| list.iter().map(told).collect::<Result<Vec<_>>>();
        let call = Call {
            op: self.index(),
            inputs: inputs.iter().map(|input| input.as_ref().map(list).transpose()).collect::<Result<_>>()?,
            attrs: attrs.iter().map(|(name, value)| ((*name).to_owned(), (*value).clone())).collect(),
        };
        let answers = &self.library().answers().inferred;
        if let Some(known) = answers.get(&call) {
            return Ok(known);
        }
        let response = self.infer_shapes_json(&request(&call).to_string())?;
        let inferred = serde_json::from_str(&response).ok().and_then(|response| read(&response));
        let inferred = inferred.ok_or_else(|| {
            Error::internal("shape inference gave no shapes").with_op(&self.signature().name)
        })?;
        answers.keep(call, inferred.clone());
        Ok(inferred)
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

fn is_told(value: &Tensor) -> bool {
    value.dtype() != DType::String && value.num_elements() <= MOST_TOLD
}

/// What is told of a call, as JSON.
fn request(call: &Call) -> Value {
    let attrs: Map<String, Value> =
        call.attrs.iter().map(|(name, value)| (name.clone(), value.to_json())).collect();
    let each = |of: &dyn Fn(&Known) -> Value| -> Value {
        let list = |list: &Vec<Known>| list.iter().map(of).collect::<Value>();
        call.inputs.iter().map(|input| input.as_ref().map_or(Value::Null, list)).collect()
    };
    let mut request = json!({
        "inputs": each(&|(_, shape, _)| shape.to_json()),
        "dtypes": each(&|(dtype, ..)| dtype.name().into()),
        "attrs": attrs,
    });
    if call.inputs.iter().flatten().flatten().any(|(_, _, value)| value.is_some()) {
        // Of all tensors, one after the other, null where one is not known.
        let value = |value: &Option<TensorValue>| {
            value.clone().map_or(Value::Null, |value| AttrValue::Tensor(value.into()).to_json())
        };
        let list = |input: &Option<Vec<Known>>| match input {
            Some(list) => list.iter().map(|(_, _, known)| value(known)).collect(),
            None => vec![Value::Null],
        };
        request["values"] = call.inputs.iter().flat_map(list).collect();
    }
    request
}

impl Tensor {
    /// A tensor as an attribute holds one.
    ///
    /// # Errors
    /// `InvalidArgument` when its bytes are not those of as many elements as its shape says; `ResourceExhausted` when the memory cannot be
    /// had.
    pub fn from_value(value: &TensorValue) -> Result<Tensor> {
        if value.dtype == DType::String {
            return Tensor::from_strings(&value.strings, &value.shape);
        }
        let (dtype, shape, bytes) = (value.dtype, &value.shape, value.bytes.len());
        ensure!(
            byte_size(dtype, shape)? == bytes,
            InvalidArgument,
            "a tensor {dtype}{shape:?} does not have {bytes} bytes"
        );
        ensure!(
            dtype != DType::Bool || value.bytes.iter().all(|byte| *byte < 2),
            InvalidArgument,
            "a bool tensor has bytes other than 0 and 1"
        );
        from_bytes(&value.bytes, dtype, shape)
    }

    /// The tensor as an attribute holds one.
    ///
    /// # Errors
    /// `ResourceExhausted` when the memory cannot be had.
    pub fn to_value(&self) -> Result<TensorValue> {
        let mut value =
            TensorValue { dtype: self.dtype(), shape: self.shape().to_vec(), bytes: vec![], strings: vec![] };
        if self.dtype() == DType::String {
            let text = self.strings()?.into_iter();
            let text = text.map(|text| memory::copied(text, "text"));
            value.strings = memory::try_collected(text, "a tensor of text")?;
        } else {
            value.bytes = memory::copied(self.to(Device::CPU)?.to_contiguous()?.bytes(), "a tensor")?;
        }
        Ok(value)
    }
}

fn read(response: &Value) -> Option<Inferred> {
    let (shapes, dtypes) = (response["outputs"].as_array()?, response["dtypes"].as_array()?);
    let output = |(shapes, dtypes): (&Value, &Value)| {
        let tensor = |(shape, dtype): (&Value, &Value)| {
            Some((DType::parse(dtype.as_str()?)?, Shape::from_json(shape).ok()?))
        };
        shapes.as_array()?.iter().zip(dtypes.as_array()?).map(tensor).collect::<Option<Vec<_>>>()
    };
    let outputs = shapes.iter().zip(dtypes).map(output).collect::<Option<Vec<_>>>()?;
    Some(Inferred { outputs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_becomes_a_tensor_and_a_value_again() {
        let number =
            TensorValue { dtype: DType::Int16, shape: vec![2], bytes: vec![1, 0, 2, 0], strings: vec![] };
        let text =
            TensorValue { dtype: DType::String, shape: vec![], bytes: vec![], strings: vec![vec![0xFF]] };
        for value in [&number, &text] {
            assert_eq!(Tensor::from_value(value).unwrap().to_value().unwrap(), *value);
        }
        let short = TensorValue { shape: vec![3], ..number.clone() };
        let message = Tensor::from_value(&short).unwrap_err();
        assert_eq!(message.message(), "a tensor int16[3] does not have 4 bytes");
        let truth = TensorValue { dtype: DType::Bool, shape: vec![4], ..number };
        assert!(Tensor::from_value(&truth).unwrap_err().message().contains("other than 0 and 1"));
        assert!(Tensor::from_value(&TensorValue { shape: vec![2], ..text }).is_err());
    }
}
