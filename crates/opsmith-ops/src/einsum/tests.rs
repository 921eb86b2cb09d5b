use opsmith::dtype::f16;
use opsmith::ndarray::{Array, ArrayD, Dimension};
use opsmith::{infer_error, infer_ok, testing};

use super::*;

fn numbers<const N: usize>(shape: [usize; N]) -> ArrayD<f64> {
    Array::from_shape_fn(shape.to_vec(), |i| (i.slice().iter().fold(7, |n, i| n * 31 + i) % 17) as f64 - 8.0)
}

fn run(equation: &str, inputs: &[&ArrayD<f64>]) -> Result<ArrayD<f64>> {
    let call = testing::call::<Einsum>().input_list(inputs.iter().map(|input| testing::view(*input)));
    call.attr("equation", equation).run()?.array::<f64, IxDyn>("y")
}

#[test]
fn products_traces_sums_and_repetitions() -> Result<()> {
    let (a, b, c) = (numbers([3, 4]), numbers([4, 5]), numbers([2, 3, 3]));
    let product = run("ij,jk->ik", &[&a, &b])?;
    let by_hand = Array::from_shape_fn((3, 5), |(i, k)| (0..4).map(|j| a[[i, j]] * b[[j, k]]).sum::<f64>());
    assert_eq!(product, by_hand.clone().into_dyn());
    assert_eq!(run("jk, ij", &[&b, &a])?, by_hand.clone().into_dyn());
    assert_eq!(run("ij,jk->ki", &[&a, &b])?, by_hand.t().to_owned().into_dyn());
    let traces = Array::from_shape_fn(2, |b| (0..3).map(|i| c[[b, i, i]]).sum::<f64>());
    assert_eq!(run("...ii->...", &[&c])?, traces.into_dyn());
    let all = run("bij,ik,kl->", &[&c, &a, &b])?;
    let sum = |x: &ArrayD<f64>, axis| x.sum_axis(Axis(axis));
    let left = sum(&sum(&c, 0), 1);
    assert_eq!(all.sum(), (sum(&(left.insert_axis(Axis(1)) * &a), 0) * sum(&b, 1)).sum());
    // A dim of 1 is repeated.
    let row = numbers([1, 4]);
    let same = run("ij,ij->ij", &[&a, &row])?;
    assert_eq!(same, &a * &row);
    assert_eq!(run("bij,bij->b", &[&c, &c])?, sum(&sum(&(&c * &c), 2), 1));
    Ok(())
}

#[test]
fn what_is_empty_adds_up_to_zeros() -> Result<()> {
    for (equation, inputs, shape) in [
        ("i,i->", vec![numbers([0]), numbers([0])], vec![]),
        ("bhqd,bhkd->bhqk", vec![numbers([0, 2, 3, 4]), numbers([0, 2, 5, 4])], vec![0, 2, 3, 5]),
        ("bhqd,bhkd->bhqk", vec![numbers([2, 3, 4, 0]), numbers([2, 3, 5, 0])], vec![2, 3, 4, 5]),
        ("abi,ij->abj", vec![numbers([0, 3, 4]), numbers([4, 5])], vec![0, 3, 5]),
        ("abi,ij->abj", vec![numbers([2, 3, 0]), numbers([0, 5])], vec![2, 3, 5]),
        ("abi->a", vec![numbers([3, 0, 4])], vec![3]),
        ("abi->a", vec![numbers([0, 3, 4])], vec![0]),
    ] {
        let given: Vec<&ArrayD<f64>> = inputs.iter().collect();
        let y = run(equation, &given)?;
        assert_eq!(y, ArrayD::<f64>::zeros(shape), "{equation}");
        let list = || inputs.iter().map(testing::view);
        let call = testing::Call::new(gradient()).input_list(list()).input(&y).attr("equation", equation);
        let outputs = call.run()?;
        for (index, input) in inputs.iter().enumerate() {
            let found = outputs.element::<f64, IxDyn>("inputs_grad", index)?;
            assert_eq!(found, ArrayD::<f64>::zeros(input.shape()), "{equation} {index}");
        }
    }
    Ok(())
}

