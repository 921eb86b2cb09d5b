//! Pairwise ops that are written once, on CUDA: compiled, and run on the processor against the kernels of the CPU.

#[path = "common/cuda.rs"]
mod support;

use opsmith::ndarray::{Array2, Array3};
use opsmith::prelude::*;
use opsmith::testing::{Call, call};
use support::{compare, gradient, kept, numbers};

/// Manhattan distances.
#[pairwise]
fn manhattan<S: Scalar>(x: S, y: S) -> S {
    (x - y).abs()
}

/// What depends on neither row.
#[pairwise]
fn level<S: Scalar>(_x: S, _y: S, #[attr(default = 0.5)] each: S) -> S {
    each
}

/// What depends on one row.
#[pairwise]
fn squares<S: Scalar>(x: S, _y: S) -> S {
    x * x
}

fn root<S: Scalar>(sum: S, scale: S) -> S {
    S::select(sum.gt(S::of(0.0)), sum.sqrt() * scale, S::of(0.0))
}

/// Euclidean distances, of some weight and scale.
#[pairwise(finish = root(scale))]
fn euclidean<S: Scalar>(
    x: S,
    y: S,
    #[attr(default = 1.0)] weight: S,
    #[attr(default = 0.75)] _scale: S,
) -> S {
    (x - y) * (x - y) * weight
}

/// The largest difference.
#[pairwise(fold = max)]
fn chebyshev<S: Scalar>(x: S, y: S) -> S {
    (x - y).abs()
}

/// The mean of products.
#[pairwise(fold = mean)]
fn similarity<S: Scalar>(x: S, y: S) -> S {
    x * y.tanh()
}

/// The root of a sum of squares, which the gradient reads.
#[pairwise(finish = Scalar::sqrt)]
fn distance<S: Scalar>(x: S, y: S) -> S {
    (x - y) * (x - y)
}

/// Both gradients of an op, for matrices of these sizes, after the forward op.
fn all_orders<O: OpDefinition>(n: usize, m: usize, p: usize) -> Result<bool> {
    let (x, y) = (kept(numbers(Array2::zeros((n, p)))), kept(numbers(Array2::zeros((m, p))) + 0.125));
    let (g, u) = (kept(numbers(Array2::zeros((n, m)))), kept(numbers(Array2::zeros((n, p))) * 0.5));
    if !compare::<f64, Ix2>(&move || call::<O>().input(x).input(y), &["z"], 1e-12)? {
        return Ok(false);
    }
    // An op whose gradient reads the distances takes them before their gradient.
    let z = kept(g.mapv(|g| g.abs() + 0.5));
    let order = move |order: usize| {
        let call = gradient::<O>(order).input(x).input(y);
        let reads = (O::COMPANIONS[0])().signature().unwrap().inputs.len() == 4;
        if reads { call.input(z).input(g) } else { call.input(g) }
    };
    let first = move || order(1);
    compare::<f64, Ix2>(&first, &["x_grad", "y_grad"], 1e-11)?;
    compare::<f64, Ix2>(&move || first().without("x_grad"), &["y_grad"], 1e-11)?;
    let second = move || order(2).input(u);
    compare::<f64, Ix2>(&move || second().input(y), &["x_grad", "y_grad", "z_grad_grad"], 1e-10)?;
    compare::<f64, Ix2>(&move || second().absent().without("x_grad"), &["y_grad", "z_grad_grad"], 1e-10)
}

#[test]
fn every_order_of_every_fold() -> Result<()> {
    for (n, m, p) in [(17, 5, 33), (3, 20, 16)] {
        all_orders::<manhattan>(n, m, p)?;
        all_orders::<euclidean>(n, m, p)?;
        all_orders::<distance>(n, m, p)?;
        all_orders::<chebyshev>(n, m, p)?;
        all_orders::<similarity>(n, m, p)?;
        all_orders::<squares>(n, m, p)?;
    }
    let (x, y) = (kept(numbers(Array2::zeros((7, 3)))), kept(numbers(Array2::zeros((5, 3)))));
    compare::<f64, Ix2>(&move || call::<level>().input(x).input(y), &["z"], 1e-12)?;
    all_orders::<manhattan>(0, 3, 2)?;
    all_orders::<manhattan>(2, 3, 0)?;
    Ok(())
}

