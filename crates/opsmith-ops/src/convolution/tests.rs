use opsmith::dtype::f16;
use opsmith::ndarray::{Array, Array3, Array4, ArrayD, Dimension};
use opsmith::{infer_error, infer_ok, testing};

use super::*;

fn numbers<const N: usize>(shape: [usize; N]) -> ArrayD<f64> {
    Array::from_shape_fn(shape.to_vec(), |i| (i.slice().iter().fold(7, |n, i| n * 31 + i) % 17) as f64 - 8.0)
}

/// The convolution over three dims as its definition says.
fn plain(
    x: &ArrayD<f64>,
    filter: &ArrayD<f64>,
    [strides, dilations, padding]: [[usize; 3]; 3],
    groups: usize,
    counts: [usize; 3],
) -> ArrayD<f64> {
    let (xs, fs) = (x.shape().to_vec(), filter.shape().to_vec());
    let outside = fs[0] / groups;
    Array::from_shape_fn(vec![xs[0], fs[0], counts[0], counts[1], counts[2]], |at| {
        let mut sum = 0.0;
        for channel in 0..fs[1] {
            for q in opsmith::ndarray::indices((fs[2], fs[3], fs[4])) {
                let q = [q.0, q.1, q.2];
                let place =
                    |d: usize| (at[d + 2] * strides[d] + q[d] * dilations[d]).wrapping_sub(padding[d]);
                let inside = (0..3).all(|d| place(d) < xs[d + 2]);
                if inside {
                    let from = at[1] / outside * fs[1] + channel;
                    sum += x[[at[0], from, place(0), place(1), place(2)]]
                        * filter[[at[1], channel, q[0], q[1], q[2]]];
                }
            }
        }
        sum
    })
}

#[test]
fn all_dims_groups_and_steps() -> Result<()> {
    for (x, filter, steps, groups) in [
        ([2, 4, 5, 6, 7], [6, 2, 2, 3, 1], [[1, 2, 3], [2, 1, 1], [0, 1, 0]], 2),
        ([1, 3, 4, 9, 40], [5, 3, 1, 3, 3], [[1, 1, 1], [1, 1, 1], [0, 1, 1]], 1),
        ([3, 4, 3, 3, 5], [4, 1, 3, 2, 2], [[2, 1, 2], [1, 2, 3], [2, 1, 2]], 4),
        ([2, 6, 2, 3, 4], [8, 6, 1, 1, 1], [[1, 1, 1], [1, 1, 1], [0, 0, 0]], 1),
    ] {
        let (x, filter) = (numbers(x), numbers(filter));
        let list = |numbers: [usize; 3]| numbers.map(|number| number as i64).to_vec();
        let with = |call: testing::Call<'_>| {
            let call = call.attr("strides", list(steps[0])).attr("dilations", list(steps[1]));
            call.attr("padding", list(steps[2])).attr("groups", groups as i64).run()
        };
        let y = with(testing::call::<Conv>().input(&x).input(&filter))?.array::<f64, IxDyn>("y")?;
        let counts = [y.shape()[2], y.shape()[3], y.shape()[4]];
        assert_eq!(y, plain(&x, &filter, steps, groups, counts));
        // All numbers are whole, so products with gradients agree to the bit: ⟨g, x * f⟩ = ⟨x̄, x⟩ = ⟨f̄, f⟩.
        let g = numbers([y.shape()[0], y.shape()[1], counts[0], counts[1], counts[2]]);
        let found = with(testing::Call::new(gradient()).input(&x).input(&filter).input(&g))?;
        let whole = (&g * &y).sum();
        assert_eq!((found.array::<f64, IxDyn>("x_grad")? * &x).sum(), whole);
        assert_eq!((found.array::<f64, IxDyn>("filter_grad")? * &filter).sum(), whole);
        let again =
            testing::Call::new(second_gradient()).input(&x).input(&filter).input(&g).input(&x).input(&filter);
        let found = with(again)?;
        assert_eq!(found.array::<f64, IxDyn>("y_grad_grad")?, y.mapv(|y| 2.0 * y));
        assert_eq!((found.array::<f64, IxDyn>("x_grad")? * &x).sum(), whole);
        assert_eq!((found.array::<f64, IxDyn>("filter_grad")? * &filter).sum(), whole);
    }
    Ok(())
}

