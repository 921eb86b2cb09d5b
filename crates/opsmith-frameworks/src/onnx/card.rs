//! What a node on a card has of ONNX Runtime: the number of the card, and for each call its stream and memory.

use std::cell::RefCell;
use std::ffi::{CStr, c_void};
use std::ptr::{NonNull, null, null_mut};

use opsmith_core::{Device, Error, Result};
use smallvec::SmallVec;

use super::api::{Allocator, Api, CARDS, KernelContext, KernelInfo, MemoryInfo, OWN_MEMORY};

/// The provider whose nodes are on a card.
pub(super) const PROVIDER: &CStr = c"CUDAExecutionProvider";

/// Whether a copy of ONNX Runtime was built with the provider, and tells kernels of its memory. To others no op for cards is offered, so
/// a session on the CPU is as if there were none.
///
/// # Errors
/// What ONNX Runtime says.
pub(super) fn is_served(api: Api) -> Result<bool> {
    if api.minor < CARDS {
        return Ok(false);
    }
    let (mut names, mut count) = (null_mut(), 0);
    // SAFETY: what comes back are as many C strings, which are given back once.
    unsafe {
        api.check((api.providers())(&mut names, &mut count))?;
        let mut all = (0..usize::try_from(count).unwrap_or(0)).map(|at| CStr::from_ptr(*names.add(at)));
        let is_there = all.any(|name| name == PROVIDER);
        api.check((api.release_providers())(names, count)).map(|()| is_there)
    }
}

/// The card of a node, and the memory that its provider has there.
pub(super) struct Card {
    api: Api,
    /// Ours to release.
    allocator: *mut Allocator,
    /// Lent as long as the allocator is there.
    memory: *const MemoryInfo,
    device: Device,
}

impl Card {
    /// That of a node.
    ///
    /// # Errors
    /// What ONNX Runtime says.
    ///
    /// # Safety
    /// `info` must be live, of a node of the provider, and [`is_served`] have said yes.
    pub(super) unsafe fn of(api: Api, info: *const KernelInfo) -> Result<Card> {
        let (mut allocator, mut index) = (null_mut(), 0);
        // SAFETY: promised by the caller.
        unsafe { api.check((api.kernel_allocator())(info, OWN_MEMORY, &mut allocator)) }?;
        let mut card = Card { api, allocator, memory: null(), device: Device::cuda(0) };
        // SAFETY: the allocator is there, and the pointers are to locals of the right types.
        unsafe {
            api.check((api.allocator_memory())(allocator, &mut card.memory))?;
            api.check((api.memory_device())(card.memory, &mut index))?;
        }
        card.device = Device::cuda(index);
        Ok(card)
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        // SAFETY: it is released once, when no call is left.
        unsafe { (self.api.release_allocator())(self.allocator) };
    }
}

/// One call on a card. Its temporary memory goes back when it ends, while the work on the stream may still use it: ONNX Runtime gives it
/// to nobody else before the stream has come so far.
pub(super) struct CardCall<'a> {
    card: &'a Card,
    context: *mut KernelContext,
    pub(super) stream: *mut c_void,
    temps: RefCell<SmallVec<[*mut c_void; 4]>>,
}

