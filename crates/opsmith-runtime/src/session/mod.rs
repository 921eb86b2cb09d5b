//! Sessions: they run graphs, and keep the values of variables.

mod checkpoint;
mod copies;
#[cfg(test)]
mod device_choice_tests;
#[cfg(test)]
mod device_plan_tests;
#[cfg(test)]
mod device_tests;
#[cfg(test)]
mod device_values_tests;
mod execute;
mod fold;
mod fuse;
mod needed;
mod op_call;
mod place;
mod plan;
mod schedule;
mod state;
mod step;
mod trace;

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use opsmith_core::fork::Mutex;
use opsmith_core::{Result, ensure};

pub use trace::{Trace, TraceEvent};

use crate::graph::{Endpoint, Graph, NodeId, Operation, Output, Variable};
use crate::pool::{MemoryPool, MemoryUse};
use crate::tensor::Tensor;

use place::Devices;
use state::{State, Written};
use step::Plan;

/// The most plans that a session keeps: as many as there are ways in which a program runs its graph, it is thought.
const MOST_PLANS: usize = 256;

/// Runs a graph, and keeps the values of its variables. Any number of threads may run one session, and any number of
/// sessions one graph; each has variables of its own.
///
/// What a run needs is found out once for each choice of fetches and feeds: which nodes, in what order, which are
/// constant or equal, when memory can be used again. Nodes that do not depend on each other run at the same time
/// where they are worth a thread.
pub struct Session {
    graph: Graph,
    plans: Mutex<HashMap<Key, Arc<Plan>>>,
    state: State,
    pool: Arc<MemoryPool>,
    devices: Devices,
    options: SessionOptions,
}

/// How a session runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionOptions {
    /// Whether nodes that do not depend on each other may run at the same time.
    pub parallel: bool,
    /// Whether constant parts are computed once, and equal nodes once for all.
    pub simplify: bool,
    /// Whether pointwise operators that follow each other are computed as one.
    pub fuse: bool,
    /// On how many threads a node runs at most, and how many nodes at the same time; on those of the process's pool where
    /// nothing is said, which `OPSMITH_NUM_THREADS` sizes.
    pub threads: Option<NonZeroUsize>,
    /// Whether a node that is placed on a card and cannot run there, since its op has no CUDA kernel or there is no such device,
    /// runs on the CPU; without it that is an error.
    pub allow_soft_placement: bool,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions {
            parallel: true,
            simplify: true,
            fuse: true,
            threads: None,
            allow_soft_placement: false,
        }
    }
}

/// What one way of running a graph is known by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) fetches: Vec<Endpoint>,
    pub(crate) targets: Vec<NodeId>,
    pub(crate) feeds: Vec<Endpoint>,
    /// Whether all variables get their initial values.
    pub(crate) initializes: bool,
    /// What `Initialize` initialises.
    num_variables: usize,
}

/// A run that is being written down: what to fetch, what to run, what to feed.
#[must_use = "it runs by `run`"]
pub struct Runner<'a> {
    session: &'a Session,
    fetches: Vec<&'a Output>,
    targets: Vec<&'a Operation>,
    feeds: Vec<(&'a Output, &'a Tensor)>,
    traced: bool,
}

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// The tensors that were fetched, in order.
    pub outputs: Vec<Tensor>,
    /// What ran when, if it was asked for.
    pub trace: Option<Trace>,
}

impl<'a> Runner<'a> {
    /// Fetches an output.
    pub fn fetch(mut self, output: &'a Output) -> Runner<'a> {
        self.fetches.push(output);
        self
    }

    /// Runs a node, of which nothing is fetched.
    pub fn target(mut self, operation: &'a Operation) -> Runner<'a> {
        self.targets.push(operation);
        self
    }

    /// Gives an output this value for the run, a placeholder's or any other.
    pub fn feed(mut self, output: &'a Output, value: &'a Tensor) -> Runner<'a> {
        self.feeds.push((output, value));
        self
    }

    /// Notes what runs when.
    pub fn traced(mut self) -> Runner<'a> {
        self.traced = true;
        self
    }

    /// Runs what is needed.
    ///
    /// # Errors
    /// `InvalidArgument` for a feed that does not fit, an output of another graph or one that is fed twice;
    /// `FailedPrecondition` for a placeholder that is needed and not fed, or a variable that has no value; what a kernel
    /// says, with the node and where it was made. Where a node is placed on a card: `Unimplemented` for one without a CUDA
    /// kernel, `FailedPrecondition` without a driver, `NotFound` where there is no such device. After an error variables are as
    /// they were.
    pub fn run(self) -> Result<Outcome> {
        self.session.run_all(&self.fetches, &self.targets, &self.feeds, self.traced)
    }
}

impl Session {
    /// A session on this graph, with no variable initialised.
    pub fn new(graph: &Graph) -> Session {
        Session::with_options(graph, SessionOptions::default())
    }

    /// As [`new`](Self::new), with options.
    pub fn with_options(graph: &Graph, options: SessionOptions) -> Session {
        Session::on(graph, options, Devices::new(options.allow_soft_placement))
    }

    fn on(graph: &Graph, options: SessionOptions, devices: Devices) -> Session {
        Session {
            graph: graph.clone(),
            plans: Mutex::default(),
            state: State::default(),
            pool: Arc::default(),
            devices,
            options,
        }
    }

