//! A shape signature on concrete shapes, as every call needs it.

use smallvec::SmallVec;

use super::{ArgShape, Computed, Item, ShapeSignature, Sizes};
use crate::attr::AttrValue;
use crate::def::{ArgCount, Signature};
use crate::shape::{InferenceContext, Shape, context};
use crate::{Error, Result};

/// In the slot of a dim that no input has given yet. No dim has this size, and no attribute makes sense of it.
const UNBOUND: i64 = i64::MIN;

/// In the place of a dim that only the kernel finds: no tensor has this size.
pub const UNKNOWN_DIM: usize = usize::MAX;

/// A shape signature whose names have values: what the inputs of one call say.
#[derive(Debug, Clone)]
pub struct Bound<'a> {
    signature: &'a ShapeSignature,
    /// The values of the dims' names, then those of attributes.
    slots: SmallVec<[i64; 8]>,
    batch: &'a [usize],
}

impl ShapeSignature {
    /// Checks the inputs of a call, and binds the names to their sizes.
    ///
    /// `shapes` has one entry for each tensor, the elements of lists one by one; `None` is an optional input that is
    /// absent. `attrs` are the attributes' values in the order of the definition. The definition is one that
    /// [`check`](Self::check) accepts.
    ///
    /// Allocates nothing where there are at most eight names. Errors are those of [`shape_fn`](Self::shape_fn) on the
    /// same shapes, word for word.
    pub fn bind<'a>(
        &'a self,
        op: &Signature,
        shapes: &[Option<&'a [usize]>],
        attrs: &[AttrValue],
    ) -> Result<Bound<'a>> {
        self.try_bind(op, shapes, attrs).ok_or_else(|| self.explain(op, shapes, attrs))
    }

    /// The other way round: names that have these sizes, in the order of [`dim_names`](Self::dim_names), and these batch
    /// dims. `None` where an attribute that the signature names is not there, or a dim would be negative or too large.
    pub fn with_sizes<'a>(
        &'a self,
        op: &Signature,
        sizes: &[usize],
        batch: &'a [usize],
        attrs: &[AttrValue],
    ) -> Option<Bound<'a>> {
        let mut slots = SmallVec::new();
        for size in sizes {
            slots.push(i64::try_from(*size).ok()?);
        }
        for attr in &self.attrs {
            match attrs.get(op.attr_index(&attr.text)?)? {
                AttrValue::Int(value) => slots.push(*value),
                _ => return None,
            }
        }
        let fits = sizes.len() == self.dims.len()
            && self.inputs.iter().chain(&self.outputs).all(|arg| arg.is_known(&slots, Some(batch)));
        fits.then_some(Bound { signature: self, slots, batch })
    }

    /// What tensors of these shapes, for each input one or `None`, say alone: the sizes of [`dim_names`](Self::dim_names), as far as
    /// they say them, and the batch dims. `None` where they do not fit, or an attribute that the signature names is not there.
    pub fn said_by<'a>(
        &self,
        op: &Signature,
        shapes: &[Option<&'a [usize]>],
        attrs: &[AttrValue],
    ) -> Option<(Vec<Option<usize>>, &'a [usize])> {
        let mut slots = self.unbound(op, attrs)?;
        let mut batch = None;
        for (arg, shape) in self.inputs.iter().zip(shapes) {
            if let Some(shape) = shape {
                arg.take(shape, &mut slots, &mut batch)?;
            }
        }
        let sizes = slots[..self.dims.len()].iter().map(|size| usize::try_from(*size).ok());
        Some((sizes.collect(), batch.unwrap_or_default()))
    }

    /// Slots of names that have no size yet, and of attributes.
    #[inline]
    fn unbound(&self, op: &Signature, attrs: &[AttrValue]) -> Option<SmallVec<[i64; 8]>> {
        let mut slots = match self.dims.len() {
            count @ ..=8 => SmallVec::from_buf_and_len([UNBOUND; 8], count),
            count => SmallVec::from_elem(UNBOUND, count),
        };
        for attr in &self.attrs {
            match attrs.get(op.attr_index(&attr.text)?)? {
                AttrValue::Int(value) => slots.push(*value),
                _ => return None,
            }
        }
        Some(slots)
    }

    fn try_bind<'a>(
        &'a self,
        op: &Signature,
        shapes: &[Option<&'a [usize]>],
        attrs: &[AttrValue],
    ) -> Option<Bound<'a>> {
        if op.inputs.len() != self.inputs.len() {
            return None;
        }
        let mut slots = self.unbound(op, attrs)?;
        let mut batch = None;
        let mut rest = shapes;
        let mut computed = false;
        for (arg, def) in self.inputs.iter().zip(&op.inputs) {
            let count = if def.count == ArgCount::One { 1 } else { context::count(def.count, attrs).ok()? };
            if let ([None, after @ ..], true) = (rest, def.optional) {
                rest = after;
                continue;
            }
            let (own, after) = rest.split_at_checked(count)?;
            for shape in own {
                arg.take((*shape)?, &mut slots, &mut batch)?;
            }
            computed |= arg.has_computed();
            rest = after;
        }
        if !rest.is_empty() || (computed && !self.computed_inputs_fit(op, shapes, attrs, &slots)) {
            return None;
        }
        self.outputs.iter().all(|arg| arg.is_known(&slots, batch)).then_some(Bound {
            signature: self,
            slots,
            batch: batch.unwrap_or_default(),
        })
    }

    fn computed_inputs_fit(
        &self,
        op: &Signature,
        shapes: &[Option<&[usize]>],
        attrs: &[AttrValue],
        slots: &[i64],
    ) -> bool {
        let mut next = shapes.iter();
        self.inputs.iter().zip(&op.inputs).all(|(arg, def)| {
            let count = context::count(def.count, attrs).unwrap_or_default();
            let count = if matches!(next.as_slice(), [None, ..]) { 1 } else { count };
            next.by_ref().take(count).flatten().all(|shape| arg.computed_fit(shape, slots))
        })
    }

    /// The error of a call that [`try_bind`](Self::try_bind) refuses: that of inference on the same shapes, so that
    /// each message is written once.
    #[cold]
    fn explain(&self, op: &Signature, shapes: &[Option<&[usize]>], attrs: &[AttrValue]) -> Error {
        let inferred = group(op, shapes, attrs)
            .and_then(|inputs| InferenceContext::new(op, attrs, inputs))
            .and_then(|mut context| self.infer(&mut context));
        inferred.err().unwrap_or_else(|| {
            Error::invalid_argument(format!("the dims of the inputs are too large for `{self}`"))
                .with_op(&op.name)
        })
    }
}

