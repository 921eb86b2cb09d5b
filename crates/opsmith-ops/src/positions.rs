//! The positions of extremes over any dims.

use std::marker::PhantomData;

use opsmith::dtype::{bf16, f16, sets};
use opsmith::isa::{Isa, Kernel, dispatch};
use opsmith::prelude::*;
use opsmith_body::{Axes as Lying, Axis, Expr, Index, Indexed, Listing, compose_over};
use opsmith_core::kernel::Settled;
use opsmith_core::{Program, ProgramRows};

use crate::card;
use crate::define::ops;
use crate::elementwise::Shared;
use crate::folds::{Axes, Folding, Largest, Run, Smallest, Terms, folded_shape};

ops! {
    /// The op `ArgMax`: where the largest number is.
    ArgMax = positions::<Greatest>("ArgMax", "largest");
    /// The op `ArgMin`: where the smallest number is.
    ArgMin = positions::<Least>("ArgMin", "smallest");
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
    fn is_better<K: PartialOrd>(new: K, old: K) -> bool;
    /// The same of any numbers: the first NaN comes before all.
    #[inline(always)]
    fn takes<T: Compared>(new: T, old: T) -> bool {
        !old.is_nan() && (new.is_nan() || Self::is_better(new.key(), old.key()))
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
    #[inline(always)]
    fn is_better<K: PartialOrd>(new: K, old: K) -> bool {
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
    #[inline(always)]
    fn is_better<K: PartialOrd>(new: K, old: K) -> bool {
        new < old
    }
    fn position(x: Expr, axis: Axis) -> Expr {
        x.argmin(axis).number()
    }
}

/// A number as a processor compares it: as it is, or as an integer of the same order.
pub(crate) trait Compared: RealNumber {
    type Key: PartialOrd + Copy;
    /// For all but NaN.
    fn key(self) -> Self::Key;
    fn is_nan(self) -> bool;
}

macro_rules! compared {
    ($($ty:ty: $key:ty, $of:expr, $nan:expr;)*) => {$(
        impl Compared for $ty {
            type Key = $key;
            #[inline(always)]
            fn key(self) -> $key {
                ($of)(self)
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                ($nan)(self)
            }
        }
    )*};
}

/// Without its sign, a float of 16 bits is an integer of the same order.
#[inline(always)]
fn magnitude(bits: u16) -> i16 {
    (bits & 0x7fff).cast_signed()
}

/// Both zeros are 0.
#[inline(always)]
fn signed(bits: u16) -> i16 {
    if bits >> 15 == 1 { -magnitude(bits) } else { magnitude(bits) }
}

compared! {
    f16: i16, |x: f16| signed(x.to_bits()), |x: f16| magnitude(x.to_bits()) > magnitude(f16::INFINITY.to_bits());
    bf16: i16, |x: bf16| signed(x.to_bits()), |x: bf16| magnitude(x.to_bits()) > magnitude(bf16::INFINITY.to_bits());
    f32: f32, |x| x, f32::is_nan;
    f64: f64, |x| x, f64::is_nan;
    i8: i8, |x| x, |_| false;
    i16: i16, |x| x, |_| false;
    i32: i32, |x| x, |_| false;
    i64: i64, |x| x, |_| false;
    u8: u8, |x| x, |_| false;
    u16: u16, |x| x, |_| false;
    u32: u32, |x| x, |_| false;
    u64: u64, |x| x, |_| false;
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
        terms.make(context, tensor, fill::<E>)
    }

    fn settle(&self, context: &OpKernelContext<'_>) -> Option<Settled> {
        Terms::settle(&self.axes, context, fill::<E>)
    }
}

/// The positions of extremes.
///
/// # Safety
/// As [`Fill`](crate::folds::Fill).
unsafe fn fill<E: Extreme>(
    terms: &Terms,
    dtype: DType,
    compute: &Compute<'_>,
    from: *const u8,
    to: *mut u8,
) -> Result<()> {
    let from = Shared(from.cast_mut());
    // A processor compares several numbers at a time, if they lie side by side.
    let side_by_side = terms.terms.steps([0]) == [1] || terms.results.steps([0]) == [1];
    let cost = terms.terms.len().div_ceil(if side_by_side { 4 } else { 1 });
    dispatch!(dtype, RealNumber, |T| {
        // SAFETY: promised by the caller.
        unsafe { terms.each::<i64>(compute, to, cost, |run| dispatch(First::<E, T>::new(&from, run))) };
        Ok(())
    })
}

/// Looks for the first extremes of a run of results.
struct First<'a, E, T> {
    from: *const T,
    run: Run<'a, i64>,
    extreme: PhantomData<fn() -> E>,
}

