//! Graphs computed by blocks: what their nodes give one by one, on every instruction set.

mod support;

use opsmith_body::{BLOCK, Block, Body, F32, F64, Graph, Interpreted, Level, Plain, Scalar, trace};
use support::Random;
use support::tree::bodies;

/// The relative difference that fused multiplications make after some operations.
fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a.is_nan() && b.is_nan()) || a == b || (a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs()))
}

fn inputs(count: usize, random: &mut Random) -> Vec<[f64; BLOCK]> {
    (0..count).map(|_| std::array::from_fn(|_| random.between(-2.5, 2.5))).collect()
}

/// Compares a graph's program with the graph, in float64 on every level and in float32 on the least.
fn check(graph: &Graph, random: &mut Random, tolerance: f64) {
    let program = Interpreted::new(graph);
    let columns = inputs(program.inputs(), random);
    let mut outputs = vec![Block::default(); program.outputs()];
    let rows = |k: usize| columns.iter().map(move |column| column[k]);
    for level in Level::available() {
        program.eval(level, &columns.iter().collect::<Vec<_>>(), &mut outputs);
        for k in 0..BLOCK {
            let expected = graph.eval(&rows(k).map(F64::<Plain>::new).collect::<Vec<_>>());
            for (output, expected) in outputs.iter().zip(expected) {
                let (got, expected) = (output.0[k], expected.get());
                let exact = level == Level::Plain && tolerance == 0.0;
                assert!(
                    if exact { got.to_bits() == expected.to_bits() } else { close(got, expected, 1e-9) },
                    "{got} and {expected} on {level:?}\n{}",
                    graph.formula()
                );
            }
        }
    }
    let narrow: Vec<[f32; BLOCK]> = columns.iter().map(|column| column.map(|x| x as f32)).collect();
    let mut outputs = vec![Block::default(); program.outputs()];
    program.eval(Level::Plain, &narrow.iter().collect::<Vec<_>>(), &mut outputs);
    for k in 0..BLOCK {
        let expected =
            graph.eval(&narrow.iter().map(|column| F32::<Plain>::new(column[k])).collect::<Vec<_>>());
        for (output, expected) in outputs.iter().zip(expected) {
            let (got, expected) = (output.0[k], expected.get());
            assert!(close(got.into(), expected.into(), 1e-6), "{got} and {expected}\n{}", graph.formula());
        }
    }
}

#[test]
fn random_bodies_and_their_gradients() {
    let mut random = Random(7);
    for body in bodies(60) {
        let graph = trace(&body);
        check(&graph, &mut random, 1e-9);
        check(&graph.gradient(), &mut random, 1e-9);
    }
    for body in bodies(10) {
        check(&trace(&body).gradient().gradient(), &mut random, 1e-9);
    }
}

struct Masks;

impl Body<2, 5> for Masks {
    fn eval<S: Scalar>(&self, [x, y]: [S; 2]) -> [S; 5] {
        let (one, zero) = (S::of(1.0), S::of(0.0));
        let both = x.lt(one) & y.lt(one);
        let either = x.lt(zero) | y.lt(zero);
        let sum = x + y;
        // An input, a constant, one result twice, and results that only masks need.
        [x, S::attr("slope", 0.25), sum, sum, S::select(both & !either, x, S::select(x.eq(x), y, zero))]
    }
}

#[test]
fn outputs_of_every_kind() {
    check(&trace(&Masks), &mut Random(8), 0.0);
}

#[test]
fn what_is_not_taken_may_be_nan() {
    struct Root;
    impl Body<1, 1> for Root {
        fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 1] {
            [S::select(x.gt(S::of(0.0)), x.sqrt(), S::of(0.0))]
        }
    }
    let gradient = Interpreted::new(&trace(&Root).gradient());
    let mut x_grad = [Block::default()];
    for x in [-1.0, 0.0, f32::NAN] {
        gradient.eval(Level::best(), &[&[x; BLOCK], &[1.0; BLOCK]], &mut x_grad);
        assert_eq!(x_grad[0].0, [0.0; BLOCK]);
    }
}

#[test]
#[should_panic(expected = "a slice for each input")]
fn too_few_inputs_are_refused() {
    Interpreted::new(&trace(&Masks)).eval::<f32>(Level::best(), &[], &mut [Block::default(); 5]);
}
