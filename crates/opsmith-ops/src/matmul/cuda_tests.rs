//! Products on a card without one: compiled, and run on the processor against the kernels of the CPU.

use opsmith::cuda::testing::processor;
use opsmith::cuda::{CudaFloat, Launch};
use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{Array, ArrayD, Dimension};
use opsmith::testing::{Call, call};

use super::*;

/// Small integers, of which products and sums are exact in every dtype.
fn numbers<T: AnyFloat>(shape: &[usize], seed: usize) -> ArrayD<T> {
    Array::from_shape_fn(shape.to_vec(), |i| {
        let number: usize = i.slice().iter().fold(7 + seed, |n, i| n * 31 + i) % 5;
        <T as num_traits::NumCast>::from(number as f64 - 2.0).unwrap_or_else(T::zero)
    })
}

/// Runs both kernels of a call, if that can be done here, and compares outputs.
fn compare<'a, T: AnyFloat>(form: impl Fn() -> Call<'a>, outputs: &[&str]) -> Result<()> {
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(()) };
    let expected = form().run()?;
    for name in outputs {
        assert_eq!(own.array::<T, IxDyn>(name)?, expected.array::<T, IxDyn>(name)?, "{name}");
    }
    Ok(())
}

/// Shapes of factors that are multiplied as they are.
const SHAPES: [[&[usize]; 2]; 8] = [
    [&[1, 1], &[1, 1]],
    [&[3, 4], &[4, 5]],
    [&[33, 17], &[17, 34]],
    [&[0, 4], &[4, 3]],
    [&[2, 0], &[0, 3]],
    [&[5, 3, 4], &[4, 2]],
    [&[2, 1, 3, 4], &[5, 4, 2]],
    [&[0, 3, 4], &[1, 4, 2]],
];

fn turned<T: AnyFloat>(mut array: ArrayD<T>, turn: bool) -> ArrayD<T> {
    let rank = array.ndim();
    if turn {
        array.swap_axes(rank - 2, rank - 1);
    }
    array
}

fn all_orders<T: AnyFloat>() -> Result<()> {
    for ([left, right], (a, b)) in SHAPES.into_iter().flat_map(|shapes| {
        [(false, false), (true, false), (false, true), (true, true)].map(|turns| (shapes, turns))
    }) {
        let product: Vec<usize> = {
            let stacks = [&left[..left.len() - 2], &right[..right.len() - 2]];
            let stack = broadcast_shape(stacks).unwrap_or_default();
            stack.into_iter().chain([left[left.len() - 2], right[right.len() - 1]]).collect()
        };
        // Transposed in memory or only in its strides.
        let (x, y) = (turned(numbers::<T>(left, 0), a), turned(numbers::<T>(right, 1), b));
        let (u, v) = (turned(numbers::<T>(left, 2), a), turned(numbers::<T>(right, 3), b));
        let g = numbers::<T>(&product, 4);
        let with =
            |def: OpDef| Call::new(def).input(&x).input(&y).attr("transpose_a", a).attr("transpose_b", b);
        compare::<T>(|| with(forward()), &["product"])?;
        compare::<T>(|| with(gradient()).input(&g), &["a_grad", "b_grad"])?;
        compare::<T>(|| with(gradient()).input(&g).without("b_grad"), &["a_grad"])?;
        let all = ["a_grad", "b_grad", "product_grad_grad"];
        compare::<T>(|| with(second_gradient()).input(&g).input(&u).input(&v), &all)?;
        compare::<T>(|| with(second_gradient()).input(&g).absent().input(&v), &all[1..])?;
    }
    Ok(())
}

#[test]
fn products_are_those_of_the_cpu() -> Result<()> {
    all_orders::<f32>()?;
    all_orders::<f64>()?;
    all_orders::<f16>()?;
    all_orders::<bf16>()
}

#[test]
fn half_precision_is_added_up_in_single() -> Result<()> {
    let ones = ArrayD::from_elem(vec![1, 4096], f16::ONE);
    compare::<f16>(|| call::<MatMul>().input(&ones).input(&ones).attr("transpose_b", true), &["product"])
}

#[test]
fn any_strides_are_read() -> Result<()> {
    let (x, y) = (numbers::<f32>(&[9, 8, 7], 0), numbers::<f32>(&[7, 6, 9], 1));
    let (x, y) = (x.slice(s![..;-2, 1.., ..;3]), y.slice(s![..;3, ..4, ..;2]));
    let y = y.permuted_axes([2, 0, 1]);
    compare::<f32>(|| call::<MatMul>().input(&x).input(&y), &["product"])?;
    let row = numbers::<f32>(&[1, 1, 3], 2);
    let repeated = row.broadcast((5, 7, 3)).unwrap_or_else(|| row.view().into_dimensionality().unwrap());
    compare::<f32>(|| call::<MatMul>().input(&repeated).input(&y), &["product"])
}

