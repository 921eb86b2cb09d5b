//! Graphs as authors write them: nearest rows, attention, folds within folds along one axis.

use opsmith_body::{Axes, Axis, Expr, Index, Indexed, Kind, Scalar, trace_over};

use super::graphs::{Made, NAMES, Random};

/// One of them, over three axes at least.
pub(super) fn graph(random: &mut Random, sizes: &[usize]) -> Made {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, random.below(index + 1));
    }
    let [i, j, k] = [order[0], order[1], order[2]].map(Axis::new);
    match random.below(4) {
        0 | 1 => nearest(random, sizes, [i, j, k]),
        2 => attention(random, sizes, [i, j, k]),
        _ => within(random, sizes, [i, j, k]),
    }
}

fn made(
    sizes: &[usize],
    inputs: &[Axes],
    output: Axes,
    is_exact: bool,
    body: impl FnOnce(&[Expr]) -> Expr,
) -> Made {
    let given: Vec<(&str, Axes)> = ["a", "b", "c", "d"].into_iter().zip(inputs.iter().copied()).collect();
    let graph = trace_over(&NAMES[..sizes.len()], &given, &[("y", output)], |x| vec![body(x)]);
    let number = |axes: &Axes| (*axes, Kind::Number);
    Made { graph, inputs: inputs.iter().map(number).collect(), outputs: vec![number(&output)], is_exact }
}

/// What is made of the nearest of the rows `j`: it is found again by its distance, which must be the same each time.
fn nearest(random: &mut Random, sizes: &[usize], [i, j, k]: [Axis; 3]) -> Made {
    let inputs = [Axes::of(i).with(k), Axes::of(j).with(k), Axes::of(j)];
    let which = random.below(5);
    made(sizes, &inputs, Axes::of(i), false, |x| {
        let (difference, scale) = (x[0] - x[1], Expr::of(1.0 / (1.0 + sizes[k.index()] as f64)));
        let distance = match which {
            0 => difference.abs().sum(k),
            1 => (difference * difference).sum(k).sqrt() + x[2],
            _ => (difference * difference).sum(k),
        };
        let is_it = Scalar::eq(distance, distance.amin(j));
        let zero = Expr::of(0.0);
        match which {
            0 | 1 => distance.amin(j) * scale,
            2 => distance.argmin(j).number(),
            3 => Expr::select(is_it, (x[0] * x[1]).sum(k) * scale, zero).sum(j),
            _ => Expr::select(is_it, (x[0] * x[1]).sin().sum(k) * (x[0] + x[1]).amax(k), zero).sum(j) * scale,
        }
    })
}

fn attention(random: &mut Random, sizes: &[usize], [i, j, k]: [Axis; 3]) -> Made {
    let inputs = [Axes::of(i).with(k), Axes::of(j).with(k), Axes::of(j).with(k)];
    let (is_masked, has_rows) = (random.one_in(2), random.one_in(2));
    made(sizes, &inputs, Axes::of(i).with(k), false, |x| {
        let scale = Expr::of(1.0 / (1.0 + sizes[k.index()] as f64).sqrt());
        let mut score = (x[0] * x[1]).sum(k) * scale;
        if is_masked {
            let is_later = Index::lt(Expr::index(i), Expr::index(j));
            score = Expr::select(is_later, Expr::of(-1e4), score);
        }
        let weight = (score - score.log_sum_exp(j)).exp();
        let mixed = (weight * x[2]).sum(j);
        if has_rows { mixed - mixed.mean(k) } else { mixed }
    })
}

/// The gradient of attention, whose scores are summed along either axis.
pub(super) fn attention_gradient(random: &mut Random, sizes: &[usize]) -> Made {
    let [i, j, k] = [0, 1, 2].map(Axis::new);
    let inputs = [("q", Axes::of(i).with(k)), ("k", Axes::of(j).with(k)), ("v", Axes::of(j).with(k))];
    let masks = [("length", Axes::NONE), ("bias", [Axes::NONE, Axes::of(j), Axes::of(i)][random.below(3)])];
    let given = [&inputs[..], &masks].concat();
    let (is_masked, is_causal) = (random.one_in(2), random.one_in(3));
    let size = |axis: Axis| sizes[axis.index()] as f64;
    let graph = trace_over(&NAMES[..3], &given, &[("y", Axes::of(i).with(k))], |x| {
        let mut score = (x[0] * x[1]).sum(k) * Expr::count(k).rsqrt() + x[4].detached();
        let last = Expr::of(size(j) / 2.0) + x[3];
        let is_seen = Scalar::lt(Expr::index(j).number(), last);
        let is_before = Index::le(Expr::index(j), Expr::index(i));
        let least = Expr::of(f64::NEG_INFINITY);
        if is_masked {
            score = Expr::select(is_seen, score, least);
        }
        if is_causal {
            score = Expr::select(is_before, score, least);
        }
        let weight = (score - score.amax(j).detached()).exp();
        let mean = (weight * x[2]).sum(j) / weight.sum(j);
        vec![Expr::select(Scalar::gt(last, Expr::of(0.0)), mean, Expr::of(0.0))]
    });
    let graph = graph.gradient();
    let number = |axes: Axes| (axes, Kind::Number);
    let (inputs, outputs) =
        (graph.input_axes().map(number).collect(), graph.output_axes().map(number).collect());
    Made { graph, inputs, outputs, is_exact: false }
}

/// A fold along an axis of what lies along it, where that is gone along outside too.
fn within(random: &mut Random, sizes: &[usize], [i, j, k]: [Axis; 3]) -> Made {
    let inputs = [Axes::of(i), Axes::of(j), Axes::of(k)];
    let (op, is_sum) = (random.below(4), random.one_in(2));
    made(sizes, &inputs, Axes::of(i), false, |x| {
        let term = x[0] + x[1] * x[2];
        let size = |axis: Axis| 1.0 + sizes[axis.index()] as f64;
        let inner = match op {
            0 => term.amax(i),
            1 => term.exp().sum(i) * Expr::of(1.0 / size(i)),
            2 => term.amin(i) - term.cos().sum(i) * Expr::of(1.0 / size(i)),
            _ => term.argmax(i).number() * Expr::of(1.0 / size(i)),
        };
        let all = inner * (x[0] - Expr::index(i).number() * Expr::of(1.0 / size(i)));
        if is_sum {
            all.sum(j).sum(k) * Expr::of(1.0 / (size(j) * size(k)))
        } else {
            all.sum(j).amax(k) * Expr::of(1.0 / size(j))
        }
    })
}
