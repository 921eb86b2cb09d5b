//! Values, gradients and faults of compositions.

use opsmith::prelude::*;
use opsmith::testing::{Call, call, shapes, view};
use opsmith::{Library, infer_error, infer_ok};

use super::{Composer, Composition, Value, define, gradients};
use crate::arithmetic::Mul;
use crate::functions::{exp, tanh};
use crate::indexing::Gather;
use crate::matmul::MatMul;
use crate::parts::{Concat, Split};
use crate::training::gradient_descent_step;
use crate::values::Assign;

/// An op that is a composition of this name, with these arguments.
macro_rules! composition {
    ($name:ident: $attrs:expr, $inputs:expr => $outputs:expr, |$c:ident| $body:expr) => {
        struct $name;

        impl OpDefinition for $name {
            const COMPANIONS: &'static [fn() -> OpDef] = gradients::<$name>();

            fn def() -> OpDef {
                let mut def = OpDef::new(stringify!($name));
                let (attrs, inputs, outputs): (&[&str], &[&str], &[&str]) = (&$attrs, &$inputs, &$outputs);
                for attr in attrs {
                    def = def.attr(attr);
                }
                for input in inputs {
                    def = def.input(input);
                    def = if input.starts_with("maybe") { def.optional("maybe") } else { def };
                }
                for output in outputs {
                    def = def.output(output);
                }
                define::<$name>(def)
            }
        }

        impl Composition for $name {
            fn compose($c: &Composer<'_>) -> Result<Vec<Value>> {
                $body
            }
        }
    };
}

const T: [&str; 1] = ["T: {float, double, int32}"];

// tanh(a · b) · a, which reads `a` twice.
composition!(Layer: T, ["a: T", "b: T"] => ["y: T"], |c| {
    let (a, b) = (c.input("a")?, c.input("b")?);
    let product = c.apply::<tanh>(&[c.apply::<MatMul>(&[a, b])?])?;
    Ok(vec![c.apply::<Mul>(&[product, a])?])
});

composition!(Halves: ["N: int >= 1", "T: {float, double}"], ["xs: N * T", "maybe: T"] => ["ys: N * T", "same: T"], |c| {
    let xs = c.input_list("xs")?;
    let all = c.call::<Concat>().input_list(&xs).output()?;
    let all = match c.optional_input("maybe")? {
        Some(maybe) => c.apply::<Mul>(&[all, maybe])?,
        None => all,
    };
    let mut ys = c.call::<Split>().input(all).attr("N", xs.len() as i64).outputs()?;
    ys.push(xs[0]);
    Ok(ys)
});

composition!(First: ["T: {float, double}"], ["x: T"] => ["y: T"], |c| Ok(vec![c.apply::<Second>(&[c.input("x")?])?]));
composition!(Second: ["T: {float, double}"], ["x: T"] => ["y: T"], |c| Ok(vec![c.apply::<First>(&[c.input("x")?])?]));
composition!(TooFew: ["T: {float, double}"], ["x: T"] => ["y: T", "z: T"], |c| Ok(vec![c.input("x")?]));
composition!(Wrong: ["T: {float, double}"], ["x: T", "n: int32"] => ["y: T"], |c| Ok(vec![c.input("n")?]));
composition!(Assigns: ["T: {float, double}"], ["x: T"] => ["y: T"], |c| {
    Ok(vec![c.apply::<Assign>(&[c.input("x")?, c.input("x")?])?])
});
composition!(Steps: ["T: {float, double}"], ["x: T"] => ["y: T"], |c| {
    let x = c.input("x")?;
    Ok(vec![c.call::<gradient_descent_step>().input(x).input(x).attr("learning_rate", 0.5).output()?])
});
composition!(Nested: ["T: {float, double}"], ["a: T", "b: T"] => ["y: T"], |c| {
    let y = c.apply::<Layer>(&[c.input("a")?, c.input("b")?])?;
    Ok(vec![c.apply::<exp>(&[y])?])
});
composition!(Picks: ["T: {float, double}"], ["x: T", "at: int64"] => ["y: T"], |c| {
    c.call::<Gather>().input(c.input("x")?).input(c.input("at")?).attr("axes", 1).outputs()
});

