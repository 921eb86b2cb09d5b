//! Gradients against finite differences.

use std::sync::Arc;

use opsmith_core::attr::TensorValue;
use opsmith_core::def::ArgType;
use opsmith_core::{DType, GradientInput};

use super::{Property, Setting, names_of};
use crate::attrs;
use crate::case::Case;
use crate::lab::{FILL, Lab, Outcome, Outputs, Trouble};
use crate::subject::Subject;
use crate::values::{Tolerance, difference, from_numbers, index_of, is_float, mix, numbers};

/// As many elements of an input are moved, at most.
const ELEMENTS: usize = 24;

/// Why there is no gradient to check.
pub(super) fn skipped(subject: &Subject) -> Option<String> {
    match &subject.wiring {
        None if subject.declares_zero_gradient => Some("it declares that zeros flow back".into()),
        None => Some("it declares no gradient".into()),
        Some(_) if subject.signature.inputs.iter().any(|input| input.is_ref) => {
            Some("it changes an input in place".into())
        }
        Some(_) => None,
    }
}

/// Float64 where there is a kernel for it, else float32; integers beside it where types are chosen apart.
pub(super) fn dtypes(subject: &Subject) -> fn(DType) -> bool {
    type Allows = fn(DType) -> bool;
    let has = |allows: Allows, float: DType| {
        let kernels = subject.kernels_with(allows);
        let is_it = |kernel: &usize| {
            let types = &subject.kernels[*kernel];
            types.is_empty() || types.iter().any(|(_, dtype)| *dtype == float)
        };
        kernels.iter().any(is_it)
    };
    let choices: [(Allows, DType); 4] = [
        (|dtype| dtype == DType::Float64, DType::Float64),
        (|dtype| dtype == DType::Float64 || !is_float(dtype), DType::Float64),
        (|dtype| dtype == DType::Float32, DType::Float32),
        (|dtype| dtype == DType::Float32 || !is_float(dtype), DType::Float32),
    ];
    choices.into_iter().find(|(allows, float)| has(*allows, *float)).map_or(|_| true, |(allows, _)| allows)
}

/// Whether differences of this dtype are exact enough to be compared with.
fn is_differentiable(dtype: DType) -> bool {
    matches!(dtype, DType::Float64 | DType::Float32)
}

/// How far an element is moved, and what the difference of two numbers may be.
#[derive(Clone, Copy)]
struct Steps {
    step: f64,
    tolerance: Tolerance,
}

impl Steps {
    fn of(dtype: DType) -> Steps {
        match dtype {
            DType::Float64 => Steps { step: 1e-6, tolerance: Tolerance { relative: 2e-5, absolute: 2e-5 } },
            _ => Steps { step: 1e-2, tolerance: Tolerance { relative: 3e-2, absolute: 3e-2 } },
        }
    }
}

/// The gradient of a weighted sum of all outputs, by each input that has one, against differences of that sum. Gives
/// how many elements were compared; where the op has a kink, or rounds too coarsely, none is.
pub(super) fn is_that_of_differences(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
) -> Result<u32, Trouble> {
    let subject = setting.subject;
    let Some(wiring) = &subject.wiring else { return Ok(0) };
    let targets: Vec<usize> = wiring.outputs.clone();
    let case = with_saved(lab, setting, vec![case.clone()])?.into_iter().flatten().next();
    let case =
        &case.ok_or_else(|| Trouble::Reject("the op that it differentiates refuses the inputs".into()))?;
    let outputs = lab.accepted(subject, case)?;
    let weights = Weights::of(setting, &outputs, is_differentiable);
    let (gradient, call) = weights.gradient_call(setting, case, &outputs)?;
    compare(lab, setting, case, &weights, (gradient, &call), &targets)
        .and_then(|compared| {
            absent_is_zero(lab, setting, case, (gradient, &call))?;
            Ok(compared)
        })
        .map_err(|trouble| trouble.shown_by(&gradient.signature.name, call.clone()))
}

