//! The order in which a tensor's dims lie in memory, where that is another than row-major.

use smallvec::SmallVec;

use super::{Extents, Strides, TensorView, is_row_major, row_major_strides};

/// An order of dims, from the one whose neighbours are furthest apart in memory to the one where they are nearest.
pub struct DimOrder {
    shape: Extents,
    strides: Strides,
    order: SmallVec<[usize; 6]>,
}

impl DimOrder {
    /// The order of the dims of a tensor that has elements, which lie without gaps and overlaps, but not row-major; none of others.
    pub fn of(tensor: &TensorView<'_>) -> Option<DimOrder> {
        let (shape, strides) = (tensor.shape(), tensor.strides());
        if is_row_major(shape, strides) || shape.contains(&0) {
            return None;
        }
        let mut order: SmallVec<[usize; 6]> = (0..shape.len()).collect();
        // Strides of dims of size 1 do not matter: these come first.
        order.sort_by_key(|&dim| (shape[dim] != 1, -strides[dim]));
        let mut expected = 1;
        for &dim in order.iter().rev().filter(|&&dim| shape[dim] != 1) {
            if strides[dim] != expected {
                return None;
            }
            expected *= shape[dim] as isize;
        }
        Some(DimOrder { shape: shape.into(), strides: strides.into(), order })
    }

    /// The shape of the tensor whose order it is.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Sizes or strides in this order. Where dims are missing in front, `missing` stands for them.
    fn permuted<T: Copy>(&self, own: &[T], missing: T) -> SmallVec<[T; 6]> {
        let before = self.order.len() - own.len();
        self.order.iter().map(|&dim| if dim < before { missing } else { own[dim - before] }).collect()
    }

    /// The same tensor, of at most this rank, with its dims in this order, put into `room`. Dims that it lacks in front have size 1.
    pub fn view<'a>(&self, tensor: &TensorView<'a>, room: &'a mut (Extents, Strides)) -> TensorView<'a> {
        *room = (self.permuted(tensor.shape(), 1), self.permuted(tensor.strides(), 0));
        TensorView { shape: &room.0, strides: &room.1, ..*tensor }
    }

    /// The shape and the strides of a tensor that is row-major and of shape `permuted` when its dims are in this order.
    pub fn restored(&self, permuted: &[usize]) -> (Extents, Strides) {
        let (mut shape, mut strides) = (self.shape.clone(), self.strides.clone());
        for ((&dim, &size), stride) in self.order.iter().zip(permuted).zip(row_major_strides(permuted)) {
            (shape[dim], strides[dim]) = (size, stride);
        }
        if shape == self.shape { (shape, self.strides.clone()) } else { (shape, strides) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Device};

    fn view<'a>(shape: &'a [usize], strides: &'a [isize]) -> TensorView<'a> {
        // SAFETY: nobody reads the elements.
        unsafe { TensorView::from_raw_parts(std::ptr::null(), DType::Float32, Device::CPU, shape, strides) }
    }

    #[test]
    fn dense_tensors_have_an_order() {
        let (shape, strides) = ([2, 3, 4, 5], [60, 1, 15, 3]);
        let order = DimOrder::of(&view(&shape, &strides)).unwrap();
        assert_eq!(order.permuted(&shape, 1)[..], [2, 4, 5, 3]);
        let (restored, their_strides) = order.restored(&[2, 4, 5, 3]);
        assert_eq!((&restored[..], &their_strides[..]), (&shape[..], &strides[..]));
        let (restored, their_strides) = order.restored(&[2, 1, 1, 3]);
        assert_eq!((&restored[..], &their_strides[..]), (&[2, 3, 1, 1][..], &[3, 1, 3, 3][..]));
        let mut room = Default::default();
        let permuted = order.view(&view(&[4, 1], &[2, 7]), &mut room);
        assert_eq!((permuted.shape(), permuted.strides()), (&[1, 4, 1, 1][..], &[0, 2, 7, 0][..]));
        // The strides of dims of size 1 are kept as they are.
        let (shape, strides) = ([1, 3, 4], [7, 1, 3]);
        let order = DimOrder::of(&view(&shape, &strides)).unwrap();
        assert_eq!(order.restored(&order.permuted(&shape, 1)).1[..], strides);
    }

    #[test]
    fn others_have_none() {
        let none =
            |shape: &[usize], strides: &[isize]| assert!(DimOrder::of(&view(shape, strides)).is_none());
        none(&[2, 3], &[3, 1]);
        none(&[], &[]);
        none(&[2, 0], &[1, 2]);
        none(&[2, 0, 4, 5], &[0, 1, 0, 0]);
        none(&[0, 3, 2], &[6, 1, 3]);
        none(&[2, 3], &[1, 4]);
        none(&[2, 3], &[1, 1]);
        none(&[2, 3], &[0, 1]);
        none(&[2, 3], &[-1, 2]);
    }
}
