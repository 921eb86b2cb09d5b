//! What NumPy 2.4 prints of the same tensors.

use num_complex::Complex;

use super::*;

fn check<T: Element>(elements: &[T], shape: &[usize], expected: &str) {
    let tensor = Tensor::from_slice(elements, shape).unwrap();
    assert_eq!(tensor.to_string(), expected);
}

#[test]
fn a_matrix() {
    let expected = r"[[  1.     2.5 ]
 [ -3.25 100.  ]]";
    check(&[1.0, 2.5, -3.25, 100.0], &[2, 2], expected);
}

#[test]
fn thirds() {
    let expected = r"[0.33333333 0.66666667 1.        ]";
    check(&[1.0 / 3.0, 2.0 / 3.0, 1.0], &[3], expected);
}

#[test]
fn f32() {
    let expected = r"[0.1        0.2        0.33333334]";
    check(&[0.1f32, 0.2, 1.0 / 3.0], &[3], expected);
}

#[test]
fn powers() {
    let expected = r"[1.00e-05 1.25e+00 0.00e+00]";
    check(&[1e-05, 1.25, 0.0], &[3], expected);
}

#[test]
fn large() {
    let expected = r"[1.e+08 1.e+00]";
    check(&[100000000.0, 1.0], &[2], expected);
}

#[test]
fn special() {
    let expected = r"[ nan  inf -inf  1.5]";
    check(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.5], &[4], expected);
}

#[test]
fn only_special() {
    let expected = r"[nan  1.]";
    check(&[f64::NAN, 1.0], &[2], expected);
}

#[test]
fn zeros() {
    let expected = r"[ 0. -0.]";
    check(&[0.0, -0.0], &[2], expected);
}

#[test]
fn ints() {
    let expected = r"[[  1 -20]
 [300   4]]";
    check(&[1, -20, 300, 4], &[2, 2], expected);
}

#[test]
fn bools() {
    let expected = r"[ True False]";
    check(&[true, false], &[2], expected);
}

#[test]
fn cube() {
    let expected = r"[[[1 2]
  [3 4]]

 [[5 6]
  [7 8]]]";
    check(&[1, 2, 3, 4, 5, 6, 7, 8], &[2, 2, 2], expected);
}

#[test]
fn long_row() {
    let expected = r"[ 0.   1.5  3.   4.5  6.   7.5  9.  10.5 12.  13.5 15.  16.5 18.  19.5
 21.  22.5 24.  25.5 27.  28.5 30.  31.5 33.  34.5 36.  37.5 39.  40.5
 42.  43.5]";
    check(&(0..30).map(|i| f64::from(i) * 1.5).collect::<Vec<_>>(), &[30], expected);
}

#[test]
fn long_ints() {
    let expected = r"[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18 19 20 21 22 23
 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39]";
    check(&(0..40).collect::<Vec<i64>>(), &[40], expected);
}

#[test]
fn summary() {
    let expected = r"[   0    1    2 ... 1997 1998 1999]";
    check(&(0..2000).collect::<Vec<i64>>(), &[2000], expected);
}

#[test]
fn summary_of_a_matrix() {
    let expected = r"[[0.000e+00 1.000e+00 2.000e+00 ... 4.700e+01 4.800e+01 4.900e+01]
 [5.000e+01 5.100e+01 5.200e+01 ... 9.700e+01 9.800e+01 9.900e+01]
 [1.000e+02 1.010e+02 1.020e+02 ... 1.470e+02 1.480e+02 1.490e+02]
 ...
 [1.850e+03 1.851e+03 1.852e+03 ... 1.897e+03 1.898e+03 1.899e+03]
 [1.900e+03 1.901e+03 1.902e+03 ... 1.947e+03 1.948e+03 1.949e+03]
 [1.950e+03 1.951e+03 1.952e+03 ... 1.997e+03 1.998e+03 1.999e+03]]";
    check(&(0..2000).map(f64::from).collect::<Vec<_>>(), &[40, 50], expected);
}

#[test]
fn complex() {
    let expected = r"[[ 1. +2.j   -1.5-0.25j]]";
    check(&[Complex::new(1.0, 2.0), Complex::new(-1.5, -0.25)], &[1, 2], expected);
}

#[test]
fn scalar() {
    let expected = r"0.30000000000000004";
    check(&[0.1 + 0.2], &[], expected);
}

#[test]
fn small_scalar() {
    let expected = r"1e-07";
    check(&[1e-07], &[], expected);
}

#[test]
fn scalar_whole() {
    let expected = r"3.0";
    check(&[3.0], &[], expected);
}

#[test]
fn text_is_cut_as_numbers_are_and_what_has_no_form_is_named() {
    let words: Vec<String> = (0..2000).map(|i| format!("s{i}")).collect();
    let tensor = Tensor::from_strings(&words, &[2000]).unwrap();
    assert_eq!(tensor.to_string(), "['s0' 's1' 's2' ... 's1997' 's1998' 's1999']");
    assert_eq!(Tensor::zeros(DType::QInt8, &[2]).unwrap().to_string(), "Tensor(qint8[2])");
    let turned = Tensor::from_strings(&["a", "b", "c", "d"], &[2, 2]).unwrap().transpose(&[1, 0]).unwrap();
    assert_eq!(turned.to_string(), "Tensor(string[2, 2])");
}