fn a() -> Array2<f64> {
    array![[0.3, -0.8], [1.1, 0.4]]
}

fn b() -> Array2<f64> {
    array![[-0.5, 0.9], [0.7, 0.2]]
}

fn matrix(call: Call<'_>, name: &str) -> Array2<f64> {
    call.run().unwrap().array(name).unwrap()
}

/// The derivative of the sum of `value`, by differences.
fn slope(x: &Array2<f64>, value: impl Fn(&Array2<f64>) -> f64) -> Array2<f64> {
    let mut slopes = Array2::zeros(x.raw_dim());
    for (place, slope) in slopes.indexed_iter_mut() {
        let at = |step: f64| {
            let mut moved = x.clone();
            moved[place] += step;
            value(&moved)
        };
        *slope = (at(1e-6) - at(-1e-6)) / 2e-6;
    }
    slopes
}

fn assert_close(left: &Array2<f64>, right: &Array2<f64>) {
    assert!((left - right).iter().all(|difference| difference.abs() < 1e-7), "{left} and {right}");
}

#[test]
fn values_are_those_of_the_ops() {
    let expected = a().dot(&b()).mapv(f64::tanh) * a();
    assert_close(&matrix(call::<Layer>().input(&a()).input(&b()), "y"), &expected);
    let nested = matrix(call::<Nested>().input(&a()).input(&b()), "y");
    assert_close(&nested, &expected.mapv(f64::exp));
    // Strided inputs are read where they lie.
    let turned = matrix(call::<Layer>().input(&a().t()).input(&b()), "y");
    assert_close(&turned, &(a().t().dot(&b()).mapv(f64::tanh) * a().t()));
    for threads in [1, 4] {
        let x = Array2::from_shape_fn((64, 64), |(i, j)| ((i * 7 + j * 3) % 11) as f64 / 11.0 - 0.5);
        let y = matrix(call::<Layer>().input(&x).input(&x).threads(threads), "y");
        assert_close(&y, &(x.dot(&x).mapv(f64::tanh) * &x));
    }
}

#[test]
fn gradients_of_two_orders_are_those_of_differences() {
    let weight = array![[1.0, -0.5], [0.25, 2.0]];
    let of = |nested: bool, order: usize| match (nested, order) {
        (false, order) => Layer::COMPANIONS[order](),
        (true, order) => Nested::COMPANIONS[order](),
    };
    for nested in [false, true] {
        let value = |a: &Array2<f64>, b: &Array2<f64>| {
            let call = if nested { call::<Nested>() } else { call::<Layer>() };
            (matrix(call.input(a).input(b), "y") * &weight).sum()
        };
        let first = |a: &Array2<f64>, b: &Array2<f64>, name: &str| {
            matrix(Call::new(of(nested, 0)).input(a).input(b).input(&weight), name)
        };
        assert_close(&first(&a(), &b(), "a_grad"), &slope(&a(), |a| value(a, &b())));
        assert_close(&first(&a(), &b(), "b_grad"), &slope(&b(), |b| value(&a(), b)));
        let (va, vb) = (b(), a());
        let both = |a: &Array2<f64>, b: &Array2<f64>| {
            (first(a, b, "a_grad") * &va).sum() + (first(a, b, "b_grad") * &vb).sum()
        };
        let (a, b) = (a(), b());
        let second = Call::new(of(nested, 1)).input(&a).input(&b).input(&weight).input(&va).input(&vb);
        let outputs = second.run().unwrap();
        assert_close(&outputs.array("a_grad").unwrap(), &slope(&a, |a| both(a, &b)));
        assert_close(&outputs.array("b_grad").unwrap(), &slope(&b, |b| both(&a, b)));
    }
}

