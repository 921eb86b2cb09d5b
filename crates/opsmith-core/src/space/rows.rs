//! Tensors beside each other of which some lack the dims of a row.

use crate::tensor::Extents;

/// A space some of whose dims are a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowSpace {
    /// For each dim, whether it is one of a row's.
    pub is_row: Vec<bool>,
}

impl RowSpace {
    /// The dims that a tensor of this rank has, which may lack those of a row: the last ones of those that there are; none if there
    /// are not so many.
    pub fn dims(&self, lacks_row: bool, rank: usize) -> Option<impl Iterator<Item = usize> + '_> {
        let own = (0..self.is_row.len()).filter(move |&dim| !(lacks_row && self.is_row[dim]));
        let skipped = own.clone().count().checked_sub(rank)?;
        Some(own.skip(skipped))
    }

    /// The shape that tensors broadcast to.
    pub fn broadcast<'a>(&self, tensors: impl Iterator<Item = (bool, &'a [usize])>) -> Option<Extents> {
        let mut all = Extents::from_elem(1, self.is_row.len());
        for (lacks_row, shape) in tensors {
            for (dim, &size) in self.dims(lacks_row, shape.len())?.zip(shape) {
                if all[dim] != size && size != 1 && std::mem::replace(&mut all[dim], size) != 1 {
                    return None;
                }
            }
        }
        Some(all)
    }
}
