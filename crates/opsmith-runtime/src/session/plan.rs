//! What one choice of fetches and feeds needs: the steps, in order, and when memory can be given back.

mod slots;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use opsmith_core::fork::{Mutex, OnceLock};
use opsmith_core::{DType, Device, Result, Shape, bail, ensure};

use super::fold::{Simplified, simplify};
use super::fuse::{Slots, fuse};
use super::needed::{Needed, changed_inputs};
use super::place::{Devices, Placement};
use super::step::{Action, Crossing, KEPT, Plan, Read, Slot, Step};
use super::{Key, SessionOptions};
use crate::graph::{Endpoint, Graph, Kind, Known, Node, NodeId, Output, SourceLine, may_be};
use crate::pool::MemoryPool;
use crate::tensor::Tensor;

impl Plan {
    pub(super) fn new(
        graph: &Graph,
        key: &Key,
        options: SessionOptions,
        (pool, devices): (&Arc<MemoryPool>, &Devices),
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
                ..Node::initializer(SourceLine::unknown())
            }));
        }
        let key = &key;
        let mut seen = HashSet::new();
        if let Some(twice) = key.feeds.iter().find(|feed| !seen.insert(**feed)) {
            bail!(InvalidArgument, "`{}` is fed twice", nodes[twice.node].name);
        }
        let needed = Needed { nodes: &nodes, variables: &variables, feeds: seen };
        let order = needed.order(key, &HashMap::new())?;
        let placement = Placement::new(&needed, &order, devices)?;
        let simplified = if options.simplify {
            simplify(&needed, &order, (options.threads, pool))
        } else {
            Simplified::nothing(&needed, &order)
        };
        let order = needed.order(key, &simplified.same)?;
        let mut builder = Builder::new(&needed, &simplified, (&placement, devices));
        for node in order {
            builder.add(node)?;
        }
        builder.finish(key, options)
    }
}

/// Checks that a value may stand for an output.
pub(super) fn check_fed(output: &Output, value: &Tensor, what: &str) -> Result<()> {
    ensure!(
        value.device() == Device::CPU,
        InvalidArgument for &output.name(),
        "{what} `{}` must be in host memory, got {value:?}: move it by `to`",
        output.name()
    );
    ensure!(
        value.dtype() == output.dtype() && may_be(&Shape::known(value.shape()), output.shape()),
        InvalidArgument for &output.name(),
        "{what} `{}` must be {}{}, got {}{:?}",
        output.name(),
        output.dtype(),
        output.shape(),
        value.dtype(),
        value.shape()
    );
    Ok(())
}

/// A plan that is being put together.
struct Builder<'a> {
    graph: &'a Needed<'a>,
    simplified: &'a Simplified,
    placement: &'a Placement,
    devices: &'a Devices,
    /// Where an endpoint is read on a device.
    slots: HashMap<(Endpoint, Device), Slot>,
    /// Where what stands in for one that is on a device is read from: a tensor of its shape.
    stand_ins: HashMap<Endpoint, Slot>,
    constants: Vec<Option<Tensor>>,
    shared: Vec<Arc<Tensor>>,
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
        (placement, devices): (&'a Placement, &'a Devices),
    ) -> Builder<'a> {
        Builder {
            graph,
            simplified,
            placement,
            devices,
            slots: HashMap::new(),
            stand_ins: HashMap::new(),
            constants: vec![],
            shared: vec![],
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
                    self.reads.push(Read { slot, variable: id, node: node.clone() });
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
                let changed: Vec<NodeId> = changed_inputs(op, node).map(|input| input.node).collect();
                if changed.is_empty() {
                    let device = self.placement.card(id).cloned();
                    Action::Call { op: op.clone(), attrs: attrs.clone(), wanted: 0, device }
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
        for slot in constants.map(|(slot, _)| slot).chain(fetches.iter().copied()) {
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
            if let Action::Call { wanted, .. } = &mut step.action {
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
            shared: self.shared,
        })
    }
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
