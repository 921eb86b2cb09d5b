//! What one choice of fetches and feeds needs: the steps, in order, and when memory can be given back.

mod slots;

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use opsmith_core::fork::{Mutex, OnceLock};
use opsmith_core::{AttrValue, DType, Device, Error, Result, Shape, bail, ensure};

use super::fold::{Simplified, simplify};
use super::fuse::{Fused, Slots, fuse};
use super::on_card::{Crossing, OnCards};
use super::place::{Cards, Placement};
use super::{Key, SessionOptions};
use crate::call::Prepared;
use crate::card::Card;
use crate::graph::{Endpoint, Graph, Kind, Known, Node, NodeId, Output, Place, may_be};
use crate::op::Op;
use crate::pool::MemoryPool;
use crate::tensor::Tensor;

/// Stands for the number of readers of what is fetched or constant.
pub(super) const KEPT: u32 = u32::MAX;

/// Where a tensor is during a run.
pub(super) type Slot = usize;

/// A run, worked out.
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) feeds: Vec<Slot>,
    pub(super) fetches: Vec<Slot>,
    pub(super) variables: Vec<Read>,
    /// Whether it writes variables.
    pub(super) writes: bool,
    pub(super) parallel: bool,
    /// On how many threads a step runs at most.
    pub(super) threads: Option<NonZeroUsize>,
    /// How often each slot is read; [`KEPT`] for one whose tensor stays to the end of the run.
    pub(super) readers: Vec<u32>,
    /// What every run begins with: the constants.
    constants: Vec<Option<Tensor>>,
    /// What may be assigned to each variable that is written.
    shapes: HashMap<NodeId, Arc<Node>>,
    /// Slots of runs that have ended, their constants in them.
    frames: Mutex<Vec<Vec<Option<Tensor>>>>,
    /// What is on cards; none of a run that is on the CPU alone.
    pub(super) on_cards: Option<OnCards>,
}

/// A variable that a run reads.
pub(super) struct Read {
    pub(super) slot: Slot,
    pub(super) variable: NodeId,
    pub(super) node: Arc<Node>,
}

impl Read {
    /// The error that the variable has no value.
    pub(super) fn has_no_value(&self) -> Error {
        Error::failed_precondition(format!(
            "variable {} has no value yet: initialise it first, after all variables, an optimiser's too, are made",
            quoted(&self.node)
        ))
    }
}

/// One node's turn.
pub(super) struct Step {
    pub(super) node: Arc<Node>,
    pub(super) action: Action,
    pub(super) inputs: Vec<Option<Slot>>,
    /// A slot for each output, none where nobody reads it.
    pub(super) outputs: Vec<Option<Slot>>,
    /// The steps that have to be done before.
    pub(super) needs: Vec<usize>,
    /// How long it took, in microseconds, when it was last measured.
    pub(super) cost: AtomicU32,
    /// Its call, worked out when it is first run.
    pub(super) prepared: OnceLock<Option<Prepared>>,
}

/// What a step does.
pub(super) enum Action {
    /// Calls an op for the outputs of the definition whose bits are set.
    Call { op: Op, attrs: Arc<[(String, AttrValue)]>, wanted: u64 },
    /// As `Call`, of an op that changes these variables: for each `Ref` input of the definition one.
    Change { op: Op, attrs: Arc<[(String, AttrValue)]>, variables: Vec<NodeId> },
    /// Calls the op that stands for several.
    Fused(Fused),
    /// Makes each input the value of a variable.
    Assign { variables: Vec<NodeId> },
    /// As `Call`, on a card.
    OnCard { card: Card, op: Op, attrs: Arc<[(String, AttrValue)]>, wanted: u64 },
    /// Copies its input from one device to another.
    Cross(Crossing),
}

impl Plan {
    pub(super) fn new(
        graph: &Graph,
        key: &Key,
        options: SessionOptions,
        (pool, cards): (&Arc<MemoryPool>, &Cards),
    ) -> Result<Plan> {
        // Not for as long as constant parts are computed: others go on adding nodes meanwhile.
        let (mut nodes, variables) = {
            let nodes = graph.shared().read();
            (nodes.list.clone(), nodes.variables.clone())
        };
        let mut key = key.clone();
        if key.initializes {
            // A node of the plan's own, as the graph's initialisers are.
            key.targets.push(nodes.len());
            nodes.push(Arc::new(Node {
                name: "Initialize".to_owned(),
                ..Node::initializer(Place::unknown())
            }));
        }
        let key = &key;
        let mut seen = HashSet::new();
        if let Some(twice) = key.feeds.iter().find(|feed| !seen.insert(**feed)) {
            bail!(InvalidArgument, "`{}` is fed twice", nodes[twice.node].name);
        }
        let needed = Needed { nodes: &nodes, variables: &variables, feeds: seen };
        let order = needed.order(key, &HashMap::new())?;
        let placement = Placement::new(&needed, &order, cards)?;
        let simplified = if options.simplify {
            simplify(&needed, &order, (options.threads, pool))
        } else {
            Simplified::nothing(&needed, &order)
        };
        let order = needed.order(key, &simplified.same)?;
        let mut builder = Builder::new(&needed, &simplified, (&placement, cards));
        for node in order {
            builder.add(node)?;
        }
        builder.finish(key, options)
    }