#[test]
fn what_is_not_wanted_is_not_computed() {
    let (a, b) = (a(), b());
    let call = || Call::new(Layer::COMPANIONS[0]()).input(&a).input(&b).input(&a);
    let outputs = call().without("a_grad").run().unwrap();
    assert!(!outputs.has("a_grad"));
    let b_grad: Array2<f64> = outputs.array("b_grad").unwrap();
    assert_eq!(b_grad, matrix(call(), "b_grad"));
}

#[test]
fn lists_absent_inputs_and_inputs_as_outputs() {
    let (x, y, two) = (array![1.0, 2.0], array![3.0, 4.0], array![2.0]);
    let xs = || call::<Halves>().input_list([view(&x), view(&y)]);
    let outputs = xs().absent().run().unwrap();
    assert_eq!(outputs.element::<f64, Ix1>("ys", 1).unwrap(), y);
    assert_eq!(outputs.array::<f64, Ix1>("same").unwrap(), x);
    let outputs = xs().input(&two).run().unwrap();
    assert_eq!(outputs.element::<f64, Ix1>("ys", 0).unwrap(), array![2.0, 4.0]);
    let grads = || Call::new(Halves::COMPANIONS[0]()).input_list([view(&x), view(&y)]);
    let outputs = grads().input(&two).input_list([view(&x), view(&y)]).input(&x).run().unwrap();
    assert_eq!(outputs.element::<f64, Ix1>("xs_grad", 0).unwrap(), array![3.0, 6.0]);
    assert_eq!(outputs.array::<f64, Ix1>("maybe_grad").unwrap(), array![30.0]);
    let without = grads().absent().input_list([view(&x), view(&y)]).input(&x).without("maybe_grad");
    assert_eq!(without.run().unwrap().element::<f64, Ix1>("xs_grad", 1).unwrap(), y);
}

#[test]
fn shapes_come_from_the_steps() {
    infer_ok!(shapes::<Layer>(), "[n,k];[k,k]", "[n,k]");
    infer_error!(shapes::<Layer>(), "MatMul", "[2,3];[4,3]");
}

#[test]
fn what_fails_names_the_composition_and_the_op() {
    let error = call::<Nested>().input(&a()).input(&array![[1.0]]).run().unwrap_err();
    assert!(error.message().starts_with("Nested: Layer: MatMul: "), "{error}");
    let error = call::<Picks>().input(&array![1.0]).input(&array![0i64]).run().unwrap_err();
    assert!(error.message().contains("Picks: Gather: has no attribute `axes`"), "{error}");
}

#[test]
fn what_is_no_composition_is_refused() {
    let x = array![1.0];
    let of = |call: Call<'_>| call.run().map(drop).unwrap_err().message();
    assert!(of(call::<First>().input(&x)).ends_with("is composed of itself: First → Second → First"));
    infer_error!(shapes::<First>(), "First → Second → First", "[2]");
    let expected = "TooFew: its composition must give 2 tensors, one for each output, got 1";
    assert_eq!(of(call::<TooFew>().input(&x)), expected);
    let expected = "Wrong: its composition gives int32 for output `y`, which is float64";
    assert_eq!(of(call::<Wrong>().input(&x).input(&array![1])), expected);
    assert!(of(call::<Assigns>().input(&x)).starts_with("Assigns: Assign: has state or changes an input"));
    let error = of(Call::new(Steps::COMPANIONS[0]()).input(&x).input(&x));
    assert_eq!(
        error,
        "StepsGrad: GradientDescentStep: declares no gradient; the derived gradient of Steps needs it"
    );
}

#[test]
fn derived_gradients_are_wired() {
    let defs = std::iter::once(Layer::def()).chain(Layer::COMPANIONS.iter().map(|def| def())).collect();
    let library = Library::new("composed", "1.0.0", defs).unwrap();
    let wiring = |name: &str| library.op(name).unwrap().gradient_wiring().unwrap().clone();
    assert_eq!(wiring("Layer").outputs, [0, 1]);
    assert_eq!(wiring("LayerGrad").outputs, [0, 1, 2]);
    assert!(library.op("LayerGradGrad").unwrap().gradient_wiring().is_none());
}
