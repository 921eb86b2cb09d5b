//! Elements by their positions, on a card.

use opsmith::cuda::{CudaCall, Source, Structure, index_of};
use opsmith::prelude::*;
use opsmith::space::{IndexSpace, Layout, Strides};

use crate::card::name;
use crate::moved_on_card::name as name_of_size;

pub(super) static SOURCE: Source = Source::new("positions.cu", include_str!("positions.cu")).beside(file!());

/// A tensor's strides over the dims of a result that has those of `indices` in place of dim `axis`: of the dims of the tensor
/// itself, or of those of the positions.
fn strides_in_result(own: &[isize], axis: usize, indices: &TensorView<'_>) -> [Strides; 2] {
    let none = |dims: usize| std::iter::repeat_n(0, dims);
    let (before, behind) = (&own[..axis], &own[axis + 1..]);
    let of_tensor = before.iter().copied().chain(none(indices.rank())).chain(behind.iter().copied());
    let of_positions = none(before.len()).chain(indices.strides().iter().copied()).chain(none(behind.len()));
    [of_tensor.collect(), of_positions.collect()]
}

/// Makes output 0 of a shape from the parts of input 0 at the positions along `axis`.
pub(super) fn take(context: &OpKernelContext<'_>, axis: usize, shape: &[usize]) -> Result<()> {
    let (x, indices) = (context.input(0)?, context.input("indices")?);
    let [of_x, of_positions] = strides_in_result(x.strides(), axis, &indices);
    let positions = (indices, &of_positions[..], name(indices.dtype())?);
    take_along(context, shape, (x, &of_x, axis), positions)
}