    /// The slots of a run, the constants in them.
    pub(super) fn begin(&self) -> Vec<Option<Tensor>> {
        self.frames.lock().pop().unwrap_or_else(|| self.constants.clone())
    }

    /// Checks that a value of this shape may become that of a variable.
    pub(super) fn check_value(&self, variable: NodeId, shape: &[usize]) -> Result<()> {
        let Some(node) = self.shapes.get(&variable) else { return Ok(()) };
        let known = &node.outputs[0];
        ensure!(
            may_be(&Shape::known(shape), &known.shape),
            InvalidArgument,
            "variable `{}` has shape {}, cannot be assigned a value of shape {shape:?}",
            node.name,
            known.shape
        );
        Ok(())
    }

    /// Takes back the slots of a run in which nothing is left but the constants.
    pub(super) fn end(&self, frame: Vec<Option<Tensor>>) {
        self.frames.lock().push(frame);
    }
}

/// Checks that a value may stand for an output.
pub(super) fn check_fed(output: &Output, value: &Tensor, what: &str) -> Result<()> {
    ensure!(
        value.dtype() == output.dtype() && may_be(&Shape::known(value.shape()), output.shape()),
        InvalidArgument,
        "{what} `{}` must be {}{}, got {}{:?}",
        output.name(),
        output.dtype(),
        output.shape(),
        value.dtype(),
        value.shape()
    );
    Ok(())
}

/// The graph as a plan sees it.
pub(super) struct Needed<'a> {
    pub(super) nodes: &'a [Arc<Node>],
    pub(super) variables: &'a [NodeId],
    pub(super) feeds: HashSet<Endpoint>,
}

impl Needed<'_> {
    /// The nodes that have to run, in order; where an endpoint is the same as another, that one is used.
    fn order(&self, key: &Key, same: &HashMap<Endpoint, Endpoint>) -> Result<Vec<NodeId>> {
        let mut needed = vec![false; self.nodes.len()];
        let mut open: Vec<NodeId> = Vec::new();
        let mut need = |endpoint: &Endpoint, open: &mut Vec<NodeId>| {
            let endpoint = same.get(endpoint).unwrap_or(endpoint);
            if !self.feeds.contains(endpoint) && !std::mem::replace(&mut needed[endpoint.node], true) {
                open.push(endpoint.node);
            }
        };
        for fetch in &key.fetches {
            need(fetch, &mut open);
        }
        let whole = |node: NodeId| Endpoint { node, index: usize::MAX };
        for &target in &key.targets {
            need(&whole(target), &mut open);
        }
        while let Some(id) = open.pop() {
            let node = &self.nodes[id];
            if matches!(node.kind, Kind::Placeholder) {
                if self.feeds.contains(&Endpoint { node: id, index: 0 }) {
                    continue;
                }
                bail!(FailedPrecondition, "placeholder {} has to be fed", quoted(node));
            }
            for input in self.inputs(id) {
                need(&input, &mut open);
            }
            for &control in &node.controls {
                need(&whole(control), &mut open);
            }
        }
        Ok((0..self.nodes.len()).filter(|&id| needed[id]).collect())
    }

    /// What a node reads.
    pub(super) fn inputs(&self, id: NodeId) -> Vec<Endpoint> {
        match &self.nodes[id].kind {
            Kind::Initialize => self.variables.iter().map(|&variable| self.initial(variable)).collect(),
            _ => self.nodes[id].inputs.iter().flatten().copied().collect(),
        }
    }

    fn initial(&self, variable: NodeId) -> Endpoint {
        match self.nodes[variable].kind {
            Kind::Variable { initial } => initial,
            _ => unreachable!("the graph lists its variables"),
        }
    }
}

/// The name of a node and where it was made, for an error that says of what kind it is.
fn quoted(node: &Node) -> String {
    node.described().trim_start_matches("node ").to_owned()
}

