//! The kernel of all compositions: runs the steps, each as a call of its op.

use std::alloc::{Layout, alloc, dealloc};
use std::cell::RefCell;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use opsmith::prelude::*;
use opsmith::{AttrValue, Device, DeviceKind};
use opsmith_core::Request;
use opsmith_core::fork::Mutex;
use opsmith_core::kernel::{CallInputs, Services};
use opsmith_core::tensor::row_major_strides;
use smallvec::SmallVec;

use super::Composition;
use super::entered::{check_shapes, enter};
use super::program::{Program, Taken, trace};
use super::trace::Origin;

/// How many programs a kernel keeps: one for each set of inputs that are present and outputs that are wanted.
const MAX_PROGRAMS: usize = 16;

/// The work of one unit that [`Compute::parallel_for`] hands out as one range.
const RANGE_COST: usize = 20_000;

/// The alignment of tensors within a composition.
const ALIGNMENT: usize = 64;

/// The kernel of the composition `C`, for some attributes.
pub(super) struct Kernel<C> {
    attrs: Vec<AttrValue>,
    programs: Mutex<Vec<(u64, u64, Arc<Program>)>>,
    composition: PhantomData<fn() -> C>,
}

impl<C: Composition> OpKernel for Kernel<C> {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        let names = construction.signature().attrs.iter().map(|attr| construction.attr(&attr.name));
        let attrs = names.collect::<Result<_>>()?;
        Ok(Kernel { attrs, programs: Mutex::new(Vec::new()), composition: PhantomData })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let _entered = enter(&context.signature().name)?;
        check_shapes(context)?;
        Run::new(context, &*self.program(context)?)?.all()
    }
}

impl<C: Composition> Kernel<C> {
    fn program(&self, context: &OpKernelContext<'_>) -> Result<Arc<Program>> {
        let signature = context.signature();
        let (mut present, mut wanted) = (0, 0);
        for (arg, def) in signature.inputs.iter().enumerate() {
            let is_there = def.count.is_list() || context.optional_input(arg)?.is_some();
            present |= u64::from(is_there) << arg;
        }
        for arg in 0..signature.outputs.len() {
            wanted |= u64::from(context.output_wanted(arg)?) << arg;
        }
        let is_it = |entry: &&(u64, u64, Arc<Program>)| (entry.0, entry.1) == (present, wanted);
        if let Some((_, _, program)) = self.programs.lock().iter().find(is_it) {
            return Ok(program.clone());
        }
        let program = Arc::new(Program::new(trace::<C>(signature, &self.attrs, present)?, wanted));
        let mut programs = self.programs.lock();
        if programs.len() == MAX_PROGRAMS {
            programs.clear();
        }
        programs.push((present, wanted, program.clone()));
        Ok(program)
    }
}

/// Memory of a tensor or of a step. On a device the caller takes it back by itself.
struct Buffer {
    data: NonNull<u8>,
    layout: Option<Layout>,
}

impl Buffer {
    fn new(bytes: usize) -> Result<Buffer> {
        let exhausted =
            || Error::resource_exhausted(format!("cannot allocate {bytes} bytes within a composition"));
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).map_err(|_| exhausted())?;
        // SAFETY: the size is not 0.
        let data = NonNull::new(unsafe { alloc(layout) }).ok_or_else(exhausted)?;
        Ok(Buffer { data, layout: Some(layout) })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: it was allocated with this layout.
            unsafe { dealloc(self.data.as_ptr(), layout) }
        }
    }
}

/// Dims or strides.
type Sizes<T> = SmallVec<[T; 6]>;

/// A value that has been made.
struct Tensor {
    data: *const u8,
    dtype: DType,
    device: Device,
    shape: Sizes<usize>,
    strides: Sizes<isize>,
    /// Its memory, where that is neither the caller's nor the program's.
    buffer: Option<Buffer>,
}

impl Tensor {
    fn borrowed(view: TensorView<'_>) -> Tensor {
        Tensor {
            data: view.data_ptr(),
            dtype: view.dtype(),
            device: view.device(),
            shape: view.shape().into(),
            strides: view.strides().into(),
            buffer: None,
        }
    }

    fn view(&self) -> TensorView<'_> {
        // SAFETY: the memory is the caller's or the program's and stays until the call ends, or is of the buffer; it was made for
        // this dtype and shape, and steps write to no tensor that another one reads.
        unsafe { TensorView::from_raw_parts(self.data, self.dtype, self.device, &self.shape, &self.strides) }
    }
}

/// One call of a composition.
struct Run<'r, 'a> {
    context: &'r OpKernelContext<'a>,
    program: &'r Program,
    values: Vec<Option<Tensor>>,
}

impl<'r, 'a> Run<'r, 'a> {
    fn new(context: &'r OpKernelContext<'a>, program: &'r Program) -> Result<Run<'r, 'a>> {
        let tensor = |origin: &Origin| {
            Ok(match origin {
                Origin::Input(arg, element) => {
                    context.input_list(*arg)?.get(*element).copied().map(Tensor::borrowed)
                }
                Origin::Constant(value) => Some(Tensor {
                    data: value.bytes.as_ptr(),
                    dtype: value.dtype,
                    device: Device::CPU,
                    shape: value.shape[..].into(),
                    strides: row_major_strides(&value.shape)[..].into(),
                    buffer: None,
                }),
                Origin::Step => None,
            })
        };
        let values = program.origins.iter().map(tensor).collect::<Result<_>>()?;
        Ok(Run { context, program, values })
    }

    fn all(mut self) -> Result<()> {
        let program = self.program;
        program.steps.iter().try_for_each(|taken| self.step(taken))
    }

