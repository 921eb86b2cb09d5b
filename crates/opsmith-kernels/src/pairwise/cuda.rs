//! Pairwise ops on a card: a launch for each stage of the program, or for each output of a stage that folds.

use std::marker::PhantomData;

use half::{bf16, f16};
use opsmith_body::CudaType;
use opsmith_core::family::{Family, FamilyArgument, Like};
use opsmith_core::tensor::row_major_strides;
use opsmith_core::{
    DType, Device, DeviceKind, OpKernel, OpKernelConstruction, OpKernelContext, Result, TensorView, bail,
};
use opsmith_cuda::{BLOCK, CudaCall, CudaElement, Index, Source, Structure};
use smallvec::SmallVec;

use super::program::{Axes, Operand, Program, Space, Stage};
use super::source::{cuda_source, edge, names, only};
use super::{Pairwise, program};
use crate::body::Computation;
use crate::cuda::{attributes, copy, operands, zeros};
use crate::explain::cuda_type;
use crate::kept::{Kept, bits};

/// Threads of a block along either side, for a stage that folds.
const SIDE: usize = 16;
/// So many blocks keep a card busy, also where each has several outputs for a thread.
const BUSY: usize = 128;
/// The most blocks along either side: they go on by the size of the grid.
const MOST: usize = 65_535;

/// The kernel of a body's gradient of an order on a card; of the body itself for order 0.
pub(super) struct CudaKernel<B, const ORDER: usize> {
    /// For what the tiles are not.
    nests: Computation,
    on_card: OnCard,
    /// For calls that do not have some inputs, as bits.
    parts: Kept<u64, OnCard>,
    body: PhantomData<fn() -> B>,
}

impl<B: Pairwise, const ORDER: usize> OpKernel for CudaKernel<B, ORDER> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let read = B::FACTS.read_by(construction.signature());
        let program = program(&B::new(construction)?, ORDER, &read);
        let nests = Computation::of::<B>(construction, ORDER)?;
        let on_card = OnCard::new(construction, program, B::FACTS.family(ORDER, &read))?;
        Ok(CudaKernel { nests, on_card, parts: Kept::default(), body: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        // What has no tiles: dims in front, rows without elements, and shapes that do not fit, which is told there.
        let Some(sizes) = sizes(context, &self.on_card.family) else {
            return self.nests.compute_for::<B>(context);
        };
        let inputs = 0..self.on_card.family.inputs.len();
        let absent = bits(inputs.filter(|input| context.input_shape(*input).is_err()));
        let part = (absent != 0).then(|| self.parts.get(absent, |absent| self.on_card.without(*absent)));
        let on_card = part.as_deref().unwrap_or(&self.on_card);
        match on_card.dtype {
            DType::Float32 => on_card.compute::<f32>(context, sizes),
            DType::Float64 => on_card.compute::<f64>(context, sizes),
            DType::Float16 => on_card.compute::<f16>(context, sizes),
            DType::BFloat16 => on_card.compute::<bf16>(context, sizes),
            other => bail!(Internal, "{}: no body computes with {other}", context.signature().name),
        }
    }
}

/// Rows of `x`, rows of `y`, and the elements of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    n: usize,
    m: usize,
    p: usize,
}

/// The sizes of a call whose inputs all are matrices that fit, of rows with elements.
fn sizes(context: &OpKernelContext<'_>, family: &Family) -> Option<Sizes> {
    let (&[n, p], &[m, other]) = (context.input_shape(0).ok()?, context.input_shape(1).ok()?) else {
        return None;
    };
    let sizes = Sizes { n, m, p };
    let fits = |(input, argument): (usize, &FamilyArgument)| {
        context.input_shape(input).map_or(true, |shape| shape == sizes.of(argument.like))
    };
    (p == other && p > 0 && family.inputs.iter().enumerate().skip(2).all(fits)).then_some(sizes)
}

/// What an instance computes with, whatever the body.
struct OnCard {
    program: Program,
    /// As the source has them.
    stages: Vec<Stage>,
    attributes: Vec<(&'static str, f64)>,
    family: Family,
    dtype: DType,
    element: CudaType,
    name: String,
    /// By the number of the kernel.
    sources: Kept<usize, Source>,
}

impl OnCard {
    fn new(construction: &OpKernelConstruction<'_>, program: Program, family: Family) -> Result<OnCard> {
        let (signature, dtype) = (construction.signature(), construction.attr("T")?);
        let Some(element) = cuda_type(dtype) else {
            bail!(Internal, "{}: no body computes with {dtype}", signature.name);
        };
        Ok(OnCard::of(program, family, (dtype, element), signature.snake_name()))
    }

