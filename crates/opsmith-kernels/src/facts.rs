//! What a one-body function says of its op, and the definitions that follow: the op's and its gradients'.

use opsmith_body::{Axes, Graph, Id, Kind, Listing, Node};
use opsmith_core::family::{Family, FamilyArgument, Like, Read, op_name};
use opsmith_core::{
    AttrValue, DType, DeviceKind, Error, InferenceContext, KernelDef, OpDef, OpKernelConstruction,
    OpKernelContext, Program, ProgramRows, Result, Shape, Signature,
};

/// The most arguments that frameworks take.
const MOST_ARGUMENTS: usize = 64;

/// A body with attributes as fields: what `#[pointwise]`, `#[reduce]` and `#[pairwise]` make of a function.
pub trait OneBody: Copy + Send + Sync + 'static {
    /// What it says of the op.
    const FACTS: Facts;

    /// The body of an instance, from its attributes.
    ///
    /// # Errors
    /// As [`OpKernelConstruction::attr`].
    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self>;
}

/// The value of a text attribute that is one of `choices`.
///
/// # Errors
/// As [`OpKernelConstruction::attr`].
pub fn choice(
    construction: &OpKernelConstruction<'_>,
    name: &str,
    choices: &[&'static str],
) -> Result<&'static str> {
    let given: String = construction.attr(name)?;
    let chosen = choices.iter().find(|choice| **choice == given);
    chosen.copied().ok_or_else(|| {
        Error::invalid_argument(format!("attribute `{name}` must be one of {choices:?}, got {given:?}"))
            .naming(name)
    })
}

/// What the function says of the op.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The op's name, CamelCase.
    pub name: &'static str,
    /// Where the function stands, `src/lib.rs:12`.
    pub place: &'static str,
    /// The documentation of the op, then a line for each argument.
    pub doc: &'static str,
    /// The attributes but for the dtype `T`, in the definition language.
    pub attrs: &'static [&'static str],
    /// The names of the inputs.
    pub inputs: &'static [&'static str],
    /// The names of the outputs.
    pub outputs: &'static [&'static str],
    /// The dtypes that there are kernels for.
    pub dtypes: &'static [DType],
    /// Of how many orders there are gradient ops.
    pub orders: usize,
    /// What the inputs are.
    pub input_kinds: &'static [Kind],
    /// What the outputs are.
    pub output_kinds: &'static [Kind],
    /// How many parts each input has: so many inputs of the graph are one of the op.
    pub parts: &'static [usize],
}

/// The shapes of the forward op's outputs, from those of its inputs, which are the first inputs of every op of the
/// family, and the axes of the outputs that are saved for gradients.
pub type OutputShapes = fn(&mut InferenceContext<'_>, &[Axes]) -> Result<Vec<Shape>>;

/// What the gradients of an op read of what it computes.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The outputs, those that are saved among them.
    pub read: Read,
    /// The axes of the outputs that are saved: folds of the body, which come after its own outputs.
    pub saved: Vec<Axes>,
}

/// The name of an output that is saved.
fn saved_name(position: usize) -> String {
    format!("saved_{}", position + 1)
}

