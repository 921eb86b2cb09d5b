//! Twice the input: the smallest op with a CUDA kernel, to be copied.
//!
//! The function under `#[op]` is the op: its definition, its shapes and its kernel on the CPU. The function with `_cuda` behind its
//! name launches the kernel in `example.cu`.

use opsmith::cuda::{CudaCall, CudaElement, DeviceView, DeviceViewMut, Index};
use opsmith::prelude::*;

/// Twice the input.
#[op(shape = "(...)->(...)", dtypes(T = [f32, i32]), strided, gradient = example_grad, cuda = "example.cu", capturable, parallel = "...")]
fn example<T: Number>(
    /// Any numbers.
    x: ArrayViewD<T>,
    /// Twice of each.
    mut y: ArrayViewMutD<T>,
) {
    azip!((y in &mut y, &x in &x) *y = x + x);
}

fn example_cuda<T: CudaElement>(call: &CudaCall, x: DeviceView<T>, y: DeviceViewMut<T>) -> Result<()> {
    // 32 bits where all places fit them, which a card computes faster with.
    let index = Index::of(&[&x, &y]);
    let kernel = format!("doubled<{}, {}>", T::NAME, index.name());
    let launch = call.kernel(kernel).for_each(y.num_elements()).flat(&x, index).flat(&y, index);
    // SAFETY: the kernel takes these two, with these types, and goes no further than `y.count()`.
    unsafe { launch.launch() }
}

/// The gradient of `Example`: twice the gradient of its output.
#[op(shape = "(...)->(...)", dtypes(T = [f32, i32]), strided, cuda = "example.cu", capturable, parallel = "...")]
fn example_grad<T: Number>(
    /// The gradient of the output.
    y_grad: ArrayViewD<T>,
    /// That of the input.
    mut x_grad: ArrayViewMutD<T>,
) {
    azip!((x in &mut x_grad, &y in &y_grad) *x = y + y);
}

fn example_grad_cuda<T: CudaElement>(
    call: &CudaCall,
    y_grad: DeviceView<T>,
    x_grad: DeviceViewMut<T>,
) -> Result<()> {
    example_cuda(call, y_grad, x_grad)
}

opsmith::library! { name = "example", ops = [example, example_grad] }

#[cfg(test)]
mod tests {
    use opsmith::ndarray::Array3;
    use opsmith::testing::call;

    use super::*;

    #[test]
    fn the_input_is_doubled_on_the_cpu() -> Result<()> {
        let x = array![[1i32, -2], [3, 0]];
        let y = call::<example>().input(&x).run()?.array::<i32, Ix2>("y")?;
        assert_eq!(y, array![[2, -4], [6, 0]]);
        Ok(())
    }

    #[test]
    fn the_cuda_kernel_compiles_for_every_dtype() -> Result<()> {
        call::<example>().input(&array![1f32]).compile_for_cuda()?;
        call::<example>().input(&array![1i32]).compile_for_cuda()?;
        call::<example_grad>().input(&array![1f32]).compile_for_cuda()?;
        Ok(())
    }

    /// What the kernel computes, with the arguments that it is given, is seen without a card.
    #[test]
    fn the_cuda_kernel_computes_what_the_cpu_does() -> Result<()> {
        let x = Array3::from_shape_fn((3, 5, 700), |(i, j, k)| (i * 4000 + j * 800 + k) as f32);
        for x in [x.view(), x.view().permuted_axes([2, 0, 1]), x.slice(s![..;-2, .., 3..9])] {
            let expected = call::<example>().input(&x).run()?.array::<f32, Ix3>("y")?;
            let Some(outputs) = call::<example>().input(&x).run_cuda_on_processor()? else { return Ok(()) };
            assert_eq!(outputs.array::<f32, Ix3>("y")?, expected);
        }
        let empty = Array3::<i32>::zeros((3, 0, 2));
        if let Some(outputs) = call::<example>().input(&empty).run_cuda_on_processor()? {
            assert_eq!(outputs.array::<i32, Ix3>("y")?, empty);
        }
        Ok(())
    }
}