#[test]
fn what_is_not_a_number_goes_through() -> Result<()> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = array![[1.0, inf, 0.0], [1.0, 2.0, 3.0], [nan, 1.0, 1.0]];
    let y = array![[1f32, 2.0], [3.0, 0.0], [inf, 1.0]];
    let form = || call::<MatMul>().input(&x).input(&y);
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(()) };
    let (own, expected) = (own.array::<f32, Ix2>("product")?, form().run()?.array::<f32, Ix2>("product")?);
    let same = own.iter().zip(&expected).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()));
    assert!(same, "{own} where {expected} is expected");
    Ok(())
}

#[test]
fn wrong_shapes_are_errors_on_both_devices() {
    let (x, y) = (numbers::<f32>(&[2, 3], 0), numbers::<f32>(&[3], 1));
    for form in [|x, y| call::<MatMul>().input(x).input(y), |x, y| call::<MatMul>().input(y).input(x)] {
        let error = form(&x, &y).launches(&mut |_| Ok(())).unwrap_err();
        assert_eq!(error, form(&x, &y).run().unwrap_err());
    }
}

/// The larger tiles, of which there are too many here where a call takes them: what a small call would launch, with their kernel.
#[test]
fn large_tiles_compute_the_same() -> Result<()> {
    if !processor::can_run() {
        return Ok(());
    }
    fn sized<T: AnyFloat>(edge: usize, [rows, depth, columns]: [usize; 3], turns: [bool; 2]) -> Result<()> {
        let (x, y) = (numbers::<T>(&[3, rows, depth], 0), numbers::<T>(&[depth, columns], 1));
        let (x, y) = (turned(x, turns[0]), turned(y, turns[1]));
        let (x, y) = (x.as_standard_layout(), y.as_standard_layout());
        let form = || {
            call::<MatMul>().input(&x).input(&y).attr("transpose_a", turns[0]).attr("transpose_b", turns[1])
        };
        let tiles = rows.div_ceil(16 * edge) * columns.div_ceil(16 * edge);
        let mut large = |launch: &mut Launch<'_>| {
            launch.kernel = launch.kernel.replace(", 2, ", &format!(", {edge}, "));
            launch.grid = [tiles as u32, 2, 1];
            // SAFETY: the call's tensors are in host memory until it is over.
            unsafe { processor::run(launch) }
        };
        let own = form().launches(&mut large)?.array::<T, IxDyn>("product")?;
        assert_eq!(own, form().run()?.array::<T, IxDyn>("product")?);
        Ok(())
    }
    fn with<T: AnyFloat>(edge: usize) -> Result<()> {
        sized::<T>(edge, [130, 37, 140], [false, false])
    }
    with::<f32>(4)?;
    with::<f32>(8)?;
    with::<f64>(4)?;
    with::<f16>(4)?;
    with::<bf16>(8)?;
    // Tensor cores read 16 bytes at once where each line begins at a multiple of them, and may end within.
    for turns in [[false, false], [true, false], [false, true], [true, true]] {
        sized::<f16>(8, [136, 72, 144], turns)?;
        sized::<bf16>(4, [72, 24, 40], turns)?;
        sized::<f16>(2, [40, 40, 33], turns)?;
    }
    Ok(())
}

/// Every size of tiles, and each way in which factors are read once.
#[test]
fn every_kernel_compiles() -> Result<()> {
    fn every<T: AnyFloat + CudaFloat>(sides: &[(usize, usize)], long: bool) -> Result<()> {
        let one = ArrayD::<T>::zeros(vec![1, 1]);
        for &(side, edge) in sides {
            let inner = [(1, "int"), (1 << 31, "long long")].into_iter().take(1 + usize::from(long));
            for (inner, index) in inner {
                // One number, repeated, which nobody reads here.
                let factor = one.broadcast(vec![side, inner]).unwrap_or_else(|| one.view());
                let form = || call::<MatMul>().input(&factor).input(&factor).attr("transpose_b", true);
                let expected = [format!("gemm<{}, {index}, {edge}, false, true>", T::NAME)];
                assert_eq!(form().kernels_launched()?, expected);
                form().compile_for_cuda()?;
            }
        }
        Ok(())
    }
    every::<f32>(&[(1, 2), (1024, 4), (2048, 8)], true)?;
    every::<f64>(&[(1, 2), (1024, 4)], true)?;
    // Those in half precision are those of float32 but for what they read and write.
    every::<f16>(&[(1, 2), (1024, 4), (2048, 8)], false)?;
    every::<bf16>(&[(1, 2), (1024, 4), (2048, 8)], false)?;
    every::<f16>(&[(1, 2)], true)?;
    every::<bf16>(&[(1, 2)], true)?;
    let x = numbers::<f32>(&[2, 2], 0);
    let half = numbers::<f16>(&[2, 2], 0);
    for (a, b) in [(true, false), (false, true), (true, true)] {
        let form = call::<MatMul>().input(&x).input(&x).attr("transpose_a", a).attr("transpose_b", b);
        let kernels = form.compile_for_cuda()?;
        assert!(kernels.iter().all(|kernel| kernel.ends_with(&format!(", {a}, {}>", !b))), "{kernels:?}");
        let form = call::<MatMul>().input(&half).input(&half).attr("transpose_a", a).attr("transpose_b", b);
        form.compile_for_cuda()?;
    }
    Ok(())
}