/// What an instance computes.
pub(crate) type Trace = fn(&OpKernelConstruction<'_>) -> Result<Graph>;

impl Facts {
    /// How many parts an argument has that is like one of the forward op's.
    pub fn parts_of(&self, like: Like) -> usize {
        match like {
            Like::Input(input) => self.parts[input],
            Like::Output(_) => 1,
        }
    }

    /// What there is of each argument, for each part of it.
    pub(crate) fn of_parts<T: Copy>(&self, arguments: &[FamilyArgument], all: &[T]) -> Vec<T> {
        let counted = arguments.iter().zip(all);
        counted.flat_map(|(argument, own)| std::iter::repeat_n(*own, self.parts_of(argument.like))).collect()
    }

    /// The arguments of a graph, which are parts of these.
    fn in_parts<'a>(&self, arguments: &'a [FamilyArgument]) -> impl Iterator<Item = &'a FamilyArgument> {
        arguments.iter().flat_map(|argument| std::iter::repeat_n(argument, self.parts_of(argument.like)))
    }

    /// The arguments of the gradient op of this order; of the op itself for order 0.
    pub fn family(&self, order: usize, reading: &Reading) -> Family {
        let forward = Family::new(self.inputs, self.outputs);
        let forward = forward.with_numbers(|input| self.input_kinds[input] == Kind::Number);
        let forward = forward.saving((0..reading.saved.len()).map(saved_name));
        match order {
            0 => forward,
            _ => forward.gradient_reading(&reading.read).order(order - 1),
        }
    }

    /// The graphs of instances with several values of the attributes, if these are known.
    pub(crate) fn samples(&self, trace: Trace) -> Option<Vec<Graph>> {
        // An op that is not well formed is told when it is built.
        let signature = self.def(0, &Reading::default(), |_, _| Ok(Vec::new()), &[]).signature().ok()?;
        let samples = signature.attr_samples();
        let graph = |attrs: &Vec<AttrValue>| {
            let construction = OpKernelConstruction::new(&signature, attrs, DeviceKind::Cpu);
            // Where there is no instance there is no call.
            opsmith_core::panic::catch(|| trace(&construction)).ok()
        };
        (!samples.is_empty()).then(|| samples.iter().filter_map(graph).collect())
    }

    /// What gradients read: the outputs, and the folds of the body, for which that pays with some values of the attributes. `is_like` says
    /// which outputs have the shape of the first input.
    pub(crate) fn reading(&self, trace: Trace, is_like: &dyn Fn(usize) -> bool) -> Reading {
        let Some(graphs) = self.samples(trace).filter(|_| self.orders > 0) else { return Reading::default() };
        let numbers: Vec<usize> = self.numbers(0, &Reading::default());
        let mut outputs: Vec<usize> = graphs.iter().flat_map(|graph| graph.worth_reading(&numbers)).collect();
        outputs.sort_unstable();
        outputs.dedup();
        // What is left out may not be read by any instance: attributes must not decide what is computed.
        let is_number = |attr: &&str| {
            let name = attr.split(':').next().unwrap_or_default().trim();
            graphs.iter().all(|graph| graph.attributes().iter().any(|(own, _)| *own == name))
        };
        let reads = |graph: &Graph| graph.gradient_reading(&outputs).with_outputs(&numbers).reads(0);
        let is_left_out =
            self.inputs.len() == 1 && self.attrs.iter().all(is_number) && !graphs.iter().any(reads);
        let in_place = outputs.iter().copied().find(|output| is_left_out && is_like(*output));
        let mut all = Reading { saved: Vec::new(), read: Read { outputs, in_place } };
        let without = all.clone();
        if in_place.is_none() {
            all.saved = self.saved(&graphs, &all.read.outputs);
        }
        all.read.outputs.extend((self.outputs.len()..).take(all.saved.len()));
        let fits = |reading: &Reading| {
            let last = self.family(self.orders, reading);
            [&last.inputs, &last.outputs].iter().all(|own| self.in_parts(own).count() <= MOST_ARGUMENTS)
        };
        [all, without].into_iter().find(fits).unwrap_or_default()
    }

    /// The axes of the folds that are saved for gradients which read these outputs: those that pay whatever the attributes are.
    fn saved(&self, graphs: &[Graph], outputs: &[usize]) -> Vec<Axes> {
        let taken = self.inputs.iter().chain(self.outputs).chain(self.attrs);
        if taken.into_iter().any(|name| name.starts_with("saved_")) {
            return Vec::new();
        }
        let mut all = graphs.iter().map(|graph| self.folds(graph, outputs).1);
        let first = all.next().unwrap_or_default();
        if all.all(|axes| axes == first) { first } else { Vec::new() }
    }

    /// The folds of an instance's body that its gradients had better read than compute again, and their axes.
    fn folds(&self, body: &Graph, outputs: &[usize]) -> (Vec<Id>, Vec<Axes>) {
        let folds = body.worth_saving(&self.numbers(0, &Reading::default()), outputs);
        let axes = folds.iter().map(|id| body.axes_of(*id)).collect();
        (folds, axes)
    }

    /// What the gradients read, from the definition of an op of the family.
    fn read_by(&self, trace: Trace, signature: &Signature) -> Reading {
        let is_input = |name: &str| signature.inputs.iter().any(|input| input.name == name);
        if is_input(&saved_name(0)) || signature.outputs.iter().any(|output| output.saved) {
            // The same as when the op was stated. Nothing is read in the place of an input where something is saved.
            return self.reading(trace, &|_| false);
        }
        let outputs = (0..self.outputs.len()).filter(|output| is_input(self.outputs[*output])).collect();
        let first = &signature.inputs[0].name;
        let in_place = self.outputs.iter().position(|output| output == first);
        Reading { read: Read { outputs, in_place }, saved: Vec::new() }
    }

    /// What an instance of the op of this order computes, and what gradients read.
    pub(crate) fn derived(
        &self,
        trace: Trace,
        construction: &OpKernelConstruction<'_>,
        order: usize,
    ) -> Result<(Graph, Reading)> {
        let reading = self.read_by(trace, construction.signature());
        let dtype: DType = construction.attr("T")?;
        Ok((self.gradient(trace(construction)?, order, &reading, dtype), reading))
    }

    /// What an instance of the op of this order computes, as a program over these rows; none where it is not that.
    pub(crate) fn program(
        &self,
        trace: Trace,
        construction: &OpKernelConstruction<'_>,
        order: usize,
        rows: Option<ProgramRows>,
    ) -> Result<Option<Program>> {
        let is_faithful = trace(construction)?.is_faithful();
        let (graph, reading) = self.derived(trace, construction, order)?;
        let family = self.family(order, &reading);
        // Positions are told apart as far as the numbers of a dtype do that, which each call checks.
        let has_positions = graph.nodes().iter().any(|node| matches!(node, Node::Index(_)));
        let listing = graph.to_listing().filter(|_| is_faithful && !has_positions);
        let Some(listing) = listing else { return Ok(None) };
        let Listing { inputs, nodes, outputs, results } = listing;
        let input = |like| match like {
            Like::Input(input) => Some(input),
            Like::Output(_) => None,
        };
        let like = family.outputs.iter().map(|output| input(output.like)).collect();
        let others = family.inputs.iter().enumerate().skip(self.inputs.len());
        let whole =
            others.flat_map(|(position, argument)| input(argument.like).into_iter().chain([position]));
        Ok(Some(Program { inputs, nodes, outputs, results, like, whole: whole.collect(), rows, axes: None }))
    }

    /// The inputs of the graph of this order that are numbers.
    fn numbers(&self, order: usize, reading: &Reading) -> Vec<usize> {
        let inputs = self.family(order, reading).inputs;
        let numbered = self.in_parts(&inputs).enumerate();
        numbered.filter(|(_, input)| input.is_number).map(|(input, _)| input).collect()
    }

    /// The gradient of a body of an order, by the inputs that are numbers; for order 0 the body itself, with what it saves.
    ///
    /// Of floats of 16 bits nothing is read that is saved, for folds are computed in float32.
    fn gradient(&self, body: Graph, order: usize, reading: &Reading, dtype: DType) -> Graph {
        let own: Vec<usize> =
            reading.read.outputs.iter().copied().filter(|output| *output < self.outputs.len()).collect();
        let saved = &reading.saved;
        let is_half = matches!(dtype, DType::Float16 | DType::BFloat16);
        let folds =
            || Some(self.folds(&body, &own)).filter(|(_, axes)| axes == saved).map(|(folds, _)| folds);
        if order == 0 {
            return if saved.is_empty() { body } else { body.saving(folds().as_deref(), saved) };
        }
        let without = Reading { read: Read { outputs: own.clone(), ..reading.read }, saved: Vec::new() };
        let gradient = (0..order).fold(body.clone(), |graph, order| {
            let outputs = if order == 0 { own.as_slice() } else { &[] };
            let gradient = graph.gradient_reading(outputs).with_outputs(&self.numbers(order, &without));
            let in_place = outputs.iter().position(|output| reading.read.in_place == Some(*output));
            let Some(place) = in_place.map(|position| position + 1) else { return gradient };
            let others = (1..gradient.input_count()).filter(|input| *input != place);
            gradient.with_inputs(&std::iter::once(place).chain(others).collect::<Vec<_>>())
        });
        if saved.is_empty() {
            return gradient;
        }
        let folds = if is_half { None } else { folds() };
        body.reading_folds(&gradient, &own, folds.as_deref(), saved)
    }

    /// What the arguments of the op of this order are: inputs, and outputs.
    pub fn kinds(&self, order: usize, reading: &Reading) -> (Vec<Kind>, Vec<Kind>) {
        let family = self.family(order, reading);
        let input = |argument: &FamilyArgument| match argument.like {
            Like::Input(input) if !argument.is_number => self.input_kinds[input],
            _ => Kind::Number,
        };
        let outputs = match order {
            0 => {
                self.output_kinds.iter().copied().chain(reading.saved.iter().map(|_| Kind::Number)).collect()
            }
            _ => vec![Kind::Number; family.outputs.len()],
        };
        (family.inputs.iter().map(input).collect(), outputs)
    }

    /// The statement of the op of this order, with each of `kernels` for each dtype.
    pub fn def(&self, order: usize, reading: &Reading, shapes: OutputShapes, kernels: &[KernelDef]) -> OpDef {
        let family = self.family(order, reading);
        let dtypes: Vec<&str> = self.dtypes.iter().map(|dtype| dtype.name()).collect();
        let mut def = OpDef::new(&op_name(self.name, order)).doc(&self.doc_of(order));
        for attr in self.attrs {
            def = def.attr(attr);
        }
        def = def.attr(&format!("T: {{{}}}", dtypes.join(", ")));
        let kinds = self.kinds(order, reading);
        for (input, kind) in family.inputs.iter().zip(kinds.0) {
            def = def.input(&format!("{}: {}", input.name, kind.dtype()));
        }
        for (output, kind) in family.outputs.iter().zip(kinds.1) {
            def = def.output(&format!("{}: {}", output.name, kind.dtype()));
        }
        for name in self.optional(order, reading) {
            def = def.optional(&name);
        }
        for output in family.outputs.iter().filter(|output| !output.is_number) {
            def = def.saved(&output.name);
        }
        if order < self.orders {
            def = def.gradient(&op_name(self.name, order + 1));
        }
        let of = |kernel: &KernelDef| {
            let kernel = kernel.clone();
            self.dtypes.iter().map(move |&dtype| kernel.clone().dtype_constraint("T", dtype))
        };
        let kernels = kernels.iter().flat_map(of);
        let saved = reading.saved.clone();
        def.kernels(kernels)
            .shape_fn(move |context| infer(context, &family, order, &|context| shapes(context, &saved)))
    }

    /// The rule of the free axes of the op of this order, from the dims of what is like each argument of the forward op.
    /// A gradient is the sum over the parts of an axis that it lacks: what a part of the outputs contributes is added up.
    pub(crate) fn parallel(&self, order: usize, reading: &Reading, dims: impl Fn(Like) -> String) -> String {
        let family = self.family(order, reading);
        let list = |arguments: &[FamilyArgument], sum: &str| {
            let dims = arguments.iter().map(|argument| format!("{sum}{}", dims(argument.like)));
            dims.collect::<Vec<_>>().join(", ")
        };
        // The only input has every axis that the outputs have.
        let sum = if order > 0 && self.inputs.len() > 1 { "+" } else { "" };
        format!("{} -> {}", list(&family.inputs, ""), list(&family.outputs, sum))
    }

    fn doc_of(&self, order: usize) -> String {
        match order {
            0 => self.doc.to_owned(),
            _ => format!("The gradient of `{}`, derived from its body.", op_name(self.name, order - 1)),
        }
    }

    /// The arguments that may be left out: a gradient that nobody asks for, and one of several outputs' gradients,
    /// which then is zero.
    fn optional(&self, order: usize, reading: &Reading) -> Vec<String> {
        let mut family = self.family(0, reading);
        let mut names = Vec::new();
        for order in 1..=order {
            let gradient = self.family(order, reading);
            let count = family.outputs.iter().filter(|output| output.is_number).count();
            let gradients = &gradient.inputs[gradient.inputs.len() - count..];
            // No argument that must be given comes after one that may be left out.
            if count > 1 || !names.is_empty() {
                names.extend(gradients.iter().map(|input| input.name.clone()));
            }
            family = gradient;
        }
        if order > 0 {
            names.extend(family.outputs.into_iter().map(|output| output.name));
        }
        names
    }
}

