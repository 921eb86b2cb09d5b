//! The CUDA kernels without a card: compiled, and run on the processor against the kernels of the CPU.

use opsmith::cuda::Launch;
use opsmith::cuda::testing::processor;
use opsmith::ndarray::{Array, Array1, Array2, Dimension, ShapeBuilder};
use opsmith::prelude::*;
use opsmith::testing::{Call, Outputs, call};

use super::{lltm, lltm_grad};

const MADE: [&str; 7] =
    ["new_h", "new_cell", "input_gate", "output_gate", "candidate_cell", "x", "gate_weights"];
const GRADIENTS: [&str; 5] = ["old_h_grad", "input_grad", "weights_grad", "bias_grad", "old_cell_grad"];

/// Numbers between −1 and 1, in a layout that is not row-major where there are several dims.
fn numbers<T: Float, D: Dimension>(shape: impl ShapeBuilder<Dim = D>, seed: u32) -> Array<T, D> {
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    Array::from_shape_simple_fn(shape, || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        T::from(f64::from(state >> 8) / f64::from(1 << 23) - 1.0).unwrap_or_else(T::zero)
    })
}

/// The inputs of both ops: what is put to the forward call, and to the gradient in its order.
struct Step<T> {
    input: Array2<T>,
    weights: Array2<T>,
    bias: Array1<T>,
    old: [Array2<T>; 2],
    grads: [Array2<T>; 2],
    saved: [Array2<T>; 6],
}

impl<T: Float> Step<T> {
    fn new(batch: usize, features: usize, size: usize) -> Step<T> {
        let square = |seed| numbers((batch, size).f(), seed);
        let gates = numbers((batch, 3 * size), 9);
        Step {
            input: numbers((batch, features).f(), 1),
            weights: numbers((3 * size, size + features), 2),
            bias: numbers(3 * size, 3),
            old: [square(4), square(5)],
            grads: [square(6), square(7)],
            saved: [
                square(8),
                square(10),
                square(11),
                square(12),
                numbers((batch, size + features), 13),
                gates,
            ],
        }
    }

    fn forward(&self) -> Call<'_> {
        let inputs = call::<lltm>().input(&self.input).input(&self.weights).input(&self.bias);
        self.old.iter().fold(inputs, |call, old| call.input(old))
    }

    fn backward(&self, unwanted: &[&'static str]) -> Call<'_> {
        let inputs = self.grads.iter().chain(&self.saved).chain([&self.weights]);
        let call = inputs.fold(call::<lltm_grad>(), |call, input| call.input(input));
        unwanted.iter().fold(call, |call, name| call.without(name))
    }
}

fn close<T: Float>(own: &Outputs, expected: &Outputs, names: &[&str], what: &str) -> Result<()> {
    for name in names {
        let (own, expected) = (own.array::<T, IxDyn>(name)?, expected.array::<T, IxDyn>(name)?);
        assert_eq!(own.shape(), expected.shape());
        let bound = T::epsilon() * T::from(200).unwrap_or_else(T::one);
        let same = own.iter().zip(&expected).all(|(own, expected)| {
            (*own - *expected).abs() <= bound * (T::one() + expected.abs())
                || (own.is_nan() && expected.is_nan())
        });
        assert!(same, "{name} of {what}: {own} where {expected} is expected");
    }
    Ok(())
}

fn compare<'a, T: Float>(form: impl Fn() -> Call<'a>, names: &[&str], what: &str) -> Result<()> {
    match form().run_cuda_on_processor()? {
        Some(own) => close::<T>(&own, &form().run()?, names, what),
        None => Ok(()),
    }
}

fn both_ways<T: Float>() -> Result<()> {
    let sizes = [(1, 1, 1), (3, 2, 5), (17, 33, 20), (2, 0, 3), (0, 3, 4), (3, 2, 0), (0, 0, 0)];
    for (batch, features, size) in sizes {
        let (step, what) = (Step::<T>::new(batch, features, size), format!("{batch}, {features}, {size}"));
        compare::<T>(|| step.forward(), &MADE, &what)?;
        compare::<T>(|| step.backward(&[]), &GRADIENTS, &what)?;
    }
    let step = Step::<T>::new(5, 3, 4);
    for wanted in GRADIENTS {
        let unwanted: Vec<_> = GRADIENTS.into_iter().filter(|name| *name != wanted).collect();
        compare::<T>(|| step.backward(&unwanted), &[wanted], wanted)?;
        compare::<T>(|| step.backward(&[wanted]), &unwanted, wanted)?;
    }
    Ok(())
}

