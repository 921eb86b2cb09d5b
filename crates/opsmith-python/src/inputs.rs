//! The inputs of a call: what is an array is read where it lies, what is not becomes one as the definition asks.

use opsmith_core::attr::MAX_LIST;
use opsmith_core::def::{Allowed, ArgDef, ArgType};
use opsmith_core::{AttrValue, DType, Error, Signature, TensorView};
use opsmith_runtime::Tensor;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use smallvec::SmallVec;

use crate::array::{Elements, Look, is_exactly_array, look, need_numpy};
use crate::convert::{self, Natural, TensorArgument};
use crate::errors::{caused, to_python};
use crate::python_values::type_name;

/// The tensors of a call, and what keeps their memory.
#[derive(Default)]
pub(crate) struct Inputs<'py> {
    pub(crate) elements: SmallVec<[Option<Elements>; 4]>,
    pub(crate) counts: SmallVec<[usize; 4]>,
    arrays: Vec<Bound<'py, PyAny>>,
    texts: Vec<Tensor>,
}

/// Reads the inputs if all are plain arrays that an op can read where they lie: the usual case, made fast. The tuple keeps
/// the arrays.
#[inline]
pub(crate) fn all_ready<'py>(
    signature: &Signature,
    given: &Bound<'py, PyTuple>,
    inputs: &mut Inputs<'py>,
) -> bool {
    if given.len() != signature.inputs.len() {
        return false;
    }
    for (object, arg) in given.iter_borrowed().zip(&signature.inputs) {
        match look(given.py(), &object) {
            Look::Ready(elements) if !arg.count.is_list() && (!arg.is_ref || elements.is_writable()) => {
                inputs.elements.push(Some(elements));
                inputs.counts.push(1);
            }
            _ => return false,
        }
    }
    true
}

/// One tensor of an input, on its way.
struct Item<'a, 'py> {
    arg: &'a ArgDef,
    /// Its position in the input's list.
    position: Option<usize>,
    value: Value<'py>,
}

enum Value<'py> {
    Absent,
    Array(Bound<'py, PyAny>),
    /// Python's own numbers, text and lists, whose dtype the other inputs and the definition decide.
    Literal(Natural<'py>),
}

/// The inputs, whatever they are; `None` where one of them is a framework's tensor.
///
/// # Errors
/// `InvalidArgumentError` that names the input, for what cannot be a tensor of it.
pub(crate) fn prepare<'py>(
    signature: &Signature,
    given: &Bound<'py, PyTuple>,
) -> PyResult<Option<Inputs<'py>>> {
    let py = given.py();
    let invalid = |message: String| Error::invalid_argument(message).with_op(&signature.name);
    if given.len() > signature.inputs.len() {
        let names: Vec<&str> = signature.inputs.iter().map(|arg| arg.name.as_str()).collect();
        let (most, names) = (signature.inputs.len(), names.join(", "));
        let error = invalid(format!("takes {most} inputs ({names}), got {}", given.len()));
        return Err(to_python(py, &error));
    }
    let mut inputs = Inputs::default();
    let mut items: SmallVec<[Item<'_, 'py>; 4]> = SmallVec::new();
    for (at, arg) in signature.inputs.iter().enumerate() {
        let before = items.len();
        let object = given.get_item(at).unwrap_or_else(|_| py.None().into_bound(py));
        if arg.count.is_list() {
            let is_list = object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>();
            if !is_list {
                let kind = type_name(&object);
                let place = TensorArgument { signature, arg, position: None };
                return Err(place.invalid(py, format!("must be a list of tensors, got {kind}")));
            }
            let length = object.len()?;
            if length > MAX_LIST {
                let message = format!("must be a list of at most {MAX_LIST} tensors, got {length}");
                return Err(TensorArgument { signature, arg, position: None }.invalid(py, message));
            }
            for (position, object) in object.try_iter()?.enumerate() {
                let item = Item::new(signature, arg, Some(position), object?)?;
                let Some(item) = item else { return Ok(None) };
                items.push(item);
            }
        } else {
            let Some(item) = Item::new(signature, arg, None, object)? else { return Ok(None) };
            items.push(item);
        }
        inputs.counts.push(items.len() - before);
    }
    inputs.fill(py, signature, items)?;
    Ok(Some(inputs))
}

impl<'a, 'py> Item<'a, 'py> {
    /// `None` for a framework's tensor.
    fn new(
        signature: &Signature,
        arg: &'a ArgDef,
        position: Option<usize>,
        object: Bound<'py, PyAny>,
    ) -> PyResult<Option<Item<'a, 'py>>> {
        if object.is_none() && position.is_none() {
            return Ok(Some(Item { arg, position, value: Value::Absent }));
        }
        if is_exactly_array(&object) {
            return Ok(Some(Item { arg, position, value: Value::Array(object) }));
        }
        if crate::kinds::is_foreign(&object)? {
            return Ok(None);
        }
        need_numpy(object.py())?;
        let place = TensorArgument { signature, arg, position };
        let value = match convert::to_array(&place, &object)? {
            Some(array) => Value::Array(array),
            None if arg.is_ref => {
                let kind = type_name(&object);
                return Err(place.invalid(
                    object.py(),
                    format!("is changed in place, so it must be an array, got {kind}"),
                ));
            }
            None => Value::Literal(Natural::new(&place, object)?),
        };
        Ok(Some(Item { arg, position, value }))
    }
}

