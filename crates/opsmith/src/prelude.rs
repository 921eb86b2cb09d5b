//! What an author of operators needs in scope: `use opsmith::prelude::*;`.

pub use ndarray::{
    Array1, Array2, Array3, Array4, Array5, Array6, ArrayD, ArrayView0, ArrayView1, ArrayView2, ArrayView3,
    ArrayView4, ArrayView5, ArrayView6, ArrayViewD, ArrayViewMut0, ArrayViewMut1, ArrayViewMut2,
    ArrayViewMut3, ArrayViewMut4, ArrayViewMut5, ArrayViewMut6, ArrayViewMutD, Axis, Ix0, Ix1, Ix2, Ix3, Ix4,
    Ix5, Ix6, IxDyn, Zip, array, azip, s,
};

// Its methods: what implements it is written `R::Each`.
pub use crate::Each as _;
pub use crate::dtype::{AnyFloat, Float, Integer, Number, RealNumber};
pub use crate::{
    Code, Compute, ComputeExt, DType, Element, Error, Index as _, Indexed, IndexedMask as _,
    InferenceContext, KernelDef, OpDef, OpDefinition, OpKernel, OpKernelConstruction, OpKernelContext,
    Result, Rows, Scalar, ShapeFn, TensorView, TensorViewMut, bail, body, dispatch, ensure, kernels, library,
    op, pairwise, pointwise, reduce, shape_fns,
};
