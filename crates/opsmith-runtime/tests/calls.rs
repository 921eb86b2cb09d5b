//! Calls of test operators through the C ABI: values, lists, attributes, errors, gradients, shapes, threads.

mod common;

use common::library;
use ndarray::{Array, IxDyn, array};
use opsmith_core::attr::TensorValue;
use opsmith_core::{AttrValue, Code, DType, Device, DeviceKind, Error, Result, Shape, TensorView};
use opsmith_runtime::{Arg, CallInputs, Library, OutputMemory, Tensor};

fn call(op: &str, args: &[Arg<'_>], attrs: &[(&str, AttrValue)]) -> opsmith_core::Result<Vec<Tensor>> {
    library().op(op)?.call(args, attrs)
}

fn values<T: opsmith_core::Element>(tensor: &Tensor) -> Vec<T> {
    tensor.view::<T, IxDyn>().unwrap().iter().copied().collect()
}

#[test]
fn every_dtype_goes_in_and_comes_back() {
    for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::String) {
        let bytes: Vec<u8> = (0..6 * dtype.size()).map(|byte| (byte % 2) as u8).collect();
        let owner = std::sync::Arc::new(Tensor::from_slice(&bytes, &[bytes.len()]).unwrap());
        let data = owner.as_view().data_ptr();
        // SAFETY: the owner's block is aligned to 64 bytes, holds six elements, and zeros and ones are valid for all.
        let tensor = unsafe { Tensor::from_foreign(owner, data, dtype, &[2, 3], &[1, 2]) };
        let echo = &call("echo", &[(&tensor).into()], &[]).unwrap()[0];
        assert_eq!((echo.dtype(), echo.shape()), (dtype, &[2, 3][..]));
        assert_eq!(echo.as_view().data_ptr() as usize % 64, 0);
    }
}

#[test]
fn values_follow_strides_and_empty_tensors_stay_empty() {
    let x = array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let transposed = Tensor::from(x.clone().reversed_axes());
    let y = Tensor::from(array![[0.0, 0.0], [1.0, 1.0]]);
    let z = call("pairwise", &[(&transposed).into(), (&y).into()], &[]).unwrap();
    assert_eq!(values::<f64>(&z[0]), [5.0, 3.0, 7.0, 5.0, 9.0, 7.0]);
    let empty = Tensor::zeros(DType::Float64, &[0, 2]).unwrap();
    let z = call("pairwise", &[(&empty).into(), (&y).into()], &[]).unwrap();
    assert_eq!(z[0].shape(), [0, 2]);
}

#[test]
fn lists_and_optional_inputs_arrive() {
    let xs = [Tensor::from(array![1f32]), Tensor::from(array![[2f32, 3.0]])];
    let ys = call("double_all", &[Arg::List(&xs)], &[]).unwrap();
    assert_eq!((values::<f32>(&ys[0]), values::<f32>(&ys[1])), (vec![2.0], vec![4.0, 6.0]));
    let x = Tensor::from(array![1.0, 2.0]);
    let sum = call("add_optional", &[(&x).into(), (&x).into()], &[]).unwrap();
    assert_eq!(values::<f64>(&sum[0]), [2.0, 4.0]);
    let alone = call("add_optional", &[(&x).into(), Arg::Absent], &[]).unwrap();
    assert_eq!(values::<f64>(&alone[0]), [1.0, 2.0]);
}

#[test]
fn what_is_changed_in_place_is_nobody_elses() {
    let mut sum = Tensor::from_slice(&[1f32, 2.0], &[2]).unwrap();
    let (before, x) = (sum.clone(), Tensor::from(array![10f32, 20.0]));
    let error = call("add_into", &[(&sum).into(), (&x).into()], &[]).unwrap_err();
    assert_eq!(error.message(), "AddInto: input `sum` is changed in place; call it by `call_in_place`");
    let op = library().op("add_into").unwrap();
    let total = op.call_in_place(&mut [&mut sum], &[(&x).into()], &[]).unwrap();
    assert_eq!((values::<f32>(&sum), values::<f32>(&total[0])), (vec![11.0, 22.0], vec![33.0]));
    assert_eq!(values::<f32>(&before), [1.0, 2.0]);
    let alias = sum.clone();
    op.call_in_place(&mut [&mut sum], &[(&alias).into()], &[]).unwrap();
    assert_eq!((values::<f32>(&sum), values::<f32>(&alias)), (vec![22.0, 44.0], vec![11.0, 22.0]));
    let error = op.call_in_place(&mut [], &[(&x).into()], &[]).unwrap_err();
    assert_eq!(error.message(), "AddInto: changes 1 inputs in place, got 0");
}

