//! Gradients that read outputs: which ones that pays for, and what is left to compute.

use opsmith_body::{
    Axes, Axis, Each, Expr, Graph, Index, IndexExpr, Indexed, Rows, Scalar, Traced, compose, trace_over,
    trace_rows,
};

/// A reduction of one row, with an output of this kind.
fn of_row(kind: Axes, reduction: fn(Expr) -> Expr) -> Graph {
    trace_rows(&[("x", Axes::FIRST)], &[("y", kind)], |x| vec![reduction(x[0])])
}

/// A body of one number for each element.
fn of_element(body: fn(Expr) -> Expr) -> Graph {
    compose(1, 1, |x| vec![body(x[0])]).with_names(&["x"], &["y"])
}

fn softmax<R: Rows>(x: R::Each) -> R::Each {
    let e = (x - x.amax().detached()).exp();
    e / e.sum()
}

fn log_softmax<R: Rows>(x: R::Each) -> R::Each {
    let centred = x - x.amax().detached();
    centred - centred.exp().sum().log()
}

fn log_sum_exp<R: Rows>(x: R::Each) -> R::One {
    let largest = x.amax().detached();
    (x - largest).exp().sum().log() + largest
}

fn norm<R: Rows>(x: R::Each) -> R::One {
    (x * x).sum().sqrt()
}

/// The formula of the gradient that reads what pays.
fn read(graph: &Graph) -> String {
    graph.gradient_reading(&reads(graph)).formula()
}

fn reads(graph: &Graph) -> Vec<usize> {
    graph.worth_reading(&(0..graph.input_count()).collect::<Vec<_>>())
}

#[test]
fn rows_are_not_folded_again() {
    let of = |kind, reduction| read(&of_row(kind, reduction));
    assert_eq!(of(Axes::FIRST, softmax::<Traced>), "x_grad = y * (y_grad - sum(y * y_grad))");
    assert_eq!(of(Axes::FIRST, log_softmax::<Traced>), "x_grad = y_grad - sum(y_grad) * exp(y)");
    assert_eq!(of(Axes::NONE, log_sum_exp::<Traced>), "x_grad = y_grad * exp(x - y)");
    assert_eq!(of(Axes::NONE, norm::<Traced>), "x_grad = x * y_grad * 0.5 / y * 2");
}

#[test]
fn elements_are_read_in_the_place_of_the_input() {
    let of = |body| read(&of_element(body));
    assert_eq!(of(|x| x.exp()), "x_grad = y * y_grad");
    assert_eq!(of(|x| -x.exp()), "x_grad = y * y_grad");
    assert_eq!(of(|x| x.sqrt()), "x_grad = y_grad * 0.5 / y");
    assert_eq!(of(|x| x.tanh()), "x_grad = y_grad * (1 - y * y)");
    assert_eq!(of(|x| x.sigmoid()), "x_grad = y_grad * y * (1 - y)");
    let gradient = of_element(|x| x.exp()).gradient_reading(&[0]);
    assert!(!gradient.reads(0) && gradient.reads(1));
    assert_eq!(gradient.with_inputs(&[1, 2]).formula(), "x_grad = y * y_grad");
}

#[test]
fn what_does_not_pay_is_not_read() {
    assert!(reads(&of_element(|x| x.gelu())).is_empty());
    assert!(reads(&of_element(|x| x * x.sigmoid())).is_empty());
    // A root saves less than reading one array more takes.
    assert!(reads(&compose(2, 1, |x| vec![(x[0] * x[0] + x[1] * x[1]).sqrt()])).is_empty());
    assert!(reads(&compose(2, 1, |x| vec![x[0] / x[1]])).is_empty());
    let scaled = |x: Expr| {
        let centred = x - Each::mean(x);
        centred * (Each::mean(centred * centred) + 1e-5).rsqrt()
    };
    assert!(reads(&of_row(Axes::FIRST, scaled)).is_empty());
    // What was rounded is not what is compared.
    assert!(reads(&of_row(Axes::NONE, |x| Each::amax(x * x))).is_empty());
}

