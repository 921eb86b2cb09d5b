//! Ops made by `#[op]`, called through the core.

use opsmith::prelude::*;
use opsmith::testing::{self, call};
use opsmith::{DeviceKind, Library, ndarray};

/// Distances between the rows of `x` and those of `y`.
///
/// # Arguments
/// - `x`: Points, one a row.
/// - `y`: Other points.
#[op(shape = "(n,p),(m,p)->(n,m)", gradient = distance_grad)]
fn distance<T: Float>(
    cx: &Compute,
    x: ArrayView2<T>,
    y: ArrayView2<T>,
    /// Every pair's.
    z: ArrayViewMut2<T>,
) -> Result<()> {
    cx.parallel_over(z, Axis(0), y.len(), |range, mut z| {
        for ((i, j), z) in z.indexed_iter_mut() {
            let (x, y) = (x.row(range.start + i), y.row(j));
            *z = x.iter().zip(y).fold(T::zero(), |sum, (&x, &y)| sum + (x - y).abs());
        }
    });
    Ok(())
}

#[op(shape = "(n,p),(m,p),(n,m)->(n,p),(m,p)")]
fn distance_grad<T: Float>(
    x: ArrayView2<T>,
    y: ArrayView2<T>,
    z_grad: ArrayView2<T>,
    #[attr(default = 1)] _a: i64,
    x_grad: Option<ArrayViewMut2<T>>,
    y_grad: Option<ArrayViewMut2<T>>,
) {
    let sign = |a: T, b: T| {
        if a > b {
            T::one()
        } else if a < b {
            -T::one()
        } else {
            T::zero()
        }
    };
    for (grad, first) in [(x_grad, true), (y_grad, false)] {
        let Some(mut grad) = grad else { continue };
        grad.fill(T::zero());
        for ((i, j), &z) in z_grad.indexed_iter() {
            let (own, other) = if first { (x.row(i), y.row(j)) } else { (y.row(j), x.row(i)) };
            let row = grad.row_mut(if first { i } else { j });
            azip!((g in row, &a in &own, &b in &other) *g += z * sign(a, b));
        }
    }
}

/// Everything that a parameter can be.
#[op(shape = "(n),(n),()->(n),(3),(k)", name = "Kinds", dtypes(S = [i32, i64]), not_differentiable, stateful)]
#[allow(clippy::unnecessary_wraps)]
fn all_kinds<T: AnyFloat, S: Integer, R: Number>(
    out: ArrayViewMut1<R>,
    x: ArrayView1<T>,
    index: Option<ArrayView1<S>>,
    #[attr(min = 1, max = 9)] k: usize,
    flag: ArrayView0<bool>,
    #[attr(default = "mean", one_of = ["sum", "mean"])] mode: &str,
    #[attr(default = [1, 2, 3])] sizes: &[i64],
    #[attr(default = -0.5)] shift: f64,
    #[attr(default = f32)] dtype: DType,
    #[attr(default = ["a"])] names: Vec<String>,
    #[saved] facts: ArrayViewMut1<i64>,
    filled: Option<ArrayViewMutD<f64>>,
) -> Result<()> {
    let (mut out, mut facts) = (out, facts);
    ensure!(flag[[]], FailedPrecondition, "the flag is off");
    out.fill(R::one());
    let index = index.map_or(-1, |index| index.iter().filter_map(|i| i.to_i64()).sum());
    let text = mode.len() + names.concat().len() + dtype.name().len();
    facts.assign(&ndarray::arr1(&[x.len() as i64, index, sizes.iter().sum::<i64>() + text as i64]));
    if let Some(mut filled) = filled {
        filled.fill(shift * k as f64);
    }
    Ok(())
}

/// With batch dims and arithmetic in the shapes.
#[op(shape = "(...,n),()->(...,2*n+1)", strided)]
fn spread(x: ArrayViewD<f32>, by: ArrayView0<f32>, mut z: ArrayViewMutD<f32>) {
    z.fill(by[[]]);
    for (mut z, x) in z.rows_mut().into_iter().zip(x.rows()) {
        z.slice_mut(s![1..;2]).assign(&x);
    }
}

