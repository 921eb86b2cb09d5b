//! Ops over named axes, computed as one with the pointwise steps before and after them and folds of what they give: what has a number
//! for every pair is not in memory then.
//!
//! What is made of such an op's outputs alone goes on with it, as long as all that others read lies on the same dims, and none but a
//! last fold takes one of them: so nothing is computed twice. What is before goes with it only where each of its numbers is read once.

mod shapes;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use opsmith_body::{Axes, Axis, Expr, Graph, Node, Scalar, compose_over};
use opsmith_core::fork::OnceLock;
use opsmith_core::{AttrValue, Result};

pub(super) use self::shapes::Shapes;
use super::build::outputs;
use super::{Fits, Fused, Regions, broadcasts, marks};
use crate::program::OpProgram;
use crate::session::step::{Action, Slot, Step};
use crate::standard;

/// The most steps of a chain.
const MOST_STEPS: usize = 64;

/// The most tensors that one reads and makes.
const MOST_ARGUMENTS: usize = 48;

/// Which dim of the space each dim of a tensor is; none of one of size 1. The dims of the batch come before those of the axes.
type Lie = Vec<Option<usize>>;

/// A step of a chain, which computes this.
struct Link {
    index: usize,
    program: Arc<OpProgram>,
    /// The dim of the space that it folds.
    fold: Option<usize>,
}

/// An input, and how it lies.
#[derive(Clone, PartialEq, Eq, Hash)]
struct ChainInput {
    slot: Slot,
    lie: Lie,
}

/// An op over named axes, with steps before and after it.
struct Chain<'a> {
    regions: &'a Regions<'a>,
    steps: &'a [Step],
    batch: usize,
    axes: usize,
    /// The steps before the op, it, and those after it.
    before: Vec<Link>,
    op: Link,
    after: Vec<Link>,
    /// How what it makes lies, and which of that a fold went into.
    lies: HashMap<Slot, Lie>,
    folded: HashSet<Slot>,
}

/// A chain as one step, not yet made of its steps.
struct Built {
    members: Vec<usize>,
    attrs: Arc<[(String, AttrValue)]>,
    inputs: Vec<Slot>,
    outputs: Vec<Slot>,
    shapes: Shapes,
    is_proven: bool,
    /// The same but for folds and what comes after them, for where these do not pay.
    shorter: Option<Box<Built>>,
}

/// The steps, those of each chain as one in the place of its last, and which they were.
pub(super) fn chains(regions: &Regions<'_>, steps: Vec<Step>) -> Result<Vec<(Step, Vec<usize>)>> {
    let mut taken: HashSet<usize> = HashSet::new();
    let mut found: HashMap<usize, Built> = HashMap::new();
    for index in 0..steps.len() {
        let chain = Chain::begin(regions, &steps, index)?.filter(|_| !taken.contains(&index));
        let Some(mut chain) = chain else { continue };
        chain.extend_back(&taken)?;
        chain.extend(&taken)?;
        if let Some(built) = chain.longest(chain.after.len()) {
            taken.extend(built.members.iter().copied());
            found.insert(built.members[built.members.len() - 1], built);
        }
    }
    let (mut new, mut old) = (Vec::with_capacity(steps.len()), HashMap::new());
    for (index, step) in steps.into_iter().enumerate() {
        if !taken.contains(&index) {
            new.push((step, vec![index]));
            continue;
        }
        old.insert(index, step);
        if let Some(built) = found.remove(&index) {
            let parts = built.members.iter().filter_map(|member| old.remove(member)).collect();
            new.push(made(regions, built, parts)?);
        }
    }
    Ok(new)
}