#[test]
fn outputs_that_are_not_wanted_are_not_made() {
    let x = Tensor::from(array![3f32, 1.0, 2.0]);
    let op = library().op("extremes").unwrap();
    let outputs = op.call_wanted(&[(&x).into()], &[], 0b101).unwrap();
    let made: Vec<bool> = outputs.iter().map(Option::is_some).collect();
    assert_eq!(made, [true, false, true]);
    assert_eq!(values::<i64>(outputs[2].as_ref().unwrap()), [1, 0]);
}

#[test]
fn attributes_of_all_types_cross() {
    let constant = TensorValue {
        dtype: DType::Float32,
        shape: vec![2],
        bytes: [10f32, 20.0].map(f32::to_ne_bytes).concat(),
        strings: vec![],
    };
    let x = Tensor::from(array![1f32, 2.0]);
    let value = AttrValue::Tensor(std::sync::Arc::new(constant));
    let y = call("add_constant", &[(&x).into()], &[("value", value)]);
    assert!(y.is_ok(), "{y:?}");
    let made =
        call("make", &[], &[("T", AttrValue::Type(DType::Int32)), ("shape", AttrValue::Ints(vec![2, 1]))]);
    let made = &made.unwrap()[0];
    assert_eq!((made.shape(), values::<i32>(made)), (&[2, 1][..], vec![3, 3]));
}

#[test]
fn strings_arrive_whole() {
    let texts = Tensor::from_strings(&["", "zwölf", "a\0b"], &[3]).unwrap();
    let lengths = call("string_length", &[(&texts).into()], &[]).unwrap();
    assert_eq!(values::<i64>(&lengths[0]), [0, 6, 3]);
    let quoted = call("quote", &[(&texts).into()], &[]).unwrap();
    drop(texts);
    assert_eq!(quoted[0].strings().unwrap(), vec![&b"<>"[..], "<zwölf>".as_bytes(), b"<a\0b>"]);
}

#[test]
fn errors_have_their_code_and_name_the_op() {
    let x = Tensor::from(array![1f32]);
    let double = Tensor::from(array![[1.0]]);
    let text = |text: &str| AttrValue::String(text.into());
    let fails = |op: &str, args: &[Arg<'_>], attrs: &[(&str, AttrValue)]| call(op, args, attrs).unwrap_err();
    for (error, code, parts) in [
        (fails("fails", &[(&x).into()], &[]), Code::OutOfRange, ["Fails", "it failed"]),
        (fails("max", &[(&x).into()], &[]), Code::OutOfRange, ["Max: ", ": Maximum of 2 expected, got 3"]),
        (
            fails("panics", &[(&x).into()], &[("place", text("new"))]),
            Code::Internal,
            ["Panics", "no instance today"],
        ),
        (
            fails("panics", &[(&x).into()], &[("place", text("compute"))]),
            Code::Internal,
            ["Panics", "no result"],
        ),
        (
            fails("panics", &[(&x).into()], &[("place", text("thread"))]),
            Code::Internal,
            ["Panics", "no thread"],
        ),
        (
            fails("panics", &[(&x).into()], &[("place", text("here"))]),
            Code::InvalidArgument,
            ["`place`", "here"],
        ),
        (fails("panics", &[(&x).into()], &[]), Code::InvalidArgument, ["Panics", "`place`"]),
        (
            fails("panics", &[(&x).into()], &[("plaice", text("new"))]),
            Code::InvalidArgument,
            ["plaice", "place"],
        ),
        (
            fails("allocates", &[], &[("bytes", AttrValue::Int(1 << 60))]),
            Code::ResourceExhausted,
            ["Allocates", "allocate"],
        ),
        (fails("forgets", &[(&x).into()], &[]), Code::Internal, ["Forgets", "`y`"]),
        (
            fails("pairwise", &[(&double).into(), (&x).into()], &[]),
            Code::InvalidArgument,
            ["Pairwise", "`y`"],
        ),
        (
            fails("pairwise", &[(&double).into()], &[]),
            Code::InvalidArgument,
            ["Pairwise", "takes 2 inputs (x, y), got 1"],
        ),
        (fails("double_all", &[(&x).into()], &[]), Code::InvalidArgument, ["DoubleAll", "a list of tensors"]),
        (fails("double_all", &[Arg::List(&[])], &[]), Code::InvalidArgument, ["DoubleAll", "xs"]),
    ] {
        assert_eq!(error.code(), code, "{error}");
        for part in parts {
            assert!(error.message().contains(part), "{error} lacks {part}");
        }
    }
    let missing = library().op("nothing").unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert!(missing.message().ends_with("has no op `nothing`; it has 41 ops"), "{missing}");
}

/// Has no memory.
struct Nothing;

impl OutputMemory for Nothing {
    fn allocate(&mut self, _: usize, _: DType, _: &[usize]) -> Result<*mut u8> {
        Err(Error::resource_exhausted("there is nothing here"))
    }

    fn keep_string(&mut self, _: &[u8]) -> Result<*const u8> {
        Err(Error::unimplemented("there are no strings here"))
    }
}

#[test]
fn devices_that_differ_or_have_no_kernel_are_told() {
    let data = [1f32];
    let on = |kind| {
        let device = Device { kind, index: 0 };
        // SAFETY: one element; a call that is on CUDA in part is refused before anybody reads it.
        Some(unsafe {
            TensorView::from_raw_parts(data.as_ptr().cast(), DType::Float32, device, &[1, 1], &[1, 1])
        })
    };
    let call = |x, y| {
        let (flat, op) = ([on(x), on(y)], library().op("pairwise").unwrap());
        let inputs = CallInputs { flat: &flat, counts: &[1, 1] };
        // SAFETY: the op changes nothing in place.
        unsafe { op.call_into(inputs, &[], u64::MAX, &mut [0], &mut Nothing) }.unwrap_err()
    };
    for (x, y, code, message) in [
        (
            DeviceKind::Cpu,
            DeviceKind::Cuda,
            Code::InvalidArgument,
            "Pairwise: inputs are on CPU:0 and CUDA:0; all must be on one device",
        ),
        (DeviceKind::Cuda, DeviceKind::Cuda, Code::Unimplemented, "Pairwise: has no CUDA kernel"),
        (DeviceKind::Cpu, DeviceKind::Cpu, Code::ResourceExhausted, "Pairwise: there is nothing here"),
    ] {
        let error = call(x, y);
        assert_eq!((error.code(), &*error.message()), (code, message));
    }
}

#[test]
fn shapes_are_inferred_with_symbols() {
    let op = library().op("pairwise").unwrap();
    let shape = |text: &str| vec![text.parse::<Shape>().unwrap()];
    let float = || vec![DType::Float32];
    let outputs = op.infer_shapes(&[shape("[n,4]"), shape("[m,?]")], &[float(), float()], &[]).unwrap();
    assert_eq!(outputs, [shape("[n,m]")]);
    let error = op.infer_shapes(&[shape("[3,4]"), shape("[2,5]")], &[float(), float()], &[]).unwrap_err();
    assert!(error.message().contains("Pairwise"), "{error}");
    let error =
        op.infer_shapes(&[shape("[1,1]"), shape("[1,1]")], &[float(), float()], &[("no", AttrValue::Int(1))]);
    assert!(error.unwrap_err().message().contains("has no attribute `no`"));
}

#[test]
fn sixteen_threads_agree_with_one() {
    let x = Tensor::from(Array::from_shape_fn(1000, |i| i as f64));
    let op = library().op("squares").unwrap();
    let expected = values::<f64>(&op.call(&[(&x).into()], &[]).unwrap()[0]);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(values::<f64>(&op.call(&[(&x).into()], &[]).unwrap()[0]), expected);
                }
            });
        }
    });
}

