//! The passes of a reduction, ready to be run.

use opsmith_body::{Graph, Interpreted, Kind, Passes, Source, Target};

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
}

impl Program {
    /// The program of a graph. Without `keep`, no pass keeps numbers for later ones.
    pub(crate) fn new(graph: &Graph, keep: bool) -> Program {
        let cut = Passes::new(graph, keep);
        let inputs = graph.input_kinds().enumerate();
        let width = |pass: &opsmith_body::Pass| {
            pass.each_inputs
                .len()
                .max(pass.each_results.len())
                .max(pass.before_inputs.len())
                .max(pass.before_results.len())
        };
        Program {
            ones: cut.ones,
            kept: cut.kept,
            row_outputs: cut.row_outputs,
            row_inputs: inputs.filter(|(_, kind)| *kind == Kind::One).map(|(input, _)| input).collect(),
            width: cut.passes.iter().map(width).max().unwrap_or(0),
            cost: cut.passes.iter().map(|pass| cost(&pass.each)).sum(),
            passes: cut
                .passes
                .into_iter()
                .map(|pass| PassProgram {
                    before: Interpreted::new(&pass.before),
                    before_inputs: pass.before_inputs,
                    before_results: pass.before_results,
                    each: Interpreted::new(&pass.each),
                    each_inputs: pass.each_inputs,
                    each_results: pass.each_results,
                })
                .collect(),
        }
    }
}
