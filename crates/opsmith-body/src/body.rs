//! Bodies, and loops over slices.

#![allow(
    clippy::needless_range_loop,
    reason = "no closures: only what is inlined, whatever happens, is compiled for the instruction set"
)]

use crate::element::Element;
use crate::isa::{Isa, Kernel, Level, dispatch_at};
use crate::scalar::Scalar;

/// A pointwise computation of `OUT` numbers from `IN` numbers, written once for every [`Scalar`].
///
/// The fields of the type that implements it are the attributes.
///
/// ```
/// use opsmith_body::{Body, Scalar, map};
///
/// struct LeakyRelu { slope: f64 }
///
/// impl Body<1, 1> for LeakyRelu {
///     fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 1] {
///         let slope = S::attr("slope", self.slope);
///         [S::select(x.gt(S::of(0.0)), x, x * slope)]
///     }
/// }
///
/// let mut y = [0.0f32; 3];
/// map(&LeakyRelu { slope: 0.5 }, [&[-2.0, 0.0, 3.0]], [&mut y]);
/// assert_eq!(y, [-1.0, 0.0, 3.0]);
/// ```
pub trait Body<const IN: usize, const OUT: usize> {
    /// The computation. Mark it `#[inline(always)]`.
    fn eval<S: Scalar>(&self, inputs: [S; IN]) -> [S; OUT];
}

impl<B: Body<IN, OUT>, const IN: usize, const OUT: usize> Body<IN, OUT> for &B {
    #[inline(always)]
    fn eval<S: Scalar>(&self, inputs: [S; IN]) -> [S; OUT] {
        (**self).eval(inputs)
    }
}

/// How many elements are computed at a time: enough for any vector, and few enough that they stay in the first cache.
pub const BLOCK: usize = 128;

/// The elements of a block, aligned as the widest vectors like it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Block<T>(pub [T; BLOCK]);

impl<T: Element> Default for Block<T> {
    #[inline(always)]
    fn default() -> Self {
        Self([T::default(); BLOCK])
    }
}

/// Computes a body for every element, on the best instruction set.
///
/// # Panics
/// If the slices differ in length.
#[inline]
pub fn map<T: Element, B: Body<IN, OUT>, const IN: usize, const OUT: usize>(
    body: &B,
    inputs: [&[T]; IN],
    outputs: [&mut [T]; OUT],
) {
    map_at(Level::best(), body, inputs, outputs);
}

/// As [`map`], on a level.
///
/// # Panics
/// If the slices differ in length.
pub fn map_at<T: Element, B: Body<IN, OUT>, const IN: usize, const OUT: usize>(
    level: Level,
    body: &B,
    inputs: [&[T]; IN],
    outputs: [&mut [T]; OUT],
) {
    let len = inputs.first().map_or_else(|| outputs.first().map_or(0, |o| o.len()), |i| i.len());
    assert!(
        inputs.iter().all(|i| i.len() == len) && outputs.iter().all(|o| o.len() == len),
        "the slices of a pointwise body are of one length"
    );
    dispatch_at(level, Map { body, inputs, outputs, len });
}

struct Map<'a, B, T, const IN: usize, const OUT: usize> {
    body: &'a B,
    inputs: [&'a [T]; IN],
    outputs: [&'a mut [T]; OUT],
    len: usize,
}

impl<T: Element, B: Body<IN, OUT>, const IN: usize, const OUT: usize> Kernel for Map<'_, B, T, IN, OUT> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { body, inputs, outputs, len } = self;
        let mut rest = [Block::<T>::default(); IN];
        let mut written = [Block::<T>::default(); OUT];
        let full = len / BLOCK;
        for number in 0..full {
            let mut read = [&rest[0].0; IN];
            for k in 0..IN {
                read[k] = &inputs[k].as_chunks().0[number];
            }
            block::<I, T, B, IN, OUT>(body, read, &mut written);
            for k in 0..OUT {
                outputs[k].as_chunks_mut().0[number] = written[k].0;
            }
        }
        if full * BLOCK == len {
            return;
        }
        for k in 0..IN {
            let tail = inputs[k].as_chunks::<BLOCK>().1;
            rest[k].0[..tail.len()].copy_from_slice(tail);
        }
        let mut read = [&rest[0].0; IN];
        for k in 0..IN {
            read[k] = &rest[k].0;
        }
        block::<I, T, B, IN, OUT>(body, read, &mut written);
        for k in 0..OUT {
            let tail = outputs[k].as_chunks_mut::<BLOCK>().1;
            tail.copy_from_slice(&written[k].0[..tail.len()]);
        }
    }
}

/// Computes a body for a block of elements, in code for the instruction set `I`.
///
/// A block's length is fixed, and nobody else knows the memory of `outputs` if it is the caller's own [`Block`]s: so the
/// loop is vectorised whatever the body, without a remainder. Contiguous inputs are read where they lie, others are
/// gathered in blocks; an output may lie where an input lies, since it is copied from its block afterwards. Elements
/// that a last block has too many are computed and left.
#[inline(always)]
pub fn block<I: Isa, T: Element, B: Body<IN, OUT>, const IN: usize, const OUT: usize>(
    body: &B,
    inputs: [&[T; BLOCK]; IN],
    outputs: &mut [Block<T>; OUT],
) {
    for index in 0..BLOCK {
        let mut numbers = [T::Number::<I>::of(0.0); IN];
        for k in 0..IN {
            numbers[k] = inputs[k][index].load::<I>();
        }
        let results = body.eval(numbers);
        for k in 0..OUT {
            outputs[k].0[index] = T::store(results[k]);
        }
    }
}
