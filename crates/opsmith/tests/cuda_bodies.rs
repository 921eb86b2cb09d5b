//! Bodies that are written once, on CUDA: their sources compiled, and run on the processor with the arguments that a card would
//! get, against the kernels of the CPU.

#[path = "common/cuda.rs"]
mod support;

use opsmith::ndarray::{Array1, Array2, Array3};
use opsmith::prelude::*;
use opsmith::testing::call;
use support::{compare, gradient, kept, numbers};

/// The Gaussian error linear unit.
#[pointwise]
fn gelu<S: Scalar>(x: S, #[attr(default = "none", one_of = ["none", "tanh"])] approximate: &str) -> S {
    if approximate == "tanh" { x.gelu_tanh() } else { x.gelu() }
}

/// A number of an attribute, inputs that broadcast, and two outputs.
#[pointwise(outputs = [scaled, gated])]
fn mixed<S: Scalar>(
    x: S,
    y: S,
    #[attr(default = 0.5)] slope: S,
    #[attr(default = true)] flip: bool,
) -> (S, S) {
    let z = S::select(x.gt(S::of(0.0)), x, x * slope) * y;
    (z + y, if flip { -z.sigmoid() } else { z.tanh() })
}

/// Functions that are made of others, and those that C lacks.
#[pointwise(orders = 2)]
fn curves<S: Scalar>(x: S, y: S) -> S {
    let inner = x * 0.45;
    let angles = y.atan2(x) + inner.asin() * inner.acos() - inner.tan();
    let hyperbolic = x.sinh() * y.cosh() - x.asinh() + (y * y + 1.25).acosh() + inner.atanh();
    let bases = x.exp2() + (x * x + 0.5).log2() * (y * y + 0.5).log10();
    angles + hyperbolic + bases + (x + 0.3).lgamma() * (y + 0.3).digamma() + y.round() - x.trunc() + y.ceil()
}

#[test]
fn functions_that_are_made_of_others() -> Result<()> {
    let (x, y) = (kept(numbers(Array2::zeros((7, 67)))), kept(numbers(Array2::zeros((67, 7)))));
    let y = kept(y.clone().reversed_axes());
    if !compare::<f64, Ix2>(&|| call::<curves>().input(x).input(y), &["z"], 1e-12)? {
        return Ok(());
    }
    let first = || gradient::<curves>(1).input(x).input(y).input(x);
    compare::<f64, Ix2>(&first, &["x_grad", "y_grad"], 1e-11)?;
    let single = |x: &Array2<f64>| kept(x.mapv(|x| x as f32));
    let (x, y) = (single(x), single(y));
    compare::<f32, Ix2>(&|| call::<curves>().input(x).input(y), &["z"], 2e-4).map(drop)
}

#[test]
fn a_body_has_a_kernel_for_each_device_and_dtype() -> Result<()> {
    for def in [gelu::def(), gelu::COMPANIONS[0](), gelu::COMPANIONS[1]()] {
        let op = def.build()?;
        let on = |kind| op.kernels().iter().filter(|kernel| kernel.device() == kind).count();
        assert_eq!((on(opsmith::DeviceKind::Cpu), on(opsmith::DeviceKind::Cuda)), (4, 4));
    }
    Ok(())
}

#[test]
fn elements_one_by_one() -> Result<()> {
    let x = kept(numbers(Array2::zeros((7, 301))));
    for approximate in ["none", "tanh"] {
        let forward = move || call::<gelu>().input(x).attr("approximate", approximate);
        if !compare::<f64, Ix2>(&forward, &["y"], 1e-14)? {
            return Ok(());
        }
        let first = move || gradient::<gelu>(1).input(x).input(x).attr("approximate", approximate);
        compare::<f64, Ix2>(&first, &["x_grad"], 1e-13)?;
        let second = move || gradient::<gelu>(2).input(x).input(x).input(x).attr("approximate", approximate);
        compare::<f64, Ix2>(&second, &["x_grad", "y_grad_grad"], 1e-12)?;
    }
    let single = kept(x.mapv(|x| x as f32));
    compare::<f32, Ix2>(&move || call::<gelu>().input(single), &["y"], 1e-6)?;
    let flat = kept(single.iter().copied().collect::<Array1<f32>>());
    for begin in 0..3 {
        // Not aligned to 16 bytes, and of a length that is no multiple of 4.
        let part = kept(flat.slice(s![begin..begin + 1001]).to_owned());
        compare::<f32, Ix1>(&move || call::<gelu>().input(part), &["y"], 1e-6)?;
    }
    Ok(())
}

