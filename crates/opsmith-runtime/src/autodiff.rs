//! Derivatives of graphs. Reverse mode: for each op on the way, a call of the gradient op that it is wired to. Forward mode is
//! that twice.

use std::collections::HashMap;

use opsmith_core::dtype::sets;
use opsmith_core::{Device, Error, Gradient, GradientInput, Result, ensure};

use crate::graph::{Endpoint, Graph, GraphArg, Kind, Node, NodeId, Operation, Output, SourceLine};
use crate::library::Op;
use crate::standard;
use crate::tensor::Tensor;

/// Gives gradients to ops that declare none. Called with a node and the gradients that have arrived for its outputs, it
/// makes the gradients of its inputs as nodes of the same graph, one for each tensor, or tells that it knows of none.
pub type Compose<'a> = dyn FnMut(&Operation, &[Option<Output>]) -> Result<Option<Vec<Option<Output>>>> + 'a;

/// The gradients of the sum of `ys` with respect to each of `xs`, as new nodes of their graph: none for an `x` that no
/// `y` depends on in a differentiable way: along floats, and not through a variable that is assigned. `grad_ys`, where they
/// are given, are the gradients that flow into the `ys`; else those are ones.
///
/// # Errors
/// `Unimplemented` for an op on the way that declares no gradient: the error names it, and the way to it. `InvalidArgument`
/// for outputs of several graphs, or of dtypes that have no gradients.
pub fn gradients(ys: &[&Output], xs: &[&Output], grad_ys: Option<&[&Output]>) -> Result<Vec<Option<Output>>> {
    gradients_with(ys, xs, grad_ys, &mut |_, _| Ok(None))
}

/// As [`gradients`], with `compose` asked for the gradients of ops that declare none.
///
/// # Errors
/// As [`gradients`]; what `compose` says, and `InvalidArgument` for gradients of it that do not fit the inputs.
pub fn gradients_with(
    ys: &[&Output],
    xs: &[&Output],
    grad_ys: Option<&[&Output]>,
    compose: &mut Compose<'_>,
) -> Result<Vec<Option<Output>>> {
    let Some(first) = ys.first() else { return Ok(vec![None; xs.len()]) };
    let graph = first.graph().scope("gradients")?;
    graph.check_own("gradients:", &[ys, xs, grad_ys.unwrap_or_default()])?;
    if let Some(grad_ys) = grad_ys {
        let (given, expected) = (grad_ys.len(), ys.len());
        ensure!(
            given == expected,
            InvalidArgument,
            "gradients: {expected} ys need as many grad_ys, got {given}"
        );
    }
    let mut pass = Backward::new(graph, xs, first.operation().place().clone());
    for (index, y) in ys.iter().enumerate() {
        let gradient = match grad_ys {
            Some(grad_ys) => pass.given(y, grad_ys[index])?,
            None => pass.ones_like(y)?,
        };
        pass.arrived(y.endpoint(), gradient, None);
    }
    pass.run(compose)?;
    xs.iter().map(|x| pass.total(x.endpoint())).collect()
}

/// The derivatives of `outputs` along `tangents`, one for each of `inputs`, as new nodes of their graph: forward mode. Gives
/// one for each output, of its shape and dtype: the sum, over the inputs, of the derivative by the input times its tangent.
/// It is zeros for an output that depends on no input in a differentiable way. A tangent is of its input's shape and
/// dtype; where the shapes are not known yet, a session checks them.
///
/// It is reverse mode twice: of a product `v` with the transposed derivative, which is linear in `v`, the derivative by `v`
/// is the product with the derivative itself. So each op on the way needs a gradient op that has a gradient op.
///
/// # Errors
/// `InvalidArgument` for another number of tangents than of inputs, for tangents of other shapes or dtypes, for inputs and
/// outputs that are no floats, and for outputs of several graphs. `Unimplemented` for an op on the way that declares no
/// gradient, and for a gradient op on the way that declares none or not that by what flows through it: the error names it,
/// and the way to it.
pub fn jvp(outputs: &[&Output], inputs: &[&Output], tangents: &[&Output]) -> Result<Vec<Output>> {
    jvp_with(outputs, inputs, tangents, &mut |_, _| Ok(None))
}

