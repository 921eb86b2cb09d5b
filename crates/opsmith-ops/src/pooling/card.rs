//! Poolings on a card.

use opsmith::cuda::{CudaElement, Index};
use opsmith::prelude::*;

use super::Planes;
use crate::card::name;
use crate::windows::card::{Operand, Over, shared};

impl Planes {
    fn operand(&self, tensor: TensorView<'_>) -> Operand {
        Operand::new(tensor, 0, self.dims)
    }

    fn over<'a>(&'a self, operands: &'a [Operand]) -> Result<Over<'a>> {
        Over::new(&self.along, &self.shape[..self.shape.len() - self.dims], operands, (1, 0))
    }
}

/// Makes output 0 of a shape by a kernel of means: those of the windows of a tensor, or back.
pub(super) fn means(
    context: &OpKernelContext<'_>,
    planes: &Planes,
    (kernel, divisor): (&str, f64),
    tensor: TensorView<'_>,
    shape: &[usize],
) -> Result<()> {
    let output = context.allocate_output(0, shape)?;
    let (to, results) = (output.data_ptr().cast_const().cast(), output.num_elements());
    let (kernel, operands) = (format!("{kernel}<{}", name(tensor.dtype())?), [planes.operand(tensor)]);
    // SAFETY: these are the parameters of both kernels, which make each element of the output.
    unsafe {
        planes.over(&operands)?.launch(context, &kernel, |launch| {
            shared(launch.address(to).value(divisor), results, &planes.along)
        })
    }
}

