//! The op, called as frameworks call it, against sorted windows.

use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::{Array4, ArrayView4};
use opsmith::testing::{Call, call, shapes};
use opsmith::{infer_error, infer_ok};

use super::*;

/// Numbers without a pattern, some of them equal.
fn numbers(shape: [usize; 4], seed: u64) -> Array4<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    Array4::from_shape_simple_fn(shape, || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % 61) as f64 - 30.0
    })
}

/// For each window the element that is its median, by sorting; windows as TensorFlow's pools place them.
fn places(x: ArrayView4<'_, f64>, ksize: [usize; 2], strides: [usize; 2], same: bool) -> Array4<[usize; 4]> {
    let (batch, height, width, channels) = x.dim();
    let along = |axis: usize, dim: usize| match same {
        true => {
            let count = dim.div_ceil(strides[axis]);
            let needed = (count.max(1) - 1) * strides[axis] + ksize[axis];
            (count, needed.saturating_sub(dim) / 2)
        }
        false => ((dim - ksize[axis]) / strides[axis] + 1, 0),
    };
    let ((rows, above), (columns, left)) = (along(0, height), along(1, width));
    Array4::from_shape_fn((batch, rows, columns, channels), |(b, row, column, c)| {
        let mut window = Vec::new();
        for y in (row * strides[0]..).take(ksize[0]).filter(|y| (above..height + above).contains(y)) {
            for x in (column * strides[1]..).take(ksize[1]).filter(|x| (left..width + left).contains(x)) {
                window.push([b, y - above, x - left, c]);
            }
        }
        let mut sorted = window.clone();
        sorted.sort_by(|a, b| x[*a].total_cmp(&x[*b]));
        let median = x[sorted[sorted.len() / 2]];
        window.into_iter().find(|place| x[*place] == median).unwrap()
    })
}

/// Shape, window, strides.
const CASES: [([usize; 4], [usize; 2], [usize; 2]); 12] = [
    ([2, 9, 11, 3], [3, 3], [1, 1]),
    ([1, 12, 70, 4], [5, 5], [1, 1]),
    ([1, 8, 8, 1], [2, 2], [2, 2]),
    ([1, 7, 50, 1], [3, 4], [2, 3]),
    ([2, 6, 5, 130], [3, 2], [1, 1]),
    ([1, 5, 9, 200], [2, 3], [1, 2]),
    ([1, 4, 4, 2], [4, 4], [1, 1]),
    ([1, 10, 10, 2], [1, 1], [3, 4]),
    ([1, 12, 30, 1], [4, 7], [1, 1]),
    ([1, 26, 25, 2], [25, 23], [2, 2]),
    ([0, 5, 5, 3], [3, 3], [1, 1]),
    ([2, 5, 5, 0], [3, 3], [1, 1]),
];

fn with<'a>(call: Call<'a>, ksize: [usize; 2], strides: [usize; 2], same: bool) -> Call<'a> {
    let list = |sides: [usize; 2]| sides.map(|side| side as i64).to_vec();
    let padding = if same { "SAME" } else { "VALID" };
    call.attr("ksize", list(ksize)).attr("strides", list(strides)).attr("padding", padding)
}

#[test]
fn medians_and_gradients_are_those_of_sorted_windows() -> Result<()> {
    for (case, (shape, ksize, strides)) in CASES.into_iter().enumerate() {
        for same in [false, true] {
            let x = numbers(shape, case as u64);
            let places = places(x.view(), ksize, strides, same);
            let y_grad = numbers(places.dim().into(), 100 + case as u64);
            let mut x_grad = Array4::zeros(x.dim());
            let values = numbers(shape, 200);
            azip!((&place in &places, &g in &y_grad) x_grad[place] += g);
            for threads in if case < 4 { 1..=3 } else { 1..=1 } {
                let set = |call: Call<'static>| with(call, ksize, strides, same).threads(threads);
                check::<MedianPool>(set, &[&x], &places.mapv(|place| x[place]))?;
                check::<MedianPoolGrad>(set, &[&x, &y_grad], &x_grad)?;
                check::<MedianPoolGradGrad>(set, &[&x, &values], &places.mapv(|place| values[place]))?;
            }
        }
    }
    Ok(())
}

