//! The names of nodes: what one may be, and how it becomes one that no other node has.

use opsmith_core::{Result, ensure};

use super::Nodes;

/// Checks a name of one node or scope, which may have scopes in front.
pub(super) fn check(name: &str) -> Result<()> {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
    };
    ensure!(
        name.split('/').all(is_part),
        InvalidArgument,
        "`{name}` cannot be the name of a node: letters, digits and `_ . -`, a letter, digit or `_` first, with `/` \
         between scopes"
    );
    Ok(())
}

impl Nodes {
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
