//! Patches of images on a card.

use opsmith::prelude::*;

use super::{Patches, Runs};
use crate::card::name;
use crate::linear::last_input;
use crate::moved_on_card::name as name_of_size;
use crate::windows::Along;
use crate::windows::card::{Operand, Over};

impl Runs<'_> {
    fn along(&self) -> [Along; 3] {
        let Patches { rows, columns, .. } = *self.patches;
        let ([_, height, width, _], before, counts) = (self.image, self.before, self.counts);
        let along = |windows: super::Windows, dim, before, count| Along {
            dim,
            size: windows.size,
            stride: windows.stride,
            dilation: windows.rate,
            before,
            behind: 0,
            count,
        };
        [Along::ONE, along(rows, height, before.0, counts.0), along(columns, width, before.1, counts.1)]
    }

    /// Makes output 0 of a shape from images, or from patches.
    fn launch(
        &self,
        context: &OpKernelContext<'_>,
        kernel: &str,
        tensor: TensorView<'_>,
        shape: &[usize],
    ) -> Result<()> {
        let output = context.allocate_output(0, shape)?;
        let (along, operands, channels) =
            (self.along(), [Operand::with_channels_last(tensor)], self.image[3]);
        let most = self.shape()?.iter().fold(1, |product: usize, &dim| product.saturating_mul(dim.max(1)));
        let over = Over::new(&along, &shape[..1], &operands, (channels, most))?;
        let (to, count) = (output.data_ptr().cast_const().cast(), output.num_elements());
        // SAFETY: these are the parameters of both kernels, which make each element of the output.
        unsafe {
            over.launch(context, kernel, |launch| {
                launch.address(to).index(channels, over.index).for_each(count)
            })
        }
    }

    pub(super) fn take(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let x = context.input(0)?;
        let size = x.dtype().size();
        let element = name_of_size(size)
            .ok_or_else(|| Error::internal(format!("elements of {size} bytes are not moved on a card")))?;
        self.launch(context, &format!("patches<{element}"), x, &self.shape()?)
    }

    pub(super) fn put_back(&self, context: &OpKernelContext<'_>) -> Result<()> {
        let gradient = last_input(context, &self.shape()?)?;
        self.launch(context, &format!("patches_back<{}", name(gradient.dtype())?), gradient, &self.image)
    }
}

#[cfg(test)]
mod tests {
    use opsmith::dtype::{Complex, bf16, f16};
    use opsmith::ndarray::{Array, Array4};
    use opsmith::testing::{Call, call};

    use super::*;
    use crate::card::tests::{compare, gradient};
    use crate::patches::ExtractPatches;

    fn numbers(shape: (usize, usize, usize, usize)) -> Array4<f32> {
        Array::from_shape_fn(shape, |(n, i, j, c)| ((n * 31 + i * 17 + j * 7 + c * 3) % 23) as f32 - 11.0)
    }

    /// Windows that overlap, have gaps, reach beyond the image, and are larger than it.
    const WAYS: [fn(Call<'_>) -> Call<'_>; 4] = [
        |call| call.attr("ksize", vec![3, 2]),
        |call| call.attr("ksize", vec![2, 3]).attr("strides", vec![3, 1]).attr("rates", vec![2, 4]),
        |call| {
            let call = call.attr("ksize", vec![3, 4]).attr("strides", vec![2, 3]);
            call.attr("rates", vec![4, 2]).attr("padding", "SAME")
        },
        |call| call.attr("ksize", vec![40, 1]),
    ];

    #[test]
    fn patches_are_taken_and_put_back() -> Result<()> {
        let x = numbers((2, 9, 12, 3));
        for with in WAYS {
            for x in [x.view(), x.slice(s![..;-1, 1.., ..;-2, ..]), x.view().permuted_axes([3, 2, 1, 0])] {
                let form = || with(call::<ExtractPatches>().input(&x));
                compare::<f32>(form, "y")?;
                let y = form().run()?.array::<f32, Ix4>("y")?;
                let given = Array::from_shape_fn(y.dim(), |(n, i, j, c)| ((n + i * 5 + j + c) % 7) as f32);
                compare::<f32>(|| with(gradient::<ExtractPatches>(1).input(&x).input(&given)), "x_grad")?;
                compare::<f32>(|| with(gradient::<ExtractPatches>(2).input(&x)), "y_grad_grad")?;
                let (half, given) = (x.mapv(bf16::from_f32), given.mapv(bf16::from_f32));
                let given = given.slice(s![..;-1, .., .., ..]);
                compare::<bf16>(|| with(gradient::<ExtractPatches>(1).input(&half).input(&given)), "x_grad")?;
            }
        }
        let (bits, pairs) = (x.mapv(|x| x > 0.0), x.mapv(|x| Complex::new(x, -x)));
        compare::<bool>(|| WAYS[2](call::<ExtractPatches>().input(&bits)), "y")?;
        compare::<Complex<f32>>(|| WAYS[2](call::<ExtractPatches>().input(&pairs)), "y")?;
        for shape in [(0, 9, 9, 2), (2, 0, 9, 2), (2, 9, 9, 0)] {
            let none = numbers(shape).mapv(f16::from_f32);
            compare::<f16>(|| WAYS[2](call::<ExtractPatches>().input(&none)), "y")?;
        }
        Ok(())
    }

    #[test]
    fn windows_that_reach_far_take_wide_indices() -> Result<()> {
        fn far(call: Call<'_>) -> Call<'_> {
            let call = call.attr("ksize", vec![2049, 1]).attr("rates", vec![1 << 20, 1]);
            call.attr("padding", "SAME")
        }
        let x = numbers((1, 3, 3, 2));
        let form = || far(call::<ExtractPatches>().input(&x));
        assert!(form().kernels_launched()?.iter().all(|name| name.ends_with("long long>")));
        compare::<f32>(form, "y")?;
        form().compile_for_cuda()?;
        let given = Array4::<f32>::ones((1, 3, 3, 2 * 2049));
        let back = || far(gradient::<ExtractPatches>(1).input(&x).input(&given));
        compare::<f32>(back, "x_grad")?;
        back().compile_for_cuda()?;
        let half = x.mapv(f16::from_f32);
        WAYS[0](gradient::<ExtractPatches>(2).input(&half)).compile_for_cuda()?;
        Ok(())
    }
}
