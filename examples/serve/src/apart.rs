//! Whether rows are as independent as `--free-rows` says, tried with two rows of numbers.

use anyhow::{Result, bail};
use opsmith_core::{DType, Dim};
use opsmith_runtime::Tensor;

use crate::model::{Argument, Model};

/// How far apart numbers may be that are computed in another order, of the larger.
const TOLERANCE: f64 = 1e-3;

/// Computes two rows together and each alone. Nothing is tried for a model whose inputs are not floats of known dims but for the first, or
/// that refuses these numbers.
///
/// # Errors
/// The output that differs.
pub(crate) fn check(model: &dyn Model) -> Result<()> {
    let Some(together) = model.inputs().iter().map(numbers).collect::<Option<Vec<Tensor>>>() else {
        return Ok(());
    };
    let run = |rows: std::ops::Range<usize>| {
        let of_rows = |input: &Tensor| input.slice(0, rows.start, rows.end).ok();
        model.run(&together.iter().map(of_rows).collect::<Option<Vec<_>>>()?).ok()
    };
    let (Some(both), Some(first), Some(second)) = (run(0..2), run(0..1), run(1..2)) else { return Ok(()) };
    for (position, Argument { name, .. }) in model.outputs().iter().enumerate() {
        let [both, first, second] = [&both, &first, &second].map(|outputs| floats(&outputs[position]));
        let (Some(both), Some(alone)) = (both, first.zip(second).map(|(a, b)| [a, b].concat())) else {
            continue;
        };
        if both.len() != alone.len() || both.iter().zip(&alone).any(|(a, b)| differ(*a, *b)) {
            bail!(
                "--free-rows: `{name}` has other numbers for a row beside another row than for the row alone, \
                 so answers of a batch would be wrong"
            );
        }
    }
    Ok(())
}

/// Two rows of numbers that are all different.
fn numbers(Argument { dtype, shape, .. }: &Argument) -> Option<Tensor> {
    let dims = shape.dims()?.get(1..)?.iter();
    let dims: Option<Vec<usize>> = dims.map(|dim: &Dim| usize::try_from(dim.value()?).ok()).collect();
    let shape = [vec![2], dims?].concat();
    let count = shape
        .iter()
        .try_fold(1_usize, |count, dim| count.checked_mul(*dim))
        .filter(|count| *count <= 1 << 24)?;
    let number = |at: usize| ((at * 37 + 2 * at / count * 11) % 101) as f64 / 50.0 - 1.0;
    let numbers = (0..count).map(number);
    match dtype {
        DType::Float32 => {
            Tensor::from_slice(&numbers.map(|number| number as f32).collect::<Vec<_>>(), &shape).ok()
        }
        DType::Float64 => Tensor::from_slice(&numbers.collect::<Vec<_>>(), &shape).ok(),
        _ => None,
    }
}

fn floats(tensor: &Tensor) -> Option<Vec<f64>> {
    match tensor.dtype() {
        DType::Float32 => Some(tensor.to_vec::<f32>().ok()?.into_iter().map(f64::from).collect()),
        DType::Float64 => tensor.to_vec().ok(),
        _ => None,
    }
}

fn differ(a: f64, b: f64) -> bool {
    let is_near = a == b || (a - b).abs() <= TOLERANCE * (1.0 + a.abs().max(b.abs()));
    !(is_near || a.is_nan() && b.is_nan())
}
