use opsmith::ndarray::Array3;
use opsmith::{infer_error, infer_ok, testing};

use super::*;

#[test]
fn each_order_and_every_place_of_the_dim() -> Result<()> {
    let x = Array3::from_shape_fn((2, 3, 4), |(i, j, k)| (i * 12 + j * 4 + k) as i32 % 5 + 1);
    for (axis, exclusive, reverse) in
        (0..3).flat_map(|axis| [false, true].map(|e| [false, true].map(|r| (axis, e, r)))).flatten()
    {
        let run = |call: testing::Call<'_>| {
            let call = call.attr("axis", axis as i64).attr("exclusive", exclusive);
            call.attr("reverse", reverse).run()?.array::<i32, Ix3>("y")
        };
        let (sums, products, most) = (
            run(testing::call::<CumSum>().input(&x))?,
            run(testing::call::<CumProd>().input(&x))?,
            run(testing::call::<CumMax>().input(&x))?,
        );
        for ((at, &sum), (&product, &largest)) in sums.indexed_iter().zip(products.iter().zip(&most)) {
            let place = [at.0, at.1, at.2];
            let counts = |i: usize| match (reverse, exclusive) {
                (false, false) => i <= place[axis],
                (false, true) => i < place[axis],
                (true, false) => i >= place[axis],
                (true, true) => i > place[axis],
            };
            let terms = (0..x.shape()[axis]).filter(|&i| counts(i)).map(|i| {
                let mut at = place;
                at[axis] = i;
                x[at]
            });
            assert_eq!(sum, terms.clone().sum::<i32>());
            assert_eq!(product, terms.clone().product::<i32>());
            assert_eq!(largest, terms.max().unwrap_or(i32::MIN));
        }
    }
    Ok(())
}

#[test]
fn what_is_computed_does_not_leave_the_dtype() -> Result<()> {
    let outputs = testing::call::<CumSum>().input(&array![100i8, 100, 100]).run()?;
    assert_eq!(outputs.array::<i8, Ix1>("y")?, array![100, -56, 44]);
    let outputs = testing::call::<CumProd>().input(&array![16u8, 16, 3]).run()?;
    assert_eq!(outputs.array::<u8, Ix1>("y")?, array![16, 0, 0]);
    let x = array![2.0, f64::NAN, 3.0];
    let least = testing::call::<CumMin>().input(&x).attr("exclusive", true).run()?.array::<f64, Ix1>("y")?;
    assert!(least[0] == f64::INFINITY && least[1] == 2.0 && least[2].is_nan());
    Ok(())
}

#[test]
fn axes_that_are_none_are_errors() {
    let error = testing::call::<CumSum>().input(&array![1.0]).attr("axis", 1).run().unwrap_err();
    assert_eq!(error.message(), "CumSum: `axis` must be a dim of a tensor of rank 1, got 1");
    let number = opsmith::ndarray::arr0(1.0);
    assert!(testing::call::<CumMax>().input(&number).run().is_err());
    infer_ok!(testing::shapes::<CumProd>(), "[2,?]", "[2,?]");
    infer_error!(testing::shapes::<CumProd>(), "rank at least 1", "[]");
    infer_error!(testing::shapes::<CumMin>().attr("axis", 2.into()), "2", "[3,4]");
}
