//! A double of a card in host memory: that memory is used again, given back and never twice, and what reaches a kernel. It
//! shows nothing of a device, or of the driver.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use ndarray::{Ix1, Ix2, array};
use opsmith_core::{AttrValue, Code, DType, Error};
use opsmith_cuda::testing::processor;
use opsmith_cuda::{Launch, with_launches_to};

use super::memory::RawMemory;
use super::*;
use crate::library::{Library, Op};
use crate::{Arg, Tensor};

/// What a double has lent, and may lend.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) bytes: AtomicUsize,
    pub(crate) asked: AtomicUsize,
    pub(crate) copied_in: AtomicUsize,
    pub(crate) copied_out: AtomicUsize,
    pub(crate) waited: AtomicUsize,
    /// Copies out, which come when they are waited for and not before.
    coming: Mutex<Vec<(usize, Vec<u8>)>>,
    capacity: usize,
}

struct Double(Arc<Ledger>);

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).unwrap()
}

/// In front of each block, its size.
const HEAD: usize = 256;

// SAFETY: blocks are from the global allocator, aligned to 256 bytes.
unsafe impl RawMemory for Double {
    fn stream(&self) -> *mut c_void {
        0x5EED as *mut c_void
    }

    fn allocate(&self, bytes: usize) -> Result<NonNull<u8>> {
        let Ledger { bytes: lent, asked, capacity, .. } = &*self.0;
        asked.fetch_add(1, Ordering::Relaxed);
        if lent.load(Ordering::Relaxed) + bytes > *capacity {
            return Err(Error::resource_exhausted("the double is full"));
        }
        lent.fetch_add(bytes, Ordering::Relaxed);
        // SAFETY: the layout is not empty, and the head has room for a number.
        unsafe {
            let start = alloc(layout(HEAD + bytes));
            start.cast::<usize>().write(bytes);
            // NaN: nobody may count on zeros.
            start.add(HEAD).write_bytes(0xFF, bytes);
            Ok(NonNull::new(start).unwrap().add(HEAD))
        }
    }

    unsafe fn free(&self, data: NonNull<u8>) {
        // SAFETY: it came from `allocate`.
        unsafe {
            let start = data.as_ptr().sub(HEAD);
            let bytes = start.cast::<usize>().read();
            self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
            dealloc(start, layout(HEAD + bytes));
        }
    }

    unsafe fn copy_in(&self, to: NonNull<u8>, from: *const u8, bytes: usize) -> Result<()> {
        self.0.copied_in.fetch_add(1, Ordering::Relaxed);
        // SAFETY: promised by the caller; an empty tensor may have no memory.
        unsafe { to.as_ptr().copy_from_nonoverlapping(from, bytes) };
        Ok(())
    }

