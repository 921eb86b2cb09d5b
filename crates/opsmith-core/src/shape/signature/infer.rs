//! A shape signature on partial and symbolic shapes.

use std::fmt::Display;

use super::{ArgShape, Computed, Item, ShapeSignature};
use crate::shape::context::Must;
use crate::shape::parse::Ast;
use crate::shape::{Dim, Expr, InferenceContext, Relation, Shape};
use crate::{Code, Error, Result};

/// Where a dim was first seen: an input and a position in it.
type Place = (usize, usize);

/// What the inputs seen so far say.
struct Seen {
    /// By slot: nothing before the first input that has the dim.
    dims: Vec<Option<(Dim, Place)>>,
    attrs: Vec<Option<i64>>,
    /// The batch dims and the input that they were first seen in; their number may not be known yet.
    batch: Option<(Option<Vec<Dim>>, usize)>,
}

impl Seen {
    fn expr(&self, slot: usize) -> Option<Expr> {
        match self.dims.get(slot) {
            Some(seen) => seen.as_ref().and_then(|(dim, _)| dim.to_expr().ok().flatten()),
            None => self.attrs[slot - self.dims.len()].map(Expr::constant),
        }
    }
}

impl ShapeSignature {
    /// Checks the inputs of a call and sets the shapes of its outputs.
    pub(super) fn infer(&self, c: &mut InferenceContext<'_>) -> Result<()> {
        self.check(c.signature())?;
        let attr = |name: &str| match c.get_int(name) {
            Err(error) if error.code() == Code::Unavailable => Ok(None),
            value => value.map(Some),
        };
        let attrs = self.attrs.iter().map(|name| attr(&name.text)).collect::<Result<_>>()?;
        let mut seen = Seen { dims: vec![None; self.dims.len()], attrs, batch: None };
        let inputs = self.present_inputs(c)?;
        for (arg, i) in &inputs {
            self.see(c, &mut seen, arg, *i)?;
        }
        for (arg, i) in inputs {
            check_computed(c, &seen, arg, i)?;
        }
        for (arg, def) in self.outputs.iter().zip(&c.signature().outputs) {
            for i in c.output_range(&def.name)? {
                let shape = self.output(c, &seen, arg, i)?;
                c.set_output(i, shape)?;
            }
        }
        Ok(())
    }

    /// The inputs that are there, by number, each with the shape it should have.
    fn present_inputs(&self, c: &InferenceContext<'_>) -> Result<Vec<(&ArgShape, usize)>> {
        let mut inputs = vec![];
        for (arg, def) in self.inputs.iter().zip(&c.signature().inputs) {
            let range = c.input_range(&def.name)?;
            inputs.extend(range.filter(|&i| c.has_input(i)).map(|i| (arg, i)));
        }
        Ok(inputs)
    }

    /// Checks one input against those before it, and takes up what it says.
    fn see(&self, c: &mut InferenceContext<'_>, seen: &mut Seen, arg: &ArgShape, i: usize) -> Result<()> {
        let shape = c.input(i)?;
        let Some(dims) = shape.dims() else {
            for item in &arg.dims {
                if let Some(slot) = item.given() {
                    seen.dims[slot].get_or_insert((Dim::Unknown, (i, 0)));
                }
            }
            if arg.batch {
                seen.batch.get_or_insert((None, i));
            }
            return Ok(());
        };
        let first = first_core_dim(c, arg, &shape, dims)?;
        if arg.batch {
            see_batch(c, seen, &dims[..first], i)?;
        }
        for (position, item) in (first..).zip(&arg.dims) {
            match item {
                Item::Fixed(size) => c.assume(Relation::Equal, &dims[position], &Dim::Known(*size), |c| {
                    Must::of_input(i, format!("dim {position} of {} must be {size}", c.label(&shape)))
                })?,
                Item::Slot(slot) => {
                    let own = (dims[position].clone(), (i, position));
                    see_dim(c, &mut seen.dims[*slot], own, &self.dims[*slot])?;
                }
                Item::Computed(Computed { gives: Some((slot, factor)), text, .. }) => {
                    let place = (i, position);
                    if matches!(seen.dims[*slot], None | Some((Dim::Unknown, _))) {
                        let part = quotient(c, seen, &dims[position], factor, (place, text))?;
                        seen.dims[*slot] = Some((part, place));
                    }
                }
                Item::Computed(_) | Item::Unknown => {}
            }
        }
        Ok(())
    }

