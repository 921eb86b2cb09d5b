//! Reductions on a card: the source that a graph with rows gives, a block of threads for each row.

use std::marker::PhantomData;

use opsmith_body::{Axes, CudaType};
use opsmith_core::tensor::row_major_strides;
use opsmith_core::{OpKernel, OpKernelConstruction, OpKernelContext, Result, bail, ensure};
use opsmith_cuda::{CudaCall, Index, Source, Structure};
use smallvec::SmallVec;

use super::{Computation, Operand, Reduction, Shapes, output_shapes};
use crate::axes::{Layout, Space};
use crate::cuda::{MAX_RANK, Sources, attributes, index_of, operands, push_dims, push_strides, sum_to, zero};
use crate::explain::cuda_type;
use crate::facts::{OutputShapes, shape_error};
use crate::nests::Placed;

/// The kernel of a reduction's gradient of an order on a card; of the reduction itself for order 0.
pub(super) struct CudaKernel<B, const ORDER: usize> {
    on_card: OnCard,
    body: PhantomData<fn() -> B>,
}

impl<B: Reduction, const ORDER: usize> OpKernel for CudaKernel<B, ORDER> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let on_card = OnCard::new(construction, Computation::new::<B, ORDER>(construction)?)?;
        Ok(CudaKernel { on_card, body: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        self.on_card.compute(context, output_shapes::<B>)
    }
}

/// What an instance computes with, whatever the reduction.
struct OnCard {
    computation: Computation,
    name: String,
    element: CudaType,
    sources: Sources,
}

/// Numbers that are summed up for an output which is smaller.
struct Sum {
    from: *mut u8,
    to: *mut u8,
    output: usize,
    kind: Axes,
}

impl OnCard {
    fn new(construction: &OpKernelConstruction<'_>, computation: Computation) -> Result<OnCard> {
        let signature = construction.signature();
        let Some(element) = cuda_type(computation.dtype) else {
            bail!(Internal, "{}: no body computes with {}", signature.name, computation.dtype);
        };
        Ok(OnCard { computation, name: signature.snake_name(), element, sources: Sources::default() })
    }

    fn compute(&self, context: &OpKernelContext<'_>, output_shapes: OutputShapes) -> Result<()> {
        let own = &self.computation;
        let Some(shapes) = own.shapes(context) else {
            return Err(shape_error(context, &own.attrs, &own.family, own.order, output_shapes));
        };
        let mut placed: SmallVec<[Placed; 8]> = SmallVec::new();
        for (input, argument) in own.family.inputs.iter().enumerate() {
            placed.push(match context.optional_input(input)? {
                Some(view) => {
                    let layout = Layout { shape: view.shape(), strides: view.strides() };
                    let (data, kind) = (view.data_ptr().cast_mut(), own.kind(argument.like));
                    shapes.placed(Operand { kind, data, layout })
                }
                None => shapes.absent(zero(context)?),
            });
        }
        let mut wanted: SmallVec<[usize; 8]> = SmallVec::new();
        let mut sums: SmallVec<[Sum; 4]> = SmallVec::new();
        for (output, argument) in own.family.outputs.iter().enumerate() {
            if !context.output_wanted(output)? {
                continue;
            }
            wanted.push(output);
            let kind = own.kind(argument.like);
            let shape = shapes.like(argument.like, kind).unwrap_or_default();
            let to = context.allocate_output(output, shape)?.data_ptr();
            let space = shapes.space(kind);
            let count: usize = space.iter().product();
            let (data, shape) = if shape.iter().product::<usize>() == count {
                (to, shape)
            } else {
                let from = context.device_temp(count.max(1) * own.dtype.size())?.as_ptr();
                sums.push(Sum { from, to, output, kind });
                (from, space)
            };
            let strides = row_major_strides(shape);
            placed.push(shapes.placed(Operand { kind, data, layout: Layout { shape, strides: &strides } }));
        }
        if wanted.is_empty() {
            return Ok(());
        }
        self.launch(context, &shapes, &wanted, &placed)?;
        for Sum { from, to, output, kind } in sums {
            let shape = shapes.like(own.family.outputs[output].like, kind).unwrap_or_default();
            sum_to(context, own.dtype, from, shapes.space(kind), to, shape)?;
        }
        Ok(())
    }

    fn launch(
        &self,
        context: &OpKernelContext<'_>,
        shapes: &Shapes<'_>,
        wanted: &[usize],
        placed: &[Placed],
    ) -> Result<()> {
        let cut = shapes.rows.len();
        let part = |range: std::ops::Range<usize>| {
            let shape = &shapes.all[range.clone()];
            let layouts: SmallVec<[Layout<'_>; 8]> = placed
                .iter()
                .map(|placed| Layout { shape, strides: &placed.strides[range.clone()] })
                .collect();
            Space::new(shape, &layouts)
        };
        let (rows, row) = (part(0..cut), part(cut..shapes.all.len()));
        let whole = Space::new(
            &shapes.all,
            &placed
                .iter()
                .map(|placed| Layout { shape: &shapes.all, strides: &placed.strides })
                .collect::<SmallVec<[Layout<'_>; 8]>>(),
        );
        let index = index_of(&whole, placed.len());
        let bits = wanted.iter().fold(0u64, |bits, output| bits | 1 << output);
        let (variant, suffix) = if index == Index::Bits32 { (0, 32) } else { (1, 64) };
        let graph = self.computation.programs.graph();
        let source = self.sources.get((bits, variant), || {
            let text = graph.with_outputs(wanted).rows_cuda_source(&self.name, self.element);
            Source::generated(format!("{}.cu", self.name), format!("#define ONLY {variant}\n{text}"))
        });
        // As many have room for all registers that a kernel may use.
        let threads = row.len().next_multiple_of(32).clamp(32, 256);
        let call = CudaCall::new(context, &source);
        let launch = call.kernel(format!("{}_rows_{suffix}", self.name));
        let launch = launch.grid([rows.len().min(1 << 16), 1, 1]).block([threads as u32, 1, 1]);
        let data: SmallVec<[*mut u8; 8]> = placed.iter().map(|placed| placed.data).collect();
        let launch = launch.raw(&operands(&data)).raw(&attributes(graph.attributes()));
        let launch = launch.raw(&layout(&rows, &row, placed.len(), index)?);
        // SAFETY: these are the parameters of the kernels that `Graph::rows_cuda_source` has; every operand is as large as rows
        // and positions, and its strides reach.
        unsafe { launch.launch() }
    }
}

/// The structure `Layout` of kernels with rows.
fn layout(rows: &Space, row: &Space, operands: usize, index: Index) -> Result<Vec<u8>> {
    let (row_rank, rank) = (rows.dims().len(), row.dims().len());
    ensure!(
        row_rank.max(rank) <= MAX_RANK,
        Unimplemented,
        "tensors that lie in {row_rank} and {rank} dims have no CUDA kernel; make them contiguous"
    );
    let mut structure = Structure::new(index);
    structure.index(rows.len() as i128)?.index(row.len() as i128)?;
    structure.int(row_rank as i32).int(rank as i32);
    for space in [rows, row] {
        push_dims(&mut structure, space)?;
    }
    for space in [rows, row] {
        push_strides(&mut structure, space, operands)?;
    }
    Ok(structure.finish_without_address())
}
