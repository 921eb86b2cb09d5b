//! A graph that the engine saved with OLD runs with every NEW that `compat` calls safe: tried on the pairs of
//! `tests/compat`.
//!
//! A process has one library of a name, as it is with users. So one process makes, runs and saves a graph of calls of
//! OLD's ops, and another reads and runs it with NEW's. Both write down what came of each call.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use opsmith_core::abi::OpsmithLibrary;
use opsmith_core::attr::AttrBase;
use opsmith_core::def::{Allowed, ArgDef, ArgType, AttrDef};
use opsmith_core::kernel::{KernelDef, OpKernel, OpKernelConstruction, OpKernelContext};
use opsmith_core::{AttrValue, DType, Error, OpDef, Shape, Signature};
use opsmith_frameworks::{Root, StaticLibrary, capi};
use opsmith_runtime::{Graph, GraphArg, Library, Output, Session, Tensor};
use tempfile::TempDir;

use crate::common::{stderr, stdout};
use crate::pairs::{Pair, Side, pairs, read};

/// The file of the pair that a process is for.
const PAIR: &str = "OPSMITH_TEST_PAIR";
/// The folder of the graph, and of what came of it.
const FOLDER: &str = "OPSMITH_TEST_FOLDER";
/// Which library the process has.
const SIDE: &str = "OPSMITH_TEST_SIDE";

/// Each op is called so often, each time with other attributes, dtypes and lengths.
const VARIANTS: usize = 8;

#[test]
fn a_saved_graph_runs_with_every_new_that_is_called_safe() {
    let mut tried = 0;
    // What is to be looked at is safe for saved graphs: it is calls in source that it breaks.
    for pair in pairs().iter().filter(|pair| pair.verdict() != "breaking") {
        let folder = TempDir::new().unwrap();
        let [old, new] = run_both(pair, folder.path());
        let old = old.unwrap_or_else(|said| panic!("{}: {said}", pair.path.display()));
        assert!(old.lines().count() >= VARIANTS, "{}: {old}", pair.path.display());
        assert_eq!(Ok(old), new, "{}", pair.path.display());
        tried += 1;
    }
    assert!(tried >= 30, "{tried}");
}

#[test]
fn with_a_new_that_breaks_it_a_saved_graph_does_not_run() {
    for (name, message) in [
        ("attr_removed", "Scale: has no attribute `a`"),
        ("constraint_min_raised", "Scale: attribute `a`"),
        ("input_added", "Sum: input `y` is missing"),
        ("kernel_dtype_removed", "Scale: "),
        ("op_removed", "library `library` has no op `Shift`"),
        ("shape_equal", "Sum: dim 1 of input `y`"),
    ] {
        let pairs = pairs();
        let pair = pairs.iter().find(|pair| pair.path.file_stem().unwrap() == name).unwrap();
        let folder = TempDir::new().unwrap();
        let [old, new] = run_both(pair, folder.path());
        assert!(old.is_ok(), "{name}: {old:?}");
        let said = new.expect_err(name);
        assert!(said.contains(message), "{name}: {said}");
    }
}

/// What came of the calls in a process with OLD and in one with NEW after it; or what was said of a failure.
fn run_both(pair: &Pair, folder: &Path) -> [Result<String, String>; 2] {
    ["old", "new"].map(|side| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "saved_graphs::one_side"]);
        let output = command.env(PAIR, &pair.path).env(FOLDER, folder).env(SIDE, side).output().unwrap();
        if output.status.success() {
            return Ok(fs::read_to_string(folder.join(side)).unwrap());
        }
        Err(stdout(&output) + &stderr(&output))
    })
}

#[test]
#[ignore = "the tests above run it, in processes of its own"]
fn one_side() {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).unwrap();
    let (pair, folder) = (read(variable(PAIR)), variable(FOLDER));
    let path = folder.join("graph");
    let calls = calls(&pair.old);
    let (side, graph) = if variable(SIDE).as_os_str() == "old" {
        let graph = build(&library(&pair.old), &calls).unwrap();
        graph.save(&path).unwrap();
        ("old", graph)
    } else {
        ("new", Graph::load(&path, &[library(&pair.new)]).unwrap_or_else(|error| panic!("{error}")))
    };
    let report = report(&graph, &pair.old, &calls).unwrap_or_else(|error| panic!("{error}"));
    fs::write(folder.join(side), report).unwrap();
}

