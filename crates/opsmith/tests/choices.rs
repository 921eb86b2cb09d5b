//! Texts and bools that choose what a body computes.

mod common;

use common::{assert_close, gradient, numbers};
use opsmith::Library;
use opsmith::ndarray::ArrayD;
use opsmith::prelude::*;
use opsmith::testing::{Call, call};

/// A curve.
#[pointwise]
fn curve<S: Scalar>(
    x: S,
    /// Its kind.
    #[attr(default = "line", one_of = ["line", "square", "cube"])]
    kind: &str,
    #[attr(default = false)] negate: bool,
    #[attr(default = 1.0)] factor: S,
) -> S {
    let y = match kind {
        "square" => x * x,
        "cube" => x * x * x,
        _ => x,
    };
    factor * if negate { -y } else { y }
}

/// A curve as a step of a hand-written kernel.
#[op(shape = "(n)->(n)")]
fn half_curve(cx: &Compute, x: ArrayView1<f64>, #[attr] kind: &str, y: ArrayViewMut1<f64>) -> Result<()> {
    let kind = ["line", "square", "cube", "circle"].into_iter().find(|known| *known == kind).unwrap_or("");
    cx.map(&curve { kind, negate: false, factor: 0.5 }, [x], [y])
}

/// The mean of the numbers of a row, or of their magnitudes.
#[reduce]
fn size<R: Rows>(x: R::Each, #[attr(one_of = ["signed", "magnitudes"])] of: &str) -> R::One {
    if of == "signed" { x.mean() } else { x.abs().mean() }
}

fn with<'a>(call: Call<'a>, kind: &'a str, negate: bool) -> Call<'a> {
    call.attr("kind", kind).attr("negate", negate).attr("factor", 2.0)
}

#[test]
fn they_choose_in_every_order_and_kernel() {
    let (x, ones) = (numbers(&[300], 1), ArrayD::from_elem(vec![300], 1.0));
    for (kind, power) in [("line", 1), ("square", 2), ("cube", 3)] {
        let slope = x.mapv(|x| f64::from(power) * x.powi(power - 1));
        let bend = x.mapv(|x| f64::from(power * (power - 1)) * x.powi((power - 2).max(0)));
        for (negate, factor) in [(false, 2.0), (true, -2.0)] {
            let y = with(call::<curve>(), kind, negate).input(&x).run().unwrap().array("y").unwrap();
            assert_close(&y, &x.mapv(|x| factor * x.powi(power)), 1e-14);
            let first = with(gradient::<curve>(1), kind, negate).input(&x).input(&ones).run().unwrap();
            assert_close(&first.array("x_grad").unwrap(), &(&slope * factor), 1e-14);
            let second = with(gradient::<curve>(2), kind, negate).input(&x).input(&ones).input(&ones);
            let second = second.run().unwrap().array("x_grad").unwrap();
            assert_close(&second, &(&bend * factor), 1e-14);
        }
        let half: ArrayD<f64> =
            call::<half_curve>().input(&x).attr("kind", kind).run().unwrap().array("y").unwrap();
        assert_close(&half, &x.mapv(|x| x.powi(power) / 2.0), 1e-14);
    }
}

#[test]
fn they_choose_in_rows() {
    let x = array![[1.0, -3.0], [2.0, 4.0]];
    for (of, expected) in [("signed", array![-1.0, 3.0]), ("magnitudes", array![2.0, 3.0])] {
        let y = call::<size>().input(&x).attr("of", of).run().unwrap();
        assert_eq!(y.array::<f64, Ix1>("y").unwrap(), expected);
    }
}

#[test]
fn any_other_text_is_an_error() {
    let x = array![1.0, 2.0];
    let error = call::<curve>().input(&x).attr("kind", "circle").run().unwrap_err();
    assert_eq!(
        error.message(),
        "Curve: attribute `kind` must be one of 'line', 'square', 'cube', got 'circle'"
    );
    let error = call::<half_curve>().input(&x).attr("kind", "circle").run().unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("a text of the body `curve` is none of those"), "{}", error.message());
}

#[test]
fn each_choice_has_its_formula_and_source() {
    let mut defs = vec![curve::def()];
    defs.extend(curve::COMPANIONS.iter().map(|def| def()));
    let library = Library::new("test", "1.0.0", defs).unwrap();
    let explain =
        |kind: &str| library.op("curve").unwrap().explain(&[Some(kind.into()), None, None, None]).unwrap();
    assert_eq!(explain("line").formula, "y = x * factor");
    assert_eq!(explain("square").formula, "y = factor * x * x");
    let sources = ["line", "square", "cube"].map(|kind| explain(kind).cuda_source);
    assert!(sources[0] != sources[1] && sources[1] != sources[2]);
}
