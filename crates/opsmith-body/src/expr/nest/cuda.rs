//! Nests as CUDA C++: a kernel for each, of which a thread computes a position of the free axes after another; and one of which a block
//! of threads does.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::{Nest, Nests, Place, Step, Sum};
use crate::axes::{Axes, Axis};
use crate::expr::cuda::{CudaType, Products, constant, functions};
use crate::expr::graph::Graph;
use crate::expr::node::Fold;
use crate::indexed::Kind;

/// Of which argument a place is, and what it has.
struct Arguments<'a> {
    nests: &'a Nests,
    inputs: Vec<(Axes, Kind)>,
    outputs: Vec<(Axes, Kind)>,
}

/// The type of elements.
fn element(kind: Kind) -> &'static str {
    match kind {
        Kind::Number => "Stored",
        Kind::Index => "long long",
        Kind::Mask => "unsigned char",
    }
}

impl Arguments<'_> {
    /// The operand's number, its axes and the type of its elements.
    fn of(&self, place: Place) -> (usize, Axes, &'static str) {
        let (inputs, outputs) = (self.inputs.len(), self.outputs.len());
        match place {
            Place::Input(input) => (input, self.inputs[input].0, element(self.inputs[input].1)),
            Place::Output(output) => {
                let (axes, kind) = self.outputs[output];
                (inputs + output, axes, element(kind))
            }
            Place::Temporary(array) => (inputs + outputs + array, self.nests.temporaries[array], "Number"),
        }
    }

    /// The element where the loops are.
    fn element(&self, place: Place) -> String {
        let (operand, axes, ty) = self.of(place);
        let along = axes.iter().map(|axis| format!(" + place(layout, {operand}, {0}, at{0})", axis.index()));
        format!("(({ty} *)operands.data[{operand}])[batch{operand}{}]", along.collect::<String>())
    }
}

impl Graph {
    /// CUDA C++ source of kernels for the nests of a graph, which NVRTC compiles without any header: `NAME_0_32`, `NAME_0_64`,
    /// `NAME_1_32` and so on, for each nest of [`Nests::for_card`], whose indices have so many bits; `-DONLY=0` or `-DONLY=1`
    /// compiles those of 32 or of 64, `-DNEST=0` those of the first nest.
    ///
    /// They run one after another. Any grid will do: a thread computes a position of the free axes, and goes on by the size of
    /// the grid. A nest that [can be shared](Nest::is_shared) has `NAME_0_rows_32` and `NAME_0_rows_64` too, numbers 2 and 3 of
    /// `ONLY`, of which a block of threads, a multiple of 32, computes a position: each of them parts of the loops. The parameters are
    /// structures by value:
    /// - `Operands`: the addresses of the inputs, the outputs, and the temporaries, of numbers as they are computed;
    /// - `Attributes`: as for [`cuda_source`](Self::cuda_source);
    /// - `Layout`: how many positions the nest has; the sizes of the axes, at least one; which dims each axis stands for, and which the
    ///   batch, by the number of the first one, and how many there are; these dims (`MAX_DIMS`, or [`Nests::BATCH_DIMS`] more than axes),
    ///   the last of an axis first; for each operand its strides along them, in elements. With `-DFLAT`, the first dims are the axes.
    ///
    /// What the inputs and outputs are is told in order; `many` as for [`Nests::for_card`].
    ///
    /// # Panics
    /// If `name` is no identifier of C.
    pub fn nests_cuda_source(
        &self,
        name: &str,
        dtype: CudaType,
        (inputs, outputs): (&[Kind], &[Kind]),
        many: bool,
    ) -> String {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assert!(letters && !name.starts_with(|c: char| c.is_ascii_digit()), "`{name}` is no identifier of C");
        let nests = Nests::for_card(self, many);
        let mut parts: Vec<&Graph> = Vec::new();
        nests.nests.iter().for_each(|nest| graphs(&nest.steps, &mut parts));
        let names: Vec<String> = (0..parts.len()).map(|number| format!("part{number}")).collect();
        let named: Vec<(&str, &Graph)> = names.iter().map(String::as_str).zip(parts).collect();
        let products = if nests.sums_again() { Products::Alone } else { Products::Any };
        let mut source = functions(&named, dtype, products);
        let arguments = Arguments {
            nests: &nests,
            inputs: self.input_axes().zip(inputs.iter().copied()).collect(),
            outputs: self.output_axes().zip(outputs.iter().copied()).collect(),
        };
        let operands = arguments.inputs.len() + arguments.outputs.len() + nests.temporaries.len();
        let _ = writeln!(source, "#define OPERANDS {operands}");
        let axes = self.axis_count().max(1);
        let most = axes + Nests::BATCH_DIMS;
        let _ = writeln!(source, "#define AXES {axes}\n#ifndef MAX_DIMS\n#define MAX_DIMS {most}\n#endif");
        source += include_str!("nests.cu");
        let mut part = 0;
        for (number, nest) in nests.nests.iter().enumerate() {
            source += &function(&arguments, nest, number, operands, &mut part);
            for index in 0..if nest.is_shared() { 4 } else { 2 } {
                let (bits, types) = [(32, "unsigned, int"), (64, "unsigned long long, long long")][index % 2];
                let (rows, shared) = [("", false), ("_rows", true)][index / 2];
                let _ = write!(
                    source,
                    "\n#if (!defined(ONLY) || ONLY == {index}) && (!defined(NEST) || NEST == {number})\n\
                     extern \"C\" __global__ void {name}_{number}{rows}_{bits}(\n    \
                     Operands operands, Attributes attributes, Layout<{types}> layout) {{\n    \
                     nest{number}<{shared}>(operands, attributes, layout);\n}}\n#endif\n"
                );
            }
        }
        source
    }

