//! The definitions of a library, as it describes itself: what `inspect` shows and `compat` compares.
//!
//! They are read from JSON, which a library gives ([`opsmith_core::Library::to_json`]) and a file can keep.

use anyhow::{Context, Result, bail};
use opsmith_core::{DType, Explanation, GradientInput, GradientWiring, Parallel, ShapeSignature, Signature};
use serde_json::Value;

/// A library: its name, its version and what its ops are.
#[derive(Debug, Clone)]
pub struct Definitions {
    /// The library's name, the namespace of its ops in every framework.
    pub name: String,
    /// The version, as the author gives it.
    pub version: String,
    /// The ops, in the order in which the library lists them.
    pub ops: Vec<Op>,
}

/// All that an op promises, without what it does.
#[derive(Debug, Clone)]
pub struct Op {
    /// What it is called, takes and gives.
    pub signature: Signature,
    /// What it declares of its gradient.
    pub gradient: Gradient,
    /// The shapes of its arguments, where a signature says them and not a function.
    pub shape: Option<ShapeSignature>,
    /// Its free axes, where it states some.
    pub parallel: Option<Parallel>,
    /// What it runs on.
    pub kernels: Vec<Kernel>,
    /// What its kernel is made of, where that is written once for all devices.
    pub explanation: Option<Explanation>,
    /// The attributes that it is explained for where they have no default, as `nu = 1`.
    pub explained_for: String,
}

/// What an op declares of its gradient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gradient {
    /// Nothing: differentiating through it is an error.
    Undeclared,
    /// Zeros flow back.
    NotDifferentiable,
    /// Another op computes it.
    Op(GradientWiring),
}

/// A kernel: its device, and the type attributes that it is for; it is for all dtypes of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// `cpu` or `cuda`.
    pub device: String,
    /// A dtype for each type attribute that matters.
    pub types: Vec<(String, DType)>,
}

impl Definitions {
    /// Reads what a library describes itself with.
    ///
    /// # Errors
    /// What is missing or malformed, with the op's name.
    pub fn from_json(json: &Value) -> Result<Definitions> {
        let text = |key: &str| {
            let text = json[key].as_str().with_context(|| format!("it has no text `{key}`"))?;
            anyhow::Ok(text.to_owned())
        };
        let ops = json["ops"].as_array().context("it has no list `ops`")?;
        Ok(Definitions {
            name: text("name")?,
            version: text("version")?,
            ops: ops.iter().map(Op::from_json).collect::<Result<_>>()?,
        })
    }

    /// The op of this CamelCase name.
    pub fn op(&self, name: &str) -> Option<&Op> {
        self.ops.iter().find(|op| op.name() == name)
    }
}

impl Op {
    fn from_json(json: &Value) -> Result<Op> {
        let signature = Signature::from_json(json).map_err(|error| anyhow::anyhow!("{}", error.message()))?;
        let read = || {
            let gradient = gradient(&signature, &json["gradient"])?;
            let kernels = json["kernels"].as_array().context("it has no list `kernels`")?;
            let kernels = kernels.iter().map(kernel).collect::<Result<_>>()?;
            let parallel = parallel(&json["parallel"])?;
            anyhow::Ok((gradient, shape(&signature, &json["shape"])?, parallel, kernels))
        };
        let (gradient, shape, parallel, kernels) = read().with_context(|| signature.name.clone())?;
        let explained_for = json["explained_for"].as_str().unwrap_or_default().to_owned();
        Ok(Op {
            signature,
            gradient,
            shape,
            parallel,
            kernels,
            explanation: explanation(json),
            explained_for,
        })
    }

    /// The op's name, CamelCase.
    pub fn name(&self) -> &str {
        &self.signature.name
    }
}

fn explanation(json: &Value) -> Option<Explanation> {
    let text = |key: &str| Some(json[key].as_str()?.to_owned());
    let (cuda_source, vectors) = (text("cuda_source")?, text("vectors")?);
    Some(Explanation { formula: text("formula")?, cuda_source, vectors })
}

fn gradient(signature: &Signature, json: &Value) -> Result<Gradient> {
    match json {
        Value::Null => return Ok(Gradient::Undeclared),
        Value::String(text) if text == "not_differentiable" => return Ok(Gradient::NotDifferentiable),
        Value::Object(_) => {}
        other => bail!("its `gradient` is neither null, \"not_differentiable\" nor an object, but {other}"),
    }
    let malformed = || "its `gradient` is not an object of `op`, `inputs` and `outputs`";
    let position = |json: &Value, count: usize| {
        let position = json.as_u64().and_then(|position| usize::try_from(position).ok());
        position.filter(|position| *position < count).with_context(malformed)
    };
    let input = |json: &Value| {
        let (inputs, outputs) = (signature.inputs.len(), signature.outputs.len());
        Ok(match json[0].as_str() {
            Some("input") => GradientInput::Input(position(&json[1], inputs)?),
            Some("output") => GradientInput::Output(position(&json[1], outputs)?),
            Some("output_gradient") => GradientInput::OutputGradient(position(&json[1], outputs)?),
            _ => bail!(malformed()),
        })
    };
    let list = |key: &str| json[key].as_array().with_context(malformed);
    Ok(Gradient::Op(GradientWiring {
        op: json["op"].as_str().with_context(malformed)?.to_owned(),
        inputs: list("inputs")?.iter().map(input).collect::<Result<_>>()?,
        outputs: list("outputs")?
            .iter()
            .map(|json| position(json, signature.inputs.len()))
            .collect::<Result<_>>()?,
    }))
}

fn shape(signature: &Signature, json: &Value) -> Result<Option<ShapeSignature>> {
    let text = match json {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        other => bail!("its `shape` is neither null nor text, but {other}"),
    };
    let shape = ShapeSignature::parse(text)
        .and_then(|shape| shape.of_op(signature))
        .map_err(|error| anyhow::anyhow!("its `shape`: {}", error.render(text)))?;
    shape.check(signature).map_err(|error| anyhow::anyhow!("its `shape`: {}", error.message()))?;
    Ok(Some(shape))
}

/// None in a description from before there were free axes.
fn parallel(json: &Value) -> Result<Option<Parallel>> {
    match json {
        Value::Null => Ok(None),
        Value::String(text) => Parallel::parse(text)
            .map(Some)
            .map_err(|error| anyhow::anyhow!("its `parallel`: {}", error.render(text))),
        other => bail!("its `parallel` is neither null nor text, but {other}"),
    }
}

fn kernel(json: &Value) -> Result<Kernel> {
    let malformed = || format!("a kernel is not an object of `device` and `types`, but {json}");
    let types = json["types"].as_object().with_context(malformed)?;
    let dtype = |(attr, name): (&String, &Value)| {
        let dtype = name.as_str().and_then(DType::parse);
        let dtype = dtype.with_context(|| format!("a kernel's `{attr}` is not a dtype, but {name}"))?;
        anyhow::Ok((attr.clone(), dtype))
    };
    Ok(Kernel {
        device: json["device"].as_str().with_context(malformed)?.to_owned(),
        types: types.iter().map(dtype).collect::<Result<_>>()?,
    })
}
