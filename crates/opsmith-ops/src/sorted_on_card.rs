//! Lanes sorted on a card, and gradients that go to where elements were.

use std::ffi::c_void;
use std::ptr;

use opsmith::cuda::{BLOCK, CudaCall, Index, Source, Structure, index_of};
use opsmith::prelude::*;
use opsmith::space::{Extents, IndexSpace, Strides};

use crate::card::name;
use crate::indexing::card::take_along;

static SOURCE: Source = Source::new("sort.cu", include_str!("sort.cu")).beside(file!());

/// The numbers that a block sorts, as in the kernel.
const TILE: usize = 2048;
/// How many of a merge a thread has, as in the kernel.
const EACH: usize = 8;
/// The most blocks, which go on by so many.
const MOST_BLOCKS: usize = 1 << 16;

/// What is sorted: the lanes of a tensor along a dim.
struct Lanes<'a> {
    x: TensorView<'a>,
    /// The type of its elements in the source.
    element: &'a str,
    /// Whether keys have 32 bits.
    is_short: bool,
    lanes: IndexSpace,
    along: IndexSpace,
    /// How many lanes lie side by side in what is dense.
    inner: usize,
    index: Index,
}

impl<'a> Lanes<'a> {
    /// `more` is the number of elements of what else there is.
    fn new(x: TensorView<'a>, axis: usize, more: usize) -> Result<Lanes<'a>> {
        let [lanes, along] = IndexSpace::split(x.shape(), &[x.layout()], |dim| usize::from(dim == axis))?;
        let index = index_of(&[&lanes, &along], 1, x.num_elements().max(more));
        let inner = x.shape()[axis + 1..].iter().fold(1, |all: usize, &dim| all.saturating_mul(dim));
        let (element, is_short) = (name(x.dtype())?, x.dtype().size() <= 4);
        Ok(Lanes { x, element, is_short, lanes, along, inner, index })
    }

    /// Sorts the lanes, the other way round if it is `turned`, and puts the first `shown` of each and their positions in dense memory;
    /// the numbers only where there is some for them.
    fn sort(
        &self,
        context: &OpKernelContext<'_>,
        (shown, turned): (usize, bool),
        [values, indices]: [*const c_void; 2],
    ) -> Result<()> {
        let (index, count, length) = (self.index, self.lanes.len(), self.along.len());
        if count == 0 || length == 0 || shown == 0 {
            return Ok(());
        }
        let size = length.next_power_of_two().min(TILE);
        let (tiles, rows) = (length.div_ceil(size), TILE / size);
        let across = self.lanes.steps([0]) == [1] && self.along.steps([0]) != [1];
        let [step] = self.along.steps([0]);
        let mut sizes = Structure::new(index);
        for size in [length as i128, shown as i128, self.inner as i128, step as i128, tiles as i128] {
            sizes.index(size)?;
        }
        sizes.int(size as i32).int(across.into()).int(turned.into());
        let sizes = sizes.finish_without_address();
        let (entry, bytes) =
            if self.is_short && u32::try_from(length).is_ok() { ("Packed", 8) } else { ("Entry", 16) };
        let room = || -> Result<*const c_void> {
            let bytes = count.saturating_mul(length).saturating_mul(bytes);
            Ok(context.device_temp(bytes)?.as_ptr().cast_const().cast())
        };
        let (mut runs, mut spare) = if tiles > 1 { (room()?, room()?) } else { (ptr::null(), ptr::null()) };
        let (call, element) = (CudaCall::new(context, &SOURCE), self.element);
        let launch = |kernel: &str, blocks: usize, runs: *const c_void| {
            let launch = call.kernel(format!("{kernel}<{element}, {entry}, {}>", index.name()));
            let launch = launch.grid([blocks.min(MOST_BLOCKS), 1, 1]).address(self.x.data_ptr().cast());
            let launch = launch.address(values).address(indices).address(runs);
            // SAFETY: these are the parameters of both kernels; the space stays in the tensor, there is room for what is shown of each lane,
            // and, if it has several tiles, for an entry for each number, all on the call's card.
            unsafe { launch.raw(&sizes).space(&self.lanes, 1, index).launch() }
        };
        launch("sorted", count.saturating_mul(tiles).div_ceil(rows), runs)?;
        let mut width = TILE;
        while width < length {
            let merged = call.kernel(format!("merged<{entry}, {}>", index.name()));
            let merged = merged.for_each(count * length.div_ceil(EACH)).address(runs).address(spare);
            let merged = merged.index(count, index).index(length, index).index(width, index);
            // SAFETY: as above.
            unsafe { merged.launch() }?;
            (runs, spare, width) = (spare, runs, width.saturating_mul(2));
        }
        if tiles > 1 {
            launch("shown", (count * shown).div_ceil(BLOCK), runs)?;
        }
        Ok(())
    }
}

/// Makes outputs of the first `shown` numbers of each lane in order, turned if the largest come first: output 0 of the numbers where
/// there are `values`, and the one behind of their positions.
pub(crate) fn sort(
    context: &OpKernelContext<'_>,
    axis: usize,
    (shown, turned): (usize, bool),
    values: bool,
) -> Result<()> {
    let x = context.input(0)?;
    let mut shape = Extents::from_slice(x.shape());
    shape[axis] = shown;
    let indices = context.allocate_output(usize::from(values), &shape)?.data_ptr().cast_const().cast();
    let values = match values {
        true => context.allocate_output(0, &shape)?.data_ptr().cast_const().cast(),
        false => ptr::null(),
    };
    Lanes::new(x, axis, 0)?.sort(context, (shown, turned), [values, indices])
}

/// Makes output 0 of the elements of `given` at positions along a dim; a position that is not there gives 0.
pub(crate) fn take(context: &OpKernelContext<'_>, given: TensorView<'_>, axis: usize) -> Result<()> {
    let indices = context.input("indices")?;
    let mut of_given = Strides::from_slice(given.strides());
    of_given[axis] = 0;
    // Without a sign, no position is counted from the end.
    let positions = (indices, indices.strides(), "unsigned long long");
    take_along(context, indices.shape(), (given, &of_given, axis), positions)
}

/// Makes output 0 of a shape by adding each element of `given` to that at its position along a dim; one that is not there goes nowhere.
pub(crate) fn add(
    context: &OpKernelContext<'_>,
    given: TensorView<'_>,
    (axis, shape): (usize, &[usize]),
) -> Result<()> {
    let (indices, output) = (context.input("indices")?, context.allocate_output(0, shape)?);
    if output.num_elements() == 0 {
        return Ok(());
    }
    let (dim, length) = (shape[axis], indices.shape()[axis]);
    let own = Lanes::new(given, axis, output.num_elements())?;
    let by_place = Lanes::new(indices, axis, output.num_elements())?;
    let by_place = Lanes { element: "Place", is_short: u32::try_from(dim).is_ok(), ..by_place };
    let room = || -> Result<*const c_void> {
        let bytes = indices.num_elements().max(1).saturating_mul(8);
        Ok(context.device_temp(bytes)?.as_ptr().cast_const().cast())
    };
    let (places, order) = (room()?, room()?);
    by_place.sort(context, (length, false), [places, order])?;
    let (index, [step]) = (own.index, own.along.steps([0]));
    let call = CudaCall::new(context, &SOURCE);
    let launch = call.kernel(format!("summed<{}, {}>", own.element, index.name()));
    let launch = launch.for_each(output.num_elements()).address(given.data_ptr().cast());
    let launch = launch.address(places).address(order).address(output.data_ptr().cast_const().cast());
    let launch = launch.index(dim, index).index(length, index).index(own.inner, index);
    let mut along = Structure::new(index);
    along.index(step as i128)?;
    let launch = launch.raw(&along.finish_without_address()).space(&own.lanes, 1, index);
    // SAFETY: these are the kernel's parameters; the space stays in the gradient, whose elements have a place and an order each, on the
    // call's card.
    unsafe { launch.launch() }
}

#[cfg(test)]
mod tests {
    use opsmith::dtype::{bf16, f16};
    use opsmith::ndarray::{Array, Array1, Array2, Array3};
    use opsmith::testing::call;