/// The step that computes what its parts do.
fn made(regions: &Regions<'_>, built: Built, parts: Vec<Step>) -> Result<(Step, Vec<usize>)> {
    let Built { members, attrs, inputs, outputs, shapes, is_proven: proven, shorter } = built;
    let op = standard::op("OverAxes")?;
    let needs = parts.iter().flat_map(|step| step.needs.iter().copied()).collect();
    let node = Arc::new(regions.node(&parts, &op, &attrs, (inputs.len(), &outputs)));
    let count = shorter.as_ref().map_or(0, |shorter| shorter.members.len());
    let mut first: Vec<Step> = parts;
    let rest = first.split_off(count);
    let shorter = shorter.map(|shorter| made(regions, *shorter, first)).transpose()?;
    let alone = shorter.into_iter().chain(regions.without_folds(rest, &members[count..])?);
    let parts = alone.map(|(step, _)| step).collect();
    let action = Action::Fused(Fused { op, attrs, parts, shapes: Box::new(Fits::Axes(shapes)), proven });
    let (inputs, outputs) = (inputs.into_iter().map(Some).collect(), outputs.into_iter().map(Some).collect());
    let (cost, prepared) = (AtomicU32::new(0), OnceLock::new());
    Ok((Step { node, action, inputs, outputs, needs, cost, prepared }, members))
}

impl<'a> Chain<'a> {
    /// A chain of one op, if it is over named axes.
    fn begin(regions: &'a Regions<'a>, steps: &'a [Step], index: usize) -> Result<Option<Self>> {
        let step = &steps[index];
        let Some(program) = regions.program(step)?.filter(|_| step.inputs.iter().all(Option::is_some)) else {
            return Ok(None);
        };
        let Some(named) = &program.axes else { return Ok(None) };
        let outputs = step.outputs.iter().zip(&named[step.inputs.len()..]);
        let outputs: Vec<_> = outputs.filter_map(|(slot, axes)| Some(((*slot)?, axes))).collect();
        // How many dims are before those of the axes.
        let before = |(slot, axes): &(Slot, &Vec<usize>)| {
            regions.slots.known[*slot].shape.dims()?.len().checked_sub(axes.len())
        };
        let batch = outputs.first().and_then(before);
        let Some(batch) = batch.filter(|_| outputs.iter().all(|output| before(output) == batch)) else {
            return Ok(None);
        };
        let axes = named.iter().flatten().max().map_or(0, |axis| axis + 1);
        if batch + axes > Axis::MOST {
            return Ok(None);
        }
        let lies = outputs.iter().map(|(slot, axes)| (*slot, lie(batch, axes))).collect();
        let (before, after, folded) = Default::default();
        let op = Link { index, program, fold: None };
        Ok(Some(Chain { regions, steps, batch, axes, before, op, after, lies, folded }))
    }

    /// What the op reads, and how that lies.
    fn arguments(&self) -> Vec<(Slot, Lie)> {
        let named = self.op.program.axes.as_deref().unwrap_or_default();
        let inputs = self.steps[self.op.index].inputs.iter().flatten();
        inputs.zip(named).map(|(slot, axes)| (*slot, lie(self.batch, axes))).collect()
    }

    /// Adds the pointwise steps before the op that nobody else reads, where the op reads each of their numbers once.
    fn extend_back(&mut self, taken: &HashSet<usize>) -> Result<()> {
        let arguments = self.arguments();
        let is_whole = |own: &Lie| own.len() == self.batch + self.axes;
        let is_other =
            |slot: Slot, own: &Lie| arguments.iter().any(|(other, lie)| *other == slot && lie != own);
        let whole = arguments.iter().filter(|(slot, own)| is_whole(own) && !is_other(*slot, own));
        let mut pending: Vec<(Slot, Lie)> = whole.cloned().collect();
        while let Some((slot, own)) = pending.pop() {
            let made = (0..self.op.index).find(|&index| self.steps[index].outputs.contains(&Some(slot)));
            let is_known = self.lies.contains_key(&slot) || self.before.len() == MOST_STEPS;
            let made = made.filter(|index| {
                !is_known && !taken.contains(index) && self.reads_alone(slot) && self.goes_back(*index)
            });
            let Some(index) = made else { continue };
            let step = &self.steps[index];
            let is_one = step.outputs.iter().flatten().count() == 1;
            let Some(program) = self.pointwise(step)?.filter(|_| is_one) else { continue };
            pending.extend(step.inputs.iter().flatten().map(|&slot| (slot, own.clone())));
            self.lies.insert(slot, own);
            self.before.push(Link { index, program, fold: None });
        }
        self.before.sort_by_key(|link| link.index);
        // Several passes over the same numbers would compute functions again.
        let linked = Linked { chain: self, links: self.before.iter().chain([&self.op]).collect() };
        let outputs: Vec<Slot> = self.steps[self.op.index].outputs.iter().flatten().copied().collect();
        let functions = linked.graph(&linked.inputs(), &outputs).functions_by_passes();
        let parts = linked.links.iter().map(|link| link.program.graph.functions_by_passes());
        if functions > parts.sum() {
            self.before.clear();
        }
        Ok(())
    }

