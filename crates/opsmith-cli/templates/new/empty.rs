//! Operators for PyTorch, TensorFlow, JAX, NumPy, ONNX Runtime, Rust and C, as one library.

// Write ops here, after `use opsmith::prelude::*;`, and list them below.
opsmith::library! { name = "{{name}}", ops = [] }