    /// How many axes its arguments lie on.
    fn axis_count(&self) -> usize {
        let all = self.input_axes().chain(self.output_axes()).fold(Axes::NONE, Axes::union);
        all.iter().next_back().map_or(0, |axis| axis.index() + 1)
    }
}

/// What is computed in steps, in their order.
fn graphs<'a>(steps: &'a [Step], found: &mut Vec<&'a Graph>) {
    for step in steps {
        match step {
            Step::Compute { graph, .. } => found.push(graph),
            Step::Loop { steps, .. } => graphs(steps, found),
            _ => {}
        }
    }
}

/// The function that goes over the positions of a nest.
fn function(
    arguments: &Arguments<'_>,
    nest: &Nest,
    number: usize,
    operands: usize,
    part: &mut usize,
) -> String {
    let mut text = format!(
        "\ntemplate <bool ROWS, typename Index, typename Stride>\n\
         DEVICE void nest{number}(const Operands &operands, const Attributes &attributes, const Layout<Index, Stride> &layout) {{\n    \
         const Index thread = ROWS ? threadIdx.x : 0, threads = ROWS ? blockDim.x : 1;\n    \
         const Index step = ROWS ? gridDim.x : (Index)gridDim.x * blockDim.x;\n    \
         for (Index unit = ROWS ? blockIdx.x : (Index)blockIdx.x * blockDim.x + threadIdx.x; unit < layout.units; unit += step) {{\n        \
         Index rest = unit;\n"
    );
    // The last axis is the fastest, so that threads side by side read side by side.
    for axis in nest.free.iter().rev() {
        let axis = axis.index();
        let _ = writeln!(
            text,
            "        const Index at{axis} = rest % layout.size[{axis}]; rest /= layout.size[{axis}];"
        );
    }
    for operand in 0..operands {
        let _ = writeln!(text, "        const Stride batch{operand} = place(layout, {operand}, AXES, rest);");
    }
    for register in 0..nest.registers.len() {
        let _ = writeln!(text, "        Number r{register};");
    }
    let mut writer = Writer { arguments, part, sums: Vec::new(), is_outermost: true, text };
    writer.steps(&nest.steps, "        ");
    // The next one may be beyond what the index holds.
    writer.text + "        if (layout.units - unit <= step) break;\n    }\n}\n"
}