/// A call of an op of OLD.
struct Call {
    name: String,
    op: Signature,
    /// The tensors of each input.
    inputs: Vec<Vec<Tensor>>,
    attrs: Vec<(String, AttrValue)>,
    /// Whether the graph knows the inputs' shapes.
    is_known: bool,
}

impl Call {
    /// The name of the node of a tensor.
    fn tensor(&self, input: usize, element: usize) -> String {
        format!("{}_{}_{element}", self.name, self.op.inputs[input].name)
    }

    /// The name of a tensor's node, and the tensor.
    fn tensors(&self) -> impl Iterator<Item = (String, &Tensor)> {
        let name = move |input: usize| move |(element, tensor)| (self.tensor(input, element), tensor);
        self.inputs.iter().enumerate().flat_map(move |(input, list)| list.iter().enumerate().map(name(input)))
    }
}

/// Calls of every op, with attributes given and by default, for every dtype, with shapes that are known and not.
fn calls(old: &Side) -> Vec<Call> {
    let ops = old.definitions.ops.iter();
    ops.flat_map(|op| (0..VARIANTS).map(move |variant| call(op, variant))).collect()
}

fn call(op: &opsmith_cli::definitions::Op, variant: usize) -> Call {
    let signature = &op.signature;
    let dtype = |attr: usize| {
        let name = &signature.attrs[attr].name;
        let of_kernels = op.kernels.iter().flat_map(|kernel| &kernel.types).filter(|(attr, _)| attr == name);
        let mut dtypes: Vec<DType> = of_kernels.map(|(_, dtype)| *dtype).collect();
        if dtypes.is_empty() {
            dtypes = match &signature.attrs[attr].allowed {
                Some(Allowed::Types(dtypes)) => dtypes.clone(),
                _ => vec![DType::Float32, DType::Int64],
            };
        }
        dtypes[variant % dtypes.len()]
    };
    let count = |def: &ArgDef| match def.count {
        opsmith_core::def::ArgCount::One => 1,
        opsmith_core::def::ArgCount::Attr(attr) => match signature.attrs[attr].min {
            Bound::Included(AttrValue::Int(least)) => least as usize + variant % 2,
            _ => 1 + variant % 2,
        },
        opsmith_core::def::ArgCount::Types(_) => 1 + variant % 2,
    };
    let tensors = |(input, def): (usize, &ArgDef)| {
        let dtype = match def.dtype {
            ArgType::Fixed(dtype) => dtype,
            ArgType::Attr(attr) | ArgType::List(attr) => dtype(attr),
        };
        let shape = op.shape.as_ref().map_or(vec![2], |shape| {
            let sizes: Vec<usize> = (2..).take(shape.dim_names().len()).collect();
            shape.with_sizes(signature, &sizes, &[], &[]).unwrap().input_shape(input).to_vec()
        });
        (0..count(def)).map(|_| Tensor::zeros(dtype, &shape).unwrap()).collect()
    };
    let is_given = |def: &&AttrDef| !def.inferred && (def.default.is_none() || variant.is_multiple_of(2));
    let attrs = signature.attrs.iter().filter(is_given);
    Call {
        name: format!("{}_{variant}", signature.snake_name()),
        op: signature.clone(),
        inputs: signature.inputs.iter().enumerate().map(tensors).collect(),
        attrs: attrs.map(|def| (def.name.clone(), attr_value(def, variant))).collect(),
        is_known: (variant / 2).is_multiple_of(2),
    }
}

