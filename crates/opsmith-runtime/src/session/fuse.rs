//! Pointwise steps and folds that follow each other become one: a program that goes through memory once, or once for each fold
//! that needs the one before.
//!
//! What a pointwise op or a reduction computes, its library tells as a graph. The graphs of steps that read each other's outputs
//! are put together to one, which the standard operator `Pointwise` computes, or `OverAxes` if there are folds. Steps go
//! together when they are over the same elements and fold the same dims: what they give has every element, or one number for
//! each row. Where that is not known before the run, it is checked in the run, and steps that do not fit run as if there were no
//! folds to be put together with others, or one by one.

mod build;
mod chain;
mod forms;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use opsmith_body::Axes;
use opsmith_core::fork::OnceLock;
use opsmith_core::{AttrValue, DType, Dim, Result, Shape};

use self::build::Build;
use self::forms::{Candidate, Form, Read, Space};
use super::step::{Action, Fit, Fused, Slot, Step};
use crate::graph::{Kind, Known, Node, may_be};
use crate::library::Op;
use crate::program::OpProgram;
use crate::standard;
use crate::tensor::Tensor;

/// The most steps that become one: its program is compared in each run.
const MOST_STEPS: usize = 2048;

/// The most tensors that one reads: a block of each has to stay in the cache.
const MOST_INPUTS: usize = 48;

/// The most tensors that steps with folds read and make: code is written for each shape, and `OverAxes` has no more arguments.
const MOST_OF_ROWS: usize = 64;

/// What the shapes of inputs have to be in a run.
enum Fits {
    Rows(build::Shapes),
    Axes(chain::Shapes),
}

impl Fit for Fits {
    fn fit(&self, shapes: &[&[usize]]) -> bool {
        match self {
            Fits::Rows(own) => own.fit(shapes),
            Fits::Axes(own) => own.fit(shapes),
        }
    }
}

/// What is known of the tensors in slots.
pub(super) struct Slots<'a> {
    /// Those that are the same in each run.
    pub(super) constants: &'a [Option<Tensor>],
    /// How often each is read; [`KEPT`](super::step::KEPT) for what is fetched.
    pub(super) readers: &'a [u32],
    /// What each holds, as far as it is known.
    pub(super) known: &'a [Known],
}

/// Puts steps together.
///
/// # Errors
/// `Internal` where the engine lacks the op for it, or a library tells a program that is none.
pub(super) fn fuse(steps: Vec<Step>, slots: &Slots<'_>) -> Result<Vec<Step>> {
    let mut regions = Regions::new(slots, true);
    let steps = renumbered(chain::chains(&regions, steps)?);
    for (index, step) in steps.iter().enumerate() {
        regions.add(index, step)?;
    }
    Ok(renumbered(regions.put_together(steps.into_iter().enumerate().collect())?))
}

/// Steps with which they were, that need each other by their places.
fn renumbered(mut steps: Vec<(Step, Vec<usize>)>) -> Vec<Step> {
    let mut place = HashMap::new();
    for (index, (_, members)) in steps.iter().enumerate() {
        place.extend(members.iter().map(|&member| (member, index)));
    }
    for (index, (step, _)) in steps.iter_mut().enumerate() {
        step.needs.iter_mut().for_each(|needed| *needed = place[needed]);
        step.needs.retain(|needed| *needed != index);
        step.needs.sort_unstable();
        step.needs.dedup();
        debug_assert!(step.needs.iter().all(|needed| *needed < index), "a step comes after what it needs");
    }
    steps.into_iter().map(|(step, _)| step).collect()
}

/// A step of a region.
struct Member {
    candidate: Candidate,
    /// The form of what it computes, if it does not fold, and those of its outputs.
    form: Form,
    outputs: Vec<Form>,
}

/// Steps that can become one.
struct Region {
    members: Vec<(usize, Member)>,
    space: Space,
    /// How what it makes lies in the space.
    forms: HashMap<Slot, Form>,
    /// What it reads of others.
    inputs: HashSet<Slot>,
    /// Whether more may come: nobody else has read what it gives, so whoever comes cannot be in need of itself.
    is_open: bool,
}