impl<'a> CardCall<'a> {
    /// A call of a node on the card.
    ///
    /// # Errors
    /// What ONNX Runtime says.
    ///
    /// # Safety
    /// `context` must be a live call of the node, as long as this is there.
    pub(super) unsafe fn new(card: &'a Card, context: *mut KernelContext) -> Result<CardCall<'a>> {
        let mut stream = null_mut();
        // SAFETY: promised by the caller.
        unsafe { card.api.check((card.api.call_stream())(context, &mut stream)) }?;
        Ok(CardCall { card, context, stream, temps: RefCell::default() })
    }

    pub(super) fn device(&self) -> Device {
        self.card.device
    }

    /// Temporary memory on the card: ONNX Runtime aligns it to 256 bytes.
    pub(super) fn allocate(&self, bytes: usize) -> Result<NonNull<u8>> {
        let data = self.block(bytes.max(1)).map_err(|error| Error::resource_exhausted(error.message()))?;
        self.temps.borrow_mut().push(data);
        NonNull::new(data.cast()).ok_or_else(|| Error::resource_exhausted("ONNX Runtime gives no memory"))
    }

    /// Memory in the order of the stream. Where there is none, the function that gives it ends the process, by an exception that it lets
    /// through: so another one, which gives an error then, looks first. Another thread may still take the memory in between, and since
    /// looking names no stream it may take new memory where the stream has some. Without a stream the function would read at null.
    fn block(&self, bytes: usize) -> Result<*mut c_void> {
        let (card, mut data) = (self.card, null_mut());
        let api = card.api;
        // SAFETY: the call runs, and the allocator takes back what either function gives.
        unsafe {
            api.check((api.allocate())(card.allocator, bytes, &mut data))?;
            if !self.stream.is_null() {
                api.check((api.free())(card.allocator, data))?;
                api.check((api.call_memory())(self.context, card.memory, bytes, &mut data))?;
            }
        }
        Ok(data)
    }
}

impl Drop for CardCall<'_> {
    fn drop(&mut self) {
        let api = self.card.api;
        for data in self.temps.get_mut().drain(..) {
            // SAFETY: it is of this call, and all of its work is on the stream.
            unsafe { api.succeeded((api.free())(self.card.allocator, data)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_char, c_int};
    use std::ptr::without_provenance_mut;
    use std::sync::atomic::{AtomicIsize, Ordering};

    use super::super::api::Outcome;
    use super::*;

    // In what follows the pointers are to locals of who calls.

    unsafe extern "C" fn both(names: *mut *mut *mut c_char, count: *mut c_int) -> Outcome {
        let given = [c"CPUExecutionProvider", PROVIDER].map(|name| name.as_ptr().cast_mut());
        // SAFETY: as above.
        unsafe { (*names, *count) = (Box::leak(Box::new(given)).as_mut_ptr(), 2) };
        null_mut()
    }

    unsafe extern "C" fn first(names: *mut *mut *mut c_char, count: *mut c_int) -> Outcome {
        // SAFETY: as above.
        unsafe {
            both(names, count);
            *count = 1;
        }
        null_mut()
    }

    unsafe extern "C" fn release_names(_: *mut *mut c_char, _: c_int) -> Outcome {
        null_mut()
    }

    #[test]
    fn cards_are_served_by_a_release_that_has_the_provider_and_tells_of_its_memory() {
        let release = (126, release_names as *const c_void);
        let served = |minor, functions: &[_]| is_served(Api::played(minor, functions)).unwrap();
        assert!(!served(CARDS - 1, &[]));
        assert!(!served(CARDS, &[(125, first as *const c_void), release]));
        assert!(served(CARDS, &[(125, both as *const c_void), release]));
    }

    /// How many blocks and allocators are not given back.
    static LENT: AtomicIsize = AtomicIsize::new(0);

    fn lend<T>(place: *mut *mut T, address: usize) -> Outcome {
        LENT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { *place = without_provenance_mut(address) };
        null_mut()
    }

    unsafe extern "C" fn allocator(_: *const KernelInfo, _: c_int, made: *mut *mut Allocator) -> Outcome {
        lend(made, 0x10)
    }

    unsafe extern "C" fn release_allocator(_: *mut Allocator) {
        LENT.fetch_sub(1, Ordering::Relaxed);
    }

    unsafe extern "C" fn memory(_: *const Allocator, memory: *mut *const MemoryInfo) -> Outcome {
        // SAFETY: as above.
        unsafe { *memory = without_provenance_mut(0x20) };
        null_mut()
    }

    unsafe extern "C" fn device(_: *const MemoryInfo, index: *mut c_int) -> Outcome {
        // SAFETY: as above.
        unsafe { *index = 3 };
        null_mut()
    }

    unsafe extern "C" fn stream(context: *const KernelContext, stream: *mut *mut c_void) -> Outcome {
        // SAFETY: as above.
        unsafe { *stream = context.cast_mut().cast() };
        null_mut()
    }

    unsafe extern "C" fn plain(_: *mut Allocator, _: usize, data: *mut *mut c_void) -> Outcome {
        lend(data, 0x1000)
    }

    unsafe extern "C" fn ordered(
        _: *const KernelContext,
        _: *const MemoryInfo,
        bytes: usize,
        data: *mut *mut c_void,
    ) -> Outcome {
        lend(data, 0x2000 + bytes)
    }

    unsafe extern "C" fn free(_: *mut Allocator, _: *mut c_void) -> Outcome {
        LENT.fetch_sub(1, Ordering::Relaxed);
        null_mut()
    }

    #[test]
    fn a_call_has_the_card_the_stream_and_memory_that_goes_back() {
        let api = Api::played(
            CARDS,
            &[
                (72, device as *const c_void),
                (75, plain as *const c_void),
                (76, free as *const c_void),
                (77, memory as *const c_void),
                (132, release_allocator as *const c_void),
                (193, stream as *const c_void),
                (277, ordered as *const c_void),
                (278, allocator as *const c_void),
            ],
        );
        // SAFETY: the functions above look at neither the node nor the call.
        let card = unsafe { Card::of(api, null()) }.unwrap();
        for (context, address) in [(0x30, 0x2008), (0, 0x1000)] {
            // SAFETY: as above.
            let call = unsafe { CardCall::new(&card, without_provenance_mut(context)) }.unwrap();
            assert_eq!((call.device(), call.stream.addr()), (Device::cuda(3), context));
            assert_eq!(call.allocate(8).unwrap().addr().get(), address);
            call.allocate(0).unwrap();
            assert_eq!(LENT.load(Ordering::Relaxed), 3);
        }
        assert_eq!(LENT.load(Ordering::Relaxed), 1);
        drop(card);
        assert_eq!(LENT.load(Ordering::Relaxed), 0);
    }
}