impl<'a, E: Extreme, T: Compared> First<'a, E, T> {
    fn new(from: &Shared, run: Run<'a, i64>) -> Self {
        First { from: from.0.cast(), run, extreme: PhantomData }
    }

    /// Each on its own.
    #[inline(always)]
    fn one_by_one(self) {
        let Run { terms, place, stride, to } = self.run;
        let [step] = terms.steps([0]);
        for (i, to) in to.iter_mut().enumerate() {
            let (place, mut best) = (place + stride * i as isize, None::<(usize, T)>);
            terms.runs([0], 0..terms.len(), |first, [at], count| {
                // SAFETY: the places are in the tensor.
                let from = unsafe { self.from.offset(place + at) };
                if step == 1 {
                    // SAFETY: as above, and they lie one after another.
                    let terms = unsafe { std::slice::from_raw_parts(from, count) };
                    terms.chunks(BLOCK).enumerate().for_each(|(block, terms)| {
                        look_at::<E, T>(terms, first + block * BLOCK, &mut best);
                    });
                    return;
                }
                for i in 0..count {
                    // SAFETY: as above.
                    let new = unsafe { *from.offset(i as isize * step) };
                    if best.is_none_or(|(_, old)| E::takes(new, old)) {
                        best = Some((first + i, new));
                    }
                }
            });
            *to = best.map_or(0, |(position, _)| position as i64);
        }
    }

    /// Some side by side, whose terms lie side by side too: memory is read in order.
    #[inline(always)]
    fn side_by_side(self) {
        let Run { terms, place, to, .. } = self.run;
        let [step] = terms.steps([0]);
        for (tile, to) in to.chunks_mut(TILE).enumerate() {
            let place = place + (tile * TILE) as isize;
            let mut best = [T::zero(); TILE];
            terms.runs([0], 0..terms.len(), |first, [at], count| {
                for i in 0..count {
                    // SAFETY: the places are in the tensor, and those of the results beside this one follow.
                    let new = unsafe {
                        let begin = self.from.offset(place + at + i as isize * step);
                        std::slice::from_raw_parts(begin, to.len())
                    };
                    let position = first + i;
                    for ((to, best), &new) in to.iter_mut().zip(&mut best).zip(new) {
                        let takes = position == 0 || E::takes(new, *best);
                        *best = if takes { new } else { *best };
                        *to = if takes { position as i64 } else { *to };
                    }
                }
            });
        }
    }
}

/// How many numbers are looked at before the place of one is looked for, if one is better than all before.
const BLOCK: usize = 1024;

/// How many results are found side by side.
const TILE: usize = 128;

impl<E: Extreme, T: Compared> Kernel for First<'_, E, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let [step] = self.run.terms.steps([0]);
        // For fewer, going along each is faster.
        if self.run.stride == 1 && step != 1 && self.run.to.len() >= 8 {
            self.side_by_side();
        } else {
            self.one_by_one();
        }
    }
}

/// Takes the first extreme of some terms, the first of which is at `first`, if it comes before the best of those before.
///
/// Which number it is is known without branches; its place is looked for only where it is better.
#[inline(always)]
fn look_at<E: Extreme, T: Compared>(terms: &[T], first: usize, best: &mut Option<(usize, T)>) {
    if best.is_some_and(|(_, old)| old.is_nan()) {
        return;
    }
    let found = match extreme_of::<E, T>(terms) {
        None => terms.iter().position(|&term| term.is_nan()),
        Some(new) if best.is_none_or(|(_, old)| E::is_better(new, old.key())) => position_of(new, terms),
        Some(_) => return,
    };
    *best = found.map(|at| (first + at, terms[at])).or(*best);
}

/// How many numbers are compared at a time. A known number, and loops by it, are what a compiler makes vectors of.
const LANES: usize = 64;

/// The key of the extreme of some terms, none of them NaN.
#[inline(always)]
fn extreme_of<E: Extreme, T: Compared>(terms: &[T]) -> Option<T::Key> {
    let better = |new: T::Key, old: T::Key| if E::is_better(new, old) { new } else { old };
    let (mut lanes, mut nan) = ([terms.first()?.key(); LANES], false);
    let (chunks, rest) = terms.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = better(chunk[lane].key(), lanes[lane]);
            nan |= chunk[lane].is_nan();
        }
    }
    for (lane, &term) in lanes.iter_mut().zip(rest) {
        *lane = better(term.key(), *lane);
        nan |= term.is_nan();
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = better(lanes[width + lane], lanes[lane]);
        }
        width /= 2;
    }
    (!nan).then_some(lanes[0])
}