fn library() -> Library {
    let defs = vec![distance::def(), distance_grad::def(), all_kinds::def(), spread::def()];
    Library::new("test", "1.0.0", defs).unwrap()
}

#[test]
fn the_definition_is_read_off_the_function() {
    let library = library();
    let op = library.op("distance").unwrap();
    let signature = op.signature();
    assert_eq!(signature.doc, "Distances between the rows of `x` and those of `y`.");
    let docs: Vec<&str> =
        signature.inputs.iter().chain(&signature.outputs).map(|arg| arg.doc.as_str()).collect();
    assert_eq!(docs, ["Points, one a row.", "Other points.", "Every pair's."]);
    assert_eq!(op.gradient_wiring().unwrap().op, "DistanceGrad");
    let kinds = library.op("Kinds").unwrap();
    let attrs: Vec<String> = kinds.signature().attrs.iter().map(ToString::to_string).collect();
    let expected = [
        "k: int >= 1 <= 9",
        "mode: {'sum', 'mean'} = 'mean'",
        "sizes: list(int) = [1, 2, 3]",
        "shift: float = -0.5",
        "dtype: type = DT_FLOAT",
        "names: list(string) = ['a']",
    ];
    assert_eq!(attrs[..6], expected);
    assert!(
        kinds.signature().stateful
            && kinds.signature().outputs[1].saved
            && kinds.signature().outputs[2].optional
    );
    assert_eq!(kinds.kernels().len(), 4 * 2 * 14);
}

#[test]
fn a_gradient_computes_what_is_wanted() {
    let (x, y) = (array![[0.0, 1.0], [2.0, 4.0]], array![[1.0, 1.0]]);
    let z = call::<distance>().input(&x).input(&y).threads(2).run().unwrap();
    assert_eq!(z.array::<f64, Ix2>("z").unwrap(), array![[1.0], [4.0]]);
    let z_grad = array![[1.0], [10.0]];
    let gradient = || call::<distance_grad>().input(&x).input(&y).input(&z_grad);
    let both = gradient().run().unwrap();
    assert_eq!(both.array::<f64, Ix2>("x_grad").unwrap(), array![[-1.0, 0.0], [10.0, 10.0]]);
    assert_eq!(both.array::<f64, Ix2>("y_grad").unwrap(), array![[-9.0, -10.0]]);
    let one = gradient().without("x_grad").run().unwrap();
    assert!(!one.has("x_grad") && one.has("y_grad"));
}

#[test]
fn every_kind_of_parameter_arrives() {
    let x = ndarray::arr1(&[opsmith::dtype::f16::ONE; 4]);
    let index = array![3i64, 4, 5, 6];
    let flag = ndarray::arr0(true);
    let kinds =
        || call::<all_kinds>().input(&x).input(&index).input(&flag).attr("R", DType::UInt8).attr("k", 2);
    let outputs = kinds().run().unwrap();
    assert_eq!(outputs.array::<u8, Ix1>("out").unwrap(), array![1, 1, 1, 1]);
    assert_eq!(outputs.array::<i64, Ix1>("facts").unwrap(), array![4, 18, 6 + 4 + 1 + 7]);
    assert_eq!(outputs.array::<f64, Ix1>("filled").unwrap(), array![-1.0, -1.0]);
    let without =
        call::<all_kinds>().input(&x).absent().input(&flag).attr("R", DType::Int8).attr("S", DType::Int32);
    let without =
        without.attr("k", 1).attr("mode", "sum").attr("sizes", vec![5]).without("filled").run().unwrap();
    assert_eq!(without.array::<i64, Ix1>("facts").unwrap(), array![4, -1, 5 + 3 + 1 + 7]);
    let off = ndarray::arr0(false);
    let error =
        call::<all_kinds>().input(&x).input(&index).input(&off).attr("R", DType::Int8).attr("k", 1).run();
    assert_eq!(error.unwrap_err().to_string(), "FailedPrecondition: Kinds: the flag is off");
    for (attr, value, message) in
        [("k", 10, "at most 9"), ("k", 0, "at least 1"), ("zz", 1, "no attribute `zz`")]
    {
        let error = kinds().attr(attr, value).run().unwrap_err();
        assert!(error.message().contains(message), "{error}");
    }
}