/// Calls an op with inputs, and compares its output.
fn check<O: OpDefinition>(
    set: impl Fn(Call<'static>) -> Call<'static>,
    inputs: &[&Array4<f64>],
    expected: &Array4<f64>,
) -> Result<()> {
    let name = O::def().build()?.signature().outputs[0].name.clone();
    let ours = inputs.iter().fold(shortened(set(call::<O>())), |call, input| call.input(*input)).run()?;
    assert_eq!(ours.array::<f64, Ix4>(&name)?, expected, "{name}");
    Ok(())
}

/// The call, whose inputs live as long as the caller says.
fn shortened<'a>(call: Call<'static>) -> Call<'a> {
    call
}

#[test]
fn every_dtype_has_the_same_medians() -> Result<()> {
    macro_rules! check {
        ($($element:ty),*) => {$({
            let wide = numbers([2, 9, 20, 3], 7).mapv(|x| x + 30.0);
            let x = wide.mapv(cast::<$element>);
            for (ksize, strides) in [([3, 3], [1, 1]), ([4, 2], [2, 3]), ([5, 6], [1, 1])] {
                let places = places(wide.view(), ksize, strides, true);
                let y = with(call::<MedianPool>(), ksize, strides, true).input(&x).run()?;
                assert_eq!(y.array::<$element, Ix4>("y")?, places.mapv(|place| x[place]));
            }
        })*};
    }
    check!(f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64);
    Ok(())
}

/// A number that all dtypes have.
fn cast<T: RealNumber>(x: f64) -> T {
    T::from(x).unwrap()
}

#[test]
fn a_nan_is_the_median_and_infinities_are_numbers() -> Result<()> {
    for size in [3, 23] {
        let mut x = numbers([1, size, 40, 1], 3);
        (x[[0, 0, 5, 0]], x[[0, 1, 7, 0]], x[[0, 1, 30, 0]]) = (f64::NAN, -f64::NAN, f64::INFINITY);
        let side = size as i64;
        let pool = |call: Call<'static>| call.attr("ksize", vec![side, 3]);
        let y = shortened(pool(call::<MedianPool>())).input(&x).run()?.array::<f64, Ix4>("y")?;
        for (column, y) in y.iter().enumerate() {
            assert_eq!(y.is_nan(), (3..=7).contains(&column), "{column}");
        }
        let ones = Array4::from_elem([1, 1, 38, 1], 1.0);
        let grad = shortened(pool(call::<MedianPoolGrad>())).input(&x).input(&ones).run()?;
        let grad = grad.array::<f64, Ix4>("x_grad")?;
        assert_eq!((grad[[0, 0, 5, 0]], grad[[0, 1, 7, 0]], grad.sum()), (3.0, 2.0, 38.0));
    }
    let x = Array4::from_elem([1, 2, 2, 1], f64::NEG_INFINITY);
    let y = call::<MedianPool>().attr("ksize", vec![3, 3]).attr("padding", "SAME").input(&x).run()?;
    assert_eq!(y.array::<f64, Ix4>("y")?, x);
    Ok(())
}

#[test]
fn the_first_of_equal_elements_takes_the_gradient() -> Result<()> {
    let x = Array4::from_shape_vec([1, 2, 2, 1], vec![1.0, 0.0, -0.0, -1.0]).unwrap();
    let one = Array4::from_elem([1, 1, 1, 1], 1.0);
    let grad = call::<MedianPoolGrad>().attr("ksize", vec![2, 2]).input(&x).input(&one).run()?;
    assert_eq!(grad.array::<f64, Ix4>("x_grad")?.iter().position(|&g| g != 0.0), Some(1));
    Ok(())
}