struct Writer<'a> {
    arguments: &'a Arguments<'a>,
    /// The number of the next function.
    part: &'a mut usize,
    /// The sums of the loops around.
    sums: Vec<Sum>,
    /// Whether there is no loop around, but that along the free axes.
    is_outermost: bool,
    text: String,
}

impl Writer<'_> {
    fn steps(&mut self, steps: &[Step], indent: &str) {
        for step in steps {
            self.step(step, indent);
        }
    }

    fn line(&mut self, indent: &str, line: &str) {
        let _ = writeln!(self.text, "{indent}{line}");
    }

    fn step(&mut self, step: &Step, indent: &str) {
        match step {
            Step::Load { from, to } => {
                let element = self.arguments.element(*from);
                let line = match self.arguments.of(*from).2 {
                    "Stored" => format!("r{to} = load({element});"),
                    "unsigned char" => format!("r{to} = Number({element} != 0);"),
                    _ => format!("r{to} = Number({element});"),
                };
                self.line(indent, &line);
            }
            Step::Store { from, to } => {
                let element = self.arguments.element(*to);
                let value = match self.arguments.of(*to).2 {
                    "Stored" => format!("store(r{from})"),
                    "Number" => format!("r{from}"),
                    "unsigned char" => format!("r{from} != 0"),
                    ty => format!("({ty})r{from}"),
                };
                let once = if self.is_outermost { "if (thread == 0) " } else { "" };
                self.line(indent, &format!("{once}{element} = {value};"));
            }
            Step::Index { axis, to } => self.line(indent, &format!("r{to} = Number(at{});", axis.index())),
            Step::Count { axis, to } => {
                self.line(indent, &format!("r{to} = Number(layout.size[{}]);", axis.index()));
            }
            Step::Compute { inputs, outputs, .. } => self.compute(inputs, outputs, indent),
            Step::Fill { register, value } => {
                self.line(indent, &format!("r{register} = {};", constant(*value)))
            }
            Step::Fold { op, from, into } => self.fold(*op, *from, *into, indent),
            Step::Loop { axis, steps, sums } => self.go_along(*axis, steps, sums, indent),
            Step::Across { .. } => unreachable!("a thread has no lanes"),
        }
    }

    fn compute(&mut self, inputs: &[usize], outputs: &[usize], indent: &str) {
        let read: Vec<String> = inputs.iter().map(|register| format!("r{register}")).collect();
        let read = if read.is_empty() { "0".to_owned() } else { read.join(", ") };
        let part = *self.part;
        *self.part += 1;
        let written: String = outputs
            .iter()
            .enumerate()
            .map(|(output, register)| format!(" r{register} = out[{output}];"))
            .collect();
        let count = outputs.len();
        self.line(
            indent,
            &format!(
                "{{ Number in[] = {{{read}}}, out[{count}]; part{part}(in, out, attributes);{written} }}"
            ),
        );
    }

    fn fold(&mut self, op: Fold, from: usize, into: usize, indent: &str) {
        let sum = self.sums.iter().find(|sum| sum.part == into);
        let line = match (op, sum) {
            (Fold::Sum, Some(Sum { total, lost, .. })) => format!("add(r{from}, r{total}, r{lost});"),
            (Fold::Sum, None) => format!("r{into} += r{from};"),
            (Fold::Product, _) => format!("r{into} *= r{from};"),
            (Fold::Max, _) => {
                format!("r{into} = (r{into} >= r{from} || r{into} != r{into}) ? r{into} : r{from};")
            }
            (Fold::Min, _) => {
                format!("r{into} = (r{into} <= r{from} || r{into} != r{into}) ? r{into} : r{from};")
            }
        };
        self.line(indent, &line);
    }

    fn go_along(&mut self, axis: Axis, steps: &[Step], sums: &[Sum], indent: &str) {
        let axis = axis.index();
        for Sum { total, lost, .. } in sums {
            self.line(indent, &format!("r{total} = Number(0);"));
            self.line(indent, &format!("r{lost} = Number(0);"));
        }
        let is_outermost = std::mem::replace(&mut self.is_outermost, false);
        let (from, by) = if is_outermost { ("thread", " += threads") } else { ("0", "++") };
        self.line(
            indent,
            &format!("for (Index at{axis} = {from}; at{axis} < layout.size[{axis}]; at{axis}{by}) {{"),
        );
        let around = self.sums.len();
        self.sums.extend_from_slice(sums);
        let inner = format!("{indent}    ");
        self.steps(steps, &inner);
        if is_outermost {
            // The next one may be beyond what the index holds.
            self.line(&inner, &format!("if (layout.size[{axis}] - at{axis} <= threads) break;"));
        }
        self.sums.truncate(around);
        self.line(indent, "}");
        for Sum { part, total, lost, .. } in sums {
            self.line(indent, &format!("r{part} = summed(r{total}, r{lost});"));
        }
        self.is_outermost = is_outermost;
        if is_outermost {
            for (register, op) in folded(steps) {
                self.line(indent, &format!("if (ROWS) r{register} = across<{op:?}>(r{register});"));
            }
        }
    }
}

