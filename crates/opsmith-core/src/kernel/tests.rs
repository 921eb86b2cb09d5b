//! What a kernel may and may not do with the memory of its inputs and outputs.

use std::cell::RefCell;
use std::ops::Range;
use std::ptr::NonNull;

use ndarray::Ix1;

use super::{
    CallInputs, Compute, Dense, KernelDef, OpKernel, OpKernelConstruction, OpKernelContext, Services,
};
use crate::tensor::{StrRef, TensorView};
use crate::{DType, Device, DeviceKind, Element, Error, Op, OpDef, Request, Result};

/// Lends zeroed memory in words of eight bytes, filled with `0xFF` where that is a value, and gives inputs away.
#[derive(Default)]
pub(super) struct Lender {
    blocks: RefCell<Vec<Vec<u64>>>,
    texts: RefCell<Vec<Box<[u8]>>>,
    /// The memory of the inputs that nobody else reads.
    to_give: Vec<Option<*mut u8>>,
    device: Option<Device>,
}

impl Lender {
    fn lend(&self, bytes: usize, byte: u8) -> *mut u8 {
        let mut blocks = self.blocks.borrow_mut();
        blocks.push(vec![u64::from_ne_bytes([byte; 8]); bytes / 8 + 1]);
        blocks.last_mut().map_or(std::ptr::null_mut(), |block| block.as_mut_ptr().cast())
    }

    /// The elements of what was lent last.
    pub(super) fn last<T: Element>(&self, count: usize) -> Vec<T> {
        let blocks = self.blocks.borrow();
        let last = blocks.last().unwrap();
        assert!(count * size_of::<T>() <= last.len() * 8);
        // SAFETY: the block has as many bytes, of plain numbers.
        unsafe { std::slice::from_raw_parts(last.as_ptr().cast(), count) }.to_vec()
    }
}

// SAFETY: every block is new, large enough for the small tensors below, and kept; the loop is one range.
unsafe impl Services for Lender {
    fn device(&self) -> Device {
        self.device.unwrap_or(Device::CPU)
    }

    fn allocate_output(&self, _: usize, dtype: DType, shape: &[usize]) -> Result<*mut u8> {
        let byte = if dtype == DType::String { 0 } else { 0xFF };
        Ok(self.lend(shape.iter().product::<usize>() * dtype.size(), byte))
    }

    fn forward_input(&self, inputs: &[usize], _: usize) -> Option<(usize, *mut u8)> {
        inputs.iter().find_map(|&input| Some((input, self.to_give.get(input).copied().flatten()?)))
    }

    fn allocate_temp(&self, bytes: usize) -> Result<NonNull<u8>> {
        NonNull::new(self.lend(bytes, 0xFF)).ok_or_else(|| Error::internal("no block"))
    }

    fn keep_string(&self, bytes: &[u8]) -> Result<NonNull<u8>> {
        let mut texts = self.texts.borrow_mut();
        texts.push(bytes.into());
        Ok(texts.last().map_or(NonNull::dangling(), |text| NonNull::from(&text[..]).cast()))
    }

    fn num_threads(&self) -> usize {
        1
    }

    fn parallel_for(&self, total: usize, _: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        body(0..total);
    }
}

/// A kernel that is a function.
macro_rules! kernel {
    ($name:ident, $body:expr) => {
        struct $name;

        impl OpKernel for $name {
            fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
                Ok($name)
            }

            fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
                let body: fn(&OpKernelContext<'_>) -> Result<()> = $body;
                body(context)
            }
        }
    };
}

pub(super) fn op<K: OpKernel>(dtype: &str) -> Op {
    let kernel = KernelDef::cpu::<K>();
    let def = OpDef::new("Test").input(&format!("x: {dtype}")).output(&format!("y: {dtype}")).kernel(kernel);
    def.build().unwrap()
}

pub(super) fn run(op: &Op, x: TensorView<'_>, services: &Lender) -> Result<()> {
    let flat = [Some(x)];
    let inputs = CallInputs { flat: &flat, counts: &[1] };
    op.plan(&Request { inputs, attrs: &[], device: DeviceKind::Cpu })?.run(op, inputs, u64::MAX, services)
}

kernel!(Double, |context| {
    let shape = context.input_shape(0)?;
    let (mut y, reused) = context.forward_input_or_allocate_output(&[0], 0, shape)?;
    let y = y.as_slice_mut::<f32>()?;
    if reused.is_some() {
        assert_eq!(context.input(0).unwrap_err().message(), "Test: input `x`: is an output now");
    } else {
        y.copy_from_slice(context.slice(0)?);
    }
    y.iter_mut().for_each(|y| *y *= 2.0);
    Ok(())
});

