//! Bodies over named axes on CUDA: compiled, and run on the processor against the kernels of the CPU.

#[path = "common/cuda.rs"]
mod support;

use opsmith::ndarray::{Array1, Array2, Array3};
use opsmith::prelude::*;
use opsmith::testing::{Call, call};
use support::{compare, gradient, kept, numbers};

/// Σⱼ exp(−γ |xᵢ − yⱼ|²) bⱼ.
#[body("(i,k),(j,k),(j,e)->(i,e)")]
fn gaussian_convolution<S: Indexed>(x: S, y: S, b: S, #[attr(default = 1.0)] gamma: S) -> S {
    let d = ((x - y) * (x - y)).sum(k);
    ((d * -gamma).exp() * b).sum(j)
}

/// Attention, causal.
#[body("(i,k),(j,k),(j,e)->(i,e)")]
fn attention<S: Indexed>(query: S, key: S, value: S) -> S {
    let fit = (query * key).sum(k);
    let fit = S::select(S::index(j).gt(S::index(i)), S::of(f64::NEG_INFINITY), fit);
    let weight = (fit - fit.amax(j).detached()).exp();
    (weight * value).sum(j) / weight.sum(j)
}

/// The nearest row of y.
#[body("(i,k),(j,k)->(i)")]
fn nearest<S: Indexed>(x: S, y: S) -> S::Index {
    ((x - y) * (x - y)).sum(k).argmin(j)
}

/// Folds of masks, the size of an axis, and two outputs on different axes.
#[body("(k,i),(i)->(i),(k)", outputs = [above, share])]
fn shares<S: Indexed>(x: S, w: S) -> (S, S) {
    let above = x.gt(x.mean(k));
    (above.count(k) / S::count(k) * w, S::select(above.any(i), (x * w).sum(i), x.log_sum_exp(i)))
}

/// Labels and masks in, truth values out.
#[body("(i,c),(i),(i,c)->(i,c)")]
fn is_likely<S: Indexed>(x: S, label: S::Index, keep: S::Mask) -> S::Mask {
    keep & x.gt(S::select(S::index(c).eq(label), x, S::of(f64::NEG_INFINITY)).amax(c))
}

/// What is beside positions and masks has a gradient.
#[body("(i,c),(i),(i,c)->(i)")]
fn loss<S: Indexed>(x: S, label: S::Index, keep: S::Mask) -> S {
    let x = S::select(keep, x, S::of(0.0));
    x.log_sum_exp(c) - S::select(S::index(c).eq(label), x, S::of(0.0)).sum(c)
}

/// Numbers times weights that the batch may share.
#[body("(k),(k)->(k)")]
fn weighted<S: Indexed>(x: S, w: S) -> S {
    x * w
}

/// The product of each row.
#[body("(i,k)->(i)")]
fn product<S: Indexed>(x: S) -> S {
    x.prod(k)
}

#[test]
fn pairs_of_rows() -> Result<()> {
    for (n, m, p, e) in [(40, 33, 3, 4), (1, 1, 1, 1), (4, 0, 2, 2), (0, 3, 1, 1)] {
        let x = kept(numbers(Array2::zeros((n, p))));
        let y = kept(numbers(Array2::zeros((m, p))).mapv(|y| y * 0.7 + 0.1));
        let (b, z) = (kept(numbers(Array2::zeros((m, e)))), kept(numbers(Array2::zeros((n, e)))));
        let forward = move || call::<gaussian_convolution>().input(x).input(y).input(b).attr("gamma", 0.3);
        if !compare::<f64, Ix2>(&forward, &["z"], 1e-13)? {
            return Ok(());
        }
        let first = move || gradient::<gaussian_convolution>(1).input(x).input(y).input(b).input(z);
        compare::<f64, Ix2>(&first, &["x_grad", "y_grad", "b_grad"], 1e-12)?;
        let second = move || {
            gradient::<gaussian_convolution>(2).input(x).input(y).input(b).input(z).input(x).absent().input(b)
        };
        compare::<f64, Ix2>(&second, &["x_grad", "y_grad", "z_grad_grad"], 1e-11)?;
    }
    Ok(())
}