    /// The same where inputs are nothing.
    fn without(&self, absent: u64) -> OnCard {
        let program = self.program.clone().without_inputs(|input| absent & bits([input]) != 0);
        OnCard::of(program, self.family.clone(), (self.dtype, self.element), self.name.clone())
    }

    fn of(program: Program, family: Family, (dtype, element): (DType, CudaType), name: String) -> OnCard {
        let stages: Vec<Stage> = program.stages.iter().map(|stage| stage.clone().tidy()).collect();
        let mut attributes: Vec<(&'static str, f64)> = Vec::new();
        for own in stages.iter().flat_map(|stage| stage.graph.attributes()) {
            if attributes.iter().all(|(name, _)| *name != own.0) {
                attributes.push(*own);
            }
        }
        OnCard { program, stages, attributes, family, dtype, element, name, sources: Kept::default() }
    }

    fn compute<T: CudaElement>(&self, context: &OpKernelContext<'_>, sizes: Sizes) -> Result<()> {
        let mut values: Vec<*mut u8> = Vec::with_capacity(self.program.values.len());
        for (input, argument) in self.family.inputs.iter().enumerate() {
            let bytes = sizes.of(argument.like).iter().product::<usize>() * size_of::<T>();
            values.push(match context.optional_input(input)? {
                Some(tensor) if tensor.is_contiguous() => tensor.data_ptr().cast_mut(),
                Some(tensor) => {
                    let dense = context.device_temp(bytes.max(1))?.as_ptr();
                    copy::<T>(context, tensor, dense)?;
                    dense
                }
                // It is not read.
                None => std::ptr::null_mut(),
            });
        }
        let mut made: SmallVec<[Option<*mut u8>; 4]> = SmallVec::new();
        for (output, argument) in self.family.outputs.iter().enumerate() {
            let wanted = context.output_wanted(output)?;
            let make = || context.allocate_output(output, &sizes.of(argument.like));
            made.push(if wanted { Some(make()?.data_ptr()) } else { None });
        }
        let wanted: Vec<bool> = made.iter().map(Option::is_some).collect();
        let live = self.program.live(&wanted);
        let written = self.written(&live);
        for (value, is_written) in written.into_iter().enumerate().skip(self.program.inputs) {
            let mut outputs = self.program.outputs.iter().zip(&made);
            let own = outputs.find(|(output, made)| **output == Some(value) && made.is_some());
            values.push(match own {
                Some((_, Some(output))) => *output,
                _ if is_written => context.device_temp(self.bytes::<T>(value, sizes).max(1))?.as_ptr(),
                _ => std::ptr::null_mut(),
            });
        }
        for number in 0..self.stages.len() {
            self.stage(context, sizes, number, &values, &live)?;
        }
        self.rest::<T>(context, sizes, &values, &made)
    }

    /// Which values are written: of a stage of elements all, where one is needed.
    fn written(&self, live: &[bool]) -> Vec<bool> {
        let mut written = live.to_vec();
        for stage in self.stages.iter().filter(|stage| stage.space != Space::Triples) {
            let outputs = || stage.outputs.iter().flatten();
            let any = outputs().any(|value| live[*value]);
            outputs().for_each(|value| written[*value] |= any);
        }
        written
    }

    /// What the numbers of a value take; those that only go from stage to stage are not rounded.
    fn bytes<T: CudaElement>(&self, value: usize, sizes: Sizes) -> usize {
        let size = if self.program.is_between(value) { size_of::<T>().max(4) } else { size_of::<T>() };
        sizes.along(self.program.values[value]).iter().product::<usize>() * size
    }

    /// The source of one kernel.
    fn source(&self, only: usize) -> Source {
        let names = names(&self.program, &self.family);
        let text = cuda_source(&self.program, &names, &self.name, self.element);
        Source::generated(format!("{}.cu", self.name), format!("#define ONLY {only}\n{text}"))
    }

    /// Launches the kernels of a stage: one for each output that is folded, where it is needed; else one.
    fn stage(
        &self,
        context: &OpKernelContext<'_>,
        sizes: Sizes,
        number: usize,
        values: &[*mut u8],
        live: &[bool],
    ) -> Result<()> {
        let stage = &self.stages[number];
        let read = stage.operands.iter().map(|operand| match *operand {
            Operand::Value(value) => values[value],
            Operand::Depth => std::ptr::null_mut(),
        });
        let outputs: SmallVec<[usize; 4]> = stage.outputs.iter().flatten().copied().collect();
        let mut data: SmallVec<[*mut u8; 8]> =
            read.chain(outputs.iter().map(|value| values[*value])).collect();
        let most = self.stages.iter().map(|stage| stage.operands.len() + stage.outputs.len()).max();
        data.resize(most.unwrap_or(1), std::ptr::null_mut());
        let mut counts = Structure::new(Index::Bits64);
        counts.index(sizes.n as i128)?.index(sizes.m as i128)?.index(sizes.p as i128)?;
        let counts = counts.finish();
        let launch = |suffix: String, only: usize, grid: [usize; 3], block: [u32; 3]| {
            let source = self.sources.get(only, |_| self.source(only));
            let call = CudaCall::new(context, &source);
            let launch = call.kernel(format!("{}_{number}{suffix}", self.name)).grid(grid).block(block);
            let launch = launch.raw(&operands(&data)).raw(&attributes(&self.attributes)).raw(&counts);
            // SAFETY: these are the parameters of the kernels of `cuda_source`, and the operands are as large as the sizes say.
            unsafe { launch.launch() }
        };
        let blocks = |count: usize, size: usize| count.div_ceil(size).min(MOST);
        if outputs.iter().all(|value| !live[*value]) {
            return Ok(());
        }
        if let Space::Elements(axes) = stage.space {
            let count: usize = sizes.along(axes).iter().product();
            return launch(
                String::new(),
                only(number, 0, false),
                [blocks(count, BLOCK), 1, 1],
                [BLOCK as u32, 1, 1],
            );
        }
        for (position, &value) in outputs.iter().enumerate().filter(|(_, value)| live[**value]) {
            let [rows, columns] = sizes.along(self.program.values[value]);
            let edge = edge(stage, self.element);
            let tiles = [columns, rows].map(|count| count.div_ceil(SIDE * edge));
            let is_tiled = edge > 1 && tiles[0].saturating_mul(tiles[1]) >= BUSY;
            let (suffix, size) = if is_tiled { ("_tiled", SIDE * edge) } else { ("", SIDE) };
            let grid = [blocks(columns, size), blocks(rows, size), 1];
            let suffix = format!("_{position}{suffix}");
            launch(suffix, only(number, position, is_tiled), grid, [SIDE as u32, SIDE as u32, 1])?;
        }
        Ok(())
    }

    /// Outputs that no stage has written: zeros, and those that are another value too.
    fn rest<T: CudaElement>(
        &self,
        context: &OpKernelContext<'_>,
        sizes: Sizes,
        values: &[*mut u8],
        made: &[Option<*mut u8>],
    ) -> Result<()> {
        let device = Device { kind: DeviceKind::Cuda, index: context.device().index };
        for ((output, made), argument) in self.program.outputs.iter().zip(made).zip(&self.family.outputs) {
            let (Some(made), shape) = (*made, sizes.of(argument.like)) else { continue };
            match *output {
                None => zeros(context, made, shape.iter().product::<usize>() * size_of::<T>())?,
                Some(value) if values[value] != made => {
                    let strides = row_major_strides(&shape);
                    // SAFETY: the value has this shape, dense, and nobody reads it here.
                    let from = unsafe {
                        TensorView::from_raw_parts(values[value], self.dtype, device, &shape, &strides)
                    };
                    copy::<T>(context, from, made)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Sizes {
    /// The dims of an argument that is like one of the forward op's.
    fn of(self, like: Like) -> [usize; 2] {
        match like {
            Like::Input(0) => [self.n, self.p],
            Like::Input(_) => [self.m, self.p],
            Like::Output(_) => [self.n, self.m],
        }
    }

    /// The dims of a value that is known for these.
    fn along(self, axes: Axes) -> [usize; 2] {
        match axes {
            Axes::X => [self.n, self.p],
            Axes::Y => [self.m, self.p],
            Axes::Pair => [self.n, self.m],
        }
    }
}
