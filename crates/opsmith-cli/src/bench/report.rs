//! What was measured, as a table and as JSON.

use std::fmt::Write;

use opsmith_core::DType;
use opsmith_runtime::Library;
use serde_json::{Value, json};

use super::Row;
use super::measure::Measured;
use crate::text::{FAINT, STRONG, styled, wrapped};

/// A table for each op.
pub(crate) fn table(library: &Library, dtype: DType, rows: &[Row]) -> String {
    let head = styled(STRONG, format_args!("{} {}", library.name(), library.version()));
    let mut text = format!("{head}, {dtype}\n");
    for row in rows {
        let _ = writeln!(text, "\n{}", styled(STRONG, &row.op));
        if !row.measured.is_empty() {
            let heads =
                format!("{:>8}  {:>9}  {:>10}  {:>9}  inputs", "size", "time", "elements/s", "bytes/s");
            let _ = writeln!(text, "{}", styled(FAINT, heads));
        }
        for Measured { size, shapes, attributes, seconds, elements, bytes, .. } in &row.measured {
            let size = size.map_or("-".to_owned(), |size| size.to_string());
            let time = time(*seconds);
            let (elements, bytes) = (scaled(*elements as f64 / seconds), scaled(*bytes as f64 / seconds));
            let arguments = format!("{shapes} {attributes}");
            let arguments = arguments.trim_end();
            let _ = writeln!(text, "{size:>8}  {time:>9}  {elements:>10}  {bytes:>9}  {arguments}");
        }
        if let Some(why) = &row.why {
            let _ = writeln!(text, "{}", wrapped(&format!("not timed: {why}"), 2));
        }
    }
    text
}

/// The same, for programs.
pub(crate) fn json(library: &Library, dtype: DType, rows: &[Row]) -> String {
    let measured = |measured: &Measured| {
        json!({
            "size": measured.size,
            "inputs": measured.shapes,
            "attributes": measured.attributes,
            "seconds": measured.seconds,
            "repetitions": measured.repetitions,
            "output_elements": measured.elements,
            "bytes": measured.bytes,
        })
    };
    let row = |row: &Row| {
        let times: Vec<Value> = row.measured.iter().map(measured).collect();
        json!({ "op": row.op, "times": times, "not_timed": row.why })
    };
    let report = json!({
        "library": library.name(),
        "version": library.version(),
        "dtype": dtype.name(),
        "ops": rows.iter().map(row).collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}

/// `1.23 µs`.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 1e-6 => format!("{} ns", digits(seconds * 1e9)),
        seconds if seconds < 1e-3 => format!("{} µs", digits(seconds * 1e6)),
        seconds if seconds < 1.0 => format!("{} ms", digits(seconds * 1e3)),
        seconds => format!("{} s", digits(seconds)),
    }
}

/// `1.23 G`.
fn scaled(number: f64) -> String {
    match number {
        number if number < 1e3 => digits(number),
        number if number < 1e6 => format!("{} k", digits(number / 1e3)),
        number if number < 1e9 => format!("{} M", digits(number / 1e6)),
        number => format!("{} G", digits(number / 1e9)),
    }
}

/// Three digits of a number below a thousand or so.
fn digits(number: f64) -> String {
    let decimals = match number {
        number if number < 9.995 => 2,
        number if number < 99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let times = [1.2345e-9, 4.56e-5, 0.789, 12.3].map(time);
        assert_eq!(times, ["1.23 ns", "45.6 µs", "789 ms", "12.3 s"]);
        let numbers = [0.0, 99.96, 1234.0, 5.6789e7, 9.99e11].map(scaled);
        assert_eq!(numbers, ["0.00", "100", "1.23 k", "56.8 M", "999 G"]);
    }
}
