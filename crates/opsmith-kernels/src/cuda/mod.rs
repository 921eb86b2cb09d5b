//! What one-body kernels on a card have in common: their sources, made once, operands as they lie, sums over dims.

use std::sync::Arc;

use opsmith_core::fork::Mutex;
use opsmith_core::tensor::row_major_strides;
use opsmith_core::{DType, OpKernelContext, Result, TensorView, bail, ensure};
use opsmith_cuda::{CudaCall, CudaElement, DeviceView, Index, Source, Structure};
use smallvec::SmallVec;

use crate::axes::Space;

/// The most dims that a kernel goes through.
pub(crate) const MAX_RANK: usize = 8;

static SUMS: Source = Source::new("sums.cu", include_str!("sums.cu")).beside(file!());

/// The name of a dtype's elements in `opsmith.cuh`.
fn element(dtype: DType) -> Result<&'static str> {
    Ok(match dtype {
        DType::Float32 => "float",
        DType::Float64 => "double",
        DType::Float16 => "opsmith::half",
        DType::BFloat16 => "opsmith::bfloat16",
        other => bail!(Internal, "no body computes with {other}"),
    })
}

/// What tells an instance's sources apart.
type Key = (u64, usize);

/// Sources that an instance has made.
#[derive(Default)]
pub(crate) struct Sources {
    made: Mutex<Vec<(Key, Arc<Source>)>>,
}

impl Sources {
    /// The source of this key, made at its first use.
    pub(crate) fn get(&self, key: Key, make: impl FnOnce() -> Source) -> Arc<Source> {
        let find = |made: &[(Key, Arc<Source>)]| {
            made.iter().find(|(known, _)| *known == key).map(|(_, source)| source.clone())
        };
        if let Some(source) = find(&self.made.lock()) {
            return source;
        }
        let source = Arc::new(make());
        let mut made = self.made.lock();
        // Another thread may have made it meanwhile; all launches have one, by which its kernel is known.
        find(&made).unwrap_or_else(|| {
            made.push((key, source.clone()));
            source.clone()
        })
    }
}

/// The indices that all operands of a space fit.
pub(crate) fn index_of(space: &Space, operands: usize) -> Index {
    let most = i32::MAX as usize;
    let reaches = |operand: usize| {
        let along = space.dims().iter().zip(space.strides(operand));
        let far = along.fold(0usize, |far, (&dim, stride)| {
            far.saturating_add(stride.unsigned_abs().saturating_mul(dim.saturating_sub(1)))
        });
        far <= most
    };
    if space.len() <= most && (0..operands).all(reaches) { Index::Bits32 } else { Index::Bits64 }
}

/// Addresses, a structure of them.
pub(crate) fn operands(data: &[*mut u8]) -> Vec<u8> {
    let mut structure = Structure::new(Index::Bits64);
    for &data in data {
        structure.address(data.cast());
    }
    structure.finish()
}

