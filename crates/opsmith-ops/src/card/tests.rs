//! Kernels of `standard.cu` without a card: run on the processor, against the kernels of the CPU, and compiled.

use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{Array, Array2, Array3, arr0};
use opsmith::prelude::*;
use opsmith::testing::{Call, call};

use crate::arithmetic::{Add, Maximum, Mul, Sub};
use crate::cast::Cast;
use crate::compare::{Equal, Greater, Less, LessEqual, LogicalAnd, LogicalNot, LogicalOr, NotEqual};
use crate::functions::{Abs, Neg, Sign, Square};
use crate::layout::{BroadcastTo, SumTo};
use crate::positions::{ArgMax, ArgMin};
use crate::reductions::{Max, Min, Sum};
use crate::select::Select;
use crate::values::Fill;

/// Runs both kernels of a call, if that can be done here, and compares the output.
pub(crate) fn compare<'a, T: Element + std::fmt::Debug>(
    form: impl Fn() -> Call<'a>,
    output: &str,
) -> Result<()> {
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(()) };
    let expected = form().run()?.array::<T, IxDyn>(output)?;
    // As text, NaN is NaN.
    assert_eq!(format!("{:?}", own.array::<T, IxDyn>(output)?), format!("{expected:?}"));
    Ok(())
}

/// The op of an op's gradient of an order.
pub(crate) fn gradient<'a, O: OpDefinition>(order: usize) -> Call<'a> {
    Call::new(O::COMPANIONS[order - 1]())
}

fn numbers() -> Array3<f32> {
    Array::from_shape_fn((3, 4, 5), |(i, j, k)| (1 + i * 100 + j * 10 + k) as f32)
}

/// Bytes that lie farther apart than 31 bits count, of memory that hardly anyone touches.
pub(crate) fn far() -> Array<u8, Ix1> {
    Array::zeros((1 << 31) + 1)
}

/// Compiles a call's kernels, which must have 64-bit indices, and runs them.
pub(crate) fn with_wide_indices<'a, T: Element + std::fmt::Debug>(
    form: impl Fn() -> Call<'a>,
    output: &str,
) -> Result<()> {
    let names = form().kernels_launched()?;
    assert!(names.iter().all(|name| name.ends_with("long long>")), "{names:?}");
    form().compile_for_cuda()?;
    compare::<T>(form, output)
}

#[test]
fn comparisons_and_logic() -> Result<()> {
    let x = array![[1.0f32, f32::NAN, -0.0], [2.0, 5.0, f32::INFINITY]];
    let (y, row) = (array![[1.0f32, 2.0], [f32::NAN, 5.0], [0.0, -1.0]], array![0.0f32]);
    compare::<bool>(|| call::<Equal>().input(&x).input(&row), "z")?;
    let turned = y.t();
    compare::<bool>(|| call::<NotEqual>().input(&x).input(&turned), "z")?;
    compare::<bool>(|| call::<Less>().input(&turned).input(&x), "z")?;
    let (a, b) = (x.mapv(f16::from_f32), y.t().mapv(f16::from_f32));
    compare::<bool>(|| call::<LessEqual>().input(&a).input(&b), "z")?;
    let (a, b) = (x.mapv(bf16::from_f32), y.t().mapv(bf16::from_f32));
    compare::<bool>(|| call::<Greater>().input(&a).input(&b), "z")?;
    let (a, b) = (array![[true], [false]], array![true, false]);
    compare::<bool>(|| call::<LogicalAnd>().input(&a).input(&b), "z")?;
    compare::<bool>(|| call::<LogicalOr>().input(&a).input(&b), "z")?;
    compare::<bool>(|| call::<LogicalNot>().input(&b), "y")?;
    let none = Array2::<f32>::zeros((0, 3));
    compare::<bool>(|| call::<Less>().input(&none).input(&row), "z")
}

