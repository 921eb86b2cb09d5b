//! Every target with its corpus, and for a short while with inputs of it that are changed at random: 3 seconds, or as many as
//! `OPSMITH_FUZZ_SECONDS` says; the same ones unless `OPSMITH_FUZZ_SEED` is another number than 1.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A number of the environment.
fn told(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("it is a number"))
}

/// Numbers by chance, the same in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        // Marsaglia's xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    /// The input with up to four changes, each of which takes bytes away, puts some in, changes one or repeats some.
    fn changed(&mut self, input: &[u8], other: &[u8]) -> Vec<u8> {
        let mut changed = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(changed.len() + 1);
            let end = (at + self.below(8)).min(changed.len());
            match self.below(5) {
                0 => drop(changed.drain(at..end)),
                1 => changed.insert(at, self.below(256) as u8),
                2 => changed.splice(at..at, changed[at..end].to_vec()).for_each(drop),
                3 => {
                    let from = self.below(other.len() + 1);
                    let to = (from + self.below(32)).min(other.len());
                    changed.splice(at..end, other[from..to].iter().copied()).for_each(drop);
                }
                _ if at < changed.len() => changed[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
        changed
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

fn try_all(name: &str) {
    let target = opsmith_fuzz::target(name).unwrap();
    let inputs = corpus(name);
    assert!(inputs.len() > 3, "{name}: the corpus is empty");
    inputs.iter().for_each(|input| (target.run)(input));
    let mut chance = Chance(told("OPSMITH_FUZZ_SEED", 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (begin, long, mut runs) =
        (Instant::now(), Duration::from_secs(told("OPSMITH_FUZZ_SECONDS", 3)), 0_u64);
    while begin.elapsed() < long {
        let [input, other] = [0, 1].map(|_| &inputs[chance.below(inputs.len())]);
        let changed = chance.changed(input, other);
        let told = std::panic::catch_unwind(|| (target.run)(&changed));
        assert!(told.is_ok(), "{name}: this ends it: b\"{}\"", changed.escape_ascii());
        runs += 1;
    }
    println!("{name}: {} inputs of the corpus, {runs} that were changed", inputs.len());
}

macro_rules! targets {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                try_all(stringify!($name));
            }
        )*

        #[test]
        fn no_target_is_missing() {
            let names = opsmith_fuzz::TARGETS.map(|target| target.name);
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

targets! {
    definitions shapes axes programs requests calls queries tensorflow jax graphs checkpoints descriptions libraries
}
