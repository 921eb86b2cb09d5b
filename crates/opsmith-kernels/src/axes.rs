//! The space that a loop goes through: all operands broadcast to one shape, with as few dims as their strides allow.

use opsmith_core::tensor::Extents;
use smallvec::SmallVec;

/// The strides of one operand, the last dim first.
pub(crate) type OperandStrides = SmallVec<[isize; 6]>;

/// The dims and strides of a tensor.
#[derive(Clone, Copy)]
pub struct Layout<'a> {
    pub(crate) shape: &'a [usize],
    pub(crate) strides: &'a [isize],
}

/// The shape that shapes broadcast to by NumPy's rules; nothing if they do not fit.
pub(crate) fn broadcast_shape<'a>(shapes: impl IntoIterator<Item = &'a [usize]>) -> Option<Extents> {
    let mut all = Extents::new();
    for shape in shapes {
        if all.is_empty() {
            all.extend_from_slice(shape);
            continue;
        }
        if shape.len() > all.len() {
            let missing = shape.len() - all.len();
            all.insert_many(0, std::iter::repeat_n(1, missing));
        }
        let first = all.len() - shape.len();
        for (own, &dim) in all[first..].iter_mut().zip(shape) {
            match (*own, dim) {
                (_, 1) => {}
                (1, _) => *own = dim,
                (a, b) if a == b => {}
                _ => return None,
            }
        }
    }
    Some(all)
}

/// How the elements of an operand lie along a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// One after another: the element at a linear index lies at that index.
    Dense,
    /// All are the same element.
    Same,
    /// Any other way.
    Strided,
}

/// All indices of a broadcast shape, in row-major order.
///
/// Dims that every operand goes through as if they were one are one.
#[derive(Debug)]
pub(crate) struct Space {
    /// The last dim first; at least one.
    dims: Extents,
    /// Of each operand.
    strides: SmallVec<[OperandStrides; 8]>,
    len: usize,
}

impl Space {
    /// The space of `shape`, to which the shapes of all operands broadcast. An operand with a dim that it lacks, or of
    /// which it has one element, stays where it is along it.
    pub(crate) fn new(shape: &[usize], operands: &[Layout<'_>]) -> Space {
        let mut space = Space {
            dims: Extents::new(),
            strides: operands.iter().map(|_| OperandStrides::new()).collect(),
            len: shape.iter().product(),
        };
        for dim in (0..shape.len()).rev() {
            let size = shape[dim];
            if size == 1 {
                continue;
            }
            let stride = |operand: &Layout<'_>| {
                let own = (dim + operand.shape.len()).checked_sub(shape.len());
                own.filter(|&own| operand.shape[own] != 1).map_or(0, |own| operand.strides[own])
            };
            let next: SmallVec<[isize; 8]> = operands.iter().map(stride).collect();
            space.push(size, &next);
        }
        if space.dims.is_empty() {
            space.push(1, &SmallVec::<[isize; 8]>::from_elem(0, operands.len()));
        }
        space
    }

    /// Adds a dim before those that there are, as part of the first of them where no operand tells them apart.
    fn push(&mut self, size: usize, strides: &[isize]) {
        let dim = self.dims.last().copied();
        let merges = |(own, &next): (&OperandStrides, &isize)| {
            let along = dim.zip(own.last());
            along.is_some_and(|(dim, &inner)| inner.checked_mul(dim as isize) == Some(next))
        };
        if let Some(last) = self.dims.last_mut()
            && self.strides.iter().zip(strides).all(merges)
        {
            *last *= size;
            return;
        }
        self.dims.push(size);
        for (own, &next) in self.strides.iter_mut().zip(strides) {
            own.push(next);
        }
    }

    /// How many indices there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The dims, the last one first.
    pub(crate) fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// The strides of an operand, the last dim first.
    pub(crate) fn strides(&self, operand: usize) -> &[isize] {
        &self.strides[operand]
    }

    /// How an operand's elements lie.
    pub(crate) fn order(&self, operand: usize) -> Order {
        let strides = self.strides(operand);
        if strides.iter().all(|&stride| stride == 0) {
            return if self.len == 1 { Order::Dense } else { Order::Same };
        }
        let mut expected = 1;
        for (&dim, &stride) in self.dims.iter().zip(strides) {
            if stride != expected {
                return Order::Strided;
            }
            expected *= dim as isize;
        }
        Order::Dense
    }

    /// The coordinates of a linear index.
    pub(crate) fn coordinates(&self, index: usize) -> Extents {
        let mut rest = index;
        self.dims
            .iter()
            .map(|&dim| {
                let along = rest % dim;
                rest /= dim;
                along
            })
            .collect()
    }

