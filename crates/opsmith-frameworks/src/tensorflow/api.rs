//! TensorFlow's C functions, found in the process at run time.
//!
//! Nothing is linked: the functions are looked up in `libtensorflow_framework` once it is there, so that one library
//! serves every release.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;

use opsmith_core::fork::OnceLock;
use opsmith_core::tensor::MAX_RANK;
use opsmith_core::{Code, DType, Error, Result};

use crate::process::{self, opened, symbol};

/// `TF_Status*`, owned.
type RawStatus = *mut c_void;
/// `TF_Tensor*`, owned.
pub(super) type RawTensor = *mut c_void;
/// `TF_Buffer*`, owned.
pub(super) type RawBuffer = *mut Buffer;
/// What describes an op until it is registered.
pub(super) type OpBuilder = *mut c_void;
/// What describes a kernel until it is registered.
pub(super) type KernelBuilder = *mut c_void;
/// A call of a kernel, lent.
pub(super) type Context = *mut c_void;
/// The construction of a kernel, lent.
pub(super) type Construction = *mut c_void;
/// An inference of shapes, lent.
pub(super) type ShapeContext = *mut c_void;
/// `TF_ShapeHandle*`, owned.
pub(super) type RawShape = *mut c_void;
/// `TF_DimensionHandle*`, owned.
pub(super) type RawDim = *mut c_void;

/// Makes the state of a kernel for a node.
pub(super) type Create = unsafe extern "C" fn(Construction) -> *mut c_void;
/// Infers the shapes of an op's outputs.
pub(super) type InferShapes = unsafe extern "C" fn(ShapeContext, *mut c_void);
type Compute = unsafe extern "C" fn(*mut c_void, Context);
type Delete = unsafe extern "C" fn(*mut c_void);

const LIBRARY: &CStr = c"libtensorflow_framework.so.2";

/// The Python package has the rest of the C API, of which one function is of use, in another library.
const REST: &CStr = c"libtensorflow_cc.so.2";

/// Bytes that TensorFlow lends.
#[repr(C)]
pub(super) struct Buffer {
    data: *const u8,
    length: usize,
}

/// Where a temporary is wanted: in host memory.
#[repr(C)]
struct AllocatorAttributes {
    size: usize,
    on_host: u8,
}

