//! What the tests of one-body ops share.

use opsmith::ndarray::{Array, ArrayD};
use opsmith::prelude::*;
use opsmith::testing::Call;

/// The gradient op of an order.
pub(crate) fn gradient<'a, O: OpDefinition>(order: usize) -> Call<'a> {
    Call::new(O::COMPANIONS[order - 1]())
}

/// Numbers without a pattern, the same in every run.
pub(crate) fn numbers(shape: &[usize], seed: u64) -> ArrayD<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    Array::from_shape_simple_fn(shape, || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 * 4.0 - 4.0
    })
}

/// Equal shapes, and numbers that differ by a tolerance at most, relative where they are large.
pub(crate) fn assert_close(ours: &ArrayD<f64>, theirs: &ArrayD<f64>, tolerance: f64) {
    assert_eq!(ours.shape(), theirs.shape());
    for (a, b) in ours.iter().zip(theirs) {
        assert!((a - b).abs() <= tolerance * (1.0 + b.abs()), "{a} and {b}");
    }
}