kernel!(ReadFirst, |context| {
    let x = context.slice::<f32>(0)?;
    let (mut y, reused) = context.forward_input_or_allocate_output(&[0], 0, &[x.len()])?;
    assert_eq!(reused, None);
    y.as_slice_mut::<f32>()?.copy_from_slice(x);
    Ok(())
});

#[test]
fn an_input_becomes_an_output_only_where_nobody_has_seen_it() {
    let mut data = [1f32, 2.0, 3.0, 4.0];
    let own = data.as_mut_ptr().cast::<u8>();
    let generous = || Lender { to_give: vec![Some(own)], ..Lender::default() };
    // SAFETY: shapes and strides stay within the array, which is written through `own` alone.
    let view = |shape, strides| unsafe {
        TensorView::from_raw_parts(own, DType::Float32, Device::CPU, shape, strides)
    };
    let read = || -> [f32; 4] {
        // SAFETY: the array is alive, and nobody writes to it now.
        unsafe { own.cast::<[f32; 4]>().read() }
    };
    run(&op::<Double>("float"), view(&[4], &[1]), &Lender::default()).unwrap();
    run(&op::<ReadFirst>("float"), view(&[4], &[1]), &generous()).unwrap();
    // A copy was made of what is not row-major: the original's memory would have other elements.
    run(&op::<Double>("float"), view(&[2], &[2]), &generous()).unwrap();
    assert_eq!(read(), [1.0, 2.0, 3.0, 4.0]);
    run(&op::<Double>("float"), view(&[4], &[1]), &generous()).unwrap();
    assert_eq!(read(), [2.0, 4.0, 6.0, 8.0]);
}

kernel!(Pass, |context| context.set_output(0, context.input(0)?));

#[test]
fn text_that_is_passed_on_is_the_outputs_own() {
    let text = b"text".to_vec();
    let refs = [StrRef { data: text.as_ptr(), len: text.len() }];
    // SAFETY: one element, whose text is alive.
    let x =
        unsafe { TensorView::from_raw_parts(refs.as_ptr().cast(), DType::String, Device::CPU, &[1], &[1]) };
    let services = Lender::default();
    run(&op::<Pass>("string"), x, &services).unwrap();
    let made = services.blocks.borrow()[0][0] as *const u8;
    assert_eq!(made, services.texts.borrow()[0].as_ptr());
    assert_ne!(made, text.as_ptr());
}

kernel!(Untouched, |context| {
    let y = context.output_view::<bool, Ix1>(0, &[3])?;
    assert!(y.iter().all(|y| !y));
    Ok(())
});

#[test]
fn a_bool_output_holds_values_before_it_is_written() {
    let x = [true];
    // SAFETY: one element.
    let x = unsafe { TensorView::from_raw_parts(x.as_ptr().cast(), DType::Bool, Device::CPU, &[1], &[1]) };
    run(&op::<Untouched>("bool"), x, &Lender::default()).unwrap();
}

#[test]
fn one_tensor_is_one() {
    let data = [1f32, 2.0];
    // SAFETY: one element.
    let x =
        unsafe { TensorView::from_raw_parts(data.as_ptr().cast(), DType::Float32, Device::CPU, &[], &[]) };
    let flat = [Some(x), Some(x)];
    let inputs = CallInputs { flat: &flat, counts: &[2] };
    let request = Request { inputs, attrs: &[], device: DeviceKind::Cpu };
    let error = op::<Pass>("float").plan(&request).err().unwrap();
    assert_eq!(error.message(), "Test: input `x` must be one tensor, got 2");
}

kernel!(Rotate, |context| {
    let error = context.input(0).unwrap_err();
    assert_eq!(error.message(), "Rotate: input `xs`: is a list; use `input_list`");
    let mut xs = context.input_list_mut("xs")?;
    assert!(context.input_list(0).is_err() && context.input_list_mut(0).is_err());
    let first = xs[0].as_slice_mut::<f32>()?[0];
    for i in 0..xs.len() {
        let next = if i + 1 < xs.len() { xs[i + 1].as_view().scalar()? } else { first };
        xs[i].as_slice_mut::<f32>()?[0] = next;
    }
    Ok(())
});

kernel!(ReadAndChange, |context| {
    let read = context.input_list("xs")?;
    let error = context.input_list_mut("xs").unwrap_err();
    assert_eq!(error.message(), "Rotate: input `xs`: is already being read; take it only with `input_mut`");
    drop(read);
    Ok(())
});

