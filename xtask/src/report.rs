//! Reports for people: tables with aligned columns, and the runners' own summary lines.

/// A row of text with its columns padded to the widest cell, headings underlined.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let cells =
        |index: usize| rows.iter().filter_map(move |row| row.get(index)).map(|cell| cell.chars().count());
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(index, heading)| cells(index).chain([heading.chars().count()]).max().unwrap_or(0))
        .collect();
    let line = |row: &[String]| {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let headings: Vec<String> = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    let lines: Vec<String> = [&headings, &rule].into_iter().chain(rows).map(|row| line(row)).collect();
    lines.join("\n")
}

/// The lines with which Cargo's test runner and pytest sum up, out of everything they printed.
///
/// Cargo's lines for test binaries that had nothing to run are left out. What Rust's tests say of those that do nothing here, which
/// pass in Cargo's eyes, stands at the end, each reason once.
pub(crate) fn summary_lines(output: &[String]) -> Vec<String> {
    let idle = " 0 passed; 0 failed; 0 ignored";
    let rust = |line: &str| line.starts_with("test result:") && !line.contains(idle);
    let words = [" passed", " failed", " error", " skipped", "no tests ran", " deselected"];
    let pytest = |line: &str| {
        line.starts_with('=') && line.contains(" in ") && words.iter().any(|word| line.contains(word))
    };
    let mut lines: Vec<String> = output.iter().filter(|line| rust(line) || pytest(line)).cloned().collect();
    for line in output.iter().filter(|line| line.starts_with("skipped, as ")) {
        if !lines.contains(line) {
            lines.push(line.clone());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [owned(&["torch", "2.10.0"]), owned(&["numpy", "2"])];
        let text = table(&["framework", "version"], &rows);
        assert_eq!(text, "framework  version\n─────────  ───────\ntorch      2.10.0\nnumpy      2");
    }

    #[test]
    fn only_the_runners_own_summaries_are_kept() {
        let output = owned(&[
            "running 2 tests",
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: ok. 10 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "skipped, as there is no C++ compiler `g++`: kernels run on the processor",
            "skipped, as there is no C++ compiler `g++`: kernels run on the processor",
            "======== short test summary info in brief ========",
            "================== 3 passed, 1 skipped in 0.12s ==================",
            "= 4 failed, 1698 passed, 1 skipped, 3 warnings, 2 errors in 127.88s (0:02:07) =",
        ]);
        assert_eq!(summary_lines(&output), [1, 3, 7, 8, 4].map(|line| output[line].clone()));
    }
}
