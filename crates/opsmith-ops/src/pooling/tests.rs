use opsmith::dtype::f16;
use opsmith::ndarray::{Array, Array3};
use opsmith::{infer_error, infer_ok, testing};

use super::*;

#[test]
fn what_is_beyond_the_ends_does_not_count() -> Result<()> {
    let x = Array::from_iter((0..12).map(f64::from)).into_shape_with_order((1, 1, 3, 4)).unwrap();
    let of = |call: testing::Call<'_>| {
        let call =
            call.attr("ksize", vec![2, 2]).attr("strides", vec![2, 2]).attr("padding", vec![1, 0, 0, 1]);
        call.run()?.array::<f64, Ix4>("y")
    };
    let most = of(testing::call::<MaxPool>().input(&x))?;
    assert_eq!(most.slice(s![0, 0, .., ..]), array![[1.0, 3.0], [9.0, 11.0]]);
    let means = of(testing::call::<AvgPool>().input(&x))?;
    assert_eq!(means.slice(s![0, 0, .., ..]), array![[0.25, 1.25], [6.5, 8.5]]);
    let means = of(testing::call::<AvgPool>().input(&x).attr("count_padding", false))?;
    assert_eq!(means.slice(s![0, 0, .., ..]), array![[0.5, 2.5], [6.5, 8.5]]);
    Ok(())
}

#[test]
fn the_first_of_equal_numbers_and_nan_have_the_gradient() -> Result<()> {
    let x = array![[[1.0, 1.0, f64::NAN, f64::NAN, 0.0]]];
    let y = testing::call::<MaxPool>().input(&x).attr("ksize", vec![2]).run()?.array::<f64, Ix3>("y")?;
    assert!(y[[0, 0, 0]] == 1.0 && y.iter().skip(1).all(|y| y.is_nan()));
    let grad = array![[[1.0, 2.0, 4.0, 8.0]]];
    let gradient = testing::Call::new(max_pool_gradient()).input(&x).input(&grad);
    let gradient = gradient.attr("ksize", vec![2]).run()?.array::<f64, Ix3>("x_grad")?;
    assert_eq!(gradient, array![[[1.0, 0.0, 6.0, 8.0, 0.0]]]);
    Ok(())
}

#[test]
fn windows_far_beyond_the_ends_have_few_elements() -> Result<()> {
    let x = Array::from_elem((1, 1, 1, 1, 1), 5i32);
    let call = testing::call::<MaxPool>().input(&x).attr("ksize", vec![MOST; 3]);
    let call = call.attr("padding", vec![MOST; 3]).attr("strides", vec![MOST; 3]);
    let y = call.run()?.array::<i32, Ix5>("y")?;
    assert_eq!(y.iter().filter(|&&y| y == 5).count(), 1);
    assert_eq!(y.iter().filter(|&&y| y == i32::MIN).count(), 7);
    // More elements of windows than can be counted.
    let call = testing::call::<MaxPool>().input(&x).attr("ksize", vec![MOST; 3]);
    let call = call.attr("padding", vec![MOST; 3]).attr("strides", vec![MOST / 2; 3]);
    let y = call.run()?.array::<i32, Ix5>("y")?;
    assert_eq!((y.len(), y.iter().filter(|&&y| y == 5).count()), (27, 8));
    Ok(())
}

#[test]
fn means_of_half_are_rounded_once() -> Result<()> {
    let x = array![2.0, 2f32.powi(-10), 2f32.powi(-24), 0.0].mapv(f16::from_f32);
    let y = testing::call::<AvgPool>().input(&x).attr("ksize", vec![4]).run()?.array::<f16, Ix1>("y")?;
    assert_eq!(y, array![f16::from_f32(0.5 + 2f32.powi(-11))]);
    Ok(())
}

#[test]
fn means_of_no_images_take_no_memory() -> Result<()> {
    let (x, far) = (Array3::<f32>::zeros((0, 1, 1)), vec![MOST / 2; 2]);
    for count_padding in [true, false] {
        let call = testing::call::<AvgPool>().input(&x).attr("ksize", vec![1, 1]);
        let call = call.attr("padding", far.clone()).attr("count_padding", count_padding);
        assert_eq!(call.run()?.array::<f32, Ix3>("y")?.shape(), [0, 1 + MOST as usize, 1 + MOST as usize]);
    }
    Ok(())
}

#[test]
fn places_in_windows_are_those_that_some_window_has_in_the_dim() -> Result<()> {
    for (dim, size, stride, dilation, padding) in [
        (5, 3, 1, 1, 0),
        (2, 9, 4, 1, 8),
        (3, 5, 2, 3, 9),
        (1, 7, 7, 2, 12),
        (0, 2, 1, 1, 1),
        (4, 2, 9, 2, 0),
    ] {
        let x = Array::from_elem((1, dim), 1f64);
        let call = testing::call::<AvgPool>().input(&x).attr("ksize", vec![size]);
        let call = call.attr("strides", vec![stride]).attr("dilations", vec![dilation]);
        let y = call.attr("padding", vec![padding]).run()?.array::<f64, Ix2>("y")?;
        let by_hand = (0..y.len() as i64).map(|window| {
            let places = (0..size).map(|tap| window * stride + tap * dilation - padding);
            places.filter(|place| (0..dim as i64).contains(place)).count() as f64 / size as f64
        });
        assert_eq!(y.into_iter().collect::<Vec<_>>(), by_hand.collect::<Vec<_>>(), "{dim} {size} {stride}");
    }
    Ok(())
}

#[test]
fn windows_that_do_not_fit_are_errors() {
    let x = Array3::<f32>::zeros((2, 3, 4));
    let attempt = |size: Vec<i64>, list: &'static str, numbers: Vec<i64>| {
        let call = testing::call::<AvgPool>().input(&x).attr("ksize", size).attr(list, numbers);
        call.run().unwrap_err().message().to_owned()
    };
    assert!(attempt(vec![5], "strides", vec![]).contains("5 elements, 1 apart, does not fit a dim of 4"));
    assert!(attempt(vec![3], "dilations", vec![2]).contains("does not fit"));
    assert!(attempt(vec![2], "strides", vec![0]).contains("`strides` must be numbers from 1"));
    assert!(attempt(vec![2], "strides", vec![1, 1]).contains("a number for each of 1 dims"));
    assert!(attempt(vec![2], "padding", vec![-1]).contains("`padding` must be numbers from 0"));
    assert!(attempt(vec![0], "padding", vec![]).contains("`ksize` must be numbers from 1"));
    assert!(attempt(vec![1; 4], "padding", vec![]).contains("a dim for each number of `ksize`"));
    let pool = || testing::shapes::<MaxPool>().attr("ksize", vec![2, 3].into());
    infer_ok!(pool(), "[n,c,5,?]", "[n,c,4,?]");
    infer_ok!(pool(), "?", "?");
    infer_error!(pool(), "does not fit", "[n,c,5,2]");
    infer_error!(pool(), "rank at least 2", "[5]");
}