#[test]
fn inputs_broadcast_and_have_any_strides() -> Result<()> {
    let x = kept(numbers(Array3::zeros((5, 4, 33))));
    let y = kept(numbers(Array2::zeros((4, 1))));
    let outputs = ["scaled", "gated"];
    let forward = move || call::<mixed>().input(x).input(y).attr("slope", 0.25);
    if !compare::<f64, Ix3>(&forward, &outputs, 1e-14)? {
        return Ok(());
    }
    compare::<f64, Ix3>(&move || forward().attr("flip", false), &outputs, 1e-14)?;
    // The reversed axes of arrays, as they lie.
    let turned = kept(x.clone().reversed_axes());
    let row = kept(numbers(Array1::zeros(5)));
    compare::<f64, Ix3>(&move || call::<mixed>().input(turned).input(row), &outputs, 1e-14)?;
    let none = kept(Array3::<f64>::zeros((5, 0, 33)));
    compare::<f64, Ix3>(&move || call::<mixed>().input(none).input(row_of(33)), &outputs, 0.0)?;
    Ok(())
}

fn row_of(length: usize) -> &'static Array1<f64> {
    kept(numbers(Array1::zeros(length)))
}

#[test]
fn gradients_of_what_was_repeated_are_summed() -> Result<()> {
    let x = kept(numbers(Array3::zeros((6, 4, 50))));
    let g = kept(numbers(Array3::zeros((6, 4, 50))));
    // Over dims before, between and behind; over all of them; many sums, and long ones.
    let column = kept(numbers(Array2::zeros((4, 1))));
    let grad = move || gradient::<mixed>(1).input(x).input(column).input(g).input(g).input(g);
    if !compare::<f64, Ix2>(&grad, &["y_grad"], 1e-12)? {
        return Ok(());
    }
    compare::<f64, Ix3>(&grad, &["x_grad"], 1e-13)?;
    compare::<f64, Ix2>(&move || grad().without("x_grad"), &["y_grad"], 1e-12)?;
    let row = row_of(50);
    compare::<f64, Ix1>(
        &move || gradient::<mixed>(1).input(x).input(row).input(g).input(g).input(g),
        &["y_grad"],
        1e-12,
    )?;
    let one = kept(numbers(Array1::zeros(1)));
    compare::<f64, Ix1>(
        &move || gradient::<mixed>(1).input(x).input(one).input(g).input(g).input(g),
        &["y_grad"],
        1e-11,
    )?;
    // One of two outputs has no gradient, which then is zero.
    let half = move || gradient::<mixed>(1).input(x).input(row).input(g).absent().input(g);
    compare::<f64, Ix1>(&half, &["y_grad"], 1e-12)?;
    let (wide, narrow) = (kept(numbers(Array2::zeros((3, 5000)))), row_of(5000));
    let many = move || gradient::<mixed>(1).input(wide).input(narrow).input(wide).input(wide).input(wide);
    compare::<f64, Ix1>(&many, &["y_grad"], 1e-12)?;
    let (empty, lone) = (kept(Array2::<f64>::zeros((0, 4))), row_of(4));
    let none = move || gradient::<mixed>(1).input(empty).input(lone).input(empty).input(empty).input(empty);
    compare::<f64, Ix1>(&none, &["y_grad"], 0.0)?;
    Ok(())
}

#[test]
fn elements_side_by_side_of_half_precision() -> Result<()> {
    use opsmith::dtype::{bf16, f16};
    let all = numbers(Array2::zeros((6, 32)));
    let (x, row) = (kept(all.mapv(f16::from_f64)), kept(all.row(2).mapv(f16::from_f64)));
    let column = kept(all.slice(s![.., ..1]).mapv(f16::from_f64));
    compare::<f16, Ix2>(&|| call::<mixed>().input(x).input(row), &["scaled", "gated"], 1e-3)?;
    compare::<f16, Ix2>(&|| call::<mixed>().input(x).input(column), &["scaled", "gated"], 1e-3)?;
    let back = || gradient::<mixed>(1).input(x).input(row).input(x).input(x).input(x);
    compare::<f16, Ix1>(&back, &["y_grad"], 1e-2)?;
    let short = kept(all.slice(s![.., ..31]).mapv(bf16::from_f64));
    compare::<bf16, Ix2>(&|| gradient::<gelu>(1).input(short).input(short), &["x_grad"], 1e-2).map(drop)
}