macro_rules! functions {
    ($($name:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions, in the order of `NAMES`.
        #[allow(non_snake_case)]
        #[repr(C)]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

functions! {
    TF_NewStatus: fn() -> RawStatus;
    TF_DeleteStatus: fn(RawStatus);
    TF_SetStatus: fn(RawStatus, i32, *const c_char);
    TF_SetPayload: fn(RawStatus, *const c_char, *const c_char);
    TF_GetCode: fn(RawStatus) -> i32;
    TF_Message: fn(RawStatus) -> *const c_char;
    TF_DeleteBuffer: fn(RawBuffer);
    TF_DeleteTensor: fn(RawTensor);
    TF_TensorType: fn(RawTensor) -> i32;
    TF_TensorData: fn(RawTensor) -> *mut c_void;
    TF_NumDims: fn(RawTensor) -> i32;
    TF_Dim: fn(RawTensor, i32) -> i64;
    TF_NewOpDefinitionBuilder: fn(*const c_char) -> OpBuilder;
    TF_OpDefinitionBuilderAddAttr: fn(OpBuilder, *const c_char);
    TF_OpDefinitionBuilderAddInput: fn(OpBuilder, *const c_char);
    TF_OpDefinitionBuilderAddOutput: fn(OpBuilder, *const c_char);
    TF_OpDefinitionBuilderSetIsStateful: fn(OpBuilder, bool);
    TF_OpDefinitionBuilderSetShapeInferenceFunction: fn(OpBuilder, InferShapes);
    TF_RegisterOpDefinition: fn(OpBuilder, RawStatus);
    TF_NewKernelBuilder: fn(*const c_char, *const c_char, Create, Compute, Delete) -> KernelBuilder;
    TF_KernelBuilder_TypeConstraint: fn(KernelBuilder, *const c_char, i32, RawStatus);
    TF_KernelBuilder_Priority: fn(KernelBuilder, i32);
    TF_RegisterKernelBuilder: fn(*const c_char, KernelBuilder, RawStatus);
    TF_OpKernelConstruction_GetNodeDef: fn(Construction, RawStatus) -> RawBuffer;
    TF_OpKernelConstruction_Failure: fn(Construction, RawStatus);
    TF_OpKernelContext_Failure: fn(Context, RawStatus);
    TF_GetInput: fn(Context, i32, *mut RawTensor, RawStatus);
    TF_AllocateOutput: fn(Context, i32, i32, *const i64, i32, usize, RawStatus) -> RawTensor;
    TF_ForwardInputOrAllocateOutput:
        fn(Context, *const i32, i32, i32, *const i64, i32, *mut i32, RawStatus) -> RawTensor;
    TF_AllocateTemp: fn(Context, i32, *const i64, i32, *mut c_void, RawStatus) -> RawTensor;
    TF_NewShapeHandle: fn() -> RawShape;
    TF_DeleteShapeHandle: fn(RawShape);
    TF_NewDimensionHandle: fn() -> RawDim;
    TF_DeleteDimensionHandle: fn(RawDim);
    TF_DimensionHandleValue: fn(RawDim) -> i64;
    TF_ShapeInferenceContextNumInputs: fn(ShapeContext) -> i64;
    TF_ShapeInferenceContextGetInput: fn(ShapeContext, i32, RawShape, RawStatus);
    TF_ShapeInferenceContextSetOutput: fn(ShapeContext, i32, RawShape, RawStatus);
    TF_ShapeInferenceContextSetUnknownShape: fn(ShapeContext, RawStatus);
    TF_ShapeInferenceContextScalar: fn(ShapeContext) -> RawShape;
    TF_ShapeInferenceContextVectorFromSize: fn(ShapeContext, usize) -> RawShape;
    TF_ShapeInferenceContextConcatenateShapes: fn(ShapeContext, RawShape, RawShape, RawShape, RawStatus);
    TF_ShapeInferenceContextRank: fn(ShapeContext, RawShape) -> i64;
    TF_ShapeInferenceContextDim: fn(ShapeContext, RawShape, i64, RawDim);
    TF_ShapeInferenceContext_GetAttrType: fn(ShapeContext, *const c_char, *mut i32, RawStatus);
}

const COUNT: usize = NAMES.len();
const _: () = assert!(size_of::<Functions>() == COUNT * size_of::<usize>());

/// `TF_GetRegisteredKernelsForOp`.
type KernelsForOp = unsafe extern "C" fn(*const c_char, RawStatus) -> RawBuffer;

/// TensorFlow, as it is in this process.
pub(super) struct Api {
    pub(super) functions: Functions,
    kernels_for_op: Option<KernelsForOp>,
}

impl Api {
    /// TensorFlow, or `None` when it is not in the process (yet).
    ///
    /// # Errors
    /// `Unimplemented`, with the name of the missing function, for a release that is too old.
    pub(super) fn find() -> Result<Option<&'static Api>> {
        static FOUND: OnceLock<Result<Api>> = OnceLock::new();
        process::find(&FOUND, LIBRARY, Api::resolve)
    }

    fn resolve(handle: *mut c_void) -> Result<Api> {
        let mut addresses = [null_mut(); COUNT];
        for (address, name) in addresses.iter_mut().zip(NAMES) {
            *address = symbol(handle, name);
            if address.is_null() {
                return Err(Error::unimplemented(format!(
                    "this TensorFlow has no `{name}`; Opsmith needs 2.16 or later"
                )));
            }
        }
        // SAFETY: `Functions` is as many pointers, none null. A symbol of this name is a function of this type in
        // every release that has it: they are TensorFlow's C API.
        let functions = unsafe { std::mem::transmute::<[*mut c_void; COUNT], Functions>(addresses) };
        let rest = opened(REST);
        let address = if rest.is_null() { rest } else { symbol(rest, "TF_GetRegisteredKernelsForOp") };
        // SAFETY: as above; null is `None`.
        let kernels_for_op = unsafe { std::mem::transmute::<*mut c_void, Option<KernelsForOp>>(address) };
        Ok(Api { functions, kernels_for_op })
    }

    /// Whether an op of this name has kernels already.
    pub(super) fn has_kernels(&self, op: &CStr) -> bool {
        let Some(kernels_for_op) = self.kernels_for_op else { return false };
        let status = Status::new(self);
        // SAFETY: the name is a C string and the status live.
        let buffer = unsafe { kernels_for_op(op.as_ptr(), status.raw()) };
        BufferGuard { api: self, buffer }.bytes().is_some_and(|bytes| !bytes.is_empty())
    }
}

/// Where a function of the C API says how it went.
pub(super) struct Status<'a> {
    api: &'a Api,
    raw: RawStatus,
}

impl<'a> Status<'a> {
    pub(super) fn new(api: &'a Api) -> Status<'a> {
        // SAFETY: the function has no preconditions.
        Status { api, raw: unsafe { (api.functions.TF_NewStatus)() } }
    }

    /// TensorFlow, whose status it is.
    pub(super) fn api(&self) -> &'a Api {
        self.api
    }

    /// The status, to be passed on; it stays this one's.
    pub(super) fn raw(&self) -> RawStatus {
        self.raw
    }

    /// The error that the function before gave, if it gave one.
    pub(super) fn check(&self) -> Result<()> {
        let functions = &self.api.functions;
        // SAFETY: the status is live; its message is a C string that lives until the status changes.
        unsafe {
            match (functions.TF_GetCode)(self.raw) {
                0 => Ok(()),
                code => {
                    let message = CStr::from_ptr((functions.TF_Message)(self.raw)).to_string_lossy();
                    Err(Error::new(Code::from_i32(code), message.into_owned()))
                }
            }
        }
    }

    /// Makes it say this error.
    pub(super) fn set(&self, error: &Error) {
        // SAFETY: the status is live.
        unsafe { set_status(self.api, self.raw, error) };
    }
}

impl Drop for Status<'_> {
    fn drop(&mut self) {
        // SAFETY: the status is live and ours.
        unsafe { (self.api.functions.TF_DeleteStatus)(self.raw) };
    }
}

