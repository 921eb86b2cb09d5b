//! Parts along a free axis against the whole.

use std::sync::Arc;

use opsmith_core::attr::TensorValue;
use opsmith_core::{AttrValue, DType, FreeAxis, OutputAxis, Parallel};

use super::Setting;
use crate::case::Case;
use crate::lab::{FILL, Lab, Outputs, Trouble};
use crate::subject::Subject;
use crate::values::{Tolerance, difference, from_numbers, mix, numbers};

/// Cut along each of its free axes, the parts put together give what the whole gives. Gives along how many axes it was cut.
pub(super) fn parts_are_the_whole(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
) -> Result<u32, Trouble> {
    let Some(parallel) = &setting.subject.parallel else { return Ok(0) };
    let shapes: Vec<Vec<Vec<usize>>> =
        case.inputs.iter().map(|list| shapes_of(list.iter().flatten())).collect();
    let axes: Vec<(FreeAxis, usize)> = free_axes(setting.subject, parallel, case, &shapes)
        .into_iter()
        .map(|axis| {
            let size = axis.size(shapes.iter().map(Vec::as_slice));
            (axis, size)
        })
        .filter(|(_, size)| *size > 1)
        .collect();
    if axes.is_empty() {
        return Err(Trouble::Reject("no free axis is longer than 1".into()));
    }
    let whole = lab.accepted(setting.subject, case)?;
    for (axis, size) in &axes {
        let exact = parallel.is_elementwise();
        cut_along(lab, setting, case, &whole, (axis, *size), exact)?;
    }
    Ok(axes.len() as u32)
}

fn shapes_of<'a>(tensors: impl Iterator<Item = &'a Arc<TensorValue>>) -> Vec<Vec<usize>> {
    tensors.map(|tensor| tensor.shape.clone()).collect()
}

fn free_axes(
    subject: &Subject,
    parallel: &Parallel,
    case: &Case,
    shapes: &[Vec<Vec<usize>>],
) -> Vec<FreeAxis> {
    let attr = |name: &str| -> Option<AttrValue> {
        let given = case.attrs.iter().find(|(given, _)| given == name).map(|(_, value)| value.clone());
        let def = &subject.signature.attrs[subject.signature.attr_index(name)?];
        given.or_else(|| def.default.clone())
    };
    let ranks: Vec<Option<usize>> = shapes.iter().map(|list| list.iter().map(Vec::len).max()).collect();
    parallel.free_axes(&attr, &ranks)
}

fn cut_along(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
    whole: &Outputs,
    (axis, size): (&FreeAxis, usize),
    exact: bool,
) -> Result<(), Trouble> {
    let cuts = cuts(size);
    let fail = |message: String| {
        let cuts: Vec<String> = cuts.windows(2).map(|pair| (pair[1] - pair[0]).to_string()).collect();
        let parts = cuts.join(" + ");
        Trouble::fail(format!("cut along the free axis `{}` as {parts}, {message}", axis.name), case)
    };
    let mut parts: Vec<Outputs> = Vec::new();
    for pair in cuts.windows(2) {
        let part = part(case, axis, size, (pair[0], pair[1]));
        let outcome = lab.call(part.call(setting.subject, FILL))?;
        parts.push(outcome.accepted(&part).map_err(|trouble| match trouble {
            Trouble::Reject(why) => fail(format!("the part from {} on is an error: {why}", pair[0])),
            other => other,
        })?);
    }
    let names = setting.names(&whole.counts);
    let outputs = whole.counts.iter().zip(&axis.outputs).flat_map(|(&count, output)| vec![output; count]);
    for ((at, expected), (output, name)) in whole.values.iter().enumerate().zip(outputs.zip(&names)) {
        let missing = || fail(format!("`{name}` is not in all parts"));
        let of_parts: Option<Vec<_>> = parts.iter().map(|part| part.values.get(at).cloned()).collect();
        let of_parts = of_parts.ok_or_else(missing)?;
        let (got, is_sum) =
            together(output, size, expected, &of_parts).map_err(|why| fail(format!("`{name}` {why}")))?;
        let tolerance = |dtype| match (is_sum, exact) {
            (true, _) => {
                of_sum(setting.of_other_arithmetic()(dtype), expected, case.tensors().chain(&of_parts))
            }
            (false, true) => Tolerance { relative: 0.0, absolute: 0.0 },
            (false, false) => setting.of_rounding()(dtype),
        };
        let (name, got) = (std::slice::from_ref(name), Arc::new(got));
        let found = difference(name, std::slice::from_ref(&got), std::slice::from_ref(expected), tolerance);
        if let Some(difference) = found
            && (exact || !is_ill_conditioned(lab, setting, case, (at, &got, expected))?)
        {
            return Err(fail(format!("{difference}, which the whole call gives")));
        }
    }
    Ok(())
}

