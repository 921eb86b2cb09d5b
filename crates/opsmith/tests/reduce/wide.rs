//! Rows of many inputs, and rows that lie across memory.

use opsmith::ndarray::{ArrayD, Axis, IxDyn};
use opsmith::prelude::*;
use opsmith::testing::call;

use super::common::{assert_close, gradient, numbers};
use super::summed_to;

#[reduce]
fn sum_of_forty<R: Rows>(
    a0: R::One,
    a1: R::Each,
    a2: R::Each,
    a3: R::Each,
    a4: R::One,
    a5: R::Each,
    a6: R::Each,
    a7: R::Each,
    a8: R::One,
    a9: R::Each,
    b0: R::Each,
    b1: R::Each,
    b2: R::One,
    b3: R::Each,
    b4: R::Each,
    b5: R::Each,
    b6: R::One,
    b7: R::Each,
    b8: R::Each,
    b9: R::Each,
    c0: R::One,
    c1: R::Each,
    c2: R::Each,
    c3: R::Each,
    c4: R::One,
    c5: R::Each,
    c6: R::Each,
    c7: R::Each,
    c8: R::One,
    c9: R::Each,
    d0: R::Each,
    d1: R::Each,
    d2: R::One,
    d3: R::Each,
    d4: R::Each,
    d5: R::Each,
    d6: R::One,
    d7: R::Each,
    d8: R::Each,
    d9: R::Each,
) -> R::One {
    let each = a1
        + a2
        + a3
        + a5
        + a6
        + a7
        + a9
        + b0
        + b1
        + b3
        + b4
        + b5
        + b7
        + b8
        + b9
        + c1
        + c2
        + c3
        + c5
        + c6
        + c7
        + c9
        + d0
        + d1
        + d3
        + d4
        + d5
        + d7
        + d8
        + d9;
    let one = a0 + a4 + a8 + b2 + b6 + c0 + c4 + c8 + d2 + d6;
    each.sum() * one
}

#[test]
fn forty_inputs_are_computed() {
    assert_eq!(sum_of_forty::COMPANIONS.len(), 1, "the second order would have 81 inputs");
    let of_rows: [&[usize]; 3] = [&[6], &[1], &[]];
    let of_positions: [&[usize]; 4] = [&[6, 50], &[1, 50], &[6, 1], &[50]];
    let shape = |k: usize| if k.is_multiple_of(4) { of_rows[k % 3] } else { of_positions[k % 3 + k % 2] };
    let inputs: Vec<ArrayD<f64>> = (0..40).map(|k| numbers(shape(k), k as u64)).collect();
    let sum = |own: bool, all: &[usize]| {
        let chosen = inputs.iter().enumerate().filter(|(k, _)| k.is_multiple_of(4) == own);
        chosen.fold(ArrayD::zeros(all), |sum, (_, x)| sum + x)
    };
    let (each, one) = (sum(false, &[6, 50]).sum_axis(Axis(1)), sum(true, &[6]));
    let outputs = inputs.iter().fold(call::<sum_of_forty>(), |call, input| call.input(input)).run().unwrap();
    assert_close(&outputs.array("y").unwrap(), &(&each * &one), 1e-12);
    let weights = numbers(&[6], 99);
    let sum = outputs.array::<f64, IxDyn>("saved_1").unwrap();
    let taken = inputs.iter().chain([&sum, &weights]);
    let outputs = taken.fold(gradient::<sum_of_forty>(1), |call, input| call.input(input));
    let outputs = outputs.threads(2).run().unwrap();
    assert_close(&outputs.array("a0_grad").unwrap(), &(&each * &weights), 1e-12);
    let by_row = (&one * &weights).insert_axis(Axis(1));
    for k in [10, 11, 13] {
        let full = &by_row + &ArrayD::<f64>::zeros(vec![6, 50]);
        let expected = summed_to(&full, inputs[k].shape());
        let name = format!("{}{}_grad", ["a", "b", "c", "d"][k / 10], k % 10);
        assert_close(&outputs.array(&name).unwrap(), &expected, 1e-12);
    }
}

/// Numbers of a row on its own scale, in two passes, with outputs of both kinds.
#[reduce(axes = any, outputs = [scaled, spread])]
fn scaled<R: Rows>(x: R::Each) -> (R::Each, R::One) {
    let centred = x - x.mean();
    let spread = (centred * centred).mean().sqrt();
    (centred / spread, spread)
}

#[test]
fn rows_across_memory_are_computed_as_rows_along_it() {
    for (length, rows, threads) in [(200, 16, 1), (3000, 40, 3), (2100, 1100, 2)] {
        let x = numbers(&[length, rows], 60);
        let along = x.t().as_standard_layout().into_owned();
        let of = |x: &ArrayD<f64>, axis: i64, weights: &ArrayD<f64>| {
            let outputs = call::<scaled>().input(x).attr("axes", vec![axis]).threads(threads).run().unwrap();
            let [scaled, spread, sum]: [ArrayD<f64>; 3] =
                ["scaled", "spread", "saved_1"].map(|name| outputs.array(name).unwrap());
            let call =
                gradient::<scaled>(1).input(x).input(&spread).input(&sum).input(weights).input(&spread);
            let outputs = call.attr("axes", vec![axis]).threads(threads).run().unwrap();
            (scaled, spread, outputs.array::<f64, IxDyn>("x_grad").unwrap())
        };
        let weights = numbers(&[length, rows], 61);
        let (scaled, spread, grad) = of(&x, 0, &weights);
        let expected = of(&along, 1, &weights.t().as_standard_layout().into_owned());
        assert_close(&scaled.t().to_owned(), &expected.0, 1e-12);
        assert_close(&spread, &expected.1, 1e-12);
        assert_close(&grad.t().to_owned(), &expected.2, 1e-12);
    }
}
