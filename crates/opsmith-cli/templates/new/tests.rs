//! The ops from Rust. `tests/` has their tests from Python.

use opsmith::ndarray::{Array1, Array2};
use opsmith::testing::{call, shapes};
use opsmith::{infer_error, infer_ok};

use super::*;

fn scaled(x: &Array2<f64>, factor: &Array1<f64>) -> Result<Array2<f64>> {
    call::<scale_rows>()
        .input(x)
        .input(factor)
        .run()?
        .array("z")
}

#[test]
fn rows_are_scaled() -> Result<()> {
    let z = scaled(&array![[1.0, 2.0], [3.0, 4.0]], &array![10.0, 100.0])?;
    assert_eq!(z, array![[10.0, 20.0], [300.0, 400.0]]);
    Ok(())
}

#[test]
fn the_gradient_is_that_of_finite_differences() -> Result<()> {
    let x = array![[0.5, -1.0, 2.0], [0.0, 3.0, -0.25]];
    let factor = array![2.0, -0.5];
    let z_grad = array![[1.0, -2.0, 0.5], [4.0, 0.25, -1.0]];
    let grad = call::<scale_rows_grad>();
    let gradients = grad.input(&x).input(&factor).input(&z_grad).run()?;

    // The outputs, weighted by the gradients that arrive for them, are what is differentiated.
    let loss = |x: &Array2<f64>, factor: &Array1<f64>| Ok((scaled(x, factor)? * &z_grad).sum());
    let step = 1e-6;
    for (at, &gradient) in gradients.array::<f64, Ix2>("x_grad")?.indexed_iter() {
        let (mut above, mut below) = (x.clone(), x.clone());
        above[at] += step;
        below[at] -= step;
        let difference = (loss(&above, &factor)? - loss(&below, &factor)?) / (2.0 * step);
        assert_close(&format!("x{at:?}"), gradient, difference);
    }
    for (at, &gradient) in gradients.array::<f64, Ix1>("factor_grad")?.indexed_iter() {
        let (mut above, mut below) = (factor.clone(), factor.clone());
        above[at] += step;
        below[at] -= step;
        let difference = (loss(&x, &above)? - loss(&x, &below)?) / (2.0 * step);
        assert_close(&format!("factor[{at}]"), gradient, difference);
    }
    Ok(())
}

fn assert_close(what: &str, gradient: f64, difference: f64) {
    let is_close = (gradient - difference).abs() < 1e-6;
    assert!(is_close, "{what}: {gradient} should be {difference}");
}

#[test]
fn shapes_are_inferred_and_checked() -> Result<()> {
    infer_ok!(shapes::<scale_rows>(), "[n,3];[n]", "[n,3]");
    infer_error!(shapes::<scale_rows>(), "must have rank 2", "[4];[4]");

    let x = array![[1.0, 2.0], [3.0, 4.0]];
    let error = scaled(&x, &array![1.0, 2.0, 3.0]).unwrap_err();
    assert!(error.message().contains("`factor`"), "{error}");
    Ok(())
}
