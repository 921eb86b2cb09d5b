//! Index spaces as kernels go over them.

use opsmith_core::space::IndexSpace;
use opsmith_core::{Result, ensure};

use crate::arguments::Structure;
use crate::call::{BLOCK, KernelCall};
use crate::view::Index;

/// The most dims that a kernel goes through.
const MAX_RANK: usize = 8;
/// The bytes that a thread reads or writes at once.
const ACCESS: usize = 16;
/// So many threads keep every card busy; where there are more, each has two accesses in flight.
const BUSY: usize = 1 << 18;

/// The indices that all counts fit, and places of so many operands, which are sums of those in each space and of `more`.
pub fn index_of(spaces: &[&IndexSpace], operands: usize, more: usize) -> Index {
    // A loop goes past the end by less than a step.
    let most = i32::MAX as usize - (1 << 16);
    let far = |operand: usize| spaces.iter().fold(more, |far, space| far.saturating_add(space.span(operand)));
    let fits =
        spaces.iter().all(|space| space.len() <= most) && (0..operands).all(|operand| far(operand) <= most);
    if fits { Index::Bits32 } else { Index::Bits64 }
}

/// How many elements kernels read and write at a time of tensors with elements of these sizes.
pub fn lanes_of(sizes: impl IntoIterator<Item = usize>) -> usize {
    ACCESS / sizes.into_iter().fold(1, usize::max).min(ACCESS)
}

/// So many lanes if elements of all operands lie side by side from each multiple of them on, aligned, and else 1. Of each operand it
/// takes the address and the size of an element; those of the space come first, and the others lie dense.
pub fn lanes_along(
    space: &IndexSpace,
    lanes: usize,
    operands: &[(*const u8, usize)],
    in_space: usize,
) -> usize {
    let last = space.dims().first().copied().unwrap_or(1);
    let is_multiple = |number: usize| number.is_multiple_of(lanes);
    let lies = |operand: usize| {
        let (address, size) = operands[operand];
        let strides = if operand < in_space { space.strides(operand) } else { &[1] };
        let is_aligned = || (address as usize).is_multiple_of((lanes * size).min(ACCESS));
        match strides.split_first() {
            None | Some((0, _)) => true,
            Some((1, rest)) => is_aligned() && rest.iter().all(|stride| is_multiple(stride.unsigned_abs())),
            Some(_) => false,
        }
    };
    let is_whole = space.dims().len() <= 1 || is_multiple(last);
    if is_whole && (0..operands.len()).all(lies) { lanes } else { 1 }
}

impl KernelCall<'_> {
    /// The structure `opsmith::Space` of so many operands, whose elements are read one at a time.
    pub fn space(self, space: &IndexSpace, operands: usize, index: Index) -> Self {
        self.space_in_packs(space, operands, index, 1)
    }

    /// The same, with elements read so many at a time, as [`lanes_along`] says.
    pub fn space_in_packs(self, space: &IndexSpace, operands: usize, index: Index, lanes: usize) -> Self {
        self.with(|arguments| {
            arguments.raw(&packed(space, operands, index, lanes)?);
            Ok(())
        })
    }

    /// As many blocks of threads as packs of so many elements take.
    pub fn for_packs(self, elements: usize, lanes: usize) -> Self {
        let threads = elements.div_ceil(lanes);
        self.for_each(if threads > BUSY { threads.div_ceil(2).next_multiple_of(BLOCK) } else { threads })
    }
}

/// The bytes of an `opsmith::Space`. An index space has the last dim first too.
fn packed(space: &IndexSpace, operands: usize, index: Index, lanes: usize) -> Result<Vec<u8>> {
    let rank = space.dims().len();
    ensure!(
        rank <= MAX_RANK,
        Unimplemented,
        "tensors that lie in {rank} dims have no CUDA kernel; make them contiguous"
    );
    let mut structure = Structure::new(index);
    structure.index(space.len() as i128)?.int(rank as i32).int(lanes as i32);
    for &dim in space.dims().iter().chain(std::iter::repeat(&1)).take(MAX_RANK) {
        structure.index(dim as i128)?;
    }
    for operand in 0..operands {
        // Of a dim of 0, which leads nowhere, frameworks leave anything.
        let strides = if space.is_empty() { &[] } else { space.strides(operand) };
        for &stride in strides.iter().chain(std::iter::repeat(&0)).take(MAX_RANK) {
            structure.index(stride as i128)?;
        }
    }
    Ok(structure.finish_without_address())
}

#[cfg(test)]
mod tests {
    use opsmith_core::space::Layout;

    use super::*;

    /// How many of 4 lanes there are for operands along a shape, from an address on.
    fn lanes(shape: &[usize], operands: &[&[isize]], address: usize) -> usize {
        let layouts: Vec<_> = operands.iter().map(|strides| Layout { shape, strides }).collect();
        let space = IndexSpace::new(shape, &layouts).unwrap();
        lanes_along(&space, 4, &vec![(address as *const u8, 4); operands.len() + 1], operands.len())
    }

    #[test]
    fn elements_side_by_side_are_read_at_once() {
        assert_eq!((lanes_of([1, 2]), lanes_of([4, 1, 8]), lanes_of([])), (8, 2, 16));
        assert_eq!(lanes(&[7, 9], &[&[9, 1]], 64), 4, "what is left of one dim is read one by one");
        assert_eq!(lanes(&[7, 8], &[&[8, 1], &[0, 1], &[1, 0], &[0, 0]], 64), 4);
        assert_eq!(lanes(&[7, 9], &[&[9, 1], &[0, 1]], 64), 1, "rows begin anywhere");
        assert_eq!(lanes(&[7, 8], &[&[9, 1]], 64), 1);
        assert_eq!(lanes(&[7, 8], &[&[12, 1]], 64), 4);
        assert_eq!(lanes(&[7, 8], &[&[1, 7]], 64), 1);
        assert_eq!(lanes(&[7, 8], &[&[-8, 1]], 64), 4);
        assert_eq!(lanes(&[8], &[&[-1]], 64), 1);
        assert_eq!(lanes(&[8], &[&[1]], 68), 1, "it is not aligned");
        assert_eq!(lanes(&[], &[&[]], 64), 4);
    }

    #[test]
    fn more_than_32_bits_hold_takes_64() {
        let space = |size, stride| {
            IndexSpace::new(&[size], &[Layout { shape: &[size], strides: &[stride] }]).unwrap()
        };
        assert_eq!(index_of(&[&space(1 << 30, 1)], 1, 0), Index::Bits32);
        assert_eq!(index_of(&[&space(1 << 30, 1)], 1, 1 << 30), Index::Bits64);
        assert_eq!(index_of(&[&space(3, 1 << 30), &space(3, 1)], 1, 0), Index::Bits64);
        assert_eq!(index_of(&[&space(1 << 31, 0)], 1, 0), Index::Bits64);
    }
}
