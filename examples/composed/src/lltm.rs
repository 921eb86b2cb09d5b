//! An op that is a composition: a step of LLTM, a recurrent cell, whose gradients are derived.

use opsmith::prelude::*;
use opsmith_ops::arithmetic::{Add, Mul};
use opsmith_ops::compose::{self, Composer, Composition, Value};
use opsmith_ops::functions::{elu, sigmoid, tanh};
use opsmith_ops::matmul::MatMul;
use opsmith_ops::parts::{Concat, Split};

/// The step of the library `lltm`, with one op for each of its operations.
pub struct LltmOfOps;

impl OpDefinition for LltmOfOps {
    const COMPANIONS: &'static [fn() -> OpDef] = compose::gradients::<LltmOfOps>();

    fn def() -> OpDef {
        let def = OpDef::new("LltmOfOps").attr("T: {float, double}");
        let def = ["input", "weights", "bias", "old_h", "old_cell"]
            .iter()
            .fold(def, |def, name| def.input(&format!("{name}: T")))
            .output("new_h: T")
            .output("new_cell: T")
            .doc(
                "One step of a recurrent cell with a long-term memory.\n\
                 \n\
                 input: What the step reads, of shape (b, f).\n\
                 weights: The weights of the three parts of the gates, of shape (3s, s + f).\n\
                 bias: Their bias, of shape (3s).\n\
                 old_h: The output of the step before, of shape (b, s).\n\
                 old_cell: The state after the step before, of shape (b, s).\n\
                 new_h: The output, of shape (b, s).\n\
                 new_cell: The state, of shape (b, s).",
            );
        compose::define::<LltmOfOps>(def).shape("(b,f),(3 * s,s + f),(3 * s),(b,s),(b,s)->(b,s),(b,s)")
    }
}

impl Composition for LltmOfOps {
    fn compose(c: &Composer<'_>) -> Result<Vec<Value>> {
        let x = c
            .call::<Concat>()
            .input_list(&[c.input("old_h")?, c.input("input")?])
            .attr("axis", 1)
            .output()?;
        let product =
            c.call::<MatMul>().input(x).input(c.input("weights")?).attr("transpose_b", true).output()?;
        let gates = c.apply::<Add>(&[product, c.input("bias")?])?;
        let parts = c.call::<Split>().input(gates).attr("axis", 1).attr("N", 3).outputs()?;
        let candidate = c.apply::<Mul>(&[c.apply::<elu>(&[parts[2]])?, c.apply::<sigmoid>(&[parts[0]])?])?;
        let new_cell = c.apply::<Add>(&[c.input("old_cell")?, candidate])?;
        let new_h = c.apply::<Mul>(&[c.apply::<tanh>(&[new_cell])?, c.apply::<sigmoid>(&[parts[1]])?])?;
        Ok(vec![new_h, new_cell])
    }
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::{Array, Dimension, ShapeBuilder};
    use opsmith::testing::{Call, Outputs, call, shapes};
    use opsmith::{infer_error, infer_ok};

    use super::*;

    /// Numbers between −1 and 1, the same in every run.
    fn numbers<D: Dimension>(shape: impl ShapeBuilder<Dim = D>, seed: u64) -> Array<f64, D> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Array::from_shape_simple_fn(shape, || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
        })
    }

    type Step = (Array2<f64>, Array2<f64>, Array1<f64>, Array2<f64>, Array2<f64>);

    fn step(batch: usize, features: usize, size: usize) -> Step {
        let weights = numbers((3 * size, size + features), 2);
        let (old_h, old_cell) = (numbers((batch, size), 4), numbers((batch, size), 5));
        (numbers((batch, features), 1), weights, numbers(3 * size, 3), old_h, old_cell)
    }

    fn with<'a>(call: Call<'a>, (input, weights, bias, old_h, old_cell): &'a Step) -> Call<'a> {
        call.input(input).input(weights).input(bias).input(old_h).input(old_cell)
    }

    fn matrix(outputs: &Outputs, name: &str) -> Array2<f64> {
        outputs.array(name).unwrap()
    }

    #[test]
    fn values_are_those_of_the_formulas() {
        for (batch, features, size) in [(1, 1, 1), (3, 2, 5), (2, 0, 3), (0, 2, 3)] {
            let step = step(batch, features, size);
            let made = with(call::<LltmOfOps>(), &step).run().unwrap();
            let (input, weights, bias, old_h, old_cell) = &step;
            let x = opsmith::ndarray::concatenate(Axis(1), &[old_h.view(), input.view()]).unwrap();
            let gates = x.dot(&weights.t()) + bias;
            let part = |part: usize| gates.slice(s![.., part * size..(part + 1) * size]).to_owned();
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let candidate = part(2).mapv(|g| if g > 0.0 { g } else { g.exp_m1() });
            let cell = old_cell + candidate * part(0).mapv(sigmoid);
            let h = cell.mapv(f64::tanh) * part(1).mapv(sigmoid);
            for (name, expected) in [("new_h", h), ("new_cell", cell)] {
                let difference = matrix(&made, name) - expected;
                assert!(difference.iter().all(|difference| difference.abs() < 1e-13), "{name}");
            }
        }
    }

    #[test]
    fn the_derived_gradient_is_that_of_differences() {
        let mut at = step(3, 2, 4);
        let (h_grad, cell_grad) = (numbers((3, 4), 6), numbers((3, 4), 7));
        let gradient = with(Call::new(LltmOfOps::COMPANIONS[0]()), &at).input(&h_grad).input(&cell_grad);
        let weights_grad = matrix(&gradient.run().unwrap(), "weights_grad");
        let value = |step: &Step| {
            let made = with(call::<LltmOfOps>(), step).run().unwrap();
            (matrix(&made, "new_h") * &h_grad).sum() + (matrix(&made, "new_cell") * &cell_grad).sum()
        };
        for (place, gradient) in weights_grad.indexed_iter() {
            let mut values = [1e-6, -2e-6].map(|step| {
                at.1[place] += step;
                value(&at)
            });
            at.1[place] += 1e-6;
            values[1] -= values[0];
            assert!((gradient + values[1] / 2e-6).abs() < 1e-7, "{place:?}");
        }
    }

    #[test]
    fn shapes_are_checked() {
        infer_ok!(shapes::<LltmOfOps>(), "[b,2];[12,6];[12];[b,4];[b,4]", "[b,4];[b,4]");
        infer_error!(shapes::<LltmOfOps>(), "weights", "[3,2];[12,7];[12];[3,4];[3,4]");
    }
}
