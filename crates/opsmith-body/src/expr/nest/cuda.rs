//! Nests as CUDA C++: a kernel for each, of which a thread computes a position of the free axes after another; and one of which a block
//! of threads does.

mod loops;
mod online;

use std::fmt::Write;

use self::online::has_online;
use super::tile::Sides;
use super::{Nest, Nests, Online, Place, Step, Sum, Tile};
use crate::axes::{Axes, Axis};
use crate::element::Kind;
use crate::expr::cuda::{CudaType, Products, constant, functions};
use crate::expr::graph::Graph;
use crate::expr::node::Fold;

/// Of which argument a place is, and what it has.
struct Arguments<'a> {
    nests: &'a Nests,
    inputs: Vec<(Axes, &'static str)>,
    outputs: Vec<(Axes, &'static str)>,
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
            Place::Input(input) => (input, self.inputs[input].0, self.inputs[input].1),
            Place::Output(output) => (inputs + output, self.outputs[output].0, self.outputs[output].1),
            Place::Temporary(array) => (inputs + outputs + array, self.nests.temporaries[array], "Number"),
        }
    }
}

impl Graph {
    /// CUDA C++ source of kernels for the nests of a graph, which NVRTC compiles without any header: `NAME_0_32`, `NAME_0_64`,
    /// `NAME_1_32` and so on, for each nest of [`Nests::for_card`], whose indices have so many bits; `-DONLY=0` or `-DONLY=1`
    /// compiles those of 32 or of 64, `-DNEST=0` those of the first nest.
    ///
    /// They run one after another. Any grid will do: a thread computes a position of the free axes, and goes on by the size of
    /// the grid. A nest that [can be shared](Nest::is_shared) has `NAME_0_rows_32` and `NAME_0_rows_64` too, numbers 2 and 3 of
    /// `ONLY`: a block computes as many positions as it has threads along x, and those along y, a multiple of 32 or beside others,
    /// go through parts of the loops. One that has a [`Tile`] has `NAME_0_tiled_32` and `NAME_0_tiled_64`, numbers 4 and 5, of which a
    /// block of threads computes the positions of a tile. The parameters are structures by value:
    /// - `Operands`: the addresses of the inputs, the outputs, and the temporaries, of numbers as they are computed;
    /// - `Attributes`: as for [`cuda_source`](Self::cuda_source);
    /// - `Layout`: how many positions the nest has, or how many tiles; the sizes of the axes, at least one; which dims each axis stands for, and which the
    ///   batch, by the number of the first one, and how many there are; these dims (`MAX_DIMS`, or [`Nests::BATCH_DIMS`] more than axes),
    ///   the last of an axis first; for each operand its strides along them, in elements. With `-DFLAT`, the first dims are the axes.
    /// - for `rows`, `Split`: an address, and two numbers `at` and `parts` of 32 bits. A nest whose [loops](Nest::shared_loops) blocks along y
    ///   of a grid share, so many parts of them, is launched for each loop `at` and once more, for what comes after the last one, by one
    ///   block along y; each but the last one writes what is found in the loop to memory for so many parts of each fold. With −1 all is
    ///   done at once.
    ///
    /// What the inputs and outputs are is told in order; those outputs that are marked in `terms`, from the lowest bit on, are not rounded:
    /// they are of the type that is computed with. `many` as for [`Nests::for_card`].
    ///
    /// # Panics
    /// If `name` is not a C identifier.
    pub fn nests_cuda_source(
        &self,
        name: &str,
        dtype: CudaType,
        (inputs, outputs): (&[Kind], &[Kind]),
        terms: u64,
        many: bool,
    ) -> String {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assert!(letters && !name.starts_with(|c: char| c.is_ascii_digit()), "`{name}` is not a C identifier");
        let nests = Nests::for_card(self, dtype, many);
        let mut parts: Vec<(String, &Graph)> = Vec::new();
        for (number, (nest, tile)) in nests.nests.iter().zip(&nests.tiles).enumerate() {
            graphs(&nest.steps, &format!("part{number}"), &mut parts);
            tile.iter().for_each(|tile| graphs(&tile.steps, &format!("tile{number}"), &mut parts));
        }
        let named: Vec<(&str, &Graph)> = parts.iter().map(|(name, graph)| (name.as_str(), *graph)).collect();
        let products = if nests.again.products { Products::Alone } else { Products::Any };
        let mut source = functions(&named, dtype, products);
        let is_online = nests.nests.iter().any(|nest| has_online(&nest.steps));
        let inputs = inputs.iter().map(|&kind| element(kind));
        let outputs = outputs.iter().enumerate();
        let outputs =
            outputs.map(|(output, &kind)| if terms >> output & 1 != 0 { "Number" } else { element(kind) });
        let arguments = Arguments {
            nests: &nests,
            inputs: self.input_axes().zip(inputs).collect(),
            outputs: self.output_axes().zip(outputs).collect(),
        };
        let operands = arguments.inputs.len() + arguments.outputs.len() + nests.temporaries.len();
        let _ = writeln!(source, "#define OPERANDS {operands}");
        let axes = self.axis_count().max(1);
        let most = axes + Nests::BATCH_DIMS;
        let _ = writeln!(source, "#define AXES {axes}\n#ifndef MAX_DIMS\n#define MAX_DIMS {most}\n#endif");
        source += include_str!("nests.cu");
        if is_online {
            source +=
                &include_str!("online.cu").replace('@', if dtype == CudaType::Double { "" } else { "f" });
        }
        for (number, (nest, tile)) in nests.nests.iter().zip(&nests.tiles).enumerate() {
            source += &function(&arguments, nest, None, number);
            let (inputs, alone) = ("operands, attributes, layout", "Split{nullptr, -1, 1}");
            let mut ways = vec![(0, "", "", format!("nest{number}<false>({inputs}, {alone})"))];
            if nest.is_shared() {
                ways.push((2, "_rows", ", Split split", format!("nest{number}<true>({inputs}, split)")));
            }
            if let Some(tile) = tile {
                source += &function(&arguments, nest, Some(tile), number);
                ways.push((4, "_tiled", "", format!("tiles{number}({inputs})")));
            }
            for (first, way, more, call) in ways {
                for (wide, bits, types) in
                    [(0, 32, "unsigned, int"), (1, 64, "unsigned long long, long long")]
                {
                    let index = first + wide;
                    let _ = write!(
                        source,
                        "\n#if (!defined(ONLY) || ONLY == {index}) && (!defined(NEST) || NEST == {number})\n\
                         extern \"C\" __global__ void {name}_{number}{way}_{bits}(\n    \
                         Operands operands, Attributes attributes, Layout<{types}> layout{more}) {{\n    \
                         {call};\n}}\n#endif\n"
                    );
                }
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

/// What is computed in steps, with the names of functions.
fn graphs<'a>(steps: &'a [Step], prefix: &str, found: &mut Vec<(String, &'a Graph)>) {
    for step in steps {
        match step {
            Step::Compute { graph, outputs, .. } => found.push((format!("{prefix}_{}", outputs[0]), graph)),
            Step::Loop { steps, .. } | Step::Online(Online::Unless { steps, .. }) => {
                graphs(steps, prefix, found);
            }
            _ => {}
        }
    }
}

/// The function that goes over the positions of a nest, or over its tiles.
fn function(arguments: &Arguments<'_>, nest: &Nest, tile: Option<&Tile>, number: usize) -> String {
    let mut text = match tile {
        None => format!("\ntemplate <bool ROWS, typename Index, typename Stride>\nDEVICE void nest{number}("),
        Some(_) => format!("\ntemplate <typename Index, typename Stride>\nDEVICE void tiles{number}("),
    };
    text += "const Operands &operands, const Attributes &attributes, const Layout<Index, Stride> &layout";
    text += &match tile {
        // All threads of a block come to its barriers, those beyond the last unit too.
        None => ", const Split &split) {\n    \
                 const Index thread = ROWS ? (Index)blockIdx.y * blockDim.y + threadIdx.y : 0, threads = ROWS ? (Index)gridDim.y * blockDim.y : 1;\n    \
                 const Index step = (Index)gridDim.x * blockDim.x;\n    \
                 for (Index begin = (Index)blockIdx.x * blockDim.x; begin < layout.units; begin = layout.units - begin <= step ? layout.units : begin + step) {\n        \
                 const bool is_there = layout.units - begin > threadIdx.x;\n        \
                 if (!ROWS && !is_there) break;\n        \
                 const Index unit = is_there ? begin + threadIdx.x : layout.units - 1;\n"
            .to_owned(),
        Some(tile) => format!(
            ") {{\n    enum {{ EDGE = {}, SPAN = SIDE * EDGE }};\n    \
             alignas(16) __shared__ Number tiles[{}][SIDE][{}];\n    \
             const int row = threadIdx.x / SIDE, column = threadIdx.x % SIDE;\n    \
             const Index step = gridDim.x;\n    \
             for (Index unit = blockIdx.x; unit < layout.units; unit = layout.units - unit <= step ? layout.units : unit + step) {{\n",
            tile.edge,
            tile.shared,
            Tile::stride(tile.edge)
        ),
    };
    text += "        Index rest = unit;\n";
    text += &positions(nest, tile);
    let operands = arguments.inputs.len() + arguments.outputs.len() + arguments.nests.temporaries.len();
    for operand in 0..operands {
        let _ = writeln!(text, "        const Stride batch{operand} = place(layout, {operand}, AXES, rest);");
    }
    let (prefix, both) = match tile {
        None => ("part", Axes::NONE),
        Some(tile) => ("tile", Axes::of(tile.axes[0]).with(tile.axes[1])),
    };
    let (sums, prefix, is_outermost) = (Vec::new(), format!("{prefix}{number}"), tile.is_none());
    let mut writer = Writer {
        arguments,
        tile,
        side_by_side: both,
        prefix,
        sums,
        is_outermost,
        sharing: tile.map(|tile| (tile.sides.clone(), 0)),
        loops: 0,
        partial: 0,
        text,
    };
    for register in 0..tile.map_or(nest.registers.len(), |tile| tile.sides.varies.len()) {
        let name = writer.register(register).replace(['i', 'j'], "EDGE").replace("[0]", "[1]");
        writer.line("        ", &format!("Number {name};"));
    }
    writer.steps(tile.map_or(&nest.steps, |tile| &tile.steps), "        ");
    writer.text + "    }\n}\n"
}

/// Where a unit of work is along the free axes.
fn positions(nest: &Nest, tile: Option<&Tile>) -> String {
    let mut text = String::new();
    // The last axis is the fastest, so that threads side by side read side by side.
    for axis in nest.free.iter().rev() {
        let of_tile = tile.and_then(|tile| tile.axes.iter().position(|own| *own == axis));
        let axis = axis.index();
        text += &match of_tile {
            None => format!(
                "        const Index at{axis} = rest % layout.size[{axis}]; rest /= layout.size[{axis}];\n"
            ),
            Some(which) => format!(
                "        const Index count{axis} = (layout.size[{axis}] - 1) / SPAN + 1, \
                 first{axis} = rest % count{axis} * SPAN + {} * EDGE; rest /= count{axis};\n        \
                 Index at{axis}[EDGE]; EACH({1}) at{axis}[{1}] = least(first{axis} + {1}, layout.size[{axis}] - 1);\n",
                LINES[which], LETTERS[which]
            ),
        };
    }
    text
}

/// What says which of a thread's positions a number is of, along either axis of a tile.
const LETTERS: [char; 2] = ['i', 'j'];
/// Where a thread is in its block, along either axis.
const LINES: [&str; 2] = ["row", "column"];

struct Writer<'a> {
    arguments: &'a Arguments<'a>,
    tile: Option<&'a Tile>,
    /// The axes of which a thread has several positions side by side, and no loop here.
    side_by_side: Axes,
    /// What names of functions begin with.
    prefix: String,
    /// The sums of the loops around.
    sums: Vec<Sum>,
    /// Whether there is no loop around, but that along the free axes.
    is_outermost: bool,
    /// By which axes loops have shared memory here, and how many arrays there are taken.
    sharing: Option<(Sides, usize)>,
    /// How many loops there were with no loop around, and how many folds of them.
    loops: usize,
    partial: usize,
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

    /// A line for each of the thread's positions along these axes.
    fn each(&mut self, axes: Axes, indent: &str, line: &str) {
        let each = self.every(axes);
        self.line(indent, &format!("{each}{line}"));
    }

    /// What a line for each of the thread's positions along these axes begins with.
    fn every(&self, axes: Axes) -> String {
        let own = self.tile.map_or(Vec::new(), |tile| tile.axes.to_vec()).into_iter().zip(LETTERS);
        own.filter(|(axis, _)| axes.has(*axis)).map(|(_, letter)| format!("EACH({letter}) ")).collect()
    }

    /// The same for what is written to a register.
    fn into(&mut self, register: usize, indent: &str, line: &str) {
        self.each(self.tile.map_or(Axes::NONE, |tile| tile.sides.varies[register]), indent, line);
    }

    /// A register, at one of the thread's positions.
    fn register(&self, register: usize) -> String {
        let own = self.tile.map(|tile| {
            let along = |which: usize| {
                if tile.sides.varies[register].has(tile.axes[which]) { LETTERS[which] } else { '0' }
            };
            format!("[{}][{}]", along(0), along(1))
        });
        format!("r{register}{}", own.unwrap_or_default())
    }

    /// Where the loops are, at one of the thread's positions.
    fn at(&self, axis: Axis) -> String {
        let which = self.tile.and_then(|tile| tile.axes.iter().position(|own| *own == axis));
        match which.filter(|_| self.side_by_side.has(axis)) {
            Some(which) => format!("at{}[{}]", axis.index(), LETTERS[which]),
            None => format!("at{}", axis.index()),
        }
    }

    fn element(&self, place: Place) -> String {
        let (operand, axes, ty) = self.arguments.of(place);
        let along = axes
            .iter()
            .map(|axis| format!(" + place(layout, {operand}, {}, {})", axis.index(), self.at(axis)));
        format!("(({ty} *)operands.data[{operand}])[batch{operand}{}]", along.collect::<String>())
    }

    fn step(&mut self, step: &Step, indent: &str) {
        match step {
            Step::Load { from, to } => {
                let (element, own) = (self.element(*from), self.register(*to));
                let line = match self.arguments.of(*from).2 {
                    "Stored" => format!("{own} = load({element});"),
                    "unsigned char" => format!("{own} = Number({element} != 0);"),
                    _ => format!("{own} = Number({element});"),
                };
                self.into(*to, indent, &line);
            }
            Step::Store { from, to } => self.store(*from, *to, indent),
            Step::Index { axis, to } => {
                let line = format!("{} = Number({});", self.register(*to), self.at(*axis));
                self.into(*to, indent, &line);
            }
            Step::Count { axis, to } => {
                let line = format!("{} = Number(layout.size[{}]);", self.register(*to), axis.index());
                self.into(*to, indent, &line);
            }
            Step::Compute { inputs, outputs, .. } => self.compute(inputs, outputs, indent),
            Step::Fill { register, value } => {
                let line = format!("{} = {};", self.register(*register), constant(*value));
                self.into(*register, indent, &line);
            }
            Step::Fold { op, from, into } => self.fold(*op, *from, *into, indent),
            Step::Loop { axis, steps, sums } => self.go_along(*axis, steps, sums, indent),
            Step::Online(online) => self.online(online, indent),
            Step::Across { .. } => unreachable!("a thread has no lanes"),
        }
    }

    /// Writes a number: once, and where there is one.
    fn store(&mut self, from: usize, to: Place, indent: &str) {
        let (element, own) = (self.element(to), self.register(from));
        let (_, axes, ty) = self.arguments.of(to);
        let value = match ty {
            "Stored" => format!("store({own})"),
            "Number" => own,
            "unsigned char" => format!("{own} != 0"),
            ty => format!("({ty}){own}"),
        };
        let along = axes.both(self.side_by_side);
        let inside = self.tile.map_or(Vec::new(), |tile| tile.axes.to_vec()).into_iter().zip(LETTERS);
        let inside = inside
            .filter(|(axis, _)| along.has(*axis))
            .map(|(axis, letter)| format!("if (first{0} + {letter} < layout.size[{0}]) ", axis.index()));
        let once = match (self.tile.is_some(), self.is_outermost) {
            (true, _) => "",
            (false, true) => "if (is_there && thread == 0) ",
            (false, false) => "if (is_there) ",
        };
        let inside: String = inside.collect();
        self.each(along, indent, &format!("{once}{inside}{element} = {value};"));
    }

    fn compute(&mut self, inputs: &[usize], outputs: &[usize], indent: &str) {
        let read: Vec<String> = inputs.iter().map(|register| self.register(*register)).collect();
        let read = if read.is_empty() { "0".to_owned() } else { read.join(", ") };
        let written = outputs.iter().enumerate();
        let written: String =
            written.map(|(output, to)| format!(" {} = out[{output}];", self.register(*to))).collect();
        let (prefix, first, count) = (&self.prefix, outputs[0], outputs.len());
        let line = format!(
            "{{ Number in[] = {{{read}}}, out[{count}]; {prefix}_{first}(in, out, attributes);{written} }}"
        );
        self.into(first, indent, &line);
    }

    fn fold(&mut self, op: Fold, from: usize, into: usize, indent: &str) {
        let sum = self.sums.iter().find(|sum| sum.part == into).copied();
        let (a, b) = (self.register(into), self.register(from));
        let line = match (op, sum) {
            (Fold::Sum, Some(sum)) => self.add(sum, &b),
            (Fold::Sum, None) => format!("{a} += {b};"),
            (Fold::Product, _) => format!("{a} *= {b};"),
            (Fold::Max, _) => format!("{a} = ({a} >= {b} || {a} != {a}) ? {a} : {b};"),
            (Fold::Min, _) => format!("{a} = ({a} <= {b} || {a} != {a}) ? {a} : {b};"),
        };
        self.into(into, indent, &line);
    }

    fn add(&self, sum: Sum, term: &str) -> String {
        format!("add({term}, {}, {});", self.register(sum.total), self.register(sum.lost))
    }
}