struct Regions<'a> {
    slots: &'a Slots<'a>,
    list: Vec<Region>,
    /// The region of each step.
    of_step: HashMap<usize, usize>,
    /// Whether steps that fold are put together with others.
    folds: bool,
}

impl<'a> Regions<'a> {
    fn new(slots: &'a Slots<'a>, folds: bool) -> Self {
        Regions { slots, list: vec![], of_step: HashMap::new(), folds }
    }

    /// Adds a step to the regions whose outputs it reads, which become one, or begins one with it.
    fn add(&mut self, index: usize, step: &Step) -> Result<()> {
        let mut before: Vec<usize> =
            step.needs.iter().filter_map(|needed| self.of_step.get(needed).copied()).collect();
        before.sort_unstable();
        before.dedup();
        before.sort_by_key(|&region| std::cmp::Reverse(self.list[region].members.len()));
        let candidate = self.candidate(step)?;
        let (mut joined, mut place) = (Vec::new(), None);
        if let Some(candidate) = &candidate {
            for &region in before.iter().filter(|&&region| self.list[region].is_open) {
                joined.push(region);
                match self.place(&joined, step, candidate) {
                    Some(found) => place = Some(found),
                    None => _ = joined.pop(),
                }
            }
        }
        if place.as_ref().is_none_or(|(space, _)| !self.is_small(&joined, space, step)) {
            (joined, place) = (vec![], None);
        }
        before
            .iter()
            .filter(|region| !joined.contains(region))
            .for_each(|&other| self.list[other].is_open = false);
        let Some(candidate) = candidate else { return Ok(()) };
        let Some((space, (form, outputs))) = place.or_else(|| self.place(&[], step, &candidate)) else {
            return Ok(());
        };
        let made = step.outputs.iter().zip(&outputs);
        let forms: Vec<(Slot, Form)> = made.filter_map(|(slot, form)| Some(((*slot)?, *form))).collect();
        let into = joined.first().copied().unwrap_or(self.list.len());
        if joined.is_empty() {
            let (members, forms, inputs) = Default::default();
            self.list.push(Region { members, space: space.clone(), forms, inputs, is_open: true });
        }
        for &region in joined.iter().skip(1) {
            let old = &mut self.list[region];
            old.is_open = false;
            let (members, forms, inputs) = (
                std::mem::take(&mut old.members),
                std::mem::take(&mut old.forms),
                std::mem::take(&mut old.inputs),
            );
            self.of_step.extend(members.iter().map(|(member, _)| (*member, into)));
            self.list[into].members.extend(members);
            self.list[into].forms.extend(forms);
            self.list[into].inputs.extend(inputs);
        }
        self.of_step.insert(index, into);
        let read: Vec<Slot> = self.read(step).collect();
        let region = &mut self.list[into];
        region.space = space;
        region.members.push((index, Member { candidate, form, outputs }));
        region.inputs.extend(read);
        region.forms.extend(forms);
        region.inputs.retain(|slot| !region.forms.contains_key(slot));
        Ok(())
    }

    /// What a step reads that is no number of the program.
    fn read(&self, step: &Step) -> impl Iterator<Item = Slot> {
        step.inputs.iter().flatten().copied().filter(|&slot| self.single(slot).is_none())
    }

    /// The space of regions with one step more, and the forms of that there, if it fits.
    fn place(
        &self,
        joined: &[usize],
        step: &Step,
        candidate: &Candidate,
    ) -> Option<(Space, (Form, Vec<Form>))> {
        let mut regions = joined.iter().map(|&region| &self.list[region]);
        let space = match regions.next() {
            None => candidate.space.clone(),
            Some(first) => {
                let space = regions.try_fold(first.space.clone(), |space, other| space.with(&other.space))?;
                match candidate.program.rows {
                    Some(_) => space.with(&candidate.space)?,
                    None => space,
                }
            }
        };
        let read = |slot: Slot| {
            let own = joined.iter().find_map(|&region| self.list[region].forms.get(&slot));
            own.map_or_else(
                || Read::Outside(&self.slots.known[slot], self.single(slot).is_some()),
                |form| Read::Own(*form),
            )
        };
        let forms = candidate.place(step, &space, read)?;
        Some((space, forms))
    }