#[test]
fn half_is_added_up_in_float32_and_batches_may_have_no_dim() -> Result<()> {
    let (x, filter) = (Array::from_elem((4096, 3), f16::ONE), Array::from_elem((1, 4096, 2), f16::ONE));
    let call = testing::call::<Conv>().input(&x).input(&filter).attr("strides", vec![1]);
    assert_eq!(call.run()?.array::<f16, Ix2>("y")?, array![[f16::from_f32(8192.0), f16::from_f32(8192.0)]]);
    let none = Array3::<f32>::zeros((2, 0, 3));
    let filter = Array3::<f32>::zeros((4, 0, 2));
    let call = testing::call::<Conv>().input(&none).input(&filter).attr("strides", vec![1]);
    assert_eq!(call.run()?.array::<f32, Ix3>("y")?, Array3::<f32>::zeros((2, 4, 2)));
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error() {
    let x = Array4::<f32>::zeros((1, 4, 5, 5));
    let attempt = |filter: [usize; 4], name: &'static str, value: Vec<i64>| {
        let filter = Array4::<f32>::zeros(filter);
        let call = testing::call::<Conv>().input(&x).input(&filter);
        let call = if name == "strides" { call } else { call.attr("strides", vec![1, 1]) };
        let call = if name == "groups" { call.attr(name, value[0]) } else { call.attr(name, value) };
        let error = call.run().unwrap_err();
        assert_ne!(error.code(), Code::Internal, "{error}");
        error.message().to_owned()
    };
    assert!(
        attempt([2, 4, 6, 1], "padding", vec![]).contains("6 elements, 1 apart, does not fit a dim of 5")
    );
    assert!(attempt([2, 4, 3, 1], "dilations", vec![3, 1]).contains("does not fit"));
    assert!(attempt([2, 3, 1, 1], "padding", vec![]).contains("`groups`, 1, must divide"));
    assert!(attempt([4, 1, 1, 1], "groups", vec![3]).contains("`groups`, 3, must divide"));
    assert!(attempt([3, 2, 1, 1], "groups", vec![2]).contains("`groups`, 2, must divide"));
    assert!(attempt([2, 4, 1, 1], "strides", vec![0, 1]).contains("`strides` must be numbers from 1"));
    assert!(attempt([2, 4, 1, 1], "strides", vec![1]).contains("a size for each number of `strides`"));
    assert!(attempt([2, 4, 1, 1], "padding", vec![i64::MAX, 0]).contains("`padding` must be numbers from 0"));
    assert!(attempt([2, 4, 0, 1], "padding", vec![]).contains("a window of 0 elements"));
    let one = opsmith::ndarray::arr0(1f32);
    let (many, filter) = (one.broadcast((1 << 40, 1, 1 << 15)).unwrap(), Array3::<f32>::zeros((1, 1, 1)));
    let call = testing::call::<Conv>().input(&many).input(&filter).attr("strides", vec![1]);
    assert_eq!(call.run().unwrap_err().code(), Code::ResourceExhausted);
    let op =
        || testing::shapes::<Conv>().attr("strides", vec![2, 1].into()).attr("padding", vec![1, 0].into());
    infer_ok!(op(), "[n,4,5,?];[8,4,3,3]", "[d0_0,8,3,?]");
    infer_ok!(op(), "?;[8,4,3,3]", "?");
    infer_ok!(op(), "[4,5,9];[8,4,3,?]", "[8,3,?]");
    infer_error!(op(), "as many channels", "[n,3,5,5];[8,4,3,3]");
    infer_error!(op(), "does not fit", "[n,4,5,2];[8,4,3,3]");
    infer_error!(op(), "must have rank 4", "[n,4,5,5];[8,4,3]");
}
