//! A model of ONNX in ONNX Runtime, whose library is opened when the server starts: nothing of it is linked.
//!
//! Its C API is an array of functions, to which releases only append; those used here are in all releases from 1.17 on.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use anyhow::{Context, Result as Loaded, anyhow, bail, ensure};
use libloading::os::unix::{Library as SharedObject, RTLD_LOCAL, RTLD_NOW};
use opsmith_core::tensor::row_major_strides;
use opsmith_core::{Code, DType, Dim, Error, Result, Shape};
use opsmith_runtime::{Graph, Tensor};

use crate::apart;
use crate::model::{Argument, Model};
use crate::options::Options;

/// A structure of ONNX Runtime's.
#[repr(C)]
struct Opaque {
    _private: [u8; 0],
}

type Outcome = *mut Opaque;

/// What the library gives: `OrtApiBase`.
#[repr(C)]
struct Base {
    get_api: unsafe extern "C" fn(u32) -> *const *const c_void,
    version: unsafe extern "C" fn() -> *const c_char,
}

/// The least grave of what ONNX Runtime writes to the standard error: answers have the errors of requests.
const FATAL: c_int = 4;

/// The version of the API that is asked for: that of release 1.17.
const VERSION: u32 = 17;

/// The functions of ONNX Runtime.
#[derive(Clone, Copy)]
struct Api(*const *const c_void);

// SAFETY: the array is never written, and lives as long as the process: the library is not closed.
unsafe impl Send for Api {}
// SAFETY: as above.
unsafe impl Sync for Api {}