    use super::*;
    use crate::card::tests::{compare, gradient};
    use crate::sorting::{ArgSort, Sort, TopK};

    fn numbers(shape: [usize; 3]) -> Array3<f32> {
        Array::from_shape_fn(shape, |(i, j, k)| ((i * 7919 + j * j * 31 + k * 104_729) % 1009) as f32 - 500.0)
    }

    /// Both outputs of a sort.
    fn compare_sorted<T: Element + std::fmt::Debug>(x: &ArrayViewD<'_, T>, axis: i64) -> Result<()> {
        for descending in [false, true] {
            let form = || call::<Sort>().input(x).attr("axis", axis).attr("descending", descending);
            compare::<T>(form, "values")?;
            compare::<i64>(form, "indices")?;
        }
        Ok(())
    }

    #[test]
    fn lanes_are_sorted_as_on_the_cpu() -> Result<()> {
        // Short and long lanes, side by side and not, of one number and of none, a whole tile and one more.
        let short = [([3, 4, 5], 1), ([300, 1, 3], -1), ([3, 1, 5], 1), ([3, 0, 5], 1)];
        let long = [([2, 700, 5], 1), ([3, 2, 2048], 2), ([2, 1, 2049], -1), ([9001, 1, 2], 0)];
        for (shape, axis) in short.into_iter().chain(long) {
            let x = numbers(shape);
            compare_sorted(&x.view().into_dyn(), axis)?;
            compare_sorted(&x.slice(s![..;-1, .., ..;-1]).into_dyn(), axis)?;
            compare_sorted(&x.mapv(|x| x as i64).view().into_dyn(), axis)?;
        }
        let x = numbers([5, 1, 40]);
        let turned = x.t();
        for k in [0, 1, 3, 5] {
            compare::<f32>(|| call::<TopK>().input(&turned).attr("k", k), "values")?;
            compare::<i64>(|| call::<TopK>().input(&turned).attr("k", k), "indices")?;
        }
        let long = numbers([2, 1, 5000]);
        compare::<i64>(|| call::<TopK>().input(&long).attr("k", 7), "indices")
    }