/// How many of the kernels of a call compute tiles.
fn tiled(call: Call<'static>) -> Result<usize> {
    Ok(call.kernels_launched()?.iter().filter(|kernel| kernel.contains("_tiled_")).count())
}

/// An op and its gradients of two orders, for sizes that no tile divides, of which tiles are of pairs, of rows of x, of rows of y.
fn in_tiles<O: OpDefinition>(error: f64) -> Result<()> {
    let matrix = |rows, columns| kept(numbers(Array2::zeros((rows, columns))));
    let (x, y) = (matrix(347, 19), matrix(331, 19));
    let forward = move || call::<O>().input(x).input(y);
    assert_eq!(tiled(forward())?, 1);
    compare::<f64, Ix2>(&forward, &["z"], 1e-12)?;
    for (n, m) in [(333, 3), (3, 333)] {
        let (x, y, g, u) = (matrix(n, 340), matrix(m, 340), matrix(n, m), matrix(n, 340));
        let order = move |order: usize| gradient::<O>(order).input(x).input(y).input(g);
        assert!(tiled(order(1))? > 0);
        compare::<f64, Ix2>(&move || order(1), &["x_grad", "y_grad"], error)?;
        let second = move || order(2).input(u).absent();
        compare::<f64, Ix2>(&second, &["x_grad", "y_grad", "z_grad_grad"], 10.0 * error)?;
    }
    Ok(())
}

#[test]
fn many_outputs_are_computed_in_tiles() -> Result<()> {
    in_tiles::<manhattan>(1e-12)?;
    in_tiles::<euclidean>(1e-9)?;
    in_tiles::<chebyshev>(1e-12)?;
    in_tiles::<similarity>(1e-12)?;
    let narrow = kept(numbers(Array2::zeros((400, 19))).mapv(|x| x as f32));
    compare::<f32, Ix2>(&move || call::<manhattan>().input(narrow).input(narrow), &["z"], 1e-5)?;
    let half = kept(narrow.mapv(opsmith::dtype::f16::from_f32));
    call::<manhattan>().input(half).input(half).compile_for_cuda().map(drop)
}

#[test]
fn inputs_of_any_strides_and_attributes() -> Result<()> {
    let x = kept(numbers(Array2::zeros((9, 20))).reversed_axes());
    let y = kept(numbers(Array2::zeros((9, 7))).reversed_axes());
    let forward = move || call::<euclidean>().input(x).input(y).attr("weight", 2.5);
    compare::<f64, Ix2>(&forward, &["z"], 1e-12)?;
    let (x, y) = (kept(x.mapv(|x| x as f32)), kept(y.mapv(|y| y as f32)));
    compare::<f32, Ix2>(&move || call::<manhattan>().input(x).input(y), &["z"], 1e-5)?;
    Ok(())
}

#[test]
fn what_is_wrong_is_wrong_on_both_devices() {
    let (x, y) = (array![[1.0, 2.0]], array![[1.0]]);
    let form = || call::<manhattan>().input(&x).input(&y);
    assert_eq!(form().launches(&mut |_| Ok(())).unwrap_err(), form().run().unwrap_err());
}

#[test]
fn what_has_no_tiles() -> Result<()> {
    let none = kept(Array2::<f64>::zeros((2, 0)));
    compare::<f64, Ix2>(&move || call::<manhattan>().input(none).input(none), &["z"], 0.0)?;
    let x = kept(numbers(Array3::zeros((3, 4, 5))));
    let y = kept(numbers(Array2::zeros((6, 5))));
    compare::<f64, Ix3>(&move || call::<euclidean>().input(x).input(y), &["z"], 1e-12)?;
    Ok(())
}

#[test]
fn half_precision_compiles() -> Result<()> {
    let x = kept(Array2::<opsmith::dtype::f16>::zeros((2, 3)));
    let g = kept(Array2::<opsmith::dtype::f16>::zeros((2, 2)));
    call::<euclidean>().input(x).input(x).compile_for_cuda()?;
    gradient::<euclidean>(1).input(x).input(x).input(g).compile_for_cuda().map(drop)
}
