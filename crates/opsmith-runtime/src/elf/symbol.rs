//! One symbol of a file.

pub(super) const THREAD_LOCAL: u64 = 6;

/// A symbol.
#[derive(Debug)]
pub(super) struct Symbol<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: u64,
    pub(super) binding: u64,
    pub(super) visibility: u64,
    pub(super) section: u64,
    pub(super) value: u64,
    pub(super) size: u64,
}

impl Symbol<'_> {
    pub(super) fn is_defined(&self) -> bool {
        self.section != 0
    }

    pub(super) fn is_thread_local(&self) -> bool {
        self.kind == THREAD_LOCAL
    }
}