#[test]
fn shapes_follow_the_windows() {
    let pool = |same: bool, strides: Vec<i64>| {
        let padding = if same { "SAME" } else { "VALID" };
        shapes::<MedianPool>()
            .attr("ksize", vec![3i64, 5].into())
            .attr("strides", strides.into())
            .attr("padding", padding.into())
    };
    infer_ok!(pool(true, vec![1, 1]), "[b,h,w,c]", "in0");
    infer_ok!(pool(true, vec![2, 3]), "[?,7,9,3]", "[d0_0,4,3,d0_3]");
    infer_ok!(pool(false, vec![2, 3]), "[?,7,9,3]", "[d0_0,3,2,3]");
    infer_ok!(pool(false, vec![1, 2, 2, 1]), "[b,h,?,3]", "[b,(h - 1) // 2,?,3]");
    infer_ok!(pool(true, vec![1, 1]), "?", "[?,?,?,?]");
    infer_error!(pool(true, vec![1, 1]), "must have rank 4", "[7,9,3]");
    infer_error!(pool(false, vec![1, 1]), "at least 5 columns, the width of a window", "[1,3,4,1]");
    for (strides, message) in [
        (vec![0, 1], "`strides` must be of numbers from 1 to 2147483647, got [0, 1]"),
        (vec![1, -1], "`strides` must be of numbers from 1"),
        (vec![1], "`strides` must be two numbers, for height and width, or four"),
        (vec![2, 1, 1, 1], "of which the first and last, for batch and channels, are 1; got [2, 1, 1, 1]"),
    ] {
        infer_error!(pool(true, strides), message, "[1,7,9,3]");
    }
    infer_error!(
        shapes::<MedianPool>().attr("ksize", vec![1i64 << 40, 1].into()),
        "from 1 to 65535",
        "[1,7,9,3]"
    );
}

#[test]
fn bad_input_is_told() {
    let x = numbers([1, 4, 5, 2], 1);
    let pool = |ksize: Vec<i64>| call::<MedianPool>().attr("ksize", ksize);
    let error = pool(vec![5, 5]).input(&x).run().unwrap_err();
    assert_eq!(
        error.message(),
        "MedianPool: the images must have at least 5 rows, the height of a window that no padding lets reach beyond, got \
         [1, 4, 5, 2]"
    );
    assert_eq!(error.code(), Code::InvalidArgument);
    let flat = array![[1.0, 2.0]];
    let error = pool(vec![1, 1]).input(&flat).run().unwrap_err();
    assert!(
        error.message().contains("must have shape (batch, height, width, channels)"),
        "{}",
        error.message()
    );
    let error = pool(vec![3, 0]).input(&x).run().unwrap_err();
    assert!(
        error.message().starts_with("MedianPool: `ksize` must be of numbers from 1"),
        "{}",
        error.message()
    );
    let error = pool(vec![3, 3]).attr("padding", "FULL").input(&x).run().unwrap_err();
    assert!(error.message().contains("'SAME', 'VALID'"), "{}", error.message());
    let wrong = numbers([1, 3, 3, 2], 1);
    let error = call::<MedianPoolGrad>().attr("ksize", vec![3, 3]).input(&x).input(&wrong).run().unwrap_err();
    assert_eq!(
        error.message(),
        "MedianPoolGrad: input `y_grad` must have shape [1, 2, 3, 2], got [1, 3, 3, 2]"
    );
}

#[test]
fn a_window_may_be_much_larger_than_the_image() -> Result<()> {
    let x = numbers([1, 3, 3, 1], 5);
    let y = with(call::<MedianPool>(), [65535, 65535], [i32::MAX as usize, 1], true).input(&x).run()?;
    let places = places(x.view(), [65535, 65535], [i32::MAX as usize, 1], true);
    assert_eq!(y.array::<f64, Ix4>("y")?, places.mapv(|place| x[place]));
    Ok(())
}