#[test]
fn one_of_two() -> Result<()> {
    let (condition, x) = (array![[true], [false]], array![[1.5f64, f64::INFINITY], [3.0, 4.0]]);
    let y = opsmith::ndarray::arr0(-1.0f64);
    let turned = x.slice(s![..;-1, ..]);
    compare::<f64>(|| call::<Select>().input(&condition).input(&y).input(&turned), "z")?;
    let (x, y) = (array![1u8, 2], array![3u8]);
    compare::<u8>(|| call::<Select>().input(&condition).input(&x).input(&y), "z")?;
    let second = || Call::new(Select::COMPANIONS[1]()).input(&condition);
    let (x, y) = (array![f16::ONE, f16::ZERO], array![f16::NEG_ONE]);
    compare::<f16>(|| second().input(&x).input(&y), "z_grad_grad")
}

#[test]
fn integers_wrap_around() -> Result<()> {
    let (x, y) = (array![i8::MIN, -1, 0, 7, i8::MAX], array![i8::MAX]);
    compare::<i8>(|| call::<Add>().input(&x).input(&y), "z")?;
    compare::<i8>(|| call::<Sub>().input(&x).input(&y), "z")?;
    compare::<i8>(|| call::<Mul>().input(&x).input(&y), "z")?;
    compare::<i8>(|| call::<Neg>().input(&x), "y")?;
    compare::<i8>(|| call::<Abs>().input(&x), "y")?;
    compare::<i8>(|| call::<Sign>().input(&x), "y")?;
    let wide = array![u64::MAX, 1 << 40];
    compare::<u64>(|| call::<Square>().input(&wide), "y")?;
    let turned = wide.slice(s![..;-1]);
    compare::<u64>(|| call::<Maximum>().input(&wide).input(&turned), "z")?;
    compare::<u64>(|| call::<Abs>().input(&wide), "y")
}

/// Casts numbers to every dtype.
fn cast_to_all<T: Element>(x: &ArrayViewD<'_, T>) -> Result<()> {
    fn to<'a, T: Element, Z: Element + std::fmt::Debug>(x: &'a ArrayViewD<'a, T>) -> Result<()> {
        compare::<Z>(|| call::<Cast>().input(x).attr("dtype", Z::DTYPE), "y")
    }
    to::<T, f16>(x)?;
    to::<T, bf16>(x)?;
    to::<T, f32>(x)?;
    to::<T, f64>(x)?;
    to::<T, i8>(x)?;
    to::<T, u8>(x)?;
    to::<T, i16>(x)?;
    to::<T, u16>(x)?;
    to::<T, i32>(x)?;
    to::<T, u32>(x)?;
    to::<T, i64>(x)?;
    to::<T, u64>(x)?;
    to::<T, bool>(x)
}

#[test]
fn casts_round_once_and_stop_at_the_ends_of_integers() -> Result<()> {
    let tie = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
    let floats = array![
        [-1.9, 0.5, -0.0, tie, -tie, 1.0 + 2f64.powi(-8) + 2f64.powi(-40), 5e-324, 255.9],
        [300.0, -300.0, 4e9, -3e9, 1e19, -1e19, 1e300, f64::NEG_INFINITY],
        [f64::INFINITY, f64::NAN, 65_520.0, 6e-8, 9_223_372_036_854_775_807.0, 1e-42, 127.0, -128.9],
    ];
    cast_to_all(&floats.t().into_dyn())?;
    cast_to_all(&floats.mapv(f16::from_f64).view().into_dyn())?;
    let wide = array![i64::MIN, -1, 0, 1, i64::MAX, (257 << 54) + 1, -(257 << 54) - 1, 1 << 53 | 1];
    cast_to_all(&wide.view().into_dyn())?;
    cast_to_all(&wide.mapv(i64::cast_unsigned).slice(s![..;-1]).into_dyn())?;
    cast_to_all(&array![true, false].view().into_dyn())?;
    cast_to_all(&Array2::<i16>::zeros((0, 3)).view().into_dyn())?;
    let (given, like) = (array![1.5f32, -2.0], array![0.0f64, 0.0]);
    let cast = |order| gradient::<Cast>(order).attr("dtype", DType::Float32);
    compare::<f64>(|| cast(1).input(&given).input(&like), "x_grad")?;
    compare::<f32>(|| cast(2).input(&like).input(&given), "y_grad_grad")
}