/// Makes output 0 of a shape from the elements of a tensor at positions along one of its dims. The tensor and the positions have strides
/// along that shape, and the positions a type in CUDA C++.
pub(crate) fn take_along(
    context: &OpKernelContext<'_>,
    shape: &[usize],
    (x, of_x, axis): (TensorView<'_>, &[isize], usize),
    (indices, of_positions, position): (TensorView<'_>, &[isize], &str),
) -> Result<()> {
    let output = context.allocate_output(0, shape)?;
    let space =
        IndexSpace::new(shape, &[Layout { shape, strides: of_x }, Layout { shape, strides: of_positions }])?;
    let (dim, step) = (x.shape()[axis], x.strides()[axis]);
    let index = index_of(&[&space], 2, dim.saturating_mul(step.unsigned_abs()).max(dim));
    let size = x.dtype().size();
    let element = name_of_size(size)
        .ok_or_else(|| Error::internal(format!("elements of {size} bytes are not moved on a card")))?;
    let kernel = format!("taken<{element}, {position}, {}>", index.name());
    let call = CudaCall::new(context, &SOURCE);
    let launch = call.kernel(kernel).for_each(space.len());
    let launch = launch.address(x.data_ptr().cast()).address(indices.data_ptr().cast());
    let launch = launch.address(output.data_ptr().cast_const().cast()).index(dim, index);
    let mut step_along = Structure::new(index);
    step_along.index(step as i128)?;
    let launch = launch.raw(&step_along.finish_without_address()).space(&space, 2, index);
    // SAFETY: these are the kernel's parameters; the space and the positions, which are looked at, stay in the tensors, which are on
    // the call's card.
    unsafe { launch.launch() }
}

/// Makes output 0, of a shape that has a new dim `axis`, of ones at the positions along it.
pub(super) fn mark(context: &OpKernelContext<'_>, axis: usize, shape: &[usize]) -> Result<()> {
    let indices = context.input("indices")?;
    let output = context.allocate_output(0, shape)?;
    let (mut of_positions, mut along) = (Strides::from_slice(indices.strides()), Strides::new());
    of_positions.insert(axis, 0);
    along.resize(shape.len(), 0);
    along[axis] = 1;
    let space = IndexSpace::new(
        shape,
        &[Layout { shape, strides: &of_positions }, Layout { shape, strides: &along }],
    )?;
    let index = index_of(&[&space], 2, 0);
    let kernel = format!("marked<{}, {}, {}>", name(indices.dtype())?, name(output.dtype())?, index.name());
    let call = CudaCall::new(context, &SOURCE);
    let launch = call.kernel(kernel).for_each(space.len());
    let launch = launch.address(indices.data_ptr().cast()).address(output.data_ptr().cast_const().cast());
    let launch = launch.space(&space, 2, index);
    // SAFETY: these are the kernel's parameters; the space stays in the positions, which are on the call's card, and the output is dense.
    unsafe { launch.launch() }
}

#[cfg(test)]
mod tests {
    use opsmith::dtype::{bf16, f16};
    use opsmith::ndarray::{Array, Array1, Array3};
    use opsmith::testing::call;

    use super::*;
    use crate::card::tests::{compare, gradient};
    use crate::indexing::{Gather, OneHot};

    fn numbers() -> Array3<f32> {
        Array::from_shape_fn((3, 40, 5), |(i, j, k)| (1 + i * 1000 + j * 10 + k) as f32 / 7.0)
    }

    #[test]
    fn parts_are_taken_and_put_back() -> Result<()> {
        let (x, few) = (numbers(), array![[0i64, -1], [2, 2]]);
        let many = Array1::from_shape_fn(700, |n| (n * 31 % 5) as i32 - 3);
        let (turned, backward) = (x.slice(s![.., ..;-3, ..2]), many.slice(s![..;-2]));
        let columns = few.t();
        for axis in [0, 1, -1] {
            compare::<f32>(|| call::<Gather>().input(&x).input(&few).attr("axis", axis), "y")?;
            let form = || call::<Gather>().input(&turned).input(&columns).attr("axis", axis);
            if axis != -1 {
                compare::<f32>(form, "y")?;
            }
        }
        compare::<f32>(|| call::<Gather>().input(&x).input(&backward).attr("axis", -1), "y")?;
        let shape = |indices: &[usize]| [&[3], indices, &[5]].concat();
        let of_few =
            Array::from_shape_fn(shape(&[2, 2]), |at| (at[0] * 100 + at[3] * 10 + at[1] + at[2]) as f64);
        let of_many =
            Array::from_shape_fn(shape(&[700]), |at| bf16::from_f64((at[0] * 7 + at[1] % 9 + at[2]) as f64));
        let (wide, short) = (x.mapv(f64::from), x.mapv(bf16::from_f32));
        let back = || gradient::<Gather>(1).attr("axis", 1);
        compare::<f64>(|| back().input(&wide).input(&few).input(&of_few), "x_grad")?;
        let long = many.mapv(|at| at.rem_euclid(40));
        compare::<bf16>(|| back().input(&short).input(&long).input(&of_many), "x_grad")?;
        let all = x.mapv(f16::from_f32);
        compare::<f16>(|| gradient::<Gather>(2).input(&all).input(&few), "y_grad_grad")?;
        // No positions, and a tensor of as many numbers.
        let (none, row) = (Array1::<i64>::zeros(0), array![1.5f32, 2.5]);
        compare::<f32>(|| call::<Gather>().input(&row).input(&none), "y")?;
        let nothing = Array1::<f32>::zeros(0);
        compare::<f32>(|| gradient::<Gather>(1).input(&row).input(&none).input(&nothing), "x_grad")
    }

    #[test]
    fn many_positions_are_put_back_in_their_order() -> Result<()> {
        // Several blocks, several digits, places with none, few and many positions, and one that all share.
        let spread =
            |dim: i64| Array1::from_shape_fn(9000, move |n| (n as i64 * n as i64 * 7) % dim - dim / 2);
        let (table, vector) = (Array::<f32, _>::zeros((300, 3)), Array1::<f64>::zeros(5000));
        let gradients = Array::from_shape_fn((9000, 3), |(n, k)| (n % 11 + k) as f32);
        let form = || gradient::<Gather>(1).input(&table);
        for indices in [spread(300), spread(7), spread(1)] {
            compare::<f32>(|| form().input(&indices).input(&gradients), "x_grad")?;
            let short = indices.mapv(|at| at as i32);
            let (short, gradients) = (short.slice(s![..;-3]), gradients.slice(s![..;3, ..]));
            compare::<f32>(|| form().input(&short).input(&gradients), "x_grad")?;
        }
        let (indices, gradients) = (spread(5000), gradients.column(0).mapv(f64::from));
        compare::<f64>(|| gradient::<Gather>(1).input(&vector).input(&indices).input(&gradients), "x_grad")
    }

    #[test]
    fn positions_that_are_not_there_give_zeros() -> Result<()> {
        let (x, indices) = (array![1.0f32, 2.0, 3.0], array![3i64, -4, i64::MIN, i64::MAX, -1]);
        if let Some(own) = call::<Gather>().input(&x).input(&indices).run_cuda_on_processor()? {
            assert_eq!(own.array::<f32, Ix1>("y")?, array![0.0, 0.0, 0.0, 0.0, 3.0]);
        }
        let gradients = array![1.0f32, 2.0, 4.0, 8.0, 16.0];
        let form = gradient::<Gather>(1).input(&x).input(&indices).input(&gradients);
        if let Some(own) = form.run_cuda_on_processor()? {
            assert_eq!(own.array::<f32, Ix1>("x_grad")?, array![0.0, 0.0, 16.0]);
        }
        Ok(())
    }

    #[test]
    fn ones_are_at_the_positions() -> Result<()> {
        let (indices, short) = (array![[1i64, -1, 0], [2, 7, 1]], array![1i32, 0, i32::MIN]);
        let columns = indices.t();
        for axis in [0, 1, 2, -1] {
            let form = || call::<OneHot>().input(&columns).attr("depth", 3).attr("axis", axis);
            compare::<f32>(form, "y")?;
        }
        let form = |dtype| call::<OneHot>().input(&short).attr("depth", 2).attr("dtype", dtype);
        compare::<bool>(|| form(DType::Bool), "y")?;
        compare::<f16>(|| form(DType::Float16), "y")?;
        compare::<u64>(|| form(DType::UInt64), "y")?;
        compare::<f32>(|| call::<OneHot>().input(&short).attr("depth", 0), "y")
    }

    #[test]
    fn kernels_compile() -> Result<()> {
        let (x, indices) = (numbers(), array![0i64, 2]);
        let gradients = Array::<f32, _>::zeros((2, 40, 5));
        call::<Gather>().input(&x.mapv(|_| true)).input(&indices).compile_for_cuda()?;
        gradient::<Gather>(1).input(&x).input(&indices).input(&gradients).compile_for_cuda()?;
        let (x, gradients) = (x.mapv(bf16::from_f32), gradients.mapv(bf16::from_f32));
        gradient::<Gather>(1).input(&x).input(&indices).input(&gradients).compile_for_cuda()?;
        call::<OneHot>().input(&indices).attr("depth", 3).compile_for_cuda()?;
        Ok(())
    }
}