/// As [`jvp`], with `compose` asked for the gradients of ops that declare none.
///
/// # Errors
/// As [`jvp`]; what `compose` says, and `InvalidArgument` for gradients of it that do not fit the inputs.
pub fn jvp_with(
    outputs: &[&Output],
    inputs: &[&Output],
    tangents: &[&Output],
    compose: &mut Compose<'_>,
) -> Result<Vec<Output>> {
    let (given, expected) = (tangents.len(), inputs.len());
    ensure!(given == expected, InvalidArgument, "jvp: {expected} inputs need as many tangents, got {given}");
    let Some(first) = outputs.first().or(inputs.first()) else { return Ok(vec![]) };
    let graph = first.graph().scope("jvp")?;
    graph.check_own("jvp:", &[outputs, inputs, tangents])?;
    let place = first.operation().place().clone();
    let mut pass = Backward::new(graph.clone(), inputs, place.clone());
    let tangents = inputs
        .iter()
        .zip(tangents)
        .map(|(x, tangent)| pass.tangent(x, tangent))
        .collect::<Result<Vec<_>>>()?;
    // In place of what is multiplied with the transposed derivative: what that is does not matter.
    let zeros = outputs.iter().map(|y| pass.zeros_like(y)).collect::<Result<Vec<_>>>()?;
    for (y, zeros) in outputs.iter().zip(&zeros) {
        pass.arrived(y.endpoint(), zeros.clone(), None);
    }
    pass.run(compose)?;
    let transposed = inputs.iter().map(|x| pass.total(x.endpoint())).collect::<Result<Vec<_>>>()?;
    let mut pass = Backward::new(graph, &zeros.iter().collect::<Vec<_>>(), place);
    pass.is_forward = true;
    for (product, tangent) in transposed.into_iter().zip(tangents) {
        if let Some(product) = product {
            pass.arrived(product.endpoint(), tangent, None);
        }
    }
    pass.run(compose)?;
    zeros.into_iter().map(|zeros| Ok(pass.total(zeros.endpoint())?.unwrap_or(zeros))).collect()
}

/// A walk from the ys back to the xs.
struct Backward {
    graph: Graph,
    nodes: Vec<std::sync::Arc<Node>>,
    /// Whether a node depends on an x, or is one.
    depends: Vec<bool>,
    is_x: HashMap<Endpoint, ()>,
    /// What has flowed into each output so far.
    flowed: HashMap<Endpoint, Vec<Output>>,
    /// The node that a node's gradient came from first.
    from: HashMap<NodeId, NodeId>,
    /// Where nodes are said to be made that belong to no op on the way.
    place: SourceLine,
    /// Whether it is the second one of forward mode, in which an x always flows on: what lets nothing through is an error.
    is_forward: bool,
}

/// Whether an output is of a dtype that has gradients.
fn is_float(nodes: &[std::sync::Arc<Node>], endpoint: &Endpoint) -> bool {
    sets::ANY_FLOAT.contains(&nodes[endpoint.node].outputs[endpoint.index].dtype)
}

impl Backward {
    fn new(graph: Graph, xs: &[&Output], place: SourceLine) -> Backward {
        let nodes: Vec<_> = (0..graph.num_nodes()).map(|id| graph.node(id)).collect();
        let is_x: HashMap<Endpoint, ()> = xs.iter().map(|x| (x.endpoint(), ())).collect();
        let mut depends = vec![false; nodes.len()];
        xs.iter().for_each(|x| depends[x.endpoint().node] = true);
        // Along floats only: a comparison, an index or a whole number has no slope.
        for (id, node) in nodes.iter().enumerate() {
            let is_slope = |input: &Endpoint| depends[input.node] && is_float(&nodes, input);
            depends[id] |= node.inputs.iter().flatten().any(is_slope);
        }
        let (flowed, from) = (HashMap::new(), HashMap::new());
        Backward { graph, nodes, depends, is_x, flowed, from, place, is_forward: false }
    }

