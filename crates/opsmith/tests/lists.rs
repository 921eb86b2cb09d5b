//! `#[op]` with lists of tensors: any number of inputs or outputs in one argument.

use opsmith::prelude::*;
use opsmith::testing::{self, call, view};
use opsmith::{Library, infer_error, infer_ok};

/// The largest of several vectors, element by element.
#[op(shape = "(n)->(n)", gradient = largest_grad)]
fn largest<T: Float>(terms: &[ArrayView1<T>], mut z: ArrayViewMut1<T>) {
    z.assign(&terms[0]);
    for term in terms {
        z.zip_mut_with(term, |z, &x| *z = z.max(x));
    }
}

/// Those that are the largest get all of it.
#[op(shape = "(n),(n),(n)->(n)")]
fn largest_grad<T: Float>(
    terms: Vec<ArrayView1<T>>,
    z: ArrayView1<T>,
    z_grad: ArrayView1<T>,
    terms_grad: Option<&mut [ArrayViewMut1<T>]>,
) {
    let Some(terms_grad) = terms_grad else { return };
    for (term, term_grad) in terms.iter().zip(terms_grad) {
        azip!((g in term_grad, &x in term, &z in &z, &z_grad in &z_grad) {
            *g = if x == z { z_grad } else { T::zero() };
        });
    }
}

/// Several vectors as the rows of a matrix, and each of them plus a constant of its list.
#[op(shape = "(n),()->(N_rows,n),(n)")]
fn stacked(
    rows: &[ArrayView1<f64>],
    shifts: &[ArrayView0<f64>],
    mut matrix: ArrayViewMut2<f64>,
    rows_grad: &mut [ArrayViewMut1<f64>],
) {
    let shift: f64 = shifts.iter().map(|shift| shift[()]).sum();
    for (i, row) in rows.iter().enumerate() {
        matrix.row_mut(i).assign(row);
        rows_grad[i].assign(&(row + shift));
    }
}

#[test]
fn a_list_is_one_argument_of_any_length() {
    let op = largest::def().build().unwrap();
    let attrs: Vec<String> = op.signature().attrs.iter().map(ToString::to_string).collect();
    assert_eq!(attrs, ["N: int >= 1", "T: {float32, float64}"]);
    assert!(op.signature().attrs[0].inferred);
    let (a, b, c) = (array![1.0, 5.0], array![3.0, 2.0], array![0.0, 9.0]);
    let three = call::<largest>().input_list([view(&a), view(&b), view(&c)]).run().unwrap();
    assert_eq!(three.array::<f64, Ix1>("z").unwrap(), array![3.0, 9.0]);
    let one = call::<largest>().input_list([view(&a)]).run().unwrap();
    assert_eq!(one.array::<f64, Ix1>("z").unwrap(), a);
}

#[test]
fn a_list_of_gradients_is_as_long_as_its_input() {
    Library::new("lists", "1", vec![largest::def(), largest_grad::def()]).unwrap();
    let (a, b) = (array![1.0, 5.0], array![3.0, 2.0]);
    let (z, z_grad) = (array![3.0, 5.0], array![10.0, 20.0]);
    let lists = || call::<largest_grad>().input_list([view(&a), view(&b)]).input(&z).input(&z_grad);
    let outputs = lists().run().unwrap();
    assert_eq!(outputs.count("terms_grad"), 2);
    assert_eq!(outputs.element::<f64, Ix1>("terms_grad", 0).unwrap(), array![0.0, 20.0]);
    assert_eq!(outputs.element::<f64, Ix1>("terms_grad", 1).unwrap(), array![10.0, 0.0]);
    assert!(!lists().without("terms_grad").run().unwrap().has("terms_grad"));
}

#[test]
fn several_lists_have_lengths_of_their_own() {
    let (a, b, shift) = (array![1.0, 2.0], array![3.0, 4.0], opsmith::ndarray::arr0(0.5));
    let shifts = [view(&shift), view(&shift), view(&shift)];
    let outputs = call::<stacked>().input_list([view(&a), view(&b)]).input_list(shifts).run().unwrap();
    assert_eq!(outputs.array::<f64, Ix2>("matrix").unwrap(), array![[1.0, 2.0], [3.0, 4.0]]);
    assert_eq!(outputs.element::<f64, Ix1>("rows_grad", 1).unwrap(), array![4.5, 5.5]);
}

#[test]
fn what_does_not_fit_in_a_list_is_named() {
    let message = |call: testing::Call<'_>| call.run().unwrap_err().message().to_owned();
    let (a, longer, matrix) = (array![1.0, 2.0], array![1.0, 2.0, 3.0], array![[1.0, 2.0]]);
    assert_eq!(
        message(call::<largest>().input_list([])),
        "Largest: input `terms` has 0 tensors, but N must be at least 1"
    );
    assert_eq!(
        message(call::<largest>().input_list([view(&a), view(&longer)])),
        "Largest: dim 0 of input `terms[1]` must equal dim 0 of input `terms[0]` (n): 3 ≠ 2"
    );
    assert_eq!(
        message(call::<largest>().input_list([view(&a), view(&matrix)])),
        "Largest: input `terms[1]` must have rank 1, (n), got rank 2 (shape [1,2])"
    );
    infer_ok!(testing::shapes::<largest>(), "[?];[2]", "[2]");
    infer_error!(testing::shapes::<largest>(), "terms", "[2];[3]");
    infer_ok!(testing::shapes::<largest_grad>(), "[2];[2];[2];[2]", "[2];[2]");
}
