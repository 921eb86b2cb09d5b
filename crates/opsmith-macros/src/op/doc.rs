//! The function's documentation comment, split into the op's and its arguments'.

use syn::Attribute;

use super::parameter::doc_line;

/// What a documentation comment says.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Doc {
    /// Of the op, in Markdown.
    pub(crate) text: String,
    /// Of arguments and attributes, by name.
    pub(crate) entries: Vec<(String, String)>,
}

impl Doc {
    /// Reads the comment, in which the list under a heading `Arguments`, and lines `name: text`, document what
    /// `is_name` knows.
    pub(crate) fn new(attributes: &[Attribute], is_name: impl Fn(&str) -> bool) -> Doc {
        let lines: Vec<String> = attributes
            .iter()
            .filter_map(|attribute| doc_line(&attribute.meta))
            .flat_map(split_lines)
            .collect();
        let margin = lines.iter().filter(|line| !line.trim().is_empty()).map(|line| indent(line)).min();
        let margin = margin.unwrap_or(0);
        let mut doc = Doc::default();
        let mut kept: Vec<&str> = Vec::new();
        let mut in_entry = false;
        for line in &lines {
            let line = line.get(margin..).unwrap_or_default().trim_end();
            if let Some((name, text)) = entry(line).filter(|(name, _)| is_name(name)) {
                doc.entries.push((name.to_owned(), text.to_owned()));
                in_entry = true;
            } else if in_entry && indent(line) > 0 && !line.is_empty() {
                if let Some((_, text)) = doc.entries.last_mut() {
                    text.push(' ');
                    text.push_str(line.trim());
                }
            } else {
                in_entry = false;
                kept.push(line);
            }
        }
        if !doc.entries.is_empty() {
            kept.retain(|line| line.trim_start_matches('#').trim() != "Arguments");
        }
        doc.text = kept.join("\n").trim().to_owned();
        doc
    }
}

fn split_lines(text: String) -> Vec<String> {
    text.split('\n').map(ToOwned::to_owned).collect()
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// ``- `name`: text``, `* name - text` or `name: text`.
fn entry(line: &str) -> Option<(&str, &str)> {
    let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
    let separators: &[&str] = if item.is_some() { &[":", " - ", " – "] } else { &[":"] };
    let line = item.unwrap_or(line);
    let (name, text) = separators.iter().find_map(|separator| line.split_once(separator))?;
    let name = name.trim();
    let name = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')).unwrap_or(name);
    Some((name, text.trim()))
}

#[cfg(test)]
mod tests {
    use syn::{ItemFn, parse_quote};

    use super::*;

    fn read(function: &ItemFn) -> Doc {
        Doc::new(&function.attrs, |name| ["x", "y", "a"].contains(&name))
    }

    fn entries(doc: &Doc) -> Vec<(&str, &str)> {
        doc.entries.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect()
    }

    #[test]
    fn a_list_of_arguments_is_taken_out() {
        let doc = read(&parse_quote! {
            /// Distances.
            ///
            /// # Arguments
            /// - `x`: Points,
            ///   one a row.
            /// * y - More points.
            ///
            /// # Errors
            /// Note: none.
            fn f() {}
        });
        assert_eq!(doc.text, "Distances.\n\n\n# Errors\nNote: none.");
        assert_eq!(entries(&doc), [("x", "Points, one a row."), ("y", "More points.")]);
    }

    #[test]
    fn plain_lines_document_arguments_too() {
        let doc = read(&parse_quote! {
            /// Adds.
            ///
            /// x: First.
            /// z: Not an argument.
            /// a: An attribute.
            fn f() {}
        });
        assert_eq!(doc.text, "Adds.\n\nz: Not an argument.");
        assert_eq!(entries(&doc), [("x", "First."), ("a", "An attribute.")]);
        assert_eq!(
            read(&parse_quote!(
                fn f() {}
            )),
            Doc::default()
        );
    }
}
