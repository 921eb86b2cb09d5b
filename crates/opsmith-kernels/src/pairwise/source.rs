//! Programs as CUDA C++.

use std::fmt::Write;

use opsmith_body::{CudaType, Fold, cuda_functions};
use opsmith_core::family::Family;

use super::program::{Axes, Operand, Program, Space, Stage};

/// A name for each value: those of arguments, and `s0`, `s1`, … for what comes between.
pub(crate) fn names(program: &Program, family: &Family) -> Vec<String> {
    let mut names: Vec<String> = family.inputs.iter().map(|input| input.name.clone()).collect();
    for value in program.inputs..program.values.len() {
        let output = program.outputs.iter().position(|output| *output == Some(value));
        names.push(match output {
            Some(output) => family.outputs[output].name.clone(),
            None => format!("s{}", value - program.inputs),
        });
    }
    names
}

/// CUDA C++ source of a kernel for each output of each stage, `NAME_STAGE_OUTPUT`, to be launched in that order; of one
/// without an output's number for a stage of elements. `NAME_STAGE_OUTPUT_tiled` is the same for many outputs: a thread computes
/// several, as [`edge`] says.
///
/// The parameters are structures by value: `Operands`, the addresses of the stage's operands, then of its outputs,
/// where what is no argument of the op is of the type that is computed with;
/// `Attributes`; and `Sizes`, the rows of `x` and of `y` and the elements of each, as 64-bit integers. The threads of a
/// block are 16 x 16, but for a stage of elements any number in one dimension; any grid will do. `-DONLY=` with the number that
/// [`only`] gives compiles one of them.
pub(crate) fn cuda_source(program: &Program, names: &[String], name: &str, dtype: CudaType) -> String {
    let stages: Vec<Stage> = program.stages.iter().map(|stage| stage.clone().tidy()).collect();
    let bodies: Vec<String> = (0..stages.len()).map(|number| format!("body_{number}")).collect();
    let graphs: Vec<_> =
        bodies.iter().zip(&stages).map(|(body, stage)| (body.as_str(), &stage.graph)).collect();
    let mut source = cuda_functions(&graphs, dtype);
    let operands = stages.iter().map(|stage| stage.operands.len() + stage.outputs.len()).max();
    let _ = writeln!(source, "#define OPERANDS {}", operands.unwrap_or(1));
    source += FOLDS;
    source += include_str!("kernels.cu");
    for (number, stage) in stages.iter().enumerate() {
        source += &stage_source(program, names, stage, number);
        source += &stage_kernels(program, stage, number, name, edge(stage, dtype));
    }
    source
}

/// Folds by number: a sum, the largest, the smallest. NaN goes through, as on the CPU.
const FOLDS: &str = "
template <int FOLD> DEVICE Number identity() {
    const Number infinity = Number(__longlong_as_double(0x7ff0000000000000LL));
    return FOLD == 0 ? Number(0) : FOLD == 1 ? -infinity : infinity;
}
template <int FOLD> DEVICE Number fold(Number a, Number b) {
    if (FOLD == 0) return a + b;
    return a != a || (FOLD == 1 ? a >= b : a <= b) ? a : b;
}

";

/// Whether each operand and output of a stage is no argument of the op, as elements of an array in C.
fn between(program: &Program, stage: &Stage) -> String {
    let read = stage.operands.iter().map(|operand| match *operand {
        Operand::Value(value) => Some(value),
        Operand::Depth => None,
    });
    let values = read.chain(stage.outputs.iter().copied().filter(Option::is_some));
    let all: Vec<String> =
        values.map(|value| value.is_some_and(|value| program.is_between(value)).to_string()).collect();
    all.join(", ")
}

/// What `ONLY` is defined as to have nothing compiled but the kernel of a stage and an output.
pub(crate) fn only(stage: usize, output: usize, is_tiled: bool) -> usize {
    1000 * stage + 2 * output + usize::from(is_tiled)
}

