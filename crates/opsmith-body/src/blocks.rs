//! Bodies whose type is forgotten: what loops over tensors are written against, once for all bodies.

use crate::body::{BLOCK, Block, Body, block};
use crate::element::Element;
use crate::isa::{Isa, Kernel, Level, dispatch_at};

/// A body as the loops over tensors call it: so many inputs and outputs, [`BLOCK`] elements at a time.
///
/// One call through the table of a `dyn Blocks` computes 128 elements, so it costs nothing that can be measured, and
/// what walks over dims and strides is compiled once instead of once for each body. Half-precision elements are
/// converted to float32 while they are gathered, and back while they are scattered.
pub trait Blocks: Send + Sync {
    /// How many inputs there are.
    fn inputs(&self) -> usize;
    /// How many outputs there are.
    fn outputs(&self) -> usize;
    /// Computes a block in float32.
    ///
    /// # Panics
    /// If there are more or fewer slices than inputs and outputs.
    fn eval_f32(&self, level: Level, inputs: &[&[f32; BLOCK]], outputs: &mut [Block<f32>]);
    /// Computes a block in float64.
    ///
    /// # Panics
    /// As [`eval_f32`](Self::eval_f32).
    fn eval_f64(&self, level: Level, inputs: &[&[f64; BLOCK]], outputs: &mut [Block<f64>]);
}

/// A [`Body`] as [`Blocks`], compiled for every instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Compiled<B, const IN: usize, const OUT: usize>(pub B);

impl<B: Body<IN, OUT> + Send + Sync, const IN: usize, const OUT: usize> Blocks for Compiled<B, IN, OUT> {
    fn inputs(&self) -> usize {
        IN
    }

    fn outputs(&self) -> usize {
        OUT
    }

    fn eval_f32(&self, level: Level, inputs: &[&[f32; BLOCK]], outputs: &mut [Block<f32>]) {
        eval(level, &self.0, inputs, outputs);
    }

    fn eval_f64(&self, level: Level, inputs: &[&[f64; BLOCK]], outputs: &mut [Block<f64>]) {
        eval(level, &self.0, inputs, outputs);
    }
}

fn eval<T: Element, B: Body<IN, OUT>, const IN: usize, const OUT: usize>(
    level: Level,
    body: &B,
    inputs: &[&[T; BLOCK]],
    outputs: &mut [Block<T>],
) {
    let inputs: [&[T; BLOCK]; IN] = inputs.try_into().expect("a slice for each input");
    let outputs: &mut [Block<T>; OUT] = outputs.try_into().expect("a block for each output");
    dispatch_at(level, OneBlock { body, inputs, outputs });
}

struct OneBlock<'a, B, T, const IN: usize, const OUT: usize> {
    body: &'a B,
    inputs: [&'a [T; BLOCK]; IN],
    outputs: &'a mut [Block<T>; OUT],
}

impl<T: Element, B: Body<IN, OUT>, const IN: usize, const OUT: usize> Kernel for OneBlock<'_, B, T, IN, OUT> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        block::<I, T, B, IN, OUT>(self.body, self.inputs, self.outputs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scalar::Scalar;

    struct Ratio;

    impl Body<2, 1> for Ratio {
        #[inline(always)]
        fn eval<S: Scalar>(&self, [x, y]: [S; 2]) -> [S; 1] {
            [x / y]
        }
    }

    #[test]
    fn a_block_is_computed_on_every_level() {
        let blocks: &dyn Blocks = &Compiled::<_, 2, 1>(Ratio);
        let (x, y) = ([6.0f32; BLOCK], [4.0; BLOCK]);
        for level in Level::available() {
            let mut z = [Block::default()];
            blocks.eval_f32(level, &[&x, &y], &mut z);
            assert_eq!(z[0].0, [1.5; BLOCK]);
        }
    }
}
