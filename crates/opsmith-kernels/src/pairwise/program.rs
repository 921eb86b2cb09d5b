//! What an op of the family computes, in stages: of any order, derived by reverse mode.
//!
//! A stage computes a body for every pair of rows and every element of them, from operands that are known for rows of
//! `x` and an element, rows of `y` and an element, or pairs of rows; what it gives is folded to the same kinds. So a
//! stage's gradient is one sum or a few, and the gradient of a program is a program.

use opsmith_body::{Expr, Fold, Graph, Node, Scalar, compose};

/// What a value is known for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axes {
    /// Rows of `x` and elements.
    X,
    /// Rows of `y` and elements.
    Y,
    /// Pairs of rows.
    Pair,
}

/// An operand of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    /// A value of the program.
    Value(usize),
    /// How many elements a row has.
    Depth,
}

/// What a stage is computed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// Every element of values of this kind, which all operands and outputs are of.
    Elements(Axes),
    /// Every element of every pair of rows.
    Triples,
}

/// A step of a program.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) space: Space,
    pub(crate) fold: Fold,
    pub(crate) graph: Graph,
    pub(crate) operands: Vec<Operand>,
    /// The values that the graph's outputs are folded to, where somebody wants them.
    pub(crate) outputs: Vec<Option<usize>>,
}

/// Stages in order, the inputs being the first values.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) values: Vec<Axes>,
    pub(crate) inputs: usize,
    pub(crate) stages: Vec<Stage>,
    /// The values of the outputs; nothing for one that is zero.
    pub(crate) outputs: Vec<Option<usize>>,
}

impl Program {
    /// The forward op: the fold of a body, with an average's division, and a function of the fold.
    pub(crate) fn forward(body: Graph, fold: Fold, mean: bool, finish: Option<&Graph>) -> Program {
        let mut program =
            Program { values: vec![Axes::X, Axes::Y], inputs: 2, stages: Vec::new(), outputs: Vec::new() };
        let operands = vec![Operand::Value(0), Operand::Value(1)];
        let mut result = program.value(Axes::Pair);
        program.stages.push(Stage {
            space: Space::Triples,
            fold,
            graph: body,
            operands,
            outputs: vec![Some(result)],
        });
        if mean || finish.is_some() {
            let graph = compose(2, 1, |inputs| {
                let fold = if mean { inputs[0] / inputs[1] } else { inputs[0] };
                finish.map_or_else(|| vec![fold], |finish| finish.eval(&[fold]))
            });
            let operands = vec![Operand::Value(result), Operand::Depth];
            result = program.add(Space::Elements(Axes::Pair), graph, operands, &[Axes::Pair])[0];
        }
        program.outputs = vec![Some(result)];
        program
    }

    /// The gradient: of the inputs, of the output where that is read, and of a gradient for each output, the gradient of each input.
    pub(crate) fn gradient(&self, is_read: bool) -> Program {
        let before = self.inputs + usize::from(is_read);
        let shift = |value: usize| match value < self.inputs {
            true => value,
            false => value - self.inputs + before + self.outputs.len(),
        };
        let given = self.outputs.iter().map(|output| output.map_or(Axes::Pair, |value| self.values[value]));
        let given: Vec<Axes> = given.collect();
        let (inputs, others) = self.values.split_at(self.inputs);
        let read = if is_read { given.as_slice() } else { &[] };
        let mut program = Program {
            values: [inputs, read, &given, others].concat(),
            inputs: before + self.outputs.len(),
            stages: self.stages.iter().map(|stage| stage.renumbered(shift)).collect(),
            outputs: Vec::new(),
        };
        let mut adjoints: Vec<Vec<usize>> = vec![Vec::new(); program.values.len()];
        for (position, output) in self.outputs.iter().enumerate() {
            if let Some(value) = *output {
                adjoints[shift(value)].push(before + position);
            }
        }
        let result = self.outputs.first().copied().flatten().filter(|_| is_read).map(shift);
        for stage in program.stages.clone().iter().rev() {
            let sums = stage.outputs.iter();
            let gradients: Vec<Option<usize>> =
                sums.map(|output| program.sum(&mut adjoints, (*output)?)).collect();
            if gradients.iter().any(Option::is_some) {
                // A fold of a stage is no output of its graph.
                let is_result =
                    result.is_some() && stage.space != Space::Triples && stage.outputs == [result];
                let read = is_result.then_some(Operand::Value(self.inputs));
                program.backward(stage, &gradients, read, &mut adjoints);
            }
        }
        program.outputs = (0..self.inputs).map(|value| program.sum(&mut adjoints, value)).collect();
        program.drop_dead();
        program
    }

