//! Random bodies as machine code against the same interpreted, in every dtype and for any number of blocks.

use half::{bf16, f16};
use opsmith_body::{Expr, MaskExpr, Scalar, compose};

use super::*;

/// Numbers that are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) % end as u64) as usize
    }

    /// From −2 to 2.
    fn number(&mut self) -> f64 {
        self.below(1 << 24) as f64 / f64::from(1 << 22) - 2.0
    }
}

/// A graph of so many inputs.
fn graph(random: &mut Random, inputs: usize) -> Graph {
    let steps = 2 + random.below(14);
    let outputs = 1 + random.below(3);
    let graph = compose(inputs, outputs, |x| {
        let mut known: Vec<Expr> = x.to_vec();
        for _ in 0..steps {
            let mut any = || known[random.below(known.len())];
            let (a, b, c) = (any(), any(), any());
            let compared: MaskExpr = a.lt(b) | !b.le(c);
            let next = match random.below(21) {
                0 => a + b,
                1 => a - b,
                2 => a * b,
                3 => a / (b * b + 1.0),
                4 => a.min(b),
                5 => a.max(b),
                6 => (-a.abs()).exp(),
                7 => (a * a + 1.0).log(),
                8 => a.tanh(),
                9 => a.gelu(),
                10 => a.normal_cdf(),
                11 => (a * a + 0.5).rsqrt(),
                12 => Scalar::select(compared, b, c),
                13 => a * 0.75 + b,
                14 => a.floor() - b,
                15 => a.sin() * (b * 30.0).cos(),
                16 => (a * a + 0.5).pow(b),
                17 => a.gelu_tanh(),
                18 => a.atan2(b),
                19 => (a * a + 0.5).lgamma() - (b * b + 0.5).digamma(),
                _ => a.erf() + b.sigmoid(),
            };
            known.push(next);
        }
        known[known.len() - outputs..].to_vec()
    });
    if random.below(3) == 0 { graph.gradient() } else { graph }
}

/// Whether two results are the same but for fused multiplications, which may have been magnified.
fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs()))
}

/// The numbers of one block by the interpreter, and rounded to elements.
fn interpreted<T: Stored>(arithmetic: &Arithmetic, inputs: &[Vec<T>], block: usize) -> Vec<Vec<T>> {
    let wide: Vec<Block<T::Wide>> = inputs
        .iter()
        .map(|input| {
            let mut wide = Block::default();
            let own = if input.len() == 1 {
                vec![input[0]; BLOCK]
            } else {
                input[block * BLOCK..][..BLOCK].to_vec()
            };
            T::widen_few(Level::best(), &own, &mut wide);
            wide
        })
        .collect();
    let read: Vec<&[T::Wide; BLOCK]> = wide.iter().map(|wide| &wide.0).collect();
    let mut results = vec![Block::default(); arithmetic.counts().1];
    arithmetic.interpreted.eval(Level::best(), &read, &mut results);
    let narrowed = results.iter().map(|result| {
        let mut own = vec![T::default(); BLOCK];
        T::narrow(Level::best(), &result.0, &mut own);
        own
    });
    narrowed.collect()
}

fn check<T: Stored>(seed: u64, element: fn(f64) -> T, double: fn(T) -> f64, tolerance: f64) -> bool {
    let random = &mut Random(seed);
    let count = 1 + random.below(4);
    let graph = graph(random, count);
    let arithmetic = Arithmetic::new(&graph);
    let (inputs, outputs) = arithmetic.counts();
    let blocks = 1 + random.below(20);
    let same = random.below(1 << inputs) as u64 * u64::from(random.below(2) == 0);
    let numbers: Vec<Vec<T>> = (0..inputs)
        .map(|input| {
            let len = if same >> input & 1 == 1 { 1 } else { blocks * BLOCK };
            (0..len).map(|_| element(random.number())).collect()
        })
        .collect();
    // One block more, which is not to be written.
    let mut results = vec![vec![element(7.0); (blocks + 1) * BLOCK]; outputs];
    // A single output may lie where an input lies.
    let taken = numbers.iter().position(|own| own.len() > 1).filter(|_| outputs == 1 && random.below(2) == 0);
    if let Some(input) = taken {
        results[0][..blocks * BLOCK].copy_from_slice(&numbers[input]);
    }
    let written: Vec<*mut T> = results.iter_mut().map(|own| own.as_mut_ptr()).collect();
    let read = numbers.iter().enumerate().map(|(input, own)| Elements {
        first: if Some(input) == taken { written[0].cast_const() } else { own.as_ptr() },
        is_one: own.len() == 1 && same >> input & 1 == 1,
    });
    let read: Vec<Elements<T>> = read.collect();
    let mut scratch = Scratch::new();
    let mut ready = arithmetic.ready::<T>(same, &mut scratch);
    // SAFETY: there are so many elements of each.
    let is_done = unsafe { ready.elements(blocks * BLOCK, &read, &written) };
    for block in (0..blocks).filter(|_| is_done) {
        for (own, expected) in results.iter().zip(interpreted(&arithmetic, &numbers, block)) {
            for (got, expected) in own[block * BLOCK..].iter().zip(&expected) {
                let (got, expected) = (double(*got), double(*expected));
                assert!(
                    close(got, expected, tolerance),
                    "seed {seed}: {got} and {expected}\n{}",
                    graph.formula()
                );
            }
        }
    }
    assert!(results.iter().all(|own| own[blocks * BLOCK..].iter().all(|x| double(*x) == 7.0)), "seed {seed}");
    is_done
}

#[test]
fn code_computes_what_the_interpreter_does() {
    let (mut done, cases) = (0, 600);
    for seed in 0..cases {
        done += usize::from(match seed % 4 {
            0 => check::<f32>(seed, |x| x as f32, f64::from, 1e-4),
            1 => check::<f64>(seed, |x| x, |x| x, 1e-9),
            2 => check::<f16>(seed, f16::from_f64, f16::to_f64, 4e-3),
            _ => check::<bf16>(seed, bf16::from_f64, bf16::to_f64, 3e-2),
        });
    }
    if is_possible([Held::Half]) {
        assert!(done > cases as usize * 9 / 10, "{done} of {cases} are code");
    }
}

#[test]
fn parts_of_a_block_and_what_is_called() {
    let graph = compose(1, 1, |x| vec![(x[0] * 1e6).sin() * x[0].exp()]);
    let with_calls = Arithmetic::new(&graph);
    let graph = compose(1, 1, |x| vec![x[0].exp() - 1.0]);
    for arithmetic in [with_calls, Arithmetic::new(&graph)] {
        for count in [0, 1, 7, 8, 9, 64, 65, 128] {
            let (input, mut scratch) = ([0.5_f32; BLOCK], Scratch::new());
            let mut results = [Block::default()];
            arithmetic.ready::<f32>(0, &mut scratch).block(count, &[&input], &mut results);
            let mut expected = [Block::default()];
            arithmetic.interpreted.eval(Level::best(), &[&input], &mut expected);
            let is_close = |(a, b): (&f32, &f32)| close(f64::from(*a), f64::from(*b), 1e-6);
            assert!(results[0].0[..count].iter().zip(&expected[0].0).all(is_close), "{count}");
        }
    }
}