/// A property of a gradient op, of any order, in the call that belongs to one of the forward op, which is accepted: where its own
/// shapes are not found, as there are too many ranks, or attributes decide how they hang together. Its tensors lie as those of the
/// call do.
pub(crate) fn holds_of_gradient(
    (lab, property): (&mut Lab<'_>, Property),
    setting: &Setting<'_, '_>,
    case: &Case,
    target: &Subject,
) -> Result<u32, Trouble> {
    let outputs = lab.accepted(setting.subject, case)?;
    let weights = Weights::of(setting, &outputs, is_float);
    let (subject, mut call) = weights.gradient_call(setting, case, &outputs)?;
    call.layouts = case.layouts.iter().copied().cycle().take(call.flat().count()).collect();
    let setting = Setting { subject, ..*setting };
    if subject.index != target.index {
        return holds_of_gradient((lab, property), &setting, &call, target);
    }
    property.holds(lab, &setting, &call).map_err(|trouble| trouble.shown_by(&subject.signature.name, call))
}

/// What a gradient op takes of what its forward op saved, where no gradient flows through it: the forward op, and by output of that the
/// input here. A change of another input changes it too.
fn saved<'a>(setting: &Setting<'a, '_>, targets: &[usize]) -> Option<(&'a Subject, Vec<(usize, usize)>)> {
    let forward = setting.differentiated()?;
    let place = |name: &str| setting.subject.signature.inputs.iter().position(|input| input.name == name);
    let outputs = forward.signature.outputs.iter().enumerate().filter(|(_, output)| output.saved);
    let taken = outputs.filter_map(|(output, def)| Some((output, place(&def.name)?)));
    let taken: Vec<_> = taken.filter(|(_, input)| !targets.contains(input)).collect();
    (!taken.is_empty()).then_some((forward, taken))
}

/// The cases with what the forward op saves for their inputs; none where it refuses those.
fn with_saved(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    cases: Vec<Case>,
) -> Result<Vec<Option<Case>>, Trouble> {
    let targets = setting.subject.wiring.as_ref().map_or(&[][..], |wiring| &wiring.outputs);
    let Some((forward, taken)) = saved(setting, targets) else {
        return Ok(cases.into_iter().map(Some).collect());
    };
    let (op, own) = (&setting.subject.signature, &forward.signature);
    let has = |name: &str| op.inputs.iter().any(|input| input.name == name);
    // Where the op takes less than the forward op, what that saved is a number as any.
    if !own.inputs.iter().all(|input| has(&input.name)) {
        return Ok(cases.into_iter().map(Some).collect());
    }
    let is_known = |name: &str| own.attr_index(name).is_some_and(|attr| !own.attrs[attr].inferred);
    let own = |case: &Case| Case {
        inputs: own.inputs.iter().map(|input| case.named(setting.subject, &input.name)).collect(),
        attrs: case.attrs.iter().filter(|(name, _)| is_known(name)).cloned().collect(),
        layouts: vec![],
    };
    let calls = cases.iter().map(|case| own(case).call(forward, FILL)).collect();
    let mut restored = Vec::new();
    for (outcome, mut case) in lab.calls(calls)?.into_iter().zip(cases) {
        restored.push(match outcome.accepted(&case) {
            Ok(outputs) => {
                for &(output, input) in &taken {
                    case.inputs[input] = outputs.of(output).iter().cloned().map(Some).collect();
                }
                Some(case)
            }
            Err(Trouble::Reject(_)) => None,
            Err(trouble) => return Err(trouble),
        });
    }
    Ok(restored)
}

