//! Reductions that are written once, on CUDA: compiled, and run on the processor against the kernels of the CPU.

#[path = "common/cuda.rs"]
mod support;

use opsmith::ndarray::{Array1, Array2, Array3};
use opsmith::prelude::*;
use opsmith::testing::{Call, call};
use support::{compare, compare_by, gradient, kept, numbers};

/// exp(x) over its sum.
#[reduce]
fn softmax<R: Rows>(x: R::Each) -> R::Each {
    let e = (x - x.amax().detached()).exp();
    e / e.sum()
}

/// What is one for each row, on both sides, what broadcasts, and a number of an attribute.
#[reduce(outputs = [scaled, most])]
fn scaled_rows<R: Rows>(
    x: R::Each,
    weight: R::Each,
    shift: R::One,
    #[attr(default = 0.5)] part: R::One,
) -> (R::Each, R::One) {
    let centred = x - (x.mean() + shift) * part;
    (centred * weight, (centred * centred).amax() + R::One::of(1.0))
}

/// The Euclidean norm along any dims.
#[reduce(axes = any)]
fn norm<R: Rows>(x: R::Each) -> R::One {
    (x * x).sum().sqrt()
}

#[test]
fn rows_short_and_long() -> Result<()> {
    for (rows, length) in [(3, 1), (1, 33), (5, 700), (2, 5000), (0, 4)] {
        let x = kept(numbers(Array2::zeros((rows, length))));
        if !compare::<f64, Ix2>(&move || call::<softmax>().input(x), &["y"], 1e-14)? {
            return Ok(());
        }
        let grad = move || gradient::<softmax>(1).input(x).input(x);
        compare::<f64, Ix2>(&grad, &["x_grad"], 1e-12)?;
        let second = move || gradient::<softmax>(2).input(x).input(x).input(x);
        compare::<f64, Ix2>(&second, &["y_grad_2", "y_grad_grad"], 1e-11)?;
    }
    let x = kept(numbers(Array3::zeros((4, 5, 40))).mapv(|x| x as f32));
    compare::<f32, Ix3>(&move || call::<softmax>().input(x).attr("axes", 2), &["y"], 1e-6)?;
    let turned = kept(x.clone().reversed_axes());
    compare::<f32, Ix3>(&move || call::<softmax>().input(turned), &["y"], 1e-6)?;
    Ok(())
}

#[test]
fn rows_broadcast_and_their_gradients_are_summed() -> Result<()> {
    let x = kept(numbers(Array3::zeros((4, 3, 50))));
    let weight = kept(numbers(Array1::zeros(50)));
    let shift = kept(numbers(Array2::zeros((4, 1))));
    let forward = move || call::<scaled_rows>().input(x).input(weight).input(shift).attr("part", 0.25);
    if !compare::<f64, Ix3>(&forward, &["scaled"], 1e-13)? {
        return Ok(());
    }
    compare::<f64, Ix2>(&forward, &["most"], 1e-13)?;
    let most = kept(numbers(Array2::zeros((4, 3))));
    let grad = move || gradient::<scaled_rows>(1).input(x).input(weight).input(shift).input(x).input(most);
    compare::<f64, Ix3>(&grad, &["x_grad"], 1e-12)?;
    compare::<f64, Ix1>(&grad, &["weight_grad"], 1e-12)?;
    compare::<f64, Ix2>(&grad, &["shift_grad"], 1e-11)?;
    let half = move || gradient::<scaled_rows>(1).input(x).input(weight).input(shift).absent().input(most);
    compare::<f64, Ix1>(&move || half().without("x_grad"), &["weight_grad"], 1e-12)?;
    Ok(())
}

#[test]
fn any_dims_are_a_row() -> Result<()> {
    let x = kept(numbers(Array3::zeros((4, 30, 7))));
    let form = move |axes: &[i64], keep: bool| {
        call::<norm>().input(x).attr("axes", axes.to_vec()).attr("keep_dims", keep)
    };
    if !compare::<f64, Ix2>(&move || form(&[1], false), &["y"], 1e-13)? {
        return Ok(());
    }
    compare::<f64, Ix3>(&move || form(&[0, -1], true), &["y"], 1e-13)?;
    compare::<f64, Ix0>(&move || form(&[], false), &["y"], 1e-12)?;
    let y_grad = kept(numbers(Array2::zeros((4, 7))));
    let y = kept(y_grad.mapv(|y| y.abs() + 1.0));
    let grad = move || gradient::<norm>(1).input(x).input(y).input(y_grad).attr("axes", vec![1i64]);
    compare::<f64, Ix3>(&grad, &["x_grad"], 1e-13)?;
    Ok(())
}

