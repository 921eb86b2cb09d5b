//! Values in the places of a dense tensor, on a card: first it finds which one is the last of each place, then it moves them.

use std::ffi::c_void;

use opsmith::cuda::{CudaCall, Index, Source, Structure, index_of};
use opsmith::prelude::*;
use opsmith::space::IndexSpace;

use crate::card::name;
use crate::moved_on_card::name as name_of_size;

static SOURCE: Source = Source::new("place.cu", include_str!("place.cu")).beside(file!());

/// The most dims of a dense tensor, as in the source.
const MOST: usize = 32;

/// What kernels know of a call: where each value goes, and which one is the last of each place.
struct Places {
    rows: Vec<u8>,
    last: *const c_void,
}

/// The type that stands for elements of a dtype.
fn element(dtype: DType) -> Result<&'static str> {
    let wrong = || Error::internal(format!("elements of {dtype} are not moved on a card"));
    name_of_size(dtype.size()).ok_or_else(wrong)
}

/// The indices that a space fits, of a tensor whose elements are others of the call's, and all else that kernels count.
fn index(context: &OpKernelContext<'_>, space: &IndexSpace, [size, count]: [usize; 2]) -> Result<Index> {
    let indices = context.input("indices")?.layout().span();
    Ok(index_of(&[space], 1, size.max(count).max(indices)))
}

/// Has the card find the last of `count` values for each of `size` places of a dense tensor of a shape.
fn places(
    context: &OpKernelContext<'_>,
    shape: &[usize],
    [size, count]: [usize; 2],
    index: Index,
) -> Result<Places> {
    ensure!(
        shape.len() <= MOST,
        Unimplemented,
        "dense tensors of {} dims have no CUDA kernel, which has at most {MOST}",
        shape.len()
    );
    let indices = context.input("indices")?;
    let step = |dim: usize| match indices.shape().get(dim) {
        Some(2..) => indices.strides()[dim] as i128,
        _ => 0,
    };
    let mut rows = Structure::new(index);
    rows.address(indices.data_ptr().cast()).index(step(0))?.index(step(1))?.int(shape.len() as i32);
    // Where no element is, the other dims may be of any size.
    let dims = shape.iter().map(|&dim| if size == 0 { 0 } else { dim });
    for dim in dims.chain(std::iter::repeat(0)).take(MOST) {
        rows.index(dim as i128)?;
    }
    let rows = rows.finish();
    let bytes = size.max(1).saturating_mul(if index == Index::Bits64 { 8 } else { 4 });
    let last = context.device_temp(bytes)?.as_ptr().cast_const().cast();
    let call = CudaCall::new(context, &SOURCE);
    let begun = call.kernel(format!("begun<{}>", index.name())).for_each(size);
    // SAFETY: these are the kernel's parameters, and there is room for a number for each place.
    unsafe { begun.address(last).index(size, index).launch()? };
    let found = call.kernel(format!("found<{}, {}>", name(indices.dtype())?, index.name())).for_each(count);
    // SAFETY: these are the kernel's parameters; there are as many rows of indices, and places outside are looked at.
    unsafe { found.raw(&rows).address(last).index(count, index).launch()? };
    Ok(Places { rows, last })
}

/// Makes output 0 of a shape from the values, which are input 0: zeros but for their places.
pub(super) fn place(context: &OpKernelContext<'_>, shape: &[usize]) -> Result<()> {
    let values = context.input(0)?;
    let output = context.allocate_output(0, shape)?;
    let size = output.num_elements();
    if size == 0 {
        return Ok(());
    }
    let space = IndexSpace::new(values.shape(), &[values.layout()])?;
    let index = index(context, &space, [size, 0])?;
    let Places { last, .. } = places(context, shape, [size, space.len()], index)?;
    let call = CudaCall::new(context, &SOURCE);
    let kernel = format!("placed<{}, {}>", element(values.dtype())?, index.name());
    let launch = call.kernel(kernel).for_each(size).address(last).address(values.data_ptr().cast());
    let launch = launch.address(output.data_ptr().cast_const().cast()).index(size, index);
    // SAFETY: these are the kernel's parameters: a value's number, or none, for each element of the output, and where values are.
    unsafe { launch.space(&space, 1, index).launch() }
}

