//! Reductions: formulas, gradients of two orders against finite differences, ties and NaN.

mod support;

use opsmith_body::{
    Axes, Compare, CudaType, Each, Expr, F64, Fold, Graph, Id, Kind, Nests, Node, Plain, Rows, Scalar,
    Traced, trace_rows,
};
use support::Random;

type Row = Vec<f64>;

/// The outputs of a graph for one row; an input or output of which there is one for each row has one number.
fn eval(graph: &Graph, inputs: &[Row], length: usize) -> Vec<Row> {
    let mut values: Vec<Row> = Vec::new();
    let number = |x: f64| F64::<Plain>::new(x);
    for node in graph.nodes() {
        let at = |id: Id, k: usize| {
            let row = &values[id.index()];
            if row.len() == 1 { row[0] } else { row[k] }
        };
        let whole = |id: Id| (0..length).map(|k| at(id, k)).collect::<Row>();
        let each = |f: &dyn Fn(usize) -> f64| {
            let one = node.operands().all(|id| values[id.index()].len() == 1);
            (0..if one { 1 } else { length }).map(f).collect::<Row>()
        };
        let truth = |holds: bool| f64::from(u8::from(holds));
        values.push(match *node {
            Node::Input(position) => inputs[position as usize].clone(),
            Node::Attribute(position) => vec![graph.attributes()[position as usize].1],
            Node::Constant(bits) => vec![f64::from_bits(bits)],
            Node::Unary(op, a) => each(&|k| op.apply(number(at(a, k))).get()),
            Node::Binary(op, a, b) => each(&|k| op.apply(number(at(a, k)), number(at(b, k))).get()),
            Node::Select(m, a, b) => each(&|k| if at(m, k) != 0.0 { at(a, k) } else { at(b, k) }),
            Node::Compare(op, a, b) => each(&|k| {
                truth(match op {
                    Compare::Lt => at(a, k) < at(b, k),
                    Compare::Le => at(a, k) <= at(b, k),
                    Compare::Eq => at(a, k) == at(b, k),
                })
            }),
            Node::And(a, b) => each(&|k| at(a, k) * at(b, k)),
            Node::Or(a, b) => each(&|k| at(a, k).max(at(b, k))),
            Node::Not(a) => each(&|k| 1.0 - at(a, k)),
            Node::Detached(a) => each(&|k| at(a, k)),
            Node::Fold(op, _, a) => vec![fold(op, &whole(a))],
            Node::Count(_) => vec![length as f64],
            Node::Index(_) => (0..length).map(|i| i as f64).collect(),
        });
    }
    let outputs = graph.outputs().iter().zip(graph.output_axes());
    let value = |(id, kind): (&Id, Axes)| match (kind, &values[id.index()]) {
        (Axes::FIRST, one) if one.len() == 1 => vec![one[0]; length],
        (_, row) => row.clone(),
    };
    outputs.map(value).collect()
}

fn fold(op: Fold, row: &[f64]) -> f64 {
    let number = |x: f64| F64::<Plain>::new(x);
    row.iter().fold(op.identity(), |a, b| op.of_two(a, number(*b))).get()
}

fn softmax<R: Rows>(x: R::Each) -> R::Each {
    let e = (x - x.amax().detached()).exp();
    e / e.sum()
}

fn log_sum_exp<R: Rows>(x: R::Each) -> R::One {
    let largest = x.amax().detached();
    (x - largest).exp().sum().log() + largest
}

fn layer_norm<R: Rows>(x: R::Each, gamma: R::Each, beta: R::Each) -> R::Each {
    let centred = x - x.mean();
    let variance = (centred * centred).mean();
    centred * (variance + R::One::attr("epsilon", 1e-5)).rsqrt() * gamma + beta
}

/// Folds of folds, numbers of the row in conditions, outputs of both kinds, in an order that is not that of the passes.
fn mixed<R: Rows>(x: R::Each, w: R::One) -> (R::One, R::Each, R::Each, R::One) {
    let largest = (x * w).amax();
    let far = R::Each::select(x.lt(R::Each::of_row(w)), x * 2.0, largest - x);
    let smallest = (far * far).amin();
    (smallest + w, far / largest, R::Each::of_row(w), largest.tanh())
}

