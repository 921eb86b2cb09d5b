//! One call of an op on a card: what a launch function is given.

use std::ffi::c_void;
use std::marker::PhantomData;

use opsmith_core::kernel::{ArgKey, OpKernelContext};
use opsmith_core::tensor::checked_num_elements;
use opsmith_core::{Device, Error, Result, ensure};

use crate::arguments::Arguments;
use crate::array::DeviceArray;
use crate::launch::Launch;
use crate::source::Source;
use crate::view::{CudaElement, DeviceLayout, DeviceTensor, DeviceView, DeviceViewMut, Index};

/// How many threads a block has where nothing else is said.
pub const BLOCK: usize = 256;

/// A call on a card: its stream, temporary memory, and the kernels of a source.
///
/// Nothing here waits for the card, or takes memory that is not the caller's: so a call may be captured in a CUDA graph.
pub struct CudaCall<'a> {
    context: &'a OpKernelContext<'a>,
    source: &'a Source,
}

impl<'a> CudaCall<'a> {
    /// The call of this context, with the kernels of a source.
    pub fn new(context: &'a OpKernelContext<'a>, source: &'a Source) -> CudaCall<'a> {
        CudaCall { context, source }
    }

    /// The same call, with the kernels of another source.
    pub fn with<'s>(&'s self, source: &'s Source) -> CudaCall<'s> {
        CudaCall { context: self.context, source }
    }

    /// The card.
    pub fn device(&self) -> Device {
        self.context.device()
    }

    /// The stream that the call's work goes on, a `CUstream`.
    pub fn stream(&self) -> *mut c_void {
        self.context.stream()
    }

    /// An input on the card.
    ///
    /// # Errors
    /// As [`OpKernelContext::input`], and `InvalidArgument` when the dtype is not `T`.
    pub fn input<T: CudaElement>(&self, key: impl ArgKey) -> Result<DeviceView<'a, T>> {
        DeviceView::new(self.context.input(key)?)
    }

    /// An optional input on the card, `None` when it is absent.
    ///
    /// # Errors
    /// As [`input`](Self::input).
    pub fn optional_input<T: CudaElement>(&self, key: impl ArgKey) -> Result<Option<DeviceView<'a, T>>> {
        self.context.optional_input(key)?.map(DeviceView::new).transpose()
    }

    /// Makes an output on the card, dense, row-major and uninitialised.
    ///
    /// # Errors
    /// As [`OpKernelContext::allocate_output`], and `InvalidArgument` when the dtype is not `T`.
    pub fn output<T: CudaElement>(&self, key: impl ArgKey, shape: &[usize]) -> Result<DeviceViewMut<'a, T>> {
        DeviceViewMut::new(self.context.allocate_output(key, shape)?)
    }

    /// Memory on the card for `len` elements, uninitialised, which the caller takes back when the work that the call puts on
    /// the stream is done.
    ///
    /// # Errors
    /// `Unimplemented` where the caller lends none; `ResourceExhausted` when it has none left.
    pub fn temp<T: CudaElement>(&self, len: usize) -> Result<Temp<T>> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize);
        let bytes = bytes.ok_or_else(|| {
            Error::resource_exhausted(format!("a temporary of {len} {} elements is too large", T::DTYPE))
        })?;
        let data = self.context.device_temp(bytes)?.as_ptr();
        Ok(Temp { data, shape: [len], elements: PhantomData })
    }

    /// A kernel of the source by its name, `doubled`, or of a template with its arguments, `doubled<float, int>`: to be launched
    /// with one block of [`BLOCK`] threads unless more is said.
    pub fn kernel(&self, name: impl Into<String>) -> KernelCall<'_> {
        let launch = Launch {
            source: self.source,
            kernel: name.into(),
            grid: [1; 3],
            block: [BLOCK as u32, 1, 1],
            shared: 0,
            arguments: Arguments::default(),
        };
        KernelCall { context: self.context, launch, failed: None }
    }
}

/// Temporary memory on a card, one element after another.
#[derive(Debug)]
pub struct Temp<T> {
    data: *mut u8,
    shape: [usize; 1],
    elements: PhantomData<T>,
}

impl<T: CudaElement> Temp<T> {
    /// The memory as a dense, row-major array of this shape.
    ///
    /// # Errors
    /// `Internal` when it has not as many elements.
    pub fn array(&self, shape: &[usize]) -> Result<DeviceArray<'_, T>> {
        let [len] = self.shape;
        ensure!(
            checked_num_elements(shape) == Some(len),
            Internal,
            "a temporary of {len} elements has not the shape {shape:?}"
        );
        Ok(DeviceArray::dense(self.data.cast(), shape))
    }
}

