//! Pointwise steps that follow each other become one: a program that goes through memory once.
//!
//! What a pointwise op computes, its library tells as a graph. The graphs of steps that read each other's outputs are put
//! together to one, which the standard operator `Pointwise` computes. Steps go together when their outputs have the same
//! shape. Where that is not known before the run, it is checked in the run, and steps that do not fit run one by one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use opsmith_body::{Expr, Scalar, compose};
use opsmith_core::fork::OnceLock;
use opsmith_core::space::broadcast_shape;
use opsmith_core::{AttrValue, DType, Dim, Result, Shape};

use super::plan::{Action, KEPT, Slot, Step};
use crate::graph::{Kind, Known, Node, may_be};
use crate::op::Op;
use crate::program::OpProgram;
use crate::standard;
use crate::tensor::Tensor;

/// The most steps that become one: its program is compared in each run.
const MOST_STEPS: usize = 2048;

/// The most tensors that one reads: a block of each has to stay in the cache.
const MOST_INPUTS: usize = 48;

/// Steps that run as one.
pub(super) struct Fused {
    pub(super) op: Op,
    pub(super) attrs: Arc<[(String, AttrValue)]>,
    /// What they were, for shapes that do not fit.
    pub(super) parts: Vec<Step>,
    /// Inputs, by position, that must broadcast to the shape of all.
    whole: Vec<Vec<usize>>,
    /// Inputs that must have the shape of all.
    full: Vec<usize>,
    /// Whether the shapes fit in every run.
    proven: bool,
}

impl Fused {
    /// Whether every part gives tensors of the shape that all inputs broadcast to.
    pub(super) fn fits(&self, inputs: &[Option<&Tensor>]) -> bool {
        if self.proven {
            return true;
        }
        let shapes: Option<Vec<&[usize]>> = inputs.iter().map(|input| Some((*input)?.shape())).collect();
        shapes.is_some_and(|shapes| self.fit(&shapes))
    }

    fn fit(&self, shapes: &[&[usize]]) -> bool {
        let Some(all) = broadcast_shape(shapes.iter().copied()) else { return false };
        let is_whole = |part: &Vec<usize>| {
            broadcast_shape(part.iter().map(|&input| shapes[input])).is_some_and(|s| s == all)
        };
        self.full.iter().all(|&input| shapes[input] == all.as_slice()) && self.whole.iter().all(is_whole)
    }
}

/// What is known of the tensors in slots.
pub(super) struct Slots<'a> {
    /// Those that are the same in each run.
    pub(super) constants: &'a [Option<Tensor>],
    /// How often each is read; [`KEPT`] for what is fetched.
    pub(super) readers: &'a [u32],
    /// What each holds, as far as it is known.
    pub(super) known: &'a [Known],
    /// The step that fills each.
    pub(super) made_by: &'a [Option<usize>],
}

/// Puts steps together.
///
/// # Errors
/// `Internal` where the engine lacks the op for it, or a library tells a program that is none.
pub(super) fn fuse(steps: Vec<Step>, slots: &Slots<'_>) -> Result<Vec<Step>> {
    let mut regions = Regions { slots, list: vec![], of_step: vec![None; steps.len()] };
    for (index, step) in steps.iter().enumerate() {
        regions.add(index, step)?;
    }
    regions.into_steps(steps)
}

/// Steps that can become one.
struct Region {
    members: Vec<(usize, Arc<OpProgram>)>,
    /// What each of its tensors is.
    known: Known,
    /// What it reads of others.
    inputs: HashSet<Slot>,
    /// Whether more may come: nobody else has read what it gives, so whoever comes cannot be in need of itself.
    is_open: bool,
}

struct Regions<'a> {
    slots: &'a Slots<'a>,
    list: Vec<Region>,
    /// The region of each step.
    of_step: Vec<Option<usize>>,
}