fn graphs() -> Vec<Graph> {
    let each = |name: &'static str| (name, Axes::FIRST);
    let one = |name: &'static str| (name, Axes::NONE);
    vec![
        trace_rows(&[each("x")], &[each("y")], |x| vec![softmax::<Traced>(x[0])]),
        trace_rows(&[each("x")], &[one("y")], |x| vec![log_sum_exp::<Traced>(x[0])]),
        trace_rows(&[each("x"), each("gamma"), each("beta")], &[each("y")], |x| {
            vec![layer_norm::<Traced>(x[0], x[1], x[2])]
        }),
        trace_rows(&[each("x"), one("w")], &[one("a"), each("b"), each("c"), one("d")], |x| {
            let (a, b, c, d) = mixed::<Traced>(x[0], x[1]);
            vec![a, b, c, d]
        }),
    ]
}

fn rows(graph: &Graph, length: usize, random: &mut Random) -> Vec<Row> {
    let count = |kind| if kind == Axes::NONE { 1 } else { length };
    graph.input_axes().map(|kind| (0..count(kind)).map(|_| random.between(0.2, 2.0)).collect()).collect()
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs()))
}

/// Compares the gradient with differences of the sum of the outputs, each times what its gradient is.
fn check_gradient(graph: &Graph, length: usize, random: &mut Random) {
    let gradient = graph.gradient();
    let inputs = rows(&gradient, length, random);
    let (own, weights) = inputs.split_at(graph.input_count());
    let weighted = |own: &[Row]| -> f64 {
        let outputs = eval(graph, own, length);
        outputs.iter().flatten().zip(weights.iter().flatten()).map(|(y, w)| y * w).sum()
    };
    let gradients = eval(&gradient, &inputs, length);
    for (input, row) in own.iter().enumerate() {
        for k in 0..row.len() {
            let moved = |by: f64| {
                let mut own = own.to_vec();
                own[input][k] += by;
                weighted(&own)
            };
            let h = 1e-4;
            let slope = (8.0 * (moved(h) - moved(-h)) - (moved(2.0 * h) - moved(-2.0 * h))) / (12.0 * h);
            let got = gradients[input][k];
            assert!(
                close(got, slope, 1e-6),
                "input {input} at {k}: {got} and {slope}\n{}",
                gradient.formula()
            );
        }
    }
}

#[test]
fn gradients_of_two_orders() {
    let mut random = Random(3);
    for graph in graphs() {
        for _ in 0..3 {
            check_gradient(&graph, 5, &mut random);
        }
        // What is a constant for derivatives is none for differences; softmax and the logarithm do not depend on it.
        check_gradient(&graph.gradient(), 4, &mut random);
    }
}

#[test]
fn gradients_that_read_outputs_are_the_same() {
    let mut random = Random(5);
    for graph in graphs() {
        let read: Vec<usize> = (0..graph.outputs().len()).collect();
        let (plain, reading) = (graph.gradient(), graph.gradient_reading(&read));
        let inputs = rows(&plain, 6, &mut random);
        let (own, weights) = inputs.split_at(graph.input_count());
        let all = [own, &eval(&graph, own, 6), weights].concat();
        let both = eval(&plain, &inputs, 6).into_iter().zip(eval(&reading, &all, 6));
        for (plain, reading) in both.flat_map(|(a, b)| a.into_iter().zip(b)) {
            assert!(
                close(plain, reading, 1e-12),
                "{plain} and {reading}\n{}",
                graph.gradient_reading(&read).formula()
            );
        }
    }
}