#[test]
fn pairs_of_rows_in_tiles() -> Result<()> {
    let matrix = |rows, columns| kept(numbers(Array2::zeros((rows, columns))).mapv(|x| x * 0.3));
    let (x, y, b, z) = (matrix(260, 17), matrix(270, 17), matrix(270, 21), matrix(260, 21));
    let is_tiled = |call: Call<'static>| -> Result<bool> {
        Ok(call.kernels_launched()?.iter().all(|kernel| kernel.contains("_tiled_")))
    };
    let forward = move || call::<gaussian_convolution>().input(x).input(y).input(b).attr("gamma", 0.3);
    assert!(is_tiled(forward())?);
    if !compare::<f64, Ix2>(&forward, &["z"], 1e-12)? {
        return Ok(());
    }
    let first = move || gradient::<gaussian_convolution>(1).input(x).input(y).input(b).input(z);
    assert!(is_tiled(first())?);
    compare::<f64, Ix2>(&first, &["x_grad", "y_grad", "b_grad"], 1e-11)?;
    let second = move || {
        gradient::<gaussian_convolution>(2).input(x).input(y).input(b).input(z).input(x).absent().input(b)
    };
    compare::<f64, Ix2>(&second, &["x_grad", "y_grad", "b_grad", "z_grad_grad"], 1e-10)?;
    let stack = |n, rows, columns| kept(numbers(Array3::zeros((n, rows, columns))).mapv(|x| x * 0.3));
    let (query, key, value) = (stack(3, 70, 16), stack(3, 75, 16), stack(1, 75, 20));
    let forward = move || call::<attention>().input(query).input(key).input(value);
    assert!(
        !is_tiled(forward())? && forward().kernels_launched()?.iter().any(|name| name.contains("_tiled_"))
    );
    compare::<f64, Ix3>(&forward, &["z"], 1e-12)?;
    let z = stack(3, 70, 20);
    let grad = move || gradient::<attention>(1).input(query).input(key).input(value).input(z).input(z);
    compare::<f64, Ix3>(&grad, &["query_grad", "key_grad", "value_grad"], 1e-11)?;
    let single = |array: &Array3<f64>| kept(array.mapv(|x| x as f32));
    let (query, key, value) = (single(query), single(key), single(value));
    let forward = move || call::<attention>().input(query).input(key).input(value);
    compare::<f32, Ix3>(&forward, &["z"], 1e-5)?;
    Ok(())
}

#[test]
fn folds_of_folds_in_a_batch() -> Result<()> {
    let query = kept(numbers(Array3::zeros((2, 7, 3))));
    let key = kept(numbers(Array2::zeros((9, 3))).mapv(|x| x * 0.5));
    let value = kept(numbers(Array3::zeros((1, 9, 2))));
    if !compare::<f64, Ix3>(&move || call::<attention>().input(query).input(key).input(value), &["z"], 1e-13)?
    {
        return Ok(());
    }
    let z = kept(numbers(Array3::zeros((2, 7, 2))));
    let grad = move || gradient::<attention>(1).input(query).input(key).input(value).input(z).input(z);
    compare::<f64, Ix3>(&move || grad().without("key_grad"), &["query_grad", "value_grad"], 1e-12)?;
    compare::<f64, Ix2>(&move || grad().without("query_grad").without("value_grad"), &["key_grad"], 1e-12)?;
    Ok(())
}