#[test]
fn batch_dims_and_arithmetic_shape_the_output() {
    let x = array![[[1f32, 2.0]], [[3.0, 4.0]]];
    let by = ndarray::arr0(0f32);
    let z = call::<spread>().input(&x).input(&by).run().unwrap().array::<f32, Ix3>("z").unwrap();
    assert_eq!(z, array![[[0.0, 1.0, 0.0, 2.0, 0.0]], [[0.0, 3.0, 0.0, 4.0, 0.0]]]);
    let turned = x.t();
    let z = call::<spread>().input(&turned).input(&by).run().unwrap();
    assert_eq!(z.array::<f32, IxDyn>("z").unwrap().shape(), [2, 1, 5]);
}

#[test]
fn shapes_and_dtypes_that_do_not_fit_are_named() {
    let (x, y) = (array![[0f32, 1.0]], array![[0f32, 1.0, 2.0]]);
    let error = call::<distance>().input(&x).input(&y).run().unwrap_err();
    assert!(error.message().starts_with("Distance: ") && error.message().contains("`y`"), "{error}");
    let ints = array![[0, 1]];
    let error = call::<distance>().input(&ints).input(&ints).run().unwrap_err();
    assert!(error.message().contains("float32, float64") && error.message().contains("int32"), "{error}");
    let flat = array![0f32];
    let error = call::<distance>().input(&flat).input(&x).run().unwrap_err();
    assert!(error.message().contains("`x`") && error.message().contains('2'), "{error}");
}

#[test]
fn what_a_test_asks_for_wrongly_is_named() {
    let x = array![[0f32, 1.0]];
    let outputs = call::<distance>().input(&x).input(&x).run().unwrap();
    let rank = outputs.array::<f32, Ix1>("z").unwrap_err().message();
    assert_eq!(rank, "Distance: output `z`: expected rank 1, got rank 2 (shape [1, 1])");
    let dtype = outputs.array::<f64, Ix2>("z").unwrap_err().message();
    assert_eq!(dtype, "Distance: output `z`: expected dtype float64, got float32");
    let name = outputs.array::<f32, Ix2>("y").unwrap_err().message();
    assert_eq!(name, "Distance: there is no output `y`; the op has `z`");
    let attr = call::<all_kinds>().input(&x).attr("shfit", 2.0).run().map(drop).unwrap_err().message();
    assert!(attr.starts_with("Kinds: has no attribute `shfit`; it has: "), "{attr}");
    assert!(attr.ends_with("did you mean `shift`?"), "{attr}");
}

#[test]
fn the_function_is_still_one() {
    let (x, by) = (array![1f32].into_dyn(), ndarray::arr0(7f32));
    let mut z = ndarray::ArrayD::zeros(IxDyn(&[3]));
    spread(x.view(), by.view(), z.view_mut());
    assert_eq!(z, array![7.0, 1.0, 7.0].into_dyn());
}

#[test]
fn a_panic_is_an_error_and_an_element_forgotten_is_nan() {
    #[op(shape = "(n)->(n)")]
    fn hasty<T: Float>(x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
        assert!(x.len() > 1, "too few");
        z[0] = x[0];
    }
    let error = call::<hasty>().input(&array![1f32]).run().unwrap_err();
    assert!(error.code() == Code::Internal && error.message().contains("too few"), "{error}");
    let z = call::<hasty>().input(&array![1f32, 2.0]).run().unwrap().array::<f32, Ix1>("z").unwrap();
    assert!(z[0] == 1.0 && z[1].is_nan());
}

/// The layer below: a list and strings, through the same caller.
mod low_level {
    use super::*;

    struct Join;

    impl OpKernel for Join {
        fn new(_: &mut OpKernelConstruction) -> Result<Self> {
            Ok(Join)
        }

        fn compute(&self, context: &mut OpKernelContext) -> Result<()> {
            let lengths: Vec<String> =
                context.input_list("parts")?.iter().map(|part| part.num_elements().to_string()).collect();
            context.set_string_output("lengths", &[lengths.len()], &lengths)?;
            let scratch = context.temp::<f64>(3)?;
            scratch.fill(2.0);
            context.output_view::<f64, Ix1>("total", &[1])?.fill(scratch.iter().sum());
            let counter = context.input_mut("counter")?;
            assert_eq!(context.input("counter").unwrap_err().code(), Code::FailedPrecondition);
            counter.into_view::<i64, Ix1>()?[0] += 1;
            Ok(())
        }
    }