#[test]
fn formulas_have_folds() {
    let formulas: Vec<String> = graphs().iter().map(Graph::formula).collect();
    assert_eq!(formulas[0], "t0 = exp(x - detached(amax(x)))\ny = t0 / sum(t0)");
    assert_eq!(formulas[1], "t0 = detached(amax(x))\ny = t0 + log(sum(exp(x - t0)))");
    let norm = trace_rows(&[("x", Axes::FIRST)], &[("y", Axes::NONE)], |x| vec![(x[0] * x[0]).sum().sqrt()]);
    assert_eq!(norm.gradient().formula(), "x_grad = x * y_grad * 0.5 / sqrt(sum(x * x)) * 2");
}

#[test]
fn numbers_of_the_row_are_not_folded() {
    let graph = trace_rows(&[("w", Axes::NONE)], &[("y", Axes::NONE)], |w| {
        let each = <Expr as Each>::of_row(w[0]);
        vec![each.sum() + each.amax() + each.prod()]
    });
    assert_eq!(graph.formula(), "y = w + w * count + pow(w, count)");
    assert!(graph.nodes().iter().all(|node| !matches!(node, Node::Fold(..))));
}

#[test]
fn ties_share_the_gradient_and_nan_shares_it_by_all() {
    let graph = trace_rows(&[("x", Axes::FIRST)], &[("y", Axes::NONE)], |x| vec![x[0].amax()]);
    let gradient = |row: [f64; 4]| eval(&graph.gradient(), &[row.to_vec(), vec![6.0]], 4)[0].clone();
    assert_eq!(gradient([1.0, 3.0, 2.0, 3.0]), [0.0, 3.0, 0.0, 3.0]);
    assert_eq!(gradient([f64::INFINITY, 3.0, 2.0, 3.0]), [6.0, 0.0, 0.0, 0.0]);
    assert_eq!(gradient([1.0, f64::NAN, 2.0, 3.0]), [1.5; 4]);
    let smallest = trace_rows(&[("x", Axes::FIRST)], &[("y", Axes::NONE)], |x| vec![x[0].amin()]);
    let row = vec![f64::NEG_INFINITY, 3.0, f64::NEG_INFINITY];
    assert_eq!(eval(&smallest.gradient(), &[row, vec![6.0]], 3)[0], [3.0, 0.0, 3.0]);
}

#[test]
fn no_nan_comes_from_the_branch_not_taken() {
    // The square root's slope is infinite at 0, in the row's sum too.
    let graph = trace_rows(&[("x", Axes::FIRST), ("w", Axes::NONE)], &[("y", Axes::NONE)], |x| {
        let zero = Expr::of(0.0);
        let root = (x[0] * x[1]).sqrt();
        vec![Expr::select(x[0].gt(zero), root, zero).sum()]
    });
    let gradients = eval(&graph.gradient(), &[vec![0.0, 4.0, -1.0], vec![1.0], vec![1.0]], 3);
    assert_eq!(gradients, [vec![0.0, 0.25, 0.0], vec![1.0]]);
    // A row that takes it nowhere does not depend on the root of `w`, whose slope is infinite.
    let graph = trace_rows(&[("x", Axes::FIRST), ("w", Axes::NONE)], &[("y", Axes::NONE)], |x| {
        let zero = Expr::of(0.0);
        vec![Expr::select(x[0].gt(zero), x[0] * x[1].sqrt(), zero).sum()]
    });
    let gradient = graph.gradient();
    let at = |row: [f64; 2], w: f64| eval(&gradient, &[row.to_vec(), vec![w], vec![1.0]], 2)[1].clone();
    assert_eq!((at([-1.0, 0.0], 0.0), at([-1.0, 3.0], 0.25)), (vec![0.0], vec![3.0]));
    assert_eq!(at([-1.0, 3.0], 0.0), [f64::INFINITY]);
}

/// The derivatives of some order of a row's product: that of all numbers but the ones it is by, or 0 where it is twice by the same.
fn product_but(row: &[f64], by: &[usize]) -> f64 {
    let is_twice = by.iter().enumerate().any(|(place, one)| by[..place].contains(one));
    let others = (0..row.len()).filter(|place| !by.contains(place)).map(|place| row[place]);
    if is_twice { 0.0 } else { others.product() }
}