    fn output(&self, c: &mut InferenceContext<'_>, seen: &Seen, arg: &ArgShape, i: usize) -> Result<Shape> {
        let mut dims = match (arg.batch, &seen.batch) {
            (false, _) => vec![],
            (true, Some((Some(batch), _))) => batch.clone(),
            (true, Some((None, _))) => return Ok(Shape::unknown()),
            (true, None) => {
                let label = c.output_label(i);
                let text =
                    format!("the batch dims of {label} are not known: the inputs that have them are absent");
                return Err(c.error_of_output(i, text));
            }
        };
        for item in &arg.dims {
            let position = dims.len();
            dims.push(match item {
                Item::Fixed(size) => Dim::Known(*size),
                Item::Unknown => Dim::Unknown,
                Item::Slot(slot) => match &seen.dims[*slot] {
                    Some((dim, _)) => dim.clone(),
                    None => return Err(self.absent(c, *slot, i, position)),
                },
                Item::Computed(computed) => {
                    if let Some(slot) = self.unseen(seen, computed) {
                        return Err(self.absent(c, slot, i, position));
                    }
                    computed_output(c, seen, computed, i, position)?
                }
            });
        }
        Ok(Shape::from(dims))
    }

    /// A dim of the arithmetic that no present input has.
    fn unseen(&self, seen: &Seen, computed: &Computed) -> Option<usize> {
        let mut unseen = None;
        computed.value.visit_names(&mut |&slot| {
            if matches!(seen.dims.get(slot), Some(None)) {
                unseen = Some(slot);
            }
        });
        unseen
    }

    fn absent(&self, c: &InferenceContext<'_>, slot: usize, i: usize, position: usize) -> Error {
        let (label, name) = (c.output_label(i), &self.dims[slot]);
        let text =
            format!("dim {position} of {label} is not known: the inputs that have `{name}` are absent");
        c.error_of_output(i, text)
    }
}

/// The position after the batch dims. Errors when the rank does not fit.
fn first_core_dim(c: &InferenceContext<'_>, arg: &ArgShape, shape: &Shape, dims: &[Dim]) -> Result<usize> {
    match dims.len().checked_sub(arg.core_rank()) {
        Some(first) if first == 0 || arg.batch => Ok(first),
        _ => {
            let at_least = if arg.batch { "at least " } else { "" };
            Err(c.rank_error(shape, &format!("rank {at_least}{}, {arg}", arg.core_rank())))
        }
    }
}

/// The dim of which `dim` is a multiple. Errors where the other factor is not positive.
fn quotient(
    c: &InferenceContext<'_>,
    seen: &Seen,
    dim: &Dim,
    factor: &Ast<usize>,
    ((i, position), text): (Place, &str),
) -> Result<Dim> {
    let part = || {
        let (Some(whole), Some(factor)) = (dim.to_expr()?, factor.to_expr(&|&slot| seen.expr(slot))?) else {
            return Ok(Dim::Unknown);
        };
        Dim::from_expr(whole.floor_div(&factor)?)
    };
    part().map_err(|error: Error| {
        let label = c.input_label(i);
        c.error_of_input(Some(i), format_args!("dim {position} of {label} must be {text}: {}", error.text()))
    })
}

