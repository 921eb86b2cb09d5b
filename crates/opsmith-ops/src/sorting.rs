//! Orders of numbers: all sorted, or the largest. NaN counts as larger than all numbers.

mod beside;
mod keys;

use opsmith::prelude::*;
use opsmith::space::Extents;
use opsmith::{Dim, memory};

use self::beside::{Keys, LONGEST, ROWS};
use self::keys::{Keyed, Ordered, keys};
use crate::along::{
    LANE, by_lanes, gradient, is_real, lanes, lanes_mut, of_real_numbers, second_gradient, take, three,
};
use crate::define::ops;
use crate::parameters::axis_of;
use crate::sorted_on_card;

ops! {
    /// The op `Sort`: numbers in order, and their positions.
    Sort = sort_def(), with &[|| gradient("Sort", false, true), || second_gradient("Sort", true)];
    /// The op `ArgSort`: the positions of numbers in order.
    ArgSort = arg_sort();
    /// The op `Unique`: the different numbers of a tensor.
    Unique = unique();
    /// The op `TopK`: the largest numbers and where they are.
    TopK = top_k(), with &[|| gradient("TopK", true, false), || second_gradient("TopK", false)];
}

/// Which of a row's numbers are put in front.
#[derive(Clone, Copy)]
enum Order {
    /// All, sorted; equal ones stay in the order of their positions.
    All { descending: bool },
    /// So many of the largest, in order, of equal ones those in front.
    Largest(usize),
}

impl Order {
    fn is_descending(self) -> bool {
        !matches!(self, Order::All { descending: false })
    }

    fn put<K: Keyed>(self, keys: &mut [K]) {
        if self.is_descending() {
            keys.iter_mut().for_each(|key| *key = key.turned());
        }
        match self {
            Order::Largest(k) if k < keys.len() => {
                keys.select_nth_unstable(k - 1);
                keys[..k].sort_unstable();
            }
            _ => keys.sort_unstable(),
        }
    }
}

/// Sorts lanes. With `VALUES`, output 0 has the numbers too, and their positions come behind.
struct Sorting<const VALUES: bool> {
    axis: i64,
    descending: bool,
}

impl<const VALUES: bool> OpKernel for Sorting<VALUES> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Sorting { axis: construction.attr("axis")?, descending: construction.attr("descending")? })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        if crate::card::is_on_card(context) {
            let axis = axis_of(self.axis, tensor.rank())?;
            return sorted_on_card::sort(context, axis, (tensor.shape()[axis], self.descending), VALUES);
        }
        let dims = three(tensor.shape(), self.axis)?;
        put(context, tensor, (dims, tensor.shape()), Order::All { descending: self.descending }, VALUES)
    }
}

/// Makes the last output of a shape from the positions of the numbers that `order` puts in front, along lanes of these dims; output 0 with
/// `values` from these numbers.
fn put(
    context: &OpKernelContext<'_>,
    tensor: TensorView<'_>,
    (dims, shape): ([usize; 3], &[usize]),
    order: Order,
    values: bool,
) -> Result<()> {
    let found = match order {
        Order::All { .. } => dims,
        Order::Largest(k) => [dims[0], k, dims[2]],
    };
    let (cx, mut positions) = (context.compute(), context.allocate_output(usize::from(values), shape)?);
    dispatch!(tensor.dtype(), RealNumber, |T| {
        let numbers = lanes(dims, tensor.as_slice::<T>()?)?;
        let mut positions = lanes_mut(found, positions.as_slice_mut()?)?;
        find(&cx, numbers, positions.view_mut(), order)?;
        if !values {
            return Ok(());
        }
        let mut output = context.allocate_output(0, shape)?;
        let output = lanes_mut(found, output.as_slice_mut::<T>()?)?;
        take(&cx, numbers, positions.view(), output, (LANE, T::default()))
    })
}

/// Sets each lane of `found` to the positions of the numbers that `order` puts in front.
fn find<T: Ordered>(
    cx: &Compute<'_>,
    numbers: ArrayView3<'_, T>,
    found: ArrayViewMut3<'_, i64>,
    order: Order,
) -> Result<()> {
    let (length, others) = (numbers.len_of(LANE), numbers.len_of(Axis(0)) * numbers.len_of(Axis(2)));
    // A single long row is sorted as fast with nothing beside it.
    let fits = length <= if others < ROWS { LONGEST / 4 } else { LONGEST };
    if T::IS_SHORT && fits && beside::is_there() {
        find_beside(cx, numbers, found, order.is_descending())
    } else if T::IS_SHORT && u32::try_from(length).is_ok() {
        find_by::<T, u64>(cx, numbers, found, order)
    } else {
        find_by::<T, (u64, usize)>(cx, numbers, found, order)
    }
}

