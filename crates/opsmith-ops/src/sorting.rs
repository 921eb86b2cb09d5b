//! Orders of numbers: all sorted, or the largest. NaN counts as larger than all numbers.

use opsmith::dtype::{bf16, f16, sets};
use opsmith::memory;
use opsmith::prelude::*;
use opsmith::space::Extents;

use crate::define::ops;
use crate::indexing::add_up;
use crate::linear::FLOATS;
use crate::parameters::axis_of;

ops! {
    /// The op `ArgSort`: the positions of numbers in order.
    ArgSort = arg_sort();
    /// The op `TopK`: the largest numbers and where they are.
    TopK = top_k(), with &[top_k_grad, top_k_grad_grad];
}

/// A number as an integer of the same order: so numbers of all dtypes are sorted by one function.
trait Ordered: RealNumber {
    /// The integer; that of NaN is the largest.
    fn key(self) -> u64;
}

macro_rules! ordered {
    ($($ty:ty: |$x:ident| $key:expr;)*) => {$(
        impl Ordered for $ty {
            fn key(self) -> u64 {
                let $x = self;
                $key
            }
        }
    )*};
}

/// The sign bit turns what is signed into what is not.
fn signed(x: i64) -> u64 {
    x.cast_unsigned() ^ (1 << 63)
}

fn float(x: f64) -> u64 {
    if x.is_nan() {
        return u64::MAX;
    }
    // Adding 0 makes one of both zeros.
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

ordered! {
    f16: |x| float(x.to_f64());
    bf16: |x| float(x.to_f64());
    f32: |x| float(x.into());
    f64: |x| float(x);
    i8: |x| signed(x.into());
    i16: |x| signed(x.into());
    i32: |x| signed(x.into());
    i64: |x| signed(x);
    u8: |x| x.into();
    u16: |x| x.into();
    u32: |x| x.into();
    u64: |x| x;
}

/// Numbers and their positions.
type Keys = Vec<(u64, usize)>;

/// Those of a row of so many numbers.
fn keys<'a, T: Ordered>(
    numbers: impl IntoIterator<Item = &'a T>,
    length: usize,
    keys: &mut Keys,
) -> Result<()> {
    keys.clear();
    memory::reserve(keys, length, "the keys of a row that is sorted")?;
    keys.extend(numbers.into_iter().map(|number| number.key()).zip(0..));
    Ok(())
}

struct Sorting {
    axis: i64,
    descending: bool,
}

impl OpKernel for Sorting {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Sorting { axis: construction.attr("axis")?, descending: construction.attr("descending")? })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        let axis = Axis(axis_of(self.axis, tensor.rank())?);
        let sorted = context.output_view::<i64, IxDyn>(0, tensor.shape())?;
        let descending = self.descending;
        dispatch!(tensor.dtype(), RealNumber, |T| {
            sort(&context.compute(), tensor.view::<T, IxDyn>()?, sorted, axis, descending)
        })
    }
}

/// Sorts all lanes along a dim; those of another dim on several threads.
fn sort<T: Ordered>(
    cx: &Compute<'_>,
    numbers: ArrayViewD<'_, T>,
    sorted: ArrayViewMutD<'_, i64>,
    axis: Axis,
    descending: bool,
) -> Result<()> {
    // Else an empty tensor takes as long as it has lanes, of which there may be any number.
    if numbers.is_empty() {
        return Ok(());
    }
    let sort_all = |numbers: ArrayViewD<'_, T>, mut sorted: ArrayViewMutD<'_, i64>| {
        let mut keyed = Keys::new();
        for (from, to) in numbers.lanes(axis).into_iter().zip(sorted.lanes_mut(axis)) {
            keys(from, from.len(), &mut keyed)?;
            sort_keys(&mut keyed, descending);
            to.into_iter().zip(&keyed).for_each(|(to, (_, at))| *to = *at as i64);
        }
        Ok(())
    };
    match (0..numbers.ndim()).map(Axis).find(|&outer| outer != axis && numbers.len_of(outer) > 1) {
        Some(outer) => {
            let cost = numbers.len().saturating_mul(10) / numbers.len_of(outer);
            cx.try_parallel_over(sorted, outer, cost, |range, sorted| {
                sort_all(numbers.slice_axis(outer, range.into()), sorted)
            })
        }
        None => sort_all(numbers.view(), sorted),
    }
}

/// Sorts numbers; equal ones stay in the order of their positions.
fn sort_keys(keys: &mut Keys, descending: bool) {
    if descending {
        keys.iter_mut().for_each(|(key, _)| *key = !*key);
    }
    keys.sort_unstable();
}

/// Puts the `k` largest numbers in front, in order, of equal ones those in front.
fn largest(keys: &mut Keys, k: usize) {
    keys.iter_mut().for_each(|(key, _)| *key = !*key);
    if k < keys.len() {
        keys.select_nth_unstable(k - 1);
    }
    keys[..k].sort_unstable();
}