#[test]
fn bodies_over_axes_read_sums_and_logarithms() {
    let [_, j, k, c] = [0, 1, 2, 3].map(Axis::new);
    let [rows, others, pairs] = [[0, 2], [1, 2], [0, 1]].map(|axes| Axes::at(&axes));
    let names = ["i", "j", "k", "c"];
    let arguments = [("x", rows), ("y", others)];
    let distance = trace_over(&names, &arguments, &[("z", pairs)], |x| {
        vec![Indexed::sum((x[0] - x[1]) * (x[0] - x[1]), k).sqrt()]
    });
    assert!(!read(&distance).contains("sqrt"), "{}", read(&distance));
    let attention = trace_over(&names, &arguments, &[("z", rows), ("l", Axes::at(&[0]))], |x| {
        let fit = Indexed::sum(x[0] * x[1], k);
        let l = fit.log_sum_exp(j);
        vec![Indexed::sum((fit - l).exp() * x[1], j), l]
    });
    assert_eq!(reads(&attention), [1]);
    assert!(read(&attention).starts_with("t0 = exp(sum(x * y) - l)\n"), "{}", read(&attention));
    let arguments = [("x", Axes::at(&[0, 3])), ("label", Axes::at(&[0]))];
    let loss = trace_over(&names, &arguments, &[("y", Axes::at(&[0]))], |x| {
        let hit = Index::eq(<Expr as Indexed>::index(c), IndexExpr::new(x[1]));
        vec![x[0].log_sum_exp(c) - Indexed::sum(Expr::select(hit, x[0], Expr::of(0.0)), c)]
    });
    // What the label has may be infinite, and the loss then is, but the gradient is not NaN.
    assert!(reads(&loss).is_empty(), "{}", read(&loss));
}

#[test]
fn a_logarithm_with_terms_on_other_axes_is_not_read() {
    let (rows, numbers) = (Axes::at(&[0]), Axes::at(&[0, 1]));
    let sink = trace_over(&["i", "j"], &[("x", numbers), ("s", rows)], &[("y", numbers)], |x| {
        let s = x[1].exp() + Indexed::sum(x[0].exp(), Axis::new(1));
        vec![x[0] - s.log()]
    });
    let gradient = sink.gradient_reading(&[0]);
    assert_eq!(gradient.result_axes(), [numbers, rows]);
    let of_sink = gradient.with_outputs(&[1]).formula();
    assert!(!of_sink.contains("exp(s - x"), "{of_sink}");
}

#[test]
fn an_instance_reads_only_what_it_may() {
    // The same output for all of a row: its gradient is that of the row, so it is no number to read.
    let spread =
        trace_over(&["i", "j"], &[("x", Axes::at(&[0]))], &[("y", Axes::at(&[0, 1]))], |x| vec![x[0].exp()]);
    assert!(!spread.gradient_reading(&[0]).reads(1), "{}", spread.gradient_reading(&[0]).formula());
    // Rounded, it is not the largest number, and jumps elsewhere.
    for jump in [<Expr as Scalar>::floor, <Expr as Scalar>::sign] {
        let graph = compose(1, 1, |x| vec![(x[0].exp() * jump(x[0].exp())).exp()]).with_names(&["x"], &["y"]);
        let two = compose(1, 2, |x| vec![x[0].exp(), x[0].exp() * jump(x[0].exp())]);
        assert!(!two.gradient_reading(&[0]).reads(1), "{}", two.gradient_reading(&[0]).formula());
        assert!(graph.gradient_reading(&[0]).reads(1), "{}", graph.gradient_reading(&[0]).formula());
    }
    assert!(!of_row(Axes::NONE, |x| Each::amax(x * x)).gradient_reading(&[0]).reads(1));
}

#[test]
fn logarithms_beside_other_outputs_are_not_read() {
    let (row, i) = (Axes::at(&[0]), Axis::new(0));
    let penalised =
        trace_over(&["i"], &[("w", row), ("x", row)], &[("z", Axes::NONE), ("y", Axes::NONE)], |x| {
            let z = Indexed::sum(x[1] * x[1], i).sqrt();
            vec![z, Indexed::sum(x[0].exp(), i).log() + z]
        });
    let of_w = penalised.gradient_reading(&[0, 1]).with_outputs(&[0]).formula();
    assert!(!of_w.contains("exp(w - y"), "{of_w}");
    let (pairs, others) = (Axes::at(&[0, 1]), Axes::at(&[0, 2]));
    let given =
        trace_over(&["i", "j", "k"], &[("w", pairs), ("x", others)], &[("y", others), ("z", others)], |x| {
            let z = x[1].exp();
            vec![Indexed::sum(x[0].exp(), Axis::new(1)).log() + z, z]
        });
    assert_eq!(given.gradient_reading(&[0, 1]).result_axes(), [pairs, others]);
}