/// What is launched of a call: the grid and the block of each kernel.
fn launched(form: &dyn Fn() -> Call<'static>) -> Result<Vec<([u32; 2], [u32; 2])>> {
    let mut found = Vec::new();
    form().launches(&mut |launch| {
        found.push(([launch.grid[0], launch.grid[1]], [launch.block[0], launch.block[1]]));
        Ok(())
    })?;
    Ok(found)
}

#[test]
fn blocks_share_long_rows() -> Result<()> {
    let x = kept(numbers(Array2::zeros((2, 20_000))));
    let of_all = move || call::<norm>().input(x);
    assert_eq!(launched(&of_all)?, [([1, 9], [1, 256]), ([1, 1], [1, 256])]);
    if !compare::<f64, Ix0>(&of_all, &["y"], 1e-11)? {
        return Ok(());
    }
    // The largest number and the sum; the quotients; and what is not finite then.
    let softmax_of = |x: &'static Array2<f64>| move || call::<softmax>().input(x);
    assert_eq!(launched(&softmax_of(x))?, [([2, 4], [1, 256]); 3]);
    compare::<f64, Ix2>(&softmax_of(x), &["y"], 1e-14)?;
    let mut with_nan = x.clone();
    (with_nan[[0, 15_000]], with_nan[[1, 3]]) = (f64::NAN, f64::INFINITY);
    let same = |a: f64, b: f64| a.is_nan() && b.is_nan() || a == b;
    compare_by::<f64, Ix2>(&softmax_of(kept(with_nan)), &["y"], &same)?;
    let growing = kept(Array2::from_shape_fn((1, 20_000), |(_, j)| (j / 8) as f64 - 1e3));
    compare::<f64, Ix2>(&softmax_of(growing), &["y"], 1e-14)?;
    let back = move || gradient::<softmax>(1).input(x).input(x);
    compare::<f64, Ix2>(&back, &["x_grad"], 1e-10)?;
    let half = kept(x.mapv(opsmith::dtype::f16::from_f64));
    compare::<opsmith::dtype::f16, Ix0>(&move || call::<norm>().input(half), &["y"], 0.0).map(drop)
}

#[test]
fn rows_across_memory_are_gone_through_side_by_side() -> Result<()> {
    let of = |x: &'static Array2<f64>| move || call::<norm>().input(x).attr("axes", vec![0i64]);
    let x = kept(numbers(Array2::zeros((300, 70))));
    assert_eq!(launched(&of(x))?, [([3, 2], [32, 8]), ([3, 1], [32, 8])]);
    for dims in [(300, 70), (40, 33), (2000, 5), (3000, 1), (50, 0), (4000, 64)] {
        let x = kept(numbers(Array2::zeros(dims)));
        if !compare::<f64, Ix1>(&of(x), &["y"], 1e-11)? {
            return Ok(());
        }
    }
    // Softmax along what is not the last dim in memory, of which one row is not finite.
    let mut x = numbers(Array2::zeros((700, 37)));
    (x[[600, 3]], x[[5, 30]]) = (f64::INFINITY, f64::NAN);
    let turned = kept(x.reversed_axes());
    let is_same = |a: f64, b: f64| a.is_nan() && b.is_nan() || (a - b).abs() < 1e-14;
    compare_by::<f64, Ix2>(&move || call::<softmax>().input(turned), &["y"], &is_same)?;
    // Those of a card that is busy with a thread for each.
    let many = kept(numbers(Array2::zeros((33, 66_000))));
    assert_eq!(launched(&of(many))?, [([258, 1], [256, 1])]);
    Ok(())
}

#[test]
fn half_precision_compiles() -> Result<()> {
    let x = kept(Array2::<opsmith::dtype::bf16>::zeros((2, 3)));
    call::<softmax>().input(x).compile_for_cuda()?;
    gradient::<softmax>(1).input(x).input(x).compile_for_cuda().map(drop)
}