/// An output gradient that may be absent counts as zeros where it is.
fn absent_is_zero(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
    (gradient_op, call): (&Subject, &Case),
) -> Result<(), Trouble> {
    let Some(wiring) = &setting.subject.wiring else { return Ok(()) };
    for (input, source) in wiring.inputs.iter().enumerate() {
        let def = &gradient_op.signature.inputs[input];
        let ([Some(tensor)], true) = (&call.inputs[input][..], def.optional) else { continue };
        if !matches!(source, GradientInput::OutputGradient(_)) {
            continue;
        }
        let elements = tensor.shape.iter().product();
        let zeros = call.with(input, 0, from_numbers(tensor.dtype, &tensor.shape, &vec![0.0; elements]));
        let mut absent = call.clone();
        absent.inputs[input][0] = None;
        let expected = lab.call(zeros.call(gradient_op, FILL))?.accepted(case)?;
        let got = match lab.call(absent.call(gradient_op, FILL))? {
            Outcome::Refused(refusal) => {
                let message = format!("without `{}` the gradient is an error: {}", def.name, refusal.message);
                return Err(Trouble::fail(message, case));
            }
            outcome => outcome.accepted(case)?,
        };
        let names = names_of(gradient_op, &got.counts);
        let differs =
            |got: &[Arc<TensorValue>]| difference(&names, got, &expected.values, setting.of_rounding());
        if differs(&got.values).is_none() {
            continue;
        }
        let usual = lab.call(call.call(gradient_op, FILL))?.accepted(case)?;
        let values = got.values.iter().zip(&expected.values).zip(&usual.values);
        let got: Vec<_> = values.map(|((got, zeros), usual)| but_where_infinite(got, zeros, usual)).collect();
        if let Some(difference) = differs(&got) {
            let message = format!("without `{}`, {difference}, which zeros give", def.name);
            return Err(Trouble::fail(message, case));
        }
    }
    Ok(())
}

/// `got`, the outputs without an input, with NaN where zeros for that input give NaN and other numbers give infinity or NaN: there zeros
/// are multiplied by infinity, which says nothing of the op without the input.
fn but_where_infinite(got: &Arc<TensorValue>, zeros: &TensorValue, usual: &TensorValue) -> Arc<TensorValue> {
    let is_alike = |other: &TensorValue| other.dtype == got.dtype && other.shape == got.shape;
    if got.dtype == DType::String || !is_alike(zeros) || !is_alike(usual) {
        return got.clone();
    }
    let all = numbers(got).into_iter().zip(numbers(zeros)).zip(numbers(usual));
    let merged =
        all.map(|((got, zeros), usual)| if zeros.is_nan() && !usual.is_finite() { zeros } else { got });
    Arc::new(from_numbers(got.dtype, &got.shape, &merged.collect::<Vec<f64>>()))
}

fn compare(
    lab: &mut Lab<'_>,
    setting: &Setting<'_, '_>,
    case: &Case,
    weights: &Weights,
    (gradient_op, call): (&Subject, &Case),
    targets: &[usize],
) -> Result<u32, Trouble> {
    let subject = setting.subject;
    let gradients = match lab.call(call.call(gradient_op, FILL))? {
        Outcome::Refused(refusal) => {
            let message = format!("the op takes it, but its gradient is an error: {}", refusal.message);
            return Err(Trouble::fail(message, case));
        }
        outcome => outcome.accepted(case)?,
    };
    let mut compared = 0;
    let mut refused = "no input is float64 or float32".to_owned();
    for (at, &input) in targets.iter().enumerate() {
        let name = &subject.signature.inputs[input].name;
        let given = if at < gradients.counts.len() { gradients.of(at) } else { &[] };
        let tensors: Vec<&Arc<TensorValue>> = case.inputs[input].iter().flatten().collect();
        if tensors.is_empty() {
            continue;
        }
        if given.len() != tensors.len() {
            let (got, expected) = (given.len(), tensors.len());
            let message = format!("the gradient by `{name}` has {got} tensors instead of {expected}");
            return Err(Trouble::fail(message, case));
        }
        for (element, (gradient, tensor)) in given.iter().zip(tensors).enumerate() {
            if gradient.shape != tensor.shape {
                let (got, expected) = (&gradient.shape, &tensor.shape);
                let message = format!("the gradient by `{name}` has shape {got:?} instead of {expected:?}");
                return Err(Trouble::fail(message, case));
            }
            if !is_differentiable(tensor.dtype) {
                continue;
            }
            let steps = Steps::of(weights.coarser(tensor.dtype));
            let gradient = numbers(gradient);
            let place =
                Differentiated { setting, case, weights, input, at, element, tensor, gradient, steps };
            match place.compare(lab)? {
                0 => refused = "the op is not smooth where it was tried".into(),
                elements => compared += elements,
            }
        }
    }
    if compared == 0 { Err(Trouble::Reject(refused)) } else { Ok(compared) }
}

