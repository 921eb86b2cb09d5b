//! What nodes of graphs have in common, of TensorFlow's and of ONNX Runtime's: their tensors are dense and in host memory.

use std::ffi::c_void;
use std::ops::Range;

use opsmith_core::kernel::CallInputs;
use opsmith_core::tensor::{StrRef, row_major_strides};
use opsmith_core::{AttrValue, DType, Device, DeviceKind, Op, Plan, Request, Result, TensorView, panic};
use smallvec::SmallVec;

/// What a node says decides, and the plan that it leads to.
pub(crate) struct Planned {
    pub(crate) op: &'static Op,
    pub(crate) plan: Plan,
    /// The dtype of each tensor, nothing for one that is absent.
    pub(crate) dtypes: Vec<Option<DType>>,
    /// How many tensors each input holds.
    pub(crate) counts: Vec<usize>,
}

impl Planned {
    /// The plan of a node with these attributes and tensors.
    ///
    /// # Errors
    /// What does not fit the op, or what the kernel's constructor said.
    pub(crate) fn new(
        op: &'static Op,
        attrs: &[Option<AttrValue>],
        dtypes: Vec<Option<DType>>,
        counts: Vec<usize>,
    ) -> Result<Planned> {
        let flat = stand_ins(&dtypes);
        let inputs = CallInputs { flat: &flat, counts: &counts };
        let plan = op.node_plan(&Request { inputs, attrs, device: DeviceKind::Cpu })?;
        Ok(Planned { op, plan, dtypes, counts })
    }

    /// Adds the tensors of a call to `views`: to give them back would copy all that there is room for.
    ///
    /// # Safety
    /// Their elements must be there for `'a`. What is not aligned the plan copies.
    pub(crate) unsafe fn view<'a, K>(&self, inputs: &'a Inputs<K>, views: &mut Views<'a>) {
        let mut present = inputs.present.iter();
        for dtype in &self.dtypes {
            let input = dtype.and_then(|_| present.next());
            views.push(input.map(|Input { dtype, data, dims }| {
                let (shape, strides) = (&inputs.shapes[dims.clone()], &inputs.strides[dims.clone()]);
                // SAFETY: promised by the caller; the elements are dense and row-major.
                unsafe { TensorView::from_raw_parts(*data, *dtype, Device::CPU, shape, strides) }
            }));
        }
    }
}

/// The tensors of a call, nothing for one that is absent.
pub(crate) type Views<'a> = SmallVec<[Option<TensorView<'a>>; 8]>;

/// An input of a call where it lies.
struct Input {
    dtype: DType,
    data: *const u8,
    /// Where its dims and strides are in those of all inputs.
    dims: Range<usize>,
}

/// The inputs of a call that are there. It is filled where it lies: to hand it out would copy it.
pub(crate) struct Inputs<K = ()> {
    present: SmallVec<[Input; 8]>,
    shapes: SmallVec<[usize; 24]>,
    strides: SmallVec<[isize; 24]>,
    /// The elements of those of text, and what they point to.
    texts: Vec<(Vec<StrRef>, K)>,
}

impl<K> Inputs<K> {
    pub(crate) fn new() -> Inputs<K> {
        Inputs {
            present: SmallVec::new(),
            shapes: SmallVec::new(),
            strides: SmallVec::new(),
            texts: Vec::new(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.present.len()
    }

    /// The next input, whose elements are at `data`.
    pub(crate) fn push(&mut self, dtype: DType, data: *const u8, shape: &[usize]) {
        let begin = self.shapes.len();
        self.shapes.extend_from_slice(shape);
        self.strides.extend_from_slice(&row_major_strides(shape));
        self.present.push(Input { dtype, data, dims: begin..self.shapes.len() });
    }

    /// The next input, of text, and what its elements point to.
    pub(crate) fn push_texts(&mut self, texts: Vec<StrRef>, kept: K, shape: &[usize]) {
        self.push(DType::String, texts.as_ptr().cast(), shape);
        self.texts.push((texts, kept));
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