#[test]
fn logarithms_of_what_may_be_negative_are_not_read() {
    let i = Axis::new(0);
    let rest = |x: &[Expr]| vec![(Expr::of(2.0) - Indexed::sum(x[0].exp(), i)).log()];
    let weighted = |x: &[Expr]| vec![Indexed::sum(x[1] * x[0].exp(), i).log()];
    let rest = trace_over(&["i"], &[("x", Axes::at(&[0]))], &[("y", Axes::NONE)], rest);
    assert!(!rest.gradient_reading(&[0]).reads(1), "{}", rest.gradient_reading(&[0]).formula());
    let arguments = [("x", Axes::at(&[0])), ("w", Axes::at(&[0]))];
    let weighted = trace_over(&["i"], &arguments, &[("y", Axes::NONE)], weighted);
    assert!(!weighted.gradient_reading(&[0]).reads(2), "{}", weighted.gradient_reading(&[0]).formula());
}

/// The formula of the gradient that reads what pays, and how many folds are saved for it.
fn saved(graph: &Graph) -> (usize, String) {
    let outputs = reads(graph);
    let folds = graph.worth_saving(&(0..graph.input_count()).collect::<Vec<_>>(), &outputs);
    let axes: Vec<Axes> = folds.iter().map(|id| graph.axes_of(*id)).collect();
    let gradient = graph.gradient_reading(&outputs);
    let reading = graph.reading_folds(&gradient, &outputs, Some(&folds), &axes);
    let names: Vec<String> = (0..reading.input_count()).map(|input| format!("x{input}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (folds.len(), reading.with_names(&names, &["x_grad"]).formula())
}

#[test]
fn folds_that_would_be_folded_again_are_saved() {
    fn normalised<R: Rows>(x: R::Each) -> R::Each {
        let centred = x - x.mean();
        centred * (centred * centred).mean().rsqrt()
    }
    let (count, formula) = saved(&of_row(Axes::FIRST, normalised::<Traced>));
    assert_eq!(count, 2);
    assert!(!formula.contains("sum(x0)") && formula.contains("x1 / count"), "{formula}");
    // Outputs say all that is needed.
    assert_eq!(saved(&of_row(Axes::FIRST, softmax::<Traced>)).0, 0);
    assert_eq!(saved(&of_row(Axes::NONE, norm::<Traced>)).0, 0);
}

#[test]
fn what_is_compared_with_elements_is_not_saved() {
    fn largest<R: Rows>(x: R::Each) -> R::Each {
        let below = x - x.amax().detached();
        R::Each::select(below.ge(R::Each::of(0.0)), x * x, x)
    }
    assert_eq!(saved(&of_row(Axes::FIRST, largest::<Traced>)).0, 0);
    fn guarded<R: Rows>(x: R::Each) -> R::Each {
        let sum = (x * x).sum();
        x / R::One::select(sum.gt(R::One::of(0.0)), sum, R::One::of(1.0))
    }
    assert_eq!(saved(&of_row(Axes::FIRST, guarded::<Traced>)).0, 1);
}

/// A layer, whose numbers before its end may be said to be saved.
fn layer<S: Indexed>(x: S, w: S, save: fn(S) -> S) -> S {
    let gate = save((x * w).sum(Axis::new(1)));
    gate * gate.tanh()
}

#[test]
fn what_a_body_says_is_saved() {
    let (x, w, y) = (Axes::at(&[0, 1]), Axes::at(&[2, 1]), Axes::at(&[0, 2]));
    let of = |save: fn(Expr) -> Expr| {
        trace_over(&["b", "k", "s"], &[("x", x), ("w", w)], &[("y", y)], |n| vec![layer(n[0], n[1], save)])
    };
    let all = |graph: &Graph| graph.worth_saving(&[0, 1], &reads(graph));
    assert!(all(&of(|gate| gate)).is_empty(), "it is as large as the output");
    let graph = of(|gate| gate.saved());
    let saved = all(&graph);
    assert_eq!(saved.iter().map(|id| graph.axes_of(*id)).collect::<Vec<_>>(), [y]);
    let gradient = graph.gradient_reading(&reads(&graph));
    let reading = graph.reading_folds(&gradient, &reads(&graph), Some(&saved), &[y]);
    assert!(!reading.formula().contains("(x * w)"), "{}", reading.formula());
    // What no gradient reads is not saved, and neither are inputs.
    let linear = trace_over(&["b", "k"], &[("x", Axes::at(&[0, 1]))], &[("y", Axes::FIRST)], |n| {
        vec![Indexed::sum(n[0], Axis::new(1)).saved() * 2.0]
    });
    assert!(linear.worth_saving(&[0], &[]).is_empty());
    let inputs = trace_over(&["b"], &[("x", Axes::FIRST)], &[("y", Axes::FIRST)], |n| {
        let x = n[0].saved();
        vec![x * x.exp()]
    });
    assert!(inputs.worth_saving(&[0], &[]).is_empty());
}