#[test]
fn both_ways_compute_what_the_cpu_does() -> Result<()> {
    both_ways::<f32>()?;
    both_ways::<f64>()
}

#[test]
fn what_is_not_a_number_stays_in_its_row() -> Result<()> {
    let mut step = Step::<f64>::new(4, 3, 6);
    step.input[[1, 2]] = f64::NAN;
    step.old[1][[2, 3]] = f64::INFINITY;
    compare::<f64>(|| step.forward(), &["new_h", "gate_weights", "x"], "NaN")
}

/// As many launches as a call can do with: one forward, three back.
#[test]
fn launches_are_few() -> Result<()> {
    let step = Step::<f32>::new(16, 32, 128);
    assert_eq!(step.forward().kernels_launched()?, ["forward<float, int, 1, 1, 64>"]);
    let back = ["elements<float, int>", "inputs<float, int, 1, 64>", "parameters<float, int, 1, 64>"];
    assert_eq!(step.backward(&[]).kernels_launched()?, back);
    let unwanted = ["old_h_grad", "input_grad", "weights_grad", "bias_grad"];
    assert_eq!(step.backward(&unwanted).kernels_launched()?, back[..1]);
    Ok(())
}

/// A card gets large tiles where there are enough of them: what a small call would launch, with the kernel of the large one.
#[test]
fn large_tiles_compute_the_same() -> Result<()> {
    if !processor::can_run() {
        return Ok(());
    }
    fn with<T: Float>(small: &str, large: &str, edges: [u32; 2]) -> Result<()> {
        let step = Step::<T>::new(70, 9, 68);
        let mut larger = |launch: &mut Launch<'_>| {
            let blocks = |[rows, columns]: [u32; 2], [down, across]: [u32; 2]| {
                [rows.div_ceil(16 * down) * columns.div_ceil(16 * across), 1, 1]
            };
            launch.kernel = launch.kernel.replace(small, large).replace("1, 64>", "4, 16>");
            let sides = [
                ("forward", [70, 68], edges),
                ("inputs", [70, 77], [4, 4]),
                ("parameters", [204, 78], [4, 4]),
            ];
            if let Some((_, size, edges)) =
                sides.into_iter().find(|(name, ..)| launch.kernel.starts_with(name))
            {
                launch.grid = blocks(size, edges);
            }
            // SAFETY: the call's tensors are in host memory until it is over.
            unsafe { processor::run(launch) }
        };
        close::<T>(&step.forward().launches(&mut larger)?, &step.forward().run()?, &MADE, "large tiles")?;
        let own = step.backward(&[]).launches(&mut larger)?;
        close::<T>(&own, &step.backward(&[]).run()?, &GRADIENTS, "large tiles")
    }
    with::<f32>("1, 1, 64>", "4, 4, 16>", [4, 4])?;
    with::<f64>("1, 1, 32>", "2, 2, 16>", [2, 2])
}

/// For both dtypes, sizes of tiles and indices.
#[test]
fn every_kernel_compiles() -> Result<()> {
    fn every<T: Float>(batch: usize) -> Result<()> {
        let Some(nvrtc) = opsmith::cuda::testing::nvrtc() else { return Ok(()) };
        let mut compile = |launch: &mut Launch<'_>| {
            for index in [", int", ", long long"] {
                launch.kernel = launch.kernel.replace(", int", index);
                opsmith::cuda::testing::compile_everywhere(nvrtc, launch)?;
            }
            Ok(())
        };
        let step = Step::<T>::new(batch, 1, 300);
        step.forward().launches(&mut compile)?;
        step.backward(&[]).launches(&mut compile).map(drop)
    }
    every::<f32>(1)?;
    every::<f32>(1100)?;
    every::<f64>(1)?;
    every::<f64>(1100)
}
