//! Calls on few elements, whose time is what is around them: one block, no walk over dims, no threads.

use std::sync::Arc;

use opsmith_body::BLOCK;
use opsmith_core::kernel::{Rest, Settled};
use opsmith_core::tensor::checked_num_elements;
use opsmith_core::{OpKernelContext, Result};
use smallvec::SmallVec;

use super::{Computation, Shapes};
use crate::arithmetic::{Arithmetic, FewElements, MOST_FEW};
use crate::kept::{Presence, bits};
use crate::stored::Stored;

impl Computation {
    /// Computes a call on few elements. Says whether it was such a call; nothing has been made if not.
    pub(super) fn few<T: Stored>(
        &self,
        context: &OpKernelContext<'_>,
        shapes: &Shapes<'_>,
        (given, arithmetic): (Presence, &Arc<Arithmetic>),
    ) -> Result<bool> {
        let Some(elements) = self.few_elements::<T>(shapes, given, arithmetic) else { return Ok(false) };
        let mut inputs: SmallVec<[*const u8; 4]> = SmallVec::new();
        for input in 0..shapes.inputs.len() {
            let view = context.optional_input(input)?;
            if view.is_some_and(|view| !view.is_contiguous()) {
                return Ok(false);
            }
            inputs.push(view.map_or(std::ptr::null(), |view| view.data_ptr()));
        }
        let mut outputs: SmallVec<[*mut u8; 2]> = SmallVec::new();
        for (output, shape) in self.made(shapes, given) {
            outputs.push(context.allocate_output(output, shape)?.data_ptr());
        }
        // SAFETY: these are the call's tensors, dense, of shapes that fit.
        unsafe { elements.compute(&inputs, &outputs) };
        Ok(true)
    }

    /// What is left to do of calls of these shapes, if they are on few elements.
    pub(super) fn settled<T: Stored>(
        &self,
        shapes: &Shapes<'_>,
        (given, arithmetic): (Presence, &Arc<Arithmetic>),
    ) -> Option<Settled> {
        let elements = self.few_elements::<T>(shapes, given, arithmetic)?;
        let outputs = self.made(shapes, given).map(|(output, shape)| (output, shape.into())).collect();
        Some(Settled { outputs, rest: Rest::Call(Box::new(elements)) })
    }

    /// The outputs that are wanted, and their shapes.
    fn made<'a>(
        &'a self,
        shapes: &'a Shapes<'_>,
        given: Presence,
    ) -> impl Iterator<Item = (usize, &'a [usize])> {
        let wanted =
            self.family.outputs.iter().enumerate().filter(move |(output, _)| given.is_wanted(*output));
        wanted.map(|(output, argument)| (output, shapes.like(argument.like).unwrap_or_default()))
    }

    /// What computes a call whose elements all fit one block, where each input has as many, one after another, or a single one, and no output
    /// is a sum.
    fn few_elements<T: Stored>(
        &self,
        shapes: &Shapes<'_>,
        given: Presence,
        arithmetic: &Arc<Arithmetic>,
    ) -> Option<FewElements<T>> {
        let count = |shape: &[usize]| checked_num_elements(shape).unwrap_or(usize::MAX);
        let len = count(&shapes.all);
        let (inputs, outputs) = arithmetic.counts();
        if given.wanted == 0 || len == 0 || len > BLOCK || inputs > MOST_FEW.0 || outputs > MOST_FEW.1 {
            return None;
        }
        // One that is absent is read nowhere.
        let is_one = |shape: &Option<&[usize]>| shape.is_none_or(|shape| count(shape) == 1);
        let are_inputs = shapes.inputs.iter().all(|shape| is_one(shape) || shape.map(count) == Some(len));
        if !are_inputs || self.made(shapes, given).any(|(_, shape)| count(shape) != len) {
            return None;
        }
        let same = bits((0..shapes.inputs.len()).filter(|input| is_one(&shapes.inputs[*input])));
        Some(FewElements::new(arithmetic.clone(), same, len))
    }
}
