//! Random numbers on a card.

use opsmith::cuda::{CudaCall, Source, Structure, index_of, lanes_along};
use opsmith::prelude::*;
use opsmith::space::IndexSpace;

use super::philox::one_number;
use crate::card::name;

static SOURCE: Source = Source::new("random.cu", include_str!("random.cu")).beside(file!());

/// How an element is drawn.
pub(super) struct Draw {
    /// The structure in the source.
    pub(super) name: &'static str,
    /// How many words of 32 bits an element takes.
    pub(super) words: usize,
    /// What the structure is given.
    pub(super) numbers: [f64; 3],
}

/// Makes output 0 of a shape, from the elements of `x` where they count.
pub(super) fn draw(
    context: &OpKernelContext<'_>,
    draw: &Draw,
    x: Option<TensorView<'_>>,
    shape: &[usize],
) -> Result<()> {
    let (seed, offset) = (one_number(context, "seed")?, one_number(context, "offset")?);
    let output = context.allocate_output(0, shape)?;
    // Of what is not there the output's own memory, which nobody looks at.
    let (from, dtype, layout) = match &x {
        Some(x) => (x.data_ptr(), x.dtype(), x.layout()),
        None => (output.data_ptr().cast_const(), output.dtype(), output.layout()),
    };
    let space = IndexSpace::new(shape, &[layout])?;
    let index = index_of(&[&space], 1, 0);
    let kernel = format!(
        "drawn<{}, {}, {}, {}, {}>",
        draw.name,
        draw.words,
        name(dtype)?,
        name(output.dtype())?,
        index.name()
    );
    let mut numbers = Structure::new(index);
    draw.numbers.iter().for_each(|&number| {
        numbers.double(number);
    });
    let (call, each) = (CudaCall::new(context, &SOURCE), 4 / draw.words);
    let tensors = [(from, dtype.size()), (output.data_ptr().cast_const(), output.dtype().size())];
    let lanes = lanes_along(&space, each, &tensors, 1);
    let launch = call.kernel(kernel).for_each(space.len().div_ceil(each));
    let launch = launch.address(seed.data_ptr().cast()).address(offset.data_ptr().cast());
    let launch = launch.address(from.cast()).address(output.data_ptr().cast_const().cast());
    let launch = launch.raw(&numbers.finish()).space_in_packs(&space, 1, index, lanes);
    // SAFETY: these are the kernel's parameters: two numbers, a tensor that the space stays in, and the output, on the call's card.
    unsafe { launch.launch() }
}

#[cfg(test)]
mod tests {
    use opsmith::dtype::{bf16, f16};
    use opsmith::ndarray::{Array1, arr0};
    use opsmith::testing::{Call, call};

    use super::*;
    use crate::card::tests::{compare, gradient};
    use crate::random::{Dropout, RandomBernoulli, RandomBits, RandomNormal, RandomUniform};

    /// Compares both kernels of an op whose shape is an input: sizes around a block of the generator, and over a carry.
    fn compare_drawn<O: OpDefinition, Z: Element + std::fmt::Debug>(attrs: &[(&str, f64)]) -> Result<()> {
        let (seed, offset) = (arr0(-7i64), array![[(1i64 << 32) - 3]]);
        for shape in [array![3i64, 7], array![9_001], array![0, 5], Array1::zeros(0)] {
            let form = || {
                let call = call::<O>().input(&shape).input(&seed).input(&offset).attr("dtype", Z::DTYPE);
                attrs.iter().fold(call, |call, &(name, value)| call.attr(name, value))
            };
            compare::<Z>(form, "y")?;
        }
        Ok(())
    }

    #[test]
    fn numbers_are_those_of_the_cpu() -> Result<()> {
        compare_drawn::<RandomBits, u32>(&[])?;
        compare_drawn::<RandomBits, u64>(&[])?;
        let (range, bell) = ([("low", -1.5), ("high", 0.1)], [("mean", 0.3), ("stddev", 1.7)]);
        compare_drawn::<RandomUniform, f16>(&range)?;
        compare_drawn::<RandomUniform, bf16>(&range)?;
        compare_drawn::<RandomUniform, f32>(&range)?;
        compare_drawn::<RandomUniform, f64>(&range)?;
        compare_drawn::<RandomNormal, f16>(&bell)?;
        compare_drawn::<RandomNormal, bf16>(&bell)?;
        compare_drawn::<RandomNormal, f32>(&bell)?;
        compare_drawn::<RandomNormal, f64>(&bell)
    }

    #[test]
    fn what_is_true_or_dropped_is_that_of_the_cpu() -> Result<()> {
        let (seed, offset) = (array![1i64 << 40], arr0(5i64));
        let p = Array1::linspace(0.0f32, 1.0, 1001);
        let turned = p.slice(s![..;-2]);
        for p in [p.view(), turned] {
            let form = || call::<RandomBernoulli>().input(&p).input(&seed).input(&offset);
            compare::<bool>(form, "y")?;
            compare::<f16>(|| form().attr("dtype", DType::Float16), "y")?;
            compare::<i8>(|| form().attr("dtype", DType::Int8), "y")?;
            compare::<f32>(|| call::<Dropout>().input(&p).input(&seed).input(&offset).attr("p", 0.3), "y")?;
            let back = || gradient::<Dropout>(1).input(&p).input(&seed).input(&offset).input(&p);
            compare::<f32>(|| back().attr("p", 0.3), "x_grad")?;
        }
        let x = p.mapv(|x| x as f64 / 3.0);
        for x in [x.mapv(f16::from_f64).view(), x.mapv(|x| f16::from_f64(-x)).view()] {
            compare::<f16>(|| call::<Dropout>().input(&x).input(&seed).input(&offset).attr("p", 0.9), "y")?;
        }
        compare::<f64>(|| call::<Dropout>().input(&x).input(&seed).input(&offset).attr("p", 1.0), "y")
    }

    #[test]
    fn kernels_compile_and_seeds_are_one_number() -> Result<()> {
        let (shape, seed, seeds) = (array![5i64], arr0(1i64), array![1i64, 2]);
        let form = |seed: &ArrayViewD<'_, i64>, dtype| {
            Call::compile_for_cuda(
                call::<RandomNormal>().input(&shape).input(seed).input(seed).attr("dtype", dtype),
            )
        };
        form(&seed.view().into_dyn(), DType::Float64)?;
        form(&seed.view().into_dyn(), DType::BFloat16)?;
        call::<Dropout>().input(&array![1.0f32]).input(&seed).input(&seed).compile_for_cuda()?;
        let error = form(&seeds.view().into_dyn(), DType::Float32).unwrap_err();
        assert_eq!(error.message(), "RandomNormal: input `seed` must have one element, got shape [2]");
        Ok(())
    }
}
