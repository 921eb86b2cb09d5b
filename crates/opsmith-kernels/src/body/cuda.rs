//! Bodies on a card: a kernel for each nest, one after another.

use std::marker::PhantomData;
use std::sync::Arc;

use opsmith_body::{Axis, CudaType, Kind, Nest, Nests};
use opsmith_core::family::Like;
use opsmith_core::fork::Mutex;
use opsmith_core::tensor::{Extents, row_major_strides};
use opsmith_core::{DType, OpKernel, OpKernelConstruction, OpKernelContext, Result, bail, ensure};
use opsmith_cuda::{CudaCall, Index, Source, Structure};
use smallvec::SmallVec;

use super::shapes::{Call, Lie, output_shapes};
use super::{Arguments, AxesBody, Computation};
use crate::cuda::{MAX_RANK, Sources, attributes, operands, sum_to, zero};
use crate::explain::cuda_type;
use crate::facts::{OutputShapes, shape_error};
use crate::nests::bytes_of;

/// The kernel of a body's gradient of an order on a card; of the body itself for order 0.
pub(super) struct CudaKernel<B, const ORDER: usize> {
    on_card: OnCard,
    body: PhantomData<fn() -> B>,
}

impl<B: AxesBody, const ORDER: usize> OpKernel for CudaKernel<B, ORDER> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let body = B::new(construction)?.trace();
        let computation = Computation::new(construction, body, Arguments::of::<B>(), &B::FACTS, ORDER)?;
        Ok(CudaKernel { on_card: OnCard::new(construction, computation)?, body: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.on_card.compute(context, output_shapes::<B>)
    }
}

/// What an instance computes with, whatever the body.
struct OnCard {
    computation: Computation,
    name: String,
    element: CudaType,
    sources: Sources,
    /// The nests for the wanted outputs, as bits.
    nests: Mutex<Vec<(u64, Arc<Nests>)>>,
}

/// An operand of the kernels: where it begins, and how it lies.
struct Placed {
    data: *mut u8,
    lie: Lie,
}

/// Numbers that are summed up for an output which is the same along dims of the batch.
struct Repeated {
    from: *mut u8,
    all: Extents,
    to: *mut u8,
    own: Extents,
}

impl OnCard {
    fn new(construction: &OpKernelConstruction<'_>, computation: Computation) -> Result<OnCard> {
        let signature = construction.signature();
        let Some(element) = cuda_type(computation.dtype) else {
            bail!(Internal, "{}: no body computes with {}", signature.name, computation.dtype);
        };
        let name = signature.snake_name();
        Ok(OnCard { computation, name, element, sources: Sources::default(), nests: Mutex::default() })
    }

    fn compute(&self, context: &OpKernelContext<'_>, shapes: OutputShapes) -> Result<()> {
        let own = &self.computation;
        let Some(call) = Call::new(context, own.arguments, &own.family) else {
            return Err(shape_error(context, &own.attrs, &own.family, own.order, shapes));
        };
        own.check_positions(context, &call)?;
        let place = |data: *mut u8, shape: &[usize], strides: &[isize], like: Like| Placed {
            data,
            lie: Lie::new(shape, strides, own.arguments.like(like), &call.batch),
        };
        let mut placed: Vec<Placed> = Vec::new();
        for (input, argument) in own.family.inputs.iter().enumerate() {
            placed.push(match context.optional_input(input)? {
                Some(view) => place(view.data_ptr().cast_mut(), view.shape(), view.strides(), argument.like),
                None => Placed { data: zero(context)?, lie: Lie::nowhere(&call.batch) },
            });
        }
        let mut wanted: SmallVec<[usize; 8]> = SmallVec::new();
        let mut sums: Vec<Repeated> = Vec::new();
        for (output, argument) in own.family.outputs.iter().enumerate() {
            if !context.output_wanted(output)? {
                continue;
            }
            wanted.push(output);
            let shape = call.shape(argument.like);
            let to = context.allocate_output(output, &shape)?.data_ptr();
            let axes = own.arguments.like(argument.like).iter().map(|axis| call.sizes[*axis]);
            let all: Extents = call.batch.iter().copied().chain(axes).collect();
            let bytes = bytes_of(&context.signature().name, &all, own.dtype.size())?;
            if shape.iter().product::<usize>() == bytes / own.dtype.size() {
                placed.push(place(to, &shape, &row_major_strides(&shape), argument.like));
                continue;
            }
            let from = context.device_temp(bytes.max(1))?.as_ptr();
            placed.push(place(from, &all, &row_major_strides(&all), argument.like));
            sums.push(Repeated { from, all, to, own: shape });
        }
        if wanted.is_empty() {
            return Ok(());
        }
        self.launch(context, &call, &wanted, placed)?;
        sums.iter().try_for_each(|sum| sum_to(context, own.dtype, sum.from, &sum.all, sum.to, &sum.own))
    }

