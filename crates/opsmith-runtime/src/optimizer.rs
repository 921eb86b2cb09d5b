//! Optimisers: nodes that change variables so that a loss becomes smaller.

use opsmith_core::dtype::sets;
use opsmith_core::{Device, Result, ensure};

use crate::autodiff::{Compose, gradients_with};
use crate::graph::{CallBuilder, Graph, Operation, Output, Variable};
use crate::standard;
use crate::tensor::Tensor;

/// A way to change variables by the gradients of a loss.
pub trait Optimizer {
    /// Its name: the scope of the nodes that it adds.
    fn name(&self) -> &'static str;

    /// Adds the step of one variable, and whatever variables of its own it needs, to the graph, which places them where the
    /// variable is.
    ///
    /// # Errors
    /// `InvalidArgument` for a gradient that does not fit the variable.
    fn step(&self, graph: &Graph, variable: &Variable, gradient: &Output) -> Result<Vec<Operation>>;

    /// The node that changes each variable once by its gradient.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    fn apply(&self, pairs: &[(Output, Variable)]) -> Result<Operation> {
        let Some((first, _)) = pairs.first() else {
            opsmith_core::bail!(InvalidArgument, "{}: there is no variable to change", self.name());
        };
        let graph = first.graph().scope(self.name())?;
        let mut steps = Vec::new();
        for (gradient, variable) in pairs {
            let output = variable.output();
            ensure!(
                gradient.dtype() == output.dtype() && crate::graph::may_be(gradient.shape(), output.shape()),
                InvalidArgument,
                "{}: the gradient of variable `{}` must be {}{}, got {}{}",
                self.name(),
                variable.name(),
                output.dtype(),
                output.shape(),
                gradient.dtype(),
                gradient.shape()
            );
            steps.extend(self.step(&graph.with_device(output.device()), variable, gradient)?);
        }
        graph.group_at("apply", &steps, first.operation().place().clone())
    }

    /// The node that takes one step towards a smaller loss, with all variables of the graph that it depends on.
    ///
    /// # Errors
    /// As [`gradients`](crate::gradients); `InvalidArgument` for a loss that is no float scalar or depends on no variable.
    fn minimize(&self, loss: &Output) -> Result<Operation> {
        self.minimize_with(loss, &loss.graph().variables())
    }

    /// As [`minimize`](Self::minimize), with these variables.
    ///
    /// # Errors
    /// As [`minimize`](Self::minimize).
    fn minimize_with(&self, loss: &Output, variables: &[Variable]) -> Result<Operation> {
        self.minimize_composed(loss, variables, &mut |_, _| Ok(None))
    }

    /// As [`minimize_with`](Self::minimize_with), with `compose` asked for the gradients of ops that declare none.
    ///
    /// # Errors
    /// As [`gradients_with`].
    fn minimize_composed(
        &self,
        loss: &Output,
        variables: &[Variable],
        compose: &mut Compose<'_>,
    ) -> Result<Operation> {
        ensure!(
            loss.shape().rank().is_none_or(|rank| rank == 0) && sets::ANY_FLOAT.contains(&loss.dtype()),
            InvalidArgument,
            "{}: the loss `{}` must be a float of shape [], got {}{}",
            self.name(),
            loss.name(),
            loss.dtype(),
            loss.shape()
        );
        let is_float = |variable: &&Variable| sets::ANY_FLOAT.contains(&variable.output().dtype());
        let variables: Vec<&Variable> = variables.iter().filter(is_float).collect();
        let xs: Vec<&Output> = variables.iter().map(|variable| variable.output()).collect();
        let found = gradients_with(&[loss], &xs, None, compose)?.into_iter().zip(variables);
        let pairs: Vec<(Output, Variable)> =
            found.filter_map(|(gradient, variable)| Some((gradient?, variable.clone()))).collect();
        ensure!(
            !pairs.is_empty(),
            InvalidArgument,
            "{}: the loss `{}` depends on no variable in a differentiable way",
            self.name(),
            loss.name()
        );
        self.apply(&pairs)
    }
}

/// Gradient descent: each variable less `learning_rate` times its gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradientDescent {
    /// How far a step goes.
    pub learning_rate: f64,
}

/// Gradient descent with momentum: a velocity, `momentum` times the last one plus the gradient, takes the gradient's place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Momentum {
    /// How far a step goes.
    pub learning_rate: f64,
    /// How much of the velocity is left at the next step.
    pub momentum: f64,
}

/// Adam (Kingma and Ba, 2015, algorithm 1): steps scaled by running means of the gradient and of its square.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// How far a step goes.
    pub learning_rate: f64,
    /// How much of the mean gradient is left at the next step.
    pub beta1: f64,
    /// How much of the mean square is left at the next step.
    pub beta2: f64,
    /// What is added to the root of the mean square, so that nothing is divided by zero.
    pub epsilon: f64,
}

