//! Shape inference across the C ABI: a query of what is known, and a library's answer, read with care, for the library may be any.

use std::ptr::null;

use opsmith_core::abi::shapes::{
    OPSMITH_RELATION_AT_LEAST, OPSMITH_RELATION_EQUAL, OpsmithArgument, OpsmithConstraint, OpsmithShapeQuery,
    OpsmithShapes,
};
use opsmith_core::shape::{Constraint, DimTable, Dims, Relation};
use opsmith_core::tensor::MAX_RANK;
use opsmith_core::{DType, Error, Result, Shape, bail};

use crate::attrs::{Named, TensorStorage, store_tensor, with_abi_attrs};
use crate::pointed::{slice, structure};
use crate::told::{Call, Inferred, Known};

/// Calls `body` with the query for a call, which is valid until it returns.
///
/// # Errors
/// `ResourceExhausted` without memory, `InvalidArgument` for a dim that is too large, and what `body` says.
pub(crate) fn with_query<R>(call: &Call, body: impl FnOnce(&OpsmithShapeQuery) -> Result<R>) -> Result<R> {
    let mut dims = DimTable::default();
    let counts: Vec<usize> = call.inputs.iter().map(|input| input.as_ref().map_or(1, Vec::len)).collect();
    let known = call.inputs.iter().flatten().flatten();
    let tensors = known.map(|known| Told::new(known, &mut dims)).collect::<Result<Vec<Told>>>()?;
    let abi: Vec<OpsmithArgument> = tensors.iter().map(Told::abi).collect();
    let mut next = abi.iter().map(std::ptr::from_ref);
    let mut pointers = Vec::with_capacity(abi.len());
    for input in &call.inputs {
        match input {
            Some(list) => pointers.extend(next.by_ref().take(list.len())),
            None => pointers.push(null()),
        }
    }
    let attrs: Vec<Named<'_>> = call.attrs.iter().map(|(name, value)| (name.as_str(), value)).collect();
    with_abi_attrs(&attrs, |attrs| {
        body(&OpsmithShapeQuery {
            size: size_of::<OpsmithShapeQuery>(),
            op: call.op,
            tensors: pointers.as_ptr(),
            num_tensors: pointers.len(),
            counts: counts.as_ptr(),
            num_arguments: counts.len(),
            attrs: attrs.as_ptr(),
            num_attrs: attrs.len(),
            dims: dims.dims().as_ptr(),
            num_dims: dims.dims().len(),
        })
    })
}

/// What is told of a tensor, with what the ABI's form of it points to.
struct Told {
    dtype: DType,
    rank: i32,
    dims: Vec<u32>,
    value: Option<TensorStorage>,
}

impl Told {
    fn new((dtype, shape, value): &Known, dims: &mut DimTable) -> Result<Told> {
        let (rank, dims) = dims.add_shape(shape)?;
        Ok(Told { dtype: *dtype, rank, dims, value: value.as_ref().map(store_tensor).transpose()? })
    }

    fn abi(&self) -> OpsmithArgument {
        OpsmithArgument {
            size: size_of::<OpsmithArgument>(),
            dtype: self.dtype as i32,
            rank: self.rank,
            dims: self.dims.as_ptr(),
            value: self.value.as_ref().map_or(null(), TensorStorage::abi),
        }
    }
}

/// What a library answers.
///
/// # Errors
/// `Internal` for what is no answer.
///
/// # Safety
/// `shapes` must be null or point to an answer that is readable as its fields say.
pub(crate) unsafe fn read(shapes: *const OpsmithShapes) -> Result<Inferred> {
    // SAFETY: promised by the caller, for each of them.
    unsafe {
        let shapes = structure(shapes, "its shapes")?;
        let dims = Dims::read(slice(shapes.dims, shapes.num_dims, "dims")?)?;
        let mut tensors = slice(shapes.tensors, shapes.num_tensors, "tensors")?;
        let mut outputs = Vec::new();
        for &count in slice(shapes.counts, shapes.num_outputs, "outputs")? {
            let Some(list) = tensors.split_off(..count) else {
                bail!(Internal, "an output holds {count} tensors, and there are {}", tensors.len());
            };
            outputs.push(list.iter().map(|tensor| known(*tensor, &dims)).collect::<Result<_>>()?);
        }
        let constraints = slice(shapes.constraints, shapes.num_constraints, "constraints")?;
        let constraints = constraints.iter().map(|constraint| taken(*constraint, &dims));
        Ok(Inferred { outputs, constraints: constraints.collect::<Result<_>>()? })
    }
}

/// # Safety
/// `tensor` must be null or readable as its fields say.
unsafe fn known(tensor: *const OpsmithArgument, dims: &Dims) -> Result<(DType, Shape)> {
    // SAFETY: promised by the caller.
    let tensor = unsafe { structure(tensor, "a tensor") }?;
    let dtype = u8::try_from(tensor.dtype).ok().and_then(DType::from_u8);
    let dtype = dtype.ok_or_else(|| Error::internal(format!("{} is no dtype", tensor.dtype)))?;
    let shape = match usize::try_from(tensor.rank) {
        Ok(rank) if rank <= MAX_RANK => {
            // SAFETY: promised by the caller.
            dims.shape(unsafe { slice(tensor.dims, rank, "dims of a tensor") }?)?
        }
        Ok(rank) => bail!(Internal, "a tensor has {rank} dims"),
        Err(_) => Shape::unknown(),
    };
    Ok((dtype, shape))
}

/// # Safety
/// `constraint` must be null or readable as its fields say.
unsafe fn taken(constraint: *const OpsmithConstraint, dims: &Dims) -> Result<Constraint> {
    // SAFETY: promised by the caller.
    let (constraint, message) = unsafe {
        let constraint = structure(constraint, "a constraint")?;
        let text = constraint.message;
        (constraint, slice(text.data.cast::<u8>(), text.len, "bytes of a message")?)
    };
    Ok(Constraint {
        relation: match constraint.relation {
            OPSMITH_RELATION_EQUAL => Relation::Equal,
            OPSMITH_RELATION_AT_LEAST => Relation::AtLeast,
            other => bail!(Internal, "{other} is no relation"),
        },
        left: dims.dim(constraint.left)?,
        right: dims.dim(constraint.right)?,
        message: String::from_utf8_lossy(message).into_owned(),
    })
}
