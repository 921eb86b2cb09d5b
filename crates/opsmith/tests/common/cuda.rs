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

/// Both devices give the same numbers, within an error; false where that cannot be done here.
pub(crate) fn compare<T: RealNumber, D: Dimension>(
    form: &dyn Fn() -> Call<'static>,
    outputs: &[&str],
    error: f64,
) -> Result<bool> {
    compare_by::<T, D>(form, outputs, &|a, b| (a - b).abs() <= error)
}

/// Both devices give numbers that are the same by a rule; false where that cannot be done here.
pub(crate) fn compare_by<T: RealNumber, D: Dimension>(
    form: &dyn Fn() -> Call<'static>,
    outputs: &[&str],
    is_same: &dyn Fn(f64, f64) -> bool,
) -> Result<bool> {
    form().compile_for_cuda()?;
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(false) };
    let expected = form().run()?;
    for name in outputs {
        let (own, expected) = (own.array::<T, D>(name)?, expected.array::<T, D>(name)?);
        assert_eq!(own.raw_dim(), expected.raw_dim());
        for (at, (own, expected)) in own.iter().zip(&expected).enumerate() {
            let [a, b] = [own, expected].map(|number| number.to_f64().unwrap_or(f64::NAN));
            assert!(is_same(a, b), "{name}, number {at}: {own:?} where {expected:?} is expected");
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
