//! Graphs with folds as CUDA C++ kernels: a block of threads for each row, pass after pass.

use std::fmt::Write;

use crate::expr::cuda::{CudaType, cuda_functions};
use crate::expr::graph::{Fold, Graph};
use crate::expr::passes::{Pass, Passes, Source, Target};

impl Graph {
    /// CUDA C++ source of kernels for a graph whose numbers [lie](Graph::has_axes) along rows or are one for each row, which NVRTC compiles without any header.
    ///
    /// There are two: `NAME_rows_32` and `NAME_rows_64`, whose indices have so many bits; `-DONLY=0` or `-DONLY=1` compiles
    /// one of them. Any grid will do: a block of threads computes a row, and goes on by the size of the grid. A block has a
    /// multiple of 32 threads. Each pass computes again what it needs. The parameters are structures by value:
    /// - `Operands`: the addresses of the inputs, then of the outputs;
    /// - `Attributes`: as for [`cuda_source`](Self::cuda_source);
    /// - `Layout`: the number of rows and of positions of a row; how many dims (at most 8) the rows have, and the positions
    ///   of a row; these dims; and for each operand its strides along both, in elements, the last dim first.
    ///
    /// # Panics
    /// If `name` is no identifier of C.
    pub fn rows_cuda_source(&self, name: &str, dtype: CudaType) -> String {
        let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assert!(letters && !name.starts_with(|c: char| c.is_ascii_digit()), "`{name}` is no identifier of C");
        let passes = Passes::new(self, false);
        let names: Vec<(String, String)> =
            (0..passes.passes.len()).map(|pass| (format!("before{pass}"), format!("each{pass}"))).collect();
        let functions: Vec<(&str, &Graph)> = passes
            .passes
            .iter()
            .zip(&names)
            .flat_map(|(pass, (before, each))| [(before.as_str(), &pass.before), (each.as_str(), &pass.each)])
            .filter(|(_, graph)| !graph.outputs().is_empty())
            .collect();
        let mut source = cuda_functions(&functions, dtype);
        let _ = writeln!(source, "#define OPERANDS {}", self.input_count() + self.outputs().len());
        source += include_str!("strides.cu");
        source += include_str!("rows.cu");
        source += &self.row_function(&passes);
        for (index, bits, types) in [(0, 32, "unsigned, int"), (1, 64, "unsigned long long, long long")] {
            let _ = write!(
                source,
                "\n#if !defined(ONLY) || ONLY == {index}\n\
                 extern \"C\" __global__ void {name}_rows_{bits}(\n    \
                 Operands operands, Attributes attributes, Layout<{types}> layout) {{\n    \
                 rows(operands, attributes, layout);\n}}\n#endif\n"
            );
        }
        source
    }

    /// The function that goes over the rows.
    fn row_function(&self, passes: &Passes) -> String {
        let mut text = String::from(
            "template <typename Index, typename Stride>\n\
             DEVICE void rows(const Operands &operands, const Attributes &attributes, const Layout<Index, Stride> &layout) {\n\
             #define ROW(k) ((Stored *)operands.data[k] + place(row, layout.row_rank, layout.row_dim, layout.row_stride[k]))\n\
             #define AT(k) ROW(k)[place(i, layout.rank, layout.dim, layout.stride[k])]\n\
             \x20   for (Index row = blockIdx.x; row < layout.rows; row += gridDim.x) {\n",
        );
        let _ = writeln!(text, "        Number ones[{}];", passes.ones);
        let row_inputs = self.input_axes().enumerate().filter(|(_, axes)| axes.is_empty());
        let mut count = 0;
        for (one, (input, _)) in row_inputs.enumerate() {
            let _ = writeln!(text, "        ones[{one}] = load(*ROW({input}));");
            count = one + 1;
        }
        let _ = writeln!(text, "        ones[{count}] = (Number)layout.length;");
        for (number, pass) in passes.passes.iter().enumerate() {
            text += &before(pass, number);
            text += &each(pass, number, self.input_count());
        }
        for (output, one) in &passes.row_outputs {
            let operand = self.input_count() + output;
            let _ = writeln!(text, "        if (threadIdx.x == 0) *ROW({operand}) = store(ones[{one}]);");
        }
        // The next one may be beyond what the index holds.
        text + "        if (layout.rows - row <= gridDim.x) break;\n    }\n}\n"
    }
}

/// What is computed for the row before a pass.
fn before(pass: &Pass, number: usize) -> String {
    if pass.before_results.is_empty() {
        return String::new();
    }
    let inputs: Vec<String> = pass.before_inputs.iter().map(|one| format!("ones[{one}]")).collect();
    let mut text = format!(
        "        {{\n            Number in[] = {{{}}}, out[{}];\n            before{number}(in, out, attributes);\n",
        listed(&inputs),
        pass.before_results.len()
    );
    for (result, one) in pass.before_results.iter().enumerate() {
        let _ = writeln!(text, "            ones[{one}] = out[{result}];");
    }
    text + "        }\n"
}

/// A pass over the row.
fn each(pass: &Pass, number: usize, inputs: usize) -> String {
    if pass.each_results.is_empty() {
        return String::new();
    }
    let mut text = String::from("        {\n");
    for (result, target) in pass.each_results.iter().enumerate() {
        if let Target::Fold(fold, _) = target {
            let _ = writeln!(text, "            Number fold{result} = {};", identity(*fold));
        }
    }
    let read = |source: &Source| match *source {
        Source::Input(input) => format!("load(AT({input}))"),
        Source::One(one) => format!("ones[{one}]"),
        Source::Kept(_) => unreachable!("nothing is kept"),
    };
    let read: Vec<String> = pass.each_inputs.iter().map(read).collect();
    let _ = write!(
        text,
        "            for (Index i = threadIdx.x; i < layout.length; i += blockDim.x) {{\n                \
         Number in[] = {{{}}}, out[{}];\n                each{number}(in, out, attributes);\n",
        listed(&read),
        pass.each_results.len()
    );
    for (result, target) in pass.each_results.iter().enumerate() {
        let _ = match target {
            Target::Fold(fold, _) => {
                writeln!(text, "                fold{result} = {fold:?}::of(fold{result}, out[{result}]);")
            }
            Target::Output(output) => {
                writeln!(text, "                AT({}) = store(out[{result}]);", inputs + output)
            }
            Target::Keep(_) => unreachable!("nothing is kept"),
        };
    }
    text += "                if (layout.length - i <= blockDim.x) break;\n            }\n";
    for (result, target) in pass.each_results.iter().enumerate() {
        if let Target::Fold(fold, one) = target {
            let _ = writeln!(text, "            ones[{one}] = across<{fold:?}>(fold{result});");
        }
    }
    text + "        }\n"
}

/// The elements of an array, which has at least one.
fn listed(elements: &[String]) -> String {
    if elements.is_empty() { "0".to_owned() } else { elements.join(", ") }
}

fn identity(fold: Fold) -> &'static str {
    match fold {
        Fold::Sum => "0",
        Fold::Max => "Number(__longlong_as_double(0xfff0000000000000LL))",
        Fold::Min => "Number(__longlong_as_double(0x7ff0000000000000LL))",
    }
}