/// The registers that steps fold into and do not fill themselves, and how.
fn folded(steps: &[Step]) -> Vec<(usize, Fold)> {
    let mut found: Vec<(usize, Fold)> = Vec::new();
    let (mut filled, mut pending) = (BTreeSet::new(), vec![steps]);
    while let Some(steps) = pending.pop() {
        for step in steps {
            match step {
                Step::Fill { register, .. } => {
                    filled.insert(*register);
                }
                Step::Fold { op, into, .. } if !found.contains(&(*into, *op)) => found.push((*into, *op)),
                Step::Loop { steps, .. } => pending.push(steps),
                _ => {}
            }
        }
    }
    found.retain(|(register, _)| !filled.contains(register));
    found
}

/// The registers that steps read before they are written, and all that are written.
#[derive(Default)]
struct Uses {
    read: BTreeSet<usize>,
    written: BTreeSet<usize>,
}

impl Uses {
    fn of(steps: &[Step]) -> Self {
        let mut uses = Self::default();
        steps.iter().for_each(|step| uses.step(step));
        uses
    }

    fn reads(&mut self, register: usize) {
        if !self.written.contains(&register) {
            self.read.insert(register);
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Load { to, .. } | Step::Index { to, .. } | Step::Count { to, .. } => {
                self.written.insert(*to);
            }
            Step::Store { from, .. } => self.reads(*from),
            Step::Compute { inputs, outputs, .. } => {
                inputs.iter().for_each(|input| self.reads(*input));
                self.written.extend(outputs);
            }
            Step::Fill { register, .. } => {
                self.written.insert(*register);
            }
            Step::Fold { from, into, .. } => {
                self.reads(*from);
                self.reads(*into);
                self.written.insert(*into);
            }
            Step::Loop { steps, .. } => steps.iter().for_each(|step| self.step(step)),
            Step::Across { register, .. } => self.reads(*register),
        }
    }
}

impl Nest {
    /// Whether threads can share the loops of a position: what they leave behind are folds, which are put together.
    pub fn is_shared(&self) -> bool {
        let (mut stale, mut has_loops) = (BTreeSet::new(), false);
        for step in &self.steps {
            let uses = Uses::of(std::slice::from_ref(step));
            if !uses.read.is_disjoint(&stale) {
                return false;
            }
            stale.retain(|register| !uses.written.contains(register));
            if let Step::Loop { steps, .. } = step {
                has_loops = true;
                let folded: BTreeSet<usize> =
                    folded(steps).into_iter().map(|(register, _)| register).collect();
                stale.extend(uses.written.difference(&folded));
            }
        }
        let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
        places(&self.steps, &mut read, &mut written);
        has_loops && read.is_disjoint(&written)
    }
}

/// What steps read and write.
fn places(steps: &[Step], read: &mut BTreeSet<Place>, written: &mut BTreeSet<Place>) {
    for step in steps {
        match step {
            Step::Load { from, .. } => {
                read.insert(*from);
            }
            Step::Store { to, .. } => {
                written.insert(*to);
            }
            Step::Loop { steps, .. } => places(steps, read, written),
            _ => {}
        }
    }
}
