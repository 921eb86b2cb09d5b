//! The passes of a reduction, ready to be run.

use opsmith_body::{Axes, Fold, Graph, Interpreted, Node, Pass, Passes, Source, Target};

use crate::pointwise::cost;

/// A reduction as passes.
pub(crate) struct Program {
    pub(crate) passes: Vec<PassProgram>,
    /// How many numbers there are for each row.
    pub(crate) ones: usize,
    /// How many numbers are kept at every position.
    pub(crate) kept: usize,
    /// For each output of which there is one for each row, its position and its number.
    pub(crate) row_outputs: Vec<(usize, usize)>,
    /// The inputs of which there is one for each row.
    pub(crate) row_inputs: Vec<usize>,
    /// The most inputs and results of a pass.
    pub(crate) width: usize,
    /// The most folds of a pass.
    pub(crate) folds: usize,
    /// The nanoseconds that all passes over a block take, roughly.
    pub(crate) cost: usize,
}

/// A pass: what is computed for each row before, and at every position.
pub(crate) struct PassProgram {
    pub(crate) before: Interpreted,
    pub(crate) before_inputs: Vec<usize>,
    pub(crate) before_results: Vec<usize>,
    pub(crate) each: Interpreted,
    pub(crate) each_inputs: Vec<Source>,
    pub(crate) each_results: Vec<Target>,
    /// The folds: what of, and the row's number.
    pub(crate) folds: Vec<(Folded, Fold, usize)>,
}

/// What is folded.
#[derive(Clone, Copy)]
pub(crate) enum Folded {
    /// An input of the pass, as it is.
    Input(usize),
    /// A result, which may be an output, or be kept, besides.
    Result(usize),
}

impl PassProgram {
    /// A pass; folding uses up what `lanes` have, so there all that is folded is a result of its own.
    fn new(pass: &Pass, lanes: bool) -> PassProgram {
        let (nodes, outputs) = (pass.each.nodes(), pass.each.outputs());
        let is_fold = |result: &usize| matches!(pass.each_results[*result], Target::Fold(..));
        let (folded, mut computed): (Vec<usize>, Vec<usize>) = (0..outputs.len()).partition(is_fold);
        let mut folds = Vec::new();
        for result in folded {
            let Target::Fold(fold, one) = pass.each_results[result] else { continue };
            let known = computed.iter().position(|other| outputs[*other] == outputs[result]);
            let of = match (nodes[outputs[result].index()], known) {
                (Node::Input(position), _) if !lanes => Folded::Input(position as usize),
                (_, Some(known)) if !lanes => Folded::Result(known),
                _ => {
                    computed.push(result);
                    Folded::Result(computed.len() - 1)
                }
            };
            folds.push((of, fold, one));
        }
        PassProgram {
            before: Interpreted::new(&pass.before),
            before_inputs: pass.before_inputs.clone(),
            before_results: pass.before_results.clone(),
            each: Interpreted::new(&pass.each.with_outputs(&computed)),
            each_results: computed.iter().map(|result| pass.each_results[*result]).collect(),
            each_inputs: pass.each_inputs.clone(),
            folds,
        }
    }

    /// Whether nothing is computed at the positions.
    pub(crate) fn is_empty(&self) -> bool {
        self.each_results.is_empty() && self.folds.is_empty()
    }
}

impl Program {
    /// The program of a graph. Without `keep`, no pass keeps numbers for later ones. Folding uses up what `lanes` have, so
    /// they fold no inputs, but copies.
    pub(crate) fn new(graph: &Graph, keep: bool, lanes: bool) -> Program {
        let cut = Passes::new(graph, keep);
        let inputs = graph.input_axes().enumerate();
        let width = |pass: &Pass| {
            pass.each_inputs
                .len()
                .max(pass.each_results.len())
                .max(pass.before_inputs.len())
                .max(pass.before_results.len())
        };
        let passes: Vec<PassProgram> = cut.passes.iter().map(|pass| PassProgram::new(pass, lanes)).collect();
        Program {
            ones: cut.ones,
            kept: cut.kept,
            row_outputs: cut.row_outputs,
            row_inputs: inputs.filter(|(_, kind)| *kind == Axes::NONE).map(|(input, _)| input).collect(),
            width: cut.passes.iter().map(width).max().unwrap_or(0),
            cost: cut.passes.iter().map(|pass| cost(&pass.each)).sum(),
            folds: passes.iter().map(|pass| pass.folds.len()).max().unwrap_or(0),
            passes,
        }
    }
}