    #[test]
    fn odd_numbers_have_their_order() -> Result<()> {
        let x = array![2.0, f64::NAN, -0.0, 0.0, f64::NEG_INFINITY, -f64::NAN, f64::INFINITY, -1.0, 2.0];
        compare_sorted(&x.view().into_dyn(), 0)?;
        compare_sorted(&x.mapv(|x| x as f32).view().into_dyn(), 0)?;
        compare_sorted(&x.mapv(f16::from_f64).view().into_dyn(), 0)?;
        compare_sorted(&x.mapv(bf16::from_f64).slice(s![..;-2]).into_dyn(), 0)?;
        compare_sorted(&array![i8::MIN, i8::MAX, -1, 0, 1].view().into_dyn(), 0)?;
        compare_sorted(&array![u16::MAX, 0, 1, 1 << 15].view().into_dyn(), 0)?;
        compare_sorted(&array![i32::MAX, 0, i32::MIN, -1].view().into_dyn(), 0)?;
        compare_sorted(&array![u32::MAX, 0, 1 << 31].view().into_dyn(), 0)?;
        compare_sorted(&array![i64::MIN, 0, i64::MAX, -1].view().into_dyn(), 0)?;
        compare_sorted(&array![u64::MAX, 0, 1 << 63].view().into_dyn(), 0)
    }

    #[test]
    fn gradients_go_to_where_numbers_were() -> Result<()> {
        for (shape, axis) in [([3, 4, 5], 1), ([2, 3000, 3], 1), ([2, 1, 40], -1)] {
            let length = shape[if axis == 1 { 1 } else { 2 }] as i64;
            let g = numbers(shape);
            // Some places are there more than once, and −1 stands for none.
            let indices = g.mapv(|x| (x as i64).rem_euclid(length + 1) - 1);
            let (g, turned) = (g.slice(s![..;-1, .., ..]), indices.slice(s![.., ..;-1, ..;-1]));
            for indices in [indices.view(), turned] {
                let form = |order| gradient::<Sort>(order).input(&indices).input(&g).attr("axis", axis);
                compare::<f32>(|| form(1), "x_grad")?;
                compare::<f32>(|| form(2), "values_grad_grad")?;
            }
        }
        let (x, indices) = (Array2::<f16>::zeros((2, 9)), array![[3i64, 0, 8], [1, -1, 1]]);
        let g = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]].mapv(f16::from_f32);
        compare::<f16>(|| gradient::<TopK>(1).input(&x).input(&indices).input(&g), "x_grad")?;
        compare::<f16>(|| gradient::<TopK>(2).input(&indices).input(&x), "values_grad_grad")?;
        let (indices, g) = (indices.slice(s![.., ..0]), g.slice(s![.., ..0]));
        compare::<f16>(|| gradient::<TopK>(1).input(&x).input(&indices).input(&g), "x_grad")
    }

    #[test]
    fn positions_that_are_not_there_give_nothing() -> Result<()> {
        let (indices, g) = (array![3i64, -2, 1, i64::MAX, i64::MIN], array![1.0f32, 2.0, 4.0, 8.0, 16.0]);
        let x = array![0.0f32, 0.0, 0.0];
        let form = gradient::<TopK>(1).input(&x).input(&indices).input(&g);
        if let Some(own) = form.run_cuda_on_processor()? {
            assert_eq!(own.array::<f32, Ix1>("x_grad")?, array![0.0, 4.0, 0.0]);
        }
        let few = g.slice(s![..3]);
        let form = gradient::<TopK>(2).input(&indices).input(&few);
        if let Some(own) = form.run_cuda_on_processor()? {
            assert_eq!(own.array::<f32, Ix1>("values_grad_grad")?, array![0.0, 0.0, 2.0, 0.0, 0.0]);
        }
        Ok(())
    }

    #[test]
    fn kernels_compile() -> Result<()> {
        let (x, indices) = (Array1::<f32>::zeros(5000), Array1::<i64>::zeros(5000));
        call::<Sort>().input(&x).compile_for_cuda()?;
        call::<ArgSort>().input(&indices).compile_for_cuda()?;
        call::<TopK>().input(&x.mapv(bf16::from_f32)).attr("k", 3).compile_for_cuda()?;
        gradient::<Sort>(1).input(&indices).input(&x).compile_for_cuda()?;
        gradient::<Sort>(2).input(&indices).input(&x).compile_for_cuda()?;
        // Bytes that lie farther apart than 31 bits count, of memory that hardly anyone touches.
        let far = Array1::<u8>::zeros((1 << 31) + 1);
        let x = far.slice(s![..;1 << 30]);
        let names = call::<ArgSort>().input(&x).kernels_launched()?;
        assert!(names.iter().all(|name| name.ends_with("long long>")), "{names:?}");
        call::<ArgSort>().input(&x).compile_for_cuda()?;
        compare::<i64>(|| call::<ArgSort>().input(&x), "y")
    }
}
