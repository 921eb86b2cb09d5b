//! Tracing: what is simplified and what is not, formulas, and CUDA sources.

mod support;

use opsmith_body::{Body, CudaType, F64, Graph, Plain, Scalar, trace};
use support::Lltm;

/// The formula of an expression of `a` and `b`.
macro_rules! formula {
    ($x:ident, $y:ident => $expression:expr) => {{
        struct Expression;
        impl Body<2, 1> for Expression {
            fn eval<S: Scalar>(&self, [$x, $y]: [S; 2]) -> [S; 1] {
                let zero = S::of(0.0);
                let _ = (zero, $y);
                [$expression(zero)]
            }
        }
        let formula = trace(&Expression).with_names(&["a", "b"], &["y"]).formula();
        formula.strip_prefix("y = ").expect("one line").to_owned()
    }};
}

#[test]
fn what_is_exact_is_simplified() {
    assert_eq!(formula!(a, b => |_| a * 1.0 + b / 1.0), "a + b");
    assert_eq!(formula!(a, b => |_| a * -1.0 + b), "b - a");
    assert_eq!(formula!(a, b => |_| a - (-b)), "a + b");
    assert_eq!(formula!(a, b => |_| -(-a)), "a");
    assert_eq!(formula!(a, b => |_| (-a) * (-b)), "a * b");
    assert_eq!(formula!(a, b => |_| (-a) / b), "-(a / b)");
    assert_eq!(formula!(a, b => |zero| a - zero), "a");
    assert_eq!(formula!(a, b => |_| a / 4.0), "a * 0.25");
    assert_eq!(formula!(a, b => |_| a / 3.0), "a / 3");
    assert_eq!(formula!(a, b => |_| (-a).abs().abs()), "abs(a)");
    assert_eq!(formula!(a, b => |zero| a.pow(zero + 1.0)), "a");
    assert_eq!(formula!(a, b => |zero| a.pow(zero + 2.0)), "a * a");
    assert_eq!(formula!(a, b => |_| a.min(a)), "a");
    assert_eq!(formula!(a, b => |zero: S| a * (zero + 2.0).sqrt()), "a * 1.4142135623730951");
    assert_eq!(formula!(a, b => |zero: S| S::select(!a.lt(b), a, zero)), "select(a < b, 0, a)");
    assert_eq!(formula!(a, b => |_| S::select(a.lt(b), b, b)), "b");
    assert_eq!(formula!(a, b => |zero: S| S::select(zero.lt(zero + 1.0), a, b)), "a");
    assert_eq!(formula!(a, b => |zero: S| S::select(zero.lt(zero) & a.lt(b), a, b)), "b");
    assert_eq!(formula!(a, b => |zero: S| S::select(a.lt(b) & zero.eq(zero), a, b)), "select(a < b, a, b)");
    assert_eq!(formula!(a, b => |zero: S| S::select(a.lt(b) | zero.le(zero), a, b)), "a");
    assert_eq!(formula!(a, b => |zero: S| S::select(zero.lt(zero) | a.lt(b), a, b)), "select(a < b, a, b)");
}

#[test]
fn what_is_not_exact_stays() {
    // −0 + 0 is 0, ∞ · 0 and ∞ − ∞ are NaN, and 1/3 is rounded.
    assert_eq!(formula!(a, b => |zero| a + zero), "a + 0");
    assert_eq!(formula!(a, b => |zero| a * zero), "a * 0");
    assert_eq!(formula!(a, b => |_| a - a), "a - a");
    assert_eq!(formula!(a, b => |_| a / a), "a / a");
    assert_eq!(formula!(a, b => |_| (a + b) - b), "a + b - b");
    assert_eq!(formula!(a, b => |_| a - (b - a)), "a - (b - a)");
    assert_eq!(formula!(a, b => |_| a / (b / a)), "a / (b / a)");
    assert_eq!(formula!(a, b => |_| -(a + b)), "-(a + b)");
    assert_eq!(formula!(a, b => |_| (-a).exp()), "exp(-a)");
}