/// Makes output 0 of what `given` has where `x` has the largest number of each window, and `none` where a window has no element.
pub(super) fn largest<T: CudaElement>(
    context: &OpKernelContext<'_>,
    planes: &Planes,
    [x, given]: [TensorView<'_>; 2],
    none: T,
) -> Result<()> {
    let output = context.allocate_output(0, &planes.shape)?;
    let (to, results) = (output.data_ptr().cast_const().cast(), output.num_elements());
    let operands = [planes.operand(x), planes.operand(given)];
    // SAFETY: these are the kernel's parameters; both tensors have the images' shape, and the output an element for each window.
    unsafe {
        planes.over(&operands)?.launch(context, &format!("largest<{}", T::NAME), |launch| {
            shared(launch.address(to).value(none), results, &planes.along)
        })
    }
}

/// Makes output 0, like `x`, of a gradient that goes to where `x` has the largest number of each window.
pub(super) fn put_back(
    context: &OpKernelContext<'_>,
    planes: &Planes,
    x: TensorView<'_>,
    gradient: TensorView<'_>,
) -> Result<()> {
    let output = context.allocate_output(0, x.shape())?;
    let (to, results) = (output.data_ptr().cast_const().cast(), output.num_elements());
    if results == 0 {
        return Ok(());
    }
    let (operands, windows) = ([planes.operand(x), planes.operand(gradient)], gradient.shape());
    let (over, windows) = (planes.over(&operands)?, windows.iter().product::<usize>());
    let bytes = windows.saturating_mul(if over.index == Index::Bits64 { 8 } else { 4 });
    let positions = context.device_temp(bytes)?.as_ptr().cast_const().cast();
    let kernel = |kernel: &str| Ok::<_, Error>(format!("{kernel}<{}", name(x.dtype())?));
    // SAFETY: these are the kernels' parameters; there is room for a position for each window, which is in the plane or -1, and the
    // second one makes each element of the output.
    unsafe {
        over.launch(context, &kernel("largest_at")?, |launch| {
            shared(launch.address(positions), windows, &planes.along)
        })?;
        over.launch(context, &kernel("largest_back")?, |launch| {
            shared(launch.address(positions).address(to), results, &planes.along)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use opsmith::dtype::{bf16, f16};
    use opsmith::ndarray::{Array, Array1, ArrayD, Dimension, arr0};
    use opsmith::testing::{Call, call};

    use super::*;
    use crate::card::tests::{compare, far, gradient, with_wide_indices};
    use crate::pooling::{AvgPool, MaxPool};

    /// Whole numbers, some of them equal.
    fn numbers<T: AnyFloat>(shape: &[usize], seed: usize) -> ArrayD<T> {
        Array::from_shape_fn(shape.to_vec(), |at| {
            let number = at.slice().iter().fold(7 + seed, |n, i| n * 31 + i) % 11;
            <T as num_traits::NumCast>::from(number as f64 - 5.0).unwrap_or_else(T::zero)
        })
    }

    type Way = fn(Call<'_>) -> Call<'_>;

    /// Shapes, and windows that overlap, have gaps, or are beyond the ends.
    const WAYS: [(&[usize], Way); 6] = [
        (&[2, 3, 9, 13], |call| {
            call.attr("ksize", vec![3, 2]).attr("strides", vec![2, 1]).attr("padding", vec![1, 0])
        }),
        (&[2, 4, 5, 7], |call| {
            let call = call.attr("ksize", vec![2, 2, 3]).attr("strides", vec![3, 2, 2]);
            call.attr("dilations", vec![1, 3, 2]).attr("padding", vec![0, 1, 2, 0, 1, 3])
        }),
        (&[5, 600], |call| call.attr("ksize", vec![4]).attr("dilations", vec![6]).attr("strides", vec![4])),
        (&[3], |call| call.attr("ksize", vec![2]).attr("strides", vec![4]).attr("padding", vec![5])),
        (&[0, 3, 4], |call| call.attr("ksize", vec![2, 2])),
        (&[2, 0, 4], |call| call.attr("ksize", vec![2, 2]).attr("padding", vec![1, 0])),
    ];

    /// Compares all kernels of both ops.
    fn compare_all<T: AnyFloat + Debug>(x: &ArrayViewD<'_, T>, with: Way) -> Result<()> {
        let y = with(call::<MaxPool>().input(x)).run()?.array::<T, IxDyn>("y")?;
        let mut given = numbers::<T>(y.t().shape(), 3).reversed_axes();
        given.invert_axis(Axis(0));
        compare::<T>(|| with(call::<MaxPool>().input(x)), "y")?;
        compare::<T>(|| with(gradient::<MaxPool>(1).input(x).input(&given)), "x_grad")?;
        compare::<T>(|| with(gradient::<MaxPool>(2).input(x).input(x)), "y_grad_grad")?;
        for counts in [true, false] {
            compare::<T>(|| with(call::<AvgPool>().input(x)).attr("count_padding", counts), "y")?;
            let back = || with(gradient::<AvgPool>(1).input(x).input(&given)).attr("count_padding", counts);
            compare::<T>(back, "x_grad")?;
            let again = || with(gradient::<AvgPool>(2).input(x)).attr("count_padding", counts);
            compare::<T>(again, "y_grad_grad")?;
        }
        Ok(())
    }

    #[test]
    fn poolings_are_those_of_the_cpu() -> Result<()> {
        fn of<T: AnyFloat + Debug>() -> Result<()> {
            for (shape, with) in WAYS {
                compare_all(&numbers::<T>(shape, 0).view(), with)?;
                let turned: Vec<usize> = shape.iter().rev().copied().collect();
                let mut x = numbers::<T>(&turned, 1).reversed_axes();
                x.invert_axis(Axis(shape.len() - 1));
                compare_all(&x.view(), with)?;
            }
            Ok(())
        }
        of::<f32>()?;
        of::<f64>()?;
        of::<f16>()?;
        let x = numbers::<f32>(&[5, 300], 2);
        let (short, long) = (x.mapv(|x| x as i8), x.mapv(|x| x as u64));
        let few = short.slice(s![0, ..3]);
        compare::<i8>(|| WAYS[2].1(call::<MaxPool>().input(&short)), "y")?;
        compare::<u64>(|| WAYS[2].1(call::<MaxPool>().input(&long)), "y")?;
        compare::<i8>(|| WAYS[3].1(call::<MaxPool>().input(&few)), "y")
    }

    #[test]
    fn threads_share_large_windows() -> Result<()> {
        let mut x = numbers::<f32>(&[3, 40, 50], 0);
        x[[1, 39, 3]] = f32::NAN;
        x[[1, 7, 49]] = -f32::NAN;
        let whole: Way = |call| call.attr("ksize", vec![40, 50]);
        let nearly: Way = |call| call.attr("ksize", vec![16, 32]).attr("strides", vec![24, 9]);
        for with in [whole, nearly] {
            let mut blocks = Vec::new();
            with(call::<MaxPool>().input(&x)).launches(&mut |launch| {
                blocks.push(launch.block);
                Ok(())
            })?;
            assert!(blocks.iter().all(|block| block[0] > 1 && block[0] * block[1] == 256), "{blocks:?}");
            compare_all(&x.view(), with)?;
            compare_all(&x.slice(s![..2, ..;-1, ..]).into_dyn(), with)?;
        }
        Ok(())
    }

    #[test]
    fn kernels_compile_and_far_elements_take_wide_indices() -> Result<()> {
        let (x, one) = (far(), arr0(1f32));
        let x = x.slice(s![..; 1 << 30]);
        with_wide_indices::<u8>(|| call::<MaxPool>().input(&x).attr("ksize", vec![2]), "y")?;
        let many = one.broadcast(1usize << 31).unwrap();
        let form = || call::<AvgPool>().input(&many).attr("ksize", vec![1]).attr("strides", vec![1 << 20]);
        assert_eq!(form().kernels_launched()?, ["means<float, long long>"]);
        form().compile_for_cuda()?;
        let (x, given) = (Array1::<bf16>::zeros(5), Array1::<bf16>::zeros(4));
        let form = |call: Call<'_>| call.attr("ksize", vec![2]).compile_for_cuda();
        form(call::<MaxPool>().input(&x))?;
        form(gradient::<MaxPool>(1).input(&x).input(&given))?;
        form(gradient::<MaxPool>(2).input(&x).input(&x))?;
        form(call::<AvgPool>().input(&x))?;
        form(gradient::<AvgPool>(1).input(&x).input(&given))?;
        form(call::<MaxPool>().input(&x.mapv(f64::from)))?;
        form(call::<MaxPool>().input(&x.mapv(|x| f32::from(x) as i32)))?;
        Ok(())
    }
}