macro_rules! functions {
    ($($name:ident = $index:literal: fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        impl Api {
            $(fn $name(self) -> unsafe extern "C" fn($($arg),*) $(-> $ret)? {
                // SAFETY: the array has a function of this type at this place.
                unsafe {
                    std::mem::transmute::<*const c_void, unsafe extern "C" fn($($arg),*) $(-> $ret)?>(*self.0.add($index))
                }
            })*
        }
    };
}

functions! {
    error_code = 1: fn(*const Opaque) -> c_int;
    error_message = 2: fn(*const Opaque) -> *const c_char;
    create_env = 3: fn(c_int, *const c_char, *mut *mut Opaque) -> Outcome;
    create_session = 7: fn(*const Opaque, *const c_char, *const Opaque, *mut *mut Opaque) -> Outcome;
    run = 9: fn(*mut Opaque, *const Opaque, *const *const c_char, *const *const Opaque, usize, *const *const c_char, usize, *mut *mut Opaque) -> Outcome;
    create_options = 10: fn(*mut *mut Opaque) -> Outcome;
    set_threads = 24: fn(*mut Opaque, c_int) -> Outcome;
    input_count = 30: fn(*const Opaque, *mut usize) -> Outcome;
    output_count = 31: fn(*const Opaque, *mut usize) -> Outcome;
    input_type = 33: fn(*const Opaque, usize, *mut *mut Opaque) -> Outcome;
    output_type = 34: fn(*const Opaque, usize, *mut *mut Opaque) -> Outcome;
    input_name = 36: fn(*const Opaque, usize, *mut Opaque, *mut *mut c_char) -> Outcome;
    output_name = 37: fn(*const Opaque, usize, *mut Opaque, *mut *mut c_char) -> Outcome;
    create_tensor = 49: fn(*const Opaque, *mut c_void, usize, *const i64, usize, c_int, *mut *mut Opaque) -> Outcome;
    tensor_data = 51: fn(*mut Opaque, *mut *mut c_void) -> Outcome;
    tensor_info_of_type = 55: fn(*const Opaque, *mut *const Opaque) -> Outcome;
    element_type = 60: fn(*const Opaque, *mut c_int) -> Outcome;
    rank = 61: fn(*const Opaque, *mut usize) -> Outcome;
    dimensions = 62: fn(*const Opaque, *mut i64, usize) -> Outcome;
    tensor_info = 65: fn(*const Opaque, *mut *mut Opaque) -> Outcome;
    cpu_memory = 69: fn(c_int, c_int, *mut *mut Opaque) -> Outcome;
    free = 76: fn(*mut Opaque, *mut c_void) -> Outcome;
    default_allocator = 78: fn(*mut *mut Opaque) -> Outcome;
    release_status = 93: fn(Outcome);
    release_value = 96: fn(*mut Opaque);
    release_type_info = 98: fn(*mut Opaque);
    release_tensor_info = 99: fn(*mut Opaque);
    register_library = 228: fn(*mut Opaque, *const c_char) -> Outcome;
}

/// Whether tensors of the dtype are served: text is not.
fn is_served(dtype: DType) -> bool {
    dtype != DType::String
}

fn dtype_of(code: c_int) -> Result<DType> {
    let served = DType::from_onnx(code).filter(|dtype| is_served(*dtype));
    served
        .ok_or_else(|| Error::unimplemented(format!("is of ONNX's dtype number {code}, which is not served")))
}

impl Api {
    /// The error that an outcome is.
    ///
    /// # Safety
    /// The outcome must be of one of the functions, and used once.
    unsafe fn check(self, outcome: Outcome) -> Result<()> {
        if outcome.is_null() {
            return Ok(());
        }
        // SAFETY: promised by the caller; the message is a C string that lives as long as the status.
        unsafe {
            let message = CStr::from_ptr((self.error_message())(outcome)).to_string_lossy().into_owned();
            let code = match (self.error_code())(outcome) {
                2 => Code::InvalidArgument,
                9 => Code::Unimplemented,
                // Its own words, and those of ops.
                _ if ["Failed to allocate memory", "cannot allocate"]
                    .iter()
                    .any(|text| message.contains(text)) =>
                {
                    Code::ResourceExhausted
                }
                _ => Code::Internal,
            };
            (self.release_status())(outcome);
            Err(Error::new(code, format!("ONNX Runtime: {message}")))
        }
    }

    /// What a function makes.
    ///
    /// # Safety
    /// As [`check`](Self::check); the function must write where it is told when it succeeds.
    unsafe fn made<T>(self, make: impl FnOnce(*mut *mut T) -> Outcome) -> Result<*mut T> {
        let mut made = null_mut();
        // SAFETY: promised by the caller.
        unsafe { self.check(make(&mut made)) }?;
        Ok(made)
    }

    /// The dtype and dims of a description, −1 for one that is not known.
    ///
    /// # Safety
    /// It must be alive.
    unsafe fn facts(self, info: *const Opaque) -> Result<(DType, Vec<i64>)> {
        let (mut code, mut rank) = (0, 0);
        // SAFETY: promised by the caller; there is memory for as many dims.
        unsafe {
            self.check((self.element_type())(info, &mut code))?;
            self.check((self.rank())(info, &mut rank))?;
            let mut dims = vec![0; rank];
            self.check((self.dimensions())(info, dims.as_mut_ptr(), rank))?;
            Ok((dtype_of(code)?, dims))
        }
    }
}

/// A tensor of ONNX Runtime's, which is let go of when this is.
struct Value {
    api: Api,
    value: NonNull<Opaque>,
}

// SAFETY: nobody writes to the tensor, and any thread may let go of it.
unsafe impl Send for Value {}
// SAFETY: as above.
unsafe impl Sync for Value {}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: it is alive, and nobody else lets go of it.
        unsafe { (self.api.release_value())(self.value.as_ptr()) };
    }
}

/// What the memory of an output needs.
struct Kept {
    _value: Value,
    /// The output may be one of them: its memory is theirs then.
    _inputs: Arc<Vec<Tensor>>,
}

/// A model of ONNX.
pub(crate) struct OnnxModel {
    api: Api,
    session: *mut Opaque,
    memory: *mut Opaque,
    inputs: Vec<Argument>,
    outputs: Vec<Argument>,
    names: [Vec<CString>; 2],
    free_rows: bool,
}

