//! An op as the checker sees it: everything that its library says of it.

use std::ops::Bound;

use opsmith_core::def::{Allowed, ArgCount, ArgDef, ArgType, AttrDef};
use opsmith_core::{
    AttrValue, DType, DeviceKind, Error, GradientWiring, Parallel, Result, ShapeSignature, Signature,
};
use opsmith_runtime::{Library, Op};
use serde_json::Value;

use crate::source::LibrarySource;

/// Dtypes for where a definition allows all.
const USUAL: [DType; 5] = [DType::Float32, DType::Float64, DType::Int32, DType::Int64, DType::UInt8];

/// An op, and what its library says of it.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    /// The library, as the user names it.
    pub(crate) library: LibrarySource,
    pub(crate) index: usize,
    pub(crate) signature: Signature,
    /// The shapes of its arguments, where a signature says them and not a function.
    pub(crate) shape: Option<ShapeSignature>,
    /// Its free axes, where it states some.
    pub(crate) parallel: Option<Parallel>,
    pub(crate) declares_zero_gradient: bool,
    pub(crate) wiring: Option<GradientWiring>,
    /// The CPU kernels: for each, dtypes of type attributes by their index.
    pub(crate) kernels: Vec<Vec<(usize, DType)>>,
    pub(crate) op: Op,
}

impl Subject {
    /// All ops of a library.
    ///
    /// # Errors
    /// When its description cannot be read.
    pub(crate) fn all(library: &Library, source: &LibrarySource) -> Result<Vec<Subject>> {
        let json: Value = serde_json::from_str(library.description())
            .map_err(|error| Error::internal(format!("its description is not JSON: {error}")))?;
        (0..library.num_ops())
            .map(|index| Subject::new(library, source, index, &json["ops"][index]))
            .collect()
    }

    fn new(library: &Library, source: &LibrarySource, index: usize, json: &Value) -> Result<Subject> {
        let op = library.op_at(index)?;
        let signature = op.signature().clone();
        let read = |text| ShapeSignature::parse(text).and_then(|shape| shape.of_op(&signature));
        let shape = json["shape"].as_str().map(read).transpose();
        let shape =
            shape.map_err(|error| Error::internal(format!("{}: {}", signature.name, error.message)))?;
        // A library of before there were free axes says nothing of them.
        let parallel = json["parallel"].as_str().map(Parallel::parse).transpose();
        let parallel = parallel.map_err(|error| Error::internal(format!("{}: {error}", signature.name)))?;
        Ok(Subject {
            library: source.clone(),
            index,
            shape,
            parallel,
            declares_zero_gradient: *op.declared_gradient() == opsmith_core::Gradient::NotDifferentiable,
            wiring: op.gradient_wiring().cloned(),
            kernels: types_of_kernels(&op, DeviceKind::Cpu),
            signature,
            op,
        })
    }

    /// The same op with its CUDA kernels in place of those for the CPU; none where it has none.
    pub(crate) fn on_cuda(&self) -> Option<Subject> {
        let kernels = types_of_kernels(&self.op, DeviceKind::Cuda);
        (!kernels.is_empty()).then(|| Subject { kernels, ..self.clone() })
    }

    /// Whether it has a CUDA kernel.
    pub(crate) fn has_cuda(&self) -> bool {
        self.op.kernels(DeviceKind::Cuda).next().is_some()
    }

    /// For each input, whether the CUDA kernel that serves a call with such inputs and attributes reads it in host memory; none
    /// does where no kernel serves it.
    pub(crate) fn in_host_memory(
        &self,
        dtypes: &[Vec<Option<DType>>],
        attrs: &[(String, AttrValue)],
    ) -> Vec<bool> {
        let counts: Vec<usize> = dtypes.iter().map(Vec::len).collect();
        let kernel = self.op.kernel_for(DeviceKind::Cuda, (&counts, &dtypes.concat()), attrs).ok();
        (0..counts.len())
            .map(|input| kernel.is_some_and(|kernel| kernel.reads_in_host_memory(input)))
            .collect()
    }

    /// The attributes that decide the dtype of some input that holds floats where they may.
    fn is_type_of_input(&self, attr: usize) -> bool {
        self.signature.inputs.iter().any(|input| input.dtype == ArgType::Attr(attr))
    }

    /// Whether an input is of integers in every kernel: labels, or counts.
    pub(crate) fn takes_integers(&self) -> bool {
        let is_it = |dtype| matches!(dtype, ArgType::Fixed(DType::Int32 | DType::Int64));
        self.signature.inputs.iter().any(|input| is_it(input.dtype))
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

    /// The most tensors that a generated list has.
    pub(crate) const MOST_TENSORS: usize = 1 << 10;

    /// The least length that a list has whose length this attribute says.
    pub(crate) fn least_length(&self, attr: usize) -> usize {
        let def: &AttrDef = &self.signature.attrs[attr];
        let least = match def.min {
            Bound::Included(opsmith_core::AttrValue::Int(least)) => Some(usize::try_from(least).unwrap_or(0)),
            _ => def.min_len,
        };
        // Of an attribute that is no length it may be any number.
        least.unwrap_or(1).min(Self::MOST_TENSORS)
    }
}

/// The dtypes of type attributes that each kernel on a kind of device is for.
fn types_of_kernels(op: &Op, device: DeviceKind) -> Vec<Vec<(usize, DType)>> {
    op.kernels(device).map(|kernel| kernel.types().to_vec()).collect()
}