/// What each element of each output counts in the sum that is differentiated; also the gradients that go in.
struct Weights(Vec<Vec<TensorValue>>);

impl Weights {
    /// Those of outputs whose dtypes count.
    fn of(setting: &Setting<'_, '_>, outputs: &Outputs, counts: fn(DType) -> bool) -> Weights {
        let defs = setting.subject.signature.outputs.iter().enumerate();
        let weights = defs.map(|(output, def)| {
            let weight = |(i, value): (usize, &Arc<TensorValue>)| {
                let counts = counts(value.dtype) && !def.saved;
                // Of a complex number there are two.
                let count = numbers(value).len();
                let weight = |element: usize| {
                    let bits = mix((output * 64 + i) as u64, element as u64);
                    // Never 0, so that no part of the gradient goes unseen.
                    if counts {
                        (1 + bits % 8) as f64 / 4.0 * [1.0, -1.0][(bits >> 20 & 1) as usize]
                    } else {
                        0.0
                    }
                };
                from_numbers(value.dtype, &value.shape, &(0..count).map(weight).collect::<Vec<f64>>())
            };
            outputs.of(output).iter().enumerate().map(weight).collect()
        });
        Weights(weights.collect())
    }

    /// The sum; NaN where an output is not a number.
    fn sum(&self, outputs: &Outputs) -> f64 {
        let mut sum = 0.0;
        for (weight, value) in self.0.iter().flatten().zip(&outputs.values) {
            if is_differentiable(value.dtype) {
                let products = numbers(weight).into_iter().zip(numbers(value));
                sum += products.filter(|(weight, _)| *weight != 0.0).map(|(a, b)| a * b).sum::<f64>();
            }
        }
        sum
    }

    /// The coarser of a dtype and those of the outputs in the sum, which may be of another one than the inputs.
    fn coarser(&self, dtype: DType) -> DType {
        let counts = |weight: &TensorValue| numbers(weight).iter().any(|&weight| weight != 0.0);
        let mut coarse = self.0.iter().flatten().filter(|weight| weight.dtype == DType::Float32);
        if coarse.any(counts) { DType::Float32 } else { dtype }
    }

    /// The gradient op, and the call of it.
    fn gradient_call<'a>(
        &self,
        setting: &Setting<'a, '_>,
        case: &Case,
        outputs: &Outputs,
    ) -> Result<(&'a Subject, Case), Trouble> {
        let subject = setting.subject;
        let wiring = subject.wiring.as_ref().expect("only asked where there is a gradient");
        let shared = |values: &[Arc<TensorValue>]| values.iter().cloned().map(Some).collect();
        let arg = |input: &GradientInput| match *input {
            GradientInput::Input(at) => case.inputs[at].clone(),
            GradientInput::Output(at) => shared(outputs.of(at)),
            GradientInput::OutputGradient(at) => {
                shared(&self.0[at].iter().cloned().map(Arc::new).collect::<Vec<_>>())
            }
        };
        let gradient = setting.op(&wiring.op).ok_or_else(|| {
            Trouble::fail(format!("its gradient op {} is not in the library", wiring.op), case)
        })?;
        let is_known = |name: &str| {
            gradient.signature.attr_index(name).is_some_and(|attr| !gradient.signature.attrs[attr].inferred)
        };
        let attrs = case.attrs.iter().filter(|(name, _)| is_known(name)).cloned().collect();
        let inputs = wiring.inputs.iter().map(arg).collect();
        Ok((gradient, Case { inputs, attrs, layouts: vec![] }))
    }
}