#[test]
fn a_list_is_changed_in_place_by_one_hand_alone() {
    let mut data = [1f32, 2.0, 3.0];
    let own = data.as_mut_ptr();
    // SAFETY: the positions are within the array, which is reached through `own` alone.
    let x =
        |at| unsafe { TensorView::from_raw_parts(own.add(at).cast(), DType::Float32, Device::CPU, &[], &[]) };
    let def = || OpDef::new("Rotate").attr("N: int").input("xs: Ref(N * float)");
    let run = |kernel: KernelDef, positions: [usize; 3]| {
        let op = def().kernel(kernel).build()?;
        let flat = positions.map(|at| Some(x(at)));
        let inputs = CallInputs { flat: &flat, counts: &[3] };
        let request = Request { inputs, attrs: &[None], device: DeviceKind::Cpu };
        op.plan(&request)?.run(&op, inputs, 0, &Lender::default())
    };
    run(KernelDef::cpu::<Rotate>(), [0, 1, 2]).unwrap();
    run(KernelDef::cpu::<ReadAndChange>(), [0, 1, 2]).unwrap();
    let error = run(KernelDef::cpu::<Rotate>(), [0, 1, 0]).unwrap_err();
    assert!(error.message().contains("`xs` is changed in place and shares memory"), "{error}");
    // SAFETY: the array is alive, and nobody writes to it now.
    assert_eq!(unsafe { own.cast::<[f32; 3]>().read() }, [2.0, 3.0, 1.0]);
}

const CARD: Device = Device { kind: DeviceKind::Cuda, index: 1 };

/// Looks at its arguments, as a launch does.
struct OnCard;

impl OpKernel for OnCard {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        assert_eq!(construction.device(), DeviceKind::Cuda);
        Ok(OnCard)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let (x, sizes) = (context.input("x")?, context.view::<f32, Ix1>("sizes")?);
        // The view has two elements, the dense tensor three.
        let stride = if x.shape() == [2] { 2 } else { 1 };
        assert_eq!((x.device(), x.strides(), sizes[0]), (CARD, &[stride][..], 7.0), "nothing is copied");
        let error = context.view::<f32, Ix1>("x").unwrap_err();
        assert_eq!(error.message(), "Placed: input `x`: expected a tensor in host memory, got one on CUDA");
        let error = context.device_temp(8).unwrap_err();
        assert_eq!(error.message(), "the caller provides no temporary memory on the device");
        let y = context.allocate_output("y", x.shape())?;
        assert_eq!(y.device(), CARD);
        Ok(())
    }
}

/// Asks for temporary memory.
struct Asks;

impl OpKernel for Asks {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Asks)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        context.device_temp(8).map(drop)
    }
}

#[test]
fn what_may_be_recorded_gets_no_temporary_memory() {
    let message = |kernel: KernelDef| {
        let op = OpDef::new("Asks").kernel(kernel).build().unwrap();
        let inputs = CallInputs { flat: &[], counts: &[] };
        let request = Request { inputs, attrs: &[], device: DeviceKind::Cuda };
        let plan = op.plan(&request).unwrap();
        let services = Lender { device: Some(CARD), ..Lender::default() };
        plan.run(&op, inputs, 0, &services).unwrap_err().to_string()
    };
    let plain = message(KernelDef::cuda::<Asks>());
    assert_eq!(plain, "Unimplemented: Asks: the caller provides no temporary memory on the device");
    let error = message(KernelDef::cuda::<Asks>().capturable());
    assert!(error.starts_with("Internal: Asks: the kernel is declared `capturable` but asks for"), "{error}");
}