impl<'py> Inputs<'py> {
    /// The tensors as an op sees them. The inputs keep their memory, or for [`all_ready`] the call's tuple does.
    pub(crate) fn views(&self) -> impl Iterator<Item = Option<TensorView<'_>>> {
        // SAFETY: as said above, the memory outlives the borrow.
        self.elements.iter().map(|elements| elements.as_ref().map(|elements| unsafe { elements.view() }))
    }

    /// Reads the arrays, then makes arrays of the literals, whose dtypes may follow from those.
    fn fill(
        &mut self,
        py: Python<'py>,
        signature: &Signature,
        items: SmallVec<[Item<'_, 'py>; 4]>,
    ) -> PyResult<()> {
        let mut known: SmallVec<[Option<DType>; 4]> = SmallVec::from_elem(None, signature.attrs.len());
        let mut literals: Vec<(usize, &ArgDef, TensorArgument<'_>, Natural<'py>)> = Vec::new();
        for Item { arg, position, value } in items {
            let place = TensorArgument { signature, arg, position };
            match value {
                Value::Absent => self.elements.push(None),
                Value::Literal(natural) => {
                    literals.push((self.elements.len(), arg, place, natural));
                    self.elements.push(None);
                }
                Value::Array(array) => {
                    let elements = self.keep(&place, array)?;
                    if let ArgType::Attr(attr) = arg.dtype {
                        known[attr].get_or_insert(elements.dtype());
                    }
                    self.elements.push(Some(elements));
                }
            }
        }
        for attr in 0..signature.attrs.len() {
            let same = |arg: &ArgDef| arg.dtype == ArgType::Attr(attr);
            if known[attr].is_none() {
                let naturals = literals.iter().filter(|(_, arg, ..)| same(arg)).map(|(.., natural)| natural);
                let says = naturals.clone().any(|natural| !natural.is_empty);
                let telling = naturals.filter(|natural| !says || !natural.is_empty);
                let common = Natural::common(telling).map_err(|error| {
                    let name = &signature.attrs[attr].name;
                    let text = format!("the inputs of dtype `{name}` have no common one");
                    caused(py, Error::invalid_argument(text).with_op(&signature.name), error)
                })?;
                known[attr] = choose(signature, attr, common, !says);
            }
        }
        for (at, arg, place, natural) in literals {
            let dtype = match arg.dtype {
                ArgType::Fixed(dtype) => Some(dtype),
                ArgType::Attr(attr) => known[attr],
                ArgType::List(attr) => choose(signature, attr, natural.dtype, natural.is_empty),
            };
            let array = natural.into_array(&place, dtype)?;
            self.elements[at] = Some(self.keep(&place, array)?);
        }
        Ok(())
    }

    /// The elements of an array, converted where an op cannot read them as they lie; their memory is kept.
    fn keep(&mut self, place: &TensorArgument<'_>, array: Bound<'py, PyAny>) -> PyResult<Elements> {
        let py = array.py();
        let mut array = array;
        loop {
            match look(py, &array.as_borrowed()) {
                Look::Ready(elements) => {
                    if place.is_ref() && !elements.is_writable() {
                        return Err(
                            place.invalid(py, "is changed in place and the array is read-only; pass a copy")
                        );
                    }
                    self.arrays.push(array);
                    return Ok(elements);
                }
                Look::Convert | Look::Other => match convert::to_readable(place, &array)? {
                    convert::Readable::Array(readable) => array = readable,
                    convert::Readable::Text(tensor) => {
                        let elements = Elements::of(&tensor.as_view());
                        self.texts.push(tensor);
                        return Ok(elements);
                    }
                },
            }
        }
    }
}

/// The dtype that literals take where a `type` attribute is not decided by arrays: its default if they fit it, else
/// what NumPy makes of them if the definition allows that, else the first usual dtype that it allows and they fit. Those
/// without elements fit any.
fn choose(signature: &Signature, attr: usize, natural: Option<DType>, is_empty: bool) -> Option<DType> {
    const USUAL: [DType; 6] =
        [DType::Int64, DType::Int32, DType::Float64, DType::Float32, DType::Complex128, DType::Complex64];
    let natural = natural?;
    let attr = &signature.attrs[attr];
    let fits = |dtype| is_empty || convert::fits(natural, dtype);
    if let Some(AttrValue::Type(default)) = attr.default
        && fits(default)
    {
        return Some(default);
    }
    let Some(Allowed::Types(allowed)) = &attr.allowed else { return Some(natural) };
    if allowed.contains(&natural) {
        return Some(natural);
    }
    let usual = USUAL.iter().filter(|dtype| allowed.contains(dtype));
    usual.chain(allowed).find(|dtype| fits(**dtype)).copied().or(Some(natural))
}