    fn step(&mut self, taken: &Taken) -> Result<()> {
        let results: SmallVec<[usize; 4]> =
            taken.step.outputs.iter().flatten().map(|value| value.index).collect();
        let made = self.call(taken, &results)?;
        for (result, made) in results.into_iter().zip(made) {
            let Some(Made { mut tensor, donor }) = made else { continue };
            if let Some(donor) = donor {
                tensor.buffer = self.values[donor].take().and_then(|tensor| tensor.buffer);
            }
            self.values[result] = Some(tensor);
        }
        for &value in &taken.last {
            self.values[value] = None;
        }
        Ok(())
    }

    /// Calls the op of a step.
    fn call(&self, taken: &Taken, results: &[usize]) -> Result<SmallVec<[Option<Made>; 4]>> {
        let step = &taken.step;
        let reads: SmallVec<[Option<usize>; 8]> =
            step.inputs.iter().flatten().map(|value| value.map(|value| value.index)).collect();
        let view = |value: &Option<usize>| self.values[(*value)?].as_ref().map(Tensor::view);
        let flat: SmallVec<[Option<TensorView<'_>>; 8]> = reads.iter().map(view).collect();
        let inputs = CallInputs { flat: &flat, counts: &taken.counts };
        let services = StepServices {
            run: self,
            reads: &reads,
            results,
            last: &taken.last,
            made: RefCell::new(results.iter().map(|_| None).collect()),
            temps: RefCell::default(),
        };
        let device = self.context.device().kind;
        let plan = step.op.plan(&Request { inputs, attrs: &step.attrs, device })?;
        plan.run(&step.op, inputs, taken.wanted, &services)?;
        Ok(services.made.into_inner())
    }
}

/// An output of a step.
struct Made {
    tensor: Tensor,
    /// The value whose memory it has.
    donor: Option<usize>,
}

/// What a step may ask for: memory within the composition, and else what the caller of the composition lends.
struct StepServices<'s, 'r, 'a> {
    run: &'s Run<'r, 'a>,
    reads: &'s [Option<usize>],
    results: &'s [usize],
    last: &'s [usize],
    made: RefCell<SmallVec<[Option<Made>; 4]>>,
    temps: RefCell<Vec<Buffer>>,
}

impl StepServices<'_, '_, '_> {
    fn keep(&self, index: usize, tensor: Tensor, donor: Option<usize>) -> *mut u8 {
        let data = tensor.data.cast_mut();
        self.made.borrow_mut()[index] = Some(Made { tensor, donor });
        data
    }

    fn tensor(&self, data: *const u8, dtype: DType, shape: &[usize], buffer: Option<Buffer>) -> Tensor {
        let (shape, strides) = (shape.into(), row_major_strides(shape)[..].into());
        Tensor { data, dtype, device: self.run.context.device(), shape, strides, buffer }
    }
}

// SAFETY: each output has memory of its own, as large as its dtype and shape say and aligned to 64 bytes, or that the caller gives for
// an output of the composition. An input is forwarded that is read once in this call and by no later step, and whose memory is a buffer
// of this composition. Threads are the caller's.
unsafe impl Services for StepServices<'_, '_, '_> {
    fn device(&self) -> Device {
        self.run.context.device()
    }

    fn allocate_output(&self, index: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        if let Some((arg, element)) = self.run.program.destinations[self.results[index]] {
            let data = self.run.context.allocate_output_at(arg, element, shape)?.data_ptr();
            return Ok(self.keep(index, self.tensor(data, dtype, shape, None), None));
        }
        // The step has found that this does not overflow.
        let buffer = self.buffer(shape.iter().product::<usize>() * dtype.size())?;
        let data = buffer.data.as_ptr();
        Ok(self.keep(index, self.tensor(data, dtype, shape, Some(buffer)), None))
    }

    fn forward_input(&self, inputs: &[usize], output: usize) -> Option<(usize, *mut u8)> {
        if self.run.program.destinations[self.results[output]].is_some() {
            return None;
        }
        let made = self.made.borrow();
        let is_free = |input: &&usize| {
            let value = self.reads[**input]?;
            let tensor = self.run.values[value].as_ref()?;
            let is_once = self.reads.iter().filter(|other| **other == Some(value)).count() == 1;
            let is_given = made.iter().flatten().any(|made| made.donor == Some(value));
            let is_last = self.last.contains(&value);
            (is_once && is_last && !is_given && tensor.buffer.is_some()).then_some((value, tensor))
        };
        let (input, (value, tensor)) = inputs.iter().find_map(|input| Some((*input, is_free(&input)?)))?;
        drop(made);
        let taken = self.tensor(tensor.data, tensor.dtype, &tensor.shape, None);
        Some((input, self.keep(output, taken, Some(value))))
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        let buffer = Buffer::new(bytes)?;
        let data = buffer.data;
        self.temps.borrow_mut().push(buffer);
        Ok(data)
    }

    fn allocate_device_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.run.context.device_temp(bytes)
    }

    fn keep_string(&self, _: &[u8]) -> Result<NonNull<u8>> {
        Err(Error::unimplemented("a composition passes no text on"))
    }

    fn num_threads(&self) -> usize {
        self.run.context.num_threads()
    }

    fn parallel_for(&self, total: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        self.run.context.parallel_for(total, RANGE_COST.div_ceil(grain.max(1)), body);
    }

    fn stream(&self) -> *mut c_void {
        self.run.context.stream()
    }
}

impl StepServices<'_, '_, '_> {
    fn buffer(&self, bytes: usize) -> Result<Buffer> {
        match self.device().kind {
            DeviceKind::Cpu => Buffer::new(bytes),
            DeviceKind::Cuda => Ok(Buffer { data: self.allocate_device_temp(bytes)?, layout: None }),
        }
    }
}
