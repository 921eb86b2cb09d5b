//! What a library says of one of its ops.

use opsmith_core::{Error, Gradient, GradientInput, GradientWiring, Parallel, Result, Signature};
use serde_json::Value;

use crate::kernel::KernelInfo;

/// What a library says of one of its ops.
pub(crate) struct OpInfo {
    pub(crate) signature: Signature,
    pub(crate) gradient: Gradient,
    pub(crate) wiring: Option<GradientWiring>,
    pub(crate) kernels: Vec<KernelInfo>,
    pub(crate) parallel: Option<Parallel>,
}

impl OpInfo {
    pub(crate) fn from_json(json: &Value) -> Result<OpInfo> {
        let signature = Signature::from_json(json)?;
        let (gradient, wiring) = gradient_from_json(&signature, &json["gradient"])
            .map_err(|error| error.with_op(&signature.name))?;
        let kernels = KernelInfo::all(&signature, json);
        let rule = |text| Parallel::new(text, &signature, None);
        let parallel = json["parallel"].as_str().map(rule).transpose()?;
        Ok(OpInfo { signature, gradient, wiring, kernels, parallel })
    }
}

/// Reads the `gradient` of an op's description.
fn gradient_from_json(signature: &Signature, json: &Value) -> Result<(Gradient, Option<GradientWiring>)> {
    let (num_inputs, num_outputs) = (signature.inputs.len(), signature.outputs.len());
    match json {
        Value::Null => return Ok((Gradient::Undeclared, None)),
        Value::String(text) if text == "not_differentiable" => {
            return Ok((Gradient::NotDifferentiable, None));
        }
        _ => {}
    }
    let malformed = || Error::invalid_argument("its gradient is described in a form unknown to this version");
    let position = |json: &Value, limit: usize| json.as_u64().map(|at| at as usize).filter(|at| *at < limit);
    let input = |json: &Value| {
        let at = &json[1];
        Some(match json[0].as_str()? {
            "input" => GradientInput::Input(position(at, num_inputs)?),
            "output" => GradientInput::Output(position(at, num_outputs)?),
            "output_gradient" => GradientInput::OutputGradient(position(at, num_outputs)?),
            _ => return None,
        })
    };
    let target = |json: &Value| position(json, num_inputs);
    let op = json["op"].as_str().ok_or_else(malformed)?.to_owned();
    let inputs = json["inputs"].as_array().ok_or_else(malformed)?.iter().map(input).collect::<Option<_>>();
    let outputs = json["outputs"].as_array().ok_or_else(malformed)?.iter().map(target).collect::<Option<_>>();
    let wiring = GradientWiring {
        op: op.clone(),
        inputs: inputs.ok_or_else(malformed)?,
        outputs: outputs.ok_or_else(malformed)?,
    };
    Ok((Gradient::Op(op), Some(wiring)))
}