fn arg_sort() -> OpDef {
    OpDef::new("ArgSort")
        .attr("axis: int = -1")
        .attr("descending: bool = false")
        .attr("T: realnumbertype")
        .input("x: T")
        .output("y: int64")
        .parallel("(... but axis) -> (... but axis)")
        .doc(
            "The positions of numbers along a dim, in the order of the numbers. Equal ones stay in their order; NaN counts as \
             larger than all.\n\n\
             x: Any numbers, with dims.\n\
             axis: Which dim; counted from the end where negative.\n\
             descending: Whether the largest comes first.\n\
             y: Of the same shape.",
        )
        .shape_fn(|c| {
            let shape = c.with_rank_at_least(c.input(0)?, 1)?;
            c.dim(&shape, c.get_int("axis")?)?;
            c.set_output(0, shape)
        })
        .not_differentiable()
        .kernels(sets::REAL_NUMBER.iter().map(|&dtype| {
            KernelDef::cpu::<Sorting>().strided().dtype_constraint("T", dtype)
        }))
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
        let length = std::mem::replace(&mut shape[last], k);
        let (mut values, mut indices) =
            (context.allocate_output(0, &shape)?, context.allocate_output(1, &shape)?);
        if length == 0 || k == 0 {
            return Ok(());
        }
        dispatch!(tensor.dtype(), RealNumber, |T| {
            let numbers = tensor.as_slice::<T>()?;
            let rows = numbers.chunks_exact(length);
            let outputs = values
                .as_slice_mut::<T>()?
                .chunks_exact_mut(k)
                .zip(indices.as_slice_mut::<i64>()?.chunks_exact_mut(k));
            let mut keyed = Keys::new();
            for (row, (values, indices)) in rows.zip(outputs) {
                keys(row, length, &mut keyed)?;
                largest(&mut keyed, k);
                for ((value, index), &(_, at)) in values.iter_mut().zip(indices).zip(&keyed) {
                    (*value, *index) = (row[at], at as i64);
                }
            }
            Ok(())
        })
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
        .kernels(sets::REAL_NUMBER.iter().map(|&dtype| KernelDef::cpu::<Largest>().dtype_constraint("T", dtype)))
}

/// The rows of `x`, and of the tensors that belong to its largest numbers: how many, and how long both are.
fn rows(context: &OpKernelContext<'_>, x: &[usize]) -> Result<(Vec<usize>, usize, usize)> {
    let indices = context.input("indices")?;
    let error = || {
        Error::invalid_argument(format!("`indices` must be those of the largest numbers of shape {x:?}"))
            .naming("indices")
    };
    let ([own @ .., length], [others @ .., k]) = (x, indices.shape()) else { return Err(error()) };
    if own != others {
        return Err(error());
    }
    let position = |&at: &i64| usize::try_from(at).ok().filter(|at| at < length).ok_or_else(error);
    let positions = memory::try_collected(indices.as_slice::<i64>()?.iter().map(position), "positions")?;
    Ok((positions, *length, *k))
}

struct LargestGradient;

impl OpKernel for LargestGradient {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(LargestGradient)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let x = context.input_shape("x")?;
        let (positions, length, k) = rows(context, x)?;
        let gradient = crate::linear::last_input(context, context.input_shape("indices")?)?;
        add_up(context, gradient, x, |act| {
            positions.iter().enumerate().for_each(|(at, position)| act(at, at / k * length + position, 1));
        })
    }
}

fn top_k_grad() -> OpDef {
    OpDef::new("TopKGrad")
        .attr(&format!("T: {FLOATS}"))
        .input("x: T")
        .input("indices: int64")
        .input("values_grad: T")
        .output("x_grad: T")
        .parallel("(..., _), (..., _), (..., _) -> (..., _)")
        .doc("The gradient of `TopK`.")
        .shape_fn(shape_fns::unchanged)
        .gradient("TopKGradGrad")
        .kernels(
            sets::ANY_FLOAT
                .iter()
                .map(|&dtype| KernelDef::cpu::<LargestGradient>().dtype_constraint("T", dtype)),
        )
}

struct LargestAgain;

impl OpKernel for LargestAgain {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(LargestAgain)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (indices, gradient) = (context.input_shape("indices")?, context.input("x_grad_grad")?);
        let (positions, length, k) = rows(context, gradient.shape())?;
        add_up(context, gradient, indices, |act| {
            positions.iter().enumerate().for_each(|(at, position)| act(at / k * length + position, at, 1));
        })
    }
}

fn top_k_grad_grad() -> OpDef {
    OpDef::new("TopKGradGrad")
        .attr(&format!("T: {FLOATS}"))
        .input("indices: int64")
        .input("x_grad_grad: T")
        .output("values_grad_grad: T")
        .parallel("(..., _), (..., _) -> (..., _)")
        .doc("The gradient of `TopKGrad`.")
        .shape_fn(shape_fns::unchanged)
        .kernels(
            sets::ANY_FLOAT
                .iter()
                .map(|&dtype| KernelDef::cpu::<LargestAgain>().dtype_constraint("T", dtype)),
        )
}

#[cfg(test)]
mod tests {
    use opsmith::{infer_ok, testing};

    use super::*;

    #[test]
    fn rows_that_memory_has_no_room_for_are_errors() {
        let one = opsmith::ndarray::arr0(1i8);
        let row = one.broadcast(1 << 58).unwrap();
        let error = testing::call::<TopK>().input(&row).attr("k", 1).run().unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    }

    #[test]
    fn lanes_without_numbers_take_no_time() -> Result<()> {
        let x = Array2::<f32>::zeros((0, 1 << 40));
        let sorted = testing::call::<ArgSort>().input(&x).attr("axis", -2).run()?;
        assert_eq!(sorted.array::<i64, Ix2>("y")?.shape(), [0, 1 << 40]);
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
        let outputs = testing::call::<TopK>().input(&array![3u64, u64::MAX, 3]).attr("k", 2).run()?;
        assert_eq!(outputs.array::<u64, Ix1>("values")?, array![u64::MAX, 3]);
        assert_eq!(outputs.array::<i64, Ix1>("indices")?, array![1, 0]);
        let error = testing::call::<TopK>().input(&array![3u64]).attr("k", 2).run().unwrap_err();
        assert_eq!(error.message(), "TopK: `x` must have a last dim of at least `k`, 2, got shape [1]");
        infer_ok!(testing::shapes::<TopK>().attr("k", 2.into()), "[3,?]", "[3,2];[3,2]");
        Ok(())
    }
}
