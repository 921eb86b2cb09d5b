//! Ops with CUDA kernels, as far as they go without a card: which kernel is launched how, with what, and what that computes.

use opsmith::DeviceKind;
use opsmith::cuda::{Arguments, CudaCall, CudaElement, DeviceView, DeviceViewMut, Index, Source};
use opsmith::ndarray::{Array1, Array2};
use opsmith::prelude::*;
use opsmith::testing::{Call, call};

/// `factor` times `x`, and a number for each row where there are such.
#[op(shape = "(n,p),(1),(n)->(n,p),(n,p)", cuda = "cuda/scaled.cu")]
fn scaled<T: Float>(
    cx: &Compute,
    x: ArrayView2<T>,
    #[host] factor: ArrayView1<f64>,
    row: Option<ArrayView1<T>>,
    #[attr(default = 64, min = 1)] threads: u32,
    mut z: ArrayViewMut2<T>,
    square: Option<ArrayViewMut2<T>>,
) {
    assert!(cx.num_threads() > 0 && threads > 0);
    let factor = T::from(factor[0]).unwrap_or_else(T::nan);
    z.assign(&x.mapv(|x| factor * x));
    if let Some(row) = row {
        z += &row.insert_axis(Axis(1));
    }
    if let Some(mut square) = square {
        square.assign(&z.mapv(|z| z * z));
    }
}

fn scaled_cuda<T: CudaElement + Float>(
    call: &CudaCall,
    x: DeviceView<T>,
    factor: ArrayView1<f64>,
    row: Option<DeviceView<T>>,
    threads: u32,
    z: DeviceViewMut<T>,
    square: Option<DeviceViewMut<T>>,
) -> Result<()> {
    assert!(call.device().kind == DeviceKind::Cuda && call.stream().is_null());
    let index = Index::of(&[&x, &z]);
    let [rows, _] = z.dims()?;
    let kernel = format!("scaled<{}, {}>", T::NAME, index.name());
    let launch = call.kernel(kernel).grid([rows, 1, 1]).block([threads, 1, 1]).tensor::<2>(&x, index);
    let launch = match &row {
        Some(row) => launch.tensor::<1>(row, index),
        // Nothing is read of it.
        None => launch.tensor::<1>(&call.temp::<T>(0)?, index),
    };
    let factor = T::from(factor[0]).unwrap_or_else(T::nan);
    let launch = launch.value(row.is_some()).value(factor).tensor::<2>(&z, index);
    let launch = match &square {
        Some(square) => launch.pointer(square),
        None => launch.address(std::ptr::null()),
    };
    // SAFETY: the arguments are those of the kernel, and it stays within `z` and what is as large.
    unsafe { launch.launch() }
}

#[test]
fn a_function_has_a_kernel_for_each_device() -> Result<()> {
    let op = scaled::def().build()?;
    let kernels: Vec<_> =
        op.kernels().iter().map(|kernel| (kernel.device(), kernel.constraints()[0].1)).collect();
    let (cpu, cuda) = (DeviceKind::Cpu, DeviceKind::Cuda);
    let expected =
        [(cpu, DType::Float32), (cuda, DType::Float32), (cpu, DType::Float64), (cuda, DType::Float64)];
    assert_eq!(kernels, expected);
    assert_eq!(op.kernels()[1].host_memory_arguments(), ["factor"]);
    Ok(())
}

/// The same call in several forms.
fn forms<'a>(
    x: &'a Array2<f64>,
    factor: &'a Array1<f64>,
    row: &'a Array1<f64>,
) -> Vec<Box<dyn Fn() -> Call<'a> + 'a>> {
    let begin = move || call::<scaled>().input(x).input(factor);
    vec![
        Box::new(move || begin().input(row)),
        Box::new(move || begin().absent().without("square")),
        Box::new(move || begin().input(row).attr("threads", 7).without("square")),
    ]
}

#[test]
fn both_kernels_compute_the_same() -> Result<()> {
    let x = Array2::from_shape_fn((5, 130), |(i, j)| (i * 1000 + j) as f64);
    let (factor, row) = (array![0.5], array![1.0, 2.0, 3.0, 4.0, 5.0]);
    for form in forms(&x, &factor, &row) {
        let expected = form().run()?;
        assert_eq!(
            form().compile_for_cuda()?.iter().filter(|kernel| *kernel != "scaled<double, int>").count(),
            0
        );
        let Some(outputs) = form().run_cuda_on_processor()? else { return Ok(()) };
        assert_eq!(outputs.has("square"), expected.has("square"));
        for name in ["z", "square"].into_iter().filter(|name| expected.has(name)) {
            assert_eq!(outputs.array::<f64, Ix2>(name)?, expected.array::<f64, Ix2>(name)?);
        }
    }
    Ok(())
}

#[test]
fn launches_are_what_the_function_says() -> Result<()> {
    let x = Array2::<f32>::zeros((3, 4));
    let (flipped, factor, row) = (x.slice(s![..;-1, ..]), array![2.0], array![1f32, 2.0, 3.0]);
    let mut seen = Vec::new();
    call::<scaled>().input(&flipped).input(&factor).input(&row).launches(&mut |launch| {
        assert!(launch.source.file().ends_with("crates/opsmith/tests/cuda/scaled.cu"), "{:?}", launch.source);
        assert_eq!((launch.grid, launch.block, launch.shared), ([3, 1, 1], [64, 1, 1], 0));
        assert_eq!(launch.arguments.bytes(2), [1]);
        assert_eq!(launch.arguments.bytes(3), 2f32.to_ne_bytes());
        let first = (flipped.as_ptr() as u64).to_ne_bytes();
        let rest = [3i32, 4, -4, 1].map(i32::to_ne_bytes).concat();
        assert_eq!(
            launch.arguments.bytes(0),
            [&first[..], &rest].concat(),
            "strides as they lie, nothing copied"
        );
        seen.push(launch.kernel.clone());
        Ok(())
    })?;
    assert_eq!(seen, ["scaled<float, int>"]);
    Ok(())
}