    /// A gradient of the caller's, which must be like the y.
    fn given(&self, y: &Output, gradient: &Output) -> Result<Output> {
        ensure!(
            gradient.dtype() == y.dtype() && crate::graph::may_be(gradient.shape(), y.shape()),
            InvalidArgument,
            "gradients: the gradient of `{}` must be {}{}, got {}{}",
            y.name(),
            y.dtype(),
            y.shape(),
            gradient.dtype(),
            gradient.shape()
        );
        Ok(gradient.clone())
    }

    /// A tangent of the caller's, which must be like the input.
    fn tangent(&self, x: &Output, tangent: &Output) -> Result<Output> {
        ensure!(
            sets::ANY_FLOAT.contains(&x.dtype()),
            InvalidArgument,
            "jvp: the input `{}` is {}; only floats have tangents",
            x.name(),
            x.dtype()
        );
        ensure!(
            tangent.dtype() == x.dtype() && crate::graph::may_be(tangent.shape(), x.shape()),
            InvalidArgument,
            "jvp: the tangent of `{}` must be {}{}, got {}{}",
            x.name(),
            x.dtype(),
            x.shape(),
            tangent.dtype(),
            tangent.shape()
        );
        if x.shape().to_known().is_some() && tangent.shape().to_known().is_some() {
            return Ok(tangent.clone());
        }
        // Gives the tangent, when it has found that its shape is that of the input.
        self.call("IdentityGrad", &[x, tangent])
    }

    /// Zeros that a product with the derivative takes the place of.
    fn zeros_like(&self, y: &Output) -> Result<Output> {
        ensure!(
            sets::ANY_FLOAT.contains(&y.dtype()),
            InvalidArgument,
            "jvp: the output `{}` is {}; only floats have tangents",
            y.name(),
            y.dtype()
        );
        self.call("ZerosLike", &[y])
    }

    fn ones_like(&self, y: &Output) -> Result<Output> {
        ensure!(
            sets::ANY_FLOAT.contains(&y.dtype()),
            InvalidArgument,
            "gradients: `{}` is {}; only floats have gradients",
            y.name(),
            y.dtype()
        );
        let one = Tensor::scalar_of(y.dtype(), 1.0)?;
        if y.shape().rank() == Some(0) {
            return self.graph.constant_at("one", one, self.place.clone());
        }
        // On the CPU: nothing of it is read from where the y is but the shape.
        let graph = self.graph.with_device(Device::CPU);
        let one = graph.constant_at("one", one, self.place.clone())?;
        let shape = self.call("Shape", &[&y.within(&graph)?])?;
        self.call("Fill", &[&shape, &one])
    }

    /// A call, placed where new nodes of its first argument are.
    fn call(&self, op: &str, args: &[&Output]) -> Result<Output> {
        let graph = self.graph.with_device(args[0].graph().device_of_new());
        let call = graph.call(&standard::op(op)?).place(self.place.clone());
        args.iter().fold(call, |call, arg| call.arg(*arg)).build()?.output(0)
    }

    /// Notes that a gradient flowed into an output, out of the node `from`.
    fn arrived(&mut self, endpoint: Endpoint, gradient: Output, from: Option<NodeId>) {
        if let Some(from) = from {
            self.from.entry(endpoint.node).or_insert(from);
        }
        self.flowed.entry(endpoint).or_default().push(gradient);
    }

    /// The sum of what has flowed into an output.
    fn total(&mut self, endpoint: Endpoint) -> Result<Option<Output>> {
        let Some(parts) = self.flowed.remove(&endpoint) else { return Ok(None) };
        let mut parts = parts.into_iter();
        let Some(mut total) = parts.next() else { return Ok(None) };
        for part in parts {
            total = self.call("Add", &[&total, &part])?;
        }
        self.flowed.insert(endpoint, vec![total.clone()]);
        Ok(Some(total))
    }