    /// Whether a step can run as late as the op: none in between has to come after it.
    fn goes_back(&self, index: usize) -> bool {
        let is_own = |other: usize| self.before.iter().any(|link| link.index == other);
        (index + 1..self.op.index).all(|other| is_own(other) || !self.steps[other].needs.contains(&index))
    }

    /// Whether nobody else reads a tensor.
    fn reads_alone(&self, slot: Slot) -> bool {
        let links = self.before.iter().chain([&self.op]);
        let read = links.flat_map(|link| self.steps[link.index].inputs.iter().flatten());
        read.filter(|read| **read == slot).count() == self.regions.slots.readers[slot] as usize
    }

    /// What a step computes of each element, if that is all.
    fn pointwise(&self, step: &Step) -> Result<Option<Arc<OpProgram>>> {
        let is_each = |program: &Arc<OpProgram>| program.rows.is_none() && program.axes.is_none();
        Ok(self.regions.program(step)?.filter(|program| is_each(program) && is_forward(step, program)))
    }

    /// Adds the steps that follow, up to the first one that reads what is made here and cannot be one with it.
    fn extend(&mut self, taken: &HashSet<usize>) -> Result<()> {
        let mut members: HashSet<usize> =
            self.before.iter().chain([&self.op]).map(|link| link.index).collect();
        for index in self.op.index + 1..self.steps.len() {
            let step = &self.steps[index];
            if !step.needs.iter().any(|needed| members.contains(needed)) {
                continue;
            }
            let is_full = self.after.len() == MOST_STEPS;
            let link = if taken.contains(&index) || is_full { None } else { self.link(index)? };
            let Some((link, lie, is_folded)) = link else { break };
            for &slot in step.outputs.iter().flatten() {
                self.lies.insert(slot, lie.clone());
                self.folded.extend(is_folded.then_some(slot));
            }
            members.insert(index);
            self.after.push(link);
        }
        Ok(())
    }

    /// A step that reads what is made here, how its outputs lie, and whether there is a fold in them, if it can be one with the others.
    fn link(&self, index: usize) -> Result<Option<(Link, Lie, bool)>> {
        let step = &self.steps[index];
        let inputs = step.inputs.iter().flatten().copied();
        let (own, others): (Vec<Slot>, Vec<Slot>) = inputs.partition(|slot| self.lies.contains_key(slot));
        let Some((first, lie)) = own.first().map(|first| (*first, &self.lies[first])) else {
            return Ok(None);
        };
        if own.iter().any(|slot| self.lies[slot] != *lie) {
            return Ok(None);
        }
        let known = &self.regions.slots.known;
        if let Some(program) = self.pointwise(step)? {
            let is_number = |slot: Slot| self.regions.single(slot).is_some();
            let fits = |slot: &Slot| is_number(*slot) || broadcasts(&known[*slot], &known[first]);
            let is_folded = self.folded.contains(&first);
            let link = Link { index, program, fold: None };
            return Ok(others.iter().all(fits).then(|| (link, lie.clone(), is_folded)));
        }
        let is_first = |_: &Arc<OpProgram>| !self.folded.contains(&first);
        let program = self.regions.program(step)?.filter(is_first);
        Ok(program.filter(|program| folds_once(step, program)).and_then(|program| {
            let rows = program.rows.as_ref()?;
            let folded = marks(&rows.dims, lie.len())?;
            let mut dims = (0..folded.len()).filter(|&dim| folded[dim]);
            let at = dims.next().filter(|_| dims.next().is_none())?;
            // A dim of the batch that is folded is an axis too.
            let dim = lie[at]?;
            let mut rest = lie.clone();
            match rows.keep {
                true => rest[at] = None,
                false => _ = rest.remove(at),
            }
            Some((Link { index, program, fold: Some(dim) }, rest, true))
        }))
    }