/// Makes output 0, of the shape of the values, from a gradient of the dense tensor's shape.
pub(super) fn take(context: &OpKernelContext<'_>, gradient: TensorView<'_>) -> Result<()> {
    let (shape, values) = (gradient.shape(), context.input_shape(0)?);
    let output = context.allocate_output(0, values)?;
    let count = output.num_elements();
    let space = IndexSpace::new(shape, &[gradient.layout()])?;
    let index = index(context, &space, [space.len(), count])?;
    let Places { rows, last } = places(context, shape, [space.len(), count], index)?;
    let positions = name(context.input("indices")?.dtype())?;
    let kernel = format!("taken<{}, {positions}, {}>", element(gradient.dtype())?, index.name());
    let call = CudaCall::new(context, &SOURCE);
    let launch = call.kernel(kernel).for_each(count).raw(&rows).address(last);
    let launch = launch.address(gradient.data_ptr().cast()).address(output.data_ptr().cast_const().cast());
    // SAFETY: these are the kernel's parameters; places that are looked at are in the gradient, and the output has each value.
    unsafe { launch.index(count, index).space(&space, 1, index).launch() }
}

#[cfg(test)]
mod tests {
    use opsmith::dtype::{Complex, bf16, f16};
    use opsmith::ndarray::{Array, Array1, Array2, arr0};
    use opsmith::testing::call;

    use super::*;
    use crate::card::tests::{compare, gradient};
    use crate::indexing::SparseToDense;

    /// Rows of indices into (6, 50, 7) for 700 values, none twice.
    fn rows() -> Array2<i64> {
        Array::from_shape_fn((700, 3), |(n, dim)| {
            let place = n * 1009 % 2100;
            [place / 350, place / 7 % 50, place % 7][dim] as i64
        })
    }

    #[test]
    fn values_are_placed_and_taken_back() -> Result<()> {
        let (rows, shape) = (rows(), array![6i64, 50, 7]);
        let values = Array1::from_shape_fn(1400, |n| n as f32 + 0.25);
        let (odd, dense) = (values.slice(s![..;-2]), Array::from_shape_fn((7, 50, 6), |(i, j, k)| i + j * k));
        let columns = Array2::from_shape_fn((3, 700), |(dim, n)| rows[[n, dim]] as i32);
        let (turned, short) = (columns.t(), shape.mapv(|dim| dim as i32));
        compare::<f32>(|| call::<SparseToDense>().input(&odd).input(&rows).input(&shape), "y")?;
        compare::<f32>(|| call::<SparseToDense>().input(&odd).input(&turned).input(&short), "y")?;
        let half = odd.mapv(f16::from_f32);
        let second = || gradient::<SparseToDense>(2).input(&half).input(&turned).input(&short);
        compare::<f16>(second, "y_grad_grad")?;
        let wide = odd.mapv(|x| Complex::new(x, -x));
        compare::<Complex<f32>>(|| call::<SparseToDense>().input(&wide).input(&rows).input(&shape), "y")?;
        let short = dense.mapv(|x| bf16::from_f32(x as f32));
        let (given, like) = (short.t(), odd.mapv(bf16::from_f32));
        let back = || gradient::<SparseToDense>(1).input(&like).input(&rows).input(&shape);
        compare::<bf16>(|| back().input(&given), "values_grad")?;
        let (dense, like) = (dense.mapv(|x| x as f64), odd.mapv(f64::from));
        let given = dense.t();
        let back = || gradient::<SparseToDense>(1).input(&like).input(&rows).input(&shape);
        compare::<f64>(|| back().input(&given), "values_grad")
    }

