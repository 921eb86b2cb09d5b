//! Memory whose size a caller decides. Where there is none, `vec!` and `collect` end the process; these give an error.
//!
//! It is the process's own. [`Compute::temp`](crate::Compute::temp) lends the caller's, but elements of a dtype only, set to zero, and
//! until the call ends: what is no element (keys with their positions), grows, or is taken by each thread in turn, is taken here.

mod pages;

pub use pages::prefer_large_pages;

use crate::{Error, Result};

/// Makes room for `more` elements beyond those of a vector; `what` they are stands in the error.
///
/// # Errors
/// `ResourceExhausted` when the memory cannot be had.
pub fn reserve<T>(vector: &mut Vec<T>, more: usize, what: &str) -> Result<()> {
    let (before, after) = (vector.capacity(), vector.len().saturating_add(more));
    // By doubling where the vector has grown before: elements that come one by one are moved few times.
    let room = if before == 0 { vector.try_reserve_exact(more) } else { vector.try_reserve(more) };
    room.map_err(|_| exhausted::<T>(after, what))
}

#[cold]
fn exhausted<T>(len: usize, what: &str) -> Error {
    let bytes = len as u128 * size_of::<T>() as u128;
    Error::resource_exhausted(format!("cannot allocate {bytes} bytes for {what}"))
}

/// `len` times `value`.
///
/// # Errors
/// As [`reserve`].
pub fn filled<T: Clone>(value: T, len: usize, what: &str) -> Result<Vec<T>> {
    let mut all = Vec::new();
    reserve(&mut all, len, what)?;
    all.resize(len, value);
    Ok(all)
}

/// All that an iterator gives.
///
/// # Errors
/// As [`reserve`].
pub fn collected<I: IntoIterator>(elements: I, what: &str) -> Result<Vec<I::Item>> {
    let mut elements = elements.into_iter();
    let mut all = Vec::new();
    reserve(&mut all, elements.size_hint().0, what)?;
    loop {
        let room = all.capacity() - all.len();
        all.extend(elements.by_ref().take(room));
        let Some(next) = elements.next() else { return Ok(all) };
        reserve(&mut all, elements.size_hint().0.saturating_add(1), what)?;
        all.push(next);
    }
}

/// All that an iterator gives, or its first error.
///
/// # Errors
/// As [`reserve`], and what the iterator gives.
pub fn try_collected<T>(elements: impl IntoIterator<Item = Result<T>>, what: &str) -> Result<Vec<T>> {
    let elements = elements.into_iter();
    let mut all = Vec::new();
    // An iterator that may end early says that it has no element for sure.
    reserve(&mut all, elements.size_hint().0, what)?;
    for element in elements {
        if all.len() == all.capacity() {
            reserve(&mut all, 1, what)?;
        }
        all.push(element?);
    }
    Ok(all)
}

/// A copy of a slice, of a text say.
///
/// # Errors
/// As [`reserve`].
pub fn copied<T: Copy>(elements: &[T], what: &str) -> Result<Vec<T>> {
    let mut all = Vec::new();
    reserve(&mut all, elements.len(), what)?;
    all.extend_from_slice(elements);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn what_memory_does_not_have_is_an_error() {
        let error = filled(0u64, 1 << 60, "the marks of rows").unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        assert_eq!(error.message(), "cannot allocate 9223372036854775808 bytes for the marks of rows");
        let error = collected(std::iter::repeat_n(0u8, usize::MAX), "numbers").unwrap_err();
        assert_eq!(error.message(), "cannot allocate 18446744073709551615 bytes for numbers");
        assert!(try_collected(std::iter::repeat_n((), usize::MAX).map(|()| Ok(1u16)), "numbers").is_err());
        let mut some = vec![1u32];
        assert!(reserve(&mut some, usize::MAX, "numbers").is_err());
        assert_eq!(some, [1]);
    }

    #[test]
    fn iterators_are_collected_whatever_they_say_of_their_length() {
        let even = || (0..1000).filter(|n| n % 2 == 0);
        assert_eq!(collected(even(), "numbers").unwrap(), even().collect::<Vec<_>>());
        assert_eq!(collected(0..1000, "numbers").unwrap().capacity(), 1000);
        assert_eq!(try_collected(even().map(Ok), "numbers").unwrap(), even().collect::<Vec<_>>());
        let failing = [Ok(1), Err(Error::out_of_range("the second")), Ok(3)];
        assert_eq!(try_collected(failing, "numbers").unwrap_err().message(), "the second");
        assert_eq!(copied(b"text", "text").unwrap(), b"text");
        assert_eq!(copied(&[1.5, 2.5], "numbers").unwrap().capacity(), 2);
    }
}
