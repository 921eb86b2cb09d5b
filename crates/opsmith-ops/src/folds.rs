//! Folds over any dims that are not written once for floats: of integers, and the positions of extremes.

use std::marker::PhantomData;

use opsmith::dtype::sets;
use opsmith::prelude::*;
use opsmith::space::{Extents, IndexSpace};
use opsmith::{Dim, Shape};
use opsmith_body::{Axes as Lying, Axis, Expr, Index, Indexed, Listing, compose_over};
use opsmith_core::{Program, ProgramRows};

use crate::card;
use crate::define::ops;
use crate::elementwise::Shared;
use crate::parameters::axis_of;

ops! {
    /// The op `ArgMax`: where the largest number is.
    ArgMax = positions::<Greatest>("ArgMax", "largest");
    /// The op `ArgMin`: where the smallest number is.
    ArgMin = positions::<Least>("ArgMin", "smallest");
}

/// A fold of integers.
pub(crate) trait Folding: 'static {
    /// What `standard.cu` calls it.
    const ON_CARD: &'static str;
    /// What a fold begins with.
    fn first<T: Integer>() -> T;
    /// The fold of two.
    fn fold<T: Wrapping>(left: T, right: T) -> T;
}

/// An integer whose sum wraps around.
pub(crate) trait Wrapping: Integer {
    fn plus(self, other: Self) -> Self;
}

macro_rules! wrapping {
    ($($int:ty)*) => {$(
        impl Wrapping for $int {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
        }
    )*};
}

wrapping! { i8 i16 i32 i64 u8 u16 u32 u64 }

pub(crate) struct Total;
pub(crate) struct Largest;
pub(crate) struct Smallest;

impl Folding for Total {
    const ON_CARD: &'static str = "wrapped_sum";

    fn first<T: Integer>() -> T {
        T::zero()
    }
    fn fold<T: Wrapping>(left: T, right: T) -> T {
        left.plus(right)
    }
}

impl Folding for Largest {
    const ON_CARD: &'static str = "largest";

    fn first<T: Integer>() -> T {
        T::min_value()
    }
    fn fold<T: Wrapping>(left: T, right: T) -> T {
        left.max(right)
    }
}

impl Folding for Smallest {
    const ON_CARD: &'static str = "smallest";

    fn first<T: Integer>() -> T {
        T::max_value()
    }
    fn fold<T: Wrapping>(left: T, right: T) -> T {
        left.min(right)
    }
}

/// Which dims are folded, as attributes say it.
struct Axes {
    axes: Vec<i64>,
    keep: bool,
}

impl Axes {
    fn new(construction: &OpKernelConstruction<'_>) -> Result<Axes> {
        Ok(Axes { axes: construction.attr("axes")?, keep: construction.attr("keep_dims")? })
    }

    /// For each dim, whether it is folded.
    fn marks(&self, rank: usize) -> Result<Vec<bool>> {
        let mut marks = vec![self.axes.is_empty(); rank];
        for &axis in &self.axes {
            let at = axis_of(axis, rank).ok().filter(|&at| !marks[at]);
            let Some(at) = at else {
                let axes = &self.axes;
                bail!(
                    InvalidArgument for "axes",
                    "`axes` must be different dims of an input of rank {rank}, got {axes:?}"
                );
            };
            marks[at] = true;
        }
        Ok(marks)
    }
}

/// The results of a fold, and the terms of each.
struct Terms {
    results: IndexSpace,
    terms: IndexSpace,
    /// For each dim, whether it is folded.
    marks: Vec<bool>,
    /// The shape of the output.
    shape: Extents,
}

impl Terms {
    fn new(axes: &Axes, tensor: TensorView<'_>) -> Result<Terms> {
        let marks = axes.marks(tensor.rank())?;
        let mut parts = [false, true].map(|_| IndexSpace::with_room(tensor.rank(), 1));
        for (dim, &mark) in marks.iter().enumerate().rev() {
            parts[usize::from(mark)].push(tensor.shape()[dim], [tensor.strides()[dim]]);
        }
        let [results, terms] = parts;
        let kept = tensor.shape().iter().zip(&marks).filter(|(_, mark)| axes.keep || !**mark);
        let shape = kept.map(|(&dim, &mark)| if mark { 1 } else { dim }).collect();
        Ok(Terms { results, terms, marks, shape })
    }

    /// Makes output 0 by a fold of `standard.cu`.
    fn fold_on_card(&self, context: &OpKernelContext<'_>, fold: &str, tensor: TensorView<'_>) -> Result<()> {
        card::folds::fold(context, fold, (tensor, None), |dim| self.marks[dim], (0, &self.shape))
    }