/// A value that the definition allows, others for other variants.
fn attr_value(def: &AttrDef, variant: usize) -> AttrValue {
    let step = variant as i64 / 2;
    let bound = |bound: &Bound<AttrValue>| match bound {
        Bound::Included(AttrValue::Int(bound)) => Some(*bound),
        _ => None,
    };
    match (&def.allowed, def.ty.list, bound(&def.min), bound(&def.max)) {
        (Some(Allowed::Strings(texts)), false, ..) => texts[variant / 2 % texts.len()].as_str().into(),
        (Some(Allowed::Ints(ints)), false, ..) => AttrValue::Int(ints[variant / 2 % ints.len()]),
        (None, false, ..) if def.ty.base == AttrBase::Float => {
            let floats = def.floats_within();
            AttrValue::Float(floats[variant / 2 % floats.len()])
        }
        (None, false, Some(least), Some(most)) => AttrValue::Int((least + step).min(most)),
        (None, false, Some(least), None) => AttrValue::Int(least + step),
        (None, false, None, Some(most)) => AttrValue::Int(most - step),
        (None, false, None, None) => AttrValue::Int(step - 1),
        (None, true, ..) => AttrValue::Ints(vec![step; def.min_len.unwrap_or(0) + variant / 2]),
        _ => panic!("there are no values for `{}`", def.name),
    }
}

/// The graph of the calls. The first tensor of an input is fed, the others are constants.
fn build(library: &Library, calls: &[Call]) -> Result<Graph, Error> {
    let graph = Graph::new();
    for call in calls {
        let op = library.op(&call.op.name)?;
        let mut node = graph.call(&op).name(&call.name);
        for (input, tensors) in call.inputs.iter().enumerate() {
            let tensor = |(element, tensor): (usize, &Tensor)| {
                let shape =
                    if call.is_known { Shape::known(tensor.shape()) } else { Shape::parse("?").unwrap() };
                match (call.tensor(input, element), element) {
                    (name, 0) => graph.placeholder(&name, tensor.dtype(), &shape),
                    (name, _) => graph.constant(&name, tensor.clone()),
                }
            };
            let outputs = tensors.iter().enumerate().map(tensor).collect::<Result<Vec<Output>, Error>>()?;
            node = match &outputs[..] {
                [one] if !call.op.inputs[input].count.is_list() => node.arg(one),
                list => node.arg(GraphArg::List(list.to_vec())),
            };
        }
        for (name, value) in &call.attrs {
            node = node.attr(name, value.clone());
        }
        node.build()?;
    }
    Ok(graph)
}

/// A line for each call: the values of OLD's attributes, what is inferred of its outputs, and what a session computes.
fn report(graph: &Graph, old: &Side, calls: &[Call]) -> Result<String, Error> {
    let session = Session::new(graph);
    let mut lines = String::new();
    for call in calls {
        let node = graph.operation(&call.name)?;
        let given: HashMap<&str, &AttrValue> =
            node.attrs().iter().map(|(name, value)| (name.as_str(), value)).collect();
        let old = old.definitions.op(&call.op.name).unwrap();
        write!(lines, "{}", call.name).unwrap();
        for def in old.signature.attrs.iter().filter(|def| !def.inferred) {
            // NEW may have no default where OLD has one, or another: what the graph says counts.
            let value = given.get(def.name.as_str()).copied().or(def.default.as_ref());
            write!(lines, " {}={}", def.name, value.unwrap()).unwrap();
        }
        let mut outputs = node.outputs();
        outputs.truncate(old.signature.outputs.len());
        let feeds = call.tensors().filter(|(name, _)| name.ends_with("_0"));
        let feeds = feeds.map(|(name, tensor)| Ok((graph.output(&name)?, tensor)));
        let feeds = feeds.collect::<Result<Vec<(Output, &Tensor)>, Error>>()?;
        let feeds: Vec<(&Output, &Tensor)> = feeds.iter().map(|(output, tensor)| (output, *tensor)).collect();
        let values = session.run(&outputs.iter().collect::<Vec<_>>(), &feeds)?;
        for (output, value) in outputs.iter().zip(values) {
            // From nothing, a looser shape signature infers less.
            let inferred = if call.is_known { output.shape().to_string() } else { "?".to_owned() };
            let (dtype, shape, bytes) = (value.dtype(), value.shape(), first_number(&value)?);
            assert_eq!(dtype, output.dtype());
            write!(lines, " {dtype}{inferred} {shape:?} {bytes}").unwrap();
        }
        lines.push('\n');
    }
    Ok(lines)
}

