//! An op as the checker sees it: everything that its library says of it.

use std::path::{Path, PathBuf};

use opsmith_core::def::{Allowed, ArgCount, ArgDef, ArgType, AttrDef};
use opsmith_core::{DType, Error, GradientWiring, Result, ShapeSignature, Signature};
use opsmith_runtime::Library;
use serde_json::Value;

/// Dtypes for where a definition allows all.
const USUAL: [DType; 5] = [DType::Float32, DType::Float64, DType::Int32, DType::Int64, DType::UInt8];

/// An op, and what its library says of it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// The library's file, as the user names it.
    pub(crate) library: PathBuf,
    pub(crate) index: usize,
    pub(crate) signature: Signature,
    /// The shapes of its arguments, where a signature says them and not a function.
    pub(crate) shape: Option<ShapeSignature>,
    pub(crate) declares_zero_gradient: bool,
    pub(crate) wiring: Option<GradientWiring>,
    /// The CPU kernels: for each, dtypes of type attributes by their index.
    pub(crate) kernels: Vec<Vec<(usize, DType)>>,
    pub(crate) cuda: Vec<CudaKernel>,
}

/// A CUDA kernel as a library describes it.
#[derive(Debug, Clone)]
pub(crate) struct CudaKernel {
    /// Dtypes of type attributes by their index.
    pub(crate) types: Vec<(usize, DType)>,
    /// The inputs that it reads in main memory.
    pub(crate) host: Vec<String>,
}

impl Subject {
    /// All ops of the library in the file `path`.
    ///
    /// # Errors
    /// When its description cannot be read.
    pub(crate) fn all(library: &Library, path: &Path) -> Result<Vec<Subject>> {
        let json: Value = serde_json::from_str(library.description())
            .map_err(|error| Error::internal(format!("its description is not JSON: {error}")))?;
        (0..library.num_ops()).map(|index| Subject::new(library, path, index, &json["ops"][index])).collect()
    }

    fn new(library: &Library, path: &Path, index: usize, json: &Value) -> Result<Subject> {
        let op = library.op_at(index)?;
        let signature = op.signature().clone();
        let shape = json["shape"].as_str().map(ShapeSignature::parse).transpose();
        let shape =
            shape.map_err(|error| Error::internal(format!("{}: {}", signature.name, error.message)))?;
        let kernels = json["kernels"].as_array().map_or(&[][..], Vec::as_slice);
        let on = |device: &str| {
            let device = device.to_owned();
            kernels.iter().filter(move |kernel| kernel["device"].as_str() == Some(&device))
        };
        let types = |kernel: &Value| {
            let pairs = kernel["types"].as_object().into_iter().flatten();
            let pair = |(attr, dtype): (&String, &Value)| {
                Some((signature.attr_index(attr)?, DType::parse(dtype.as_str()?)?))
            };
            pairs.filter_map(pair).collect::<Vec<_>>()
        };
        let host = |kernel: &Value| {
            let names = kernel["host_memory"].as_array().into_iter().flatten();
            names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        Ok(Subject {
            library: path.to_owned(),
            index,
            shape,
            declares_zero_gradient: *op.declared_gradient() == opsmith_core::Gradient::NotDifferentiable,
            wiring: op.gradient_wiring().cloned(),
            kernels: on("CPU").map(types).collect(),
            cuda: on("CUDA").map(|kernel| CudaKernel { types: types(kernel), host: host(kernel) }).collect(),
            signature,
        })
    }

    /// The same op with its CUDA kernels in place of those for the CPU; none where it has none.
    pub(crate) fn on_cuda(&self) -> Option<Subject> {
        let kernels: Vec<_> = self.cuda.iter().map(|kernel| kernel.types.clone()).collect();
        (!kernels.is_empty()).then(|| Subject { kernels, ..self.clone() })
    }

    /// The attributes that decide the dtype of some input that holds floats where they may.
    fn is_type_of_input(&self, attr: usize) -> bool {
        self.signature.inputs.iter().any(|input| input.dtype == ArgType::Attr(attr))
    }

    /// The kernels in which no input has a dtype that `allows` refuses but for those that must be of a fixed one.
    pub(crate) fn kernels_with(&self, allows: impl Fn(DType) -> bool) -> Vec<usize> {
        let fits = |kernel: &&usize| {
            let mut types = self.kernels[**kernel].iter().filter(|(attr, _)| self.is_type_of_input(*attr));
            types.all(|(_, dtype)| allows(*dtype))
        };
        let all: Vec<usize> = (0..self.kernels.len()).collect();
        all.iter().filter(fits).copied().collect()
    }

    /// The dtypes that an attribute may have, in the order of the definition.
    pub(crate) fn dtypes(&self, attr: usize) -> Vec<DType> {
        match &self.signature.attrs[attr].allowed {
            Some(Allowed::Types(types)) => types.clone(),
            _ => USUAL.to_vec(),
        }
    }

    /// The attribute that says how many tensors an argument holds.
    pub(crate) fn length_attr(arg: &ArgDef) -> Option<usize> {
        match arg.count {
            ArgCount::Attr(attr) | ArgCount::Types(attr) => Some(attr),
            ArgCount::One => None,
        }
    }

    /// The least length that a list has whose length this attribute says.
    pub(crate) fn least_length(&self, attr: usize) -> usize {
        let def: &AttrDef = &self.signature.attrs[attr];
        let least = match def.min {
            Some(opsmith_core::AttrValue::Int(least)) => Some(usize::try_from(least).unwrap_or(0)),
            _ => def.min_len,
        };
        least.unwrap_or(1)
    }
}
