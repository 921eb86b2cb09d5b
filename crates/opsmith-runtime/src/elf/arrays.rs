//! The functions that the loader calls when it opens the library, and when the process ends.

use opsmith_core::{Result, ensure};

use super::dynamic::{Dynamic, FINI_ARRAY, FINI_ARRAYSZ, INIT_ARRAY, INIT_ARRAYSZ};
use super::headers::{EXECUTE, Headers, READ};
use super::relocations::Written;

/// Checks that each entry gets the address of a function. What relocations write is in the order of places.
pub(super) fn check(headers: &Headers, dynamic: &Dynamic<'_>, written: &[Written]) -> Result<()> {
    for (at, size) in [(INIT_ARRAY, INIT_ARRAYSZ), (FINI_ARRAY, FINI_ARRAYSZ)] {
        let (Some(at), Some(size)) = (dynamic.get(at), dynamic.get(size)) else { continue };
        ensure!(size % 8 == 0, InvalidArgument, "is damaged: its list of functions has {size} bytes");
        for place in (at..at.saturating_add(size)).step_by(8) {
            let found = written.binary_search_by_key(&place, |written| written.place.start);
            let address = found.ok().and_then(|index| written[index].address);
            ensure!(
                address.is_some_and(|address| headers.has_memory(address, 1, READ | EXECUTE)),
                InvalidArgument,
                "is damaged: the list at address {at:#x} has what is no function"
            );
        }
    }
    Ok(())
}