/// The values of a body's attributes, at least one.
pub(crate) fn attributes(values: &[(&'static str, f64)]) -> Vec<u8> {
    let mut structure = Structure::new(Index::Bits64);
    for &(_, value) in values {
        structure.double(value);
    }
    if values.is_empty() {
        structure.double(0.0);
    }
    structure.finish()
}

/// A place to read zero from, for what is absent.
pub(crate) fn zero(context: &OpKernelContext<'_>) -> Result<*mut u8> {
    let place = context.device_temp(16)?.as_ptr();
    zeros(context, place, 16)?;
    Ok(place)
}

/// Sets bytes on a card to zero.
pub(crate) fn zeros(context: &OpKernelContext<'_>, to: *mut u8, bytes: usize) -> Result<()> {
    let call = CudaCall::new(context, &SUMS);
    // By words where they are as many; memory of hosts is aligned to more than that.
    let (element, count) = match bytes % 4 {
        0 => ("unsigned", bytes / 4),
        _ => ("unsigned char", bytes),
    };
    let launch =
        call.kernel(format!("zeros<{element}>")).for_each(count).address(to.cast()).value(count as i64);
    // SAFETY: these are the kernel's parameters, and there are so many elements.
    unsafe { launch.launch() }
}

/// Copies a tensor to where its elements lie one after another.
pub(crate) fn copy<T: CudaElement>(
    context: &OpKernelContext<'_>,
    tensor: TensorView<'_>,
    to: *mut u8,
) -> Result<()> {
    let (call, view) = (CudaCall::new(context, &SUMS), DeviceView::<T>::new(tensor)?);
    let index = Index::of(&[&view]);
    let launch = call.kernel(format!("copy<{}, {}>", T::NAME, index.name()));
    let launch = launch.for_each(view.num_elements()).flat(&view, index).address(to.cast());
    // SAFETY: these are the kernel's parameters, and there is room for as many elements.
    unsafe { launch.launch() }
}

/// Dims of a dense array, the last first.
type Dims = SmallVec<[(usize, isize); 8]>;

/// Adds up what lies dense in `from`, of shape `all`, to an output of a shape that broadcasts to it.
pub(crate) fn sum_to(
    context: &OpKernelContext<'_>,
    dtype: DType,
    from: *mut u8,
    all: &[usize],
    to: *mut u8,
    shape: &[usize],
) -> Result<()> {
    let strides = row_major_strides(all);
    let (mut kept, mut summed): (Dims, Dims) = Default::default();
    for dim in (0..all.len()).rev() {
        let own = (dim + shape.len()).checked_sub(all.len()).map_or(1, |own| shape[own]);
        let part = if own == all[dim] { &mut kept } else { &mut summed };
        if all[dim] == 1 {
            continue;
        }
        match part.last_mut() {
            Some((inner, stride)) if *stride * *inner as isize == strides[dim] => *inner *= all[dim],
            _ => part.push((all[dim], strides[dim])),
        }
    }
    let count = |part: &Dims| part.iter().map(|(dim, _)| dim).product::<usize>();
    let whole: usize = all.iter().product();
    let index = if whole.max(count(&kept)) <= i32::MAX as usize { Index::Bits32 } else { Index::Bits64 };
    let (element, name) = (element(dtype)?, index.name());
    // Threads side by side read side by side, where they can.
    let many = count(&kept) >= 4096 && kept.first().is_some_and(|(_, stride)| *stride == 1);
    let call = CudaCall::new(context, &SUMS);
    let launch = match many || count(&summed) < 32 {
        true => call.kernel(format!("sums_by_thread<{element}, {name}>")).for_each(count(&kept)),
        false => {
            let blocks = count(&kept).min(1 << 16);
            call.kernel(format!("sums_by_block<{element}, {name}>")).grid([blocks, 1, 1])
        }
    };
    let launch = launch.address(from.cast()).address(to.cast());
    let launch = launch.raw(&packed(&kept, index)?).raw(&packed(&summed, index)?);
    // SAFETY: these are the kernel's parameters; places are within the array, and there is an output for each that is kept.
    unsafe { launch.launch() }
}

/// The structure `Dims`.
fn packed(part: &Dims, index: Index) -> Result<Vec<u8>> {
    ensure!(part.len() <= MAX_RANK, Unimplemented, "sums over so many dims have no CUDA kernel");
    let mut structure = Structure::new(index);
    structure.index(part.iter().map(|(dim, _)| *dim as i128).product())?.int(part.len() as i32);
    let padded = || part.iter().copied().chain(std::iter::repeat((1, 0))).take(MAX_RANK);
    for (dim, _) in padded() {
        structure.index(dim as i128)?;
    }
    for (_, stride) in padded() {
        structure.index(stride as i128)?;
    }
    Ok(structure.finish_without_address())
}

/// The structure `Layout` of pointwise kernels: how many elements, how many dims, these, and strides for each operand.
pub(crate) fn layout(space: &Space, operands: usize, index: Index) -> Result<Vec<u8>> {
    let rank = space.dims().len();
    ensure!(
        rank <= MAX_RANK,
        Unimplemented,
        "tensors that lie in {rank} dims have no CUDA kernel; make them contiguous"
    );
    let mut structure = Structure::new(index);
    structure.index(space.len() as i128)?.int(rank as i32);
    push_dims(&mut structure, space)?;
    push_strides(&mut structure, space, operands)?;
    Ok(structure.finish_without_address())
}

/// Adds the dims of a space, as many as kernels have.
pub(crate) fn push_dims(structure: &mut Structure, space: &Space) -> Result<()> {
    for &dim in space.dims().iter().chain(std::iter::repeat(&1)).take(MAX_RANK) {
        structure.index(dim as i128)?;
    }
    Ok(())
}

/// Adds the strides of the operands of a space.
pub(crate) fn push_strides(structure: &mut Structure, space: &Space, operands: usize) -> Result<()> {
    for operand in 0..operands {
        for &stride in space.strides(operand).iter().chain(std::iter::repeat(&0)).take(MAX_RANK) {
            structure.index(stride as i128)?;
        }
    }
    Ok(())
}