    unsafe fn copy_out(&self, to: *mut u8, from: NonNull<u8>, bytes: usize) -> Result<()> {
        self.0.copied_out.fetch_add(1, Ordering::Relaxed);
        // SAFETY: promised by the caller.
        let now = unsafe { std::slice::from_raw_parts(from.as_ptr(), bytes) }.to_vec();
        self.0.coming.lock().push((to as usize, now));
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        self.0.waited.fetch_add(1, Ordering::Relaxed);
        for (to, bytes) in self.0.coming.lock().drain(..) {
            // SAFETY: promised by who asked for the copy, until now.
            unsafe { (to as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        Ok(())
    }
}

pub(crate) fn double_of(capacity: usize, index: i32) -> (Card, Arc<Ledger>) {
    let ledger = Arc::new(Ledger { capacity, ..Ledger::default() });
    let allocator = Allocator::new(Device::cuda(index), Box::new(Double(ledger.clone())));
    (Card { allocator }, ledger)
}

fn double() -> (Card, Arc<Ledger>) {
    double_of(1 << 30, 0)
}

/// Runs what is launched on the processor; nothing, where there is no compiler for it.
pub(crate) fn on_processor<R>(body: impl FnOnce() -> R) -> Option<R> {
    if !processor::can_run() {
        return None;
    }
    // SAFETY: the double's memory is host memory.
    let run = |launch: &mut Launch<'_>| unsafe { processor::run(launch) };
    Some(with_launches_to(&mut { run }, body))
}

fn op(name: &str) -> Op {
    Library::standard().and_then(|library| library.op(name)).unwrap()
}

#[test]
fn tensors_go_in_and_come_out_as_they_are() {
    let (device, _) = double();
    let x = Tensor::from(array![[1f32, 2., 3.], [4., 5., 6.]].reversed_axes());
    let there = x.to_cuda(&device).unwrap();
    assert_eq!(
        (there.dtype(), there.shape(), there.device()),
        (DType::Float32, &[3, 2][..], device.device())
    );
    assert_eq!(format!("{there:?}"), "Tensor(float32[3, 2] on CUDA:0)");
    assert_eq!(
        there.to(Device::CPU).unwrap().view::<f32, Ix2>().unwrap(),
        array![[1., 4.], [2., 5.], [3., 6.]]
    );
    let turned = there.transpose(&[1, 0]).unwrap();
    let turned = turned.to(Device::CPU).unwrap();
    assert_eq!(turned.view::<f32, Ix2>().unwrap(), array![[1., 2., 3.], [4., 5., 6.]]);
    let none = Tensor::zeros(DType::Float64, &[0, 3]).unwrap();
    assert_eq!(none.to_cuda(&device).unwrap().to(Device::CPU).unwrap().shape(), [0, 3]);
    let one = Tensor::from_slice(&[7i64], &[]).unwrap();
    assert_eq!(one.to_cuda(&device).unwrap().to(Device::CPU).unwrap().to_vec::<i64>().unwrap(), [7]);
    let error = Tensor::from_strings(&["a"], &[1]).unwrap().to_cuda(&device).unwrap_err();
    assert_eq!(error.message(), "a string tensor cannot be on CUDA:0");
}

#[test]
fn memory_is_shared_by_clones_and_serves_again_when_the_last_is_gone() {
    let (device, ledger) = double();
    let x = Tensor::zeros(DType::Float32, &[1000]).unwrap();
    let first = x.to_cuda(&device).unwrap();
    let clone = first.clone();
    assert_eq!(device.memory_use(), MemoryUse { live: 4096, peak: 4096 });
    let address = first.as_view().data_ptr();
    drop(first);
    let second = x.to_cuda(&device).unwrap();
    assert_ne!(second.as_view().data_ptr(), address, "the clone has it still");
    drop(clone);
    // Of nearly the size, it serves; for what is much smaller it is kept.
    let third = Tensor::zeros(DType::Float32, &[950]).unwrap().to_cuda(&device).unwrap();
    assert_eq!(third.as_view().data_ptr(), address);
    drop(second);
    let small = Tensor::zeros(DType::Float32, &[10]).unwrap().to_cuda(&device).unwrap();
    assert_eq!(ledger.asked.load(Ordering::Relaxed), 3);
    assert_eq!(device.memory_use(), MemoryUse { live: 4096 + 512, peak: 8192 });
    device.release_memory();
    assert_eq!(ledger.bytes.load(Ordering::Relaxed), 4096 + 512, "what is in use stays");
    drop((third, small));
    drop(device);
    assert_eq!(ledger.bytes.load(Ordering::Relaxed), 0, "all went back");
}

#[test]
fn a_full_device_first_gets_back_what_is_kept() {
    let (device, ledger) = double_of(8192, 0);
    let of = |count: usize| Tensor::zeros(DType::UInt8, &[count]).unwrap();
    drop(of(6000).to_cuda(&device).unwrap());
    let large = of(8000).to_cuda(&device).unwrap();
    assert_eq!(ledger.bytes.load(Ordering::Relaxed), 8192);
    let error = of(1).to_cuda(&device).unwrap_err();
    assert_eq!((error.code(), &*error.message()), (Code::ResourceExhausted, "the double is full"));
    drop(large);
    assert!(of(1).to_cuda(&device).is_ok());
}

#[test]
fn a_call_runs_the_cuda_kernel_on_the_devices_memory() {
    let (device, _) = double();
    let x = Tensor::from(array![[1f32, -2., 3.], [-4., 5., 6.]]);
    let y = Tensor::from(array![0.5f32, 2., -1.]);
    let (there, beside) = (x.to_cuda(&device).unwrap(), y.to_cuda(&device).unwrap());
    // With the temporary memory that sums of what was repeated take.
    let attrs = [];
    let args = [(&there).into(), (&beside).into(), (&there).into()];
    let Some(found) = on_processor(|| op("MulGrad").call(&args, &attrs)) else { return };
    let expected = op("MulGrad").call(&[Arg::from(&x), Arg::from(&y), Arg::from(&x)], &[]).unwrap();
    let found = found.unwrap();
    assert_eq!(found.len(), 2);
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.device(), device.device());
        let (found, expected) =
            (found.to(Device::CPU).unwrap().to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
        let close = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-5 * b.abs().max(1.0));
        assert!(close, "{found:?} {expected:?}");
    }
    // What one call gave goes into the next, where it is.
    let chained = on_processor(|| {
        let doubled = op("Add").call(&[(&there).into(), (&there).into()], &[])?;
        op("Sum").call(&[(&doubled[0]).into()], &[("axes", AttrValue::Ints(vec![1]))])
    });
    let sums = chained.unwrap().unwrap()[0].to(Device::CPU).unwrap();
    assert_eq!(sums.view::<f32, Ix1>().unwrap(), array![4., 14.]);
}

#[test]
fn an_input_that_the_kernel_has_in_host_memory_stays_there() {
    let (device, _) = double();
    let x = Tensor::from(array![1f32, 2.]).to_cuda(&device).unwrap();
    let paddings = Tensor::from(array![[1i64, 2]]);
    let called = on_processor(|| op("Pad").call(&[(&x).into(), (&paddings).into()], &[]));
    let Some(padded) = called else { return };
    let padded = padded.unwrap()[0].to(Device::CPU).unwrap();
    assert_eq!(padded.to_vec::<f32>().unwrap(), [0., 1., 2., 0., 0.]);
}

#[test]
fn what_cannot_run_on_the_device_is_refused_before_anything_is_written() {
    let (device, _) = double();
    let other = double_of(1 << 20, 1).0;
    let x = Tensor::from(array![1f32, 2.]);
    let (here, there) = (x.to_cuda(&device).unwrap(), x.to_cuda(&other).unwrap());
    let refused = |op: &Op, args: &[Arg<'_>]| op.call(args, &[]).unwrap_err().message().to_owned();
    assert_eq!(op("Neg").call(&[(&x).into()], &[]).unwrap()[0].device(), Device::CPU);
    assert_eq!(
        refused(&op("Add"), &[(&here).into(), (&there).into()]),
        "Add: input `y` must be on CUDA:0, where input `x` is, got one on CUDA:1: move it by `to`"
    );
    assert_eq!(
        refused(&op("Add"), &[(&here).into(), (&x).into()]),
        "Add: input `y` must be on CUDA:0, where input `x` is, got one on CPU:0: move it by `to`"
    );
    assert_eq!(refused(&op("Add"), &[(&here).into()]), "Add: takes 2 inputs (x, y), got 1");
    let list = [here.clone()];
    assert_eq!(refused(&op("Neg"), &[list[..].into()]), "Neg: input `x` must be one tensor, got a list");
    let error = op("Unique").call(&[(&here).into()], &[]).unwrap_err();
    assert_eq!((error.code(), &*error.message()), (Code::Unimplemented, "Unique: has no CUDA kernel"));
}

#[test]
fn without_a_driver_a_device_is_an_error_that_says_what_to_do() {
    match Card::open(0) {
        Ok(device) => assert_eq!(device.device(), Device::cuda(0)),
        Err(error) => {
            assert_eq!(error.code(), Code::FailedPrecondition);
            assert!(error.message().contains("NVIDIA driver"), "{error}");
        }
    }
}