    /// Whether regions and one step more are small enough together.
    fn is_small(&self, joined: &[usize], space: &Space, step: &Step) -> bool {
        let regions = || joined.iter().map(|&region| &self.list[region]);
        let members: usize = regions().map(|region| region.members.len()).sum();
        let inputs: usize = regions().map(|region| region.inputs.len()).sum();
        let made: usize = regions().map(|region| region.forms.len()).sum();
        let inputs = inputs + self.read(step).collect::<HashSet<Slot>>().len();
        members < MOST_STEPS
            && inputs <= MOST_INPUTS
            && (space.row.is_none() || inputs + made + step.outputs.len() <= MOST_OF_ROWS)
    }

    /// A step that may be part of a region, alone.
    fn candidate(&self, step: &Step) -> Result<Option<Candidate>> {
        let Some(known) = self.may_fuse(step) else { return Ok(None) };
        let Some(program) = self.program(step)?.filter(|program| program.axes.is_none()) else {
            return Ok(None);
        };
        let graph = &program.graph;
        let space = match &program.rows {
            Some(rows) if self.folds => {
                // That of what has every element: the input with the most dims.
                let each =
                    step.inputs.iter().zip(graph.input_axes()).filter(|(_, axes)| *axes == Axes::FIRST);
                let each = each.filter_map(|(slot, _)| Some(self.slots.known[(*slot)?].clone()));
                let rank = |known: &Known| known.shape.dims().map_or(0, <[_]>::len);
                let Some(known) = each.max_by_key(rank).filter(|known| rank(known) > 0) else {
                    return Ok(None);
                };
                let Some(row) = marks(&rows.dims, rank(&known)) else { return Ok(None) };
                Space { known, row: Some(row) }
            }
            Some(_) => return Ok(None),
            None => {
                // A gradient has the shape of an input, and what it is made of has that of all.
                let given = program.whole.last().and_then(|&input| step.inputs[input]);
                let known = given.map_or(known, |slot| self.slots.known[slot].clone());
                Space { known, row: None }
            }
        };
        Ok(Some(Candidate { program, space }))
    }

    /// What a step computes, if it may be part of a region or a chain.
    fn program(&self, step: &Step) -> Result<Option<Arc<OpProgram>>> {
        let (Action::Call { op, attrs, device: None, .. }, Some(dtype)) = (&step.action, self.floats(step))
        else {
            return Ok(None);
        };
        let program = op.program(attrs, dtype)?;
        Ok(program.filter(|program| {
            program.graph.input_count() == step.inputs.len() && program.like.len() == step.outputs.len()
        }))
    }

    /// What the first output of a step is, if as far as its tensors go it may be part of a region.
    fn may_fuse(&self, step: &Step) -> Option<Known> {
        let dtype = self.floats(step)?;
        let mut outputs = step.outputs.iter().flatten().map(|&slot| &self.slots.known[slot]);
        let is_float = outputs.clone().all(|output| output.dtype == dtype);
        outputs.next().filter(|first| is_float && first.shape.dims().is_some()).cloned()
    }

    /// The dtype of the floats of a step that may be part of a region or a chain, which may give positions too.
    fn floats(&self, step: &Step) -> Option<DType> {
        let node = &step.node;
        if !node.is_pure() || !node.controls.is_empty() || node.counts.iter().any(|&count| count > 1) {
            return None;
        }
        let known = |slot: &Slot| &self.slots.known[*slot];
        let mut inputs = step.inputs.iter().flatten();
        let dtype = known(inputs.clone().next()?).dtype;
        let is_float = matches!(dtype, DType::Float32 | DType::Float64);
        let is_own = |slot: &Slot| known(slot).dtype == dtype && known(slot).shape.dims().is_some();
        let is_made = |slot: &Slot| known(slot).dtype == dtype || self.gives_positions(*slot);
        let fits = inputs.clone().all(is_own) && step.outputs.iter().flatten().all(is_made);
        (is_float && fits && inputs.any(|&slot| self.single(slot).is_none())).then_some(dtype)
    }