    fn def() -> OpDef {
        OpDef::new("Join")
            .attr("N: int")
            .attr("T: numbertype")
            .input("parts: N * T")
            .input("counter: Ref(int64)")
            .output("lengths: string")
            .output("total: double")
            .shape_fn(|context: &mut InferenceContext| context.set_output(1, context.vector(5)))
            .kernels(kernels!(Join for T in [f32, i32]))
    }

    #[test]
    fn the_test_host_checks_what_the_kernel_makes() {
        let (a, b) = (array![1f32], array![2f32, 3.0]);
        let mut counter = array![4i64];
        let refused = testing::Call::new(def()).input_list([testing::view(&a)]).input(&counter).run();
        assert!(refused.unwrap_err().message().contains("give it by `input_mut`"));
        let call = testing::Call::new(def()).input_list([testing::view(&a), testing::view(&b)]);
        let error = call.input_mut(&mut counter).run().unwrap_err();
        assert_eq!(error.message(), "Join: made an output of shape [1], but inference says [5]");
        assert_eq!(counter[0], 5);
    }

    #[test]
    fn text_outlives_the_call_that_made_it() {
        struct Spell;
        impl OpKernel for Spell {
            fn new(_: &mut OpKernelConstruction) -> Result<Self> {
                Ok(Spell)
            }
            fn compute(&self, context: &mut OpKernelContext) -> Result<()> {
                let words: Vec<String> =
                    context.slice::<i32>("x")?.iter().map(|n| "ab".repeat(*n as usize)).collect();
                context.set_string_output("words", &[words.len()], &words)
            }
        }
        let def = OpDef::new("Spell").input("x: int32").output("words: string");
        let def = def.kernel(KernelDef::cpu::<Spell>());
        let outputs = testing::Call::new(def).input(&array![3, 0, 50]).run().unwrap();
        let words = outputs.strings("words").unwrap();
        assert_eq!(words, [&b"ababab"[..], b"", &b"ab".repeat(50)]);
    }

    #[test]
    fn what_is_being_read_cannot_be_changed() {
        struct Both;
        impl OpKernel for Both {
            fn new(_: &mut OpKernelConstruction) -> Result<Self> {
                Ok(Both)
            }
            fn compute(&self, context: &mut OpKernelContext) -> Result<()> {
                let before = context.view::<f32, Ix1>("x")?;
                context.input_mut("x")?.into_view::<f32, Ix1>()?.assign(&before);
                Ok(())
            }
        }
        let def = OpDef::new("Both").input("x: Ref(float)").kernel(KernelDef::cpu::<Both>());
        let error = testing::Call::new(def).input_mut(&mut array![1f32]).run().unwrap_err();
        assert_eq!(error.message(), "Both: input `x`: is already being read; take it only with `input_mut`");
    }

    #[test]
    fn kernels_are_registered_for_all_combinations() {
        struct Two<T, S>(std::marker::PhantomData<fn() -> (T, S)>);
        impl<T: Number, S: Integer> OpKernel for Two<T, S> {
            fn new(_: &mut OpKernelConstruction) -> Result<Self> {
                Ok(Two(std::marker::PhantomData))
            }
            fn compute(&self, context: &mut OpKernelContext) -> Result<()> {
                let sizes = [size_of::<T>() as i64, size_of::<S>() as i64];
                context.output_view::<i64, Ix1>(0, &[2])?.assign(&ndarray::arr1(&sizes));
                Ok(())
            }
        }
        let def = OpDef::new("Two")
            .attr("T: type")
            .attr("S: type")
            .output("sizes: int64")
            .kernels(kernels!(Two<T, S> for T in Number, S in [i32, i64]));
        let op = def.clone().build().unwrap();
        assert_eq!(op.kernels().len(), 28);
        let sizes =
            testing::Call::new(def).attr("T", DType::Complex128).attr("S", DType::Int32).run().unwrap();
        assert_eq!(sizes.array::<i64, Ix1>("sizes").unwrap(), array![16, 4]);
    }
}