    /// The graph that it runs.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs what the fetches need, and gives their values.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn run(&self, fetches: &[&Output], feeds: &[(&Output, &Tensor)]) -> Result<Vec<Tensor>> {
        Ok(self.run_all(fetches, &[], feeds, false)?.outputs)
    }

    /// Runs a node and what it needs.
    ///
    /// # Errors
    /// As [`Runner::run`].
    pub fn execute(&self, operation: &Operation, feeds: &[(&Output, &Tensor)]) -> Result<()> {
        self.run_all(&[], &[operation], feeds, false).map(|_| ())
    }

    /// A run with fetches, nodes to run and feeds, which may be traced.
    pub fn runner(&self) -> Runner<'_> {
        Runner { session: self, fetches: vec![], targets: vec![], feeds: vec![], traced: false }
    }

    /// Gives every variable of the graph its initial value.
    ///
    /// # Errors
    /// What the kernels of initial values say; where a variable is placed on a card, as [`Runner::run`].
    pub fn initialize(&self) -> Result<()> {
        let plan = self.plan_of(Key { initializes: true, ..Key::default() })?;
        execute::run(&plan, std::iter::empty(), &self.state, &self.pool, None).map(|_| ())
    }

    /// Makes these the values of variables, all at one moment, where the variables are.
    fn set_all<'a>(&self, new: impl Iterator<Item = (&'a Variable, Tensor)>) -> Result<()> {
        let mut new_values = Written::default();
        for (variable, value) in new {
            let node = variable.output().operation().node();
            match self.devices.of_variable(node)? {
                Some(device) => {
                    let there = value.to_cuda(&device).map_err(|error| step::at_node(error, node))?;
                    new_values.set(variable.id(), there);
                }
                None => new_values.set(variable.id(), value),
            }
        }
        let _writing = self.state.begin_writing();
        self.state.write(new_values);
        Ok(())
    }

    /// The value of a variable.
    ///
    /// # Errors
    /// `FailedPrecondition` where it has none yet.
    pub fn value(&self, variable: &Variable) -> Result<Tensor> {
        Ok(self.run(&[variable.output()], &[])?.remove(0))
    }

    /// Makes `value` that of a variable.
    ///
    /// # Errors
    /// `InvalidArgument` for a value that cannot be the variable's.
    pub fn set_value(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        self.graph.endpoint(variable.output(), "variable")?;
        plan::check_fed(variable.output(), value, "the value of variable")?;
        self.set_all(std::iter::once((variable, value.clone())))
    }

    /// How much memory the tensors of this session take.
    pub fn memory_use(&self) -> MemoryUse {
        self.pool.memory_use()
    }

    /// Counts the most memory that is in use at one time from now on.
    pub fn reset_peak_memory(&self) {
        self.pool.reset_peak();
    }

    fn run_all(
        &self,
        fetches: &[&Output],
        targets: &[&Operation],
        feeds: &[(&Output, &Tensor)],
        traced: bool,
    ) -> Result<Outcome> {
        let plan = self.plan(fetches, targets, feeds)?;
        for (output, value) in feeds {
            plan::check_fed(output, value, "the feed for")?;
        }
        let values = feeds.iter().map(|(_, value)| (*value).clone());
        let mut recorder = traced.then(Trace::recorder);
        let outputs = execute::run(&plan, values, &self.state, &self.pool, recorder.as_ref())?;
        Ok(Outcome { outputs, trace: recorder.take().map(trace::Recorder::finish) })
    }

    /// The plan for these fetches and feeds.
    fn plan(
        &self,
        fetches: &[&Output],
        targets: &[&Operation],
        feeds: &[(&Output, &Tensor)],
    ) -> Result<Arc<Plan>> {
        let endpoint = |output: &&Output, what| self.graph.endpoint(output, what);
        let mut key = Key {
            fetches: fetches.iter().map(|output| endpoint(output, "the fetch")).collect::<Result<_>>()?,
            targets: Vec::with_capacity(targets.len()),
            feeds: feeds.iter().map(|(output, _)| endpoint(output, "the feed")).collect::<Result<_>>()?,
            ..Key::default()
        };
        for target in targets {
            let (same, name) = (self.graph.is_same(target.graph()), target.name());
            ensure!(same, InvalidArgument, "the node `{name}` that is to run is of another graph");
            key.targets.push(target.id());
        }
        self.plan_of(key)
    }

    /// The plan that is known by a key, made once for each number of variables.
    fn plan_of(&self, mut key: Key) -> Result<Arc<Plan>> {
        key.num_variables = self.graph.shared().read().variables.len();
        if let Some(plan) = self.plans.lock().get(&key) {
            return Ok(plan.clone());
        }
        let plan = Plan::new(&self.graph, &key, self.options, (&self.pool, &self.devices))?;
        let plan = Arc::new(plan);
        let mut plans = self.plans.lock();
        let old = if plans.len() >= MOST_PLANS { std::mem::take(&mut *plans) } else { HashMap::new() };
        let plan = plans.entry(key).or_insert_with(|| plan.clone()).clone();
        drop(plans);
        // Constants of theirs may be in foreign memory.
        drop(old);
        Ok(plan)
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session on {:?}", self.graph)
    }
}