    /// From the last node to the first, through those that depend on an x.
    fn run(&mut self, compose: &mut Compose<'_>) -> Result<()> {
        for id in (0..self.nodes.len()).rev() {
            if !self.depends[id] {
                continue;
            }
            let node = self.nodes[id].clone();
            let mut totals = Vec::with_capacity(node.outputs.len());
            for index in 0..node.outputs.len() {
                totals.push(self.total(Endpoint { node: id, index })?);
            }
            if totals.iter().any(Option::is_some) {
                self.through(id, &node, &totals, compose)?;
            }
        }
        Ok(())
    }

    /// Lets gradients flow through one node, to those of its inputs that depend on an x.
    fn through(
        &mut self,
        id: NodeId,
        node: &Node,
        gradients: &[Option<Output>],
        compose: &mut Compose<'_>,
    ) -> Result<()> {
        let reaches = |input: &Endpoint| {
            is_float(&self.nodes, input) && (self.depends[input.node] || self.is_x.contains_key(input))
        };
        if !node.inputs.iter().flatten().any(reaches) {
            return Ok(());
        }
        let Kind::Call { op, .. } = &node.kind else {
            // What a variable was assigned is not differentiated; placeholders and the like have no inputs.
            return Ok(());
        };
        match op.declared_gradient() {
            Gradient::NotDifferentiable => return self.stops(node),
            Gradient::Undeclared => {
                let operation = Operation::new(self.graph.clone(), id);
                return match compose(&operation, gradients)? {
                    Some(found) => self.composed(id, node, found),
                    None => self.no_gradient(id, node),
                };
            }
            Gradient::Op(_) => {}
        }
        let Some(wiring) = op.gradient_wiring() else { return self.no_gradient(id, node) };
        let gradient_op = op.library().op(&wiring.op)?;
        self.check_reaches(node, op, &wiring.outputs)?;
        let gradient = self.gradient_call(id, node, &gradient_op, &wiring.inputs, gradients)?;
        let mut given = gradient.outputs().into_iter();
        for &input in &wiring.outputs {
            let first: usize = node.counts[..input].iter().sum();
            for position in first..first + node.counts[input] {
                let (Some(endpoint), Some(output)) = (node.inputs[position], given.next()) else { continue };
                if self.depends[endpoint.node] && is_float(&self.nodes, &endpoint) {
                    self.arrived(endpoint, output, Some(id));
                }
            }
        }
        Ok(())
    }

    /// Nothing flows through an op that is not differentiable. In forward mode it would have to: what is on the way there
    /// computes with gradients, and is linear in them.
    fn stops(&self, node: &Node) -> Result<()> {
        let op = node.kind.name();
        if !self.is_forward || op == "ZerosLike" {
            return Ok(());
        }
        let text = format!(
            "is declared to be not differentiable, but jvp needs its gradient, for gradients arrive there ({})",
            node.described()
        );
        Err(Error::unimplemented(text).with_op(op))
    }

    /// In forward mode, finds an input that the op's gradient is not given for, though it depends on an x.
    fn check_reaches(&self, node: &Node, op: &Op, given: &[usize]) -> Result<()> {
        let mut first = 0;
        for (at, &count) in node.counts.iter().enumerate() {
            let depends = |input: &Endpoint| self.depends[input.node] && is_float(&self.nodes, input);
            let is_lost =
                node.inputs[first..first + count].iter().flatten().any(depends) && !given.contains(&at);
            first += count;
            if self.is_forward && is_lost {
                let (name, node_name) = (&op.signature().inputs[at].name, node.described());
                let text = format!(
                    "its gradient op gives no gradient by the input `{name}`, but jvp needs one, for gradients arrive there ({node_name})"
                );
                return Err(Error::unimplemented(text).with_op(node.kind.name()).naming(name));
            }
        }
        Ok(())
    }

