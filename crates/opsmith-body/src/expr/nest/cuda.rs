//! Nests as CUDA C++: a kernel for each, of which a thread computes a position of the free axes after another.

use std::fmt::Write;

use super::{Nest, Nests, Place, Step, Sum};
use crate::axes::{Axes, Axis};
use crate::expr::cuda::{CudaType, constant, cuda_functions};
use crate::expr::graph::{Fold, Graph};
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
        let along =
            axes.iter().map(|axis| format!(" + (Stride)at{0} * layout.along[{operand}][{0}]", axis.index()));
        format!("(({ty} *)operands.data[{operand}])[batch{operand}{}]", along.collect::<String>())
    }
}

impl Graph {
    /// CUDA C++ source of kernels for the nests of a graph, which NVRTC compiles without any header: `NAME_0_32`, `NAME_0_64`,
    /// `NAME_1_32` and so on, for each nest of [`Nests::for_card`], whose indices have so many bits; `-DONLY=0` or `-DONLY=1`
    /// compiles those of 32 or of 64, `-DNEST=0` those of the first nest.
    ///
    /// They run one after another. Any grid will do: a thread computes a position of the free axes, and goes on by the size of
    /// the grid. The parameters are structures by value:
    /// - `Operands`: the addresses of the inputs, the outputs, and the temporaries, of numbers as they are computed;
    /// - `Attributes`: as for [`cuda_source`](Self::cuda_source);
    /// - `Layout`: how many positions the nest has; the sizes of the axes, at least one; how many dims (at most 8) the batch
    ///   has; these, the last first; for each operand its strides along these, and along each axis, in elements.
    ///
    /// What the inputs and outputs are is told in order.
    ///
    /// # Panics
    /// If `name` is no identifier of C.
    pub fn nests_cuda_source(
        &self,
        name: &str,
        dtype: CudaType,
        (inputs, outputs): (&[Kind], &[Kind]),
    ) -> String {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assert!(letters && !name.starts_with(|c: char| c.is_ascii_digit()), "`{name}` is no identifier of C");
        let nests = Nests::for_card(self);
        let mut functions: Vec<&Graph> = Vec::new();
        nests.nests.iter().for_each(|nest| graphs(&nest.steps, &mut functions));
        let names: Vec<String> = (0..functions.len()).map(|number| format!("part{number}")).collect();
        let named: Vec<(&str, &Graph)> = names.iter().map(String::as_str).zip(functions).collect();
        let mut source = cuda_functions(&named, dtype);
        let arguments = Arguments {
            nests: &nests,
            inputs: self.input_axes().zip(inputs.iter().copied()).collect(),
            outputs: self.output_axes().zip(outputs.iter().copied()).collect(),
        };
        let operands = arguments.inputs.len() + arguments.outputs.len() + nests.temporaries.len();
        let _ = writeln!(source, "#define OPERANDS {operands}");
        let _ = writeln!(source, "#define AXES {}", self.axis_count().max(1));
        source += include_str!("../strides.cu");
        source += include_str!("nests.cu");
        let mut part = 0;
        for (number, nest) in nests.nests.iter().enumerate() {
            source += &function(&arguments, nest, number, operands, &mut part);
            for (index, bits, types) in [(0, 32, "unsigned, int"), (1, 64, "unsigned long long, long long")] {
                let _ = write!(
                    source,
                    "\n#if (!defined(ONLY) || ONLY == {index}) && (!defined(NEST) || NEST == {number})\n\
                     extern \"C\" __global__ void {name}_{number}_{bits}(\n    \
                     Operands operands, Attributes attributes, Layout<{types}> layout) {{\n    \
                     nest{number}(operands, attributes, layout);\n}}\n#endif\n"
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
        "\ntemplate <typename Index, typename Stride>\n\
         DEVICE void nest{number}(const Operands &operands, const Attributes &attributes, const Layout<Index, Stride> &layout) {{\n    \
         const Index step = (Index)gridDim.x * blockDim.x;\n    \
         for (Index unit = (Index)blockIdx.x * blockDim.x + threadIdx.x; unit < layout.units; unit += step) {{\n        \
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
        let _ = writeln!(
            text,
            "        const Stride batch{operand} = place(rest, layout.rank, layout.dim, layout.stride[{operand}]);"
        );
    }
    for register in 0..nest.registers.len() {
        let _ = writeln!(text, "        Number r{register};");
    }
    let mut writer = Writer { arguments, part, sums: Vec::new(), text };
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
                self.line(indent, &format!("{element} = {value};"));
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
        self.line(
            indent,
            &format!("for (Index at{axis} = 0; at{axis} < layout.size[{axis}]; at{axis}++) {{"),
        );
        let around = self.sums.len();
        self.sums.extend_from_slice(sums);
        self.steps(steps, &format!("{indent}    "));
        self.sums.truncate(around);
        self.line(indent, "}");
        for Sum { part, total, lost, .. } in sums {
            self.line(indent, &format!("r{part} = summed(r{total}, r{lost});"));
        }
    }
}
