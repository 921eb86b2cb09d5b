//! Which of an op's kernels a call on a device gets, and where that reads its inputs, on a double of a device: kernels with
//! priorities, and lists in host memory.

use opsmith::prelude::*;
use opsmith_core::{DeviceKind, shape_fns};

use super::SessionOptions;
use super::device_tests::session_on;
use crate::device::tests::double_of;
use crate::{Arg, Graph, GraphArg, Library, Output, Tensor};

/// x times the sum of the sizes; what is on the double lies in host memory too.
struct Scaled;

impl OpKernel for Scaled {
    fn new(_: &mut OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Scaled)
    }

    fn compute(&self, context: &mut OpKernelContext<'_>) -> Result<()> {
        let x = context.input("x")?;
        let y = context.allocate_output("y", x.shape())?;
        let mut sum = 0;
        for size in context.input_list("sizes")? {
            // SAFETY: the test's sizes have one element, in host memory, whatever they are said to be on.
            sum += unsafe { size.data_ptr().cast::<i64>().read() };
        }
        for i in 0..x.num_elements() {
            // SAFETY: as above, of x and y, which are dense and of one shape.
            unsafe { *y.data_ptr().cast::<f32>().add(i) = *x.data_ptr().cast::<f32>().add(i) * sum as f32 };
        }
        Ok(())
    }
}

fn scaled(name: &str, kernels: impl IntoIterator<Item = KernelDef>) -> OpDef {
    OpDef::new(name)
        .attr("N: int >= 1")
        .input("x: float")
        .input("sizes: N * int64")
        .output("y: float")
        .shape_fn(shape_fns::unchanged)
        .kernel(KernelDef::cpu::<Scaled>())
        .kernels(kernels)
}

macro_rules! op {
    ($name:ident, $kernels:expr) => {
        struct $name;

        impl OpDefinition for $name {
            fn def() -> OpDef {
                scaled(stringify!($name), $kernels)
            }
        }
    };
}

op!(OnCpu, []);
op!(InMain, [KernelDef::cuda::<Scaled>().host_memory("sizes")]);
op!(
    Preferred,
    [
        KernelDef::cuda::<Scaled>(),
        KernelDef::cuda::<Scaled>().host_memory("sizes").priority(2),
        KernelDef::cuda::<Scaled>().priority(-1),
    ]
);
op!(First, [KernelDef::cuda::<Scaled>(), KernelDef::cuda::<Scaled>().host_memory("sizes")]);

opsmith::library! {
    name = "choices", version = "1.0.0", ops = [OnCpu, InMain, Preferred, First], embedded = true
}

fn choices() -> Library {
    // SAFETY: the macro made the table, and it is a static.
    unsafe { Library::from_table(table()) }.unwrap()
}

#[test]
fn of_several_kernels_the_librarys_choice_is_known() {
    let library = choices();
    let chosen = |name: &str| -> Vec<bool> {
        let op = library.op(name).unwrap();
        op.kernels(DeviceKind::Cuda).map(|kernel| kernel.reads_in_host_memory(1)).collect()
    };
    assert!(chosen("OnCpu").is_empty());
    assert_eq!(
        (chosen("InMain"), chosen("Preferred"), chosen("First")),
        (vec![true], vec![true], vec![false])
    );
    assert_eq!(library.op("OnCpu").unwrap().kernels(DeviceKind::Cpu).count(), 1);
}

#[test]
fn a_list_in_host_memory_is_given_as_it_is() {
    let (library, device) = (choices(), double_of(1 << 20, 0).0);
    let x = Tensor::from_slice(&[1f32, 2.0], &[2]).unwrap().to_cuda(&device).unwrap();
    let sizes = [3i64, 4].map(|size| Tensor::from_slice(&[size], &[1]).unwrap());
    let there = [sizes[0].to_cuda(&device).unwrap(), sizes[1].to_cuda(&device).unwrap()];
    let call = |name: &str, list: Arg<'_>| {
        let made = library.op(name).unwrap().call(&[(&x).into(), list], &[]);
        made.and_then(|made| made[0].to(opsmith_core::Device::CPU)?.to_vec::<f32>())
    };
    for name in ["InMain", "Preferred"] {
        assert_eq!(call(name, sizes[..].into()).unwrap(), [7.0, 14.0], "{name}");
        let error = call(name, there[..].into()).unwrap_err();
        assert!(error.message().contains("the CUDA kernel reads it in host memory"), "{error}");
    }
    assert_eq!(call("First", there[..].into()).unwrap(), [7.0, 14.0]);
    let error = call("First", sizes[..].into()).unwrap_err();
    assert!(
        error
            .message()
            .contains("First: input `sizes` must be on CUDA:0, where input `x` is, got one on CPU:0"),
        "{error}"
    );
}

#[test]
fn a_node_gets_the_kernel_that_the_library_takes() {
    let graph = Graph::new().device("cuda:0").unwrap();
    let x = graph.constant("x", Tensor::from_slice(&[1f32, 2.0], &[2]).unwrap()).unwrap();
    let size = graph.constant("size", Tensor::from_slice(&[3i64], &[1]).unwrap()).unwrap();
    let scaled = |name: &str| -> Output {
        let sizes = GraphArg::List(vec![size.clone()]);
        let call = graph.call(&choices().op(name).unwrap()).arg(&x).arg(sizes).build();
        call.and_then(|call| call.output(0)).unwrap()
    };
    let run = |name: &str, allow_soft_placement: bool| {
        let options = SessionOptions { allow_soft_placement, simplify: false, ..SessionOptions::default() };
        let (device, ledger) = double_of(1 << 20, 0);
        let session = session_on(&graph, &[device], options);
        let found = session.run(&[&scaled(name)], &[])?;
        let copied = ledger.copied_in.load(std::sync::atomic::Ordering::Relaxed);
        found[0].to_vec::<f32>().map(|found| (found, copied))
    };
    assert_eq!(run("Preferred", false).unwrap(), (vec![3.0, 6.0], 1), "x alone");
    assert_eq!(run("First", false).unwrap(), (vec![3.0, 6.0], 2), "the size too");
    let error = run("OnCpu", false).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("OnCpu: has no CUDA kernel; it is placed on cuda:0"), "{error}");
    assert_eq!(run("OnCpu", true).unwrap(), (vec![3.0, 6.0], 0), "on the CPU");
}
