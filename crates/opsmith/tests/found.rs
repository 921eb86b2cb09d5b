//! `#[op]` with outputs whose shape the function finds, from the data.

use opsmith::prelude::*;
use opsmith::testing::{self, call};
use opsmith::{Library, infer_error, infer_ok};

/// The rows that have no NaN, and where they are.
#[op(shape = "(n,p)->(?,p),(?)", gradient = whole_rows_grad)]
fn whole_rows<T: Float>(x: ArrayView2<T>, rows: &mut Array2<T>, positions: &mut Array1<i64>) {
    let whole = |&i: &usize| !x.row(i).iter().any(|x| x.is_nan());
    let found: Vec<usize> = (0..x.nrows()).filter(whole).collect();
    *rows = x.select(Axis(0), &found);
    *positions = found.iter().map(|&i| i as i64).collect();
}

/// Puts the rows back.
#[op(shape = "(n,p),(m),(m,p)->(n,p)")]
fn whole_rows_grad<T: Float>(
    x: ArrayView2<T>,
    positions: ArrayView1<i64>,
    rows_grad: ArrayView2<T>,
    mut x_grad: ArrayViewMut2<T>,
) -> Result<()> {
    x_grad.fill(T::zero());
    for (&i, row) in positions.iter().zip(rows_grad.outer_iter()) {
        let place = usize::try_from(i).ok().filter(|&i| i < x.nrows());
        let Some(place) = place else {
            bail!(InvalidArgument, "`positions` has {i}, but `x` has {} rows", x.nrows());
        };
        x_grad.row_mut(place).assign(&row);
    }
    Ok(())
}

/// The numbers above a bound, of tensors of any rank; how many are above in each row only where that is wanted.
#[op(shape = "(...,n)->(?),(?,1)", not_differentiable)]
fn above(
    x: ArrayViewD<f32>,
    #[attr(default = 0.0)] bound: f32,
    values: &mut Array1<f32>,
    counts: Option<&mut Array2<u8>>,
) -> Result<()> {
    ensure!(!bound.is_nan(), InvalidArgument, "bound: is NaN");
    *values = x.iter().copied().filter(|&x| x > bound).collect();
    if let Some(counts) = counts {
        let rows = x.rows();
        let count = |row: ArrayView1<f32>| row.iter().filter(|&&x| x > bound).count() as u8;
        *counts = rows.into_iter().map(count).collect::<Array1<u8>>().insert_axis(Axis(1));
    }
    Ok(())
}

/// Leaves one output as it is, and makes the other too wide.
#[op(shape = "(n)->(?,2),(?)")]
fn careless(x: ArrayView1<f64>, #[attr] wide: bool, pairs: &mut Array2<f64>, rest: &mut Array1<f64>) {
    if wide {
        *pairs = Array2::zeros((x.len(), 3));
    }
    *rest = x.to_owned();
}

#[test]
fn the_data_decide_how_many_there_are() {
    Library::new("found", "1", vec![whole_rows::def(), whole_rows_grad::def()]).unwrap();
    let x = array![[1.0, 2.0], [f64::NAN, 3.0], [4.0, 5.0]];
    let outputs = call::<whole_rows>().input(&x).run().unwrap();
    assert_eq!(outputs.array::<f64, Ix2>("rows").unwrap(), array![[1.0, 2.0], [4.0, 5.0]]);
    assert_eq!(outputs.array::<i64, Ix1>("positions").unwrap(), array![0, 2]);
    let none = call::<whole_rows>().input(&array![[f32::NAN]]).run().unwrap();
    assert_eq!(none.array::<f32, Ix2>("rows").unwrap().shape(), [0, 1]);

    let (positions, rows_grad) = (array![0_i64, 2], array![[1.0, 1.0], [2.0, 2.0]]);
    let outputs = call::<whole_rows_grad>().input(&x).input(&positions).input(&rows_grad).run().unwrap();
    let x_grad = outputs.array::<f64, Ix2>("x_grad").unwrap();
    assert_eq!(x_grad, array![[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]);
    for none in [-1_i64, 3] {
        let positions = array![0, none];
        let error =
            call::<whole_rows_grad>().input(&x).input(&positions).input(&rows_grad).run().unwrap_err();
        assert_eq!(error.message(), format!("WholeRowsGrad: `positions` has {none}, but `x` has 3 rows"));
    }
}

#[test]
fn what_is_not_wanted_is_not_made_and_errors_come_first() {
    let x = array![[1.0_f32, -2.0], [3.0, 4.0]];
    let outputs = call::<above>().input(&x).run().unwrap();
    assert_eq!(outputs.array::<f32, Ix1>("values").unwrap(), array![1.0, 3.0, 4.0]);
    assert_eq!(outputs.array::<u8, Ix2>("counts").unwrap(), array![[1], [2]]);
    assert!(!call::<above>().input(&x).without("counts").run().unwrap().has("counts"));
    let error = call::<above>().input(&x).attr("bound", f64::NAN).run().unwrap_err();
    assert_eq!(error.message(), "Above: bound: is NaN");
}

#[test]
fn a_shape_that_the_signature_does_not_have_is_named() {
    let run = |wide: bool| call::<careless>().input(&array![1.0]).attr("wide", wide).run();
    assert_eq!(
        run(true).unwrap_err().message(),
        "Careless: output `pairs`: expected shape [?, 2], but the kernel made shape [1, 3]"
    );
    assert_eq!(
        run(false).unwrap_err().message(),
        "Careless: output `pairs`: expected shape [?, 2], but the kernel made shape [0, 0]"
    );
}

#[test]
fn such_a_dim_is_unknown_until_then() {
    infer_ok!(testing::shapes::<whole_rows>(), "[5,2]", "[?,d0_1];[?]");
    infer_ok!(testing::shapes::<above>(), "[3,4]", "[?];[?,1]");
    infer_error!(testing::shapes::<whole_rows>(), "rank 2", "[5]");
}
