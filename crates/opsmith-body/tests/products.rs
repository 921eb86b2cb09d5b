//! Where graphs are cut at products of matrices.

use opsmith_body::{Axes, Axis, Expr, Graph, Indexed, Part, Place, Scalar, trace_over};

const I: usize = 0;
const J: usize = 1;
const K: usize = 2;

/// A body of x on (i,k) and y on (j,k).
fn of(output: &[usize], body: fn(Expr, Expr) -> Expr) -> Graph {
    let arguments = [("x", Axes::at(&[I, K])), ("y", Axes::at(&[J, K]))];
    trace_over(&["i", "j", "k"], &arguments, &[("z", Axes::at(output))], |n| vec![body(n[0], n[1])])
}

/// What a graph is cut into, a letter for each part.
fn parts(graph: &Graph, sizes: [usize; 3], dense: [Option<usize>; 3]) -> String {
    let dense = dense.map(|axis| axis.map(|axis| Axes::at(&[axis])));
    let Some(products) = graph.at_products(&sizes, &dense) else { return "whole".into() };
    let letter = |part: &Part| match part {
        Part::Graph(..) => 'g',
        Part::Product(_) => 'p',
    };
    products.parts.iter().map(letter).collect()
}

/// Dense along i, j, and the last axis of the output.
const ALL: [Option<usize>; 3] = [Some(I), Some(J), Some(J)];
const SIZES: [usize; 3] = [100, 100, 100];

fn sum(x: Expr) -> Expr {
    x.sum(Axis::new(K))
}

#[test]
fn large_products_are_steps_of_their_own() {
    assert_eq!(parts(&of(&[I, J], |x, y| sum(x * y)), SIZES, ALL), "p");
    assert_eq!(parts(&of(&[I, J], |x, y| sum(x * y).tanh()), SIZES, ALL), "pg");
    assert_eq!(parts(&of(&[I, J], |x, y| sum(x.exp() * y).tanh()), SIZES, ALL), "gpg");
    // What cannot be read or written where it lies is copied.
    assert_eq!(parts(&of(&[I, J], |x, y| sum(x * y)), SIZES, [None, Some(J), Some(J)]), "gp");
    assert_eq!(parts(&of(&[I, J], |x, y| sum(x * y)), SIZES, [Some(I), Some(J), None]), "pg");
}

#[test]
fn a_product_of_products_waits_for_them() {
    let graph = of(&[I, K], |x, y| (sum(x * y).sigmoid() * y).sum(Axis::new(J)));
    let cut = graph.at_products(&SIZES, &ALL.map(|axis| axis.map(|axis| Axes::at(&[axis])))).unwrap();
    let places: Vec<Place> = cut
        .parts
        .iter()
        .flat_map(|part| match part {
            Part::Graph(_, places) => places.clone(),
            Part::Product(product) => vec![product.to],
        })
        .collect();
    assert_eq!(places.len(), 3);
    assert!(matches!(places[..], [Place::Temporary(_), Place::Temporary(_), Place::Output(0)]));
    assert_eq!(cut.temporaries, [Axes::at(&[I, J]); 2]);
}

#[test]
fn other_sums_are_not() {
    let whole = |output: &[usize], body: fn(Expr, Expr) -> Expr, sizes| {
        assert_eq!(parts(&of(output, body), sizes, ALL), "whole");
    };
    // Few numbers.
    whole(&[I, J], |x, y| sum(x * y), [20, 20, 20]);
    whole(&[I, J], |x, y| sum(x * y), [1000, 1000, 2]);
    // What is dense along what is summed is read as it lies, unless it is large.
    let along = [Some(K), Some(K), Some(J)];
    assert_eq!(parts(&of(&[I, J], |x, y| sum(x * y)), SIZES, along), "whole");
    assert_eq!(parts(&of(&[I, J], |x, y| sum(x * y)), [64, 1000, 500], along), "p");
    // No product.
    whole(&[I, J], |x, y| sum((x - y) * (x - y)), SIZES);
    whole(&[I], |x, y| sum(x * x) + sum(y * 0.0).sum(Axis::new(J)), SIZES);
    // Pairs that would be more than the arguments have, and are not the output.
    whole(&[I], |x, y| sum(x * y).amax(Axis::new(J)), [1000, 1000, 16]);
}