fn first_number(tensor: &Tensor) -> Result<f64, Error> {
    Ok(match tensor.dtype() {
        DType::Float32 => f64::from(tensor.to_vec::<f32>()?[0]),
        DType::Float64 => tensor.to_vec::<f64>()?[0],
        DType::Int32 => f64::from(tensor.to_vec::<i32>()?[0]),
        _ => tensor.to_vec::<i64>()?[0] as f64,
    })
}

/// The kernel of all ops: outputs are of the shapes that the signature says, else of that of the first input, and filled with
/// the number of tensors that came in.
struct Count;

impl OpKernel for Count {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Count, Error> {
        Ok(Count)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<(), Error> {
        let signature = context.signature();
        let mut shapes = Vec::new();
        for (input, def) in signature.inputs.iter().enumerate() {
            match def.count.is_list() {
                true => {
                    shapes.extend(context.input_list(input)?.iter().map(|tensor| tensor.shape().to_vec()))
                }
                false => shapes.push(context.input(input)?.shape().to_vec()),
            }
        }
        let bound = context.bind_shapes().ok();
        for output in 0..signature.outputs.len() {
            let shape = bound.as_ref().map_or(shapes[0].clone(), |bound| bound.output_shape(output).to_vec());
            let mut tensor = context.allocate_output(output, &shape)?;
            let count = shapes.len() as u8;
            match tensor.dtype() {
                DType::Float32 => tensor.as_slice_mut::<f32>()?.fill(count.into()),
                DType::Float64 => tensor.as_slice_mut::<f64>()?.fill(count.into()),
                DType::Int32 => tensor.as_slice_mut::<i32>()?.fill(count.into()),
                _ => tensor.as_slice_mut::<i64>()?.fill(count.into()),
            }
        }
        Ok(())
    }
}

/// The statements of the library that this process has.
static STATEMENTS: OnceLock<Vec<OpDef>> = OnceLock::new();

/// That library.
struct TheLibrary;

// SAFETY: it is made once, so always the same.
unsafe impl Root for TheLibrary {
    fn library() -> &'static StaticLibrary {
        static LIBRARY: OnceLock<StaticLibrary> = OnceLock::new();
        LIBRARY.get_or_init(|| {
            let count = STATEMENTS.get().map_or(0, Vec::len);
            StaticLibrary::new("library", "1.0", &OPS[..count])
        })
    }
}

/// As many ops as a library of `tests/compat` may have.
const OPS: [fn() -> OpDef; 4] = [statement::<0>, statement::<1>, statement::<2>, statement::<3>];

fn statement<const OP: usize>() -> OpDef {
    STATEMENTS.get().unwrap()[OP].clone()
}

/// The library of a side, with kernels for what it says that it has kernels for, else for everything.
fn library(side: &Side) -> Library {
    static TABLE: OpsmithLibrary = capi::table::<TheLibrary>("library", "1.0");
    let with_kernels = |(statement, op): (&OpDef, &opsmith_cli::definitions::Op)| {
        let on_cpu = op.kernels.iter().filter(|kernel| kernel.device == "CPU");
        let kernel = |types: &Vec<(String, DType)>| {
            types.iter().fold(KernelDef::cpu::<Count>(), |kernel, (attr, dtype)| {
                kernel.dtype_constraint(attr.clone().leak(), *dtype)
            })
        };
        let mut kernels: Vec<KernelDef> = on_cpu.map(|stated| kernel(&stated.types)).collect();
        if op.kernels.is_empty() {
            kernels.push(KernelDef::cpu::<Count>());
        }
        statement.clone().kernels(kernels)
    };
    let statements = side.statements.iter().zip(&side.definitions.ops).map(with_kernels).collect();
    assert!(STATEMENTS.set(statements).is_ok(), "a process has one library");
    // SAFETY: `capi` made the table, and it is a static.
    unsafe { Library::from_table(&TABLE) }.unwrap()
}
