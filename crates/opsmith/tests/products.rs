//! Products of matrices within bodies over named axes, and numbers that a body says are saved.

mod common;

use common::{assert_close, gradient, numbers};
use opsmith::ndarray::{Array2, Array3, ArrayD, Axis, Ix2, Ix3};
use opsmith::prelude::*;
use opsmith::testing::{Call, call};

/// A layer of a network, whose sums are as large as its output.
#[body("(b,k),(s,k),(s)->(b,s)")]
fn layer<S: Indexed>(x: S, w: S, bias: S) -> S {
    let gate = ((x * w).sum(k) + bias).saved();
    gate.sigmoid() * gate
}

/// The same, which saves nothing.
#[body("(b,k),(s,k),(s)->(b,s)")]
fn forgetful_layer<S: Indexed>(x: S, w: S, bias: S) -> S {
    let gate = (x * w).sum(k) + bias;
    gate.sigmoid() * gate
}

/// A product of a product.
#[body("(i,k),(k,j),(j,e)->(i,e)")]
fn chain<S: Indexed>(a: S, b: S, c: S) -> S {
    ((a * b).sum(k) * c).sum(j)
}

/// A product for each g.
#[body("(g,i,k),(g,j,k)->(g,i,j)")]
fn each<S: Indexed>(a: S, b: S) -> S {
    (a * b).sum(k)
}

/// Sums along two axes.
#[body("(i,k,l),(j,k,l)->(i,j)")]
fn contraction<S: Indexed>(a: S, b: S) -> S {
    (a * b).sum(l).sum(k)
}

/// A factor and a result that are computed, an output that is the product, and one that is not.
#[body("(i,k),(k,j)->(i,j),(i,j)", outputs = [plain, squared])]
fn both<S: Indexed>(a: S, b: S) -> (S, S) {
    let product = (a.exp() * b).sum(k);
    (product, product * product)
}

fn matrix(rows: usize, columns: usize, seed: u64) -> Array2<f64> {
    numbers(&[rows, columns], seed).into_dimensionality::<Ix2>().unwrap()
}

fn made(call: Call<'_>, name: &str) -> ArrayD<f64> {
    call.run().unwrap().array(name).unwrap()
}

#[test]
fn products_are_those_of_matrices() {
    let (a, b, c) = (matrix(70, 90, 1), matrix(90, 64, 2), matrix(64, 80, 3));
    let expected = a.dot(&b).dot(&c).into_dyn();
    assert_close(&made(call::<chain>().input(&a).input(&b).input(&c), "z"), &expected, 1e-12);
    // However they lie, backwards too.
    let turned = a.t().as_standard_layout().into_owned();
    let (b, c) = (b.slice(s![.., ..;-1]), c.slice(s![..;-1, ..]));
    assert_close(&made(call::<chain>().input(&turned.t()).input(&b).input(&c), "z"), &expected, 1e-12);
}

/// Two products and a number, whose sums are added up where the result lies.
#[body("(i,k),(k,j),(i,l),(l,j),(j)->(i,j),(i,j)", outputs = [sum, shifted])]
fn sum_of_products<S: Indexed>(a: S, b: S, c: S, d: S, bias: S) -> (S, S) {
    let of_others = (c * d).sum(l);
    ((a * b).sum(k) + (c.exp() * d).sum(l), (a.exp() * b).sum(k) + of_others + bias)
}

#[test]
fn products_are_added_up() {
    let (a, b, c, d) = (matrix(70, 90, 1), matrix(90, 64, 2), matrix(70, 80, 3) * 0.3, matrix(80, 64, 4));
    let bias = numbers(&[64], 5);
    let call = call::<sum_of_products>().input(&a).input(&b).input(&c).input(&d).input(&bias);
    let ours = call.run().unwrap();
    let sum = (a.dot(&b) + c.mapv(f64::exp).dot(&d)).into_dyn();
    assert_close(&ours.array("sum").unwrap(), &sum, 1e-12);
    let shifted = (a.mapv(f64::exp).dot(&b) + c.dot(&d)).into_dyn() + &bias;
    assert_close(&ours.array("shifted").unwrap(), &shifted, 1e-12);
}

