//! Shape inference through the C ABI: a query and an answer, both structures.

use std::ptr::null;
use std::sync::Arc;

use opsmith_core::abi::OpsmithStr;
use opsmith_core::abi::shapes::{
    OPSMITH_RELATION_AT_LEAST, OPSMITH_RELATION_EQUAL, OpsmithArgument, OpsmithConstraint, OpsmithShapeQuery,
    OpsmithShapes,
};
use opsmith_core::attr::TensorValue;
use opsmith_core::def::Resolved;
use opsmith_core::shape::{Constraint, Dim, DimTable, Dims, Relation};
use opsmith_core::tensor::MAX_RANK;
use opsmith_core::{
    ArgDTypes, AttrValue, DType, Error, InferenceContext, Op, Result, Shape, Signature, ensure,
};

use super::{call, read};
use crate::StaticLibrary;

/// Answers a query.
///
/// # Safety
/// `query` and all that it points to must be valid as `opsmith_core::abi` says.
pub(super) unsafe fn answer(
    library: &'static StaticLibrary,
    query: *const OpsmithShapeQuery,
) -> Result<*const OpsmithShapes> {
    // SAFETY: promised by the caller.
    let query = unsafe { read::structure(query, "the query") }?;
    let op = op_at(library, query.op)?;
    // SAFETY: promised by the caller.
    let answer = unsafe { Asked::read(op.signature(), query) }.and_then(|asked| asked.infer(op));
    let answer = answer.map_err(|error| error.with_op(&op.signature().name))?;
    Ok(Box::into_raw(answer).cast_const().cast())
}

/// Frees an answer.
///
/// # Safety
/// `shapes` must be null or one that [`answer`] gave and nobody freed or reads.
pub(super) unsafe extern "C" fn free(shapes: *const OpsmithShapes) {
    if !shapes.is_null() {
        // SAFETY: promised by the caller.
        drop(unsafe { Box::from_raw(shapes.cast_mut().cast::<Answer>()) });
    }
}

