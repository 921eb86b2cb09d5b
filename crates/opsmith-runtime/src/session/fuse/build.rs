//! Steps put together: one program, what it reads and gives, and what that asks of shapes.

use std::collections::{HashMap, HashSet};

use opsmith_body::{Axes, Each, Expr, Graph, Scalar, compose_over};
use opsmith_core::space::{Extents, RowSpace};

use super::forms::{Form, Space};
use super::{Member, Regions};
use crate::session::step::{KEPT, Slot, Step};

/// What the shapes of inputs have to be in a run.
pub(super) struct Shapes {
    space: RowSpace,
    /// For each input, whether it lacks the dims of a row, and whether it has one number for each.
    inputs: Vec<(bool, bool)>,
    checks: Vec<Check>,
    /// Whether functions are computed more often than by the parts, unless numbers of a row are kept.
    repeats: bool,
}

/// The longest row whose numbers are kept from one pass to the next.
const MOST_KEPT: usize = 1024;

/// Inputs that must broadcast to every element, or to every row.
struct Check {
    inputs: Vec<usize>,
    /// Whether there is something else that has every row.
    has_rows: bool,
    is_one: bool,
}

impl Shapes {
    /// Whether every part gives tensors of the form that it was thought to, and it pays to compute them together.
    pub(super) fn fit(&self, shapes: &[&[usize]]) -> bool {
        let lacks = self.inputs.iter().map(|(lacks, _)| *lacks);
        let Some(all) = self.space.broadcast(lacks.clone().zip(shapes.iter().copied())) else { return false };
        let own = lacks.zip(shapes).map(|(lacks, shape)| self.space.broadcast([(lacks, *shape)].into_iter()));
        let Some(own) = own.collect::<Option<Vec<Extents>>>() else { return false };
        let is_row = &self.space.is_row;
        let row: usize =
            all.iter().zip(is_row).filter(|(_, is_row)| **is_row).map(|(size, _)| size).product();
        // Of no numbers a sum is 0, also of what is not a number and the same along the row.
        if row == 0 {
            return false;
        }
        if self.repeats && (row > MOST_KEPT || is_row.last() != Some(&true)) {
            return false;
        }
        let is_one = |(shape, (_, is_one)): (&Extents, &(bool, bool))| {
            !is_one || shape.iter().zip(is_row).all(|(&size, is_row)| size == 1 || !is_row)
        };
        let fits = |check: &Check| {
            let has = |dim: usize| match is_row[dim] {
                true => check.is_one,
                false => check.has_rows,
            };
            let fits = |dim: usize| check.inputs.iter().any(|&input| own[input][dim] == all[dim]);
            (0..all.len()).all(|dim| all[dim] == 1 || has(dim) || fits(dim))
        };
        own.iter().zip(&self.inputs).all(is_one) && self.checks.iter().all(fits)
    }
}

/// An input: where it is read, and how.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RegionInput {
    slot: Slot,
    lacks_row: bool,
    is_one: bool,
}

/// What others read of what steps make, of tensors that are read so often.
pub(super) fn outputs<'s>(steps: impl Iterator<Item = &'s Step> + Clone, readers: &[u32]) -> Vec<Slot> {
    let mut read: HashMap<Slot, u32> = HashMap::new();
    for slot in steps.clone().flat_map(|step| step.inputs.iter().flatten()) {
        *read.entry(*slot).or_default() += 1;
    }
    let is_output =
        |slot: &Slot| readers[*slot] == KEPT || readers[*slot] > read.get(slot).copied().unwrap_or(0);
    steps.flat_map(|step| step.outputs.iter().flatten().copied()).filter(is_output).collect()
}

/// Steps that are being put together.
pub(super) struct Build<'a> {
    regions: &'a Regions<'a>,
    space: &'a Space,
    forms: &'a HashMap<Slot, Form>,
    /// What they read of others.
    inputs: Vec<RegionInput>,
    numbers: HashMap<Slot, f64>,
    made: HashSet<Slot>,
    /// What others read of what they make.
    pub(super) outputs: Vec<Slot>,
    checks: Vec<Check>,
}

impl<'a> Build<'a> {
    pub(super) fn new(
        steps: &[(Step, Member)],
        (space, forms): (&'a Space, &'a HashMap<Slot, Form>),
        regions: &'a Regions<'a>,
    ) -> Self {
        let (inputs, numbers, made, checks) = Default::default();
        let mut build = Build { regions, space, forms, inputs, numbers, made, outputs: vec![], checks };
        for (step, member) in steps {
            build.add(step, member);
        }
        build.outputs = outputs(steps.iter().map(|(step, _)| step), regions.slots.readers);
        build
    }

