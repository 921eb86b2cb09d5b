//! The gradient of a body by dual numbers, as a body: what graphs' gradients are compared with.

#![allow(
    clippy::needless_range_loop,
    clippy::manual_map,
    reason = "no closures: only what is inlined, whatever happens, is compiled for the instruction set"
)]

use opsmith_body::{Body, Dual, Scalar};

/// The gradient of a body: from its inputs and the gradient of each output, the gradient of each input.
///
/// It computes with dual numbers of `N` derivatives; more inputs are taken `N` at a time. It is a body itself, so
/// its gradient is the second order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gradient<B, const IN: usize, const OUT: usize, const N: usize = 8>(pub(crate) B);

/// How many times `N` inputs there may be.
const CHUNKS: usize = 8;

impl<B, const IN: usize, const OUT: usize, const ALL: usize, const N: usize> Body<ALL, IN>
    for Gradient<B, IN, OUT, N>
where
    B: Body<IN, OUT>,
{
    #[inline(always)]
    fn eval<S: Scalar>(&self, all: [S; ALL]) -> [S; IN] {
        const {
            assert!(ALL == IN + OUT, "a gradient takes the inputs and a gradient of each output");
            assert!(IN <= N * CHUNKS, "there are more inputs than chunks of derivatives");
        }
        let mut gradients = [S::of(0.0); IN];
        // Written out, since which inputs are variables must be known when this is compiled.
        self.chunk::<S, ALL, 0>(&all, &mut gradients);
        self.chunk::<S, ALL, 1>(&all, &mut gradients);
        self.chunk::<S, ALL, 2>(&all, &mut gradients);
        self.chunk::<S, ALL, 3>(&all, &mut gradients);
        self.chunk::<S, ALL, 4>(&all, &mut gradients);
        self.chunk::<S, ALL, 5>(&all, &mut gradients);
        self.chunk::<S, ALL, 6>(&all, &mut gradients);
        self.chunk::<S, ALL, 7>(&all, &mut gradients);
        gradients
    }
}

impl<B, const IN: usize, const OUT: usize, const N: usize> Gradient<B, IN, OUT, N>
where
    B: Body<IN, OUT>,
{
    /// The gradients of the inputs from `CHUNK * N` on.
    #[inline(always)]
    fn chunk<S: Scalar, const ALL: usize, const CHUNK: usize>(
        &self,
        all: &[S; ALL],
        gradients: &mut [S; IN],
    ) {
        if const { CHUNK * N >= IN } {
            return;
        }
        let mut inputs = [Dual::<S, N>::constant(S::of(0.0)); IN];
        for k in 0..IN {
            inputs[k] = if k / N == CHUNK { Dual::variable(all[k], k % N) } else { Dual::constant(all[k]) };
        }
        let outputs = self.0.eval(inputs);
        for k in 0..IN {
            if k / N != CHUNK {
                continue;
            }
            let mut sum = None;
            for o in 0..OUT {
                if let Some(term) = outputs[o].weighted(k % N, all[IN + o]) {
                    sum = match sum {
                        Some(sum) => Some(sum + term),
                        None => Some(term),
                    };
                }
            }
            if let Some(sum) = sum {
                gradients[k] = sum;
            }
        }
    }
}
