//! Convolutions on a card without one: compiled, and run on the processor against the kernels of the CPU.

use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{Array, ArrayD, Dimension, arr0};
use opsmith::testing::{Call, call};

use super::*;

/// Small integers, of which products and sums are exact in every dtype.
fn numbers<T: AnyFloat>(shape: &[usize], seed: usize) -> ArrayD<T> {
    Array::from_shape_fn(shape.to_vec(), |at| {
        let number = at.slice().iter().fold(7 + seed, |n, i| n * 31 + i) % 5;
        <T as num_traits::NumCast>::from(number as f64 - 2.0).unwrap_or_else(T::zero)
    })
}

/// Numbers that lie the other way round.
fn turned<T: AnyFloat>(array: &ArrayD<T>) -> ArrayD<T> {
    let mut turned = array.t().as_standard_layout().into_owned().reversed_axes();
    turned.invert_axis(Axis(1));
    turned
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

type Way = fn(Call<'_>) -> Call<'_>;

/// The shapes of images and filters, and windows that overlap, have gaps, or reach beyond the ends.
const WAYS: [([&[usize]; 2], Way); 8] = [
    ([&[2, 3, 9, 11], &[5, 3, 3, 2]], |call| call.attr("strides", vec![1, 1]).attr("padding", vec![1, 0])),
    ([&[2, 4, 5, 6, 7], &[6, 2, 2, 3, 1]], |call| {
        let call = call.attr("strides", vec![1, 2, 3]).attr("dilations", vec![2, 1, 1]);
        call.attr("padding", vec![0, 1, 0]).attr("groups", 2)
    }),
    ([&[2, 3, 4, 30], &[4, 1, 5]], |call| {
        let call = call.attr("strides", vec![4]).attr("dilations", vec![6]);
        call.attr("padding", vec![7, 2]).attr("groups", 4)
    }),
    ([&[20, 70], &[33, 20, 1]], |call| call.attr("strides", vec![1])),
    ([&[1, 2, 3, 40], &[40, 2, 2, 2]], |call| call.attr("strides", vec![2, 1]).attr("padding", vec![3, 1])),
    ([&[2, 0, 3], &[4, 0, 2]], |call| call.attr("strides", vec![1])),
    ([&[0, 2, 3], &[4, 2, 2]], |call| call.attr("strides", vec![1])),
    ([&[2, 2, 3], &[0, 2, 2]], |call| call.attr("strides", vec![1])),
];

fn compare_all<T: AnyFloat>() -> Result<()> {
    for ([x, filter], with) in WAYS {
        let (u, v) = (numbers::<T>(x, 2), numbers::<T>(filter, 3));
        let (x, filter) = (turned(&numbers::<T>(x, 0)), turned(&numbers::<T>(filter, 1)));
        let form = || with(call::<Conv>().input(&x).input(&filter));
        compare::<T>(form, &["y"])?;
        let given = turned(&numbers::<T>(form().run()?.array::<T, IxDyn>("y")?.shape(), 4));
        let back = || with(Call::new(gradient()).input(&x).input(&filter).input(&given));
        compare::<T>(back, &["x_grad", "filter_grad"])?;
        compare::<T>(|| back().without("x_grad"), &["filter_grad"])?;
        let again = || with(Call::new(second_gradient()).input(&x).input(&filter).input(&given));
        let all = ["x_grad", "filter_grad", "y_grad_grad"];
        compare::<T>(|| again().input(&u).input(&v), &all)?;
        compare::<T>(|| again().absent().input(&v), &all)?;
        compare::<T>(|| again().input(&u).absent().without("x_grad"), &all[1..])?;
        compare::<T>(|| again().absent().absent(), &all)?;
    }
    Ok(())
}

#[test]
fn convolutions_are_those_of_the_cpu() -> Result<()> {
    compare_all::<f32>()?;
    compare_all::<f16>()
}

#[test]
fn other_dtypes_and_half_that_is_added_up_in_single() -> Result<()> {
    fn of<T: AnyFloat>() -> Result<()> {
        let (x, filter) = (numbers::<T>(&[2, 20, 9], 0), numbers::<T>(&[40, 20, 2], 1));
        let given = numbers::<T>(&[2, 40, 8], 2);
        compare::<T>(|| call::<Conv>().input(&x).input(&filter).attr("strides", vec![1]), &["y"])?;
        let back = || Call::new(gradient()).input(&x).input(&filter).input(&given).attr("strides", vec![1]);
        compare::<T>(back, &["x_grad", "filter_grad"])
    }
    of::<f64>()?;
    of::<bf16>()?;
    let ones = |shape: &[usize]| ArrayD::from_elem(shape, f16::ONE);
    let (x, filter) = (ones(&[4096, 3]), ones(&[1, 4096, 2]));
    compare::<f16>(|| call::<Conv>().input(&x).input(&filter).attr("strides", vec![1]), &["y"])
}

#[test]
fn blocks_share_long_sums_of_filters() -> Result<()> {
    fn of<T: AnyFloat>() -> Result<()> {
        let (x, filter) = (numbers::<T>(&[3, 2, 700], 0), numbers::<T>(&[18, 1, 3], 1));
        let given = numbers::<T>(&[3, 18, 700], 2);
        let form = || {
            let call = Call::new(gradient()).input(&x).input(&filter).input(&given).without("x_grad");
            call.attr("strides", vec![1]).attr("padding", vec![1]).attr("groups", 2)
        };
        let kernels = form().kernels_launched()?;
        assert_eq!(kernels.len(), 2, "{kernels:?}");
        form().compile_for_cuda()?;
        compare::<T>(form, &["filter_grad"])
    }
    of::<f32>()?;
    of::<f16>()
}

#[test]
fn large_tiles_compute_the_same() -> Result<()> {
    let (x, filter) = (numbers::<f32>(&[1, 3, 1300], 0), numbers::<f32>(&[320, 3, 2], 1));
    let form = || call::<Conv>().input(&x).input(&filter).attr("strides", vec![1]);
    assert_eq!(form().kernels_launched()?, ["convolved<float, 4, 4, int>"]);
    form().compile_for_cuda()?;
    compare::<f32>(form, &["y"])
}

/// Every kernel of a dtype, and of each those with wide indices, of one number that is repeated and that nobody reads here.
#[test]
fn every_kernel_compiles() -> Result<()> {
    fn of<T: AnyFloat>(far: usize) -> Result<()> {
        let one = arr0(T::one());
        let of = |shape: [usize; 3]| one.broadcast(shape).unwrap();
        let with = |call: Call<'_>, index: &str| {
            let kernels = call.attr("strides", vec![1]).compile_for_cuda()?;
            assert!(kernels.iter().all(|kernel| kernel.ends_with(index)), "{kernels:?}");
            Ok::<_, Error>(())
        };
        let index = if far > 1 << 30 { "long long>" } else { "int>" };
        let unit = of([1, 1, 1]);
        let (x, filter) = (of([1, far, 1]), of([1, far, 1]));
        with(call::<Conv>().input(&x).input(&filter), index)?;
        let (filter, y) = (of([far, 1, 1]), of([1, far, 1]));
        with(Call::new(gradient()).input(&unit).input(&filter).input(&y).without("filter_grad"), index)?;
        let (x, y) = (of([far, 1, 1]), of([far, 1, 1]));
        with(Call::new(gradient()).input(&x).input(&unit).input(&y).without("x_grad"), index)
    }
    of::<f32>(1)?;
    of::<f64>(1)?;
    of::<f16>(1)?;
    of::<bf16>(1)?;
    of::<f32>(1 << 31)
}

#[test]
fn wrong_shapes_are_errors_on_both_devices() {
    let (x, filter, given) =
        (numbers::<f32>(&[1, 2, 5], 0), numbers::<f32>(&[3, 2, 2], 1), numbers::<f32>(&[1, 3, 5], 2));
    let form = || Call::new(gradient()).input(&x).input(&filter).input(&given).attr("strides", vec![1]);
    let error = form().launches(&mut |_| Ok(())).unwrap_err();
    assert_eq!(error, form().run().unwrap_err());
}