// SAFETY: a session may be run by any number of threads at a time; the description of memory is only read.
unsafe impl Send for OnnxModel {}
// SAFETY: as above.
unsafe impl Sync for OnnxModel {}

impl OnnxModel {
    /// Loads a model. The session lives as long as the process.
    ///
    /// # Errors
    /// What is wrong with a file, or an output that the model does not have.
    pub(crate) fn open(runtime: &Path, options: &Options) -> Loaded<OnnxModel> {
        let api = open_runtime(runtime)?;
        let text = |path: &Path| CString::new(path.as_os_str().as_bytes()).context("a path has a NUL");
        let mut libraries = Vec::new();
        for path in &options.library {
            let path = std::fs::canonicalize(path).with_context(|| format!("{}", path.display()))?;
            libraries.push(text(&path)?);
        }
        let model = text(&options.model)?;
        // SAFETY: texts are C strings, what is passed on was made by these functions and is not freed, and outcomes are used once.
        let (session, memory) = unsafe {
            let env = api.made(|made| (api.create_env())(FATAL, c"serve".as_ptr(), made))?;
            let own = api.made(|made| (api.create_options())(made))?;
            // As many as the engine would have: fewer than ONNX Runtime takes by itself where a container is limited.
            api.check((api.set_threads())(own, opsmith_threads::num_threads() as c_int))?;
            for library in &libraries {
                api.check((api.register_library())(own, library.as_ptr()))?;
            }
            let session = api.made(|made| (api.create_session())(env, model.as_ptr(), own, made));
            let session = session.map_err(|error| unopened(options, &error))?;
            (session, api.made(|made| (api.cpu_memory())(1, 0, made))?)
        };
        let inputs = arguments(api, session, (api.input_count(), api.input_type(), api.input_name()))?;
        ensure!(!inputs.is_empty(), "the model has no inputs: there is nothing to ask for");
        let inputs = inputs.into_iter().map(|(_, input)| input).collect::<Loaded<Vec<_>>>()?;
        let mut all = arguments(api, session, (api.output_count(), api.output_type(), api.output_name()))?;
        let outputs = match options.output.is_empty() {
            true => all.into_iter().map(|(_, output)| output).collect::<Loaded<Vec<_>>>()?,
            // What is not asked for may be of any type.
            false => options.output.iter().map(|name| taken(&mut all, name)).collect::<Loaded<_>>()?,
        };
        if options.free_rows {
            check_rows(&inputs)?;
            check_rows(&outputs)?;
        }
        let named = |arguments: &[Argument]| -> Loaded<Vec<CString>> {
            arguments.iter().map(|argument| Ok(CString::new(argument.name.as_str())?)).collect()
        };
        let names = [named(&inputs)?, named(&outputs)?];
        let free_rows = options.free_rows;
        let model = OnnxModel { api, session, memory, inputs, outputs, names, free_rows };
        if free_rows {
            apart::check(&model)?;
        }
        Ok(model)
    }

    /// A tensor of ONNX Runtime's over the memory of one of ours.
    fn lent(&self, tensor: &Tensor) -> Result<Value> {
        let dtype = Some(tensor.dtype()).filter(|dtype| is_served(*dtype));
        let code = dtype.and_then(DType::to_onnx);
        let code = code.ok_or_else(|| Error::invalid_argument(format!("got {}", tensor.dtype())))?;
        let dims: Vec<i64> = tensor.shape().iter().map(|dim| *dim as i64).collect();
        let bytes = tensor.num_elements() * tensor.dtype().size();
        let data = match bytes {
            0 => NonNull::<u128>::dangling().as_ptr().cast(),
            _ => tensor.as_view().data_ptr().cast_mut().cast(),
        };
        // SAFETY: the memory is dense, row-major and outlives the call; ONNX Runtime does not write to inputs.
        let made = unsafe {
            let create = self.api.create_tensor();
            self.api.made(|made| create(self.memory, data, bytes, dims.as_ptr(), dims.len(), code, made))
        }?;
        self.owned(made)
    }

