//! What a graph was cut into, for tensors of some sizes and strides.

use opsmith_body::code::{Held, Lies};
use opsmith_body::{Axes, Graph, Kind, Nests, Products};
use opsmith_core::{Compute, Result};

use super::axes::Lie;
use super::slices::Sliced;
use super::stages::{Shape, Stages, Way, held};
use super::{Argument, Placed, bytes, widened};
use crate::kept::Kept;
use crate::product::OF_A_PART;
use crate::stored::Stored;

pub(super) struct Cut {
    how: How,
    /// Whether it is of float32, of which the arguments have to be copied.
    pub(super) is_widened: bool,
}

enum How {
    Whole(Stages),
    Slices(Box<Sliced>),
}

impl Cut {
    /// Of a graph whose arguments lie so, the inputs first; `known` are nests that were made for other sizes, and the
    /// threads of `compute` make code.
    pub(super) fn new<T: Stored>(
        graph: Graph,
        (sizes, own): (&[usize], usize),
        (placed, lies): (&[Placed], &[Lie]),
        inputs: usize,
        (known, compute): (&Kept<Shape, Nests>, Option<&Compute<'_>>),
    ) -> Cut {
        if T::HELD != Held::Same && widened::pays(&graph, placed, lies, sizes) {
            let cut = Cut::new::<T::Wide>(graph, (sizes, own), (placed, lies), inputs, (known, compute));
            return Cut { is_widened: true, ..cut };
        }
        let given: Vec<Lies> = placed
            .iter()
            .zip(lies)
            .map(|(placed, lie)| {
                let held = if placed.data.is_null() { Held::Absent } else { held::<T>(placed.kind) };
                lie.held(held, bytes::<T>(placed.kind))
            })
            .collect();
        let dense: Vec<Option<Axes>> = placed.iter().zip(lies).map(dense).collect();
        let is_same = T::HELD == Held::Same;
        let how = match is_same.then(|| graph.in_slices(sizes, &dense)).flatten() {
            Some(slices) => {
                let given = (&given[..], inputs);
                How::Slices(Box::new(Sliced::new::<T>(slices, (sizes, own), given, (known, compute))))
            }
            None => {
                let products = is_same.then(|| graph.at_products(sizes, &dense)).flatten();
                let products = products.unwrap_or_else(|| Products::whole(graph));
                How::Whole(Stages::new::<T>(products, (sizes, own), (&given, inputs), (known, compute)))
            }
        };
        Cut { how, is_widened: false }
    }

    /// Computes the outputs, which come after all inputs; as machine code only if that is allowed.
    ///
    /// # Safety
    /// As [`Runner::run`](super::Runner::run), for arguments that lie as those that this was made for.
    pub(super) unsafe fn run<T: Stored>(
        &self,
        compute: &Compute<'_>,
        sizes: (&[usize], usize),
        arguments: (&[Argument], &[Lie]),
        inputs: usize,
        is_native: bool,
    ) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe {
            match &self.how {
                How::Whole(stages) => {
                    let way = Way { is_native, adds: None, of_a_part: OF_A_PART };
                    stages.run::<T>(compute, sizes, arguments, inputs, way)
                }
                How::Slices(sliced) => sliced.run::<T>(compute, sizes, arguments, inputs, is_native),
            }
        }
    }
}

/// The axes along which an argument is dense, if products can read and write it where it lies.
fn dense((placed, lie): (&Placed, &Lie)) -> Option<Axes> {
    let goes_on = lie.along.iter().all(|stride| *stride >= 0);
    let is_direct = placed.kind == Kind::Number && !placed.data.is_null() && goes_on;
    is_direct.then(|| lie.dense_along())
}

#[cfg(test)]
impl Cut {
    /// The nests of all stages, as machine code those that can be.
    pub(super) fn natives(&self) -> Vec<&Option<super::made::Native>> {
        match &self.how {
            How::Whole(stages) => stages.natives().collect(),
            How::Slices(sliced) => sliced.natives().collect(),
        }
    }

    /// Whether it is computed in slices.
    pub(super) fn is_sliced(&self) -> bool {
        matches!(self.how, How::Slices(_))
    }
}
