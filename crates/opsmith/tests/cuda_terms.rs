//! Gradients of what is repeated, in half precision: on a card their terms are kept as they are computed, whatever kind of body it is.

#[path = "common/cuda.rs"]
mod support;

use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{Array1, Array2, Array3};
use opsmith::prelude::*;
use support::{compare, gradient, kept, numbers};

#[pointwise]
fn scaled<S: Scalar>(x: S, y: S) -> S {
    x * y
}

#[pairwise]
fn inner<S: Scalar>(x: S, y: S) -> S {
    x * y
}

#[reduce]
fn weighted<R: Rows>(x: R::Each, y: R::Each) -> R::One {
    (x * y).sum()
}

#[body("(i,k),(k)->(i)")]
fn product<S: Indexed>(x: S, w: S) -> S {
    (x * w).sum(k)
}

/// Terms are too large for float16, and in part too small for bfloat16, and their sums are not.
fn terms_are_not_rounded<T: RealNumber>(of: fn(f32) -> T) -> Result<()> {
    let mut x = numbers(Array2::zeros((6, 3)));
    x.rows_mut()
        .into_iter()
        .enumerate()
        .for_each(|(i, mut row)| row += if i % 2 == 0 { 300.0 } else { -300.0 });
    let x = kept(x.mapv(|x| of(x as f32)));
    let many = kept(Array2::from_elem((6, 3), of(250.0)));
    let each = kept(Array1::from_elem(6, of(250.0)));
    let row = kept(array![of(1.0), of(2.0), of(3.0)]);
    let of_pointwise = || gradient::<scaled>(1).input(x).input(row).input(many);
    compare::<T, Ix1>(&of_pointwise, &["y_grad"], 0.0)?;
    let of_body = || gradient::<product>(1).input(x).input(row).input(each);
    compare::<T, Ix1>(&of_body, &["w_grad"], 0.0)?;
    let of_reduction = || gradient::<weighted>(1).input(x).input(row).input(each);
    compare::<T, Ix1>(&of_reduction, &["y_grad"], 0.0)?;
    // A batch of pairs, which share the second rows.
    let batch = kept(x.clone().insert_axis(Axis(1)));
    let one = kept(row.clone().insert_axis(Axis(0)));
    let pairs = kept(Array3::from_elem((6, 1, 1), of(250.0)));
    let of_pairs = || gradient::<inner>(1).input(batch).input(one).input(pairs);
    compare::<T, Ix2>(&of_pairs, &["y_grad"], 0.0).map(drop)
}

#[test]
fn terms_of_half_precision_are_not_rounded() -> Result<()> {
    terms_are_not_rounded(f16::from_f32)?;
    terms_are_not_rounded(bf16::from_f32)
}
