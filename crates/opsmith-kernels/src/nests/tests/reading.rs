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

/// Whether folds are saved, and what is wrong with gradients of the first and second order that read them.
fn compare_saved(seed: u64) -> (bool, Option<String>) {
    let mut random = Random::new(seed);
    let sizes: Vec<usize> = (0..1 + random.below(3)).map(|_| random.of(&[1, 2, 3, 5])).collect();
    let made = graphs::graph(&mut random, &sizes);
    let numbers: Vec<usize> =
        (0..made.inputs.len()).filter(|input| made.inputs[*input].1 == Kind::Number).collect();
    let outputs = made.graph.worth_reading(&numbers);
    let folds = made.graph.worth_saving(&numbers, &outputs);
    if folds.is_empty() {
        return (false, None);
    }
    let axes: Vec<Axes> = folds.iter().map(|id| made.graph.axes_of(*id)).collect();
    let mut own = arrays(&mut random, &made.inputs, &sizes, false);
    let results = evaluate(&made.graph.saving(Some(&folds), &axes), &sizes, &own);
    let (results, saved) = results.split_at(made.outputs.len());
    for output in &outputs {
        let (axes, result) = (made.outputs[*output].0, &results[*output]);
        let mut numbers = Vec::new();
        each_position(axes, &sizes, |at| numbers.push(result.numbers[result.index(&sizes, at)]));
        own.push(Array { axes, numbers });
    }
    let mut gradient = made.graph.gradient_reading(&outputs);
    let mut given: Vec<Array> = arrays(&mut random, &made.outputs, &sizes, false);
    for order in 1..=2 {
        // A gradient of many nodes is evaluated node by node, which takes long.
        if gradient.nodes().len() > 1000 {
            break;
        }
        let reading = made.graph.reading_folds(&gradient, &outputs, Some(&folds), &axes);
        let plain = evaluate(&gradient, &sizes, &[&own[..], &given].concat());
        let reading = evaluate(&reading, &sizes, &[&own[..], saved, &given].concat());
        if let Some(wrong) = difference(&plain, &reading) {
            return (true, Some(format!("seed {seed}, order {order}: {wrong}\n{}", made.graph.formula())));
        }
        let arguments: Vec<(Axes, Kind)> = gradient.output_axes().map(|axes| (axes, Kind::Number)).collect();
        given.extend(arrays(&mut random, &arguments, &sizes, false));
        gradient = gradient.gradient();
    }
    (true, None)
}

#[test]
fn gradients_that_read_what_is_saved_are_the_same() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("OPSMITH_FUZZ_SEED").unwrap_or(0);
    let all = (first..first + number("OPSMITH_FUZZ_COUNT").unwrap_or(600)).map(compare_saved);
    let (saving, wrong): (Vec<bool>, Vec<Option<String>>) = all.unzip();
    let wrong: Vec<String> = wrong.into_iter().flatten().take(3).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(saving.contains(&true) || saving.len() < 100, "no graph saved anything");
}

/// Whether outputs are read, and what is wrong with that.
fn compare(seed: u64) -> (bool, Option<String>) {
    let mut random = Random::new(seed);
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