/// The shapes by argument, as inference takes them.
fn group(
    op: &Signature,
    shapes: &[Option<&[usize]>],
    attrs: &[AttrValue],
) -> Result<Vec<Option<Vec<Shape>>>> {
    let mut inputs = vec![];
    let mut rest = shapes;
    let mut expected = 0;
    for arg in &op.inputs {
        let count = if matches!(rest, [None, ..]) { 1 } else { context::count(arg.count, attrs)? };
        let (own, after) = rest.split_at(count.min(rest.len()));
        rest = after;
        expected += count;
        inputs.push(own.iter().map(|shape| shape.map(Shape::known)).collect());
    }
    if expected != shapes.len() {
        let text = format!("takes {expected} input tensors, got {}", shapes.len());
        return Err(Error::invalid_argument(text).with_op(&op.name));
    }
    Ok(inputs)
}

impl Bound<'_> {
    /// The shape of this output argument; of each of its tensors, where it is a list. A dim `?`, which the kernel finds, is
    /// [`UNKNOWN_DIM`].
    ///
    /// # Panics
    /// When the signature has no output of this number.
    pub fn output_shape(&self, output: usize) -> Sizes {
        self.shape_of(&self.signature.outputs[output])
    }

    /// The shape of this input argument; of each of its tensors, where it is a list.
    ///
    /// # Panics
    /// When the signature has no input of this number.
    pub fn input_shape(&self, input: usize) -> Sizes {
        self.shape_of(&self.signature.inputs[input])
    }

    fn shape_of(&self, arg: &ArgShape) -> Sizes {
        let mut sizes = if arg.batch { Sizes::from_slice(self.batch) } else { Sizes::new() };
        for item in &arg.dims {
            sizes.push(match item {
                Item::Fixed(size) => *size as usize,
                Item::Unknown => UNKNOWN_DIM,
                Item::Slot(slot) => self.slots[*slot] as usize,
                Item::Computed(computed) => {
                    computed.size(&self.slots).expect("whoever made this has checked the dims")
                }
            });
        }
        sizes
    }

    /// The size of the dim of this name; `None` where the signature has none, or all inputs that have it are absent.
    pub fn dim(&self, name: &str) -> Option<usize> {
        let slot = self.signature.dims.iter().position(|dim| dim == name)?;
        usize::try_from(self.slots[slot]).ok()
    }

    /// The dims that `...` stands for; none where no input has it.
    pub fn batch_dims(&self) -> &[usize] {
        self.batch
    }
}