/// Whether no number of an output differs by more than what changes of the inputs in their last digits make of it.
fn is_ill_conditioned(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
    (at, got, expected): (usize, &TensorValue, &TensorValue),
) -> Result<bool, Trouble> {
    /// So many changes show how far a number can go.
    const TIMES: u64 = 6;
    let expected_numbers = numbers(expected);
    let mut apart = vec![0.0; expected_numbers.len()];
    for time in 0..TIMES {
        let nudged = |x: &Option<Arc<TensorValue>>| x.as_deref().map(|x| Arc::new(nudged(x, time)));
        let inputs = case.inputs.iter().map(|list| list.iter().map(nudged).collect()).collect();
        let changed = Case { inputs, attrs: case.attrs.clone(), layouts: vec![] };
        let outcome = lab.call(changed.call(setting.subject, FILL))?;
        let Ok(outputs) = outcome.accepted(&changed) else { return Ok(false) };
        let Some(found) = outputs.values.get(at).filter(|found| found.shape == expected.shape) else {
            return Ok(false);
        };
        for ((apart, a), b) in apart.iter_mut().zip(numbers(found)).zip(&expected_numbers) {
            *apart = f64::max(*apart, (a - b).abs());
        }
    }
    Ok(is_explained(&numbers(got), &expected_numbers, &apart))
}

/// Whether numbers differ by no more than a few times what was seen of each; where that is not finite, not at all.
fn is_explained(got: &[f64], expected: &[f64], seen: &[f64]) -> bool {
    /// How much more may come of rounding within.
    const MORE: f64 = 16.0;
    got.iter().zip(expected).zip(seen).all(|((a, b), seen)| {
        a == b || (a.is_nan() && b.is_nan()) || (seen.is_finite() && (a - b).abs() <= MORE * seen)
    })
}

/// Floats that are a few roundings off, up or down by a number.
fn nudged(value: &TensorValue, time: u64) -> TensorValue {
    let unit = match value.dtype {
        DType::Float64 => f64::EPSILON,
        DType::Float32 => f64::from(f32::EPSILON),
        DType::Float16 => 1.0 / 1024.0,
        DType::BFloat16 => 1.0 / 128.0,
        _ => return value.clone(),
    };
    let off = |i: usize| if mix(time, i as u64) & 1 == 0 { 2.0 * unit } else { -2.0 * unit };
    let numbers: Vec<f64> = numbers(value).into_iter().enumerate().map(|(i, x)| x * (1.0 + off(i))).collect();
    from_numbers(value.dtype, &value.shape, &numbers)
}

/// A sum that cancels is as exact as the largest of what it is made of.
fn of_sum<'a>(
    tolerance: Tolerance,
    whole: &TensorValue,
    terms: impl Iterator<Item = &'a Arc<TensorValue>>,
) -> Tolerance {
    let largest = |value: &TensorValue| {
        numbers(value).into_iter().filter(|x| x.is_finite()).fold(1f64, |largest, x| largest.max(x.abs()))
    };
    let of_terms = terms.map(|term| largest(term)).fold(1f64, f64::max);
    Tolerance { absolute: tolerance.absolute * (of_terms / largest(whole)).max(1.0), ..tolerance }
}