/// Every argument has the shape of an input or output of the forward op.
fn infer(
    context: &mut InferenceContext<'_>,
    family: &Family,
    order: usize,
    shapes: &dyn Fn(&mut InferenceContext<'_>) -> Result<Vec<Shape>>,
) -> Result<()> {
    let outputs = shapes(context)?;
    if order == 0 {
        return outputs
            .into_iter()
            .enumerate()
            .try_for_each(|(index, shape)| context.set_output(index, shape));
    }
    let like = |context: &InferenceContext<'_>, argument: &FamilyArgument| match argument.like {
        Like::Input(index) => context.input(index),
        Like::Output(index) => Ok(outputs[index].clone()),
    };
    for (index, argument) in family.inputs.iter().enumerate() {
        if context.has_input(index) {
            let (expected, given) = (like(context, argument)?, context.input(index)?);
            context.merge_shapes(&expected, &given)?;
        }
    }
    for (index, argument) in family.outputs.iter().enumerate() {
        let shape = like(context, argument)?;
        context.set_output(index, shape)?;
    }
    Ok(())
}

/// The error of a call whose shapes do not fit: that of inference on them, so that each message is written once.
#[cold]
pub(crate) fn shape_error(
    context: &OpKernelContext<'_>,
    attrs: &[AttrValue],
    family: &Family,
    order: usize,
    shapes: &dyn Fn(&mut InferenceContext<'_>) -> Result<Vec<Shape>>,
) -> Error {
    let signature = context.signature();
    let shape = |input| Some(vec![Shape::known(context.input_shape(input).ok()?)]);
    let inputs = (0..signature.inputs.len()).map(shape).collect();
    let inferred = InferenceContext::new(signature, attrs, inputs)
        .and_then(|mut context| infer(&mut context, family, order, shapes));
    inferred.err().unwrap_or_else(|| Error::invalid_argument("the shapes of the inputs do not fit"))
}
