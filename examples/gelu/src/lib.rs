//! The Gaussian error linear unit, forward and backward in one pass each.
//!
//! An Opsmith library of one function: its kernels for four dtypes, the CUDA source and the gradients of three orders follow
//! from it, for the exact function and for the approximation.

use opsmith::prelude::*;

/// The Gaussian error linear unit, x Φ(x), where Φ is the distribution function of the normal distribution.
#[pointwise]
fn gelu<S: Scalar>(
    /// Any numbers.
    x: S,
    /// `none` for the function itself, within 2 units in the last place; `tanh` for x/2 (1 + tanh(√(2/π) (x + 0.044715 x³))).
    #[attr(default = "none", one_of = ["none", "tanh"])]
    approximate: &str,
) -> S {
    if approximate == "tanh" { x.gelu_tanh() } else { x.gelu() }
}

opsmith::library! { name = "gelu", ops = [gelu] }

#[cfg(test)]
mod tests {
    use opsmith::infer_ok;
    use opsmith::testing::{call, shapes};

    use super::*;

    #[test]
    fn values_are_those_of_the_definition() -> Result<()> {
        let x = array![[-1.0, 0.0], [1.0, 30.0]];
        // Φ(1) and tanh(√(2/π) · 1.044715), to all digits of a double.
        for (approximate, one) in [("none", 0.841_344_746_068_542_9), ("tanh", 0.841_191_990_608_276_7)] {
            let y =
                call::<gelu>().input(&x).attr("approximate", approximate).run()?.array::<f64, Ix2>("y")?;
            let expected = array![[one - 1.0, 0.0], [one, 30.0]];
            assert!((&y - &expected).iter().all(|error| error.abs() <= 2e-16), "{approximate}: {y}");
        }
        let y = call::<gelu>().input(&x).run()?.array::<f64, Ix2>("y")?;
        assert!((y[[1, 0]] - 0.841_344_746_068_542_9).abs() <= 2e-16, "the default is exact");
        Ok(())
    }

    #[test]
    fn shapes_are_kept() {
        infer_ok!(shapes::<gelu>(), "?", "in0");
        infer_ok!(shapes::<gelu>(), "[n,3]", "[n,3]");
        infer_ok!(shapes::<gelu>(), "[0]", "[0]");
        let gradient = opsmith::testing::Call::new(gelu::COMPANIONS[0]());
        let error = gradient.input(&array![1.0, 2.0]).input(&array![1.0]).run().unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert!(error.message().starts_with("GeluGrad: "), "{}", error.message());
    }

    #[test]
    fn bad_input_is_told() {
        let error = call::<gelu>().input(&array![1.0]).attr("approximate", "erf").run().unwrap_err();
        assert_eq!(error.message(), "Gelu: attribute `approximate` must be one of 'none', 'tanh', got 'erf'");
        let error = call::<gelu>().input(&array![1]).run().unwrap_err();
        assert!(error.message().contains("`x` is int32, but must be one of"), "{}", error.message());
    }
}
