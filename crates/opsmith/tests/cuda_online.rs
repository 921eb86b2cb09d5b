//! Sums of exponentials less the largest number on CUDA, which are computed in the loop that looks for that: run on the processor
//! against the kernels of the CPU, which have two loops.

#[path = "common/cuda.rs"]
#[allow(dead_code, reason = "other tests have gradients, and numbers that are all finite")]
mod support;

use opsmith::ndarray::{Array1, Array2, Axis as Dim};
use opsmith::prelude::*;
use opsmith::testing::{Call, call};
use support::{compare_by, kept, numbers};

#[body("(i,j)->(i,j)")]
fn softmax<S: Indexed>(x: S) -> S {
    let e = (x - x.amax(j).detached()).exp();
    e / e.sum(j)
}

#[body("(i,j)->(i)")]
fn row<S: Indexed>(x: S) -> S {
    x.log_sum_exp(j)
}

/// A product of matrices of logarithms.
#[body("(i,k),(j,k)->(i,j)")]
fn product<S: Indexed>(x: S, y: S) -> S {
    (x + y).log_sum_exp(k)
}

/// Half a step of Sinkhorn's.
#[body("(i,k),(j,k),(j)->(i)")]
fn sinkhorn<S: Indexed>(x: S, y: S, g: S, #[attr(default = 0.1)] eps: S) -> S {
    let d = ((x - y) * (x - y)).sum(k);
    ((g - d) / eps).log_sum_exp(j) * -eps
}

#[body("(i,k),(j,k),(j,e),(j)->(i,e)")]
fn attention<S: Indexed>(query: S, key: S, value: S, keep: S::Mask) -> S {
    let fit = S::select(keep, (query * key).sum(k), S::of(f64::NEG_INFINITY));
    let weight = (fit - fit.amax(j).detached()).exp();
    (weight * value).sum(j) / weight.sum(j)
}

/// Two sums of one largest number, and of none of it.
#[body("(i,j),(j)->(i),(i),(i)", outputs = [mean, most, total])]
fn weighted<S: Indexed>(x: S, y: S) -> (S, S, S) {
    let weight = (x - x.amax(j)).exp();
    ((weight * y).sum(j) / weight.sum(j), x.amax(j), x.sum(j))
}

/// Both devices give the same: numbers within an error that grows with what is expected, infinite ones and NaN as they are. False where that
/// cannot be done here.
fn same<T: RealNumber, D: opsmith::ndarray::Dimension>(
    form: &dyn Fn() -> Call<'static>,
    outputs: &[&str],
    error: f64,
) -> Result<bool> {
    compare_by::<T, D>(form, outputs, &|a, b| {
        a == b || (a - b).abs() <= error * (1.0 + b.abs()) || (a.is_nan() && b.is_nan())
    })
}

/// Rows that are as they come, far apart, that rise, and that have infinite numbers and NaN: few, and nothing but them.
fn rows(count: usize, length: usize) -> Array2<f64> {
    let mut x = numbers(Array2::zeros((count, length))).mapv(|x| x * 3.0);
    let inf = f64::INFINITY;
    for (at, mut row) in x.axis_iter_mut(Dim(0)).enumerate() {
        let last = length.saturating_sub(1);
        match at % 12 {
            1 => row.fill(-inf),
            2 => row.mapv_inplace(|x| if x < 1.0 { -inf } else { x }),
            3 if length > 0 => row[last] = inf,
            4 if length > 0 => row[last / 2] = f64::NAN,
            5 => row.mapv_inplace(|x| x * 200.0),
            6 => row.iter_mut().enumerate().for_each(|(j, x)| *x = j as f64 * 0.7),
            7 if length > 0 => (row[0], row[last]) = (-inf, inf),
            8 => row.iter_mut().enumerate().for_each(|(j, x)| *x = j as f64 * 1e-3 - 1e5),
            9 => row.mapv_inplace(|_| -1e30),
            10 => row.fill(inf),
            11 => row.mapv_inplace(|x| x * 1e30),
            _ => {}
        }
    }
    x
}

fn launches(call: Call<'static>, way: &str) -> Result<bool> {
    Ok(call.kernels_launched()?.iter().any(|kernel| kernel.contains(way)))
}

#[test]
fn rows_of_a_thread_and_of_several() -> Result<()> {
    for (count, length) in [(12, 1), (25, 7), (12, 33), (13, 300), (3, 0)] {
        let x = kept(rows(count, length));
        let y = kept(numbers(Array1::zeros(length)));
        let forward = move || call::<softmax>().input(x);
        assert_eq!(launches(forward(), "_rows_")?, length >= 32);
        if !same::<f64, Ix2>(&forward, &["z"], 1e-13)? {
            return Ok(());
        }
        same::<f64, Ix1>(&move || call::<row>().input(x), &["z"], 1e-13)?;
        let forward = move || call::<weighted>().input(x).input(y);
        same::<f64, Ix1>(&forward, &["mean", "most", "total"], 1e-12)?;
        let infinite = kept(y.mapv(|y| if y > 1.5 { f64::INFINITY } else { y }));
        same::<f64, Ix1>(&move || call::<weighted>().input(x).input(infinite), &["mean", "most"], 1e-12)?;
        let single = kept(x.mapv(|x| x as f32));
        same::<f32, Ix2>(&move || call::<softmax>().input(single), &["z"], 1e-6)?;
        same::<f32, Ix1>(&move || call::<row>().input(single), &["z"], 1e-6)?;
    }
    Ok(())
}

#[test]
fn tiles() -> Result<()> {
    let (x, y) = (kept(rows(200, 21)), kept(numbers(Array2::zeros((190, 21)))));
    let forward = move || call::<product>().input(x).input(y);
    assert!(launches(forward(), "_tiled_")?);
    if !same::<f64, Ix2>(&forward, &["z"], 1e-13)? {
        return Ok(());
    }
    let [x, y] = [x, y].map(|x| kept(x.mapv(|x| x as f32)));
    same::<f32, Ix2>(&move || call::<product>().input(x).input(y), &["z"], 2e-6)?;
    Ok(())
}

#[test]
fn sinkhorn_and_attention() -> Result<()> {
    for (n, m) in [(5, 6), (40, 90), (300, 40)] {
        let x = kept(numbers(Array2::zeros((n, 3))));
        let y = kept(numbers(Array2::zeros((m, 3))).mapv(|y| y * 0.7));
        let g = kept(numbers(Array1::zeros(m)).mapv(|g| if g > 1.5 { f64::NEG_INFINITY } else { g }));
        if !same::<f64, Ix1>(&move || call::<sinkhorn>().input(x).input(y).input(g), &["z"], 1e-12)? {
            return Ok(());
        }
        let mut query = x.clone();
        query[[1, 0]] = f64::NAN;
        query[[2, 1]] = f64::INFINITY;
        let (query, value) = (kept(query), kept(numbers(Array2::zeros((m, 20)))));
        for kept_from in [0, m / 2, m] {
            let keep = kept(Array1::from_shape_fn(m, |j| j >= kept_from));
            let forward = move || call::<attention>().input(query).input(y).input(value).input(keep);
            same::<f64, Ix2>(&forward, &["z"], 1e-12)?;
        }
    }
    Ok(())
}