/// Sorts all of each row, several beside one another.
fn find_beside<T: Ordered>(
    cx: &Compute<'_>,
    numbers: ArrayView3<'_, T>,
    found: ArrayViewMut3<'_, i64>,
    turned: bool,
) -> Result<()> {
    let (length, what) = (numbers.len_of(LANE), "rows that are sorted beside one another");
    let cost = length.saturating_mul(3) / found.len_of(LANE).max(1);
    by_lanes(cx, found, LANE, cost, |part, mut found| {
        let numbers = part.of(&numbers);
        let mut numbers_beside = memory::filled([T::default(); ROWS], length, what)?;
        let mut keys = memory::filled(Keys::NONE, length, what)?;
        let (mut from, mut to) = (numbers.lanes(LANE).into_iter(), found.lanes_mut(LANE).into_iter());
        while from.len() > 0 {
            for (row, from) in from.by_ref().take(ROWS).enumerate() {
                numbers_beside.iter_mut().zip(from).for_each(|(to, &number)| to[row] = number);
            }
            beside::sort(&numbers_beside, &mut keys, turned);
            for (row, to) in to.by_ref().take(ROWS).enumerate() {
                to.into_iter().zip(&keys).for_each(|(to, key)| *to = key.at(row) as i64);
            }
        }
        Ok(())
    })
}

fn find_by<T: Ordered, K: Keyed>(
    cx: &Compute<'_>,
    numbers: ArrayView3<'_, T>,
    found: ArrayViewMut3<'_, i64>,
    order: Order,
) -> Result<()> {
    let cost = numbers.len_of(LANE).saturating_mul(10) / found.len_of(LANE).max(1);
    by_lanes(cx, found, LANE, cost, |part, mut found| {
        let (numbers, mut keyed) = (part.of(&numbers), Vec::<K>::new());
        for (from, to) in numbers.lanes(LANE).into_iter().zip(found.lanes_mut(LANE)) {
            keys(from, from.len(), &mut keyed)?;
            order.put(&mut keyed);
            to.into_iter().zip(&keyed).for_each(|(to, key)| *to = key.at() as i64);
        }
        Ok(())
    })
}

/// What is said of an op that sorts, behind its first sentences.
const SORT_DOC: &str = "Equal ones stay in their order; NaN counts as larger than all.\n\n\
                        x: Any numbers, with dims.\n\
                        axis: Which dim; counted from the end where negative.\n\
                        descending: Whether the largest comes first.\n";

fn sorting(name: &str) -> OpDef {
    OpDef::new(name)
        .attr("axis: int = -1")
        .attr("descending: bool = false")
        .attr("T: realnumbertype")
        .input("x: T")
        .shape_fn(|c| {
            let shape = c.with_rank_at_least(c.input(0)?, 1)?;
            c.dim(&shape, c.get_int("axis")?)?;
            (0..c.num_outputs()).try_for_each(|output| c.set_output(output, shape.clone()))
        })
}

fn arg_sort() -> OpDef {
    sorting("ArgSort")
        .output("y: int64")
        .parallel("(... but axis) -> (... but axis)")
        .doc(&format!(
            "The positions of numbers along a dim, in the order of the numbers. {SORT_DOC}y: Of the same shape."
        ))
        .not_differentiable()
        .kernels(of_real_numbers::<Sorting<false>>())
        .kernels(crate::card::kernels::<Sorting<false>>(is_real))
}

fn sort_def() -> OpDef {
    sorting("Sort")
        .output("values: T")
        .output("indices: int64")
        .parallel("(... but axis) -> (... but axis), (... but axis)")
        .doc(&format!(
            "Numbers along a dim in order, and where each was. {SORT_DOC}values: Of the same shape.\n\
             indices: Their positions along the dim, of that shape too."
        ))
        .gradient("SortGrad")
        .kernels(of_real_numbers::<Sorting<true>>())
        .kernels(crate::card::kernels::<Sorting<true>>(is_real))
}

struct Uniques;

