//! "Did you mean": the known name nearest to one that is not known.

use super::Signature;
use crate::{Error, Result};

/// The candidate within a third of `name`'s length in edits, the nearest first; none for very different names.
pub(super) fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= limit)
        .map(|candidate| (edit_distance(name, candidate), candidate))
        .filter(|&(distance, candidate)| distance <= limit && distance < candidate.chars().count())
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

/// `; did you mean …?` where a candidate is near, else nothing.
pub fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    closest(name, candidates).map_or(String::new(), |near| format!("; did you mean `{near}`?"))
}

/// More names than this are not listed.
const MOST_LISTED: usize = 20;

/// The position of the op that a name means: the op's name, CamelCase or snake_case, by itself or in the spelling of a framework,
/// behind the library's: `Huber`, `huber`, `my_ops.huber()`, `my_ops::huber`, `MyOps>Huber`.
///
/// # Errors
/// `NotFound`, with the names there are, if they are few; and the nearest, if one is near, in the spelling that was used.
pub fn find_op<'a>(
    library: &str,
    name: &str,
    signatures: impl Iterator<Item = &'a Signature> + Clone,
) -> Result<usize> {
    let own = own_name(library, name);
    let is_it =
        |signature: &Signature| own.is_some_and(|own| signature.name == own || signature.snake_name() == own);
    signatures.clone().position(is_it).ok_or_else(|| {
        let names: Vec<&str> = signatures.clone().map(|signature| signature.name.as_str()).collect();
        let functions: Vec<String> = signatures.map(Signature::snake_name).collect();
        let known = functions.iter().map(String::as_str).chain(names.iter().copied());
        let near = did_you_mean(own.unwrap_or(name), known);
        let has = if names.len() > MOST_LISTED {
            format!("it has {} ops", names.len())
        } else {
            format!("it has: {}", names.join(", "))
        };
        Error::not_found(format!("library `{library}` has no op `{name}`; {has}{near}"))
    })
}

/// An op's name without the library's before it and the parentheses behind it; none where it is behind another library's.
fn own_name<'a>(library: &str, name: &'a str) -> Option<&'a str> {
    let name = name.strip_suffix("()").unwrap_or(name);
    let Some(end) = name.rfind(['.', ':', '>']) else { return Some(name) };
    let namespace = name[..end].trim_end_matches(':').rsplit(['.', ':']).next()?;
    let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
    (plain(namespace) == plain(library)).then_some(&name[end + 1..])
}

/// The least number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        rows[i][0] = i;
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_suggested_and_far_ones_are_not() {
        assert_eq!(closest("flaot", ["int32", "float", "double"]), Some("float"));
        assert_eq!(closest("preserve_idx", ["preserve_index", "T"]), Some("preserve_index"));
        assert_eq!(closest("b", ["T"]), None);
        assert_eq!(closest("banana", ["T", "int32"]), None);
    }

    #[test]
    fn an_op_is_found_by_each_of_its_names() {
        let names = ["Softmax", "LayerNorm"];
        let signatures = names.map(|name| crate::SignatureBuilder::new(name).build().unwrap());
        let found = |name| find_op("my_rows", name, signatures.iter());
        for name in [
            "LayerNorm",
            "layer_norm",
            "layer_norm()",
            "my_rows.layer_norm",
            "my_rows.layer_norm()",
            "my_rows::layer_norm",
            "torch.ops.my_rows.layer_norm",
            "MyRows>LayerNorm",
        ] {
            assert_eq!(found(name).unwrap(), 1, "{name}");
        }
        let told = |name| found(name).unwrap_err().message().to_owned();
        let has = "it has: Softmax, LayerNorm";
        assert_eq!(
            told("softmx"),
            format!("library `my_rows` has no op `softmx`; {has}; did you mean `softmax`?")
        );
        assert!(told("LayerNrom").ends_with("did you mean `LayerNorm`?"));
        assert!(told("my_rows::softmx").ends_with("did you mean `softmax`?"));
        assert!(told("rows::conv").ends_with(has) && told("conv").ends_with(has));
        assert!(found("other::softmax").is_err());
    }

    #[test]
    fn many_ops_are_counted() {
        let signatures: Vec<_> =
            (0..21).map(|at| crate::SignatureBuilder::new(format!("Op{at}")).build().unwrap()).collect();
        let error = find_op("many", "softmax", signatures.iter()).unwrap_err();
        assert_eq!(error.message(), "library `many` has no op `softmax`; it has 21 ops");
    }
}