#[test]
fn inputs_of_a_card_are_where_its_kernel_takes_them() {
    let def = || OpDef::new("Placed").input("x: float").input("sizes: float").output("y: float");
    let kernel = || KernelDef::cuda::<OnCard>();
    let op = def().kernel(kernel().host_memory("sizes")).build().unwrap();
    let (data, sizes) = ([0f32; 4], [7f32]);
    let view = |device, shift: usize| {
        // SAFETY: two elements of the array; of a shifted one nobody reads them.
        unsafe {
            TensorView::from_raw_parts(
                data.as_ptr().cast::<u8>().add(shift),
                DType::Float32,
                device,
                &[2],
                &[2],
            )
        }
    };
    let sizes_on = |device| {
        // SAFETY: one element.
        unsafe { TensorView::from_raw_parts(sizes.as_ptr().cast(), DType::Float32, device, &[1], &[1]) }
    };
    let run = |op: &Op, x, sizes| {
        let flat = [Some(x), Some(sizes)];
        let inputs = CallInputs { flat: &flat, counts: &[1, 1] };
        let plan = op.plan(&Request { inputs, attrs: &[], device: DeviceKind::Cuda })?;
        plan.run(op, inputs, u64::MAX, &Lender { device: Some(CARD), ..Lender::default() })
    };
    run(&op, view(CARD, 0), sizes_on(Device::CPU)).unwrap();
    let flat = [Some(view(CARD, 0)), Some(sizes_on(Device::CPU))];
    let inputs = CallInputs { flat: &flat, counts: &[1, 1] };
    let plan = op.plan(&Request { inputs, attrs: &[], device: DeviceKind::Cuda }).unwrap();
    let dense = |at: usize| match at {
        0 => Some(Dense { data: data.as_ptr().cast(), shape: &[3] }),
        _ => Some(Dense { data: sizes.as_ptr().cast(), shape: &[1] }),
    };
    let services = Lender { device: Some(CARD), ..Lender::default() };
    // SAFETY: there are as many elements.
    unsafe { plan.run_dense(&op, dense, u64::MAX, &services) }.unwrap();
    let wrong = |x, sizes| run(&op, x, sizes).unwrap_err().message().to_owned();
    assert_eq!(
        wrong(view(Device::CPU, 0), sizes_on(Device::CPU)),
        "Placed: input `x` is on CPU:0, but others are on CUDA:1; move it there"
    );
    assert_eq!(
        wrong(view(CARD, 0), sizes_on(CARD)),
        "Placed: input `sizes` is on CUDA:1; the CUDA kernel reads it in host memory"
    );
    assert_eq!(
        wrong(view(Device { index: 0, ..CARD }, 0), sizes_on(Device::CPU)),
        "Placed: input `x` is on CUDA:0, but others are on CUDA:1; move it there"
    );
    let message = wrong(view(CARD, 1), sizes_on(Device::CPU));
    assert!(message.starts_with("Placed: input `x` is not aligned for its dtype"), "{message}");
    let without = def().kernel(KernelDef::cpu::<OnCard>()).build().unwrap();
    let error = run(&without, view(CARD, 0), sizes_on(CARD)).unwrap_err();
    assert_eq!(error.to_string(), "Unimplemented: Placed: has no CUDA kernel");
    let error = def().kernel(kernel().host_memory("y")).build().err().unwrap();
    assert_eq!(error.message(), "Placed: a kernel keeps `y` in host memory, which is not an input");
}

kernel!(Leave, |context| {
    context.allocate_output(0, &[2])?;
    Ok(())
});

#[test]
fn an_output_that_nobody_wants_need_not_be_written() {
    let def = OpDef::new("Test").input("x: float").output("y: float").optional("y");
    let op = def.kernel(KernelDef::cpu::<Leave>()).build().unwrap();
    let data = [1f32, 2.0];
    // SAFETY: the array has as many elements.
    let x =
        unsafe { TensorView::from_raw_parts(data.as_ptr().cast(), DType::Float32, Device::CPU, &[2], &[1]) };
    let flat = [Some(x)];
    let inputs = CallInputs { flat: &flat, counts: &[1] };
    let plan = op.plan(&Request { inputs, attrs: &[], device: DeviceKind::Cpu }).unwrap();
    let run = |wanted| plan.run(&op, inputs, wanted, &Lender::default());
    run(0).unwrap();
    assert_eq!(run(1).is_err(), cfg!(debug_assertions));
}

/// A caller with two threads, and nothing to lend.
struct Two;

// SAFETY: it lends no memory, and the scope ends when all ranges are done.
unsafe impl Services for Two {
    fn allocate_output(&self, _: usize, _: DType, _: &[usize]) -> Result<*mut u8> {
        Err(Error::internal("no outputs here"))
    }

    fn allocate_temp(&self, _: usize) -> Result<NonNull<u8>> {
        Err(Error::internal("no memory here"))
    }

    fn keep_string(&self, _: &[u8]) -> Result<NonNull<u8>> {
        Err(Error::internal("no strings here"))
    }

    fn num_threads(&self) -> usize {
        2
    }

    fn parallel_for(&self, total: usize, grain: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        std::thread::scope(|scope| {
            for begin in (0..total).step_by(grain) {
                scope.spawn(move || body(begin..total.min(begin + grain)));
            }
        });
    }
}

#[test]
fn two_functions_are_joined() {
    let barrier = std::sync::Barrier::new(2);
    let (mut numbers, text) = ([1, 2, 3], String::from("moved"));
    // Each waits for the other, so they are on two threads.
    let (sum, text) = Compute::new(&Two).join(
        || {
            barrier.wait();
            numbers[0] = 7;
            numbers.iter().sum::<i32>()
        },
        || {
            barrier.wait();
            text
        },
    );
    assert_eq!((sum, text.as_str(), numbers[0]), (12, "moved", 7));
    assert_eq!(Compute::new(&Lender::default()).join(|| 1, || "two"), (1, "two"));
    let error = crate::panic::catch(|| {
        Compute::new(&Two).join(|| assert_eq!(numbers[1], 0, "in the first"), || ());
        Ok(())
    });
    assert!(error.unwrap_err().message().contains("in the first"));
}