/// Where an axis is cut, into uneven parts: two, and three of a longer one.
fn cuts(size: usize) -> Vec<usize> {
    if size < 4 { vec![0, 1, size] } else { vec![0, 1, 1 + (size - 1) / 3, size] }
}

/// The case with those inputs cut that have the axis whole.
fn part(case: &Case, axis: &FreeAxis, size: usize, (from, to): (usize, usize)) -> Case {
    let list = |(list, &dim): (&Vec<Option<Arc<TensorValue>>>, &Option<usize>)| {
        let cut = |tensor: &Arc<TensorValue>| match FreeAxis::position(dim, &tensor.shape, size) {
            Some(at) => Arc::new(slice(tensor, at, from, to)),
            None => tensor.clone(),
        };
        list.iter().map(|tensor| tensor.as_ref().map(cut)).collect()
    };
    let inputs = case.inputs.iter().zip(&axis.inputs).map(list).collect();
    Case { inputs, attrs: case.attrs.clone(), layouts: vec![] }
}

/// An output from those of the parts, of the shape that is expected, and whether it is their sum.
fn together(
    output: &OutputAxis,
    size: usize,
    expected: &TensorValue,
    parts: &[Arc<TensorValue>],
) -> Result<(TensorValue, bool), String> {
    let at = FreeAxis::position(output.dim, &expected.shape, size);
    let fits = |part: &Arc<TensorValue>| {
        let mut shape = part.shape.clone();
        if let Some(dim) = at.and_then(|at| shape.get_mut(at)) {
            *dim = size;
        }
        shape == expected.shape && part.dtype == expected.dtype
    };
    let covered = at.map(|at| parts.iter().filter_map(|part| part.shape.get(at)).sum::<usize>());
    if !parts.iter().all(fits) || covered.is_some_and(|covered| covered != size) {
        let shapes = shapes_of(parts.iter());
        return Err(format!("has shapes {shapes:?} in the parts and {:?} in the whole", expected.shape));
    }
    match at {
        Some(at) => Ok((concatenated(expected, at, parts), false)),
        None if output.is_sum => {
            let each: Vec<Vec<f64>> = parts.iter().map(|part| numbers(part)).collect();
            let terms = (0..each.first().map_or(0, Vec::len)).map(|i| each.iter().map(move |part| part[i]));
            let sums: Vec<f64> = terms.map(Iterator::sum).collect();
            Ok((from_numbers(expected.dtype, &expected.shape, &sums), true))
        }
        None => Err(format!("has no dim of the axis, {size}: its shape is {:?}", expected.shape)),
    }
}