    /// As many of its steps as go together, with so many after the op at most.
    fn longest(&self, most: usize) -> Option<Built> {
        let tried = (0..=most).rev().flat_map(|after| [(self.before.len(), after), (0, after)]);
        tried.filter(|(before, after)| before + after > 0).find_map(|(before, after)| {
            let (links, after) = (self.before[..before].iter().chain([&self.op]), &self.after[..after]);
            let built = Linked { chain: self, links: links.chain(after).collect() }.built()?;
            let fold = after.iter().position(|link| link.fold.is_some()).filter(|_| !built.is_proven);
            // What goes before the op has to be the same.
            let shorter = fold.and_then(|fold| self.longest(fold));
            let is_first = |shorter: &Built| built.members.starts_with(&shorter.members);
            Some(Built { shorter: shorter.filter(is_first).map(Box::new), ..built })
        })
    }
}

/// Steps of a chain that may go together.
struct Linked<'a> {
    chain: &'a Chain<'a>,
    links: Vec<&'a Link>,
}

impl Linked<'_> {
    fn step(&self, link: &Link) -> &Step {
        &self.chain.steps[link.index]
    }

    /// How a step of them wants the input of a position to lie.
    fn wanted(&self, link: &Link, input: usize) -> Lie {
        let step = self.step(link);
        if link.index == self.chain.op.index {
            return self.chain.arguments().swap_remove(input).1;
        }
        let own = match link.index < self.chain.op.index {
            true => &step.outputs,
            false => &step.inputs,
        };
        own.iter().flatten().find_map(|slot| self.chain.lies.get(slot)).cloned().unwrap_or_default()
    }

    /// The tensors that a step reads from elsewhere, but for numbers of the program.
    fn outside(&self, link: &Link) -> Vec<ChainInput> {
        let is_op = link.index == self.chain.op.index;
        let slots = self.step(link).inputs.iter().flatten().copied().enumerate();
        let outside = slots.filter(|(_, slot)| {
            self.maker(*slot).is_none() && (is_op || self.chain.regions.single(*slot).is_none())
        });
        outside.map(|(input, slot)| ChainInput { slot, lie: self.wanted(link, input) }).collect()
    }

    /// The axis that a dim is of; none of a batch, but of its dims that are folded, which come behind the others.
    fn axis(&self, dim: usize) -> Option<usize> {
        let folded: BTreeSet<usize> = self.links.iter().filter_map(|link| link.fold).collect();
        let of_batch = || folded.iter().position(|folded| *folded == dim).map(|at| self.chain.axes + at);
        dim.checked_sub(self.chain.batch).or_else(of_batch)
    }

    fn maker(&self, slot: Slot) -> Option<&Link> {
        self.links.iter().find(|link| self.step(link).outputs.contains(&Some(slot))).copied()
    }

    /// What is left of the inputs that a tensor is made of, by steps before the op.
    fn leaves(&self, slot: Slot, lie: &Lie) -> Vec<ChainInput> {
        let (mut found, mut seen, mut pending) = (Vec::new(), HashSet::new(), vec![slot]);
        while let Some(slot) = pending.pop() {
            match self.maker(slot).filter(|_| seen.insert(slot)) {
                Some(link) => {
                    found.extend(self.outside(link));
                    let made = self.step(link).inputs.iter().flatten();
                    pending.extend(made.filter(|slot| self.maker(**slot).is_some()));
                }
                None if seen.insert(slot) => found.push(ChainInput { slot, lie: lie.clone() }),
                None => {}
            }
        }
        found
    }

    /// What the steps read.
    fn inputs(&self) -> Vec<ChainInput> {
        let mut inputs: Vec<ChainInput> = Vec::new();
        for source in self.links.iter().flat_map(|link| self.outside(link)) {
            if !inputs.contains(&source) {
                inputs.push(source);
            }
        }
        inputs
    }

    /// What they compute of it.
    fn graph(&self, inputs: &[ChainInput], outputs: &[Slot]) -> Graph {
        let axes = |lie: &Lie| {
            let own = lie.iter().flatten().filter_map(|dim| self.axis(*dim));
            Axes::at(&own.collect::<Vec<_>>())
        };
        let of_inputs: Vec<Axes> = inputs.iter().map(|source| axes(&source.lie)).collect();
        let of_outputs: Vec<Axes> = outputs.iter().map(|slot| axes(&self.chain.lies[slot])).collect();
        compose_over(&of_inputs, &of_outputs, |given| self.trace(inputs, given, outputs))
    }

    /// The steps as one, if that computes nothing twice.
    fn built(&self) -> Option<Built> {
        let regions = self.chain.regions;
        let mut outputs = outputs(self.links.iter().map(|link| self.step(link)), regions.slots.readers);
        outputs.sort_by_key(|&slot| regions.gives_positions(slot));
        let dims = |slot: &Slot| self.chain.lies[slot].iter().flatten().copied().collect::<BTreeSet<_>>();
        let free = dims(outputs.first()?);
        let inputs = self.inputs();
        if outputs.iter().any(|slot| dims(slot) != free) || inputs.len() + outputs.len() > MOST_ARGUMENTS {
            return None;
        }
        let shapes = self.shapes(&inputs, free);
        let slots: Vec<Slot> = inputs.iter().map(|source| source.slot).collect();
        let known: Option<Vec<Vec<usize>>> =
            slots.iter().map(|&slot| regions.slots.known[slot].shape.to_known()).collect();
        let fits = known.map(|known| shapes.fit(&known.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        let lies = inputs.iter().map(|source| &source.lie);
        let lies = lies.chain(outputs.iter().map(|slot| &self.chain.lies[slot]));
        let attrs = self.attrs(&self.graph(&inputs, &outputs), lies, &outputs)?;
        let (members, inputs) = (self.links.iter().map(|link| link.index).collect(), slots);
        let is_proven = fits == Some(true);
        (fits != Some(false)).then_some(Built {
            members,
            attrs,
            inputs,
            outputs,
            shapes,
            is_proven,
            shorter: None,
        })
    }

    /// The attributes of the op that computes a graph.
    fn attrs<'l>(
        &self,
        graph: &Graph,
        lies: impl Iterator<Item = &'l Lie>,
        outputs: &[Slot],
    ) -> Option<Arc<[(String, AttrValue)]>> {
        let number = |position: Option<usize>| position.map_or(-1, |position| position as i64);
        let dims = lies
            .flat_map(|lie| std::iter::once(lie.len() as i64).chain(lie.iter().map(move |dim| number(*dim))));
        let space: Vec<i64> =
            (0..self.chain.batch + self.chain.axes).map(|dim| number(self.axis(dim))).collect();
        let positions = outputs.iter().filter(|&&slot| self.chain.regions.gives_positions(slot)).count();
        let attrs: Vec<(String, AttrValue)> = vec![
            ("program".to_owned(), graph.to_text()?.into()),
            ("M".to_owned(), ((outputs.len() - positions) as i64).into()),
            ("P".to_owned(), (positions as i64).into()),
            ("space".to_owned(), space.into()),
            ("dims".to_owned(), dims.collect::<Vec<i64>>().into()),
        ];
        Some(attrs.into())
    }

    /// What the shapes of inputs have to be, for outputs on these dims.
    fn shapes(&self, inputs: &[ChainInput], free: BTreeSet<usize>) -> Shapes {
        let at = |source: &ChainInput| inputs.iter().position(|known| known == source);
        let named = self.chain.op.program.axes.as_deref().unwrap_or_default();
        let argument = |((slot, lie), axes): ((Slot, Lie), &Vec<usize>)| {
            let leaves = self.leaves(slot, &lie).iter().filter_map(at).collect();
            (leaves, axes.clone(), self.maker(slot).is_some())
        };
        let after = self.links.iter().filter(|link| link.index > self.chain.op.index);
        let others = after.flat_map(|link| self.outside(link)).filter_map(|own| Some((at(&own)?, own.lie)));
        Shapes {
            batch: self.chain.batch,
            axes: self.chain.axes,
            arguments: self.chain.arguments().into_iter().zip(named).map(argument).collect(),
            others: others.collect(),
            folded: self.links.iter().filter_map(|link| link.fold).collect(),
            has_positions: self.links.iter().any(|link| gives_position(&link.program)),
            free,
        }
    }

    /// What the steps compute, one after another.
    fn trace(&self, inputs: &[ChainInput], given: &[Expr], outputs: &[Slot]) -> Vec<Expr> {
        let mut values: HashMap<Slot, Expr> = HashMap::new();
        for link in &self.links {
            let step = self.step(link);
            let value = |(input, slot): (usize, &Option<Slot>)| {
                // What is absent is not read.
                let Some(slot) = *slot else { return Expr::of(0.0) };
                let own = || {
                    let source = ChainInput { slot, lie: self.wanted(link, input) };
                    inputs.iter().position(|known| *known == source).map(|at| given[at])
                };
                let number = || Expr::of(self.chain.regions.single(slot).unwrap_or(0.0));
                values.get(&slot).copied().or_else(own).unwrap_or_else(number)
            };
            let read: Vec<Expr> = step.inputs.iter().enumerate().map(value).collect();
            let graph = link.program.graph.without_inputs(|input| step.inputs[input].is_none());
            let made = match link.fold.and_then(|dim| self.axis(dim)) {
                Some(axis) => graph.again_along(Axis::new(axis), &read),
                None => graph.again(&read),
            };
            values.extend(step.outputs.iter().zip(made).filter_map(|(slot, value)| Some(((*slot)?, value))));
        }
        outputs.iter().filter_map(|slot| values.get(slot).copied()).collect()
    }
}