    fn owned(&self, value: *mut Opaque) -> Result<Value> {
        let value = NonNull::new(value).ok_or_else(|| Error::internal("ONNX Runtime gave no tensor"))?;
        Ok(Value { api: self.api, value })
    }

    /// A tensor of ours over the memory of one of ONNX Runtime's, which it computed from these.
    fn taken(&self, value: Value, inputs: &Arc<Vec<Tensor>>) -> Result<Tensor> {
        let (api, raw) = (self.api, value.value.as_ptr());
        // SAFETY: the tensor is alive, what is asked for is a local, and the description is let go of.
        unsafe {
            let info = api.made(|made| (api.tensor_info())(raw, made))?;
            let facts = api.facts(info);
            (api.release_tensor_info())(info);
            let (dtype, dims) = facts?;
            let shape: Vec<usize> = dims.into_iter().map(|dim| dim as usize).collect();
            if shape.contains(&0) {
                return Tensor::zeros(dtype, &shape);
            }
            let data = api.made(|made| (api.tensor_data())(raw, made))?;
            let strides = row_major_strides(&shape);
            let kept = Arc::new(Kept { _value: value, _inputs: inputs.clone() });
            Ok(Tensor::from_foreign(kept, data.cast_const().cast(), dtype, &shape, &strides))
        }
    }
}

impl Model for OnnxModel {
    fn inputs(&self) -> &[Argument] {
        &self.inputs
    }

    fn outputs(&self) -> &[Argument] {
        &self.outputs
    }

    fn why_alone(&self) -> Option<&str> {
        (!self.free_rows).then_some("`--free-rows` was not given")
    }

    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let inputs: Arc<Vec<Tensor>> =
            Arc::new(inputs.iter().map(Tensor::to_contiguous).collect::<Result<_>>()?);
        let lent: Vec<Value> = inputs.iter().map(|input| self.lent(input)).collect::<Result<_>>()?;
        let values: Vec<*const Opaque> = lent.iter().map(|value| value.value.as_ptr().cast_const()).collect();
        let names = |which: usize| self.names[which].iter().map(|name| name.as_ptr()).collect::<Vec<_>>();
        let (given, wanted) = (names(0), names(1));
        let mut outputs = vec![null_mut(); wanted.len()];
        // SAFETY: the session lives, the lists are as long as is said, and the inputs outlive the call.
        let outcome = unsafe {
            let (session, count) = (self.session, values.len());
            let (given, wanted) = (given.as_ptr(), (wanted.as_ptr(), wanted.len()));
            let run = self.api.run();
            let outcome =
                run(session, null(), given, values.as_ptr(), count, wanted.0, wanted.1, outputs.as_mut_ptr());
            self.api.check(outcome)
        };
        outcome?;
        let outputs: Vec<Value> =
            outputs.into_iter().map(|output| self.owned(output)).collect::<Result<_>>()?;
        outputs.into_iter().map(|output| self.taken(output, &inputs)).collect()
    }
}

/// The error for a model that ONNX Runtime does not open.
fn unopened(options: &Options, error: &Error) -> anyhow::Error {
    let (path, count) = (options.model.display(), options.library.len());
    if Graph::libraries_of(&options.model).is_ok() {
        return anyhow!(
            "{path}: is a graph of the engine, and --runtime is for models of ONNX: leave it out"
        );
    }
    let given = match count {
        0 => "and no library is given by --library".to_owned(),
        _ => format!("with the ops given by --library ({count})"),
    };
    let hint = match error.message().contains("is not a registered function/op") {
        true => "; give a library that has this op by --library",
        false => "",
    };
    let what = "cannot be opened as a model of ONNX, which --runtime says that it is,";
    anyhow!("{path}: {what} {given}: {}{hint}", error.message())
}