impl Default for Adam {
    /// The values that the paper suggests.
    fn default() -> Adam {
        Adam { learning_rate: 0.001, beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }
    }
}

impl Optimizer for GradientDescent {
    fn name(&self) -> &'static str {
        "GradientDescent"
    }

    fn step(&self, graph: &Graph, variable: &Variable, gradient: &Output) -> Result<Vec<Operation>> {
        let updated = graph
            .call(&standard::op("GradientDescentStep")?)
            .place(gradient.operation().place().clone())
            .arg(variable.output())
            .arg(gradient)
            .attr("learning_rate", self.learning_rate)
            .build()?;
        assign_all(graph, &[variable], &updated)
    }
}

impl Optimizer for Momentum {
    fn name(&self) -> &'static str {
        "Momentum"
    }

    fn step(&self, graph: &Graph, variable: &Variable, gradient: &Output) -> Result<Vec<Operation>> {
        let velocity = slot(graph, variable, "velocity", gradient)?;
        let updated = graph
            .call(&standard::op("MomentumStep")?)
            .place(gradient.operation().place().clone())
            .arg(variable.output())
            .arg(gradient)
            .arg(velocity.output())
            .attr("learning_rate", self.learning_rate)
            .attr("momentum", self.momentum)
            .build()?;
        assign_all(graph, &[variable, &velocity], &updated)
    }
}

impl Optimizer for Adam {
    fn name(&self) -> &'static str {
        "Adam"
    }

    fn step(&self, graph: &Graph, variable: &Variable, gradient: &Output) -> Result<Vec<Operation>> {
        let (mean, square) =
            (slot(graph, variable, "mean", gradient)?, slot(graph, variable, "square", gradient)?);
        let name = slot_name(variable, "steps");
        let place = gradient.operation().place().clone();
        // A few numbers, which are counted on the CPU wherever the variable is.
        let counting = graph.with_device(Device::CPU);
        let none = counting.constant_at(&format!("{name}/initial"), Tensor::scalar(0.0)?, place.clone())?;
        let steps = counting.variable_at(&name, &none, place.clone())?;
        let betas = |call: CallBuilder| call.attr("beta1", self.beta1).attr("beta2", self.beta2);
        let corrections =
            betas(counting.call(&standard::op("AdamCorrections")?).place(place.clone()).arg(steps.output()));
        let corrections = corrections.build()?;
        let cast = |index| corrections.output(index)?.cast_to(variable.output().dtype());
        let call = graph
            .call(&standard::op("AdamStep")?)
            .place(gradient.operation().place().clone())
            .arg(variable.output())
            .arg(gradient)
            .arg(mean.output())
            .arg(square.output())
            .arg(&cast(1)?)
            .arg(&cast(2)?)
            .attr("learning_rate", self.learning_rate)
            .attr("epsilon", self.epsilon);
        let mut assigned = assign_all(graph, &[variable, &mean, &square], &betas(call).build()?)?;
        assigned.push(counting.assign_at(&steps, &corrections.output(0)?, place)?);
        Ok(assigned)
    }
}

impl Output {
    /// As [`cast`](Self::cast), and nothing where the dtype is that already.
    fn cast_to(&self, dtype: opsmith_core::DType) -> Result<Output> {
        if self.dtype() == dtype { Ok(self.clone()) } else { self.cast(dtype) }
    }
}

fn slot_name(variable: &Variable, name: &str) -> String {
    format!("{}/{name}", variable.name())
}

/// A variable of zeros like another one, which an optimiser keeps beside it: made where the gradient was asked for.
fn slot(graph: &Graph, variable: &Variable, name: &str, gradient: &Output) -> Result<Variable> {
    let place = gradient.operation().place().clone();
    let zeros = match variable.output().shape().to_known() {
        Some(shape) => {
            graph.constant_at("zeros", Tensor::zeros(variable.output().dtype(), &shape)?, place.clone())?
        }
        None => {
            // Once, and copied to where the variable is.
            let graph = graph.with_device(Device::CPU);
            let call = graph.call(&standard::op("ZerosLike")?).place(place.clone());
            call.arg(&variable.initial()).build()?.output(0)?
        }
    };
    graph.variable_at(&slot_name(variable, name), &zeros, place)
}

/// Assigns each output of a call to a variable.
fn assign_all(graph: &Graph, variables: &[&Variable], call: &Operation) -> Result<Vec<Operation>> {
    let pairs = variables.iter().zip(call.outputs());
    pairs.map(|(variable, output)| graph.assign_at(variable, &output, call.place().clone())).collect()
}
