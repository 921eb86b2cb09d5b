//! What the tools report: each process writes into a file of its own, also one whose output a test keeps to itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// A folder that the tools write into.
pub(crate) struct Reports(pub(crate) PathBuf);

impl Reports {
    /// An empty folder: what was reported before is forgotten.
    pub(crate) fn new(folder: PathBuf) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("could not clear {}", folder.display()))?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("could not make {}", folder.display()))?;
        Ok(Self(folder))
    }

    /// The reports in one line each, and how often each came.
    pub(crate) fn summaries(&self) -> Result<Vec<(String, usize)>> {
        let mut all = BTreeMap::new();
        for entry in fs::read_dir(&self.0).with_context(|| format!("could not list {}", self.0.display()))? {
            let text = fs::read(entry?.path())?;
            for line in summaries(&String::from_utf8_lossy(&text)) {
                *all.entry(line).or_insert(0) += 1;
            }
        }
        Ok(all.into_iter().collect())
    }
}

/// What is in a report on the library whose ops have one fault each, on purpose, so that the tests see it found.
const INTENDED: &str = "opsmith_faulty::";

/// The lines in which a sanitizer sums up a report, or valgrind a process that had some. Those on intended faults are left out.
fn summaries(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut intended = false;
    for line in text.lines() {
        intended |= line.contains(INTENDED);
        let valgrind = line.split_once("ERROR SUMMARY: ").filter(|(_, rest)| !rest.starts_with("0 errors"));
        // It found a fault in itself, or in what it was told.
        let fatal = line.contains("CHECK failed: ") || line.starts_with("FATAL: ");
        let summary = match (line.strip_prefix("SUMMARY: "), valgrind) {
            (Some(rest), _) => Some(rest.to_owned()),
            (None, Some((_, rest))) => Some(format!("valgrind: {rest}")),
            (None, None) => fatal.then(|| line.trim().to_owned()),
        };
        if let Some(summary) = summary
            && !std::mem::take(&mut intended)
        {
            found.push(summary);
        }
    }
    found
}

/// The sum of the numbers in front of a word, in the lines with which Cargo's test runner and pytest sum up.
pub(crate) fn counted(lines: &[String], word: &str) -> usize {
    let is_space = |letter: char| !letter.is_alphanumeric();
    let words =
        |line: &str| line.split(is_space).filter(|word| !word.is_empty()).map(str::to_owned).collect();
    let all: Vec<Vec<String>> = lines.iter().map(|line| words(line)).collect();
    let pairs = all.iter().flat_map(|words| words.windows(2));
    pairs.filter(|pair| pair[1] == word).filter_map(|pair| pair[0].parse::<usize>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_in_the_runners_summaries() {
        let lines = [
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 3 filtered out; finished in 1.00s",
            "test result: ok. 30 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s",
            "====== 2 failed, 1000 passed, 1 skipped, 3 deselected, 1 error in 10.12s (0:00:10) ======",
        ];
        let lines = lines.map(str::to_owned);
        let figures = ["passed", "failed", "ignored", "skipped", "deselected", "error", "errors"];
        assert_eq!(figures.map(|word| counted(&lines, word)), [1042, 3, 2, 1, 3, 1, 0]);
    }

    #[test]
    fn reports_are_counted_by_their_last_line() {
        let folder = std::env::temp_dir().join(format!("opsmith-xtask-reports-{}", std::process::id()));
        let reports = Reports::new(folder.clone()).unwrap();
        assert_eq!(reports.summaries().unwrap(), []);
        let race =
            "==1==WARNING: ThreadSanitizer: data race\nSUMMARY: ThreadSanitizer: data race a.rs in f\n";
        fs::write(folder.join("report.1"), race.repeat(2)).unwrap();
        fs::write(folder.join("report.2"), format!("in opsmith_faulty::f\nSUMMARY: A: SEGV\n{race}"))
            .unwrap();
        fs::write(folder.join("report.3"), "==3== ERROR SUMMARY: 0 errors from 0 contexts").unwrap();
        fs::write(folder.join("report.4"), "==4== ERROR SUMMARY: 7 errors from 1 contexts").unwrap();
        fs::write(folder.join("report.5"), "AddressSanitizer: CHECK failed: a.cpp:1 \"((x)) != (0)\"")
            .unwrap();
        let found = reports.summaries().unwrap();
        let counts: Vec<usize> = found.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, [1, 3, 1], "{found:?}");
        assert_eq!(found[1].0, "ThreadSanitizer: data race a.rs in f");
        assert_eq!(Reports::new(folder.clone()).unwrap().summaries().unwrap(), []);
        fs::remove_dir_all(&folder).unwrap();
    }
}