/// How many outputs along either side a thread computes where there are many: the more, the fewer numbers it reads for each.
/// It is bounded by the memory that a block shares, and by how much code that makes.
pub(crate) fn edge(stage: &Stage, dtype: CudaType) -> usize {
    const SIDE: usize = 16;
    const SHARED: usize = 48 << 10;
    const NODES: usize = 512;
    let number = if dtype == CudaType::Double { 8 } else { 4 };
    let fits = |edge: usize| {
        let shared = stage.operands.len().max(1) * SIDE * (SIDE * edge + 4) * number;
        shared <= SHARED && stage.graph.nodes().len() * edge * edge <= NODES
    };
    [4, 2].into_iter().find(|edge| fits(*edge)).unwrap_or(1)
}

/// The name of axes in `kernels.cu`.
fn axes_name(axes: Axes) -> &'static str {
    match axes {
        Axes::X => "X",
        Axes::Y => "Y",
        Axes::Pair => "PAIR",
    }
}

/// What the kernels of a stage have in common: what it reads and writes, and its body.
fn stage_source(program: &Program, names: &[String], stage: &Stage, number: usize) -> String {
    let operand = |operand: &Operand| match *operand {
        Operand::Value(value) => (names[value].as_str(), axes_name(program.values[value])),
        Operand::Depth => ("p", "DEPTH"),
    };
    let (operands, kinds): (Vec<&str>, Vec<&str>) = stage.operands.iter().map(operand).unzip();
    let written: Vec<&str> = stage.outputs.iter().flatten().map(|value| names[*value].as_str()).collect();
    let space = match stage.space {
        Space::Elements(space) => axes_name(space),
        Space::Triples => "DEPTH",
    };
    format!(
        "\n// From {} to {}.\nstruct Stage{number} {{\n    \
         static const int INPUTS = {}, OUTPUTS = {}, SPACE = {space};\n    \
         DEVICE static constexpr int axes(int input) {{\n        \
         const int all[] = {{{}}};\n        return all[input];\n    }}\n    \
         DEVICE static constexpr bool between(int operand) {{\n        \
         const bool all[] = {{{}}};\n        return all[operand];\n    }}\n    \
         DEVICE static void body(const Number *in, Number *out, const Attributes &attributes) {{\n        \
         body_{number}(in, out, attributes);\n    }}\n}};\n",
        operands.join(", "),
        written.join(", "),
        operands.len(),
        written.len(),
        if kinds.is_empty() { "DEPTH".to_owned() } else { kinds.join(", ") },
        between(program, stage),
    )
}

/// The kernels of a stage: for each output, those where a thread computes one and `edge` along either side.
fn stage_kernels(program: &Program, stage: &Stage, number: usize, name: &str, edge: usize) -> String {
    let mut source = String::new();
    let mut kernel = |suffix: String, only: usize, call: String| {
        let _ = writeln!(
            source,
            "#if !defined(ONLY) || ONLY == {only}\n\
             extern \"C\" __global__ void {name}_{number}{suffix}(Operands operands, Attributes attributes, \
             Sizes sizes) {{\n    {call}(operands, attributes, sizes);\n}}\n#endif"
        );
    };
    if let Space::Elements(_) = stage.space {
        kernel(String::new(), only(number, 0, false), format!("elements<Stage{number}>"));
        return source;
    }
    let fold = match stage.fold {
        Fold::Sum => 0,
        Fold::Max => 1,
        Fold::Min => 2,
        Fold::Product => unreachable!("`#[pairwise]` has no products"),
    };
    for (position, value) in stage.outputs.iter().flatten().enumerate() {
        let over = axes_name(program.values[*value]);
        let call = |edge| format!("fold_triples<Stage{number}, {position}, {fold}, {over}, {edge}>");
        kernel(format!("_{position}"), only(number, position, false), call(1));
        if edge > 1 {
            kernel(format!("_{position}_tiled"), only(number, position, true), call(edge));
        }
    }
    source
}