impl OpKernel for Uniques {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Uniques)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        dispatch!(tensor.dtype(), [f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool], |T| {
            let (numbers, mut keyed) = (tensor.as_slice::<T>()?, Vec::<(u64, usize)>::new());
            keys(numbers, numbers.len(), &mut keyed)?;
            Order::All { descending: false }.put(&mut keyed);
            let groups = || keyed.chunk_by(|(key, _), (next, _)| key == next);
            let found = groups().count();
            let mut values = context.output_view::<T, Ix1>(0, &[found])?;
            let mut inverse = context.allocate_output(1, tensor.shape())?;
            let (inverse, mut counts) =
                (inverse.as_slice_mut::<i64>()?, context.output_view::<i64, Ix1>(2, &[found])?);
            for (at, group) in groups().enumerate() {
                (values[at], counts[at]) = (numbers[group[0].1], group.len() as i64);
                group.iter().for_each(|&(_, from)| inverse[from] = at as i64);
            }
            Ok(())
        })
    }
}

fn unique() -> OpDef {
    OpDef::new("Unique")
        .attr("T: {realnumbertype, bool}")
        .input("x: T")
        .output("values: T")
        .output("inverse: int64")
        .output("counts: int64")
        .doc(
            "The different numbers of a tensor in order; all NaN are one, behind the others. How many there are only the numbers \
             tell.\n\n\
             x: Any numbers or truth values, of any shape.\n\
             values: The different ones, a vector.\n\
             inverse: For each element of `x` the position of its number among them, of the shape of `x`.\n\
             counts: How often each is there.",
        )
        .shape_fn(|c| {
            let (shape, vector) = (c.input(0)?, c.vector(Dim::Unknown));
            c.set_output(0, vector.clone())?;
            c.set_output(1, shape)?;
            c.set_output(2, vector)
        })
        .not_differentiable()
        .kernels(
            of_real_numbers::<Uniques>().chain([KernelDef::cpu::<Uniques>().type_constraint::<bool>("T")]),
        )
}

struct Largest {
    k: usize,
}

impl OpKernel for Largest {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Largest { k: construction.attr("k")? })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        let mut shape = Extents::from_slice(tensor.shape());
        let fits = shape.last().is_some_and(|&length| length >= self.k);
        ensure!(
            fits,
            InvalidArgument for "x",
            "`x` must have a last dim of at least `k`, {}, got shape {shape:?}",
            self.k
        );
        let (last, k) = (shape.len() - 1, self.k);
        if crate::card::is_on_card(context) {
            return sorted_on_card::sort(context, last, (k, true), true);
        }
        shape[last] = k;
        let dims = three(tensor.shape(), -1)?;
        put(context, tensor, (dims, &shape), Order::Largest(k), true)
    }
}

fn top_k() -> OpDef {
    OpDef::new("TopK")
        .attr("k: int >= 0")
        .attr("T: realnumbertype")
        .input("x: T")
        .output("values: T")
        .output("indices: int64")
        .parallel("(..., _) -> (..., _), (..., _)")
        .doc(
            "The largest numbers along the last dim and where they are, the largest first. Of equal numbers the one in front \
             comes first; NaN counts as larger than all.\n\n\
             x: Any numbers, at least `k` in each row.\n\
             k: How many.\n\
             values: The numbers.\n\
             indices: Their positions along the last dim.",
        )
        .shape_fn(|c| {
            let (shape, k) = (c.with_rank_at_least(c.input(0)?, 1)?, c.get_dim("k")?);
            let length = c.dim(&shape, -1)?;
            c.assume_at_least(&length, &k, "the last dim of `x` must be at least `k`")?;
            let shape = c.replace_dim(&shape, -1, k)?;
            c.set_output(0, shape.clone())?;
            c.set_output(1, shape)
        })
        .gradient("TopKGrad")
        .kernels(of_real_numbers::<Largest>())
        .kernels(crate::card::kernels::<Largest>(is_real))
}

#[cfg(test)]
mod tests {
    use opsmith::{infer_ok, testing};

    use super::*;

    #[test]
    fn rows_that_memory_has_no_room_for_are_errors() {
        let one = opsmith::ndarray::arr0(1i8);
        for length in [1 << 58, 1 << 62] {
            let row = one.broadcast(length).unwrap();
            let error = testing::call::<TopK>().input(&row).attr("k", 1).run().unwrap_err();
            assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
        }
    }

