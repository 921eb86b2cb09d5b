//! The numbers that cross the C ABI are the core's own: dtypes, codes of errors, kinds of devices.

use opsmith_core::abi::*;
use opsmith_core::{Code, DType, DeviceKind};

#[test]
fn dtypes() {
    let numbers = [
        OPSMITH_FLOAT32,
        OPSMITH_FLOAT64,
        OPSMITH_INT32,
        OPSMITH_UINT8,
        OPSMITH_INT16,
        OPSMITH_INT8,
        OPSMITH_STRING,
        OPSMITH_COMPLEX64,
        OPSMITH_INT64,
        OPSMITH_BOOL,
        OPSMITH_QINT8,
        OPSMITH_QUINT8,
        OPSMITH_QINT32,
        OPSMITH_BFLOAT16,
        OPSMITH_QINT16,
        OPSMITH_QUINT16,
        OPSMITH_UINT16,
        OPSMITH_COMPLEX128,
        OPSMITH_FLOAT16,
        OPSMITH_UINT32,
        OPSMITH_UINT64,
    ];
    assert_eq!(numbers, DType::ALL.map(|dtype| dtype as i32));
}

#[test]
fn codes() {
    let numbers = [
        OPSMITH_CANCELLED,
        OPSMITH_UNKNOWN,
        OPSMITH_INVALID_ARGUMENT,
        OPSMITH_DEADLINE_EXCEEDED,
        OPSMITH_NOT_FOUND,
        OPSMITH_ALREADY_EXISTS,
        OPSMITH_PERMISSION_DENIED,
        OPSMITH_RESOURCE_EXHAUSTED,
        OPSMITH_FAILED_PRECONDITION,
        OPSMITH_ABORTED,
        OPSMITH_OUT_OF_RANGE,
        OPSMITH_UNIMPLEMENTED,
        OPSMITH_INTERNAL,
        OPSMITH_UNAVAILABLE,
        OPSMITH_DATA_LOSS,
    ];
    assert_eq!(numbers, Code::ALL.map(|code| code as i32));
}

#[test]
fn devices() {
    assert_eq!(OPSMITH_DEVICE_CPU, DeviceKind::Cpu as i32);
    assert_eq!(OPSMITH_DEVICE_CUDA, DeviceKind::Cuda as i32);
}
