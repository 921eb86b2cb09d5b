//! Folds over any dims that are not written once for floats: of integers; and what they share with the positions of extremes.

use std::marker::PhantomData;

use opsmith::prelude::*;
use opsmith::space::{Extents, IndexSpace};
use opsmith::{Dim, Shape};
use opsmith_core::kernel::{Settled, SettledCall};

use crate::card;
use crate::elementwise::Shared;
use crate::few;
use crate::parameters::axis_of;

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
pub(crate) struct Axes {
    pub(crate) axes: Vec<i64>,
    pub(crate) keep: bool,
}

impl Axes {
    pub(crate) fn new(construction: &OpKernelConstruction<'_>) -> Result<Axes> {
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
pub(crate) struct Terms {
    pub(crate) results: IndexSpace,
    pub(crate) terms: IndexSpace,
    /// For each dim, whether it is folded.
    marks: Vec<bool>,
    /// The shape of the output.
    shape: Extents,
}

impl Terms {
    pub(crate) fn new(axes: &Axes, tensor: TensorView<'_>) -> Result<Terms> {
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
    pub(crate) fn fold_on_card(
        &self,
        context: &OpKernelContext<'_>,
        fold: &str,
        tensor: TensorView<'_>,
    ) -> Result<()> {
        card::folds::fold(context, fold, (tensor, None), |dim| self.marks[dim], (0, &self.shape))
    }

    /// Makes output 0 of a tensor in host memory, these being its terms.
    pub(crate) fn make(
        &self,
        context: &OpKernelContext<'_>,
        tensor: TensorView<'_>,
        fill: Fill,
    ) -> Result<()> {
        let output = context.allocate_output(0, &self.shape)?;
        // SAFETY: the tensors are those of the terms and of their results.
        unsafe { fill(self, tensor.dtype(), &context.compute(), tensor.data_ptr(), output.data_ptr()) }
    }

    /// What is left to do of calls on dense tensors of the same shape as input 0.
    pub(crate) fn settle(axes: &Axes, context: &OpKernelContext<'_>, fill: Fill) -> Option<Settled> {
        let tensor = context.input(0).ok()?;
        let terms = Terms::new(axes, tensor).ok()?;
        Some(few::settled(terms.shape.clone(), Known { terms, dtype: tensor.dtype(), fill }))
    }

    /// Makes all results, the first of which is at `to`: `fold` gives a run of them, whose terms' places begin where `place` says, `stride`
    /// apart. A result costs some `cost` nanoseconds.
    ///
    /// # Safety
    /// There must be room for them, which is nobody else's.
    pub(crate) unsafe fn each<Z: Element>(
        &self,
        compute: &Compute<'_>,
        to: *mut u8,
        cost: usize,
        fold: impl Fn(Run<'_, Z>) + Sync,
    ) {
        let memory = Shared(to);
        compute.parallel_for(self.results.len(), cost, |range| {
            let to = &memory;
            let [stride] = self.results.steps([0]);
            self.results.runs([0], range, |first, [place], count| {
                // SAFETY: there is an element for each result, and each is written by one thread.
                let to = unsafe { std::slice::from_raw_parts_mut(to.0.cast::<Z>().add(first), count) };
                fold(Run { terms: &self.terms, place, stride, to });
            });
        });
    }
}

/// Makes the results of terms of a dtype: from the address of the tensor, to that of the output.
///
/// # Safety
/// Both must be as the terms say, and the output nobody else's.
pub(crate) type Fill = unsafe fn(&Terms, DType, &Compute<'_>, *const u8, *mut u8) -> Result<()>;

/// A call whose terms are known.
struct Known {
    terms: Terms,
    dtype: DType,
    fill: Fill,
}

// SAFETY: a fold reads its terms and writes its results.
unsafe impl SettledCall for Known {
    unsafe fn run(&self, compute: &Compute<'_>, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { (self.fill)(&self.terms, self.dtype, compute, inputs[0], outputs[0]) }
    }
}

/// Results that lie one after another.
pub(crate) struct Run<'a, Z> {
    pub(crate) terms: &'a IndexSpace,
    /// Where the terms of the first begin.
    pub(crate) place: isize,
    /// How far those of the next are from there.
    pub(crate) stride: isize,
    pub(crate) to: &'a mut [Z],
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
        terms.make(context, tensor, fill::<F>)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        Terms::settle(&self.axes, context, fill::<F>)
    }
}

/// The folds of integers.
///
/// # Safety
/// As [`Fill`].
unsafe fn fill<F: Folding>(
    terms: &Terms,
    dtype: DType,
    compute: &Compute<'_>,
    from: *const u8,
    to: *mut u8,
) -> Result<()> {
    let from = Shared(from.cast_mut());
    dispatch!(dtype, Integer, |T| {
        let fold = |run: Run<'_, T>| {
            let (from, [step]) = (&from, run.terms.steps([0]));
            for (i, to) in run.to.iter_mut().enumerate() {
                let (place, mut result) = (run.place + run.stride * i as isize, F::first::<T>());
                run.terms.runs([0], 0..run.terms.len(), |_, [at], count| {
                    // SAFETY: the places are in the tensor.
                    let first = unsafe { from.0.cast::<T>().offset(place + at) };
                    for i in 0..count as isize {
                        // SAFETY: as above.
                        result = F::fold(result, unsafe { *first.offset(i * step) });
                    }
                });
                *to = result;
            }
        };
        // SAFETY: promised by the caller.
        unsafe { terms.each(compute, to, terms.terms.len(), fold) };
        Ok(())
    })
}

pub(crate) fn folded_shape(c: &mut InferenceContext<'_>) -> Result<()> {
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