    /// The program where inputs that are so are nothing, as [`Graph::without_inputs`] has it.
    pub(crate) fn without_inputs(mut self, is_absent: impl Fn(usize) -> bool) -> Program {
        let mut nothing: Vec<bool> =
            (0..self.values.len()).map(|value| value < self.inputs && is_absent(value)).collect();
        for stage in &mut self.stages {
            let is_nothing = |operand: &Operand| matches!(operand, Operand::Value(value) if nothing[*value]);
            let lacking: Vec<bool> = stage.operands.iter().map(is_nothing).collect();
            if !lacking.contains(&true) {
                continue;
            }
            stage.graph = stage.graph.without_inputs(|operand| lacking[operand]);
            for (position, output) in stage.outputs.iter_mut().enumerate() {
                if let Some(value) = output.take_if(|_| is_zero(&stage.graph, position)) {
                    nothing[value] = true;
                }
            }
        }
        self.outputs.iter_mut().for_each(|output| *output = output.filter(|value| !nothing[*value]));
        self.drop_dead();
        self
    }

    /// Drops what no output needs.
    fn drop_dead(&mut self) {
        let live = self.live(&vec![true; self.outputs.len()]);
        let stages = std::mem::take(&mut self.stages).into_iter().map(|mut stage| {
            for output in &mut stage.outputs {
                *output = output.filter(|value| live[*value]);
            }
            stage
        });
        let some = stages.filter(|stage| stage.outputs.iter().any(Option::is_some));
        self.stages = some.map(Stage::tidy).collect();
    }

    /// Which values the outputs that are wanted need.
    pub(crate) fn live(&self, wanted: &[bool]) -> Vec<bool> {
        let mut live = vec![false; self.values.len()];
        for (output, _) in self.outputs.iter().zip(wanted).filter(|(_, wanted)| **wanted) {
            if let Some(value) = *output {
                live[value] = true;
            }
        }
        for stage in self.stages.iter().rev() {
            if stage.outputs.iter().flatten().any(|value| live[*value]) {
                for operand in &stage.operands {
                    if let Operand::Value(value) = *operand {
                        live[value] = true;
                    }
                }
            }
        }
        live
    }

    /// Whether a value is no argument of the op.
    pub(crate) fn is_between(&self, value: usize) -> bool {
        value >= self.inputs && !self.outputs.contains(&Some(value))
    }

    fn value(&mut self, axes: Axes) -> usize {
        self.values.push(axes);
        self.values.len() - 1
    }

    /// Adds a stage that sums; gives the values of its outputs.
    fn add(&mut self, space: Space, graph: Graph, operands: Vec<Operand>, outputs: &[Axes]) -> Vec<usize> {
        let values: Vec<usize> = outputs.iter().map(|axes| self.value(*axes)).collect();
        let outputs = values.iter().copied().map(Some).collect();
        let stage = Stage { space, fold: Fold::Sum, graph, operands, outputs };
        self.stages.push(stage.tidy());
        values
    }

    /// The sum of what was found to be added to the gradient of a value, which all is found by now.
    fn sum(&mut self, adjoints: &mut [Vec<usize>], value: usize) -> Option<usize> {
        let terms = adjoints[value].clone();
        if terms.len() > 1 {
            let axes = self.values[value];
            let graph = compose(terms.len(), 1, |inputs| {
                inputs.iter().copied().reduce(|a, b| a + b).into_iter().collect()
            });
            let operands = terms.into_iter().map(Operand::Value).collect();
            adjoints[value] = self.add(Space::Elements(axes), graph, operands, &[axes]);
        }
        adjoints[value].first().copied()
    }

    /// Adds the stages of the gradient of a stage, from the gradients of its outputs, and its only output where that is read.
    fn backward(
        &mut self,
        stage: &Stage,
        gradients: &[Option<usize>],
        read: Option<Operand>,
        adjoints: &mut Vec<Vec<usize>>,
    ) {
        let mut operands = stage.operands.clone();
        let graph = match (stage.fold, gradients) {
            (Fold::Max | Fold::Min, [Some(gradient)]) => {
                let fold = stage.outputs[0].unwrap_or_default();
                let share = self.share(stage, fold, *gradient);
                operands.extend([Operand::Value(share), Operand::Value(fold)]);
                taken_gradient(&stage.graph)
            }
            _ => {
                operands.extend(read);
                operands.extend(gradients.iter().flatten().map(|value| Operand::Value(*value)));
                given_gradient(&stage.graph, gradients, read.is_some())
            }
        };
        let outputs = stage.operands.iter().enumerate().map(|(position, operand)| match *operand {
            Operand::Value(value) if !is_zero(&graph, position) => {
                let gradient = self.value(self.values[value]);
                adjoints.resize(self.values.len(), Vec::new());
                adjoints[value].push(gradient);
                Some(gradient)
            }
            _ => None,
        });
        let outputs: Vec<Option<usize>> = outputs.collect();
        if outputs.iter().any(Option::is_some) {
            let stage = Stage { space: stage.space, fold: Fold::Sum, graph, operands, outputs };
            self.stages.push(stage.tidy());
        }
        adjoints.resize(self.values.len(), Vec::new());
    }