#[test]
fn gradients_have_the_product_that_they_should() -> Result<()> {
    // For each input ⟨y_grad, y⟩ = ⟨its gradient, it⟩.
    for (equation, inputs) in [
        ("ij,jk->ik", vec![numbers([3, 4]), numbers([4, 5])]),
        ("bii,b->i", vec![numbers([2, 3, 3]), numbers([2])]),
        ("ij,k->i", vec![numbers([3, 4]), numbers([2])]),
        ("...a,...a,a->...", vec![numbers([2, 1, 3]), numbers([4, 3]), numbers([1])]),
    ] {
        let given: Vec<&ArrayD<f64>> = inputs.iter().collect();
        let y = run(equation, &given)?;
        let y_grad = y.mapv(|y| y % 5.0 + 1.0);
        let list = || inputs.iter().map(testing::view);
        let call =
            || testing::Call::new(gradient()).input_list(list()).input(&y_grad).attr("equation", equation);
        let outputs = call().run()?;
        let expected = (&y_grad * &y).sum();
        for (index, input) in inputs.iter().enumerate() {
            let found = outputs.element::<f64, IxDyn>("inputs_grad", index)?;
            assert_eq!(found.shape(), input.shape());
            assert_eq!((found * input).sum(), expected, "{equation} {index}");
        }
        let call = testing::Call::new(second_gradient()).input_list(list()).input(&y_grad).input_list(list());
        let outputs = call.attr("equation", equation).run()?;
        let times = inputs.len() as f64;
        assert_eq!(outputs.array::<f64, IxDyn>("y_grad_grad")?, y.mapv(|y| times * y));
        for (index, input) in inputs.iter().enumerate() {
            let found = outputs.element::<f64, IxDyn>("inputs_grad", index)?;
            assert_eq!((found * input).sum(), (times - 1.0) * expected, "{equation} {index}");
        }
    }
    Ok(())
}

#[test]
fn half_is_added_up_in_float32_and_integers_wrap() -> Result<()> {
    let ones = Array::from_elem(4096, f16::ONE);
    let call = testing::call::<Einsum>().input_list([testing::view(&ones), testing::view(&ones)]);
    assert_eq!(call.attr("equation", "i,i").run()?.array::<f16, Ix0>("y")?[()], f16::from_f32(4096.0));
    let many = Array::from_elem((2, 3), 100i8);
    let call = testing::call::<Einsum>().input_list([testing::view(&many)]);
    assert_eq!(call.attr("equation", "ij->i").run()?.array::<i8, Ix1>("y")?, array![44, 44]);
    Ok(())
}

#[test]
fn what_is_no_equation_is_an_error() {
    let (a, b) = (numbers([3, 4]), numbers([4, 5]));
    for (equation, why) in [
        ("ij,jk->il", "has 'l' in the output and in no input"),
        ("ij,jk->ii", "has 'i' twice in the output"),
        ("ij->i", "is of 1 tensors, got 2"),
        ("ijk,jk->i", "names 3 dims of tensor 0, which has 2"),
        ("i,jk->i", "names 1 dims of tensor 0, which has 2"),
        ("i1,jk->i", "has '1', which is no letter"),
        ("i...j...,jk", "has `...` twice in one tensor"),
        ("ij,jk->i->k", "has '-', which is no letter"),
        ("ij,ik->jk", "must be equal or 1, got shapes [[3, 4], [4, 5]]"),
        ("ii,jk->i", "must be equal, got shape [3, 4]"),
    ] {
        let error = run(equation, &[&a, &b]).unwrap_err();
        assert!(error.message().contains(why), "{equation}: {error}");
        assert_eq!(error.code(), Code::InvalidArgument);
    }
    let error = run("ii->i", &[&numbers([1, 3])]).unwrap_err();
    assert!(error.message().contains("must be equal, got shape [1, 3]"), "{error}");
    let shapes =
        |equation: &str| testing::shapes::<Einsum>().attr("equation", equation.into()).attr("N", 2.into());
    infer_ok!(shapes("...ij,jk->ki..."), "[b,?,4];[4,5]", "[d1_1,?,d0_0]");
    infer_ok!(shapes("ij,jk"), "?;[4,5]", "?");
    infer_ok!(shapes("ii,ij"), "[?,1];[3,j]", "[d1_1]");
    infer_error!(shapes("ii,ij->i"), "3", "[1,3];[3,2]");
    infer_error!(shapes("ij,jk"), "3", "[b,3];[4,5]");
    infer_error!(shapes("ij,j"), "names 1 dims of tensor 1", "[b,3];[4,5]");
}
