//! How tensors lie in the space of steps that are one, and which steps fit in it.

use std::sync::Arc;

use opsmith_body::Axes;
use opsmith_core::Dim;

use super::{broadcasts, like};
use crate::graph::Known;
use crate::program::OpProgram;
use crate::session::step::{Slot, Step};

/// How a tensor lies in a space.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// It has every element.
    Each,
    /// One number for each row, whose dims are 1.
    Kept,
    /// One number for each row, without the dims of a row.
    Less,
}

/// The forms, those of one number for each row first.
const FORMS: [Form; 3] = [Form::Kept, Form::Less, Form::Each];

/// The dims of steps that are one.
#[derive(Clone)]
pub(super) struct Space {
    /// What is known of tensors with every element.
    pub(super) known: Known,
    /// For each dim, whether it is one of a row's; none where nothing is folded.
    pub(super) row: Option<Vec<bool>>,
}

impl Space {
    pub(super) fn is_row(&self, dim: usize) -> bool {
        self.row.as_ref().is_some_and(|row| row[dim])
    }

    pub(super) fn rank(&self) -> usize {
        self.known.shape.dims().map_or(0, <[_]>::len)
    }

    /// The space of both, if they may be the same.
    pub(super) fn with(&self, other: &Space) -> Option<Space> {
        let same_rows = self.row.is_none() || other.row.is_none() || self.row == other.row;
        let row = self.row.as_ref().or(other.row.as_ref()).cloned();
        (like(&self.known, &other.known) && same_rows).then(|| Space { known: self.known.clone(), row })
    }

    /// What is known of a tensor of this form.
    fn of(&self, form: Form) -> Known {
        let dims = self.known.shape.dims().unwrap_or_default().iter().cloned().enumerate();
        let shape = match form {
            Form::Each => return self.known.clone(),
            Form::Less => dims.filter(|(dim, _)| !self.is_row(*dim)).map(|(_, size)| size).collect(),
            Form::Kept => {
                dims.map(|(dim, size)| if self.is_row(dim) { Dim::Known(1) } else { size }).collect()
            }
        };
        Known { dtype: self.known.dtype, shape }
    }

    /// Whether what lacks the dims of a row has the last dims of the space.
    fn begins_with_row(&self) -> bool {
        (1..self.rank()).all(|dim| self.is_row(dim - 1) || !self.is_row(dim))
    }

    /// Whether a tensor with these dims, the last ones of the space, may have more than one number for a row.
    pub(super) fn is_along_row(&self, known: &Known) -> bool {
        let dims = known.shape.dims().unwrap_or_default();
        // What has more dims is of no such space.
        let Some(first) = self.rank().checked_sub(dims.len()) else { return true };
        dims.iter().enumerate().any(|(dim, size)| self.is_row(first + dim) && size.value() != Some(1))
    }
}

/// A step that may be one with others.
pub(super) struct Candidate {
    pub(super) program: Arc<OpProgram>,
    /// The space of a step that folds; that of the outputs of one that does not.
    pub(super) space: Space,
}

/// What a step reads.
#[derive(Clone, Copy)]
pub(super) enum Read<'a> {
    /// A tensor that is made by one of the others.
    Own(Form),
    /// Another one, or a number if it need not be a tensor.
    Outside(&'a Known, bool),
}

impl Candidate {
    /// How each input has to lie: there may be less of it.
    pub(super) fn input_form(&self, input: usize, form: Form) -> Form {
        match &self.program.rows {
            Some(_) if self.program.graph.input_axes().nth(input) == Some(Axes::FIRST) => Form::Each,
            Some(rows) if rows.keep => Form::Kept,
            Some(_) => Form::Less,
            None => form,
        }
    }

    /// The inputs whose shapes are those of a form, and which, for what a step gives in these.
    pub(super) fn full(&self, step: &Step, form: Form, outputs: &[Form]) -> Vec<(usize, Form)> {
        let given = step.outputs.iter().zip(outputs.iter().zip(&self.program.like));
        let like = given.filter_map(|(slot, (form, like))| Some(((*like)?, slot.map(|_| *form)?)));
        let whole = self.program.whole.iter().map(|&input| (input, self.input_form(input, form)));
        whole.chain(like).collect()
    }