    #[test]
    fn lanes_without_numbers_take_no_time() -> Result<()> {
        let x = opsmith::ndarray::Array3::<f32>::zeros((0, 1 << 40, 1 << 20));
        let largest = testing::call::<TopK>().input(&x).attr("k", 7).run()?;
        assert_eq!(largest.array::<i64, Ix3>("indices")?.shape(), [0, 1 << 40, 7]);
        let x = Array2::<f32>::zeros((0, 1 << 40));
        let sorted = testing::call::<ArgSort>().input(&x).attr("axis", -2).run()?;
        assert_eq!(sorted.array::<i64, Ix2>("y")?.shape(), [0, 1 << 40]);
        let sorted = testing::call::<Sort>().input(&x).attr("axis", 0).run()?;
        assert_eq!(sorted.array::<f32, Ix2>("values")?.shape(), [0, 1 << 40]);
        let sums = testing::call::<crate::cumulative::CumSum>().input(&x).attr("axis", 0).run()?;
        assert_eq!(sums.array::<f32, Ix2>("y")?.shape(), [0, 1 << 40]);
        Ok(())
    }

    #[test]
    fn nan_is_the_largest_and_equal_numbers_stay_in_order() -> Result<()> {
        let x = array![[2.0, f64::NAN, -0.0, 0.0, -1.0]];
        let sorted = |descending: bool| {
            let call = testing::call::<ArgSort>().input(&x).attr("descending", descending);
            call.run()?.array::<i64, Ix2>("y")
        };
        assert_eq!(sorted(false)?, array![[4, 2, 3, 0, 1]]);
        assert_eq!(sorted(true)?, array![[1, 0, 2, 3, 4]]);
        let outputs = testing::call::<Sort>().input(&x.t()).attr("axis", 0).run()?;
        assert_eq!(outputs.array::<i64, Ix2>("indices")?, array![[4], [2], [3], [0], [1]]);
        let values = outputs.array::<f64, Ix2>("values")?;
        assert_eq!(values.slice(s![..4, 0]), array![-1.0, 0.0, 0.0, 2.0]);
        assert!(values[[1, 0]].is_sign_negative() && values[[4, 0]].is_nan());
        let outputs = testing::call::<TopK>().input(&array![3u64, u64::MAX, 3]).attr("k", 2).run()?;
        assert_eq!(outputs.array::<u64, Ix1>("values")?, array![u64::MAX, 3]);
        assert_eq!(outputs.array::<i64, Ix1>("indices")?, array![1, 0]);
        let error = testing::call::<TopK>().input(&array![3u64]).attr("k", 2).run().unwrap_err();
        assert_eq!(error.message(), "TopK: `x` must have a last dim of at least `k`, 2, got shape [1]");
        infer_ok!(testing::shapes::<TopK>().attr("k", 2.into()), "[3,?]", "[3,2];[3,2]");
        Ok(())
    }

    #[test]
    fn different_numbers_are_counted() -> Result<()> {
        let x = array![[3.0, f64::NAN, -0.0], [0.0, f64::NAN, 3.0]];
        let outputs = testing::call::<Unique>().input(&x).run()?;
        let values = outputs.array::<f64, Ix1>("values")?;
        assert!(values.len() == 3 && values[0] == 0.0 && values[1] == 3.0 && values[2].is_nan());
        assert_eq!(outputs.array::<i64, Ix2>("inverse")?, array![[1, 2, 0], [0, 2, 1]]);
        assert_eq!(outputs.array::<i64, Ix1>("counts")?, array![2, 2, 2]);
        let outputs = testing::call::<Unique>().input(&array![true, true]).run()?;
        assert_eq!(outputs.array::<bool, Ix1>("values")?, array![true]);
        infer_ok!(testing::shapes::<Unique>(), "[2,n]", "[?];[2,n];[?]");
        Ok(())
    }

    #[test]
    fn gradients_know_positions_only_in_their_tensor() {
        let gradient = array![1.0, 2.0];
        for indices in [array![0i64, 2], array![-2, 0]] {
            let call = testing::Call::new(Sort::COMPANIONS[0]()).input(&indices).input(&gradient);
            let error = call.run().unwrap_err();
            assert!(error.message().contains("`indices` must be positions along a dim of 2"), "{error}");
        }
        let indices = array![[0i64, 1]];
        let call = testing::Call::new(Sort::COMPANIONS[0]()).input(&indices).input(&gradient);
        assert!(call.run().unwrap_err().message().contains("`indices` must be positions along dim 1"));
    }
}
