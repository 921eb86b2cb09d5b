//! "Did you mean": the known name nearest to one that is not known.

use super::Signature;

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

/// That a library has no op of a name, and which it has; the nearest, if one is near, in the spelling that was used.
pub fn no_such_op<'a>(
    library: &str,
    name: &str,
    signatures: impl Iterator<Item = &'a Signature> + Clone,
) -> String {
    let names: Vec<&str> = signatures.clone().map(|signature| signature.name.as_str()).collect();
    let functions: Vec<String> = signatures.map(Signature::snake_name).collect();
    let near = did_you_mean(name, functions.iter().map(String::as_str).chain(names.iter().copied()));
    format!("library `{library}` has no op `{name}`; it has: {}{near}", names.join(", "))
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
    fn an_op_that_is_not_there_is_told_with_the_nearest() {
        let signatures =
            ["Softmax", "LayerNorm"].map(|name| crate::SignatureBuilder::new(name).build().unwrap());
        let told = |name| no_such_op("rows", name, signatures.iter());
        let has = "it has: Softmax, LayerNorm";
        assert_eq!(
            told("softmx"),
            format!("library `rows` has no op `softmx`; {has}; did you mean `softmax`?")
        );
        assert!(told("LayerNrom").ends_with("did you mean `LayerNorm`?"));
        assert!(told("conv").ends_with(has));
    }
}