/// A plan that is being put together.
struct Builder<'a> {
    graph: &'a Needed<'a>,
    simplified: &'a Simplified,
    placement: &'a Placement,
    cards: &'a Cards,
    /// Where an endpoint is read on a device.
    slots: HashMap<(Endpoint, Device), Slot>,
    /// Where what stands in for one that is on a card is read from: a tensor of its shape.
    stand_ins: HashMap<Endpoint, Slot>,
    constants: Vec<Option<Tensor>>,
    on_cards: OnCards,
    steps: Vec<Step>,
    /// The step that runs a node, and that fills a slot.
    step_of: HashMap<NodeId, usize>,
    made_by: Vec<Option<usize>>,
    reads: Vec<Read>,
    shapes: HashMap<NodeId, Arc<Node>>,
    /// The last step that writes each variable.
    writers: HashMap<NodeId, usize>,
}

impl<'a> Builder<'a> {
    fn new(
        graph: &'a Needed<'a>,
        simplified: &'a Simplified,
        (placement, cards): (&'a Placement, &'a Cards),
    ) -> Builder<'a> {
        Builder {
            graph,
            simplified,
            placement,
            cards,
            slots: HashMap::new(),
            stand_ins: HashMap::new(),
            constants: vec![],
            on_cards: OnCards::default(),
            steps: vec![],
            step_of: HashMap::new(),
            made_by: vec![],
            reads: vec![],
            shapes: HashMap::new(),
            writers: HashMap::new(),
        }
    }

    fn add(&mut self, id: NodeId) -> Result<()> {
        let node = &self.graph.nodes[id];
        let is_constant = |index| self.simplified.constants.contains_key(&Endpoint { node: id, index });
        match &node.kind {
            Kind::Variable { .. } => {
                let value = Endpoint { node: id, index: 0 };
                if !self.graph.feeds.contains(&value) {
                    let at = self.placement.device(node, id);
                    let slot = self.new_slot(value, at, None);
                    let reads =
                        if at == Device::CPU { &mut self.reads } else { &mut self.on_cards.variables };
                    reads.push(Read { slot, variable: id, node: node.clone() });
                }
                return Ok(());
            }
            // It is fed, or `order` would have said so.
            Kind::Placeholder => return Ok(()),
            _ if !node.outputs.is_empty() && (0..node.outputs.len()).all(is_constant) => return Ok(()),
            _ => {}
        }
        let inputs = self.inputs(id)?;
        let step = self.steps.len();
        let at = self.placement.device(node, id);
        let of_inputs = inputs.iter().flatten().filter_map(|&slot| self.made_by[slot]);
        let of_controls = node.controls.iter().filter_map(|control| self.step_of.get(control).copied());
        let mut needs: Vec<usize> = of_inputs.chain(of_controls).collect();
        needs.sort_unstable();
        needs.dedup();
        let outputs = (0..node.outputs.len()).map(|index| Endpoint { node: id, index });
        // What is fed is read from the feed, though the node runs for its other outputs.
        let outputs: Vec<Option<Slot>> = outputs
            .map(|endpoint| {
                let is_fed = self.graph.feeds.contains(&endpoint);
                (!is_fed).then(|| self.new_slot(endpoint, at, Some(step)))
            })
            .collect();
        let action = self.action(id, node)?;
        if let Action::Change { variables, .. } | Action::Assign { variables } = &action {
            let changes = matches!(action, Action::Change { .. });
            for &variable in variables {
                self.check_writers(variable, node, &needs, changes)?;
                self.writers.insert(variable, step);
            }
            self.shapes.extend(variables.iter().map(|&id| (id, self.graph.nodes[id].clone())));
        }
        self.step_of.insert(id, step);
        let (cost, prepared) = (AtomicU32::new(0), OnceLock::new());
        self.steps.push(Step { node: node.clone(), action, inputs, outputs, needs, cost, prepared });
        Ok(())
    }

    /// Checks that what a variable is after a run is clear: who assigns it comes after whoever writes it too. Ops that
    /// change it one after another are in the order in which they were made.
    fn check_writers(&self, variable: NodeId, node: &Node, needs: &[usize], changes: bool) -> Result<()> {
        let Some(&before) = self.writers.get(&variable) else { return Ok(()) };
        let writer = &self.steps[before];
        if changes && matches!(writer.action, Action::Change { .. }) {
            return Ok(());
        }
        let (mut left, mut seen) = (needs.to_vec(), HashSet::new());
        while let Some(step) = left.pop() {
            if step == before {
                return Ok(());
            }
            if seen.insert(step) {
                left.extend(&self.steps[step].needs);
            }
        }
        bail!(
            InvalidArgument,
            "variable `{}` is written twice in one run, by {} and by {}, of which neither comes after the other: run one of \
             them only, or let one read what the other gives",
            self.graph.nodes[variable].name,
            writer.node.described(),
            node.described()
        )
    }

    fn action(&self, id: NodeId, node: &Node) -> Result<Action> {
        Ok(match &node.kind {
            Kind::Call { op, attrs } => {
                if let Some(card) = self.placement.card(id) {
                    let (card, op, attrs) = (card.clone(), op.clone(), attrs.clone());
                    return Ok(Action::OnCard { card, op, attrs, wanted: 0 });
                }
                let changed: Vec<NodeId> = changed_inputs(op, node).map(|input| input.node).collect();
                if changed.is_empty() {
                    Action::Call { op: op.clone(), attrs: attrs.clone(), wanted: 0 }
                } else {
                    Action::Change { op: op.clone(), attrs: attrs.clone(), variables: changed }
                }
            }
            Kind::Assign { variable } => Action::Assign { variables: vec![*variable] },
            Kind::Initialize => Action::Assign { variables: self.graph.variables.to_vec() },
            Kind::Group => Action::Assign { variables: vec![] },
            Kind::Placeholder | Kind::Constant(_) | Kind::Variable { .. } => {
                unreachable!("{} does not run", node.described())
            }
        })
    }

    /// How often each slot is read.
    fn readers(&self, fetches: &[Slot]) -> Vec<u32> {
        let mut readers = vec![0; self.constants.len()];
        for slot in self.steps.iter().flat_map(|step| step.inputs.iter().flatten()) {
            readers[*slot] += 1;
        }
        let constants = self.constants.iter().enumerate().filter(|(_, constant)| constant.is_some());
        let on_cards = self.on_cards.constants.iter().map(|(slot, _)| *slot);
        for slot in constants.map(|(slot, _)| slot).chain(on_cards).chain(fetches.iter().copied()) {
            readers[slot] = KEPT;
        }
        readers
    }

    /// What each slot holds, as far as the graph knows.
    fn known(&self) -> Vec<Known> {
        let mut known = vec![Known { dtype: DType::Float32, shape: Shape::unknown() }; self.constants.len()];
        let stand_ins = self.stand_ins.iter();
        for (endpoint, &slot) in
            self.slots.iter().map(|((endpoint, _), slot)| (endpoint, slot)).chain(stand_ins)
        {
            known[slot] = self.graph.nodes[endpoint.node].outputs[endpoint.index].clone();
        }
        known
    }

    /// Notes what is read by whom, and so what is not computed and when memory can be given back.
    fn finish(mut self, key: &Key, options: SessionOptions) -> Result<Plan> {
        let feeds: Vec<Slot> =
            key.feeds.iter().map(|feed| self.slot(feed, Device::CPU)).collect::<Result<_>>()?;
        let fetches: Vec<Slot> =
            key.fetches.iter().map(|fetch| self.fetched(fetch)).collect::<Result<_>>()?;
        let mut readers = self.readers(&fetches);
        for step in &mut self.steps {
            for output in &mut step.outputs {
                *output = output.filter(|slot| readers[*slot] > 0);
            }
            if let Action::Call { wanted, .. } | Action::OnCard { wanted, .. } = &mut step.action {
                *wanted = wanted_outputs(&step.node, &step.outputs);
            }
        }
        if options.fuse {
            let steps = std::mem::take(&mut self.steps);
            let known = self.known();
            let slots = Slots { constants: &self.constants, readers: &readers, known: &known };
            self.steps = fuse(steps, &slots)?;
            readers = self.readers(&fetches);
        }
        Ok(Plan {
            steps: self.steps,
            feeds,
            fetches,
            variables: self.reads,
            writes: !self.writers.is_empty(),
            parallel: options.parallel,
            threads: options.threads,
            readers,
            constants: self.constants,
            shapes: self.shapes,
            frames: Mutex::default(),
            on_cards: (!self.placement.is_empty()).then_some(self.on_cards),
        })
    }
}

/// The inputs of a node that its op changes in place.
pub(super) fn changed_inputs<'a>(op: &'a Op, node: &'a Node) -> impl Iterator<Item = Endpoint> + 'a {
    let mut first = 0;
    let defs = op.signature().inputs.iter().zip(&node.counts);
    defs.filter_map(move |(def, count)| {
        let input = node.inputs.get(first).copied().flatten();
        first += count;
        input.filter(|_| def.is_ref)
    })
}

/// The outputs of the definition of which at least one tensor is read, as bits.
fn wanted_outputs(node: &Node, slots: &[Option<Slot>]) -> u64 {
    let mut wanted = 0;
    let mut first = 0;
    for (output, &count) in node.output_counts.iter().enumerate() {
        if output >= u64::BITS as usize {
            break;
        }
        if slots[first..first + count].iter().any(Option::is_some) {
            wanted |= 1 << output;
        }
        first += count;
    }
    wanted
}
