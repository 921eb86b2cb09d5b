//! The medians of windows, many at a time: a window is a lane of vectors, and the elements at one place of all of those
//! windows are compared with those at another.

#![allow(
    clippy::needless_range_loop,
    reason = "a loop over lanes is over several arrays, and is vectorised as it stands"
)]

use std::ops::Range;

use opsmith::memory;
use opsmith::prelude::*;

use crate::element::Pooled;
use crate::layout::{Block, LANES, Layout};
use crate::network::{Kept, Step, median_network, median_of_9, median_of_25};
use crate::windows::{Pool, Windows};

/// Windows of more elements are done one after another: a network has more steps than selection by then.
const MOST: usize = 512;

/// How an instance finds medians.
pub(crate) struct Medians {
    pub(crate) windows: Windows,
    /// Empty where windows have more elements than [`MOST`].
    network: Vec<Step>,
}

impl Medians {
    /// Those of an instance.
    pub(crate) fn of(construction: &OpKernelConstruction<'_>) -> Result<Medians> {
        let windows = Windows::of(construction)?;
        let network = if windows.size() <= MOST { median_network(windows.size()) } else { Vec::new() };
        Ok(Medians { windows, network })
    }

    /// The nanoseconds that a row of windows takes, roughly.
    pub(crate) fn cost(&self, pool: &Pool) -> usize {
        let each = match self.windows.size() {
            size @ ..=MOST => 1 + (size + 2 * self.network.len()) / 32,
            size => 4 * size.min(pool.height.saturating_mul(pool.width)),
        };
        pool.row_len().saturating_mul(each)
    }
}

/// What the medians of a block are computed in.
pub(crate) struct Scratch<T: Pooled> {
    /// An element of each window, for each place of a window.
    keys: Vec<[T::Key; LANES]>,
    /// A NaN of each window, if it has any.
    nans: [T; LANES],
    /// Whether the next element outside of the image counts as the least, for each window.
    least: [bool; LANES],
    /// Elements that do not lie side by side.
    gathered: [T; LANES],
    medians: [T::Key; LANES],
    /// The elements of a window that is done by itself.
    window: Vec<T::Key>,
}

impl<T: Pooled> Scratch<T> {
    pub(crate) fn new(how: &Medians, pool: &Pool) -> Result<Scratch<T>> {
        let size = how.windows.size();
        let places = if size <= MOST { size } else { 0 };
        let mut window = Vec::new();
        if size > MOST {
            memory::reserve(&mut window, size.min(pool.height * pool.width), "the elements of a window")?;
        }
        Ok(Scratch {
            keys: memory::filled([T::LEAST; LANES], places, "the elements of windows")?,
            nans: [T::zero(); LANES],
            least: [false; LANES],
            gathered: [T::zero(); LANES],
            medians: [T::LEAST; LANES],
            window,
        })
    }

    /// The medians of a block of windows that have these rows of the image.
    #[inline(always)]
    pub(crate) fn medians(
        &mut self,
        how: &Medians,
        layout: &Layout<'_>,
        image: &[T],
        rows: &Range<usize>,
        block: &Block,
        to: &mut [T],
    ) {
        if self.keys.is_empty() {
            return self.select(layout.pool, image, rows, block, to);
        }
        self.load(how, layout, image, rows, block);
        match how.windows.size() {
            9 => self.nine(),
            25 => self.twenty_five(),
            size => {
                exchange::<T>(&how.network, &mut self.keys);
                self.medians = self.keys[size / 2];
            }
        }
        for ((to, &key), &nan) in to.iter_mut().zip(&self.medians).zip(&self.nans) {
            *to = if nan.is_nan() { nan } else { T::of_key(key) };
        }
    }

    /// Brings the elements of windows to their places. What is outside of the image counts as least and greatest in turn, so
    /// that the median of the others stays in the middle.
    #[inline(always)]
    fn load(&mut self, how: &Medians, layout: &Layout<'_>, image: &[T], rows: &Range<usize>, block: &Block) {
        self.nans.fill(T::zero());
        self.least.fill(how.windows.size().is_multiple_of(2));
        let mut places = self.keys.iter_mut();
        for y in rows.clone() {
            for (column, keys) in layout.columns.iter().zip(places.by_ref()) {
                let (lanes, elements) = layout.elements(image, block, y, column, &mut self.gathered);
                T::take(elements, &mut keys[lanes.clone()], &mut self.nans[lanes.clone()]);
                for lane in (0..lanes.start).chain(lanes.end..block.lanes) {
                    keys[lane] = outside::<T>(&mut self.least[lane]);
                }
            }
        }
        for keys in places {
            for (key, least) in keys.iter_mut().zip(&mut self.least) {
                *key = outside::<T>(least);
            }
        }
    }

