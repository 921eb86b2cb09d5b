//! What the caller lends: outputs with an edge around them that nobody may write to, threads, a place for text.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::ffi::{c_char, c_void};

use opsmith_core::abi::{OpsmithParallelBody, OpsmithStr};
use opsmith_core::{DType, Signature};

/// How wide the edges are. The sanitizer has its own, which begin where the output ends.
const EDGE: usize = if cfg!(feature = "guided") { 0 } else { 64 };

/// What edges are full of, and outputs before they are written.
const UNTOUCHED: u8 = 0xa5;

/// No output is larger.
const MOST: usize = 1 << 20;

/// An output.
struct Made {
    index: usize,
    dtype: DType,
    bytes: usize,
    block: *mut u8,
    layout: Layout,
}

impl Made {
    fn content(&self) -> &[u8] {
        // SAFETY: the block has the edges and these bytes.
        unsafe { std::slice::from_raw_parts(self.block.add(EDGE), self.bytes) }
    }

    fn edges(&self) -> impl Iterator<Item = &u8> {
        // SAFETY: as above.
        let [before, after] =
            [0, EDGE + self.bytes].map(|at| unsafe { std::slice::from_raw_parts(self.block.add(at), EDGE) });
        before.iter().chain(after)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // SAFETY: it was allocated so.
        unsafe { dealloc(self.block, self.layout) };
    }
}

#[derive(Default)]
pub(super) struct Lent {
    made: RefCell<Vec<Made>>,
    texts: RefCell<Vec<Box<[u8]>>>,
}

impl Lent {
    /// No edge was written to, and no output was asked for twice.
    pub(super) fn check(&self) {
        let made = self.made.borrow();
        for (index, output) in made.iter().enumerate() {
            assert!(
                output.edges().all(|byte| *byte == UNTOUCHED),
                "output {}: its edge is written to",
                output.index
            );
            assert!(made[..index].iter().all(|other| other.index != output.index), "asked for twice");
        }
    }

    /// Every output that is wanted is there, and has values of its dtype.
    pub(super) fn check_outputs(&self, counts: &[usize], signature: &Signature, wanted: u64) {
        let mut first = 0;
        for (arg, (def, &count)) in signature.outputs.iter().zip(counts).enumerate() {
            let is_wanted = !def.optional || wanted >> arg & 1 == 1;
            for index in first..first + count {
                let made = self.made.borrow();
                let output = made.iter().find(|output| output.index == index);
                assert!(output.is_some() || !is_wanted, "{}: output {index} is not made", signature.name);
                output.into_iter().for_each(|output| self.check_values(output));
            }
            first += count;
        }
    }

    fn check_values(&self, output: &Made) {
        match output.dtype {
            DType::Bool => {
                assert!(output.content().iter().all(|byte| *byte <= 1), "a truth value that is none");
            }
            DType::String => {
                for at in 0..output.bytes / size_of::<OpsmithStr>() {
                    // SAFETY: the block has so many.
                    let text =
                        unsafe { output.content().as_ptr().cast::<OpsmithStr>().add(at).read_unaligned() };
                    let texts = self.texts.borrow();
                    let mut kept = texts.iter().map(|own| (own.as_ptr(), own.len()));
                    assert!(
                        text.len == 0 || kept.any(|own| own == (text.data.cast(), text.len)),
                        "text that was not kept"
                    );
                }
            }
            _ => {}
        }
    }
}

pub(super) unsafe extern "C" fn allocate_output(
    context: *mut c_void,
    index: usize,
    dtype: i32,
    rank: i32,
    shape: *const i64,
) -> *mut c_void {
    // SAFETY: the context is what was lent, and the shape has so many dims.
    let (lent, shape) = unsafe {
        let dims = if rank == 0 { &[][..] } else { std::slice::from_raw_parts(shape, rank as usize) };
        (&*context.cast::<Lent>(), dims)
    };
    let dtype = u8::try_from(dtype).ok().and_then(DType::from_u8).expect("it is a dtype");
    assert!(shape.iter().all(|dim| *dim >= 0), "a negative dim: {shape:?}");
    let size = shape.iter().try_fold(dtype.size(), |size, dim| size.checked_mul(*dim as usize));
    let Some(bytes) = size.filter(|bytes| *bytes <= MOST) else { return std::ptr::null_mut() };
    let layout = Layout::from_size_align((bytes + 2 * EDGE).max(1), 64).expect("it is small");
    // SAFETY: the size is not 0, and the block is as large.
    let block = unsafe {
        let block = alloc(layout);
        block.write_bytes(UNTOUCHED, layout.size());
        let content = if dtype == DType::String { 0 } else { UNTOUCHED };
        block.add(EDGE).write_bytes(content, bytes);
        block
    };
    lent.made.borrow_mut().push(Made { index, dtype, bytes, block, layout });
    // SAFETY: the block begins with the edge.
    unsafe { block.add(EDGE).cast() }
}

pub(super) unsafe extern "C" fn keep_string(context: *mut c_void, bytes: OpsmithStr) -> *const c_char {
    // SAFETY: the context is what was lent, and the text can be read.
    let (lent, text) = unsafe { (&*context.cast::<Lent>(), bytes.as_bytes()) };
    let text: Box<[u8]> = text.into();
    let at = text.as_ptr();
    lent.texts.borrow_mut().push(text);
    at.cast()
}

pub(super) unsafe extern "C" fn num_threads(_: *mut c_void) -> usize {
    3
}

/// One range after another, on the thread that asks.
pub(super) unsafe extern "C" fn parallel_for(
    _: *mut c_void,
    total: usize,
    grain: usize,
    body: OpsmithParallelBody,
    body_context: *mut c_void,
) {
    let step = grain.max(total.div_ceil(3)).max(1);
    for begin in (0..total).step_by(step) {
        // SAFETY: the ranges are within what is asked for, and do not overlap.
        unsafe { body(begin, total.min(begin + step), body_context) };
    }
}