fn see_dim(
    c: &mut InferenceContext<'_>,
    seen: &mut Option<(Dim, Place)>,
    (dim, place): (Dim, Place),
    name: &str,
) -> Result<()> {
    match seen {
        Some((known, (i, j))) if *known != Dim::Unknown => {
            let (i, j) = (*i, *j);
            *known = c.merge_as(known, &dim, |c| {
                let (own, first) = (c.input_label(place.0), c.input_label(i));
                let text = format!("dim {} of {own} must equal dim {j} of {first} ({name})", place.1);
                Must::of_input(place.0, text)
            })?;
        }
        _ => *seen = Some((dim, place)),
    }
    Ok(())
}

fn see_batch(c: &mut InferenceContext<'_>, seen: &mut Seen, dims: &[Dim], i: usize) -> Result<()> {
    let Some((Some(known), first)) = &mut seen.batch else {
        seen.batch = Some((Some(dims.to_vec()), i));
        return Ok(());
    };
    let first = *first;
    if known.len() != dims.len() {
        let (expected, got) = (known.len(), dims.len());
        let (own, first) = (c.input_label(i), c.input_label(first));
        let text = format!("{own} must have as many batch dims as {first}: {got} ≠ {expected}");
        return Err(c.error_of_input(Some(i), text));
    }
    for (j, (known, dim)) in known.iter_mut().zip(dims).enumerate() {
        *known = c.merge_as(known, dim, |c| {
            let (own, first) = (c.input_label(i), c.input_label(first));
            Must::of_input(i, format!("dim {j} of {own} must equal dim {j} of {first} (...)"))
        })?;
    }
    Ok(())
}

fn check_computed(c: &mut InferenceContext<'_>, seen: &Seen, arg: &ArgShape, i: usize) -> Result<()> {
    let shape = c.input(i)?;
    let Some(dims) = shape.dims().filter(|_| arg.has_computed()) else { return Ok(()) };
    let first = first_core_dim(c, arg, &shape, dims)?;
    for (position, item) in (first..).zip(&arg.dims) {
        let Item::Computed(computed) = item else { continue };
        let is_here = |slot: usize| matches!(seen.dims[slot], Some((_, place)) if place == (i, position));
        let a_multiple = match &computed.gives {
            Some((slot, Ast::Int(factor))) if is_here(*slot) => format!("a multiple of {factor}, "),
            Some((slot, _)) if is_here(*slot) => "a multiple, ".to_owned(),
            _ => String::new(),
        };
        let what = |c: &InferenceContext<'_>| {
            format!("dim {position} of {} must be {a_multiple}{}", c.input_label(i), computed.text)
        };
        let failed = |c: &InferenceContext<'_>, why: &dyn Display| {
            c.error_of_input(Some(i), format_args!("{}: {why}", what(c)))
        };
        let value = computed.value.to_expr(&|&slot| seen.expr(slot));
        let Some(value) = value.map_err(|error| failed(c, &error.text()))? else { continue };
        match Dim::from_expr(value.clone()) {
            Ok(value) => {
                c.assume(Relation::Equal, &dims[position], &value, |c| Must::of_input(i, what(c)))?;
            }
            Err(_) => return Err(failed(c, &format_args!("{} ≠ {value}", dims[position]))),
        }
    }
    Ok(())
}

fn computed_output(
    c: &mut InferenceContext<'_>,
    seen: &Seen,
    computed: &Computed,
    i: usize,
    position: usize,
) -> Result<Dim> {
    let what =
        |c: &InferenceContext<'_>| format!("dim {position} of {} ({})", c.output_label(i), computed.text);
    let value = computed.value.to_expr(&|&slot| seen.expr(slot));
    let failed = |error: Error| c.error_of_output(i, format_args!("{}: {}", what(c), error.text()));
    let Some(value) = value.map_err(failed)? else {
        return Ok(Dim::Unknown);
    };
    let what = |c: &InferenceContext<'_>| format!("{} must not be negative", what(c));
    match Dim::from_expr(value.clone()) {
        Ok(dim) => {
            c.assume(Relation::AtLeast, &dim, &Dim::Known(0), |c| what(c).into())?;
            Ok(dim)
        }
        Err(_) => Err(c.error_of_output(i, format_args!("{}: {value} < 0", what(c)))),
    }
}