    #[test]
    fn vectors_numbers_and_nothing() -> Result<()> {
        let (values, indices, shape) = (array![1u8, 2, 3], array![4i64, 0, 2], array![5i64]);
        let turned = indices.slice(s![..;-1]);
        compare::<u8>(|| call::<SparseToDense>().input(&values).input(&turned).input(&shape), "y")?;
        let (one, none) = (Array2::<i64>::zeros((1, 0)), Array1::<i64>::zeros(0));
        let number = array![1.5f64];
        compare::<f64>(|| call::<SparseToDense>().input(&number).input(&one).input(&none), "y")?;
        let given = arr0(2.5f64);
        let back = || gradient::<SparseToDense>(1).input(&number).input(&one).input(&none);
        compare::<f64>(|| back().input(&given), "values_grad")?;
        let (nothing, empty) = (Array1::<f64>::zeros(0), array![0i64]);
        for shape in [&shape, &empty] {
            compare::<f64>(|| call::<SparseToDense>().input(&nothing).input(&none).input(shape), "y")?;
        }
        Ok(())
    }

    #[test]
    fn places_outside_are_left_out_and_the_last_of_one_place_counts() -> Result<()> {
        let (values, shape) = (Array1::from_shape_fn(1000, |n| n as f32), array![2i64, 3]);
        // Values 0 to 995 are in three places, and those behind in none.
        let indices = Array2::from_shape_fn((1000, 2), |(n, dim)| match (n, dim) {
            (..996, 0) => 1,
            (..996, _) => (n % 3) as i64,
            (996, _) => -1,
            (997, _) => i64::MAX,
            (998, _) => i64::MIN,
            (_, dim) => 3 - dim as i64,
        });
        let form = || call::<SparseToDense>().input(&values).input(&indices).input(&shape);
        if let Some(own) = form().run_cuda_on_processor()? {
            assert_eq!(own.array::<f32, Ix2>("y")?, array![[0.0, 0.0, 0.0], [993.0, 994.0, 995.0]]);
        }
        let given = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
        let back = gradient::<SparseToDense>(1).input(&values).input(&indices).input(&shape).input(&given);
        if let Some(own) = back.run_cuda_on_processor()? {
            let expected = Array1::from_shape_fn(1000, |n| match n {
                993..996 => (n - 989) as f32,
                _ => 0.0,
            });
            assert_eq!(own.array::<f32, Ix1>("values_grad")?, expected);
        }
        // Nothing is in an empty tensor.
        let (none, empty) = (array![0i64, 3], Array2::<f32>::zeros((0, 3)));
        let back = gradient::<SparseToDense>(1).input(&values).input(&indices).input(&none).input(&empty);
        if let Some(own) = back.run_cuda_on_processor()? {
            assert_eq!(own.array::<f32, Ix1>("values_grad")?, Array1::<f32>::zeros(1000));
        }
        Ok(())
    }

    #[test]
    fn kernels_compile_for_both_indices() -> Result<()> {
        let (rows, shape, values) = (rows(), array![6i64, 50, 7], Array1::<f32>::zeros(700));
        call::<SparseToDense>().input(&values).input(&rows).input(&shape).compile_for_cuda()?;
        let half = values.mapv(bf16::from_f32);
        let given = Array::from_elem((6, 50, 7), bf16::ONE);
        let back = gradient::<SparseToDense>(1).input(&half).input(&rows).input(&shape);
        back.input(&given).compile_for_cuda()?;
        // Values so far apart, in memory that hardly anyone touches.
        let far = Array1::<u8>::zeros((1 << 31) + 1);
        let (far, few) = (far.slice(s![..;1 << 30]), array![1i64, 2, 0]);
        let size = array![4i64];
        let form = || call::<SparseToDense>().input(&far).input(&few).input(&size);
        let names = form().kernels_launched()?;
        assert!(names.iter().all(|name| name.ends_with("long long>")), "{names:?}");
        form().compile_for_cuda()?;
        compare::<u8>(form, "y")
    }
}
