//! One tensor, laid out in memory in every way in which a caller may lend it.

use opsmith_core::attr::TensorValue;
use opsmith_core::space::{self, row_major_strides};

use crate::wire::Laid;

/// How a tensor lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Row-major, without gaps.
    Dense,
    /// Column-major, as a transposed matrix lies.
    Transposed,
    /// Every other element of each dim of something larger.
    Sliced,
    /// Back to front in each dim.
    Reversed,
    /// The same memory for all indices of the first dim.
    Broadcast,
    /// Row-major, one byte off what the dtype is aligned to.
    Unaligned,
}

impl Layout {
    /// All of them, the plainest first.
    pub(crate) const ALL: [Layout; 6] = [
        Layout::Dense,
        Layout::Transposed,
        Layout::Sliced,
        Layout::Reversed,
        Layout::Broadcast,
        Layout::Unaligned,
    ];

    /// The value that the tensor has when it lies like this: as it was, but for what is broadcast.
    pub(crate) fn value(self, value: &TensorValue) -> TensorValue {
        let rows = match (self, value.shape.first()) {
            (Layout::Broadcast, Some(&rows)) if rows > 1 => rows,
            _ => return value.clone(),
        };
        let row = value.bytes.len() / rows;
        let strings = &value.strings[..value.strings.len() / rows];
        TensorValue {
            bytes: value.bytes[..row].repeat(rows),
            strings: strings.iter().cycle().take(strings.len() * rows).cloned().collect(),
            ..value.clone()
        }
    }

    /// The value, which is one that [`value`](Self::value) gave, in a buffer. What is between its elements is no element
    /// of it: a kernel that reads there is found out.
    pub(crate) fn lay_out(self, value: &TensorValue) -> Laid {
        let shape = &value.shape;
        let (strides, offset, elements) = self.strides(shape);
        let size = value.dtype.size();
        let is_text = value.dtype == opsmith_core::DType::String;
        let mut laid = Laid {
            dtype: value.dtype.name().to_owned(),
            shape: shape.clone(),
            offset,
            unaligned: self == Layout::Unaligned,
            changed: false,
            strings: if is_text { vec![b"outside".to_vec(); elements] } else { vec![] },
            buffer: if is_text { vec![] } else { gap(value, elements) },
            bytes: if is_text { 0 } else { elements * size },
            strides,
        };
        for (element, at) in positions(shape, &laid.strides, offset).into_iter().enumerate() {
            match value.strings.get(element) {
                Some(text) if is_text => laid.strings[at].clone_from(text),
                _ => laid.buffer[at * size..][..size].copy_from_slice(&value.bytes[element * size..][..size]),
            }
        }
        laid
    }

    /// The strides, the position of the first element, and how many elements the buffer has.
    pub(crate) fn strides(self, shape: &[usize]) -> (Vec<isize>, usize, usize) {
        let elements: usize = shape.iter().product();
        let dense = || row_major_strides(shape).to_vec();
        match self {
            Layout::Dense | Layout::Unaligned => (dense(), 0, elements),
            Layout::Transposed => {
                let reversed: Vec<usize> = shape.iter().rev().copied().collect();
                let strides = row_major_strides(&reversed);
                (strides.iter().rev().copied().collect(), 0, elements)
            }
            Layout::Sliced => {
                let larger: Vec<usize> = shape.iter().map(|dim| 2 * dim).collect();
                let strides: Vec<isize> =
                    row_major_strides(&larger).iter().map(|stride| 2 * stride).collect();
                let last = space::Layout { shape, strides: &strides }.span();
                // The buffer ends with the last element, so that what reads on finds out.
                (strides, 0, if elements == 0 { 0 } else { last + 1 })
            }
            Layout::Reversed => {
                let strides: Vec<isize> = dense().into_iter().map(|stride| -stride).collect();
                (strides, elements.saturating_sub(1), elements)
            }
            Layout::Broadcast => {
                let mut strides = dense();
                match (strides.first_mut(), shape.first()) {
                    (Some(first), Some(&rows)) if rows > 0 => {
                        *first = 0;
                        (strides, 0, elements / rows)
                    }
                    _ => (strides, 0, elements),
                }
            }
        }
    }
}

/// What lies where no element does: values that change any result, but are valid.
fn gap(value: &TensorValue, elements: usize) -> Vec<u8> {
    let byte = if value.dtype == opsmith_core::DType::Bool { 1 } else { 0x55 };
    vec![byte; elements * value.dtype.size()]
}

/// Where each element lies, in row-major order.
pub(crate) fn positions(shape: &[usize], strides: &[isize], offset: usize) -> Vec<usize> {
    let mut positions = vec![offset];
    for (dim, stride) in shape.iter().zip(strides) {
        let along = |at: usize| (0..*dim).map(move |i| at.wrapping_add_signed(i as isize * stride));
        positions = positions.into_iter().flat_map(along).collect();
    }
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(shape: &[usize]) -> TensorValue {
        let bytes = (0..shape.iter().product::<usize>()).map(|i| i as u8).collect();
        TensorValue { dtype: opsmith_core::DType::UInt8, shape: shape.to_vec(), bytes, strings: vec![] }
    }

    #[test]
    fn every_layout_holds_the_value() {
        for shape in [&[][..], &[0], &[3], &[2, 3], &[2, 0, 3], &[2, 3, 4], &[1, 1]] {
            for layout in Layout::ALL {
                let value = layout.value(&counted(shape));
                let laid = layout.lay_out(&value);
                let at = positions(shape, &laid.strides, laid.offset);
                let read: Vec<u8> = at.into_iter().map(|at| laid.buffer[at]).collect();
                assert_eq!(read, value.bytes, "{layout:?} of {shape:?}");
                assert_eq!(laid.bytes, laid.buffer.len());
            }
        }
        assert_eq!(Layout::Broadcast.value(&counted(&[2, 2])).bytes, [0, 1, 0, 1]);
        assert_eq!(
            Layout::Sliced.lay_out(&counted(&[2, 2])).buffer,
            [0, 85, 1, 85, 85, 85, 85, 85, 2, 85, 3]
        );
    }
}