#[test]
fn dispatch_gives_a_type_and_names_what_it_has_not() {
    let found = 3;
    let size = |dtype| dispatch!(dtype, [i32, f16], |T| Ok::<_, Error>(size_of::<T>() + found));
    assert_eq!(size(DType::Float16), Ok(5));
    let error = size(DType::Bool).unwrap_err();
    assert_eq!(error.code(), Code::Unimplemented);
    assert_eq!(error.message(), "dtype bool is not implemented here; expected int32 or float16");
    assert_eq!(DeviceKind::Cpu.to_string(), "CPU");
}

#[test]
fn threads_write_their_own_parts_of_an_output() {
    #[op(shape = "(n,m)->(m,n)")]
    fn turn<T: Number>(cx: &Compute, x: ArrayView2<T>, z: ArrayViewMut2<T>) {
        const COSTLY: usize = 1_000_000;
        cx.parallel_over(z, Axis(1), COSTLY, |rows, mut z| z.assign(&x.slice(s![rows, ..]).t()));
    }
    let x = ndarray::Array2::from_shape_fn((37, 5), |(i, j)| (i * 5 + j) as i64);
    let z = call::<turn>().input(&x).threads(4).run().unwrap().array::<i64, Ix2>("z").unwrap();
    assert_eq!(z, x.t());
}

#[cfg(debug_assertions)]
#[test]
fn an_output_that_is_not_written_is_found() {
    /// Writes every other element, or none.
    #[op(shape = "(n)->(n)", dtypes(T = [f16, f32, i64, u8]))]
    fn every<T: RealNumber>(x: ArrayView1<T>, #[attr(min = 1)] step: usize, mut z: ArrayViewMut1<T>) {
        for i in (step..=x.len()).step_by(step) {
            z[i - 1] = x[i - 1];
        }
    }
    let x = array![1f32, 2.0, 3.0];
    let half = call::<every>().input(&x).attr("step", 2).run().unwrap().array::<f32, Ix1>("z").unwrap();
    assert_eq!(half.mapv(f32::is_nan), array![true, false, true]);

    let unwritten = "Internal: Every: output `z`: the kernel wrote none of its elements";
    let error = call::<every>().input(&x).attr("step", 4).run().unwrap_err();
    assert_eq!(error.to_string(), unwritten);
    let integers = array![1i64, 2, 3];
    let error = call::<every>().input(&integers).attr("step", 4).run().unwrap_err();
    assert_eq!(error.to_string(), unwritten);

    // What a kernel copies from an input, and single bytes of any value, are no mistake; nor is there one of no elements.
    for bits in [0x7FE5_A5A5, 0x7FDA_5A5A] {
        let poisoned = array![f32::from_bits(bits)];
        for _ in 0..2 {
            assert!(call::<every>().input(&poisoned).attr("step", 1).run().is_ok());
        }
    }
    for byte in [0xA5u8, 0x5A] {
        assert!(call::<every>().input(&array![byte]).attr("step", 1).run().is_ok());
    }
    let none = ndarray::Array1::<f32>::zeros(0);
    assert!(call::<every>().input(&none).attr("step", 4).run().is_ok());
}

#[test]
fn ops_may_have_the_names_of_what_their_kernels_are_made_of() {
    #[op(shape = "(n)->(n)")]
    fn compute(tensors: ArrayView1<f64>, mut z: ArrayViewMut1<f64>) {
        z.assign(&tensors);
    }
    #[op(shape = "(n)->(n)")]
    fn tensors(cx: &Compute, compute: ArrayView1<f64>, mut z: ArrayViewMut1<f64>) -> Result<()> {
        let scratch = cx.temp::<f64>(compute.len())?;
        z.assign(&(&compute + &ndarray::ArrayView1::from(&*scratch)));
        Ok(())
    }
    let x = array![1.0, 2.0];
    for outputs in [call::<compute>().input(&x).run(), call::<tensors>().input(&x).run()] {
        assert_eq!(outputs.unwrap().array::<f64, Ix1>("z").unwrap(), x);
    }
}
