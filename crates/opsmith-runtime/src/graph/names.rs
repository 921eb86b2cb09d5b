//! The names of nodes: what one may be, and how it becomes one that no other node has.

use opsmith_core::{Result, ensure};

use super::Nodes;

/// How long a name may be, with its scopes, and how many those may be: what draws them goes into each.
const LONGEST: usize = 1024;
const DEEPEST: usize = 64;

/// Checks a name of one node or scope, which may have scopes in front.
pub(super) fn check(name: &str) -> Result<()> {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    };
    ensure!(
        name.len() <= LONGEST && name.split('/').count() <= DEEPEST,
        InvalidArgument,
        "a node's name may have {LONGEST} letters and {DEEPEST} scopes, got {} and {}: `{}…`",
        name.len(),
        name.split('/').count(),
        name.chars().take(40).collect::<String>()
    );
    ensure!(
        name.split('/').all(is_part),
        InvalidArgument,
        "`{name}` cannot be the name of a node: letters, digits and `_ . -`, a letter, digit or `_` first, with `/` \
         between scopes"
    );
    Ok(())
}

impl Nodes {
    /// A scope that there was not: `name`, or `name_1` and so on.
    pub(super) fn new_scope(&mut self, name: &str) -> String {
        let numbered = (1..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let new = names.find(|name| !self.scopes.contains(name)).unwrap_or_default();
        self.scopes.insert(new.clone());
        new
    }

    /// `name`, or `name_1` and so on where it is taken.
    pub(super) fn unique(&mut self, name: &str) -> String {
        let taken = self.asked.entry(name.to_owned()).or_default();
        let mut unique = match *taken {
            0 => name.to_owned(),
            count => format!("{name}_{count}"),
        };
        *taken += 1;
        while self.by_name.contains_key(&unique) || (unique != name && self.asked.contains_key(&unique)) {
            let count = self.asked.get_mut(name).map_or(0, |count| std::mem::replace(count, *count + 1));
            unique = format!("{name}_{count}");
        }
        if unique != name {
            self.asked.insert(unique.clone(), 1);
        }
        unique
    }
}
