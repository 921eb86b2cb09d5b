//! The CUDA kernels without a card: compiled, and run on the processor against the kernels of the CPU.

use opsmith::cuda::Launch;
use opsmith::ndarray::{Array2, ShapeBuilder};
use opsmith::testing::{Call, Outputs, call};

use super::*;

type Forward = pairwise_manhattan_distance;
type Grad = pairwise_manhattan_distance_grad;
type GradGrad = pairwise_manhattan_distance_grad_grad;

/// Numbers of which some are equal, in another matrix too.
fn points<T: Float>(rows: usize, columns: usize, seed: usize) -> Array2<T> {
    let number = |(i, j): (usize, usize)| ((i * 31 + j * 17 + seed * 7) % 23) as f64 * 0.25 - 2.0;
    // Column-major: the kernels read any strides.
    Array2::from_shape_fn((rows, columns).f(), |at| T::from(number(at)).unwrap_or_else(T::zero))
}

fn close<T: Float>(outputs: &Outputs, expected: &Outputs, name: &str, what: &str) -> Result<()> {
    let (own, expected) = (outputs.array::<T, Ix2>(name)?, expected.array::<T, Ix2>(name)?);
    assert_eq!(own.dim(), expected.dim());
    for (own, expected) in own.iter().zip(&expected) {
        let bound = T::epsilon() * T::from(64).unwrap_or_else(T::one) * (T::one() + expected.abs());
        let same =
            own == expected || (own.is_nan() && expected.is_nan()) || (*own - *expected).abs() <= bound;
        assert!(same, "{name} of {what}: {own:?} where {expected:?} is expected");
    }
    Ok(())
}

/// Runs both kernels of a call, if that can be done here, and compares outputs.
fn compare<'a, T: Float>(form: impl Fn() -> Call<'a>, outputs: &[&str], what: &str) -> Result<bool> {
    let Some(own) = form().run_cuda_on_processor()? else { return Ok(false) };
    let expected = form().run()?;
    for name in outputs {
        close::<T>(&own, &expected, name, what)?;
    }
    Ok(true)
}

fn all_orders<T: Float>() -> Result<()> {
    for (n, m, p) in [(1, 1, 1), (3, 5, 2), (64, 65, 16), (70, 33, 37), (0, 4, 3), (4, 3, 0)] {
        let (x, y) = (points::<T>(n, p, 0), points::<T>(m, p, 1));
        let (g, u, v) = (points::<T>(n, m, 2), points::<T>(n, p, 3), points::<T>(m, p, 4));
        let what = format!("{n}, {m}, {p}");
        let forward = || call::<Forward>().input(&x).input(&y);
        let grad = || call::<Grad>().input(&x).input(&y).input(&g);
        let second = || call::<GradGrad>().input(&x).input(&y);
        if !compare::<T>(forward, &["z"], &what)? {
            return Ok(());
        }
        compare::<T>(grad, &["x_grad", "y_grad"], &what)?;
        compare::<T>(|| grad().without("x_grad"), &["y_grad"], &what)?;
        compare::<T>(|| second().input(&u).input(&v), &["z_grad_grad"], &what)?;
        compare::<T>(|| second().absent().input(&v), &["z_grad_grad"], &what)?;
    }
    Ok(())
}

#[test]
fn cuda_kernels_compute_what_the_cpu_does() -> Result<()> {
    all_orders::<f32>()?;
    all_orders::<f64>()
}

/// A card gets large tiles where there are enough of them: so many outputs take too long here, and are computed by what a
/// small call would launch, with the kernel of the large one.
#[test]
fn large_tiles_compute_the_same() -> Result<()> {
    if !opsmith::cuda::testing::processor::can_run() {
        return Ok(());
    }
    let (x, y, g) = (points::<f32>(130, 20, 0), points::<f32>(70, 20, 1), points::<f32>(130, 70, 2));
    let large = |launch: &mut Launch<'_>| {
        launch.kernel = launch.kernel.replace(", 4", ", 8");
        // Outputs of 130 × 70, and gradients of as many rows as there are points, with 20 columns.
        launch.grid = match () {
            () if launch.kernel.starts_with("distances") => [2, 1, 1],
            () if launch.kernel.ends_with("true>") => [1, 1, 1],
            () => [2, 1, 1],
        };
        // SAFETY: the call's tensors are in host memory until it is over.
        unsafe { opsmith::cuda::testing::processor::run(launch) }
    };
    let forward = || call::<Forward>().input(&x).input(&y);
    close::<f32>(&forward().launches(&mut { large })?, &forward().run()?, "z", "large tiles")?;
    let grad = || call::<Grad>().input(&x).input(&y).input(&g);
    let (own, expected) = (grad().launches(&mut { large })?, grad().run()?);
    close::<f32>(&own, &expected, "x_grad", "large tiles")?;
    close::<f32>(&own, &expected, "y_grad", "large tiles")
}