    /// Lets gradients that were made for a node flow to its inputs.
    fn composed(&mut self, id: NodeId, node: &Node, found: Vec<Option<Output>>) -> Result<()> {
        let (op, expected, given) = (node.kind.name(), node.inputs.len(), found.len());
        let refusal = |text: String| Error::invalid_argument(text).with_op(op);
        if given != expected {
            return Err(refusal(format!("has {expected} input tensors, got {given} gradients")));
        }
        for (input, gradient) in node.inputs.iter().zip(found) {
            let (Some(endpoint), Some(gradient)) = (*input, gradient) else { continue };
            self.graph.endpoint(&gradient, op)?;
            let input = Output::new(&self.graph, endpoint);
            if gradient.dtype() != input.dtype() || !crate::graph::may_be(gradient.shape(), input.shape()) {
                return Err(refusal(format!(
                    "the gradient of `{}` must be {}{}, got {}{}",
                    input.name(),
                    input.dtype(),
                    input.shape(),
                    gradient.dtype(),
                    gradient.shape()
                )));
            }
            if self.depends[endpoint.node] && is_float(&self.nodes, &endpoint) {
                self.arrived(endpoint, gradient, Some(id));
            }
        }
        Ok(())
    }

    /// Calls the gradient op of a node, and names it after the node.
    fn gradient_call(
        &self,
        id: NodeId,
        node: &Node,
        op: &Op,
        inputs: &[GradientInput],
        gradients: &[Option<Output>],
    ) -> Result<Operation> {
        let mut call = self.graph.with_device(node.device).call(op).place(node.place.clone());
        for (input, def) in inputs.iter().zip(&op.signature().inputs) {
            let flat: Vec<Option<Output>> = match *input {
                GradientInput::Input(at) => {
                    let first: usize = node.counts[..at].iter().sum();
                    let inputs = &node.inputs[first..first + node.counts[at]];
                    inputs.iter().map(|input| input.map(|input| Output::new(&self.graph, input))).collect()
                }
                GradientInput::Output(at) => self.outputs(id, node, at).map(Some).collect(),
                GradientInput::OutputGradient(at) => {
                    let first: usize = node.output_counts[..at].iter().sum();
                    let outputs = self.outputs(id, node, at).zip(&gradients[first..]);
                    let gradient = |(output, gradient): (Output, &Option<Output>)| match gradient {
                        Some(gradient) => Ok(Some(gradient.clone())),
                        None if def.optional => Ok(None),
                        None => self.call("ZerosLike", &[&output]).map(Some),
                    };
                    outputs.map(gradient).collect::<Result<_>>()?
                }
            };
            call = call.arg(match flat.as_slice() {
                _ if def.count.is_list() => GraphArg::List(flat.into_iter().flatten().collect()),
                [Some(output)] => GraphArg::One(output.clone()),
                _ => GraphArg::Absent,
            });
        }
        // With their default values: the gradient op may have others.
        let operation = Operation::new(self.graph.clone(), id);
        for (name, value) in operation.all_attrs()? {
            let def = op.signature().attr_index(&name).map(|index| &op.signature().attrs[index]);
            if def.is_some_and(|def| !def.inferred) {
                call = call.attr(&name, value);
            }
        }
        call.name(&format!("{}_grad", node.name.replace('/', "_"))).build()
    }

    /// The tensors of one output of a node's definition.
    fn outputs(&self, id: NodeId, node: &Node, at: usize) -> impl Iterator<Item = Output> + '_ {
        let first: usize = node.output_counts[..at].iter().sum();
        let range = first..first + node.output_counts[at];
        range.map(move |index| Output::new(&self.graph, Endpoint { node: id, index }))
    }

    /// The error that a node has no gradient, with the way from a y to it.
    fn no_gradient(&self, id: NodeId, node: &Node) -> Result<()> {
        let mut way = vec![node.name.as_str()];
        let mut at = id;
        while let Some(&from) = self.from.get(&at) {
            way.push(&self.nodes[from].name);
            at = from;
        }
        way.reverse();
        let op = node.kind.name();
        let why = if self.is_forward { "; jvp needs the gradients of gradient ops" } else { "" };
        let text = format!(
            "no gradient is declared for it ({}){why}; the gradient came to it by {}",
            node.described(),
            way.join(" <- ")
        );
        Err(Error::unimplemented(text).with_op(op))
    }
}
