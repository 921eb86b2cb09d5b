//! Products against a plain triple loop, over shapes and strides.

use std::ops::Range;
use std::ptr::NonNull;

use ndarray::{Array2, ArrayD, ArrayView2, ArrayViewMut2, Axis, IxDyn, Slice};
use opsmith_core::kernel::{Compute, Services};
use opsmith_core::{Code, DType, Error, Result};
use proptest::prelude::*;

use crate::{AnyFloat, ComputeExt, gemm};

/// As many threads as it says, and no memory.
struct Threads(usize);

// SAFETY: it lends no memory, and the scope ends when all ranges are done.
unsafe impl Services for Threads {
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
        self.0
    }

    fn parallel_for(&self, total: usize, _: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        let step = total.div_ceil(self.0);
        std::thread::scope(|scope| {
            for begin in (0..total).step_by(step) {
                scope.spawn(move || body(begin..total.min(begin + step)));
            }
        });
    }
}

/// How a matrix lies in memory: which dim is the inner one, and the steps along each.
#[derive(Clone, Copy, Debug)]
struct Lie {
    transposed: bool,
    steps: [isize; 2],
}

fn lies() -> impl Strategy<Value = Lie> {
    let step = || prop_oneof![4 => Just(1), 1 => Just(-1), 1 => Just(2), 1 => Just(-3)];
    (any::<bool>(), step(), step())
        .prop_map(|(transposed, rows, columns)| Lie { transposed, steps: [rows, columns] })
}

/// Memory for a matrix that lies like this, full of NaN.
fn memory<T: AnyFloat>(lie: Lie, (rows, columns): (usize, usize)) -> Array2<T> {
    let [rows, columns] =
        [(rows, lie.steps[0]), (columns, lie.steps[1])].map(|(n, step)| n * step.unsigned_abs());
    Array2::from_elem(if lie.transposed { (columns, rows) } else { (rows, columns) }, T::nan())
}

fn view<T>(lie: Lie, memory: &mut Array2<T>) -> ArrayViewMut2<'_, T> {
    let whole = memory.view_mut();
    let mut view = if lie.transposed { whole.reversed_axes() } else { whole };
    for axis in 0..2 {
        view.slice_axis_inplace(Axis(axis), Slice::new(0, None, lie.steps[axis]));
    }
    view
}

/// Small whole numbers, whose products and sums are exact.
fn number(seed: usize, row: usize, column: usize) -> f64 {
    ((seed * 7919 + row * 31 + column * 17 + row * column) % 9) as f64 - 4.0
}

/// Compares a product with a triple loop, on the calling thread for 0 threads.
fn check<T: AnyFloat>(
    (n, k, m): (usize, usize, usize),
    lies: [Lie; 3],
    (alpha, beta): (f64, f64),
    threads: usize,
) {
    let of = |number: f64| T::from(number).unwrap_or_else(T::nan);
    let mut memories = [memory::<T>(lies[0], (n, k)), memory(lies[1], (k, m)), memory(lies[2], (n, m))];
    for (seed, (memory, lie)) in
        memories.iter_mut().zip(lies).enumerate().take(if beta == 0.0 { 2 } else { 3 })
    {
        for ((row, column), place) in view(lie, memory).indexed_iter_mut() {
            *place = of(number(seed, row, column));
        }
    }
    let [a, b, c] = &mut memories;
    let (a, b) = (view(lies[0], a), view(lies[1], b));
    let (alpha_, beta_) = (of(alpha), of(beta));
    let c_view = view(lies[2], c);
    let done = match threads {
        0 => gemm(alpha_, a.view(), b.view(), beta_, c_view),
        _ => Compute::new(&Threads(threads)).gemm(alpha_, a.view(), b.view(), beta_, c_view),
    };
    assert_eq!(done, Ok(()));
    for ((row, column), &got) in view(lies[2], c).indexed_iter() {
        let sum: f64 = (0..k).map(|inner| number(0, row, inner) * number(1, inner, column)).sum();
        let before = if beta == 0.0 { 0.0 } else { beta * number(2, row, column) };
        assert_eq!(got, of(alpha * sum + before), "at ({row}, {column})");
    }
    // What is between the elements is as it was.
    let touched = c.iter().filter(|number| !number.is_nan()).count();
    assert_eq!(touched, n * m);
}

fn dims() -> impl Strategy<Value = (usize, usize, usize)> {
    let dim = || prop_oneof![2 => 0..4usize, 3 => 1..40usize, 1 => 60..200usize];
    (dim(), dim(), dim())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn products_are_those_of_a_triple_loop(
        dims in dims(),
        lies in [lies(), lies(), lies()],
        alpha in prop_oneof![Just(1.0), Just(0.0), Just(-2.0)],
        beta in prop_oneof![3 => Just(0.0), 1 => Just(1.0), 1 => Just(-3.0)],
        threads in 0..4usize,
    ) {
        check::<f32>(dims, lies, (alpha, beta), threads);
        check::<f64>(dims, lies, (alpha, beta), threads);
    }
}

/// Lies row-major.
const DENSE: Lie = Lie { transposed: false, steps: [1, 1] };