#[test]
fn infinities_and_nan_go_through() -> Result<()> {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = array![[1.0, inf, 0.0], [nan, 1.0, 2.0], [-inf, 0.0, 0.0]];
    let (y, g) = (array![[inf, inf, 0.0], [1.0, 2.0, 2.0]], array![[1f32, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    compare::<f32>(|| call::<Forward>().input(&x).input(&y), &["z"], "infinities")?;
    let grad = || call::<Grad>().input(&x).input(&y).input(&g);
    compare::<f32>(grad, &["x_grad", "y_grad"], "infinities")?;
    Ok(())
}

/// Every kernel that a call may launch, for both sizes of tiles and both indices.
#[test]
fn cuda_kernels_compile_for_every_dtype() -> Result<()> {
    fn every<T: Float>(rows: usize, columns: usize) -> Result<Vec<String>> {
        let Some(nvrtc) = opsmith::cuda::testing::nvrtc() else { return Ok(Vec::new()) };
        let mut kernels = Vec::new();
        let mut compile = |launch: &mut Launch<'_>| {
            for index in [", int", ", long long"] {
                launch.kernel = launch.kernel.replace(", int", index);
                opsmith::cuda::testing::compile_everywhere(nvrtc, launch)?;
                kernels.push(launch.kernel.clone());
            }
            Ok(())
        };
        // One number, repeated: nothing is computed.
        let one = Array2::<T>::zeros((1, 1));
        let repeated = |rows, columns| one.broadcast((rows, columns)).unwrap_or_else(|| one.view());
        let (x, g) = (repeated(rows, columns), repeated(rows, rows));
        call::<Forward>().input(&x).input(&x).launches(&mut compile)?;
        call::<Grad>().input(&x).input(&x).input(&g).launches(&mut compile)?;
        call::<GradGrad>().input(&x).input(&x).input(&x).input(&x).launches(&mut compile)?;
        Ok(kernels)
    }
    every::<f32>(1, 1)?;
    every::<f64>(1, 1)?;
    let kernels = every::<f32>(2048, 2048)?;
    assert!(kernels.iter().all(|kernel| kernel.contains(", 8")), "{kernels:?}");
    Ok(())
}

#[test]
fn many_rows_are_no_more_blocks_than_a_card_has() -> Result<()> {
    let one = Array2::<f32>::zeros((1, 1));
    let rows = 5_000_000;
    let x = one.broadcast((rows, 1)).unwrap_or_else(|| one.view());
    let mut grids = Vec::new();
    call::<Forward>().input(&x).input(&one).launches(&mut |launch| {
        grids.push((launch.kernel.clone(), launch.grid));
        Ok(())
    })?;
    assert_eq!(grids, [("distances<float, int, 8>".to_owned(), [rows.div_ceil(128) as u32, 1, 1])]);
    call::<Forward>().input(&one).input(&x).launches(&mut |launch| {
        grids.push((launch.kernel.clone(), launch.grid));
        Ok(())
    })?;
    assert_eq!(grids[1], grids[0]);
    Ok(())
}

#[test]
fn indices_have_64_bits_where_places_do_not_fit_32() -> Result<()> {
    let x = Array2::<f32>::zeros((1, 1));
    // A matrix of one number, repeated: more places than an int counts.
    let many = x.broadcast((1 << 16, 1 << 15)).unwrap_or_else(|| x.view());
    let none = many.slice(s![..0, ..]);
    let mut kernels = Vec::new();
    call::<Forward>().input(&many).input(&none).launches(&mut |launch| {
        kernels.push(launch.kernel.clone());
        Ok(())
    })?;
    assert!(kernels.is_empty(), "an output without elements takes no launch");
    let one = many.slice(s![..1, ..]);
    call::<Forward>().input(&many).input(&one).launches(&mut |launch| {
        kernels.push(launch.kernel.clone());
        Ok(())
    })?;
    assert_eq!(kernels, ["distances<float, long long, 8>"]);
    Ok(())
}