impl Regions<'_> {
    /// Adds a step to the regions whose outputs it reads, which become one, or begins one with it.
    fn add(&mut self, index: usize, step: &Step) -> Result<()> {
        let mut before: Vec<usize> = step.needs.iter().filter_map(|&needed| self.of_step[needed]).collect();
        before.sort_unstable();
        before.dedup();
        let candidate = self.candidate(step)?;
        let (mut joined, others): (Vec<usize>, Vec<usize>) = before.into_iter().partition(|&region| {
            let region = &self.list[region];
            region.is_open && candidate.as_ref().is_some_and(|(_, known)| like(&region.known, known))
        });
        others.iter().for_each(|&region| self.list[region].is_open = false);
        let Some((program, known)) = candidate else { return Ok(()) };
        let read = step.inputs.iter().flatten().copied().filter(|&slot| self.single(slot).is_none());
        let read: HashSet<Slot> = read.collect();
        joined.sort_unstable_by_key(|&region| self.list[region].members.len());
        let Some(into) = joined.pop().filter(|&into| self.is_small(into, &joined, &read)) else {
            joined.iter().for_each(|&region| self.list[region].is_open = false);
            self.begin(index, Region { members: vec![(index, program)], known, inputs: read, is_open: true });
            return Ok(());
        };
        for region in joined {
            let (members, inputs) = self.list[region].empty();
            members.iter().for_each(|(member, _)| self.of_step[*member] = Some(into));
            self.list[into].members.extend(members);
            self.list[into].inputs.extend(inputs);
        }
        self.of_step[index] = Some(into);
        let region = &mut self.list[into];
        region.members.push((index, program));
        region.inputs.extend(read);
        let is_own = |slot: &Slot| {
            let maker = self.slots.made_by[*slot];
            maker.and_then(|maker| self.of_step[maker]) == Some(into)
        };
        region.inputs.retain(|slot| !is_own(slot));
        Ok(())
    }

    /// Whether regions and what a step reads are small enough together; if not, the first gets no more.
    fn is_small(&mut self, into: usize, others: &[usize], read: &HashSet<Slot>) -> bool {
        let regions = || others.iter().chain([&into]).map(|&region| &self.list[region]);
        let members: usize = regions().map(|region| region.members.len()).sum();
        let inputs: usize = regions().map(|region| region.inputs.len()).sum();
        let is_small = members < MOST_STEPS && inputs + read.len() <= MOST_INPUTS;
        self.list[into].is_open = is_small;
        is_small
    }

    fn begin(&mut self, index: usize, region: Region) {
        self.of_step[index] = Some(self.list.len());
        self.list.push(region);
    }

    /// The program of a step that may be part of a region, and what its outputs are.
    fn candidate(&self, step: &Step) -> Result<Option<(Arc<OpProgram>, Known)>> {
        let Action::Call { op, attrs, .. } = &step.action else { return Ok(None) };
        let Some(known) = self.may_fuse(step) else { return Ok(None) };
        let Some(program) = op.program(attrs, known.dtype)? else { return Ok(None) };
        let fits =
            program.graph.input_count() == step.inputs.len() && program.like.len() == step.outputs.len();
        Ok(fits.then_some((program, known)))
    }

    /// What the outputs of a step are, if as far as its tensors go it may be part of a region.
    fn may_fuse(&self, step: &Step) -> Option<Known> {
        let node = &step.node;
        if !node.is_pure() || !node.controls.is_empty() || node.counts.iter().any(|&count| count > 1) {
            return None;
        }
        let outputs = node.outputs.iter().zip(&step.outputs).filter(|(_, slot)| slot.is_some());
        let mut outputs = outputs.map(|(known, _)| known);
        let known = outputs.next()?.clone();
        let is_float = matches!(known.dtype, DType::Float32 | DType::Float64) && known.shape.dims().is_some();
        let inputs = step.inputs.iter().flatten();
        if !is_float
            || !outputs.all(|other| like(other, &known))
            || !inputs.clone().all(|&slot| broadcasts(&self.slots.known[slot], &known))
            || inputs.clone().all(|&slot| self.single(slot).is_some())
        {
            return None;
        }
        Some(known)
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

    /// The steps, those of each region as one in the place of its last.
    fn into_steps(mut self, steps: Vec<Step>) -> Result<Vec<Step>> {
        let mut old: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
        let mut place = vec![0; old.len()];
        let mut new: Vec<Step> = Vec::with_capacity(old.len());
        for index in 0..old.len() {
            let Some(region) = self.of_step[index] else {
                place[index] = new.len();
                new.extend(old[index].take());
                continue;
            };
            let region = &mut self.list[region];
            region.members.sort_unstable_by_key(|(member, _)| *member);
            if region.members.last().is_none_or(|(last, _)| *last != index) {
                continue;
            }
            let members = std::mem::take(&mut region.members);
            members.iter().for_each(|(member, _)| place[*member] = new.len());
            let taken =
                members.into_iter().filter_map(|(member, program)| Some((old[member].take()?, program)));
            let mut taken: Vec<(Step, Arc<OpProgram>)> = taken.collect();
            let step = match taken.len() {
                1 => taken.remove(0).0,
                _ => self.fused(taken)?,
            };
            new.push(step);
        }
        for (index, step) in new.iter_mut().enumerate() {
            step.needs.iter_mut().for_each(|needed| *needed = place[*needed]);
            step.needs.retain(|needed| *needed != index);
            step.needs.sort_unstable();
            step.needs.dedup();
        }
        Ok(new)
    }

    /// Several steps as one.
    fn fused(&self, steps: Vec<(Step, Arc<OpProgram>)>) -> Result<Step> {
        let mut build = Build::default();
        for (step, program) in &steps {
            build.add(step, program, self);
        }
        let outputs = build.outputs(self.slots.readers);
        let graph =
            compose(build.inputs.len(), outputs.len(), |inputs| build.trace(&steps, &outputs, inputs));
        let attrs: Arc<[(String, AttrValue)]> = Arc::new([
            ("program".to_owned(), graph.to_text().unwrap_or_default().into()),
            ("M".to_owned(), (outputs.len() as i64).into()),
        ]);
        let op = standard::op("Pointwise")?;
        let needs = steps.iter().flat_map(|(step, _)| step.needs.iter().copied()).collect();
        let node = Arc::new(self.node(&steps, &op, &attrs, (build.inputs.len(), &outputs)));
        let inputs: Vec<Option<Slot>> = build.inputs.iter().map(|&slot| Some(slot)).collect();
        let parts = steps.into_iter().map(|(step, _)| step).collect();
        let mut fused = Fused { op, attrs, parts, whole: build.whole, full: build.full, proven: false };
        let shapes: Option<Vec<Vec<usize>>> =
            build.inputs.iter().map(|&slot| self.slots.known[slot].shape.to_known()).collect();
        fused.proven =
            shapes.is_some_and(|shapes| fused.fit(&shapes.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        let outputs = outputs.into_iter().map(Some).collect();
        let (cost, prepared) = (AtomicU32::new(0), OnceLock::new());
        Ok(Step { node, action: Action::Fused(fused), inputs, outputs, needs, cost, prepared })
    }

    /// What stands in traces and errors for the nodes of steps that are one.
    fn node(
        &self,
        steps: &[(Step, Arc<OpProgram>)],
        op: &Op,
        attrs: &Arc<[(String, AttrValue)]>,
        (num_inputs, outputs): (usize, &[Slot]),
    ) -> Node {
        let last = &steps[steps.len() - 1].0.node;
        Node {
            name: format!("{} and {} before it", last.name, steps.len() - 1),
            kind: Kind::Call { op: op.clone(), attrs: attrs.clone() },
            inputs: vec![],
            counts: vec![num_inputs],
            controls: vec![],
            outputs: outputs.iter().map(|&slot| self.slots.known[slot].clone()).collect(),
            output_counts: vec![outputs.len()],
            place: last.place.clone(),
            device: last.device,
        }
    }
}

impl Region {
    /// Takes everything out.
    fn empty(&mut self) -> (Vec<(usize, Arc<OpProgram>)>, HashSet<Slot>) {
        self.is_open = false;
        (std::mem::take(&mut self.members), std::mem::take(&mut self.inputs))
    }
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

/// Steps that are being put together.
#[derive(Default)]
struct Build {
    /// What they read of others.
    inputs: Vec<Slot>,
    numbers: HashMap<Slot, f64>,
    made: Vec<Slot>,
    /// How often each is read by one of them.
    read: HashMap<Slot, u32>,
    whole: Vec<Vec<usize>>,
    full: Vec<usize>,
}

impl Build {
    /// Notes what a step reads, and what that asks of shapes.
    fn add(&mut self, step: &Step, program: &OpProgram, regions: &Regions<'_>) {
        let wanted = step.outputs.iter().zip(&program.like).filter(|(slot, _)| slot.is_some());
        let like = wanted.filter_map(|(_, like)| step.inputs[(*like)?]);
        let whole = program.whole.iter().filter_map(|&input| step.inputs[input]);
        let full: HashSet<Slot> = like.chain(whole).collect();
        let mut outside = Vec::new();
        let mut has_own = false;
        for &slot in step.inputs.iter().flatten() {
            *self.read.entry(slot).or_default() += 1;
            if self.made.contains(&slot) {
                has_own = true;
                continue;
            }
            match regions.single(slot) {
                Some(number) if !full.contains(&slot) => _ = self.numbers.insert(slot, number),
                _ => outside.push(self.input(slot)),
            }
        }
        // What it makes has the shape of all, and so has what it reads of that.
        for slot in full {
            if !self.made.contains(&slot) {
                let input = self.input(slot);
                self.full.push(input);
            }
        }
        if !has_own {
            self.whole.push(outside);
        }
        self.made.extend(step.outputs.iter().flatten());
    }

    fn input(&mut self, slot: Slot) -> usize {
        self.inputs.iter().position(|&known| known == slot).unwrap_or_else(|| {
            self.inputs.push(slot);
            self.inputs.len() - 1
        })
    }

    /// What others read of what they make.
    fn outputs(&self, readers: &[u32]) -> Vec<Slot> {
        let own = |slot: &Slot| self.read.get(slot).copied().unwrap_or(0);
        self.made
            .iter()
            .copied()
            .filter(|slot| readers[*slot] == KEPT || readers[*slot] > own(slot))
            .collect()
    }

    /// What the steps compute, one after another.
    fn trace(&self, steps: &[(Step, Arc<OpProgram>)], outputs: &[Slot], inputs: &[Expr]) -> Vec<Expr> {
        let mut values: HashMap<Slot, Expr> =
            self.inputs.iter().copied().zip(inputs.iter().copied()).collect();
        for (step, program) in steps {
            let value = |slot: &Option<Slot>| {
                let known = slot.and_then(|slot| values.get(&slot).copied());
                let number = || slot.and_then(|slot| self.numbers.get(&slot).copied()).unwrap_or_default();
                known.unwrap_or_else(|| Expr::of(number()))
            };
            let read: Vec<Expr> = step.inputs.iter().map(value).collect();
            let graph = program.graph.without_inputs(|input| step.inputs[input].is_none());
            let given = graph.eval(&read);
            values.extend(step.outputs.iter().zip(given).filter_map(|(slot, value)| Some(((*slot)?, value))));
        }
        outputs.iter().filter_map(|slot| values.get(slot).copied()).collect()
    }
}