    /// Makes output 0 of what `fold` gives for the place of each result, where the terms' places begin.
    fn make<Z: Element>(
        &self,
        context: &OpKernelContext<'_>,
        fold: impl Fn(&IndexSpace, isize) -> Z + Sync,
    ) -> Result<()> {
        let mut output = context.allocate_output(0, &self.shape)?;
        let memory = Shared(output.as_slice_mut::<Z>()?.as_mut_ptr().cast());
        context.compute().parallel_for(self.results.len(), self.terms.len(), |range| {
            let to = &memory;
            let [stride] = self.results.steps([0]);
            self.results.runs([0], range, |first, [place], count| {
                for i in 0..count {
                    let result = fold(&self.terms, place + stride * i as isize);
                    // SAFETY: there is an element for each result, and each is written by one thread.
                    unsafe { to.0.cast::<Z>().add(first + i).write(result) };
                }
            });
        });
        Ok(())
    }
}

/// The kernel of a fold of integers.
pub(crate) struct FoldKernel<F> {
    axes: Axes,
    fold: PhantomData<fn() -> F>,
}

impl<F: Folding> OpKernel for FoldKernel<F> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(FoldKernel { axes: Axes::new(construction)?, fold: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        let terms = Terms::new(&self.axes, tensor)?;
        if crate::card::is_on_card(context) {
            return terms.fold_on_card(context, F::ON_CARD, tensor);
        }
        dispatch!(tensor.dtype(), Integer, |T| {
            let from = Shared(tensor.data_ptr().cast_mut());
            terms.make::<T>(context, |terms, place| {
                let (from, mut result, [step]) = (&from, F::first::<T>(), terms.steps([0]));
                terms.runs([0], 0..terms.len(), |_, [at], count| {
                    // SAFETY: the places are in the tensor.
                    let first = unsafe { from.0.cast::<T>().offset(place + at) };
                    for i in 0..count as isize {
                        // SAFETY: as above.
                        result = F::fold(result, unsafe { *first.offset(i * step) });
                    }
                });
                result
            })
        })
    }
}

/// Which of two numbers is looked for.
pub(crate) trait Extreme: Send + Sync + 'static {
    /// Its position, as `standard.cu` calls it.
    const ON_CARD: &'static str;
    /// What it is of no floats.
    const OF_NO_FLOATS: f64;
    /// What it is of no integers.
    fn of_no_integers<T: Integer>() -> T;
    /// Whether a number comes before the one that was found before it.
    fn is_better<T: RealNumber>(new: T, old: T) -> bool;
    /// The same of any numbers: the first NaN comes before all.
    fn takes<T: RealNumber>(new: T, old: T) -> bool {
        let is_nan = |x: T| x.partial_cmp(&x).is_none();
        !is_nan(old) && (is_nan(new) || Self::is_better(new, old))
    }
    /// The position of it along an axis.
    fn position(x: Expr, axis: Axis) -> Expr;
}

pub(crate) struct Greatest;
pub(crate) struct Least;

impl Extreme for Greatest {
    const ON_CARD: &'static str = "position<true>";
    const OF_NO_FLOATS: f64 = f64::NEG_INFINITY;
    fn of_no_integers<T: Integer>() -> T {
        Largest::first()
    }
    fn is_better<T: RealNumber>(new: T, old: T) -> bool {
        new > old
    }
    fn position(x: Expr, axis: Axis) -> Expr {
        x.argmax(axis).number()
    }
}

impl Extreme for Least {
    const ON_CARD: &'static str = "position<false>";
    const OF_NO_FLOATS: f64 = f64::INFINITY;
    fn of_no_integers<T: Integer>() -> T {
        Smallest::first()
    }
    fn is_better<T: RealNumber>(new: T, old: T) -> bool {
        new < old
    }
    fn position(x: Expr, axis: Axis) -> Expr {
        x.argmin(axis).number()
    }
}

struct PositionKernel<E> {
    axes: Axes,
    extreme: PhantomData<fn() -> E>,
}

