//! Rows at positions along a dim.

use opsmith::prelude::*;
use opsmith_core::kernel::SettledCall;

/// A position along a dim, from the start: that of element `at` of an input of positions, from `-dim` to `dim - 1`.
pub(super) fn position(name: &'static str, dim: usize, (at, index): (usize, i64)) -> Result<usize> {
    let from_start = if index < 0 { index.saturating_add_unsigned(dim as u64) } else { index };
    usize::try_from(from_start).ok().filter(|&index| index < dim).ok_or_else(|| {
        Error::out_of_range(format!(
            "`{name}` must be positions along a dim of {dim}, got {index} at element {at}"
        ))
        .naming(name)
    })
}

/// A gather of few rows of so many bytes, at `count` positions in each of some tables.
pub(super) struct FewRows {
    pub(super) tables: usize,
    pub(super) dim: usize,
    pub(super) bytes: usize,
    pub(super) count: usize,
    pub(super) index: DType,
}

// SAFETY: it reads rows at positions that it has checked, and writes the output's.
unsafe impl SettledCall for FewRows {
    unsafe fn run(&self, _: &Compute<'_>, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        let &FewRows { tables, dim, bytes, count, index } = self;
        for at in 0..count {
            // SAFETY: promised by the caller; there are so many positions.
            let position_at = unsafe {
                match index {
                    DType::Int32 => i64::from(*inputs[1].cast::<i32>().add(at)),
                    _ => *inputs[1].cast::<i64>().add(at),
                }
            };
            let row = position("indices", dim, (at, position_at))?;
            for table in 0..tables {
                // SAFETY: both rows are in their tensors, which are dense.
                unsafe {
                    let (from, to) = ((table * dim + row) * bytes, (table * count + at) * bytes);
                    outputs[0].add(to).copy_from_nonoverlapping(inputs[0].add(from), bytes);
                }
            }
        }
        Ok(())
    }
}