impl<T: CudaElement> DeviceTensor for Temp<T> {
    fn layout(&self) -> DeviceLayout<'_> {
        DeviceLayout { data: self.data, shape: &self.shape, strides: &[1] }
    }
}

/// A launch in preparation: geometry, then the arguments in the order of the kernel's parameters.
///
/// What is wrong on the way, [`launch`](Self::launch) tells.
#[must_use = "nothing is launched before `launch`"]
pub struct KernelCall<'a> {
    context: &'a OpKernelContext<'a>,
    launch: Launch<'a>,
    failed: Option<Error>,
}

impl KernelCall<'_> {
    /// How many blocks, along x, y and z. With 0 of them there is no work, and none is launched.
    pub fn grid(mut self, blocks: [usize; 3]) -> Self {
        for (own, &blocks) in self.launch.grid.iter_mut().zip(&blocks) {
            match u32::try_from(blocks) {
                Ok(blocks) => *own = blocks,
                Err(_) => {
                    let message = format!(
                        "a grid of {blocks} blocks is too large; let threads go on by the grid's size"
                    );
                    self.failed.get_or_insert(Error::invalid_argument(message));
                }
            }
        }
        self
    }

    /// As many blocks of [`BLOCK`] threads as elements take, for a kernel that goes on by the size of the grid: never more than
    /// fill every card.
    pub fn for_each(self, elements: usize) -> Self {
        const MOST: usize = 1 << 16;
        let mut this = self.grid([elements.div_ceil(BLOCK).min(MOST), 1, 1]);
        this.launch.block = [BLOCK as u32, 1, 1];
        this
    }

    /// How many threads a block has, along x, y and z.
    pub fn block(mut self, threads: [u32; 3]) -> Self {
        self.launch.block = threads;
        self
    }

    /// How many bytes of shared memory a block gets beside what the kernel declares: `OPSMITH_DYNAMIC_SHARED`.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.launch.shared = bytes;
        self
    }

    /// A number.
    pub fn value<T: CudaElement>(mut self, value: T) -> Self {
        self.launch.arguments.value(value);
        self
    }

    /// An integer of the type of indices.
    pub fn index(self, value: usize, index: Index) -> Self {
        self.with(|arguments| arguments.index(value, index).map(drop))
    }

    /// A tensor of `N` dims: a `PackedAccessor` of the type and the index.
    pub fn tensor<const N: usize>(self, tensor: &dyn DeviceTensor, index: Index) -> Self {
        self.with(|arguments| arguments.tensor::<N>(tensor, index).map(drop))
    }

    /// A tensor of any number of dims: a `FlatAccessor` of the type and the index.
    pub fn flat(self, tensor: &dyn DeviceTensor, index: Index) -> Self {
        self.with(|arguments| arguments.flat(tensor, index).map(drop))
    }

    /// The address of the first element of a tensor whose elements lie one after another: a pointer.
    pub fn pointer(mut self, tensor: &dyn DeviceTensor) -> Self {
        self.launch.arguments.address(tensor.layout().data.cast());
        self
    }

    /// As [`pointer`](Self::pointer), null for a tensor that is absent.
    pub fn optional_pointer(self, tensor: Option<&dyn DeviceTensor>) -> Self {
        self.address(tensor.map_or(std::ptr::null(), |tensor| tensor.layout().data.cast_const().cast()))
    }

    /// Any address on the card, or null.
    pub fn address(mut self, address: *const c_void) -> Self {
        self.launch.arguments.address(address);
        self
    }

    /// A structure by its bytes, padding and all.
    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.launch.arguments.raw(bytes);
        self
    }

    pub(crate) fn with(mut self, add: impl FnOnce(&mut Arguments) -> Result<()>) -> Self {
        if let Err(error) = add(&mut self.launch.arguments) {
            self.failed.get_or_insert(error);
        }
        self
    }

    /// Puts the kernel on the call's stream. Its first use in a process compiles it, or finds it in the cache.
    ///
    /// # Errors
    /// What was wrong on the way; `FailedPrecondition` where there is no driver, no NVRTC, or one too old; `Internal` with the
    /// compiler's messages when the source does not compile; what the driver says.
    ///
    /// # Safety
    /// The arguments must be those that the kernel's parameters take, in number, order and type, and the kernel must stay within
    /// the memory that they tell of: no compiler checks either.
    pub unsafe fn launch(self) -> Result<()> {
        let within = |error: Error, kernel: &str| error.within(format_args!("kernel `{kernel}`"));
        if let Some(error) = self.failed {
            return Err(within(error, &self.launch.kernel));
        }
        // SAFETY: promised by the caller; the caller lends the memory and the stream of the call's card.
        unsafe { self.launch.run(self.context.device().index, self.context.stream()) }
    }
}
