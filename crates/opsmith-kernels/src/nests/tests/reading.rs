//! Gradients of random graphs that read outputs, beside those that compute everything again.

use opsmith_body::{Axes, Graph, Kind};

use super::graphs::{self, Random};
use super::naive::{Array, each_position, evaluate};

const SPECIALS: [f64; 4] = [f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];

fn arrays(
    random: &mut Random,
    arguments: &[(Axes, Kind)],
    sizes: &[usize],
    has_specials: bool,
) -> Vec<Array> {
    let array = |(axes, kind): &(Axes, Kind)| {
        let mut numbers = Vec::new();
        each_position(*axes, sizes, |_| {
            numbers.push(match kind {
                Kind::Number if has_specials && random.one_in(8) => random.of(&SPECIALS),
                Kind::Number => random.number(),
                Kind::Index => random.below(5) as f64 - 1.0,
                Kind::Mask => random.below(2) as f64,
            });
        });
        Array { axes: *axes, numbers }
    };
    arguments.iter().map(array).collect()
}

/// What differs, if something does: a number that is finite or infinite without reading must be the same with it.
fn difference(plain: &[Array], reading: &[Array]) -> Option<String> {
    let scale = |array: &Array| {
        let finite = array.numbers.iter().filter(|number| number.is_finite());
        finite.fold(1.0, |most: f64, number| most.max(number.abs()))
    };
    let differs = |(a, b, scale): &(f64, f64, f64)| !(a.is_nan() || a == b || (a - b).abs() <= 1e-8 * scale);
    let both = plain.iter().zip(reading).flat_map(|(a, b)| {
        let scale = scale(a);
        a.numbers.iter().zip(&b.numbers).map(move |(a, b)| (*a, *b, scale))
    });
    both.into_iter().find(differs).map(|(a, b, scale)| format!("{b} is not {a}, scale {scale}"))
}

/// Whether outputs are read, and what is wrong with that.
fn compare(seed: u64) -> (bool, Option<String>) {
    let mut random = Random(seed);
    let sizes: Vec<usize> = (0..1 + random.below(3)).map(|_| random.of(&[1, 2, 3, 5])).collect();
    let made = graphs::graph(&mut random, &sizes);
    let all: Vec<usize> = (0..made.outputs.len()).collect();
    let outputs = if random.one_in(2) {
        made.graph.worth_reading(&(0..made.inputs.len()).collect::<Vec<_>>())
    } else {
        all
    };
    let has_specials = random.one_in(2);
    let own = arrays(&mut random, &made.inputs, &sizes, has_specials);
    let weights = arrays(&mut random, &made.outputs, &sizes, false);
    let results = evaluate(&made.graph, &sizes, &own);
    let (plain, reading) = (made.graph.gradient(), made.graph.gradient_reading(&outputs));
    let mut given = own.clone();
    for output in &outputs {
        let (axes, result) = (made.outputs[*output].0, &results[*output]);
        let mut numbers = Vec::new();
        each_position(axes, &sizes, |at| numbers.push(result.numbers[result.index(&sizes, at)]));
        given.push(Array { axes, numbers });
    }
    let mut is_read = (own.len()..given.len()).any(|input| reading.reads(input));
    is_read &= made.inputs.iter().all(|(_, kind)| *kind == Kind::Number);
    let evaluate =
        |graph: &Graph, inputs: Vec<Array>| evaluate(graph, &sizes, &[inputs, weights.clone()].concat());
    let wrong = difference(&evaluate(&plain, own), &evaluate(&reading, given));
    let formulas = || format!("{}\n\n{}\n\n{}", made.graph.formula(), plain.formula(), reading.formula());
    (is_read, wrong.map(|wrong| format!("seed {seed}: {wrong}\n{}", formulas())))
}

#[test]
fn gradients_that_read_outputs_are_the_same() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("OPSMITH_FUZZ_SEED").unwrap_or(0);
    let count = number("OPSMITH_FUZZ_COUNT").unwrap_or(1500);
    // The last one takes what lies on fewer axes than its output.
    let all: Vec<(bool, Option<String>)> = (first..first + count).chain([301_832]).map(compare).collect();
    let read = all.iter().filter(|(is_read, _)| *is_read).count();
    let wrong: Vec<&String> = all.iter().filter_map(|(_, wrong)| wrong.as_ref()).collect();
    println!("{count} gradients, of which {read} read outputs, {} of them wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong[0]);
    assert!(read > 0 || count < 100, "no gradient read an output");
}