    /// The forms of what the step computes and of its outputs in a space, if it fits there. A gradient may be of one number for each
    /// row, over which it is summed.
    pub(super) fn place<'a>(
        &self,
        step: &Step,
        space: &Space,
        read: impl Fn(Slot) -> Read<'a>,
    ) -> Option<(Form, Vec<Form>)> {
        let inputs: Vec<Option<Read<'_>>> = step.inputs.iter().map(|slot| slot.map(&read)).collect();
        let form = match self.program.rows {
            Some(_) => Form::Each,
            None => self.pointwise_form(space, &inputs)?,
        };
        let has = |input: usize, wanted: Form| match &inputs[input] {
            Some(Read::Own(own)) => *own == wanted,
            Some(Read::Outside(known, _)) => {
                let is_kept = wanted == Form::Kept;
                like(known, &space.of(wanted)) && !(is_kept && space.is_along_row(known))
            }
            None => true,
        };
        let fits = |input: usize| {
            let wanted = self.input_form(input, form);
            match &inputs[input] {
                Some(Read::Own(own)) if self.program.rows.is_some() => {
                    *own == wanted || (*own == Form::Kept && wanted == Form::Each)
                }
                Some(Read::Outside(known, false)) => broadcasts(known, &space.of(wanted)),
                _ => true,
            }
        };
        let output = |output: usize| {
            let axes = self.program.graph.output_axes().nth(output)?;
            match (&self.program.rows, self.program.like[output]) {
                _ if step.outputs[output].is_none() => Some(form),
                (Some(rows), _) if axes.is_empty() => Some(if rows.keep { Form::Kept } else { Form::Less }),
                (Some(_), _) | (None, None) => Some(form),
                (None, Some(input)) => {
                    let may_be =
                        |own: &Form| has(input, *own) && (*own != Form::Less || space.begins_with_row());
                    let forms = if space.row.is_some() && form == Form::Each { &FORMS[..] } else { &[form] };
                    forms.iter().copied().find(may_be)
                }
            }
        };
        let outputs = (0..step.outputs.len()).map(output).collect::<Option<Vec<Form>>>()?;
        let full = self.full(step, form, &outputs);
        // One row is for one thread, and what is made of it for each element is for several.
        let is_one_row = space.row.as_ref().is_some_and(|row| row.iter().all(|is_row| *is_row));
        let has_rows = inputs.iter().flatten().any(|read| matches!(read, Read::Own(Form::Kept | Form::Less)));
        let spreads = is_one_row && has_rows && outputs.contains(&Form::Each);
        ((0..inputs.len()).all(fits) && full.into_iter().all(|(input, form)| has(input, form)) && !spreads)
            .then_some((form, outputs))
    }

    /// The form of what a step that does not fold makes of its inputs.
    fn pointwise_form(&self, space: &Space, inputs: &[Option<Read<'_>>]) -> Option<Form> {
        let own =
            |form: Form| inputs.iter().flatten().any(|read| matches!(read, Read::Own(own) if *own == form));
        let is_long = |read: &Read<'_>| matches!(read, Read::Outside(known, _) if space.is_along_row(known));
        let may_be = |form: Form| like(&space.of(form), &self.space.known);
        let is_less = own(Form::Less) && !own(Form::Each) && !own(Form::Kept) && may_be(Form::Less);
        if is_less {
            return Some(Form::Less);
        }
        let has_rows = own(Form::Kept) || own(Form::Less);
        let form = match has_rows && !own(Form::Each) && !inputs.iter().flatten().any(is_long) {
            true => Form::Kept,
            false => Form::Each,
        };
        (may_be(form) && (!own(Form::Less) || space.begins_with_row())).then_some(form)
    }
}