#[test]
fn sums_over_what_broadcasting_repeats() -> Result<()> {
    let x = numbers();
    let shapes = [vec![5i64], vec![4, 1], vec![3, 1, 5], vec![1], vec![3, 4, 5], vec![]];
    for shape in shapes.map(Array::from) {
        for x in [x.view(), x.slice(s![.., ..;-1, ..])] {
            compare::<f32>(|| call::<SumTo>().input(&x).input(&shape), "y")?;
            let half = x.mapv(|number| bf16::from_f32(number.rem_euclid(32.0)));
            compare::<bf16>(|| call::<SumTo>().input(&half).input(&shape), "y")?;
        }
        let small = Array::<f32, _>::zeros(shape.mapv(|dim| dim as usize).to_vec());
        let own = array![3i64, 4, 5];
        compare::<f32>(|| gradient::<BroadcastTo>(1).input(&small).input(&own).input(&x), "x_grad")?;
        compare::<f32>(|| gradient::<SumTo>(2).input(&x).input(&shape), "y_grad_grad")?;
    }
    // Terms across memory, more of them than threads, and none.
    for dims in [(700, 70), (2, 3000), (0, 40), (40, 0)] {
        let x = Array::from_shape_fn(dims, |(i, j)| ((i * 31 + j * 7) % 101) as f64 - 50.0);
        for shape in [array![1i64, dims.1 as i64], array![dims.0 as i64, 1], array![1i64, 1]] {
            compare::<f64>(|| call::<SumTo>().input(&x).input(&shape), "y")?;
        }
    }
    // Several blocks share the terms of each.
    for (dims, shape) in
        [((2, 9000), [1i64, 1]), ((9000, 2), [1, 2]), ((3, 20_000), [3, 1]), ((700, 64), [1, 64])]
    {
        let x = Array::from_shape_fn(dims, |(i, j)| ((i * 31 + j * 7) % 101) as f64 - 50.0);
        let shape = Array::from(shape.to_vec());
        let form = || call::<SumTo>().input(&x).input(&shape);
        assert_eq!(form().kernels_launched()?.len(), 2, "{dims:?}");
        compare::<f64>(form, "y")?;
        compare::<i64>(|| call::<ArgMax>().input(&x), "y")?;
    }
    let (one, shape) = (array![[2.0f32]], array![3i64, 4, 5]);
    compare::<f32>(|| gradient::<Fill>(1).input(&shape).input(&one).input(&x), "value_grad")
}

#[test]
fn elements_side_by_side_are_read_at_once() -> Result<()> {
    let x = Array::from_shape_fn((5, 32), |(i, j)| ((i * 37 + j * 11) % 23) as f32 - 9.5);
    let (row, halves) = (x.row(3), x.mapv(f16::from_f32));
    for x in [x.view(), x.slice(s![..;-2, 4..28]), x.slice(s![.., 1..9]), x.t().slice(s![..5, ..])] {
        compare::<f16>(|| call::<Cast>().input(&x).attr("dtype", DType::Float16), "y")?;
        let column = x.slice(s![.., 4..5]);
        compare::<bool>(|| call::<Less>().input(&x).input(&column), "z")?;
    }
    compare::<bool>(|| call::<Less>().input(&x).input(&row), "z")?;
    for x in [halves.slice(s![1.., ..]), halves.slice(s![1.., 8..])] {
        compare::<f64>(|| call::<Cast>().input(&x).attr("dtype", DType::Float64), "y")?;
    }
    let condition = x.mapv(|x| x > 0.0);
    compare::<f32>(|| call::<Select>().input(&condition).input(&row).input(&x), "z")?;
    // More than two accesses for each thread of a large grid are for a loop.
    let mut grid = 0;
    call::<Less>().input(&Array::<f32, _>::zeros(1 << 22)).input(&row.slice(s![..1])).launches(
        &mut |launch| {
            grid = launch.grid[0];
            Ok(())
        },
    )?;
    assert_eq!(grid, (1 << 22) / 4 / 2 / 256);
    Ok(())
}

