//! Random graphs as machine code, interpreted, and computed number by number.

mod call;
mod families;
mod graphs;
mod guarded;
mod naive;
mod reading;

use std::panic::catch_unwind;
use std::time::Instant;

use half::{bf16, f16};

use self::call::{Call, Outcome};
use self::graphs::Random;

/// How often code, interpreter and reference were compared, and what was found.
#[derive(Debug, Default)]
struct Report {
    cases: usize,
    nests: usize,
    natives: usize,
    tiled: usize,
    packed: usize,
    /// Graphs whose interpreted outputs are not those of the reference either.
    odd: Vec<u64>,
    failed: Vec<(u64, String)>,
}

impl Report {
    fn add(&mut self, seed: u64, outcome: Outcome) {
        self.cases += 1;
        self.nests += outcome.nests;
        self.natives += outcome.natives;
        self.tiled += outcome.tiled;
        self.packed += outcome.packed;
        self.odd.extend(outcome.is_odd.then_some(seed));
        self.failed.extend(outcome.failures.into_iter().map(|failure| (seed, failure)));
    }
}

fn run(seed: u64) -> Outcome {
    let mut random = Random::new(seed);
    let dtype = random.below(6);
    let call = Call::new(&mut random);
    match dtype {
        0 => call.compare::<f16>(&mut random),
        1 => call.compare::<bf16>(&mut random),
        2 => call.compare::<f32>(&mut random),
        _ => call.compare::<f64>(&mut random),
    }
}

fn run_all(seeds: impl Iterator<Item = u64>, seconds: u64) -> Report {
    let (mut report, begin) = (Report::default(), Instant::now());
    for seed in seeds {
        if begin.elapsed().as_secs() >= seconds {
            break;
        }
        let outcome = catch_unwind(|| run(seed)).unwrap_or_else(|panic| Outcome {
            failures: vec![panic.downcast::<&str>().map_or("panicked".into(), |text| (*text).into())],
            ..Outcome::default()
        });
        report.add(seed, outcome);
    }
    report
}

/// Loops along long vectors that are written out in a tile; a gather for which too few registers are left; what one loop gives and
/// another reads, which computes several positions in a turn.
#[test]
fn code_computes_what_it_once_did_not() {
    for seed in [918_287, 926_747, 11_021_396] {
        let report = run_all(seed..seed + 1, 15);
        assert!(report.failed.is_empty(), "{:#?}", report.failed);
    }
}

/// `OPSMITH_FUZZ_SEED` and `OPSMITH_FUZZ_SECONDS` in the environment have it look further.
#[test]
fn code_computes_what_is_interpreted() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("OPSMITH_FUZZ_SEED").unwrap_or(0);
    let count = number("OPSMITH_FUZZ_COUNT").unwrap_or(1500);
    let seconds = number("OPSMITH_FUZZ_SECONDS").unwrap_or(15);
    let report = run_all(first..first + count, seconds);
    println!(
        "{} cases, {} of {} nests native, {} with tiles, {} with copies, odd: {:?}",
        report.cases, report.natives, report.nests, report.tiled, report.packed, report.odd
    );
    let is_reached = report.tiled > 0 && report.packed > 0 || report.cases < 1000 || report.natives == 0;
    assert!(is_reached, "no tiles or copies were tested");
    assert!(report.failed.is_empty(), "{:#?}", &report.failed[..report.failed.len().min(20)]);
}

/// Gradients that are computed in slices: of several blocks and of one, of a batch and without. Both ways are cut alike, so the reference
/// decides.
#[test]
fn slices_compute_what_the_reference_does() {
    let (mut sliced, mut failed) = (0, Vec::new());
    for seed in 0..16 {
        let mut random = Random::new(seed);
        let batch: Vec<_> = (0..random.below(3)).map(|_| (random.of(&[1, 2, 3]), None)).collect();
        let sizes = [random.of(&[130, 200, 257]), random.of(&[129, 150, 300]), random.of(&[24, 33, 40])];
        let mut axes = [0, 1, 2];
        (1..3).for_each(|index| axes.swap(index, random.below(index + 1)));
        let dims = batch.into_iter().chain(axes.map(|axis| (sizes[axis], Some(axis)))).collect();
        let mut call = Call::of(&mut random, dims, families::attention_gradient);
        call.has_specials = false;
        let outcome =
            if seed % 3 == 0 { call.compare::<f32>(&mut random) } else { call.compare::<f64>(&mut random) };
        sliced += outcome.sliced;
        if outcome.is_odd {
            failed.push((seed, "not what the reference gives".to_owned()));
        }
        failed.extend(outcome.failures.into_iter().map(|failure| (seed, failure)));
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(sliced >= 5, "{sliced} were computed in slices");
}