fn lltm() -> Graph {
    trace(&Lltm).with_names(&["g0", "g1", "g2", "old_cell"], &["hidden", "cell"])
}

#[test]
fn formulas_name_what_is_used_twice() {
    let expected = "cell = old_cell + select(0 < g2, g2, expm1(g2)) * sigmoid(g0)\n\
                    hidden = tanh(cell) * sigmoid(g1)";
    assert_eq!(lltm().formula(), expected);
}

#[test]
fn gradients_share_what_they_have_in_common() {
    let gradient = lltm().gradient();
    let functions = ["expm1", "exp(", "tanh", "sigmoid(g0)", "sigmoid(g1)"];
    let formula = gradient.formula();
    for function in functions {
        assert_eq!(formula.matches(function).count(), 1, "{function} in\n{formula}");
    }
    assert!(formula.contains("old_cell_grad"), "{formula}");
}

struct LeakyRelu(f64);

impl Body<1, 1> for LeakyRelu {
    fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 1] {
        let slope = S::attr("slope", self.0);
        [S::select(x.gt(S::of(0.0)), x, x * slope)]
    }
}

#[test]
fn attributes_stay_parameters() {
    let graph = trace(&LeakyRelu(0.25)).with_names(&["x"], &["y"]);
    assert_eq!(graph.formula(), "y = select(0 < x, x, x * slope)");
    assert_eq!(graph.attributes(), [("slope", 0.25)]);
    assert_eq!(graph.eval(&[F64::<Plain>::new(-2.0)])[0].get(), -0.5);
    assert_eq!(graph.gradient().formula(), "x_grad = select(0 < x, y_grad, y_grad * slope)");
    let source = graph.cuda_source("leaky_relu", CudaType::Float, 0);
    assert!(source.contains("attributes.value[0]"), "{source}");
}

#[test]
fn cuda_sources_have_a_kernel_for_each_index() {
    for dtype in CudaType::ALL {
        let source = lltm().cuda_source("lltm", dtype, 0);
        for kernel in ["lltm_32(", "lltm_64("] {
            assert_eq!(source.matches(kernel).count(), 1, "{dtype:?} {kernel}");
        }
        let function = if dtype == CudaType::Double { "tanh(" } else { "tanhf(" };
        assert!(source.contains(function), "{source}");
    }
}

#[test]
fn constants_of_any_kind_are_written() {
    struct Constants;
    impl Body<1, 4> for Constants {
        fn eval<S: Scalar>(&self, _: [S; 1]) -> [S; 4] {
            [f64::INFINITY, f64::NAN, 1e-310, -0.0].map(S::of)
        }
    }
    let source = trace(&Constants).cuda_source("constants", CudaType::Double, 0);
    for text in ["0x7ff0000000000000LL", "0x7ff8000000000000LL", "Number(1e-310)", "Number(-0.0)"] {
        assert!(source.contains(text), "{text} in\n{source}");
    }
}

#[test]
#[should_panic(expected = "is not a C identifier")]
fn a_name_that_is_no_identifier_is_refused() {
    let _ = lltm().cuda_source("two words", CudaType::Float, 0);
}

#[test]
#[should_panic(expected = "only while a body is traced")]
fn expressions_are_of_a_trace() {
    let _ = opsmith_body::Expr::of(1.0);
}

#[test]
fn a_panic_while_tracing_leaves_nothing_behind() {
    struct Fails;
    impl Body<1, 1> for Fails {
        fn eval<S: Scalar>(&self, _: [S; 1]) -> [S; 1] {
            panic!("on purpose")
        }
    }
    assert!(std::panic::catch_unwind(|| trace(&Fails)).is_err());
    assert!(std::panic::catch_unwind(|| opsmith_body::Expr::of(1.0)).is_err());
    assert_eq!(lltm().nodes().len(), lltm().nodes().len());
}