/// How a tensor lies that has all dims of the batch and then those of some axes.
fn lie(batch: usize, axes: &[usize]) -> Lie {
    (0..batch).chain(axes.iter().map(|axis| batch + axis)).map(Some).collect()
}

/// Whether outputs have the shape that all inputs broadcast to, or that of rows of it.
fn is_forward(step: &Step, program: &OpProgram) -> bool {
    program.whole.is_empty()
        && program.like.iter().all(Option::is_none)
        && step.inputs.iter().all(Option::is_some)
}

/// Whether a function of rows gives a position along a row.
fn gives_position(program: &OpProgram) -> bool {
    program.rows.is_some() && !program.graph.position_axes(0).is_empty()
}

/// Whether a step folds its one input in one pass, or two to find a position, and gives nothing but what is folded.
fn folds_once(step: &Step, program: &OpProgram) -> bool {
    let graph = &program.graph;
    let mut folds: Vec<usize> = Vec::new();
    for node in graph.nodes() {
        let below = node.operands().map(|id| folds[id.index()]).max().unwrap_or(0);
        folds.push(below + usize::from(matches!(node, Node::Fold(..))));
    }
    let mut outputs = step.outputs.iter().zip(graph.output_axes());
    let is_one = step.inputs.len() == 1 && graph.input_axes().all(|axes| axes == Axes::FIRST);
    is_one
        && is_forward(step, program)
        && outputs.all(|(slot, axes)| slot.is_none() || axes.is_empty())
        && folds.iter().all(|folds| *folds <= 1 + usize::from(gives_position(program)))
}