#[test]
fn positions_masks_and_sizes() -> Result<()> {
    let x = kept(numbers(Array2::zeros((50, 3))));
    let y = kept(numbers(Array2::zeros((40, 3))).mapv(|y| y * 0.9));
    if !compare::<i64, Ix1>(&move || call::<nearest>().input(x).input(y), &["z"], 0.0)? {
        return Ok(());
    }
    let w = kept(numbers(Array1::zeros(3)));
    compare::<f64, Ix1>(&move || call::<shares>().input(x).input(w), &["above", "share"], 1e-13)?;
    let turned = kept(numbers(Array2::zeros((3, 50))).reversed_axes());
    compare::<f64, Ix1>(&move || call::<shares>().input(turned).input(w), &["above", "share"], 1e-13)?;
    Ok(())
}

#[test]
fn products_with_zeros() -> Result<()> {
    let mut x = numbers(Array2::zeros((4, 9)));
    (x[[0, 1]], x[[2, 3]], x[[2, 7]]) = (0.0, 0.0, 0.0);
    let (x, z, by_x) = (kept(x), kept(numbers(Array1::zeros(4))), kept(numbers(Array2::zeros((4, 9)))));
    if !compare::<f64, Ix1>(&move || call::<product>().input(x), &["z"], 1e-12)? {
        return Ok(());
    }
    compare::<f64, Ix2>(&move || gradient::<product>(1).input(x).input(z), &["x_grad"], 1e-12)?;
    let second = move || gradient::<product>(2).input(x).input(z).input(by_x);
    compare::<f64, Ix2>(&second, &["x_grad"], 1e-12)?;
    Ok(())
}

#[test]
fn gradients_of_what_a_batch_shares() -> Result<()> {
    // A thread for a sum; several of a block; a block; several blocks for each of them.
    for (rows, columns) in [(2, 140_000), (70, 40), (300, 3), (2100, 40), (17_000, 2)] {
        let x = kept(numbers(Array2::zeros((rows, columns))));
        let w = kept(numbers(Array1::zeros(columns)));
        let form = move || gradient::<weighted>(1).input(x).input(w).input(x).without("x_grad");
        if !compare::<f64, Ix1>(&form, &["w_grad"], 1e-9)? {
            return Ok(());
        }
    }
    // Each row of its own weights, in a batch of a batch.
    let x = kept(numbers(Array3::zeros((4, 700, 3))));
    let w = kept(numbers(Array3::zeros((4, 1, 3))));
    let form = move || gradient::<weighted>(1).input(x).input(w).input(x).without("x_grad");
    compare::<f64, Ix3>(&form, &["w_grad"], 1e-9)?;
    Ok(())
}

#[test]
fn half_precision_compiles() -> Result<()> {
    let x = kept(Array2::<opsmith::dtype::bf16>::zeros((2, 3)));
    call::<gaussian_convolution>().input(x).input(x).input(x).compile_for_cuda()?;
    gradient::<attention>(1).input(x).input(x).input(x).input(x).input(x).compile_for_cuda().map(drop)
}

#[test]
fn positions_and_masks_are_read() -> Result<()> {
    let x = kept(numbers(Array2::zeros((6, 5))));
    let label = kept(array![0i64, 4, 2, 1, 3, 3]);
    let keep = kept(x.mapv(|x| x > -1.0));
    let z = kept(numbers(Array1::zeros(6)));
    let forward = move || call::<loss>().input(x).input(label).input(keep);
    if !compare::<f64, Ix1>(&forward, &["z"], 1e-14)? {
        return Ok(());
    }
    let [first, second] =
        ["saved_1", "saved_2"].map(|name| forward().run()?.array::<f64, Ix1>(name).map(kept));
    let (first, second) = (first?, second?);
    compare::<f64, Ix2>(
        &move || gradient::<loss>(1).input(x).input(label).input(keep).input(first).input(second).input(z),
        &["x_grad"],
        1e-14,
    )?;
    let likely = move || call::<is_likely>().input(x).input(label).input(keep);
    likely().compile_for_cuda()?;
    let Some(own) = likely().run_cuda_on_processor()? else { return Ok(()) };
    assert_eq!(own.array::<bool, Ix2>("z")?, likely().run()?.array::<bool, Ix2>("z")?);
    Ok(())
}