/// A tensor by which the op is differentiated.
struct Differentiated<'a, 's, 't> {
    setting: &'a Setting<'s, 't>,
    case: &'a Case,
    weights: &'a Weights,
    input: usize,
    /// The output of the gradient op that has it.
    at: usize,
    element: usize,
    tensor: &'a Arc<TensorValue>,
    gradient: Vec<f64>,
    steps: Steps,
}

impl Differentiated<'_, '_, '_> {
    /// Compares the gradient with differences, element by element; gives how many could be.
    fn compare(&self, lab: &mut Lab<'_>) -> Result<u32, Trouble> {
        let Steps { step, tolerance } = self.steps;
        let tolerance = self.setting.tolerance(tolerance);
        let values = numbers(self.tensor);
        let stride = values.len().div_ceil(ELEMENTS).max(1);
        let elements: Vec<usize> = (0..values.len()).step_by(stride).collect();
        let moves: Vec<(usize, f64)> = elements.iter().flat_map(|&i| [(i, step), (i, -step)]).collect();
        let sums = self.sums(lab, &moves)?;
        let mut compared = 0;
        for (&i, pair) in elements.iter().zip(sums.chunks_exact(2)) {
            let difference = (pair[0].sum - pair[1].sum) / (pair[0].at - pair[1].at);
            if !difference.is_finite() {
                continue;
            }
            if near(self.gradient[i], difference, tolerance) {
                compared += 1;
            } else if self.is_smooth(lab, i, difference)? {
                let is_alone = self.is_alone(lab, i, difference)?;
                return Err(self.failure(i, difference, is_alone));
            }
        }
        Ok(compared)
    }

    /// Whether the op is smooth at an element: the slopes to both sides agree, and stay as they are for other steps.
    fn is_smooth(&self, lab: &mut Lab<'_>, i: usize, difference: f64) -> Result<bool, Trouble> {
        let Steps { step, tolerance } = self.steps;
        let moves = [0.0, step, -step, step / 4.0, -step / 4.0, step * 4.0, -step * 4.0].map(|by| (i, by));
        let sums = self.sums(lab, &moves)?;
        let slope = |a: usize, b: usize| (sums[a].sum - sums[b].sum) / (sums[a].at - sums[b].at);
        // Rounding weighs four times as much in a fourth of the step.
        let loose = Tolerance { relative: tolerance.relative * 4.0, absolute: tolerance.absolute * 4.0 };
        let slopes =
            [slope(1, 0), slope(0, 2), slope(3, 4), slope(3, 0), slope(0, 4), slope(5, 0), slope(0, 6)];
        Ok(slopes.into_iter().all(|slope| slope.is_finite() && near(slope, difference, loose)))
    }

    /// Whether the gradient is that of differences right beside the element: then a comparison in it has a branch for this point.
    fn is_alone(&self, lab: &mut Lab<'_>, i: usize, difference: f64) -> Result<bool, Trouble> {
        let Steps { step, tolerance } = self.steps;
        let moves = [(i, step), (i, -step)];
        let (_, cases) = self.moved(&moves);
        for case in with_saved(lab, self.setting, cases)? {
            let Some(case) = case else { return Ok(false) };
            let Ok(outputs) = lab.call(case.call(self.setting.subject, FILL))?.accepted(&case) else {
                return Ok(false);
            };
            let (gradient, call) = self.weights.gradient_call(self.setting, &case, &outputs)?;
            let Ok(gradients) = lab.call(call.call(gradient, FILL))?.accepted(&call) else {
                return Ok(false);
            };
            let beside = gradients.of(self.at).get(self.element).map(|gradient| numbers(gradient)[i]);
            if !beside.is_some_and(|beside| near(beside, difference, tolerance)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The calls with single elements moved, and where each came to lie, which rounding decides.
    fn moved(&self, moves: &[(usize, f64)]) -> (Vec<f64>, Vec<Case>) {
        let values = numbers(self.tensor);
        let moved = moves.iter().map(|&(i, by)| {
            let mut moved = values.clone();
            moved[i] += by;
            let tensor = from_numbers(self.tensor.dtype, &self.tensor.shape, &moved);
            (numbers(&tensor)[i], self.case.with(self.input, self.element_of_input(), tensor))
        });
        moved.unzip()
    }

    /// The weighted sums after moving single elements.
    fn sums(&self, lab: &mut Lab<'_>, moves: &[(usize, f64)]) -> Result<Vec<Moved>, Trouble> {
        let (places, cases) = self.moved(moves);
        let cases = with_saved(lab, self.setting, cases)?;
        let there = cases.iter().enumerate().filter_map(|(index, case)| Some((index, case.as_ref()?)));
        let there: Vec<(usize, &Case)> = there.collect();
        let outcomes =
            lab.calls(there.iter().map(|(_, case)| case.call(self.setting.subject, FILL)).collect())?;
        let mut sums: Vec<Moved> = places.into_iter().map(|at| Moved { at, sum: f64::NAN }).collect();
        for ((index, case), outcome) in there.into_iter().zip(outcomes) {
            sums[index].sum = match outcome.accepted(case) {
                Ok(outputs) => self.weights.sum(&outputs),
                // Near by it is not defined.
                Err(Trouble::Reject(_)) => f64::NAN,
                Err(trouble) => return Err(trouble),
            };
        }
        Ok(sums)
    }

    /// The position in the input of the tensor, absent ones counted.
    fn element_of_input(&self) -> usize {
        let present = self.case.inputs[self.input].iter().enumerate().filter(|(_, tensor)| tensor.is_some());
        present.map(|(position, _)| position).nth(self.element).unwrap_or(0)
    }

    fn failure(&self, i: usize, difference: f64, is_alone: bool) -> Trouble {
        let def = &self.setting.subject.signature.inputs[self.input];
        let list = if def.count.is_list() { format!("[{}]", self.element) } else { String::new() };
        let at = index_of(i, &self.tensor.shape);
        let (name, gradient) = (&def.name, self.gradient[i]);
        let hint = if is_alone {
            let least = attrs::at_its_least(&self.setting.subject.signature.attrs, &self.case.attrs);
            let advice = least.map(|(attr, least)| {
                format!(
                    ". Here `{attr}` is {least}: if {least} need not be allowed, write `above = {least:?}` in place of its `min`"
                )
            });
            let same = ". Right beside this point both agree: a comparison, `abs` or `sign` singles the point out, and needs the same slope there";
            &format!("{same}{}", advice.unwrap_or_default())
        } else if near(-gradient, difference, Steps::of(self.tensor.dtype).tolerance) {
            ": its sign is wrong"
        } else if matches!(def.dtype, ArgType::Fixed(DType::Float32)) {
            " (by float32, for the op has no float64)"
        } else {
            ""
        };
        let message = format!(
            "the gradient by `{name}`{list} at {name}{list}{at} is {gradient:.6}, finite differences give {difference:.6}{hint}"
        );
        Trouble::fail(message, self.case)
    }
}

/// The sum when an element is at `at`.
struct Moved {
    at: f64,
    sum: f64,
}

fn near(a: f64, b: f64, tolerance: Tolerance) -> bool {
    (a - b).abs() <= tolerance.absolute + tolerance.relative * a.abs().max(b.abs())
}