/// Makes a status say this error. That it is an op's own is told by a payload, and by one alone: TensorFlow leaks the status of
/// an eager call.
///
/// # Safety
/// `status` must be live.
pub(super) unsafe fn set_status(api: &Api, status: *mut c_void, error: &Error) {
    // A NUL inside a message would end it early.
    let own = |text: &str| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    let message = own(&error.message());
    let op = error.op().map(own);
    // SAFETY: promised by the caller; the codes are TensorFlow's, and it copies what it is given.
    unsafe {
        (api.functions.TF_SetStatus)(status, error.code() as i32, message.as_ptr());
        if let Some(op) = op {
            (api.functions.TF_SetPayload)(status, c"opsmith.op".as_ptr(), op.as_ptr());
        }
    }
}

/// A buffer that is ours to free.
pub(super) struct BufferGuard<'a> {
    pub(super) api: &'a Api,
    pub(super) buffer: RawBuffer,
}

impl BufferGuard<'_> {
    /// Its bytes; `None` when TensorFlow gave none.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        // SAFETY: a buffer that is not null is live, and has as many bytes as it says.
        unsafe {
            let buffer = self.buffer.as_ref()?;
            let empty = buffer.length == 0 || buffer.data.is_null();
            Some(if empty { &[] } else { std::slice::from_raw_parts(buffer.data, buffer.length) })
        }
    }
}

impl Drop for BufferGuard<'_> {
    fn drop(&mut self) {
        if !self.buffer.is_null() {
            // SAFETY: the buffer is live and ours.
            unsafe { (self.api.functions.TF_DeleteBuffer)(self.buffer) };
        }
    }
}

/// A tensor that is ours to let go of.
pub(super) struct Tensor<'a> {
    api: &'a Api,
    raw: RawTensor,
}

impl<'a> Tensor<'a> {
    /// Takes over a tensor.
    ///
    /// # Safety
    /// `raw` must be a live tensor that nobody else frees.
    unsafe fn new(api: &'a Api, raw: RawTensor) -> Tensor<'a> {
        Tensor { api, raw }
    }

    /// Where its elements are.
    pub(super) fn data(&self) -> *mut u8 {
        // SAFETY: the tensor is live.
        unsafe { (self.api.functions.TF_TensorData)(self.raw) }.cast()
    }

    /// TensorFlow's number of its dtype.
    pub(super) fn dtype(&self) -> i32 {
        // SAFETY: the tensor is live.
        unsafe { (self.api.functions.TF_TensorType)(self.raw) }
    }

    /// Its dims.
    pub(super) fn dims(&self) -> impl Iterator<Item = usize> {
        let functions = &self.api.functions;
        // SAFETY: the tensor is live, and has a dim at each of these positions, none negative.
        unsafe { (0..(functions.TF_NumDims)(self.raw)).map(|i| (functions.TF_Dim)(self.raw, i) as usize) }
    }
}

impl Drop for Tensor<'_> {
    fn drop(&mut self) {
        // SAFETY: the tensor is live and ours.
        unsafe { (self.api.functions.TF_DeleteTensor)(self.raw) };
    }
}