/// The output of a name, which is asked for once.
fn taken(all: &mut Named, name: &str) -> Loaded<Argument> {
    let known = || all.iter().map(|(known, _)| format!("`{known}`")).collect::<Vec<_>>().join(", ");
    let found = all.iter().position(|(known, _)| known == name);
    let at =
        found.with_context(|| format!("--output: the model has no output `{name}`, only {}", known()))?;
    all.swap_remove(at).1
}

/// That tensors have any number of rows, as those of several requests together do.
fn check_rows(arguments: &[Argument]) -> Loaded<()> {
    for Argument { name, shape, .. } in arguments {
        let first = shape.dims().and_then(<[Dim]>::first);
        if let Some(Dim::Known(rows)) = first {
            bail!("--free-rows: `{name}` has {rows} rows in the model: export it with any number of them");
        }
    }
    Ok(())
}

/// Opens ONNX Runtime, for as long as the process lives.
fn open_runtime(path: &Path) -> Loaded<Api> {
    // The loader looks for a name without a folder where libraries are installed; a file that is here is meant before those.
    let here = std::fs::canonicalize(path);
    let path = here.as_deref().unwrap_or(path);
    // SAFETY: whoever starts the server trusts the file.
    let opened = unsafe { SharedObject::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    let library =
        std::mem::ManuallyDrop::new(opened.with_context(|| format!("--runtime {}", path.display()))?);
    // SAFETY: the symbol has this type in every release.
    let base = unsafe { library.get::<unsafe extern "C" fn() -> *const Base>(b"OrtGetApiBase") };
    let base = base.with_context(|| format!("{} is not ONNX Runtime", path.display()))?;
    // SAFETY: it takes nothing, and gives a structure that is never freed.
    unsafe {
        let base = base();
        let functions = ((*base).get_api)(VERSION);
        let version = CStr::from_ptr(((*base).version)()).to_string_lossy();
        ensure!(!functions.is_null(), "ONNX Runtime is needed from 1.{VERSION} on, this is {version}");
        Ok(Api(functions))
    }
}

/// Functions that tell how many inputs or outputs a session has, of what type, and their names.
type Getters = (
    unsafe extern "C" fn(*const Opaque, *mut usize) -> Outcome,
    unsafe extern "C" fn(*const Opaque, usize, *mut *mut Opaque) -> Outcome,
    unsafe extern "C" fn(*const Opaque, usize, *mut Opaque, *mut *mut c_char) -> Outcome,
);

/// The names of a session's inputs or outputs, and what each is if it can be served.
type Named = Vec<(String, Loaded<Argument>)>;

/// The inputs or outputs of a session.
fn arguments(api: Api, session: *const Opaque, (count, type_of, name_of): Getters) -> Loaded<Named> {
    let mut found = Vec::new();
    // SAFETY: the session lives, what is asked for is a local, and what comes back is let go of.
    unsafe {
        let allocator = api.made(|made| (api.default_allocator())(made))?;
        let mut number = 0;
        api.check(count(session, &mut number))?;
        for index in 0..number {
            let raw = api.made(|made| name_of(session, index, allocator, made))?;
            let name = CStr::from_ptr(raw).to_string_lossy().into_owned();
            api.check((api.free())(allocator, raw.cast()))?;
            let type_info = api.made(|made| type_of(session, index, made))?;
            let mut info = null();
            let facts =
                api.check((api.tensor_info_of_type())(type_info, &mut info)).and_then(|()| {
                    match info.is_null() {
                        true => Err(Error::unimplemented("is not a tensor")),
                        false => api.facts(info),
                    }
                });
            (api.release_type_info())(type_info);
            let argument = facts.map(|(dtype, dims)| {
                let dim = |dim: &i64| u64::try_from(*dim).map_or(Dim::Unknown, Dim::Known);
                // A tensor of any rank has no dims here either. ONNX Runtime knows which it is.
                let shape = if dims.is_empty() { Shape::unknown() } else { dims.iter().map(dim).collect() };
                Argument { name: name.clone(), dtype, shape }
            });
            let argument = argument.with_context(|| format!("`{name}`"));
            found.push((name, argument));
        }
    }
    Ok(found)
}
