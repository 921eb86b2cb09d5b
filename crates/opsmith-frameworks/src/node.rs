//! What nodes of graphs have in common, of TensorFlow's and of ONNX Runtime's: their tensors are dense.

use std::ffi::c_void;
use std::ptr::null;

use opsmith_core::kernel::{CallInputs, Dense};
use opsmith_core::tensor::StrRef;
use opsmith_core::{AttrValue, DType, Device, DeviceKind, Op, Plan, Request, Result, TensorView, panic};
use smallvec::SmallVec;

/// The op of a node, and the plan that what it says leads to.
pub(crate) struct Planned {
    pub(crate) op: &'static Op,
    pub(crate) plan: Plan,
}

impl Planned {
    /// The plan of a node on this kind of device, with these attributes and tensors.
    ///
    /// # Errors
    /// What does not fit the op, or what the kernel's constructor said.
    pub(crate) fn new(
        op: &'static Op,
        attrs: &[Option<AttrValue>],
        dtypes: &[Option<DType>],
        counts: &[usize],
        device: DeviceKind,
    ) -> Result<Planned> {
        let flat = stand_ins(dtypes);
        let inputs = CallInputs { flat: &flat, counts };
        let plan = op.node_plan(&Request { inputs, attrs, device })?;
        Ok(Planned { op, plan })
    }
}

/// An input of a call where it lies.
#[derive(Clone, Copy)]
struct Input {
    /// Null where it is absent or has no elements.
    data: *const u8,
    /// Where its dims are in those of all inputs; of one that is absent, nowhere.
    begin: usize,
    rank: usize,
}

/// The rank of an input that is absent.
const ABSENT: usize = usize::MAX;

/// The elements of each input of text, and what they point to.
type Texts<K> = Vec<(Vec<StrRef>, K)>;

/// The inputs of a call. It is filled where it lies: to hand it out would copy it.
pub(crate) struct Inputs<K = ()> {
    flat: SmallVec<[Input; 4]>,
    dims: SmallVec<[usize; 16]>,
    /// Made for the first input of text: most calls have none.
    texts: Option<Box<Texts<K>>>,
}

impl<K> Inputs<K> {
    pub(crate) fn new() -> Inputs<K> {
        Inputs { flat: SmallVec::new(), dims: SmallVec::new(), texts: None }
    }

    /// The next input, which is absent.
    pub(crate) fn push_absent(&mut self) {
        self.flat.push(Input { data: null(), begin: 0, rank: ABSENT });
    }

    /// The next input, whose elements are at `data`.
    pub(crate) fn push(&mut self, data: *const u8, shape: &[usize]) {
        let begin = self.dims.len();
        // One after another: of a slice, a call of `memcpy` costs more than these few words.
        for &dim in shape {
            self.dims.push(dim);
        }
        self.flat.push(Input { data, begin, rank: shape.len() });
    }

    /// The next input, of text, and what its elements point to.
    pub(crate) fn push_texts(&mut self, texts: Vec<StrRef>, kept: K, shape: &[usize]) {
        self.push(texts.as_ptr().cast(), shape);
        self.texts.get_or_insert_default().push((texts, kept));
    }

    /// The input at a position in the flat order.
    pub(crate) fn at(&self, position: usize) -> Option<Dense<'_>> {
        let Input { data, begin, rank } = self.flat.as_slice()[position];
        (rank != ABSENT).then(|| Dense { data, shape: &self.dims.as_slice()[begin..begin + rank] })
    }
}

/// Tensors without elements of these dtypes, of which a plan can be made.
fn stand_ins(dtypes: &[Option<DType>]) -> Vec<Option<TensorView<'static>>> {
    let stand_in = |dtype: &Option<DType>| {
        // SAFETY: there are no elements.
        dtype.map(|dtype| unsafe {
            TensorView::from_raw_parts(std::ptr::null(), dtype, Device::CPU, &[0], &[1])
        })
    };
    dtypes.iter().map(stand_in).collect()
}

/// Lets go of a node, or of nothing where `kernel` is null.
///
/// # Safety
/// `kernel` must be a box of `N` that nobody uses any more.
pub(crate) unsafe fn delete<N>(kernel: *mut c_void) {
    if !kernel.is_null() {
        // SAFETY: promised by the caller.
        let node = unsafe { Box::from_raw(kernel.cast::<N>()) };
        // A panic in the drop of an author's kernel ends here, and there is nobody to tell.
        let _ = panic::catch(|| {
            drop(node);
            Ok(())
        });
    }
}