    /// Whether what is made is a position, a whole number of a program.
    fn gives_positions(&self, slot: Slot) -> bool {
        self.slots.known[slot].dtype == DType::Int64
    }

    /// The number that is the same in each run. One that has dims may give what is computed from it more dims.
    fn single(&self, slot: Slot) -> Option<f64> {
        let constant = self.slots.constants[slot].as_ref().filter(|it| it.shape().is_empty())?;
        match constant.dtype() {
            DType::Float32 => constant.to_vec::<f32>().ok()?.first().map(|&number| number.into()),
            DType::Float64 => constant.to_vec::<f64>().ok()?.first().copied(),
            _ => None,
        }
    }

    /// The steps, those of each region as one in the place of its last, and which they were.
    fn put_together(mut self, steps: Vec<(usize, Step)>) -> Result<Vec<(Step, Vec<usize>)>> {
        let mut new = Vec::with_capacity(steps.len());
        let mut old: HashMap<usize, Step> = HashMap::new();
        for (index, step) in steps {
            let Some(&region) = self.of_step.get(&index) else {
                new.push((step, vec![index]));
                continue;
            };
            old.insert(index, step);
            let region = &mut self.list[region];
            region.members.sort_unstable_by_key(|(member, _)| *member);
            if region.members.last().is_none_or(|(last, _)| *last != index) {
                continue;
            }
            let (members, space, forms) = (
                std::mem::take(&mut region.members),
                region.space.clone(),
                std::mem::take(&mut region.forms),
            );
            let indices: Vec<usize> = members.iter().map(|(member, _)| *member).collect();
            let taken = members.into_iter().filter_map(|(at, member)| Some((old.remove(&at)?, member)));
            let mut taken: Vec<(Step, Member)> = taken.collect();
            match taken.len() {
                1 => new.push((taken.remove(0).0, indices)),
                _ => new.extend(self.fused(taken, indices, (&space, &forms))?),
            }
        }
        Ok(new)
    }