    /// Goes through `count` indices from some coordinates on in runs along the last dim: the run's position among them,
    /// its length, and the operand's place at its beginning.
    #[inline]
    pub(crate) fn runs(
        &self,
        operand: usize,
        from: &[usize],
        count: usize,
        mut run: impl FnMut(usize, usize, isize),
    ) {
        let strides = self.strides(operand);
        let place =
            |at: &[usize]| at.iter().zip(strides).map(|(&along, stride)| along as isize * stride).sum();
        let first = count.min(self.dims[0] - from[0]);
        run(0, first, place(from));
        let mut done = first;
        if done == count {
            return;
        }
        let mut at: SmallVec<[usize; 6]> = from.into();
        at[0] = 0;
        while done < count {
            for (along, &dim) in at.iter_mut().zip(&self.dims).skip(1) {
                *along += 1;
                if *along < dim {
                    break;
                }
                *along = 0;
            }
            let length = self.dims[0].min(count - done);
            run(done, length, place(&at));
            done += length;
        }
    }

    /// The first and the last place that an operand, whose strides are not negative, has among the indices from `begin`
    /// up to `end`; both may be further apart than need be.
    pub(crate) fn reach(&self, operand: usize, begin: usize, end: usize) -> (usize, usize) {
        let (first, last) = (self.coordinates(begin), self.coordinates(end - 1));
        let differs = (0..self.dims.len()).rev().find(|&dim| first[dim] != last[dim]);
        let (mut low, mut high) = (0, 0);
        for (dim, &stride) in self.strides(operand).iter().enumerate() {
            let stride = stride.unsigned_abs();
            let (from, to) = match differs {
                Some(outermost) if dim < outermost => (0, self.dims[dim] - 1),
                _ => (first[dim], last[dim]),
            };
            low += from * stride;
            high += to * stride;
        }
        (low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout<'a>(shape: &'a [usize], strides: &'a [isize]) -> Layout<'a> {
        Layout { shape, strides }
    }

    fn places(space: &Space, operand: usize, begin: usize, count: usize) -> Vec<isize> {
        let mut places = vec![0; count];
        space.runs(operand, &space.coordinates(begin), count, |position, length, place| {
            for index in 0..length {
                places[position + index] = place + index as isize * space.strides(operand)[0];
            }
        });
        places
    }

    #[test]
    fn shapes_broadcast_as_numpy_does() {
        let shape = |shapes: &[&[usize]]| broadcast_shape(shapes.iter().copied()).map(|shape| shape.to_vec());
        assert_eq!(shape(&[&[3], &[2, 1], &[]]), Some(vec![2, 3]));
        assert_eq!(shape(&[&[0, 1], &[1, 4]]), Some(vec![0, 4]));
        assert_eq!(shape(&[&[2], &[3]]), None);
        assert_eq!(shape(&[&[0], &[3]]), None);
        assert_eq!(shape(&[]), Some(vec![]));
    }

    #[test]
    fn dims_are_one_where_no_operand_tells_them_apart() {
        let space = Space::new(&[4, 3, 2], &[layout(&[4, 3, 2], &[6, 2, 1]), layout(&[3, 2], &[2, 1])]);
        assert_eq!(space.dims(), [6, 4]);
        assert_eq!((space.order(0), space.order(1)), (Order::Dense, Order::Strided));
        assert_eq!(places(&space, 1, 5, 3), [5, 0, 1]);
        let space = Space::new(&[4, 3, 2], &[layout(&[4, 3, 2], &[6, 2, 1]), layout(&[1, 1], &[7, 7])]);
        assert_eq!(space.dims(), [24]);
        assert_eq!(space.order(1), Order::Same);
    }

    #[test]
    fn every_index_has_its_place() {
        let (shape, strides) = ([2, 3, 4], [-1isize, 8, -2]);
        let column = layout(&[3, 1], &[5, 9]);
        let space = Space::new(&shape, &[layout(&shape, &strides), column]);
        let expected: Vec<isize> =
            (0..24).map(|i: isize| -(i / 12) + 8 * (i / 4 % 3) - 2 * (i % 4)).collect();
        assert_eq!(places(&space, 0, 0, 24), expected);
        assert_eq!(places(&space, 0, 7, 11), expected[7..18]);
        let expected: Vec<isize> = (0..24).map(|i: isize| 5 * (i / 4 % 3)).collect();
        assert_eq!(places(&space, 1, 3, 20), expected[3..23]);
    }

    #[test]
    fn a_range_reaches_no_place_beyond() {
        let shape = [5, 4, 3];
        let full = row_major(&shape);
        for kept in [[5, 4, 3], [1, 4, 3], [5, 1, 3], [5, 4, 1], [1, 1, 3], [1, 1, 1]] {
            let own = row_major(&kept);
            let space = Space::new(&shape, &[layout(&shape, &full), layout(&kept, &own)]);
            for begin in 0..60 {
                for end in begin + 1..=60 {
                    let (low, high) = space.reach(1, begin, end);
                    let all = places(&space, 1, begin, end - begin);
                    assert!(all.iter().all(|&place| (low..=high).contains(&(place as usize))));
                    assert!(high < kept.iter().product());
                }
            }
        }
    }

    fn row_major(shape: &[usize]) -> Vec<isize> {
        opsmith_core::tensor::row_major_strides(shape).to_vec()
    }
}