#[test]
fn gradients_go_to_what_was_selected() -> Result<()> {
    let (condition, x, y) = (array![[true], [false], [true]], array![1.0f32, 2.0], arr0(5.0f32));
    let z_grad = array![[1.0f32, 2.0], [f32::NAN, 4.0], [8.0, 16.0]];
    let turned = z_grad.slice(s![..;-1, ..]);
    let form = || gradient::<Select>(1).input(&condition).input(&x).input(&y).input(&turned);
    compare::<f32>(form, "x_grad")?;
    compare::<f32>(form, "y_grad")?;
    let same = || gradient::<Select>(1).input(&condition).input(&z_grad).input(&z_grad).input(&z_grad);
    compare::<f32>(same, "x_grad")
}

#[test]
fn positions_and_folds_of_integers() -> Result<()> {
    let x =
        array![[1.0f32, f32::NAN, 3.0, f32::NAN], [9.0, -0.0, 0.0, 9.0], [-1.0, -2.0, f32::INFINITY, -2.0]];
    for x in [x.view(), x.slice(s![..;-1, ..;2])] {
        for axes in [vec![], vec![0], vec![-1], vec![0, 1]] {
            compare::<i64>(|| call::<ArgMax>().input(&x).attr("axes", axes.clone()), "y")?;
            compare::<i64>(|| call::<ArgMin>().input(&x).attr("axes", axes.clone()), "y")?;
        }
    }
    let long = Array::from_shape_fn((40, 3000), |(i, j)| (i * 7919 + j * 104_729) as u64 % 1009);
    let turned = long.t();
    for axes in [vec![0], vec![1]] {
        compare::<i64>(|| call::<ArgMin>().input(&long).attr("axes", axes.clone()), "y")?;
        compare::<u64>(|| call::<Sum>().input(&long).attr("axes", axes.clone()), "y")?;
        compare::<u64>(|| call::<Max>().input(&turned).attr("axes", axes.clone()), "y")?;
    }
    let ends = array![[i8::MIN, i8::MAX, -1], [i8::MAX, i8::MAX, 0]];
    let none = ends.slice(s![..0, ..]);
    for x in [ends.view(), none] {
        compare::<i8>(|| call::<Sum>().input(&x).attr("axes", vec![0]).attr("keep_dims", true), "y")?;
        compare::<i8>(|| call::<Max>().input(&x).attr("axes", vec![0]), "y")?;
        compare::<i8>(|| call::<Min>().input(&x).attr("axes", vec![0]), "y")?;
        compare::<i64>(|| call::<ArgMax>().input(&x).attr("axes", vec![1]), "y")?;
    }
    let form = || call::<ArgMax>().input(&none).attr("axes", vec![0]);
    assert_eq!(form().launches(&mut |_| Ok(())).unwrap_err(), form().run().unwrap_err());
    Ok(())
}

#[test]
fn elements_far_apart_have_wide_indices() -> Result<()> {
    let far = far();
    let x = far.slice(s![..;1 << 30]);
    with_wide_indices::<f16>(|| call::<Cast>().input(&x).attr("dtype", DType::Float16), "y")?;
    with_wide_indices::<u8>(|| call::<Sum>().input(&x), "y")?;
    with_wide_indices::<i64>(|| call::<ArgMin>().input(&x), "y")
}

#[test]
fn kernels_of_every_family_compile() -> Result<()> {
    let (x, shape) = (numbers(), array![4i64, 1]);
    call::<Cast>().input(&x).attr("dtype", DType::Int64).compile_for_cuda()?;
    call::<Cast>().input(&x.mapv(|x| x as i64)).attr("dtype", DType::BFloat16).compile_for_cuda()?;
    call::<SumTo>().input(&x.mapv(f16::from_f32)).input(&shape).compile_for_cuda()?;
    let condition = array![true, false, true, false, true];
    let form = gradient::<Select>(1).input(&condition).input(&x).input(&x);
    form.input(&x).compile_for_cuda()?;
    call::<ArgMax>().input(&x.mapv(bf16::from_f32)).compile_for_cuda()?;
    call::<ArgMin>().input(&Array::<f32, _>::zeros(9000)).compile_for_cuda()?;
    call::<Min>().input(&x.mapv(|x| x as i16)).compile_for_cuda()?;
    Ok(())
}
