//! Shape inference when a model is loaded: dims by size or by name, in and out.
//!
//! ONNX Runtime gives a tensor of unknown rank as one without dims; so what is without dims counts as unknown here. Of a node's
//! attributes, those that are tensors cannot be read, and what depends on them stays unknown.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use opsmith_core::attr::{AttrBase, AttrType};
use opsmith_core::def::ArgType;
use opsmith_core::{ArgDTypes, AttrValue, Code, DType, Dim, InferenceContext, Op, Result, Shape};

use super::api::{Api, ShapeContext};
use super::attrs::{self, OfShapes};
use super::node::count_of;
use super::{spec, tensor};

/// Infers the dtypes and shapes of the outputs that `may_tell` lets be told of.
///
/// # Errors
/// What the op says of a node that does not fit it.
///
/// # Safety
/// `context` must be a live inference for a node of the op.
pub(super) unsafe fn infer(
    api: Api,
    (library, op): (&'static str, &Op),
    context: *mut ShapeContext,
    may_tell: &dyn Fn(usize) -> bool,
) -> Result<()> {
    let inference = Inference { api, context, library };
    let signature = op.signature();
    let (mut given, mut unknown) = attrs::read_known(signature, &OfShapes { api, context });
    let inputs = inference.inputs()?;
    let Ok(counts) = spec::counts(signature, |attr| count_of(&given[attr]), inputs.len()) else {
        return Ok(());
    };
    let mut flat = inputs.into_iter().chain(std::iter::repeat_with(|| None));
    let per_arg: Vec<Option<Vec<(DType, Shape)>>> =
        counts.iter().map(|count| flat.by_ref().take(*count).collect()).collect();
    // What cannot be read here has a stand-in.
    for (index, def) in signature.attrs.iter().enumerate() {
        if unknown[index] && given[index].is_none() && def.default.is_none() {
            given[index] = stand_in(def.ty);
        }
    }
    let lists: Vec<Option<Vec<DType>>> = per_arg
        .iter()
        .map(|list| list.as_ref().map(|list| list.iter().map(|(dtype, _)| *dtype).collect()))
        .collect();
    let dtypes = lists.iter().zip(&signature.inputs).map(|(list, arg)| match list.as_deref() {
        None => ArgDTypes::Absent,
        Some(list) if arg.count.is_list() => ArgDTypes::List(list),
        Some(list) => list.first().map_or(ArgDTypes::Absent, |dtype| ArgDTypes::One(*dtype)),
    });
    let resolved = signature.resolve(&dtypes.collect::<Vec<_>>(), &given)?;
    let shapes = per_arg
        .into_iter()
        .map(|list| list.map(|list| list.into_iter().map(|(_, shape)| shape).collect()))
        .collect();
    let unread = unknown.clone();
    if unknown.iter().all(|unknown| !unknown) {
        unknown.clear();
    }
    let mut known = InferenceContext::new(signature, &resolved.attrs, shapes)?.with_unknown_attrs(unknown);
    let inferred = op.infer_shapes(&mut known);
    let dtypes = resolved.output_dtypes.iter().zip(&signature.outputs);
    let dtypes = dtypes.flat_map(|(dtypes, arg)| dtypes.iter().map(move |dtype| (dtype, arg.dtype)));
    for (index, (shape, (dtype, source))) in known.outputs().iter().zip(dtypes).enumerate() {
        // A dtype that an attribute says which cannot be read here is not known.
        let is_unread = matches!(source, ArgType::Attr(attr) | ArgType::List(attr) if unread[attr]);
        if may_tell(index) && !is_unread {
            inference.set_output(index, *dtype, shape)?;
        }
    }
    match inferred {
        Err(error) if error.code() != Code::Unavailable => Err(error),
        _ => Ok(()),
    }
}

/// A value of this type.
fn stand_in(ty: AttrType) -> Option<AttrValue> {
    Some(match (ty.base, ty.list) {
        (AttrBase::Float, false) => AttrValue::Float(0.0),
        (AttrBase::Float, true) => AttrValue::Floats(Vec::new()),
        (AttrBase::Int, true) => AttrValue::Ints(Vec::new()),
        (AttrBase::Bool, true) => AttrValue::Bools(Vec::new()),
        (AttrBase::String, true) => AttrValue::Strings(Vec::new()),
        (AttrBase::Shape, false) => AttrValue::Shape(None),
        (AttrBase::Shape, true) => AttrValue::Shapes(Vec::new()),
        (AttrBase::Tensor, true) => AttrValue::Tensors(Vec::new()),
        _ => return None,
    })
}

/// A node whose shapes are inferred.
struct Inference {
    api: Api,
    context: *mut ShapeContext,
    library: &'static str,
}

// In what follows the context is lent by ONNX Runtime, what is asked for is a local, and outcomes are used once.
impl Inference {
    /// The dtype and shape of each input tensor, nothing for one that is absent.
    fn inputs(&self) -> Result<Vec<Option<(DType, Shape)>>> {
        let api = self.api;
        let mut count = 0;
        // SAFETY: as above.
        unsafe { api.check((api.shapes_input_count())(self.context, &mut count)) }?;
        let read = |index| {
            let mut info = null_mut();
            // SAFETY: as above; the description stays ONNX Runtime's.
            unsafe {
                let get = api.shapes_input();
                if !api.succeeded(get(self.context, index, &mut info)) || info.is_null() {
                    return Ok(None);
                }
                let (dtype, dims) = tensor::facts(api, info)?;
                if dims.is_empty() {
                    return Ok(Some((dtype, Shape::unknown())));
                }
                let mut names = vec![null::<c_char>(); dims.len()];
                api.check((api.symbols())(info, names.as_mut_ptr(), names.len()))?;
                let dim = |(size, name): (&i64, &*const c_char)| {
                    let name = if name.is_null() { c"" } else { CStr::from_ptr(*name) };
                    match (u64::try_from(*size), name.to_str()) {
                        (Ok(size), _) => Dim::Known(size),
                        (_, Ok(name)) if !name.is_empty() => Dim::symbol(name),
                        _ => Dim::Unknown,
                    }
                };
                Ok(Some((dtype, dims.iter().zip(&names).map(dim).collect())))
            }
        };
        (0..count).map(read).collect()
    }

    /// The name of a dim that has no size: equal names are equal sizes, so one of which nothing is known gets a name of its own. Each
    /// library counts for itself.
    fn name(&self, dim: &Dim) -> CString {
        static UNKNOWN: AtomicU64 = AtomicU64::new(0);
        let text = match dim {
            Dim::Known(_) => String::new(),
            Dim::Unknown => format!("{}_unknown_{}", self.library, UNKNOWN.fetch_add(1, Ordering::Relaxed)),
            Dim::Expr(expr) => expr.to_string(),
        };
        CString::new(text).unwrap_or_default()
    }

    fn set_output(&self, index: usize, dtype: DType, shape: &Shape) -> Result<()> {
        let api = self.api;
        let (Some(dims), Some(code)) = (shape.dims(), dtype.to_onnx()) else { return Ok(()) };
        let sizes: Vec<i64> = dims
            .iter()
            .map(|dim| dim.value().and_then(|size| i64::try_from(size).ok()).unwrap_or(-1))
            .collect();
        let names: Vec<CString> = dims.iter().map(|dim| self.name(dim)).collect();
        let pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
        let mut info = null_mut();
        // SAFETY: as above; the description is ours, and copied.
        unsafe {
            api.check((api.create_tensor_info())(&mut info))?;
            let set = || {
                api.check((api.set_element_type())(info, code))?;
                api.check((api.set_dimensions())(info, sizes.as_ptr(), sizes.len()))?;
                api.check((api.set_symbols())(info, pointers.as_ptr(), pointers.len()))?;
                api.check((api.shapes_set_output())(self.context, index, info))
            };
            let set = set();
            (api.release_tensor_info())(info);
            set
        }
    }
}
