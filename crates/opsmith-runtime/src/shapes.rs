//! Shape inference of an op, which its library answers.

use std::ptr::null;

use opsmith_core::abi::shapes::OpsmithShapeQuery;
use opsmith_core::attr::TensorValue;
use opsmith_core::def::ArgDef;
use opsmith_core::{AttrValue, DType, Device, Result, Shape, ensure, memory};

use crate::call::take_error;
use crate::library::Op;
use crate::query;
use crate::storage::from_bytes;
use crate::tensor::{Tensor, byte_size};
use crate::told::{Call, Inferred};

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
        self.infer_call(call)
    }

    /// As [`infer`](Self::infer), of what is told of a call of this op.
    pub(crate) fn infer_call(&self, call: Call) -> Result<Inferred> {
        let answers = &self.library().answers().inferred;
        if let Some(known) = answers.get(&call) {
            return Ok(known);
        }
        let inferred = query::with_query(&call, |query| self.ask_shapes(query))
            .map_err(|error| error.with_op(&self.signature().name))?;
        answers.keep(call, inferred.clone());
        Ok(inferred)
    }

    fn ask_shapes(&self, query: &OpsmithShapeQuery) -> Result<Inferred> {
        let (table, mut shapes) = (self.library().table(), null());
        // SAFETY: the query is valid until the call returns, and `shapes` is a place to write to; the error is taken once.
        unsafe { take_error(table, (table.infer_shapes)(query, &raw mut shapes)) }?;
        // SAFETY: the library gave it, and it is there until it is given back.
        let inferred = unsafe { query::read(shapes) };
        // SAFETY: it is given back once, and nothing of it is kept.
        unsafe { (table.shapes_free)(shapes) };
        let library = self.library().name();
        inferred.map_err(|error| error.within(format_args!("the shapes that library `{library}` tells")))
    }
}

fn is_told(value: &Tensor) -> bool {
    value.dtype() != DType::String && value.num_elements() <= MOST_TOLD
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