    #[inline(always)]
    fn nine(&mut self) {
        let keys: &[[T::Key; LANES]; 9] = self.keys.first_chunk().expect("a window of nine");
        for lane in 0..LANES {
            let mut window = [T::LEAST; 9];
            for place in 0..9 {
                window[place] = keys[place][lane];
            }
            self.medians[lane] = median_of_9(window, T::lower, T::upper);
        }
    }

    #[inline(always)]
    fn twenty_five(&mut self) {
        let keys: &[[T::Key; LANES]; 25] = self.keys.first_chunk().expect("a window of twenty-five");
        for lane in 0..LANES {
            let mut window = [T::LEAST; 25];
            for place in 0..25 {
                window[place] = keys[place][lane];
            }
            self.medians[lane] = median_of_25(window, T::lower, T::upper);
        }
    }

    /// The medians of a block, a window after another.
    fn select(&mut self, pool: &Pool, image: &[T], rows: &Range<usize>, block: &Block, to: &mut [T]) {
        for (lane, to) in to.iter_mut().enumerate() {
            let (window, channel) =
                ((block.first + lane) / pool.channels, (block.first + lane) % pool.channels);
            let mut nan = None;
            self.window.clear();
            for y in rows.clone() {
                for x in pool.columns_of(window) {
                    let element = image[(y * pool.width + x) * pool.channels + channel];
                    nan = nan.or(element.is_nan().then_some(element));
                    self.window.push(element.key());
                }
            }
            let middle = self.window.len() / 2;
            *to = nan.unwrap_or_else(|| T::of_key(*self.window.select_nth_unstable_by(middle, T::order).1));
        }
    }
}

/// What the next element outside of the image counts as.
#[inline(always)]
fn outside<T: Pooled>(least: &mut bool) -> T::Key {
    let key = if *least { T::LEAST } else { T::GREATEST };
    *least = !*least;
    key
}

/// Runs a network.
#[inline(always)]
fn exchange<T: Pooled>(network: &[Step], keys: &mut [[T::Key; LANES]]) {
    for step in network {
        let places = [usize::from(step.low), usize::from(step.high)];
        let Ok([low, high]) = keys.get_disjoint_mut(places) else {
            unreachable!("a step is of two places of a window");
        };
        match step.kept {
            Kept::Both => both::<T>(low, high),
            Kept::Lower => lower::<T>(low, high),
            Kept::Upper => upper::<T>(low, high),
        }
    }
}

#[inline(always)]
fn both<T: Pooled>(low: &mut [T::Key; LANES], high: &mut [T::Key; LANES]) {
    for lane in 0..LANES {
        let (a, b) = (low[lane], high[lane]);
        (low[lane], high[lane]) = (T::lower(a, b), T::upper(a, b));
    }
}

#[inline(always)]
fn lower<T: Pooled>(low: &mut [T::Key; LANES], high: &[T::Key; LANES]) {
    for lane in 0..LANES {
        low[lane] = T::lower(low[lane], high[lane]);
    }
}

#[inline(always)]
fn upper<T: Pooled>(low: &[T::Key; LANES], high: &mut [T::Key; LANES]) {
    for lane in 0..LANES {
        high[lane] = T::upper(low[lane], high[lane]);
    }
}

/// Where in its window each median of a block is: the first element that is it.
pub(crate) struct Places<T> {
    places: [u32; LANES],
    gathered: [T; LANES],
}

impl<T: Pooled> Places<T> {
    pub(crate) fn new() -> Places<T> {
        Places { places: [0; LANES], gathered: [T::zero(); LANES] }
    }

    /// Finds them; one is always there.
    #[inline(always)]
    pub(crate) fn find(
        &mut self,
        layout: &Layout<'_>,
        image: &[T],
        rows: &Range<usize>,
        block: &Block,
        medians: &[T],
    ) {
        // The last that is written is the first one in the window.
        for (i, y) in rows.clone().enumerate().rev() {
            for column in layout.columns.iter().rev() {
                let place = (i << 16 | column.j) as u32;
                let (lanes, elements) = layout.elements(image, block, y, column, &mut self.gathered);
                let medians = &medians[lanes.clone()];
                for ((to, &median), &element) in self.places[lanes].iter_mut().zip(medians).zip(elements) {
                    *to = if element.same(median) { place } else { *to };
                }
            }
        }
    }

    /// Calls `act` with each lane that no block before had, and the row and the element of the image that its median is.
    #[inline(always)]
    pub(crate) fn each(
        &self,
        layout: &Layout<'_>,
        rows: &Range<usize>,
        block: &Block,
        mut act: impl FnMut(usize, usize, usize),
    ) {
        for lane in block.skip..block.lanes {
            let place = self.places[lane] as usize;
            let y = rows.start + (place >> 16);
            act(lane, y, layout.element(block, lane, y, place & 0xFFFF));
        }
    }
}
