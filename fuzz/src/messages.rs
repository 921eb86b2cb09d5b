//! TensorFlow's messages: a node with its attributes.

use opsmith_core::AttrValue;
use opsmith_core::attr::{AttrBase, AttrType, TensorValue};
use opsmith_core::tensor::checked_num_elements;
use opsmith_frameworks::tensorflow::proto::{attr_value, node_attrs};

/// A byte that says of which type attributes are read, and a node. Tensors have the bytes that their shapes say, of truth values none
/// but 0 and 1.
pub(crate) fn tensorflow(data: &[u8]) {
    let [kind, message @ ..] = data else { return };
    let base = AttrBase::ALL[usize::from(kind >> 1) % AttrBase::ALL.len()];
    let ty = AttrType { base, list: kind & 1 == 1 };
    let attrs = node_attrs(message).map(|(_, value)| value);
    for value in attrs.chain([message]) {
        let Ok(value) = attr_value(ty, value) else { continue };
        assert_eq!(value.attr_type(), ty);
        match &value {
            AttrValue::Tensor(tensor) => check(tensor),
            AttrValue::Tensors(tensors) => tensors.iter().for_each(|tensor| check(tensor)),
            _ => {}
        }
    }
}

/// A tensor is as large as it says.
pub(crate) fn check(tensor: &TensorValue) {
    let count = checked_num_elements(&tensor.shape).expect("its shape overflows");
    match tensor.dtype {
        opsmith_core::DType::String => assert_eq!(tensor.strings.len(), count),
        dtype => assert_eq!(tensor.bytes.len(), count * dtype.size(), "{dtype} {:?}", tensor.shape),
    }
    if tensor.dtype == opsmith_core::DType::Bool {
        assert!(tensor.bytes.iter().all(|byte| *byte <= 1), "a truth value that is none");
    }
}