#[test]
fn what_is_checked_on_the_cpu_is_checked_for_a_card() {
    let (x, factor) = (Array2::<f32>::zeros((3, 4)), array![2.0]);
    let short = array![1f32];
    let form = || call::<scaled>().input(&x).input(&factor).input(&short);
    let mut sink = |_: &mut opsmith::cuda::Launch<'_>| Ok(());
    let (cpu, cuda) = (form().run().unwrap_err(), form().launches(&mut sink).unwrap_err());
    assert_eq!(cpu, cuda);
    assert!(cuda.message().contains("dim 0 of input `row` must equal"), "{cuda}");
    let error = call::<scaled>().input(&x).input(&factor).absent().attr("threads", 2000).launches(&mut sink);
    let error = error.unwrap_err();
    assert!(
        error.message().starts_with("Scaled: kernel `scaled<float, int>`: a block of [2000, 1, 1]"),
        "{error}"
    );
}

/// Without a driver the error says so; with one, the card would be asked for addresses of host memory, so it is not.
#[test]
fn without_a_driver_a_call_says_what_is_missing() {
    if opsmith::cuda::Driver::get().is_ok() {
        opsmith_cuda::testing::skipped("there is a driver: what a call says without one");
        return;
    }
    static SOURCE: Source = Source::new("a.cu", "");
    let launch = opsmith::cuda::Launch {
        source: &SOURCE,
        kernel: "a".to_owned(),
        grid: [1; 3],
        block: [1; 3],
        shared: 0,
        arguments: Arguments::default(),
    };
    // SAFETY: there is no driver, so nothing is launched.
    let error = unsafe { launch.run(0, std::ptr::null_mut()) }.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().starts_with("there is no NVIDIA driver on this machine"), "{error}");
}

static SOURCE: Source = Source::new("cuda/scaled.cu", include_str!("cuda/scaled.cu")).beside(file!());
static WRONG: Source = Source::new("cuda/wrong.cu", include_str!("cuda/wrong.cu")).beside(file!());

/// A kernel by hand: the sum of all elements.
struct Total;

impl OpDefinition for Total {
    fn def() -> OpDef {
        OpDef::new("Total")
            .attr("broken: bool = false")
            .input("x: double")
            .output("total: double")
            .shape_fn(shape_fns::scalar)
            .kernel(KernelDef::cuda::<TotalOnCuda>())
            .not_differentiable()
    }
}

struct TotalOnCuda {
    broken: bool,
}

impl OpKernel for TotalOnCuda {
    fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(TotalOnCuda { broken: construction.attr("broken")? })
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        const BLOCKS: usize = 3;
        let call = CudaCall::new(context, &SOURCE);
        let x = call.input::<f64>("x")?;
        let total = call.output::<f64>("total", &[])?;
        let sums = call.temp::<f64>(BLOCKS)?;
        let count =
            i32::try_from(x.num_elements()).map_err(|_| Error::invalid_argument("too many elements"))?;
        if self.broken {
            // SAFETY: it does not compile.
            return unsafe { CudaCall::new(context, &WRONG).kernel("wrong").pointer(&x).launch() };
        }
        let first = call.kernel("partial_sums").grid([BLOCKS, 1, 1]).pointer(&x).value(count).pointer(&sums);
        let second = call.kernel("partial_sums").pointer(&sums).value(BLOCKS as i32).pointer(&total);
        // SAFETY: the arguments are those of the kernel, which writes one number for each block.
        unsafe {
            first.launch()?;
            second.launch()
        }
    }
}

#[test]
fn a_kernel_by_hand_has_temporary_memory_and_several_launches() -> Result<()> {
    let x = Array1::from_shape_fn(10_000, |i| i as f64);
    assert!(call::<Total>().input(&x).run().unwrap_err().message().contains("has no CPU kernel"));
    if let Some(outputs) = call::<Total>().input(&x).run_cuda_on_processor()? {
        assert_eq!(outputs.array::<f64, Ix0>("total")?[()], 49_995_000.0);
    }
    let compiled = call::<Total>().input(&x).compile_for_cuda()?;
    assert!(compiled.is_empty() || compiled == ["partial_sums", "partial_sums"], "{compiled:?}");
    Ok(())
}

#[test]
fn a_kernel_that_does_not_compile_is_an_error_with_its_line() {
    let x = array![1.0];
    match call::<Total>().input(&x).attr("broken", true).compile_for_cuda() {
        Ok(kernels) => assert!(kernels.is_empty(), "there is no compiler"),
        Err(error) => {
            let message = error.message();
            assert!(message.starts_with("Total: "), "{message}");
            let place = "crates/opsmith/tests/cuda/wrong.cu(3): error: identifier \"undeclared\"";
            assert!(message.contains(place), "{message}");
        }
    }
}
