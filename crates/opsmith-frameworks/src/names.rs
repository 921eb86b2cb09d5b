//! Names as wrappers in Python have them.

/// Words that cannot be names in Python, or that frameworks keep for themselves: `name` is an attribute of every `torch.ops`
/// namespace and a parameter of every wrapper in TensorFlow.
const RESERVED: [&str; 38] = [
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def",
    "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
    "NoneType", "name", "self",
];

/// The name, with `_` behind it where it is reserved.
pub(crate) fn python_name(name: &str) -> String {
    if RESERVED.contains(&name) { format!("{name}_") } else { name.to_owned() }
}