    /// The gradient of a largest or smallest term, divided by how many terms are equal to it.
    fn share(&mut self, stage: &Stage, fold: usize, gradient: usize) -> usize {
        let operands = [stage.operands.as_slice(), &[Operand::Value(fold)]].concat();
        let count = compose(operands.len(), 1, |inputs| {
            let (own, fold) = inputs.split_at(inputs.len() - 1);
            vec![Expr::select(is_taken(stage.graph.eval(own)[0], fold[0]), Expr::of(1.0), Expr::of(0.0))]
        });
        let count = self.add(Space::Triples, count, operands, &[Axes::Pair])[0];
        let share = compose(2, 1, |inputs| vec![inputs[0] / inputs[1]]);
        let operands = vec![Operand::Value(gradient), Operand::Value(count)];
        self.add(Space::Elements(Axes::Pair), share, operands, &[Axes::Pair])[0]
    }
}

impl Stage {
    fn renumbered(&self, shift: impl Fn(usize) -> usize) -> Stage {
        let mut stage = self.clone();
        for operand in &mut stage.operands {
            if let Operand::Value(value) = operand {
                *value = shift(*value);
            }
        }
        for value in stage.outputs.iter_mut().flatten() {
            *value = shift(*value);
        }
        stage
    }

    /// Without outputs that nobody wants and operands that nothing depends on.
    pub(crate) fn tidy(self) -> Stage {
        let kept: Vec<usize> = (0..self.outputs.len()).filter(|o| self.outputs[*o].is_some()).collect();
        let narrowed = self.graph.with_outputs(&kept);
        let is_read = |position: usize| narrowed.nodes().contains(&Node::Input(position as u32));
        let read: Vec<usize> = (0..self.operands.len()).filter(|position| is_read(*position)).collect();
        let zero_based = |inputs: &[Expr]| {
            let mut all = vec![Expr::of(0.0); self.operands.len()];
            for (position, input) in read.iter().zip(inputs) {
                all[*position] = *input;
            }
            narrowed.eval(&all)
        };
        Stage {
            graph: compose(read.len(), kept.len(), zero_based),
            operands: read.iter().map(|position| self.operands[*position]).collect(),
            outputs: kept.iter().map(|position| self.outputs[*position]).collect(),
            ..self
        }
    }
}

fn is_zero(graph: &Graph, output: usize) -> bool {
    graph.constant_output(output) == Some(0.0)
}

/// Whether a term is the fold, or NaN, which then the fold is.
fn is_taken(term: Expr, fold: Expr) -> <Expr as Scalar>::Mask {
    term.eq(fold) | term.ne(term)
}

/// The gradient of a graph where some outputs' gradients are zero, and the first output may be read.
fn given_gradient(graph: &Graph, gradients: &[Option<usize>], is_read: bool) -> Graph {
    let read: &[usize] = if is_read { &[0] } else { &[] };
    let (inputs, given) = (graph.input_count(), gradients.iter().flatten().count());
    compose(inputs + read.len() + given, inputs, |all| {
        let (own, given) = all.split_at(inputs + read.len());
        let mut given = given.iter().copied();
        let zero = Expr::of(0.0);
        let all = gradients.iter().map(|gradient| gradient.and_then(|_| given.next()).unwrap_or(zero));
        let all: Vec<Expr> = own.iter().copied().chain(all).collect();
        graph.gradient_reading(read).eval(&all)
    })
}

/// The gradient of a term that counts where it is the fold: of the inputs, the share of the gradient and the fold.
fn taken_gradient(graph: &Graph) -> Graph {
    let inputs = graph.input_count();
    compose(inputs + 2, inputs, |all| {
        let (own, fold) = (&all[..inputs], all[inputs + 1]);
        let taken = is_taken(graph.eval(own)[0], fold);
        let gradients = graph.gradient().eval(&all[..=inputs]).into_iter();
        gradients.map(|gradient| Expr::select(taken, gradient, Expr::of(0.0))).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_absent_gradients_is_no_stage() {
        let body = compose(2, 1, |x| vec![(x[0] - x[1]) * (x[0] - x[1])]);
        let program = Program::forward(body, Fold::Sum, true, None).gradient(false).gradient(false);
        // The inputs are x, y, the gradient of z, and those of the gradients of x and y.
        let without =
            |absent: &'static [usize]| program.clone().without_inputs(move |input| absent.contains(&input));
        let reads = |program: &Program, input: usize| {
            program.stages.iter().any(|stage| stage.operands.contains(&Operand::Value(input)))
        };
        let (all, one, none) = (without(&[]), without(&[4]), without(&[3, 4]));
        assert_eq!(all.stages.len(), program.stages.len());
        assert!(reads(&all, 4) && !reads(&one, 4) && reads(&one, 3));
        assert!(one.outputs.iter().all(Option::is_some));
        assert!(none.stages.is_empty() && none.outputs.iter().all(Option::is_none));
    }
}
