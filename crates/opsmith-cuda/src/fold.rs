//! Folds over dims of a tensor: kernels of a source that includes `opsmith_fold.cuh`, and how threads share them.

use opsmith_core::space::{IndexSpace, Layout};
use opsmith_core::{OpKernelContext, Result};

use crate::call::{BLOCK, CudaCall};
use crate::source::Source;
use crate::space::index_of;

/// So many blocks, and threads, keep every card busy.
const BLOCKS: usize = 1024;
const THREADS: usize = 1 << 18;
/// The most blocks along results, which go on by so many.
const MOST_BLOCKS: usize = 1 << 16;
/// How many results a block makes whose terms lie across memory, and the least terms that are worth a thread of another block.
const COLUMNS: usize = 32;
const LEAST: usize = 16;
/// The bytes of what is left of a part of the terms.
const STATE: usize = 16;

/// The address of elements on a card, and their type in CUDA C++.
pub type Elements<'a> = (*mut u8, &'a str);

/// A fold of a source, a structure as `opsmith::Total` is one.
#[derive(Clone, Copy)]
pub struct Folding<'a> {
    /// A source that includes `opsmith_fold.cuh`.
    pub source: &'a Source,
    /// The structure's name.
    pub name: &'a str,
}

impl Folding<'_> {
    /// Folds the terms of each result. Both spaces have the places of the numbers and of the conditions; the results go one after
    /// another, in the order of their space.
    ///
    /// # Errors
    /// As [`KernelCall::launch`](crate::KernelCall::launch) and [`CudaCall::temp`].
    ///
    /// # Safety
    /// The numbers and conditions must be where the spaces say, and there must be room for a result for each of the first one's indices,
    /// on the call's card.
    pub unsafe fn launch(
        &self,
        context: &OpKernelContext<'_>,
        [x, condition]: [Elements<'_>; 2],
        to: Elements<'_>,
        [results, terms]: [&IndexSpace; 2],
    ) -> Result<()> {
        let spread = Spread::new(results, terms);
        let name = self.name;
        if spread.parts == 1 {
            // SAFETY: the caller's.
            return unsafe { self.one(context, name, [x, condition], to, [results, terms], &spread) };
        }
        let (count, parts, state) = (results.len(), spread.parts, format!("{name}::State<{}>", x.1));
        let left = context.device_temp(count.saturating_mul(parts).saturating_mul(STATE))?.as_ptr();
        let of = format!("opsmith::Left<{name}, {}>", x.1);
        // SAFETY: the caller's, and what is left has room for each part.
        unsafe { self.one(context, &of, [x, condition], (left, &state), [results, terms], &spread)? };
        let along = |size: usize, stride: isize| {
            let layout = Layout { shape: &[size], strides: &[stride] };
            IndexSpace::new(&[size], &[layout, layout])
        };
        let (results, terms) = (along(count, 1)?, along(parts, count as isize)?);
        let spread = Spread { parts: 1, ..Spread::new(&results, &terms) };
        let (of, left) = (format!("opsmith::Again<{name}, {}>", x.1), (left, state.as_str()));
        // SAFETY: as above.
        unsafe { self.one(context, &of, [left, left], to, [&results, &terms], &spread) }
    }

    /// # Safety
    /// As [`launch`](Self::launch), with results for each part.
    unsafe fn one(
        &self,
        context: &OpKernelContext<'_>,
        fold: &str,
        [x, condition]: [Elements<'_>; 2],
        to: Elements<'_>,
        [results, terms]: [&IndexSpace; 2],
        spread: &Spread,
    ) -> Result<()> {
        let index = index_of(&[results, terms], 2, 0);
        let types = [fold, x.1, condition.1, to.1, index.name()].join(", ");
        let Spread { across, rows, lanes, parts } = *spread;
        let threads = if across { [rows, lanes] } else { [lanes, rows] };
        let launch = CudaCall::new(context, self.source);
        let launch = launch.kernel(format!("opsmith::folded<{types}>"));
        let launch = launch.grid([results.len().div_ceil(rows).min(MOST_BLOCKS), parts, 1]);
        let launch = launch.block([threads[0] as u32, threads[1] as u32, 1]);
        let launch = launch.address(x.0.cast()).address(condition.0.cast()).address(to.0.cast());
        // SAFETY: these are the kernel's parameters; the rest is the caller's.
        unsafe { launch.space(results, 2, index).space(terms, 2, index).value(across).launch() }
    }
}

/// How a fold is spread over a card, as the sizes alone decide.
struct Spread {
    across: bool,
    /// The results of a block, and the threads that share the terms of each.
    rows: usize,
    lanes: usize,
    /// The blocks that do.
    parts: usize,
}

impl Spread {
    fn new(results: &IndexSpace, terms: &IndexSpace) -> Spread {
        let [[of_results], [of_terms]] = [results.steps([0]), terms.steps([0])];
        let across = of_results == 1 && of_terms != 1;
        let (count, most) = (results.len().max(1), terms.len().clamp(1, BLOCK).next_power_of_two());
        let rows = if across { count.next_power_of_two().min(COLUMNS) } else { 1 };
        let busy = if across { (THREADS / count).max(1).next_power_of_two() } else { BLOCK };
        let lanes = (BLOCK / rows).min(most).min(busy);
        let rows = BLOCK / lanes;
        let parts = (BLOCKS / count.div_ceil(rows)).min(terms.len() / (lanes * LEAST)).max(1);
        Spread { across, rows, lanes, parts }
    }
}
