//! The indices of a shape, in row-major order, and where each of some operands that broadcast to it has its element.

use std::ops::Range;

use smallvec::SmallVec;

/// Dims; no heap for the usual ranks.
pub(crate) type Dims = SmallVec<[usize; 6]>;
/// Strides in elements; no heap for the usual ranks.
pub(crate) type Strides = SmallVec<[isize; 6]>;

/// A shape with the strides of `N` operands, of as few dims as the strides allow.
pub(crate) struct Walk<const N: usize> {
    /// The last dim first; at least one.
    dims: Dims,
    /// The strides of each operand along each dim.
    strides: SmallVec<[[isize; N]; 6]>,
    len: usize,
}

impl<const N: usize> Walk<N> {
    /// The walk through `shape`, to which operands of these dims and strides broadcast. Nothing if one does not.
    pub(crate) fn new(shape: &[usize], operands: [(&[usize], &[isize]); N]) -> Option<Walk<N>> {
        let mut walk = Walk { dims: Dims::new(), strides: SmallVec::new(), len: shape.iter().product() };
        if operands.iter().any(|(own, _)| own.len() > shape.len()) {
            return None;
        }
        for back in 1..=shape.len() {
            let size = shape[shape.len() - back];
            let mut strides = [0; N];
            for (stride, (own, own_strides)) in strides.iter_mut().zip(operands) {
                let Some(at) = own.len().checked_sub(back) else { continue };
                match own[at] {
                    1 => {}
                    dim if dim == size => *stride = own_strides[at],
                    _ => return None,
                }
            }
            if size != 1 {
                walk.push(size, strides);
            }
        }
        if walk.dims.is_empty() {
            walk.push(1, [0; N]);
        }
        Some(walk)
    }

    /// Adds a dim before those that there are, as part of the first of them where all operands go on along it.
    fn push(&mut self, size: usize, strides: [isize; N]) {
        if let (Some(dim), Some(inner)) = (self.dims.last_mut(), self.strides.last())
            && inner.iter().zip(strides).all(|(&inner, next)| inner.checked_mul(*dim as isize) == Some(next))
        {
            *dim *= size;
            return;
        }
        self.dims.push(size);
        self.strides.push(strides);
    }

    /// How many indices there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The strides of the operands along a run.
    pub(crate) fn inner(&self) -> [isize; N] {
        self.strides[0]
    }

    /// Calls `act` for each run of indices in a range: with its first index, the operands' places there, and its length.
    pub(crate) fn runs(&self, range: Range<usize>, mut act: impl FnMut(usize, [isize; N], usize)) {
        let mut at = range.start;
        if range.is_empty() {
            return;
        }
        let mut coordinates = Dims::new();
        let mut rest = at;
        for &dim in &self.dims {
            coordinates.push(rest % dim);
            rest /= dim;
        }
        while at < range.end {
            let count = (self.dims[0] - coordinates[0]).min(range.end - at);
            let mut places = [0; N];
            for (&coordinate, strides) in coordinates.iter().zip(&self.strides) {
                for (place, stride) in places.iter_mut().zip(strides) {
                    *place += coordinate as isize * stride;
                }
            }
            act(at, places, count);
            at += count;
            coordinates[0] += count;
            for dim in 0..self.dims.len() - 1 {
                if coordinates[dim] < self.dims[dim] {
                    break;
                }
                coordinates[dim] = 0;
                coordinates[dim + 1] += 1;
            }
        }
    }
}

/// The shape that shapes broadcast to by NumPy's rules; nothing if they do not fit.
pub(crate) fn broadcast<'a>(shapes: impl IntoIterator<Item = &'a [usize]>) -> Option<Dims> {
    let mut all = Dims::new();
    for shape in shapes {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_its_places() {
        let (shape, strides) = ([2, 3, 4], [-1isize, 8, -2]);
        let walk = Walk::new(&shape, [(&shape, &strides), (&[3, 1], &[5, 9])]).unwrap();
        for range in [0..24, 5..17, 23..24, 7..7] {
            let mut found = Vec::new();
            walk.runs(range.clone(), |first, places, count| {
                for i in 0..count as isize {
                    let [x, y] = walk.inner();
                    found.push((first + i as usize, places[0] + i * x, places[1] + i * y));
                }
            });
            let expected: Vec<_> = range
                .map(|i| {
                    let (a, b, c) = ((i / 12) as isize, (i / 4 % 3) as isize, (i % 4) as isize);
                    (i, -a + 8 * b - 2 * c, 5 * b)
                })
                .collect();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn dims_are_one_where_no_operand_tells_them_apart() {
        let walk = Walk::new(&[4, 3, 2], [(&[4, 3, 2], &[6, 2, 1])]).unwrap();
        assert_eq!((walk.dims.as_slice(), walk.inner()), (&[24][..], [1]));
        assert!(Walk::new(&[2], [(&[3], &[1])]).is_none());
        assert_eq!(Walk::<1>::new(&[], [(&[], &[])]).unwrap().len(), 1);
    }

    #[test]
    fn shapes_broadcast_as_numpy_does() {
        let shape = |shapes: &[&[usize]]| broadcast(shapes.iter().copied()).map(|shape| shape.to_vec());
        assert_eq!(shape(&[&[3], &[2, 1], &[]]), Some(vec![2, 3]));
        assert_eq!(shape(&[&[0, 1], &[1, 4]]), Some(vec![0, 4]));
        assert_eq!(shape(&[&[0], &[3]]), None);
    }
}