#[test]
fn float32_takes_the_same_products() {
    let narrow = |own: &ArrayD<f64>| own.mapv(|own| own as f32);
    let wide = |made: ArrayD<f32>| made.mapv(f64::from);
    let [x, w, bias, z_grad, saved] = of_layer([48, 100, 64]).map(|own| narrow(&own));
    let forward = call::<layer>().input(&x).input(&w).input(&bias).run().unwrap();
    let inputs = [&x, &w, &bias, &saved, &z_grad];
    let back = inputs.iter().fold(gradient::<layer>(1), |call, input| call.input(*input)).run().unwrap();
    let exact = of_layer([48, 100, 64]);
    let [x, w, bias, z_grad, saved] = &exact;
    let inputs = [x, w, bias, saved, z_grad];
    let expected = inputs.iter().fold(gradient::<layer>(1), |call, input| call.input(*input)).run().unwrap();
    let z = made(call::<layer>().input(x).input(w).input(bias), "z");
    assert_close(&wide(forward.array("z").unwrap()), &z, 2e-5);
    for name in ["x_grad", "w_grad", "bias_grad"] {
        assert_close(&wide(back.array(name).unwrap()), &expected.array(name).unwrap(), 2e-4);
    }
}

#[test]
fn several_axes_are_summed_or_gone_through() {
    let of = |shape: [usize; 3], seed| numbers(&shape, seed).into_dimensionality::<Ix3>().unwrap();
    // Factors that are dense along what is summed are no products of their own, unless they are large.
    let lying = |own: &Array3<f64>, order: [usize; 3], back: [usize; 3]| {
        own.view().permuted_axes(order).as_standard_layout().into_owned().permuted_axes(back)
    };
    let (a, b) = (of([3, 70, 90], 1), of([3, 60, 90], 2));
    for b in [b.clone(), lying(&b, [0, 2, 1], [0, 2, 1])] {
        let ours = made(call::<each>().input(&a).input(&b), "z");
        for g in 0..3 {
            let expected = a.index_axis(Axis(0), g).dot(&b.index_axis(Axis(0), g).t()).into_dyn();
            assert_close(&ours.index_axis(Axis(0), g).to_owned(), &expected, 1e-12);
        }
    }
    let (a, b) = (of([70, 9, 16], 3), of([60, 9, 16], 4));
    let flat = |own: &Array3<f64>| own.to_shape((own.dim().0, 144)).unwrap().into_owned();
    let expected = flat(&a).dot(&flat(&b).t()).into_dyn();
    // The summed axes of the third are not one dim with those of `a`.
    for b in [b.clone(), lying(&b, [1, 2, 0], [2, 0, 1]), lying(&b, [2, 1, 0], [2, 1, 0])] {
        assert_close(&made(call::<contraction>().input(&a).input(&b), "z"), &expected, 1e-12);
    }
    // With dims in front.
    let (a, b, c) = (of([2, 70, 90], 5), matrix(90, 64, 6), matrix(64, 80, 7));
    let ours = made(call::<chain>().input(&a).input(&b).input(&c), "z");
    for batch in 0..2 {
        let expected = a.index_axis(Axis(0), batch).dot(&b).dot(&c).into_dyn();
        assert_close(&ours.index_axis(Axis(0), batch).to_owned(), &expected, 1e-12);
    }
}

#[test]
fn what_is_around_a_product_is_computed() {
    let (a, b) = (matrix(70, 90, 1), matrix(90, 64, 2));
    let product = a.mapv(f64::exp).dot(&b);
    let ours = call::<both>().input(&a).input(&b).run().unwrap();
    assert_close(&ours.array("plain").unwrap(), &product.clone().into_dyn(), 1e-12);
    assert_close(&ours.array("squared").unwrap(), &product.mapv(|own| own * own).into_dyn(), 1e-12);
}

#[test]
fn threads_change_nothing() {
    let (a, b) = (matrix(700, 300, 1), matrix(300, 640, 2));
    let both = |threads| {
        let made = call::<both>().input(&a).input(&b).threads(threads).run().unwrap();
        ["plain", "squared"].map(|name| made.array::<f64, IxDyn>(name).unwrap())
    };
    assert_eq!(both(1), both(3));
}

/// x, w, bias, what arrives, and what is saved.
fn of_layer(sizes: [usize; 3]) -> [ArrayD<f64>; 5] {
    let [b, k, s] = sizes;
    let (x, w, bias) = (numbers(&[b, k], 1), numbers(&[s, k], 2) * 0.1, numbers(&[s], 3));
    let saved = made(call::<layer>().input(&x).input(&w).input(&bias), "saved_1");
    [x, w, bias, numbers(&[b, s], 4), saved]
}