/// For each run of elements that lie one after another in the part, where it begins in the whole and how long it is.
fn runs(shape: &[usize], at: usize, (from, to): (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
    let inner: usize = shape[at + 1..].iter().product();
    let (outer, row) = (shape[..at].iter().product::<usize>(), shape[at] * inner);
    (0..outer).map(move |table| (table * row + from * inner, (to - from) * inner))
}

fn slice(tensor: &TensorValue, at: usize, from: usize, to: usize) -> TensorValue {
    let mut shape = tensor.shape.clone();
    shape[at] = to - from;
    let size = tensor.dtype.size();
    let runs = || runs(&tensor.shape, at, (from, to));
    let bytes = |(first, len)| tensor.bytes.get(first * size..(first + len) * size).unwrap_or_default();
    let strings = |(first, len)| tensor.strings.get(first..first + len).unwrap_or_default();
    TensorValue {
        dtype: tensor.dtype,
        shape,
        bytes: runs().flat_map(bytes).copied().collect(),
        strings: runs().flat_map(strings).cloned().collect(),
    }
}

fn concatenated(like: &TensorValue, at: usize, parts: &[Arc<TensorValue>]) -> TensorValue {
    let mut whole = TensorValue { bytes: like.bytes.clone(), strings: like.strings.clone(), ..like.clone() };
    let (size, mut from) = (like.dtype.size(), 0);
    for part in parts {
        let to = from + part.shape[at];
        let mut place = 0;
        for (first, len) in runs(&like.shape, at, (from, to)) {
            if whole.strings.is_empty() {
                let bytes = &part.bytes[place * size..(place + len) * size];
                whole.bytes[first * size..(first + len) * size].copy_from_slice(bytes);
            } else {
                whole.strings[first..first + len].clone_from_slice(&part.strings[place..place + len]);
            }
            place += len;
        }
        from = to;
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_tensor_are_the_tensor() {
        let numbers: Vec<f64> = (0..30).map(f64::from).collect();
        let whole = from_numbers(DType::Float32, &[2, 5, 3], &numbers);
        for (at, &size) in whole.shape.iter().enumerate() {
            let cuts = cuts(size);
            let parts: Vec<_> =
                cuts.windows(2).map(|pair| Arc::new(slice(&whole, at, pair[0], pair[1]))).collect();
            assert_eq!(parts.iter().map(|part| part.shape[at]).sum::<usize>(), size);
            let zeros = from_numbers(DType::Float32, &whole.shape, &[0.0; 30]);
            assert_eq!(concatenated(&zeros, at, &parts), whole);
        }
        let text = TensorValue {
            dtype: DType::String,
            shape: vec![3],
            bytes: vec![],
            strings: vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()],
        };
        assert_eq!(slice(&text, 0, 1, 3).strings, [b"b".to_vec(), b"c".to_vec()]);
    }

    #[test]
    fn what_lacks_the_axis_is_a_sum_or_wrong() {
        let part = |numbers: &[f64]| Arc::new(from_numbers(DType::Float64, &[2], numbers));
        let parts = [part(&[1.0, 2.0]), part(&[10.0, 20.0])];
        let sum = OutputAxis { dim: None, is_sum: true };
        let (got, is_sum) = together(&sum, 4, &parts[0], &parts).unwrap();
        assert!(is_sum && numbers(&got) == [11.0, 22.0]);
        let no_sum = OutputAxis { dim: Some(2), is_sum: false };
        assert!(together(&no_sum, 4, &parts[0], &parts).unwrap_err().contains("no dim of the axis, 4"));
        let along = OutputAxis { dim: Some(1), is_sum: false };
        assert!(together(&along, 2, &parts[0], &parts).unwrap_err().contains("has shapes [[2], [2]]"));
    }

    #[test]
    fn only_what_a_small_change_makes_is_passed() {
        let whole = [1.0, 1e-12, f64::NAN];
        assert!(is_explained(&[1.0, 9e-12, f64::NAN], &whole, &[0.0, 1e-12, 0.0]));
        // One number that is badly conditioned says nothing of the others.
        assert!(!is_explained(&[1.001, 9e-12, f64::NAN], &whole, &[0.0, 1e-12, 0.0]));
        assert!(!is_explained(&[2.0, 1e-12, f64::NAN], &whole, &[f64::INFINITY, 0.0, 0.0]));
        assert!(!is_explained(&[1.0, 1e-12, 1.0], &whole, &[1.0, 1.0, 1.0]));
    }

    #[test]
    fn numbers_are_nudged_by_their_last_digits() {
        let value = from_numbers(DType::Float32, &[3], &[1.0, 0.0, -8.0]);
        let changed = numbers(&nudged(&value, 1));
        assert!(changed[0] != 1.0 && (changed[0] - 1.0).abs() < 1e-6 && changed[1] == 0.0, "{changed:?}");
        let whole = from_numbers(DType::Int32, &[1], &[5.0]);
        assert_eq!(numbers(&nudged(&whole, 1)), [5.0]);
    }
}