    fn nests(&self, bits: u64, wanted: &[usize]) -> Arc<Nests> {
        if let Some((_, nests)) = self.nests.lock().iter().find(|(known, _)| *known == bits) {
            return nests.clone();
        }
        let nests = Arc::new(Nests::for_card(&self.computation.programs.graph().with_outputs(wanted)));
        self.nests.lock().push((bits, nests.clone()));
        nests
    }

    fn launch(
        &self,
        context: &OpKernelContext<'_>,
        call: &Call<'_>,
        wanted: &[usize],
        mut placed: Vec<Placed>,
    ) -> Result<()> {
        let own = &self.computation;
        let bits = wanted.iter().fold(0u64, |bits, output| bits | 1 << output);
        let nests = self.nests(bits, wanted);
        let size = if own.dtype == DType::Float64 { size_of::<f64>() } else { size_of::<f32>() };
        for &axes in &nests.temporaries {
            let shape = call.temporary(&call.batch, axes);
            let bytes = bytes_of(&context.signature().name, &shape, size)?;
            let data = context.device_temp(bytes.max(1))?.as_ptr();
            let axes: SmallVec<[usize; 8]> = axes.iter().map(Axis::index).collect();
            placed
                .push(Placed { data, lie: Lie::new(&shape, &row_major_strides(&shape), &axes, &call.batch) });
        }
        let index = index_of(call, &placed);
        let (variant, suffix) = if index == Index::Bits32 { (0, 32) } else { (1, 64) };
        let data: SmallVec<[*mut u8; 8]> = placed.iter().map(|placed| placed.data).collect();
        for (number, nest) in nests.nests.iter().enumerate() {
            let units = units(call, nest);
            if units == 0 {
                continue;
            }
            let source = self.sources.get((bits, variant + 2 * number), || {
                let graph = own.programs.graph().with_outputs(wanted);
                let outputs: Vec<Kind> = wanted.iter().map(|output| own.kinds.1[*output]).collect();
                let text = graph.nests_cuda_source(&self.name, self.element, (&own.kinds.0, &outputs));
                let text = format!("#define ONLY {variant}\n#define NEST {number}\n{text}");
                Source::generated(format!("{}.cu", self.name), text)
            });
            let cuda = CudaCall::new(context, &source);
            let launch = cuda.kernel(format!("{}_{number}_{suffix}", self.name)).for_each(units);
            let launch = launch.raw(&operands(&data)).raw(&attributes(own.programs.graph().attributes()));
            let launch = launch.raw(&layout(call, units, &placed, index)?);
            // SAFETY: these are the parameters of the kernels that `Graph::nests_cuda_source` has; every operand is as large as
            // its axes and the batch, and its strides reach.
            unsafe { launch.launch()? };
        }
        Ok(())
    }
}

/// How many positions a nest has.
fn units(call: &Call<'_>, nest: &Nest) -> usize {
    let free = nest.free.iter().map(|axis: Axis| call.sizes[axis.index()]);
    call.batch.iter().copied().chain(free).fold(1, usize::saturating_mul)
}

/// The indices that all operands fit.
fn index_of(call: &Call<'_>, placed: &[Placed]) -> Index {
    let most = i32::MAX as usize;
    let far = |sizes: &[usize], strides: &[isize]| {
        let along = sizes.iter().zip(strides);
        along.fold(0usize, |far, (&size, stride)| {
            far.saturating_add(stride.unsigned_abs().saturating_mul(size.saturating_sub(1)))
        })
    };
    let reach =
        |one: &Placed| far(&call.batch, &one.lie.batch).saturating_add(far(&call.sizes, &one.lie.along));
    let all = call.batch.iter().chain(&call.sizes).fold(1usize, |all, &size| all.saturating_mul(size.max(1)));
    if all <= most && placed.iter().all(|one| reach(one) <= most) { Index::Bits32 } else { Index::Bits64 }
}

/// The structure `Layout` of kernels of nests.
fn layout(call: &Call<'_>, units: usize, placed: &[Placed], index: Index) -> Result<Vec<u8>> {
    let rank = call.batch.len();
    ensure!(rank <= MAX_RANK, Unimplemented, "a batch of {rank} dims has no CUDA kernel");
    let mut structure = Structure::new(index);
    structure.index(units as i128)?;
    for &size in call.sizes.iter().chain(call.sizes.is_empty().then_some(&1)) {
        structure.index(size as i128)?;
    }
    structure.int(rank as i32);
    for &dim in call.batch.iter().rev().chain(std::iter::repeat(&1)).take(MAX_RANK) {
        structure.index(dim as i128)?;
    }
    for one in placed {
        for &stride in one.lie.batch.iter().rev().chain(std::iter::repeat(&0)).take(MAX_RANK) {
            structure.index(stride as i128)?;
        }
    }
    for one in placed {
        for &stride in one.lie.along[..call.sizes.len().max(1)].iter() {
            structure.index(stride as i128)?;
        }
    }
    Ok(structure.finish_without_address())
}