#[test]
fn sums_of_numbers_are_a_body_that_has_a_kernel() -> Result<()> {
    use crate::arithmetic::Add;
    let (x, y) = (numbers::<f32>(&[3, 1, 5], 0), numbers::<f32>(&[4, 1], 1));
    compare::<f32>(|| call::<Add>().input(&x).input(&y), &["z"])?;
    call::<Add>().input(&x).input(&y).compile_for_cuda().map(drop)
}

/// Integers of all sizes, of which products wrap around.
fn whole<T: Integer>(shape: &[usize], seed: i64) -> ArrayD<T>
where
    i64: num_traits::AsPrimitive<T>,
{
    Array::from_shape_fn(shape.to_vec(), |i| {
        let number: i64 = i.slice().iter().fold(7 + seed, |n, &i| n * 31 + i as i64);
        num_traits::AsPrimitive::<T>::as_(number % 1009 * 1_234_567_890_123 - 77)
    })
}

fn integers_in_all_orders<T: Integer>() -> Result<()>
where
    i64: num_traits::AsPrimitive<T>,
{
    use crate::card::tests::compare;
    for ([left, right], turns) in SHAPES.into_iter().flat_map(|shapes| {
        [[false, false], [true, false], [false, true], [true, true]].map(|turns| (shapes, turns))
    }) {
        let turned = |mut x: ArrayD<T>, turn| {
            let rank = x.ndim();
            if turn {
                x.swap_axes(rank - 2, rank - 1);
            }
            x
        };
        let (x, y) = (turned(whole::<T>(left, 0), turns[0]), turned(whole::<T>(right, 1), turns[1]));
        let dense = |x: &ArrayD<T>| x.as_standard_layout().to_owned();
        for (x, y) in [(dense(&x), dense(&y)), (x, y)] {
            let form = || call::<MatMul>().input(&x).input(&y).attr("transpose_a", turns[0]);
            compare::<T>(|| form().attr("transpose_b", turns[1]), "product")?;
        }
    }
    Ok(())
}

#[test]
fn integers_wrap_around_as_on_the_cpu() -> Result<()> {
    use crate::card::tests::compare;
    integers_in_all_orders::<i8>()?;
    integers_in_all_orders::<u16>()?;
    integers_in_all_orders::<i32>()?;
    integers_in_all_orders::<u64>()?;
    // The larger tiles, and odd strides.
    let (x, y) = (whole::<i16>(&[2, 520, 37], 0), whole::<i16>(&[37, 500], 1));
    let form = || call::<MatMul>().input(&x).input(&y);
    assert_eq!(form().kernels_launched()?, ["product<unsigned short, int, 4, false, true>"]);
    compare::<i16>(form, "product")?;
    let (x, y) = (whole::<i64>(&[9, 8, 7], 0), whole::<i64>(&[7, 6, 9], 1));
    let (x, y) = (x.slice(s![..;-2, 1.., ..;3]), y.slice(s![..;3, ..4, ..;2]));
    let y = y.permuted_axes([2, 0, 1]);
    compare::<i64>(|| call::<MatMul>().input(&x).input(&y), "product")
}

#[test]
fn kernels_of_integers_compile() -> Result<()> {
    let (x, y, one) = (whole::<u8>(&[3, 4], 0), whole::<i64>(&[520, 520], 1), whole::<i32>(&[1, 1], 2));
    call::<MatMul>().input(&x).input(&x).attr("transpose_b", true).compile_for_cuda()?;
    call::<MatMul>().input(&y).input(&y).attr("transpose_a", true).compile_for_cuda()?;
    // One number, repeated, which nobody reads here.
    let factor = one.broadcast(vec![1, 1 << 31]).unwrap_or_else(|| one.view());
    let form = || call::<MatMul>().input(&factor).input(&factor).attr("transpose_b", true);
    assert_eq!(form().kernels_launched()?, ["product<unsigned, long long, 2, false, true>"]);
    form().compile_for_cuda().map(drop)
}
