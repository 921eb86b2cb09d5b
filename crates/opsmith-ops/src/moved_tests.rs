//! Ops that move elements on a card without one: compiled, and run on the processor against the kernels of the CPU.

use opsmith::ndarray::{Array, Array3};
use opsmith::prelude::*;
use opsmith::testing::{self, Call, call};

use crate::layout::{BroadcastTo, Reshape, SumTo, Transpose};
use crate::parts::{Concat, Pad, Split, Stack};
use crate::slice::Slice;
use crate::values::{Fill, Identity, StopGradient, ZerosLike};

/// The ops of an op's gradients of two orders, which come into a library with it.
fn companion<O: OpDefinition>(order: usize) -> OpDef {
    O::COMPANIONS[order - 1]()
}

/// Runs both kernels of a call, if that can be done here, and compares the output, which may be of any rank.
fn compare<'a, T: Element + PartialEq + std::fmt::Debug + Clone>(
    form: impl Fn() -> Call<'a>,
    output: &str,
) -> Result<()> {
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(()) };
    assert_eq!(own.array::<T, IxDyn>(output)?, form().run()?.array::<T, IxDyn>(output)?);
    Ok(())
}

fn numbers() -> Array3<f32> {
    Array::from_shape_fn((3, 4, 5), |(i, j, k)| (1 + i * 100 + j * 10 + k) as f32)
}

#[test]
fn paddings_are_read_in_host_memory_and_zeros_put_around() -> Result<()> {
    let x = numbers();
    for paddings in [[[0i64, 0], [0, 0], [0, 0]], [[1, 2], [0, 3], [4, 0]], [[0, 0], [700, 0], [0, 1]]] {
        let paddings = opsmith::ndarray::arr2(&paddings);
        for x in [
            x.view(),
            x.slice(s![1..;2, ..;-1, ..]),
            x.view().permuted_axes([2, 0, 1]),
            x.slice(s![..1, .., 2..3]),
            x.slice(s![.., ..0, ..]),
        ] {
            compare::<f32>(|| call::<Pad>().input(&x).input(&paddings), "y")?;
            let padded = call::<Pad>().input(&x).input(&paddings).run()?.array::<f32, Ix3>("y")?;
            let turned = padded.mapv(|number| number + 1.0).reversed_axes();
            let (x, grad) = (&x, turned.t());
            compare::<f32>(
                || Call::new(companion::<Pad>(1)).input(x).input(&paddings).input(&grad),
                "x_grad",
            )?;
            compare::<f32>(|| Call::new(companion::<Pad>(2)).input(x).input(&paddings), "y_grad_grad")?;
        }
    }
    let (bytes, number) = (array![true, false], array![[1i32, 2]]);
    compare::<bool>(|| call::<Pad>().input(&bytes).input(&number), "y")?;
    let (none, empty) = (opsmith::ndarray::arr0(7i64), opsmith::ndarray::Array2::<i64>::zeros((0, 2)));
    compare::<i64>(|| call::<Pad>().input(&none).input(&empty), "y")
}

#[test]
fn elements_side_by_side_are_moved_at_once() -> Result<()> {
    let x = Array::from_shape_fn((3, 16), |(i, j)| (1 + i * 100 + j) as f32);
    for paddings in [[[1i64, 0], [4, 8]], [[0, 2], [3, 1]], [[0, 2], [0, 0]], [[0, 0], [4, 1]]] {
        let paddings = opsmith::ndarray::arr2(&paddings);
        for x in [x.view(), x.slice(s![..;-1, 4..12]), x.slice(s![.., 1..5]), x.slice(s![.., ..0])] {
            compare::<f32>(|| call::<Pad>().input(&x).input(&paddings), "y")?;
        }
    }
    let (all, wide, narrow) = (x.view(), x.slice(s![.., ..12]), x.slice(s![.., 5..6]));
    for axis in [0, 1] {
        compare::<f32>(|| call::<Concat>().input_list([&x, &x].map(testing::view)).attr("axis", axis), "y")?;
    }
    compare::<f32>(
        || call::<Concat>().input_list([&all, &wide, &narrow].map(testing::view)).attr("axis", 1),
        "y",
    )?;
    let shape = array![3i64, 24];
    compare::<f32>(|| call::<BroadcastTo>().input(&narrow).input(&shape), "y")
}

#[test]
fn wrong_paddings_are_errors_on_both_devices() {
    let (x, paddings) = (numbers(), array![[0, 0], [-1, 0], [0, 0]]);
    let form = || call::<Pad>().input(&x).input(&paddings);
    assert_eq!(form().launches(&mut |_| Ok(())).unwrap_err(), form().run().unwrap_err());
}