impl ArgShape {
    /// Checks a shape against what is bound, and binds what it says; `None` when it does not fit.
    fn take<'a>(&self, shape: &'a [usize], slots: &mut [i64], batch: &mut Option<&'a [usize]>) -> Option<()> {
        let (first, core) = shape.split_at_checked(shape.len().checked_sub(self.dims.len())?)?;
        if self.batch {
            if *batch.get_or_insert(first) != first {
                return None;
            }
        } else if !first.is_empty() {
            return None;
        }
        for (item, &size) in self.dims.iter().zip(core) {
            let size = i64::try_from(size).ok()?;
            match item {
                Item::Slot(slot) if slots[*slot] == UNBOUND => slots[*slot] = size,
                Item::Slot(slot) if slots[*slot] != size => return None,
                Item::Fixed(fixed) if *fixed != size as u64 => return None,
                // Whether the division is exact is seen with the other sums and products.
                Item::Computed(Computed { gives: Some((slot, factor)), .. }) if slots[*slot] == UNBOUND => {
                    let factor = factor.to_int(&|&slot| slots[slot]).filter(|factor| *factor > 0)?;
                    slots[*slot] = size / factor;
                }
                _ => {}
            }
        }
        Some(())
    }

    fn computed_fit(&self, shape: &[usize], slots: &[i64]) -> bool {
        let core = &shape[shape.len() - self.dims.len()..];
        self.dims.iter().zip(core).all(|(item, &size)| match item {
            Item::Computed(computed) => !computed.is_bound(slots) || computed.size(slots) == Some(size),
            _ => true,
        })
    }

    /// Whether every dim of this output has a size.
    fn is_known(&self, slots: &[i64], batch: Option<&[usize]>) -> bool {
        let core = self.dims.iter().all(|item| match item {
            Item::Fixed(_) | Item::Unknown => true,
            Item::Slot(slot) => slots[*slot] != UNBOUND,
            Item::Computed(computed) => computed.is_bound(slots) && computed.size(slots).is_some(),
        });
        core && (!self.batch || batch.is_some())
    }
}

impl Computed {
    fn is_bound(&self, slots: &[i64]) -> bool {
        let mut bound = true;
        self.value.visit_names(&mut |&slot| bound &= slots[slot] != UNBOUND);
        bound
    }

    fn size(&self, slots: &[i64]) -> Option<usize> {
        usize::try_from(self.value.to_int(&|&slot| slots[slot])?).ok()
    }
}
