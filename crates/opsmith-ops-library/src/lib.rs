//! The standard operators as `libopsmith_ops.so`, which PyTorch, TensorFlow and JAX load as they load any op library.
//!
//! They are those of the crate `opsmith-ops`, which programs embed.

opsmith_ops::__library! {}
