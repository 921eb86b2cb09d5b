//! Arithmetic for elements that fit one block, at their addresses.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

use opsmith_body::code::Vectors;
use opsmith_body::{BLOCK, Block, Level};
use opsmith_core::kernel::SettledCall;
use opsmith_core::{Compute, Result};
use smallvec::SmallVec;

use super::{Arithmetic, Code, Scratch, Variant};
use crate::stored::Stored;

/// The most inputs and outputs of arithmetic for few elements, whose blocks are on the stack.
pub(crate) const MOST_FEW: (usize, usize) = (3, 2);

/// Arithmetic for elements that fit one block.
pub(crate) struct FewElements<T> {
    arithmetic: Arc<Arithmetic>,
    /// The inputs of which there is one number, or none, as bits.
    same: u64,
    len: usize,
    code: Code,
    elements: PhantomData<fn() -> T>,
}

impl<T: Stored> FewElements<T> {
    pub(crate) fn new(arithmetic: Arc<Arithmetic>, same: u64, len: usize) -> Self {
        let vectors = Vectors::best(size_of::<T::Wide>() == 8);
        let turn = if len > BLOCK / 2 { BLOCK } else { vectors.width() };
        let code = arithmetic.made(Variant { same, held: T::HELD, vectors, turn });
        FewElements { arithmetic, same, len, code, elements: PhantomData }
    }

    fn is_one(&self, input: usize) -> bool {
        self.same >> input & 1 == 1
    }

    /// Computes all outputs.
    ///
    /// # Safety
    /// There must be the elements of each input, or null where it is absent, and room for those of each output, which nobody else has.
    pub(crate) unsafe fn compute(&self, inputs: &[*const u8], outputs: &[*mut u8]) {
        let code = self.code.as_deref().and_then(Option::as_ref);
        let zero = T::default();
        let first = |data: *const u8| if data.is_null() { &raw const zero } else { data.cast::<T>() };
        let Some(made) = code else {
            // SAFETY: promised by the caller.
            return unsafe { self.interpret(inputs.iter().map(|data| first(*data)), outputs) };
        };
        let mut scratch = Scratch::new();
        made.prepare(&mut scratch, size_of::<T>());
        let (turn, len) = (made.variant.turn, self.len);
        // The code computes whole turns, for which blocks have room where tensors have not.
        let is_whole = len.is_multiple_of(turn);
        let (mut read, mut written) = (
            [const { MaybeUninit::<Block<T>>::uninit() }; MOST_FEW.0],
            [const { MaybeUninit::<Block<T>>::uninit() }; MOST_FEW.1],
        );
        let mut addresses = [0; MOST_FEW.0 + MOST_FEW.1];
        for (input, data) in inputs.iter().enumerate() {
            let from = first(*data);
            addresses[input] = from as u64;
            if !is_whole && !self.is_one(input) {
                let block = read[input].as_mut_ptr().cast::<T>();
                // SAFETY: promised by the caller; a block has whole turns, of which those that are begun are filled.
                unsafe {
                    block.copy_from_nonoverlapping(from, len);
                    block.add(len).write_bytes(0, len.next_multiple_of(turn) - len);
                }
                addresses[input] = block as u64;
            }
        }
        let rest = &mut addresses[inputs.len()..];
        for (output, data) in outputs.iter().enumerate() {
            let block = written[output].as_mut_ptr().cast::<T>();
            rest[output] = if is_whole { *data as u64 } else { block as u64 };
        }
        let all = &addresses[..inputs.len() + outputs.len()];
        // SAFETY: there are whole turns of each but of those that are one.
        unsafe { made.run(&mut scratch, len.div_ceil(turn), all.iter().copied()) };
        if is_whole {
            return;
        }
        for (output, data) in outputs.iter().enumerate() {
            // SAFETY: promised by the caller; the code has written as many.
            unsafe { data.cast::<T>().copy_from_nonoverlapping(written[output].as_ptr().cast(), len) };
        }
    }

    /// The same where there is no code.
    ///
    /// # Safety
    /// As [`compute`](Self::compute).
    unsafe fn interpret(&self, inputs: impl Iterator<Item = *const T>, outputs: &[*mut u8]) {
        let (level, len) = (Level::best(), self.len);
        let mut read: SmallVec<[Block<T::Wide>; 3]> = SmallVec::new();
        for (input, data) in inputs.enumerate() {
            let mut block = Block::default();
            let count = if self.is_one(input) { 1 } else { len };
            // SAFETY: promised by the caller.
            T::widen_few(level, unsafe { std::slice::from_raw_parts(data, count) }, &mut block);
            if count == 1 {
                block.0 = [block.0[0]; BLOCK];
            }
            read.push(block);
        }
        let mut written: SmallVec<[Block<T::Wide>; 2]> = SmallVec::new();
        written.resize_with(outputs.len(), Block::default);
        let blocks: SmallVec<[&[T::Wide; BLOCK]; 3]> = read.iter().map(|block| &block.0).collect();
        self.arithmetic.interpreted.eval(level, &blocks, &mut written);
        for (data, block) in outputs.iter().zip(&written) {
            // SAFETY: as above.
            T::narrow(level, &block.0, unsafe { std::slice::from_raw_parts_mut(data.cast(), len) });
        }
    }
}

// SAFETY: it reads and writes elements of the tensors that it is given.
unsafe impl<T: Stored> SettledCall for FewElements<T> {
    unsafe fn run(&self, _: &Compute<'_>, inputs: &[*const u8], outputs: &[*mut u8]) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.compute(inputs, outputs) };
        Ok(())
    }
}