#[test]
fn the_gradient_of_a_product_is_right_where_numbers_are_zero() {
    let graph = trace_rows(&[("x", Axes::FIRST)], &[("y", Axes::NONE)], |x| vec![x[0].prod()]);
    assert_eq!(graph.formula(), "y = prod(x)");
    let (first, second) = (graph.gradient(), graph.gradient().gradient());
    let third = second.with_outputs(&[0]).gradient();
    let rows = [
        vec![3.0, -2.0, 0.5, 4.0],
        vec![3.0, 0.0, 0.5, 4.0],
        vec![0.0, -2.0, 0.0, 4.0],
        vec![-0.0, 0.0, 0.0, 4.0],
        vec![0.0],
        vec![],
    ];
    for row in rows {
        let length = row.len();
        assert_eq!(eval(&graph, std::slice::from_ref(&row), length)[0], [product_but(&row, &[])]);
        let along = |f: &dyn Fn(usize) -> f64| (0..length).map(f).collect::<Row>();
        let unit = |by: usize| along(&|k| f64::from(u8::from(k == by)));
        let gradient = &eval(&first, &[row.clone(), vec![2.0]], length)[0];
        assert_eq!(*gradient, along(&|k| 2.0 * product_but(&row, &[k])));
        for i in 0..length {
            let gradient = &eval(&second, &[row.clone(), vec![1.0], unit(i)], length)[0];
            assert!(
                gradient.iter().zip(along(&|j| product_but(&row, &[i, j]))).all(|(a, b)| close(*a, b, 1e-15))
            );
            // Of the third order, where at most one number is 0.
            for j in 0..if row.iter().filter(|x| **x == 0.0).count() < 2 { length } else { 0 } {
                let inputs = [row.clone(), vec![1.0], unit(i), unit(j)];
                let gradient = &eval(&third, &inputs, length)[0];
                let expected = along(&|k| product_but(&row, &[i, j, k]));
                assert!(gradient.iter().zip(expected).all(|(a, b)| close(*a, b, 1e-14)), "{row:?} {i} {j}");
            }
        }
    }
    let gradient = |row: [f64; 3]| eval(&first, &[row.to_vec(), vec![1.0]], 3)[0].clone();
    assert!(gradient([2.0, f64::NAN, 3.0]).iter().all(|x| x.is_nan()));
    let infinite = gradient([2.0, f64::INFINITY, 3.0]);
    assert_eq!((infinite[0], infinite[2], infinite[1].is_nan()), (f64::INFINITY, f64::INFINITY, true));
}

#[test]
#[should_panic(expected = "computed along its axes")]
fn a_graph_with_folds_is_not_computed_by_elements() {
    let _ = graphs()[0].eval(&[F64::<Plain>::new(1.0)]);
}

#[test]
fn cuda_sources_have_a_kernel_for_each_index() {
    for graph in graphs() {
        for dtype in CudaType::ALL {
            let gradient = graph.gradient();
            let numbers = |count| vec![Kind::Number; count];
            let kinds = (numbers(gradient.input_count()), numbers(gradient.outputs().len()));
            let source = gradient.nests_cuda_source("op", dtype, (&kinds.0, &kinds.1), 0, true);
            for kernel in ["op_0_32", "op_0_64", "op_0_rows_32", "op_0_rows_64"] {
                assert_eq!(source.matches(kernel).count(), 1, "{kernel}");
            }
        }
    }
    // A row is in one kernel, and nothing of it in memory.
    let softmax = &graphs()[0];
    let nests = Nests::for_card(softmax, CudaType::Float, true);
    assert_eq!((nests.nests.len(), nests.temporaries.len()), (1, 0));
    let numbers = [Kind::Number];
    let source = softmax.nests_cuda_source("softmax", CudaType::Float, (&numbers, &numbers), 0, true);
    for text in ["across<Max>", "across<Sum>", "expf(", "softmax_0_rows_32"] {
        assert!(source.contains(text), "{text} in\n{source}");
    }
}
