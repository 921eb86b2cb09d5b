//! What the tests of bodies on CUDA have in common.

use std::any::Any;
use std::sync::Mutex;

use opsmith::ndarray::{Array, Dimension};
use opsmith::prelude::*;
use opsmith::testing::Call;

/// Numbers between -2 and 2, of which some are 0.
pub(crate) fn numbers<D: Dimension>(array: Array<f64, D>) -> Array<f64, D> {
    let mut next = 0;
    array.mapv(|_| {
        next = (next * 29 + 17) % 67;
        (next as f64 - 33.0) / 16.0
    })
}

/// Compares outputs of a call on both devices; false where that cannot be done here.
pub(crate) fn compare<T: RealNumber, D: Dimension>(
    form: &dyn Fn() -> Call<'static>,
    outputs: &[&str],
    error: f64,
) -> Result<bool> {
    form().compile_for_cuda()?;
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(false) };
    let expected = form().run()?;
    for name in outputs {
        let (own, expected) = (own.array::<T, D>(name)?, expected.array::<T, D>(name)?);
        assert_eq!(own.raw_dim(), expected.raw_dim());
        for (own, expected) in own.iter().zip(&expected) {
            let [a, b] = [own, expected].map(|number| number.to_f64().unwrap_or(f64::NAN));
            let difference = (a - b).abs();
            assert!(difference <= error, "{name}: {own:?} where {expected:?} is expected");
        }
    }
    Ok(true)
}

/// An array that lives as long as the tests.
pub(crate) fn kept<T: Send + Sync + 'static, D: Dimension + 'static>(
    array: Array<T, D>,
) -> &'static Array<T, D> {
    // Who looks for leaks finds it here.
    static KEPT: Mutex<Vec<&(dyn Any + Send + Sync)>> = Mutex::new(Vec::new());
    let array: &'static Array<T, D> = Box::leak(Box::new(array));
    KEPT.lock().unwrap().push(array);
    array
}

/// The gradient op of an order.
pub(crate) fn gradient<O: OpDefinition>(order: usize) -> Call<'static> {
    Call::new(O::COMPANIONS[order - 1]())
}
