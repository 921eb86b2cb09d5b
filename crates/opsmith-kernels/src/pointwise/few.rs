//! Calls on few elements, whose time is what is around them: one block, no walk over dims, no threads.

use opsmith_body::{BLOCK, Block, Level};
use opsmith_core::{OpKernelContext, Result};
use smallvec::SmallVec;

use super::{Computation, Shapes};
use crate::arithmetic::{Arithmetic, Scratch};
use crate::kept::Presence;
use crate::stored::Stored;

/// The most inputs and outputs of such a call: their blocks are on the stack.
const MOST: (usize, usize) = (3, 2);

impl Computation {
    /// Computes a call whose elements all fit one block, where each input has as many, one after another, or a single one,
    /// and no output is a sum. Says whether it was such a call; nothing has been made if not.
    pub(super) fn few<T: Stored>(
        &self,
        context: &OpKernelContext<'_>,
        shapes: &Shapes<'_>,
        (given, arithmetic): (Presence, &Arithmetic),
    ) -> Result<bool> {
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        let len = count(&shapes.all);
        let (num_inputs, num_outputs) = arithmetic.counts();
        if len > BLOCK || num_inputs > MOST.0 || num_outputs > MOST.1 || !self.are_whole(shapes, given, len) {
            return Ok(false);
        }
        let level = Level::best();
        // Filled where they lie, and no more than there are: zeros take a small call some of its time.
        let mut inputs: SmallVec<[Block<T::Wide>; MOST.0]> = SmallVec::new();
        inputs.resize_with(num_inputs, Block::default);
        for (input, shape) in shapes.inputs.iter().enumerate() {
            let Some(view) = context.optional_input(input)? else { continue };
            if !view.is_contiguous() {
                return Ok(false);
            }
            let (elements, block) = (view.as_slice::<T>()?, &mut inputs[input]);
            T::widen_few(level, elements, block);
            if shape.map_or(0, count) == 1 {
                let number = block.0[0];
                block.0[..len].fill(number);
            }
        }
        let mut outputs: SmallVec<[Block<T::Wide>; MOST.1]> = SmallVec::new();
        outputs.resize_with(num_outputs, Block::default);
        let read: SmallVec<[&[T::Wide; BLOCK]; MOST.0]> = inputs.iter().map(|block| &block.0).collect();
        let mut scratch = Scratch::new();
        arithmetic.ready::<T::Wide>(0, &mut scratch).block(len, &read, &mut outputs);
        let wanted = (0..self.family.outputs.len()).filter(|output| given.is_wanted(*output));
        for (output, numbers) in wanted.zip(&outputs) {
            let shape = shapes.like(self.family.outputs[output].like).unwrap_or_default();
            T::narrow(level, &numbers.0, context.allocate_output(output, shape)?.as_slice_mut()?);
        }
        Ok(true)
    }

    /// Whether all wanted outputs have `len` elements, and each input that many or one.
    fn are_whole(&self, shapes: &Shapes<'_>, given: Presence, len: usize) -> bool {
        let count = |shape: &[usize]| shape.iter().product::<usize>();
        let inputs = shapes.inputs.iter().flatten().map(|shape| count(shape));
        let outputs = self.family.outputs.iter().enumerate().filter(|(output, _)| given.is_wanted(*output));
        let outputs = { outputs }.map(|(_, output)| shapes.like(output.like).map_or(len, count));
        inputs.clone().all(|own| own == len || own == 1) && { outputs }.all(|own| own == len)
    }
}