#[test]
fn what_a_body_says_is_saved() {
    for sizes in [[3, 4, 5], [48, 100, 64], [20, 300, 900]] {
        let [x, w, bias, z_grad, saved] = of_layer(sizes);
        let [x2, w2] = [&x, &w].map(|own| own.clone().into_dimensionality::<Ix2>().unwrap());
        let gate = (x2.dot(&w2.t()) + &bias).into_dyn();
        assert_close(&saved, &gate, 1e-12);
        let sigmoid = gate.mapv(|gate| 1.0 / (1.0 + (-gate).exp()));
        let forward = made(call::<layer>().input(&x).input(&w).input(&bias), "z");
        assert_close(&forward, &(&sigmoid * &gate), 1e-12);
        let slope = &sigmoid * &(sigmoid.mapv(|own| 1.0 - own) * &gate + 1.0);
        let of_gate = (&z_grad * &slope).into_dimensionality::<Ix2>().unwrap();
        let inputs = [&x, &w, &bias, &saved, &z_grad];
        let back = || inputs.iter().fold(gradient::<layer>(1), |call, input| call.input(*input));
        let ours = back().run().unwrap();
        let expected = [
            ("x_grad", of_gate.dot(&w2).into_dyn()),
            ("w_grad", of_gate.t().dot(&x2).into_dyn()),
            ("bias_grad", of_gate.sum_axis(Axis(0)).into_dyn()),
        ];
        for (name, expected) in expected {
            assert_close(&ours.array(name).unwrap(), &expected, 1e-11);
        }
    }
}

/// The gradient reads what is saved and not what it was made of: zeros that are said to be saved are what it computes with.
#[test]
fn what_is_saved_is_read() {
    let [x, w, bias, z_grad, saved] = of_layer([3, 4, 5]);
    let zeros = saved.mapv(|_| 0.0);
    let inputs = [&x, &w, &bias, &zeros, &z_grad];
    let ours = made(inputs.iter().fold(gradient::<layer>(1), |call, input| call.input(*input)), "bias_grad");
    assert_close(&ours, &z_grad.sum_axis(Axis(0)).mapv(|own| own * 0.5), 1e-14);
    let names = |def: opsmith::OpDef| def.signature().unwrap().outputs.len();
    assert_eq!((names(layer::def()), names(forgetful_layer::def())), (2, 1));
}

/// The second order is that of the same body which saves nothing.
#[test]
fn the_second_order_is_the_same() {
    for sizes in [[3, 4, 5], [48, 100, 64]] {
        let [x, w, bias, z_grad, saved] = of_layer(sizes);
        let [for_x, for_w, for_bias] = [&x, &w, &bias].map(|own| numbers(own.shape(), 9));
        let own = [&x, &w, &bias, &saved, &z_grad, &for_x, &for_w, &for_bias];
        let theirs = [&x, &w, &bias, &z_grad, &for_x, &for_w, &for_bias];
        let ours = own.iter().fold(gradient::<layer>(2), |call, input| call.input(*input)).run().unwrap();
        let theirs = theirs.iter().fold(gradient::<forgetful_layer>(2), |call, input| call.input(*input));
        let theirs = theirs.run().unwrap();
        for name in ["x_grad", "w_grad", "bias_grad", "z_grad_grad"] {
            let [ours, theirs] = [&ours, &theirs].map(|made| made.array::<f64, IxDyn>(name).unwrap());
            assert_close(&ours, &theirs, 1e-10);
        }
    }
}

#[test]
fn a_card_saves_and_reads_the_same() {
    let [x, w, bias, z_grad, saved] = of_layer([3, 4, 5]);
    let forward = call::<layer>().input(&x).input(&w).input(&bias).run_cuda_on_processor().unwrap();
    let Some(forward) = forward else { return };
    assert_close(&forward.array("saved_1").unwrap(), &saved, 1e-12);
    let inputs = [&x, &w, &bias, &saved, &z_grad];
    let back = || inputs.iter().fold(gradient::<layer>(1), |call, input| call.input(*input));
    let (ours, theirs) = (back().run_cuda_on_processor().unwrap().unwrap(), back().run().unwrap());
    for name in ["x_grad", "w_grad", "bias_grad"] {
        assert_close(&ours.array(name).unwrap(), &theirs.array(name).unwrap(), 1e-12);
    }
}