/// Where a key is first.
#[inline(always)]
fn position_of<T: Compared>(key: T::Key, terms: &[T]) -> Option<usize> {
    let (chunks, rest) = terms.as_chunks::<LANES>();
    let is_in = |chunk: &[T; LANES]| chunk.iter().fold(false, |is, &term| is | (term.key() == key));
    let chunk = chunks.iter().position(is_in).unwrap_or(chunks.len());
    let terms = chunks.get(chunk).map_or(rest, |chunk| chunk);
    terms.iter().position(|&term| term.key() == key).map(|at| chunk * LANES + at)
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

#[cfg(test)]
mod tests {
    use opsmith::ndarray::{self, Array2};
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

    /// Numbers of which many are equal, and some are given.
    fn numbers<T: RealNumber>(count: usize, seed: usize, some: &[(usize, T)]) -> Array1<T> {
        let mut state = seed as u64 + 1;
        let mut numbers = Array1::from_shape_fn(count, |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            T::from((state >> 60) as u8).unwrap_or(T::zero())
        });
        some.iter().filter(|(at, _)| *at < count).for_each(|(at, number)| numbers[*at] = *number);
        numbers
    }

    /// By a plain loop in double precision, which holds all numbers of this test.
    fn first<T: RealNumber>(numbers: ArrayView1<'_, T>, largest: bool) -> i64 {
        let numbers: Vec<f64> = numbers.iter().map(|number| number.to_f64().unwrap()).collect();
        let comes_before = |new: f64, old: f64| {
            !old.is_nan() && (new.is_nan() || if largest { new > old } else { new < old })
        };
        let best = |best: usize, at: usize| if comes_before(numbers[at], numbers[best]) { at } else { best };
        (0..numbers.len()).fold(0, best) as i64
    }

    fn compare<T: RealNumber>(some: &[(usize, T)]) -> Result<()> {
        for count in [1, 2, 31, 32, 33, 64, 100, 1023, 1024, 1025, 3000] {
            let x = numbers(count, count, some);
            assert_eq!(
                testing::call::<ArgMax>().input(&x).run()?.array::<i64, Ix0>("y")?[()],
                first(x.view(), true)
            );
            assert_eq!(
                testing::call::<ArgMin>().input(&x).run()?.array::<i64, Ix0>("y")?[()],
                first(x.view(), false)
            );
        }
        for (rows, columns) in [(1, 5), (7, 1), (40, 3), (5, 129), (130, 300)] {
            let x = numbers(rows * columns, rows, some).into_shape_with_order((rows, columns)).unwrap();
            for axis in [0, 1] {
                let y = testing::call::<ArgMin>().input(&x).attr("axes", vec![axis as i64]).run()?;
                let expected: Array1<i64> =
                    x.lanes(ndarray::Axis(axis)).into_iter().map(|lane| first(lane, false)).collect();
                assert_eq!(y.array::<i64, Ix1>("y")?, expected);
            }
        }
        Ok(())
    }

    #[test]
    fn positions_are_those_of_a_plain_loop() -> Result<()> {
        compare::<f32>(&[])?;
        compare(&[(70, f32::INFINITY), (71, f32::NEG_INFINITY), (72, f32::INFINITY), (5, -0.0), (6, 0.0)])?;
        compare(&[(40, f32::NAN), (1500, f32::NAN), (41, f32::INFINITY), (2, f32::NEG_INFINITY)])?;
        compare(&[(0, f64::NAN)])?;
        compare(&[(2999, f64::NAN), (1030, 200.0), (1031, 200.0)])?;
        compare(&[(33, bf16::NAN), (0, bf16::from_f32(-3.0))])?;
        compare(&[(900, bf16::INFINITY), (901, bf16::NEG_INFINITY), (902, bf16::INFINITY)])?;
        compare(&[(900, f16::MAX), (3, f16::MIN), (4, f16::MIN)])?;
        compare(&[(5, f16::NEG_ZERO), (6, f16::ZERO), (7, f16::from_f32(-1e-7)), (8, f16::from_f32(-1e-7))])?;
        compare(&[(999, -f16::NAN)])?;
        compare(&[(99, u8::MAX), (100, u8::MAX)])?;
        compare(&[(1024, i64::MIN), (17, i64::MAX)])?;
        compare(&[(64, i8::MIN)])
    }
}
