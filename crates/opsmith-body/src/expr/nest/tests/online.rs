//! Sums of exponentials in the loop of the largest number.

use super::*;

impl Run<'_> {
    /// A card has no lanes.
    pub(super) fn online(&mut self, online: &Online) {
        let of = |run: &Self, register: usize| run.registers[register][0][0];
        match online {
            Online::Follow { number, shift, sums } => {
                let (number, own) = (of(self, *number), of(self, *shift));
                let follows = number <= own + Online::FOLLOWS;
                if !follows {
                    sums.iter().for_each(|sum| self.scale(sum.part, (own - number).exp()));
                    self.registers[*shift].fill([number; BLOCK]);
                }
            }
            Online::Settle { shift, to, sums } => {
                let by = (of(self, *shift) - of(self, *to)).exp();
                sums.iter().for_each(|sum| self.scale(*sum, by));
            }
            Online::Unless { finite, steps } => {
                if finite.iter().any(|register| !of(self, *register).is_finite()) {
                    steps.iter().for_each(|step| self.step(step));
                }
            }
        }
    }

    fn scale(&mut self, register: usize, by: f64) {
        let number = self.registers[register][0][0];
        self.registers[register].fill([number * by; BLOCK]);
    }
}

/// Softmax, its logarithm, and attention whose numbers are as far apart as there are.
fn exponentials() -> [Graph; 3] {
    let (i, j, k) = (Axis::new(0), Axis::new(1), Axis::new(2));
    let shifted = |x: Expr, axis: Axis| (x - x.amax(axis).detached()).exp();
    let softmax = trace_over(&["i", "j"], &[("x", Axes::at(&[0, 1]))], &[("z", Axes::at(&[0, 1]))], |x| {
        vec![shifted(x[0], j) / shifted(x[0], j).sum(j)]
    });
    let inputs = [("x", Axes::at(&[0, 2])), ("y", Axes::at(&[1, 2]))];
    let log_sum_exp = trace_over(&["i", "j", "k"], &inputs, &[("z", Axes::at(&[0, 1]))], |x| {
        vec![(x[0] + x[1]).log_sum_exp(k)]
    });
    let inputs = [inputs[0], inputs[1], ("v", Axes::at(&[1, 3]))];
    let attention = trace_over(&["i", "j", "k", "e"], &inputs, &[("z", Axes::at(&[0, 3]))], |x| {
        let fit = (x[0] * x[1]).sum(k);
        let fit = Expr::select(Expr::index(j).gt(Expr::index(i)), Expr::of(f64::NEG_INFINITY), fit);
        vec![(shifted(fit, j) * x[2]).sum(j) / shifted(fit, j).sum(j)]
    });
    [softmax, log_sum_exp, attention]
}

/// How many loops go along an axis, but for those of what is not finite.
fn loops_along(steps: &[Step], along: Axis) -> usize {
    let count = |step: &Step| match step {
        Step::Loop { axis, steps, .. } => usize::from(*axis == along) + loops_along(steps, along),
        _ => 0,
    };
    steps.iter().map(count).sum()
}

#[test]
fn a_card_sums_exponentials_in_the_loop_that_looks_for_the_largest_number() {
    let [softmax, log_sum_exp, attention] = exponentials();
    for dtype in [CudaType::Float, CudaType::Double] {
        let loops = |graph: &Graph, along: usize| -> Vec<usize> {
            let nests = Nests::for_card(graph, dtype, true);
            nests.nests.iter().map(|nest| loops_along(&nest.steps, Axis::new(along))).collect()
        };
        // The second one writes the output.
        assert_eq!(loops(&softmax, 1), [2]);
        assert_eq!(loops(&log_sum_exp, 2), [1]);
        // The second one is of tiles, of the positions of the values too.
        assert_eq!(loops(&attention, 1), [1, 1]);
        let nests = Nests::for_card(&log_sum_exp, dtype, true);
        assert_eq!(loops_along(&nests.tiles[0].as_ref().unwrap().steps, Axis::new(2)), 1);
    }
}

#[test]
fn sums_of_exponentials_are_what_they_are_in_two_loops() {
    let numbers = [0.0, -0.5, 3.0, 700.0, -700.0, 1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    for graph in exponentials() {
        for seed in 0..400 {
            let mut random = Random(seed);
            // Some have no infinite numbers, and some little else.
            let (first, last) = [(0, 3), (0, 5), (0, 7), (7, 10), (8, 9), (0, 10)][random.below(6)];
            let sizes = [[3, 5, 2, 2], [2, 4, 6, 1], [4, 1, 3, 2], [3, 0, 2, 1]][random.below(4)];
            let number = |_: &At| numbers[first + random.below(last - first)];
            let mut number = number;
            let inputs: Vec<Array> =
                graph.input_axes().map(|own| Array::new(own, &sizes, &mut number)).collect();
            let graph = graph.without_detached();
            let expected = plain(&graph, &sizes, &inputs);
            for many in [false, true] {
                let nests = Nests::for_card(&graph, CudaType::Double, many);
                for (own, other) in nested(&graph, &nests, &sizes, &inputs).iter().zip(&expected) {
                    for (a, b) in own.numbers.iter().zip(&other.numbers) {
                        let is_close =
                            a == b || (a - b).abs() <= 1e-12 * b.abs() || (a.is_nan() && b.is_nan());
                        assert!(is_close, "seed {seed}: {a} for {b}\n{graph:?}");
                    }
                }
            }
        }
    }
}
