//! Whole arrays as numbers that are computed with, and back: they are read many times, so they are converted once.

use std::any::TypeId;

use opsmith_body::{BLOCK, Block, Level};
use opsmith_core::{Compute, Result};

use super::shared::Shared;
use crate::stored::Stored;

/// Elements per unit of work.
const UNIT: usize = 64 * BLOCK;

/// The elements as numbers, where they lie if they are that.
///
/// # Errors
/// `ResourceExhausted` when there is no memory for a copy.
pub(crate) fn widened<'a, S: Stored>(cx: &Compute<'a>, from: &'a [S]) -> Result<&'a [S::Wide]> {
    if TypeId::of::<S>() == TypeId::of::<S::Wide>() {
        // SAFETY: the types are the same.
        return Ok(unsafe { std::slice::from_raw_parts(from.as_ptr().cast(), from.len()) });
    }
    let to = cx.temp::<S::Wide>(from.len())?;
    let shared = Shared::new(to);
    cx.parallel_for(from.len().div_ceil(UNIT), UNIT / 8, |units| {
        let (level, mut raw, mut wide) = (Level::best(), Block::<S>::default(), Block::default());
        for start in (units.start * UNIT..(units.end * UNIT).min(from.len())).step_by(BLOCK) {
            let count = BLOCK.min(from.len() - start);
            raw.0[..count].copy_from_slice(&from[start..start + count]);
            // SAFETY: there is a whole block at `raw`; units do not overlap.
            let (numbers, own) =
                unsafe { (&*S::widen(level, raw.0.as_ptr(), &mut wide), shared.slice(start, count)) };
            own.copy_from_slice(&numbers[..count]);
        }
    });
    Ok(to)
}

/// The memory of an output, as numbers if its elements are that.
pub(crate) enum Room<'a, S: Stored> {
    Wide(&'a mut [S::Wide]),
    Narrow(&'a mut [S]),
}

impl<'a, S: Stored> Room<'a, S> {
    pub(crate) fn new(elements: &'a mut [S]) -> Self {
        if TypeId::of::<S>() != TypeId::of::<S::Wide>() {
            return Room::Narrow(elements);
        }
        let (data, len) = (elements.as_mut_ptr(), elements.len());
        // SAFETY: the types are the same, and the borrow goes on with the new slice.
        Room::Wide(unsafe { std::slice::from_raw_parts_mut(data.cast(), len) })
    }

    /// Stores the numbers of an output, zeros if there are none.
    pub(crate) fn store(self, cx: &Compute<'_>, numbers: Option<&[S::Wide]>) {
        match (self, numbers) {
            (Room::Wide(room), Some(numbers)) => room.copy_from_slice(numbers),
            (Room::Wide(room), None) => room.fill(S::Wide::default()),
            (Room::Narrow(room), Some(numbers)) => narrow(cx, numbers, room),
            (Room::Narrow(room), None) => room.fill(S::default()),
        }
    }
}

fn narrow<S: Stored>(cx: &Compute<'_>, from: &[S::Wide], to: &mut [S]) {
    let shared = Shared::new(to);
    cx.parallel_for(from.len().div_ceil(UNIT), UNIT / 8, |units| {
        let (level, mut block) = (Level::best(), Block::<S::Wide>::default());
        for start in (units.start * UNIT..(units.end * UNIT).min(from.len())).step_by(BLOCK) {
            let count = BLOCK.min(from.len() - start);
            block.0[..count].copy_from_slice(&from[start..start + count]);
            // SAFETY: units do not overlap.
            S::narrow(level, &block.0, unsafe { shared.slice(start, count) });
        }
    });
}
