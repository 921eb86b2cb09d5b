//! The windows of a row as lanes, and where their elements lie in the image.

use std::ops::Range;

use opsmith::memory;
use opsmith::prelude::*;

use crate::windows::Pool;

/// How many windows are done at a time.
pub(crate) const LANES: usize = 128;

/// Some windows of a row, and channels of them: elements of the output that lie side by side, a lane each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// The first lane's element in a row of the output.
    pub(crate) first: usize,
    pub(crate) lanes: usize,
    /// How many lanes the block before has as well, so that both are full.
    pub(crate) skip: usize,
}

impl Block {
    /// The block's part of a row of the output.
    #[inline(always)]
    pub(crate) fn range(&self) -> Range<usize> {
        self.first..self.first + self.lanes
    }
}

/// A column of windows.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// Its number.
    pub(crate) j: usize,
    /// The elements of a row of the output whose windows have it in the image.
    inside: Range<usize>,
}

/// The windows of a call, row by row.
pub(crate) struct Layout<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) blocks: Vec<Block>,
    /// The columns that any window has in the image.
    pub(crate) columns: Vec<Column>,
    /// For each element of a row of the output, the element of a row of the image that its window would begin with were there
    /// no padding; empty where that is the same.
    origins: Vec<usize>,
}

impl<'a> Layout<'a> {
    pub(crate) fn new(pool: &'a Pool) -> Result<Layout<'a>> {
        let ([_, width], [_, stride], channels) = (pool.windows.ksize, pool.windows.strides, pool.channels);
        let len = pool.row_len();
        let block = |first: usize| {
            let start = first.min(len.saturating_sub(LANES));
            Block { first: start, lanes: LANES.min(len), skip: first - start }
        };
        let column = |j: usize| {
            let windows = pool.windows_with(j);
            Column { j, inside: windows.start * channels..windows.end * channels }
        };
        let origin = |element: usize| element / channels * stride * channels + element % channels;
        let columns = (0..width).map(column).filter(|column| !column.inside.is_empty());
        let moved = if stride == 1 { 0 } else { len };
        Ok(Layout {
            pool,
            blocks: memory::collected((0..len).step_by(LANES).map(block), "the blocks of a row")?,
            columns: memory::collected(columns, "the columns of an image")?,
            origins: memory::collected((0..moved).map(origin), "the windows of a row")?,
        })
    }

    /// The lanes of a block whose windows have a column in the image, and their elements in it at row `y` of the image.
    #[inline(always)]
    pub(crate) fn elements<'b, T: Copy>(
        &self,
        image: &'b [T],
        block: &Block,
        y: usize,
        column: &Column,
        gathered: &'b mut [T; LANES],
    ) -> (Range<usize>, &'b [T]) {
        let lane = |element: usize| element.clamp(block.first, block.first + block.lanes) - block.first;
        let lanes = lane(column.inside.start)..lane(column.inside.end);
        if lanes.is_empty() {
            return (lanes, &[]);
        }
        if self.origins.is_empty() {
            let start = self.element(block, lanes.start, y, column.j);
            return (lanes.clone(), &image[start..start + lanes.len()]);
        }
        let origins = &self.origins[block.range()][lanes.clone()];
        let start = self.start(y, column.j);
        let gathered = &mut gathered[lanes.clone()];
        for (to, &origin) in gathered.iter_mut().zip(origins) {
            *to = image[start.wrapping_add(origin)];
        }
        (lanes, gathered)
    }

    /// The element of the image that a lane of a block has at row `y` of the image and column `j` of its window.
    #[inline(always)]
    pub(crate) fn element(&self, block: &Block, lane: usize, y: usize, j: usize) -> usize {
        let element = block.first + lane;
        let origin = if self.origins.is_empty() { element } else { self.origins[element] };
        self.start(y, j).wrapping_add(origin)
    }

    /// The element with origin 0 at row `y` of the image and column `j` of its window; below 0, modulo 2⁶⁴, where that is
    /// padding.
    #[inline(always)]
    fn start(&self, y: usize, j: usize) -> usize {
        let Pool { width, channels, left, .. } = *self.pool;
        ((y * width + j) * channels).wrapping_sub(left * channels)
    }
}