#[test]
fn large_products_are_cut() {
    for dims in
        [(300, 257, 65), (16, 160, 385), (1, 700, 900), (900, 700, 1), (33, 1000, 600), (520, 520, 520)]
    {
        for transposed in [false, true] {
            let lie = Lie { transposed, ..DENSE };
            check::<f32>(dims, [DENSE, lie, DENSE], (1.0, 0.0), 3);
            check::<f64>(dims, [lie, DENSE, lie], (2.0, 1.0), 2);
        }
    }
    let backwards = Lie { steps: [-1, -1], ..DENSE };
    check::<f32>((1, 700, 900), [DENSE, DENSE, backwards], (1.0, 0.0), 3);
    check::<f32>((900, 700, 1), [Lie { transposed: true, ..DENSE }, DENSE, backwards], (1.0, 1.0), 3);
}

#[test]
fn the_product_of_a_vector_is_the_same_on_any_number_of_threads() {
    let number = |at: usize| ((at * 7919 % 1000) as f32 / 1000.0 - 0.5).exp();
    let x = Array2::from_shape_fn((1, 1027), |(_, column)| number(column));
    let m = Array2::from_shape_fn((1027, 515), |(row, column)| number(row * 515 + column));
    let product = |threads| {
        let mut y = Array2::zeros((1, 515));
        Compute::new(&Threads(threads)).gemm(1.0, x.view(), m.view(), 0.0, y.view_mut()).unwrap();
        let mut turned = Array2::zeros((515, 1));
        let (m, x) = (m.view().reversed_axes(), x.view().reversed_axes());
        Compute::new(&Threads(threads)).gemm(1.0, m, x, 0.0, turned.view_mut()).unwrap();
        assert_eq!(turned.view().reversed_axes(), y);
        y
    };
    let alone = product(1);
    let exact = x.mapv(f64::from).dot(&m.mapv(f64::from));
    assert!(
        (&alone.mapv(f64::from) - &exact).iter().zip(&exact).all(|(off, exact)| off.abs() < 1e-6 * exact)
    );
    (2..6).for_each(|threads| assert_eq!(product(threads), alone));
}

#[test]
fn long_scalar_products_are_as_exact_as_sums_in_lanes() {
    let k = 1_000_003;
    let number = |at: usize| (at * 7919 % 1000) as f32 / 1000.0 - 0.25;
    let x = Array2::from_shape_fn((1, k), |(_, at)| number(at));
    let memory = Array2::from_shape_fn((k, 2), |(at, column)| number(at + 13 * column));
    for m in [
        memory.slice_axis(Axis(1), Slice::from(..1)).to_owned().view(),
        memory.slice_axis(Axis(1), Slice::from(1..)),
    ] {
        let exact: f64 = x.iter().zip(&m).map(|(&x, &m)| f64::from(x) * f64::from(m)).sum();
        for threads in [0, 1, 2] {
            let mut y = Array2::zeros((1, 1));
            match threads {
                0 => gemm(1.0, x.view(), m, 0.0, y.view_mut()).unwrap(),
                _ => Compute::new(&Threads(threads)).gemm(1.0, x.view(), m, 0.0, y.view_mut()).unwrap(),
            }
            let off = (f64::from(y[[0, 0]]) - exact).abs() / exact;
            assert!(off < 2e-6, "{off:e} on {threads} threads");
        }
    }
}

#[test]
fn halves_are_added_up_in_float32() {
    use half::{bf16, f16};

    for beta in [0.0, 2.0] {
        check::<f16>((5, 7, 3), [DENSE; 3], (1.0, beta), 2);
        check::<bf16>((4, 3, 6), [Lie { transposed: true, steps: [1, -1] }; 3], (-1.0, beta), 0);
    }
    // In float16 itself, 2048 + 1 is 2048.
    let ones = Array2::from_elem((1, 4096), f16::ONE);
    let mut sum = Array2::from_elem((1, 1), f16::NAN);
    assert_eq!(gemm(f16::ONE, ones.view(), ones.t(), f16::ZERO, sum.view_mut()), Ok(()));
    assert_eq!(sum[[0, 0]], f16::from_f32(4096.0));
}

#[test]
fn factors_may_be_broadcast() {
    let one = ArrayD::from_elem(IxDyn(&[]), 3.0f32);
    let a: ArrayView2<'_, f32> = one.broadcast((5, 8)).unwrap();
    let b = Array2::from_elem((8, 20), 2.0f32);
    let mut c = Array2::from_elem((5, 20), f32::NAN);
    assert_eq!(gemm(1.0, a, b.view(), 0.0, c.view_mut()), Ok(()));
    assert_eq!(c, Array2::from_elem((5, 20), 48.0));
    // To the first term no other adds anything, so a long sum that is not cut stays there.
    let one = Array2::from_elem((1, 17), 1.0f32);
    let b = one.broadcast((1 << 12, 17)).unwrap();
    let mut a = Array2::<f32>::ones((2, 1 << 12));
    a.column_mut(0).fill((1 << 24) as f32);
    let mut c = Array2::from_elem((2, 17), f32::NAN);
    assert_eq!(gemm(1.0, a.view(), b, 0.0, c.view_mut()), Ok(()));
    assert!(c.iter().all(|&sum| sum >= ((1 << 24) + 2000) as f32), "{c}");
}

#[test]
fn what_does_not_fit_is_named() {
    let (a, b, mut c) = (Array2::<f32>::zeros((2, 3)), Array2::zeros((4, 5)), Array2::zeros((2, 5)));
    let error = Compute::new(&Threads(1)).gemm(1.0, a.view(), b.view(), 0.0, c.view_mut()).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(
        error.message(),
        "gemm: expected `a` of shape (n, k), `b` of shape (k, m) and `c` of shape (n, m), got (2, 3), (4, 5) and (2, 5)"
    );
}
