//! A tour of the definition language: `ZeroOut`, the first op, in all its versions, and small ops for the rest.
//!
//! `ZeroOut` copies its input and sets every element to zero but one. Each version adds one thing to the one before
//! it, and has a name of its own. Read the modules in this order:
//!
//! 1. [`plain`]: an op of one dtype, its shape function and its kernel;
//! 2. [`index`]: attributes, and the checks of a kernel's constructor;
//! 3. [`dtypes`]: one op for several dtypes, with kernels by hand and generic ones;
//! 4. [`gradient`]: the gradient as an op, and the gradient of the gradient;
//! 5. [`in_place`]: an input that is changed in place;
//! 6. [`rows`]: the same as a function, with `#[op]`;
//! 7. `launches`: how the CUDA kernel of 1 and 6 is launched, which stands in `zero_out.cu`;
//! 8. [`attributes`], [`lists`], [`outputs`] and [`state`]: everything that `ZeroOut` does not need.

pub mod attributes;
pub mod dtypes;
pub mod gradient;
pub mod in_place;
pub mod index;
mod launches;
pub mod lists;
pub mod outputs;
pub mod plain;
pub mod rows;
pub mod state;

opsmith::library! {
    name = "zero_out",
    ops = [
        plain::ZeroOut,
        plain::ZeroOutVector,
        index::ZeroOutPreserve,
        index::ZeroOutPreserveDefault,
        dtypes::ZeroOutFloatInt,
        dtypes::ZeroOutDefaultType,
        dtypes::ZeroOutReal,
        gradient::ZeroOutGrad,
        gradient::ZeroOutGradGrad,
        in_place::ZeroOutInPlace,
        rows::zero_out_rows,
        rows::zero_out_rows_grad,
        rows::zero_out_rows_grad_grad,
        attributes::AttrDefaults,
        attributes::AttrDefaultsOfTensors,
        attributes::FruitPrice,
        attributes::Repeat,
        attributes::ZerosOfTypes,
        lists::SumInts,
        lists::SumAll,
        lists::sum_all_grad,
        lists::sum_all_grad_grad,
        lists::ZeroOutEach,
        outputs::max_with_index,
        outputs::max_with_index_grad,
        outputs::max_with_index_grad_grad,
        outputs::StringToNumber,
        outputs::NonZero,
        state::Counter,
    ],
}