#[test]
fn a_gradient_is_that_of_the_gradient_op_and_only_what_is_wanted() {
    let library = Library::open(common::path().with_file_name("libdistances.so")).unwrap();
    let op = library.op("pairwise_manhattan_distance").unwrap();
    let x = Tensor::from(array![[0.0, 5.0], [1.0, -2.0]]);
    let y = Tensor::from(array![[1.0, 1.0]]);
    let inputs = [Arg::from(&x), Arg::from(&y)];
    let z = op.call(&inputs, &[]).unwrap();
    assert_eq!(values::<f64>(&z[0]), [5.0, 3.0]);
    let z_grad = Tensor::from(array![[1.0], [10.0]]);
    let gradients =
        |wanted| op.gradient(&inputs, &[(&z[0]).into()], &[(&z_grad).into()], &[], wanted).unwrap();
    let all = gradients(u64::MAX);
    assert_eq!(values::<f64>(&all[0][0]), [-1.0, 1.0, 0.0, -10.0]);
    assert_eq!(values::<f64>(&all[1][0]), [1.0, 9.0]);
    let only_y = gradients(0b10);
    assert!(only_y[0].is_empty());
    assert_eq!(values::<f64>(&only_y[1][0]), [1.0, 9.0]);
    let error = op.gradient(&inputs, &[], &[(&z_grad).into()], &[], 1).unwrap_err();
    assert!(error.message().contains("has 1 outputs, got 0"), "{error}");
}

#[test]
fn an_op_without_a_gradient_says_so() {
    let x = Tensor::from(array![[1.0]]);
    let op = library().op("pairwise").unwrap();
    let inputs = [Arg::from(&x), Arg::from(&x)];
    let error = op.gradient(&inputs, &[(&x).into()], &[(&x).into()], &[], u64::MAX).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("Pairwise"), "{error}");
}