    /// Several steps as one, if their shapes are not known not to fit.
    fn fused(
        &self,
        steps: Vec<(Step, Member)>,
        indices: Vec<usize>,
        (space, forms): (&Space, &HashMap<Slot, Form>),
    ) -> Result<Vec<(Step, Vec<usize>)>> {
        let build = Build::new(&steps, (space, forms), self);
        let graph = build.graph(&steps);
        let functions = steps.iter().map(|(_, member)| member.candidate.program.graph.functions_by_passes());
        let repeats = space.row.is_some() && graph.functions_by_passes() > functions.sum();
        let program = graph.to_text().unwrap_or_default();
        let mut attrs: Vec<(String, AttrValue)> = vec![
            ("program".to_owned(), program.into()),
            ("M".to_owned(), (build.outputs.len() as i64).into()),
        ];
        if space.row.is_some() {
            let axis = |dim: usize| if space.is_row(dim) { 0 } else { -1 };
            let axes: Vec<i64> = (0..space.rank()).map(axis).collect();
            attrs.push(("space".to_owned(), axes.into()));
            attrs.push(("dims".to_owned(), build.dims().into()));
        }
        let attrs: Arc<[(String, AttrValue)]> = attrs.into();
        let op = standard::op(if space.row.is_some() { "OverAxes" } else { "Pointwise" })?;
        let needs = steps.iter().flat_map(|(step, _)| step.needs.iter().copied()).collect();
        let slots: Vec<Slot> = build.slots().collect();
        let inputs = slots.iter().copied().map(Some).collect();
        let outputs = build.outputs.iter().copied().map(Some).collect();
        let made = build.outputs.clone();
        let shapes = build.into_shapes(repeats);
        let known: Option<Vec<Vec<usize>>> =
            slots.iter().map(|&slot| self.slots.known[slot].shape.to_known()).collect();
        let fits = known.map(|known| shapes.fit(&known.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        let mut parts: Vec<Step> = steps.into_iter().map(|(step, _)| step).collect();
        let node = Arc::new(self.node(&parts, &op, &attrs, (slots.len(), &made)));
        if space.row.is_some() {
            let alone = self.without_folds(parts, &indices)?;
            if fits == Some(false) {
                return Ok(alone);
            }
            parts = alone.into_iter().map(|(step, _)| step).collect();
        }
        let proven = fits == Some(true);
        let action = Action::Fused(Fused { op, attrs, parts, shapes: Box::new(Fits::Rows(shapes)), proven });
        let (cost, prepared) = (AtomicU32::new(0), OnceLock::new());
        Ok(vec![(Step { node, action, inputs, outputs, needs, cost, prepared }, indices)])
    }

    /// The same steps, of which only those that do not fold are put together.
    fn without_folds(&self, steps: Vec<Step>, indices: &[usize]) -> Result<Vec<(Step, Vec<usize>)>> {
        let mut regions = Regions::new(self.slots, false);
        for (step, &index) in steps.iter().zip(indices) {
            regions.add(index, step)?;
        }
        let steps = indices.iter().copied().zip(steps).collect();
        regions.put_together(steps)
    }

    /// What stands in traces and errors for the nodes of steps that are one.
    fn node(
        &self,
        steps: &[Step],
        op: &Op,
        attrs: &Arc<[(String, AttrValue)]>,
        (num_inputs, outputs): (usize, &[Slot]),
    ) -> Node {
        let last = &steps[steps.len() - 1].node;
        let positions = outputs.iter().filter(|&&slot| self.gives_positions(slot)).count();
        let mut output_counts = vec![outputs.len() - positions, positions];
        output_counts.truncate(op.signature().outputs.len());
        Node {
            name: format!("{} and {} before it", last.name, steps.len() - 1),
            kind: Kind::Call { op: op.clone(), attrs: attrs.clone() },
            inputs: vec![],
            counts: vec![num_inputs],
            controls: vec![],
            outputs: outputs.iter().map(|&slot| self.slots.known[slot].clone()).collect(),
            output_counts,
            place: last.place.clone(),
            device: last.device,
        }
    }
}

/// For each dim, whether it is one of a row's, of positions from the end where negative, of none all.
fn marks(dims: &[i64], rank: usize) -> Option<Vec<bool>> {
    let mut marks = vec![dims.is_empty(); rank];
    for &dim in dims {
        let from_start = if dim < 0 { dim.checked_add(rank as i64)? } else { dim };
        *marks.get_mut(usize::try_from(from_start).ok()?)? = true;
    }
    Some(marks)
}

/// Whether two tensors may be of the same shape, as far as that is known; their ranks are.
fn like(a: &Known, b: &Known) -> bool {
    let ranks = |shape: &Shape| shape.dims().map(<[_]>::len);
    a.dtype == b.dtype && ranks(&a.shape) == ranks(&b.shape) && may_be(&a.shape, &b.shape)
}

/// Whether a tensor may be one that is repeated to the shape of another, as far as that is known.
fn broadcasts(from: &Known, to: &Known) -> bool {
    let (Some(from_dims), Some(to_dims)) = (from.shape.dims(), to.shape.dims()) else { return false };
    let fits = |(from, to): (&Dim, &Dim)| match (from.value(), to.value()) {
        (Some(from), Some(to)) => from == 1 || from == to,
        _ => true,
    };
    from.dtype == to.dtype
        && from_dims.len() <= to_dims.len()
        && from_dims.iter().rev().zip(to_dims.iter().rev()).all(fits)
}