/// The op at a position that a caller gave.
pub(super) fn op_at(library: &'static StaticLibrary, index: usize) -> Result<&'static Op> {
    let ops = library.get()?.ops();
    ops.get(index).ok_or_else(|| {
        Error::not_found(format!("library `{}` has {} ops, no op {index}", library.name(), ops.len()))
    })
}

/// A query that has been read: by arguments, none for an absent one.
struct Asked {
    shapes: Vec<Option<Vec<Shape>>>,
    dtypes: Vec<Option<Vec<DType>>>,
    /// Of all tensors, absent ones too.
    values: Vec<Option<Arc<TensorValue>>>,
    attrs: smallvec::SmallVec<[Option<AttrValue>; 4]>,
}

impl Asked {
    /// # Safety
    /// As for [`answer`].
    unsafe fn read(signature: &Signature, query: &OpsmithShapeQuery) -> Result<Asked> {
        // SAFETY: promised by the caller.
        let (mut tensors, counts, dims, attrs) = unsafe {
            let tensors = read::slice(query.tensors, query.num_tensors, "the list of tensors")?;
            let counts = match query.counts.is_null() {
                true => None,
                false => Some(read::slice(query.counts, query.num_arguments, "the list of counts")?),
            };
            let dims = Dims::read(read::slice(query.dims, query.num_dims, "the list of dims")?)?;
            (tensors, counts, dims, call::attributes(signature, query.attrs, query.num_attrs)?)
        };
        let counts = counts.map_or_else(|| vec![1; tensors.len()], <[usize]>::to_vec);
        if counts.len() != signature.inputs.len() {
            return Err(signature.wrong_number_of_inputs(counts.len()));
        }
        signature.check_counts(&counts, tensors.len())?;
        let mut asked = Asked { shapes: vec![], dtypes: vec![], values: vec![], attrs };
        for (arg, count) in signature.inputs.iter().zip(counts) {
            let given = tensors.split_off(..count).unwrap_or_default();
            // SAFETY: promised by the caller.
            unsafe { asked.argument(given, &dims) }
                .map_err(|error| error.with_argument("input", &arg.name))?;
        }
        Ok(asked)
    }

    /// # Safety
    /// The tensors must be valid.
    unsafe fn argument(&mut self, given: &[*const OpsmithArgument], dims: &Dims) -> Result<()> {
        if let [absent] = given
            && absent.is_null()
        {
            self.shapes.push(None);
            self.dtypes.push(None);
            self.values.push(None);
            return Ok(());
        }
        let (mut shapes, mut dtypes) = (Vec::with_capacity(given.len()), Vec::with_capacity(given.len()));
        for &tensor in given {
            // SAFETY: promised by the caller.
            unsafe {
                let tensor = read::structure(tensor, "a tensor")?;
                let (dtype, shape) = (read::dtype(tensor.dtype)?, shape(tensor, dims)?);
                let value = match tensor.value.is_null() {
                    true => None,
                    false => Some(read::tensor(tensor.value, "the value of a tensor")?),
                };
                value.iter().try_for_each(|value| check_value(value, dtype, &shape))?;
                self.values.push(value);
                dtypes.push(dtype);
                shapes.push(shape);
            }
        }
        self.shapes.push(Some(shapes));
        self.dtypes.push(Some(dtypes));
        Ok(())
    }

    fn infer(self, op: &Op) -> Result<Box<Answer>> {
        let signature = op.signature();
        let resolved = resolve(signature, &self.dtypes, &self.attrs)?;
        let mut context = InferenceContext::new(signature, &resolved.attrs, self.shapes)?;
        if self.values.iter().any(Option::is_some) {
            context = context.with_input_values(self.values.iter().map(Option::as_deref).collect());
        }
        op.infer_shapes(&mut context)?;
        Answer::new(signature, &context, &resolved)
    }
}

/// # Safety
/// The positions of the tensor's dims must be readable.
unsafe fn shape(tensor: &OpsmithArgument, dims: &Dims) -> Result<Shape> {
    let Ok(rank) = usize::try_from(tensor.rank) else {
        ensure!(tensor.rank == -1, InvalidArgument, "has rank {}; -1 is an unknown one", tensor.rank);
        return Ok(Shape::unknown());
    };
    ensure!(rank <= MAX_RANK, InvalidArgument, "a tensor has at most {MAX_RANK} dims, got {rank}");
    // SAFETY: promised by the caller.
    dims.shape(unsafe { read::slice(tensor.dims, rank, "a tensor's list of dims") }?)
}

/// That a tensor's value is one of what is told of it.
fn check_value(value: &TensorValue, dtype: DType, shape: &Shape) -> Result<()> {
    let (its, dims) = (value.dtype, &value.shape);
    ensure!(its == dtype, InvalidArgument, "is {dtype}, but its value is {its}");
    let fits = shape.dims().is_none_or(|told| {
        let fits = |(told, dim): (&Dim, &usize)| told.value().is_none_or(|told| told == *dim as u64);
        told.len() == dims.len() && told.iter().zip(dims).all(fits)
    });
    ensure!(fits, InvalidArgument, "has shape {shape}, but its value has shape {dims:?}");
    Ok(())
}

fn resolve(
    signature: &Signature,
    dtypes: &[Option<Vec<DType>>],
    attrs: &[Option<AttrValue>],
) -> Result<Resolved> {
    let mut arguments = Vec::with_capacity(dtypes.len());
    for (list, arg) in dtypes.iter().zip(&signature.inputs) {
        let name = &arg.name;
        arguments.push(match list {
            None => ArgDTypes::Absent,
            Some(list) if arg.count.is_list() => ArgDTypes::List(list),
            Some(list) => {
                let count = list.len();
                ensure!(count == 1, InvalidArgument for name, "input `{name}` is one tensor, got {count}");
                ArgDTypes::One(list[0])
            }
        });
    }
    signature.resolve(&arguments, attrs)
}

/// An answer with the memory that it points to.
#[repr(C)]
struct Answer {
    header: OpsmithShapes,
    tensors: Vec<*const OpsmithArgument>,
    constraints: Vec<*const OpsmithConstraint>,
    counts: Vec<usize>,
    owned: Owned,
}

/// What is pointed to, in boxes that stay where they are.
#[derive(Default)]
struct Owned {
    dims: DimTable,
    positions: Vec<Vec<u32>>,
    tensors: Box<[OpsmithArgument]>,
    messages: Vec<String>,
    constraints: Box<[OpsmithConstraint]>,
}

impl Answer {
    fn new(
        signature: &Signature,
        context: &InferenceContext<'_>,
        resolved: &Resolved,
    ) -> Result<Box<Answer>> {
        let mut owned = Owned::default();
        let (mut tensors, mut counts) = (vec![], vec![]);
        for (output, dtypes) in signature.outputs.iter().zip(&resolved.output_dtypes) {
            let shapes = &context.outputs()[context.output_range(&output.name)?];
            counts.push(shapes.len());
            for (shape, dtype) in shapes.iter().zip(dtypes) {
                let (rank, positions) = owned.dims.add_shape(shape)?;
                let (size, dims) = (size_of::<OpsmithArgument>(), positions.as_ptr());
                owned.positions.push(positions);
                tensors.push(OpsmithArgument { size, dtype: *dtype as i32, rank, dims, value: null() });
            }
        }
        owned.tensors = tensors.into();
        let constraints = context.constraints().iter().map(|constraint| owned.constraint(constraint));
        owned.constraints = constraints.collect::<Result<Vec<_>>>()?.into();
        let tensors: Vec<*const _> = owned.tensors.iter().map(std::ptr::from_ref).collect();
        let constraints: Vec<*const _> = owned.constraints.iter().map(std::ptr::from_ref).collect();
        let header = OpsmithShapes {
            size: size_of::<OpsmithShapes>(),
            tensors: tensors.as_ptr(),
            num_tensors: tensors.len(),
            counts: counts.as_ptr(),
            num_outputs: counts.len(),
            dims: owned.dims.dims().as_ptr(),
            num_dims: owned.dims.dims().len(),
            constraints: constraints.as_ptr(),
            num_constraints: constraints.len(),
        };
        Ok(Box::new(Answer { header, tensors, constraints, counts, owned }))
    }
}

impl Owned {
    fn constraint(&mut self, constraint: &Constraint) -> Result<OpsmithConstraint> {
        let (left, right) = (self.dims.add(&constraint.left)?, self.dims.add(&constraint.right)?);
        let message = constraint.message.clone();
        let text = OpsmithStr { data: message.as_ptr().cast(), len: message.len() };
        self.messages.push(message);
        let relation = match constraint.relation {
            Relation::Equal => OPSMITH_RELATION_EQUAL,
            Relation::AtLeast => OPSMITH_RELATION_AT_LEAST,
        };
        Ok(OpsmithConstraint { size: size_of::<OpsmithConstraint>(), relation, left, right, message: text })
    }
}