#[test]
fn parts_shapes_and_orders_of_dims() -> Result<()> {
    let x = numbers();
    let (begin, size) = (array![1i64, -3, 0], array![2i64, 2, -1]);
    compare::<f32>(|| call::<Slice>().input(&x).input(&begin).input(&size), "y")?;
    let part = call::<Slice>().input(&x).input(&begin).input(&size).run()?.array::<f32, Ix3>("y")?;
    let grad = || Call::new(companion::<Slice>(1)).input(&x).input(&begin).input(&size).input(&part);
    compare::<f32>(grad, "x_grad")?;
    let (turned, shape) = (x.t(), array![6i32, -1]);
    compare::<f32>(|| call::<Reshape>().input(&turned).input(&shape), "y")?;
    compare::<f32>(|| call::<Transpose>().input(&x).attr("perm", vec![1, 0, 2]), "y")
}

/// As [`compare`], of each tensor of an output.
fn compare_list<'a>(form: impl Fn() -> Call<'a>, output: &str, count: usize) -> Result<()> {
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(()) };
    let expected = form().run()?;
    for index in 0..count {
        assert_eq!(own.element::<f32, IxDyn>(output, index)?, expected.element::<f32, IxDyn>(output, index)?);
    }
    Ok(())
}

#[test]
fn tensors_are_put_together_and_cut() -> Result<()> {
    let x = numbers();
    let (y, none) = (x.slice(s![.., 1..;2, ..]), x.slice(s![.., ..0, ..]));
    let list = || [testing::view(&x), testing::view(&y), testing::view(&none)];
    let whole = || call::<Concat>().input_list(list()).attr("axis", 1);
    compare::<f32>(whole, "y")?;
    let joined = whole().run()?.array::<f32, Ix3>("y")?;
    let grad = || Call::new(companion::<Concat>(1)).input_list(list()).input(&joined).attr("axis", 1);
    compare_list(grad, "xs_grad", 3)?;
    let same = || [testing::view(&x), testing::view(&x)];
    compare::<f32>(|| call::<Stack>().input_list(same()).attr("axis", -1), "y")?;
    let stacked = call::<Stack>().input_list(same()).attr("axis", -1).run()?.array::<f32, Ix4>("y")?;
    let grad = || Call::new(companion::<Stack>(1)).input_list(same()).input(&stacked).attr("axis", -1);
    compare_list(grad, "xs_grad", 2)?;
    let turned = x.t();
    compare_list(|| call::<Split>().input(&turned).attr("axis", 1).attr("N", 2), "ys", 2)?;
    compare::<f32>(|| Call::new(companion::<Split>(1)).input_list(same()), "x_grad")
}

#[test]
fn values_are_repeated_passed_on_and_made() -> Result<()> {
    let (x, shape) = (numbers(), array![2i64, 3, 4, 5]);
    compare::<f32>(|| call::<BroadcastTo>().input(&x).input(&shape), "y")?;
    let (row, own) = (x.slice(s![..1, .., ..1]), array![3i64, 4, 5]);
    compare::<f32>(|| call::<BroadcastTo>().input(&row).input(&own), "y")?;
    let smaller = array![4i64, 1];
    let sums = opsmith::ndarray::Array2::from_shape_fn((4, 1), |(i, _)| i as f32);
    compare::<f32>(|| Call::new(companion::<SumTo>(1)).input(&x).input(&smaller).input(&sums), "x_grad")?;
    let one = array![[7u8]];
    compare::<u8>(|| call::<Fill>().input(&own).input(&one), "y")?;
    let turned = x.t();
    compare::<f32>(|| call::<Identity>().input(&turned), "y")?;
    compare::<f32>(|| call::<StopGradient>().input(&turned), "y")?;
    compare::<f32>(|| call::<ZerosLike>().input(&turned), "y")?;
    let number = opsmith::ndarray::arr0(true);
    compare::<bool>(|| call::<ZerosLike>().input(&number), "y")
}

#[test]
fn the_kernel_compiles_for_every_size_of_elements() -> Result<()> {
    fn every<T: Number>() -> Result<()> {
        let (one, none) = (Array::<T, _>::zeros(1), array![[0i64, 1]]);
        call::<Pad>().input(&one).input(&none).compile_for_cuda()?;
        Ok(())
    }
    every::<i8>()?;
    every::<i16>()?;
    every::<f32>()?;
    every::<f64>()?;
    // Places beyond 31 bits, of memory that nobody touches.
    let many = Array::<u8, _>::zeros((1 << 31) + 1);
    let (apart, begin, size) = (many.slice(s![..;1 << 30]), array![0i64], array![-1i64]);
    let kernels = call::<Slice>().input(&apart).input(&begin).input(&size).compile_for_cuda()?;
    assert!(kernels.iter().all(|kernel| kernel == "move<unsigned char, long long>"), "{kernels:?}");
    Ok(())
}