impl<E: Extreme> OpKernel for PositionKernel<E> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(PositionKernel { axes: Axes::new(construction)?, extreme: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let tensor = context.input(0)?;
        let terms = Terms::new(&self.axes, tensor)?;
        ensure!(
            !terms.terms.is_empty() || terms.results.is_empty(),
            InvalidArgument for "x",
            "input `x` must have an element along the dims that are gone through, got shape {:?}",
            tensor.shape()
        );
        if crate::card::is_on_card(context) {
            return terms.fold_on_card(context, E::ON_CARD, tensor);
        }
        dispatch!(tensor.dtype(), RealNumber, |T| {
            let from = Shared(tensor.data_ptr().cast_mut());
            terms.make::<i64>(context, |terms, place| {
                let (from, mut best, [step]) = (&from, None::<(usize, T)>, terms.steps([0]));
                terms.runs([0], 0..terms.len(), |first, [at], count| {
                    for i in 0..count {
                        let at = place + at + i as isize * step;
                        // SAFETY: the places are in the tensor.
                        let new = unsafe { *from.0.cast::<T>().offset(at) };
                        if best.is_none_or(|(_, old)| E::takes(new, old)) {
                            best = Some((first + i, new));
                        }
                    }
                });
                best.map_or(0, |(position, _)| position as i64)
            })
        })
    }
}

/// What is computed of each row, of floats.
fn program<E: Extreme>(construction: &OpKernelConstruction<'_>) -> Result<Option<Program>> {
    let graph = compose_over(&[Lying::FIRST], &[Lying::NONE], |x| vec![E::position(x[0], Axis::new(0))]);
    let is_float =
        matches!(construction.attr("T")?, DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64);
    let Some(listing) = graph.to_listing().filter(|_| is_float) else { return Ok(None) };
    let Listing { inputs, nodes, outputs, results } = listing;
    let Axes { axes, keep } = Axes::new(construction)?;
    let rows = Some(ProgramRows { dims: axes, keep });
    Ok(Some(Program { inputs, nodes, outputs, results, like: vec![None], rows, ..Program::default() }))
}

fn positions<E: Extreme>(name: &str, what: &str) -> OpDef {
    OpDef::new(name)
        .attr("axes: list(int) = []")
        .attr("keep_dims: bool = false")
        .attr("T: realnumbertype")
        .input("x: T")
        .output("y: int64")
        .parallel("(... but axes) -> (... less axes unless keep_dims)")
        .doc(&format!(
            "Where the {what} number over some dims, or over all, is: of several dims, the position in row-major order. Of equal \
             numbers the first counts, and NaN before all.\n\n\
             x: Any numbers, at least one along those dims.\n\
             axes: The dims that are gone through, counted from the end where negative; empty for all.\n\
             keep_dims: Whether they stay, as dims of 1.\n\
             y: The positions, from 0."
        ))
        .shape_fn(folded_shape)
        .not_differentiable()
        .program(program::<E>)
        .kernels(sets::REAL_NUMBER.iter().map(|&dtype| {
            KernelDef::cpu::<PositionKernel<E>>().strided().dtype_constraint("T", dtype)
        }))
        .kernels(card::kernels::<PositionKernel<E>>(|dtype| sets::REAL_NUMBER.contains(&dtype)))
}

fn folded_shape(c: &mut InferenceContext<'_>) -> Result<()> {
    let axes = Axes { axes: c.get_ints("axes")?.to_vec(), keep: c.get_bool("keep_dims")? };
    let input = c.input(0)?;
    let shape = match input.dims() {
        None if axes.axes.is_empty() && !axes.keep => Shape::scalar(),
        None => Shape::unknown(),
        Some(dims) => {
            let marks = axes.marks(dims.len())?;
            let kept = dims.iter().zip(marks).filter(|(_, mark)| axes.keep || !mark);
            kept.map(|(dim, mark)| if mark { Dim::Known(1) } else { dim.clone() }).collect()
        }
    };
    c.set_output(0, shape)
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::Array2;
    use opsmith::testing;

    use super::*;

    #[test]
    fn positions_of_several_dims_are_in_row_major_order() -> Result<()> {
        let x = array![[1, 9, 3], [9, 5, 6]];
        let call = || testing::call::<ArgMax>().input(&x);
        assert_eq!(call().run()?.array::<i64, Ix0>("y")?[()], 1);
        assert_eq!(call().attr("axes", vec![0]).run()?.array::<i64, Ix1>("y")?, array![1, 0, 1]);
        let error =
            testing::call::<ArgMin>().input(&Array2::<f32>::zeros((0, 2))).attr("axes", vec![0]).run();
        assert!(error.unwrap_err().message().contains("must have an element along the dims"));
        let nan = array![1.0, f64::NAN, f64::NAN];
        assert_eq!(testing::call::<ArgMin>().input(&nan).run()?.array::<i64, Ix0>("y")?[()], 1);
        Ok(())
    }
}