/// A call of a kernel: TensorFlow's services, each with the errors that it gives.
pub(super) struct Call<'a> {
    pub(super) api: &'a Api,
    context: Context,
    status: Status<'a>,
}

impl<'a> Call<'a> {
    /// The call behind `context`.
    ///
    /// # Safety
    /// `context` must be live for `'a`.
    pub(super) unsafe fn new(api: &'a Api, context: Context) -> Call<'a> {
        Call { api, context, status: Status::new(api) }
    }

    pub(super) fn input(&self, index: usize) -> Result<Tensor<'a>> {
        let mut raw = null_mut();
        // SAFETY: the context and the status are live, and the pointer is to a local of the right type.
        unsafe {
            (self.api.functions.TF_GetInput)(self.context, index as i32, &mut raw, self.status.raw());
        }
        self.owned(raw)
    }

    /// Makes the output at `index`. `bytes` is its size.
    pub(super) fn allocate_output(
        &self,
        index: usize,
        dtype: DType,
        shape: &[usize],
        bytes: usize,
    ) -> Result<Tensor<'a>> {
        let dims = checked_dims(shape)?;
        // SAFETY: the context and the status are live; there are as many dims as said, and TensorFlow takes them.
        let raw = unsafe {
            (self.api.functions.TF_AllocateOutput)(
                self.context,
                index as i32,
                dtype as i32,
                dims.as_ptr(),
                dims.len() as i32,
                bytes,
                self.status.raw(),
            )
        };
        self.owned(raw)
    }

    /// Makes the output at `index` from one of these inputs, or anew.
    pub(super) fn forward_input(&self, inputs: &[i32], index: usize, shape: &[usize]) -> Result<Tensor<'a>> {
        let dims = checked_dims(shape)?;
        let mut forwarded = -1;
        // SAFETY: as above; the input that was taken is written to a local.
        let raw = unsafe {
            (self.api.functions.TF_ForwardInputOrAllocateOutput)(
                self.context,
                inputs.as_ptr(),
                inputs.len() as i32,
                index as i32,
                dims.as_ptr(),
                dims.len() as i32,
                &mut forwarded,
                self.status.raw(),
            )
        };
        self.owned(raw)
    }

    /// A block of bytes in host memory.
    pub(super) fn allocate_temp(&self, bytes: usize) -> Result<Tensor<'a>> {
        let size = [bytes];
        let dims = checked_dims(&size)?;
        let mut attributes = AllocatorAttributes { size: size_of::<AllocatorAttributes>(), on_host: 1 };
        // SAFETY: as above; the attributes are a structure that says its size, as TensorFlow defines it.
        let raw = unsafe {
            (self.api.functions.TF_AllocateTemp)(
                self.context,
                DType::UInt8 as i32,
                dims.as_ptr(),
                1,
                (&raw mut attributes).cast(),
                self.status.raw(),
            )
        };
        self.owned(raw)
    }

    /// Ends the call with an error.
    pub(super) fn fail(&self, error: &Error) {
        self.status.set(error);
        // SAFETY: the context and the status are live.
        unsafe { (self.api.functions.TF_OpKernelContext_Failure)(self.context, self.status.raw()) };
    }

    fn owned(&self, raw: RawTensor) -> Result<Tensor<'a>> {
        if raw.is_null() {
            self.status.check()?;
            return Err(Error::internal("TensorFlow gave no tensor and no reason"));
        }
        // SAFETY: TensorFlow has just given it to us.
        let tensor = unsafe { Tensor::new(self.api, raw) };
        self.status.check()?;
        Ok(tensor)
    }
}

/// The dims as TensorFlow takes them; it ends the process when there are too many or their product overflows.
fn checked_dims(shape: &[usize]) -> Result<&[i64]> {
    let product = shape.iter().try_fold(1i64, |product, &dim| product.checked_mul(i64::try_from(dim).ok()?));
    if shape.len() > MAX_RANK || product.is_none() {
        return Err(Error::resource_exhausted(format!("shape {shape:?} is larger than TensorFlow can have")));
    }
    // SAFETY: every dim fits an i64, which has the same size here.
    Ok(unsafe { std::slice::from_raw_parts(shape.as_ptr().cast(), shape.len()) })
}

const _: () = assert!(size_of::<usize>() == size_of::<i64>(), "sizes are passed in place");
