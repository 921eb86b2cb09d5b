//! Memory on a card, and a stream, for a caller that has no framework to ask for them: Opsmith's own engine.

use std::ffi::c_void;
use std::ptr::NonNull;

use opsmith_core::Result;

use crate::driver::{Card, Driver, Stream};

/// A card with a stream of its own, on which everything that is done through it is put.
pub struct CardMemory {
    driver: &'static Driver,
    card: Card,
    stream: Stream,
}

impl CardMemory {
    /// The card of this number.
    ///
    /// # Errors
    /// `FailedPrecondition` where there is no driver or it does not work; `NotFound` where there is no such card.
    pub fn open(device: i32) -> Result<CardMemory> {
        let driver = Driver::get()?;
        let card = driver.card(device)?;
        let stream = driver.new_stream(&card)?;
        Ok(CardMemory { driver, card, stream })
    }

    /// The stream, a `CUstream`.
    pub fn stream(&self) -> *mut c_void {
        self.stream.0
    }

    /// So many bytes of the card's memory, aligned to 256.
    ///
    /// # Errors
    /// `ResourceExhausted` when there are none.
    pub fn allocate(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.driver.allocate(&self.card, bytes.max(1))
    }

    /// Gives memory back, when the work that is on the card by now is done.
    ///
    /// # Safety
    /// It must have come from [`allocate`](Self::allocate) of this card, and nobody use it any more.
    pub unsafe fn free(&self, data: NonNull<u8>) {
        // SAFETY: promised by the caller.
        unsafe { self.driver.free(&self.card, data) };
    }

    /// Puts a copy from host memory on the stream.
    ///
    /// # Errors
    /// `Internal` for what went wrong on the card before.
    ///
    /// # Safety
    /// `from` must be readable and stay as it is until [`wait`](Self::wait) returns, and `to` memory of the card, for so many
    /// bytes.
    pub unsafe fn copy_in(&self, to: NonNull<u8>, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.driver.copy_in(&self.card, &self.stream, to, from, bytes) }
    }

    /// Puts a copy to host memory on the stream.
    ///
    /// # Errors
    /// `Internal` for what went wrong on the card before.
    ///
    /// # Safety
    /// `to` must be writable and nobody else's until [`wait`](Self::wait) returns, and `from` memory of the card, for so many
    /// bytes.
    pub unsafe fn copy_out(&self, to: *mut u8, from: NonNull<u8>, bytes: usize) -> Result<()> {
        // SAFETY: promised by the caller.
        unsafe { self.driver.copy_out(&self.card, &self.stream, to, from, bytes) }
    }

    /// Waits for all that is on the stream.
    ///
    /// # Errors
    /// `Internal` for what went wrong on the card until then.
    pub fn wait(&self) -> Result<()> {
        self.driver.wait(&self.card, &self.stream)
    }
}
