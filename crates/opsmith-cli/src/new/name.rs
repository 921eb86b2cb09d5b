//! Which names a crate of operators may have.

use anyhow::{Result, bail};

/// Words that Rust or Python reserves.
const KEYWORDS: &str = "abstract and as assert async await become box break class const continue crate def del do dyn elif \
     else enum except extern false final finally fn for from gen global if impl import in is lambda let \
     loop macro match mod move mut nonlocal not or override pass priv pub raise ref return self static \
     struct super trait true try type typeof union unsafe unsized use virtual where while with yield";

/// Names that mean something else to Rust, to Python or to a framework.
const TAKEN: &str = "alloc aten core jax numpy opsmith prim prims proc_macro std tensorflow test tf torch";

/// Checks a name.
///
/// # Errors
/// What is wrong with it, and a name that would do where there is one near.
pub(super) fn check(name: &str) -> Result<()> {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_letter) {
        let near = snake_case(name);
        let hint = if near.is_empty() { String::new() } else { format!("; `{near}` would do") };
        bail!("`{name}` is not snake_case, a small letter and then small letters, digits and `_`{hint}");
    }
    if KEYWORDS.split(' ').chain(TAKEN.split(' ')).any(|word| word == name) {
        bail!("`{name}` means something else to Rust, Python or a framework; choose another name");
    }
    Ok(())
}

/// `MyOps`, `my-ops` → `my_ops`; empty where nothing is left.
fn snake_case(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let snake = opsmith_core::def::snake_case(plain.trim_start_matches(|c: char| !c.is_ascii_alphabetic()));
    snake.trim_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_library_can_have_pass() {
        for name in ["distances", "my_ops", "ops2", "a"] {
            check(name).unwrap();
        }
    }

    #[test]
    fn others_are_refused_with_a_name_that_would_do() {
        for (name, near) in
            [("MyOps", "my_ops"), ("my-ops", "my_ops"), ("2d_ops", "d_ops"), ("_ops", "ops"), ("ops ", "ops")]
        {
            let error = check(name).unwrap_err().to_string();
            assert!(error.ends_with(&format!("; `{near}` would do")), "{error}");
        }
        for name in ["", "größe", "7", "\u{1F980}"] {
            check(name).unwrap_err();
        }
        for name in ["fn", "lambda", "torch", "test", "opsmith"] {
            assert!(check(name).unwrap_err().to_string().contains("choose another"), "{name}");
        }
    }
}
