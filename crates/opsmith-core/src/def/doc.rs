//! The text that documents an op, and in its last lines the arguments.

/// The text without the indentation that its lines have in common, and without blank lines around it.
///
/// The first line does not count, since it often follows an opening quote.
pub(super) fn clean(text: &str) -> String {
    let margin = text.lines().skip(1).filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let mut clean = String::with_capacity(text.len());
    for (i, line) in text.lines().enumerate() {
        let cut = if i == 0 { indent(line) } else { margin.min(indent(line)) };
        clean.push_str(line[cut..].trim_end());
        clean.push('\n');
    }
    clean.trim().to_owned()
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Splits off the last lines of the form `name: description`, where `is_name` knows the name.
///
/// An indented line goes on with the description above it. Gives the rest, and names with descriptions.
pub(super) fn split(text: &str, is_name: impl Fn(&str) -> bool) -> (String, Vec<(String, String)>) {
    let entry = |line: &str| {
        let (name, description) = line.split_once(':')?;
        is_name(name).then(|| (name.to_owned(), description.trim().to_owned()))
    };
    let lines: Vec<&str> = text.lines().collect();
    let mut start = lines.len();
    for (i, line) in lines.iter().enumerate().rev() {
        if entry(line).is_some() {
            start = i;
        } else if !line.is_empty() && indent(line) == 0 {
            break;
        }
    }
    let mut entries: Vec<(String, String)> = Vec::new();
    for line in &lines[start..] {
        match (entry(line), entries.last_mut()) {
            (Some(found), _) => entries.push(found),
            (None, Some((_, description))) if !line.is_empty() => {
                description.push(' ');
                description.push_str(line.trim());
            }
            _ => {}
        }
    }
    (lines[..start].join("\n").trim().to_owned(), entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_indentation_goes() {
        assert_eq!(
            clean("Zeroes.\n      All of it.\n        code\n\n      End.\n   "),
            "Zeroes.\nAll of it.\n  code\n\nEnd."
        );
        assert_eq!(clean("\n  One.\n  Two.\n"), "One.\nTwo.");
        assert_eq!(clean(""), "");
    }

    #[test]
    fn the_last_lines_document_the_arguments() {
        let text = "Zeroes.\nx: not the last lines.\nMore.\n\nx: The input,\n   in full.\nT: The dtype.";
        let (doc, entries) = split(text, |name| ["x", "T"].contains(&name));
        assert_eq!(doc, "Zeroes.\nx: not the last lines.\nMore.");
        let expected = [("x", "The input, in full."), ("T", "The dtype.")];
        assert_eq!(entries, expected.map(|(name, doc)| (name.to_owned(), doc.to_owned())));
        assert_eq!(split("Note: none.", |_| false), ("Note: none.".to_owned(), Vec::new()));
    }
}