    /// Notes what a step reads, and what that asks of shapes.
    fn add(&mut self, step: &Step, member: &Member) {
        let full = member.candidate.full(step, member.form, &member.outputs);
        let form = member.form;
        let (mut outside, mut own) = (Vec::new(), Vec::new());
        for (input, slot) in step.inputs.iter().enumerate() {
            let Some(slot) = *slot else { continue };
            let wanted = member.candidate.input_form(input, form);
            if self.made.contains(&slot) {
                own.extend((wanted == form).then(|| self.forms[&slot]));
                continue;
            }
            let own_form = full.iter().find(|(full, _)| *full == input).map(|(_, form)| *form);
            if let Some(number) = self.number(slot, own_form.is_some()) {
                self.numbers.insert(slot, number);
                continue;
            }
            let at = self.input(self.source(slot, wanted));
            if let Some(form) = own_form {
                let is_one = form != Form::Each;
                self.checks.push(Check { inputs: vec![at], has_rows: false, is_one });
            }
            outside.extend((wanted == form).then_some(at));
        }
        // What it reads of the others has their shape.
        if own.is_empty() || (form == Form::Each && !own.contains(&form)) {
            let (has_rows, is_one) = (!own.is_empty(), form != Form::Each);
            self.checks.push(Check { inputs: outside, has_rows, is_one });
        }
        self.made.extend(step.outputs.iter().flatten());
    }

    fn number(&self, slot: Slot, is_full: bool) -> Option<f64> {
        self.regions.single(slot).filter(|_| !is_full)
    }

    /// How a step reads what others make and it wants in this form.
    fn source(&self, slot: Slot, wanted: Form) -> RegionInput {
        let lacks_row = wanted == Form::Less;
        let is_long = self.space.is_along_row(&self.regions.slots.known[slot]);
        RegionInput { slot, lacks_row, is_one: lacks_row || !is_long }
    }

    fn input(&mut self, source: RegionInput) -> usize {
        self.inputs.iter().position(|known| *known == source).unwrap_or_else(|| {
            self.inputs.push(source);
            self.inputs.len() - 1
        })
    }

    /// The slots of the inputs.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        self.inputs.iter().map(|source| source.slot)
    }

    /// For each argument, inputs and then outputs, how many dims it has, and which.
    pub(super) fn dims(&self) -> Vec<i64> {
        let inputs = self.inputs.iter().map(|source| (source.lacks_row, source.is_one));
        let outputs =
            self.outputs.iter().map(|slot| (self.forms[slot] == Form::Less, self.forms[slot] != Form::Each));
        let dims = |(lacks_row, is_one): (bool, bool)| {
            let own = (0..self.space.rank()).filter(|&dim| !(lacks_row && self.space.is_row(dim)));
            let own = own.map(|dim| if is_one && self.space.is_row(dim) { -1 } else { dim as i64 });
            let own: Vec<i64> = own.collect();
            std::iter::once(own.len() as i64).chain(own)
        };
        inputs.chain(outputs).flat_map(dims).collect()
    }

    /// What the shapes of inputs have to be.
    pub(super) fn into_shapes(self, repeats: bool) -> Shapes {
        let is_row = (0..self.space.rank()).map(|dim| self.space.is_row(dim)).collect();
        let inputs = self.inputs.iter().map(|source| {
            // Where nothing is folded, all have every element.
            (source.lacks_row, source.is_one && self.space.row.is_some())
        });
        Shapes { space: RowSpace { is_row }, inputs: inputs.collect(), checks: self.checks, repeats }
    }

    /// What the steps compute, one after another.
    pub(super) fn graph(&self, steps: &[(Step, Member)]) -> Graph {
        let axes = |is_one: bool| if is_one && self.space.row.is_some() { Axes::NONE } else { Axes::FIRST };
        let inputs: Vec<Axes> = self.inputs.iter().map(|source| axes(source.is_one)).collect();
        let outputs: Vec<Axes> =
            self.outputs.iter().map(|slot| axes(self.forms[slot] != Form::Each)).collect();
        compose_over(&inputs, &outputs, |inputs| self.trace(steps, inputs))
    }

    fn trace(&self, steps: &[(Step, Member)], inputs: &[Expr]) -> Vec<Expr> {
        let outside: HashMap<RegionInput, Expr> =
            self.inputs.iter().copied().zip(inputs.iter().copied()).collect();
        let mut values: HashMap<Slot, Expr> = HashMap::new();
        for (step, Member { candidate, form, outputs }) in steps {
            let full = candidate.full(step, *form, outputs);
            let folds = candidate.program.rows.is_some();
            let value = |(input, slot): (usize, &Option<Slot>)| {
                // What is absent is not read.
                let Some(slot) = *slot else { return Expr::of(0.0) };
                let source = self.source(slot, candidate.input_form(input, *form));
                let number = || self.number(slot, full.iter().any(|(full, _)| *full == input)).unwrap_or(0.0);
                let known = values.get(&slot).or_else(|| outside.get(&source)).copied();
                known.unwrap_or_else(|| Expr::of(number()))
            };
            let read: Vec<Expr> = step.inputs.iter().enumerate().map(value).collect();
            let graph = candidate.program.graph.without_inputs(|input| step.inputs[input].is_none());
            let given = graph.again(&read).into_iter().zip(outputs);
            // A gradient of what there is one of for each row.
            let given = given.map(|(value, own)| if own == form || folds { value } else { value.sum() });
            values.extend(step.outputs.iter().zip(given).filter_map(|(slot, value)| Some(((*slot)?, value))));
        }
        self.outputs.iter().filter_map(|slot| values.get(slot).copied()).collect()
    }
}
