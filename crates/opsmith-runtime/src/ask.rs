//! Questions to a library whose answers are JSON.

use std::collections::HashMap;
use std::sync::Arc;

use opsmith_abi::{OpsmithError, OpsmithStr};
use opsmith_body::Graph;
use opsmith_core::fork::Mutex;
use opsmith_core::{AttrValue, DType, Error, Explanation, Program, Result};
use serde_json::{Map, Value, json};

use crate::call::take_error;
use crate::op::Op;

/// A function of the library's table: a request to an op, and a place for the response.
type Answer = unsafe extern "C" fn(usize, OpsmithStr, *mut OpsmithStr) -> *mut OpsmithError;

/// What an op computes of each element.
#[derive(Debug)]
pub(crate) struct OpProgram {
    pub(crate) graph: Graph,
    /// For each output, the input whose shape it has; none where it has that of all.
    pub(crate) like: Vec<Option<usize>>,
    /// The inputs that do not broadcast.
    pub(crate) whole: Vec<usize>,
}

/// The programs of ops that were asked for, by position and attributes.
pub(crate) type Programs = Mutex<HashMap<(usize, String), Option<Arc<OpProgram>>>>;

impl Op {
    /// What the kernel is made of, where it is written once for all devices: its formula, its CUDA C++ source and the
    /// instructions that it runs with here. Attributes not given have their defaults, dtypes `float32` where they may.
    ///
    /// # Errors
    /// `Unimplemented` for a kernel that was written by hand, `InvalidArgument` for attributes that do not fit the op.
    pub fn explain(&self, attrs: &[(&str, AttrValue)]) -> Result<Explanation> {
        let attrs: Map<String, Value> =
            attrs.iter().map(|(name, value)| ((*name).to_owned(), value.to_json())).collect();
        let response = self.explain_json(&json!({ "attrs": attrs }).to_string())?;
        let response: Value = serde_json::from_str(&response).map_err(|_| {
            Error::internal(format!("{}: its explanation is not JSON", self.signature().name))
        })?;
        let text = |name: &str| response[name].as_str().unwrap_or_default().to_owned();
        Ok(Explanation {
            formula: text("formula"),
            cuda_source: text("cuda_source"),
            vectors: text("vectors"),
            program: Program::from_json(&response["program"]),
        })
    }

    /// As [`explain`](Self::explain), in the form in which it crosses the C ABI: see `explain` in `opsmith.h`.
    ///
    /// # Errors
    /// As [`explain`](Self::explain).
    pub fn explain_json(&self, request: &str) -> Result<String> {
        self.ask(self.library().table().explain, request)
    }

    /// What the op computes of each element with these attributes and floats of this dtype; none where it is more than
    /// that, or not told.
    pub(crate) fn program(&self, attrs: &[(String, AttrValue)], dtype: DType) -> Option<Arc<OpProgram>> {
        let mut all: Vec<(&str, AttrValue)> =
            attrs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        if self.signature().attrs.iter().any(|attr| attr.name == "T")
            && !attrs.iter().any(|(name, _)| name == "T")
        {
            all.push(("T", dtype.into()));
        }
        let key =
            all.iter().map(|(name, value)| format!("{name}: {}\n", value.to_json())).collect::<String>();
        let programs = self.library().programs();
        if let Some(known) = programs.lock().get(&(self.index(), key.clone())) {
            return known.clone();
        }
        let read = || {
            let program = self.explain(&all).ok()?.program?;
            let graph = Graph::parse(&program.graph).ok()?;
            let mut inputs = program.like.iter().flatten().chain(&program.whole);
            let fits = inputs.all(|&input| input < graph.input_count());
            let fits = fits && program.like.len() == graph.outputs().len();
            fits.then(|| Arc::new(OpProgram { graph, like: program.like, whole: program.whole }))
        };
        let program = read();
        programs.lock().insert((self.index(), key), program.clone());
        program
    }

    /// Asks the library something in JSON.
    pub(crate) fn ask(&self, function: Answer, request: &str) -> Result<String> {
        let table = self.library().table();
        let mut response = OpsmithStr::new("");
        // SAFETY: the request lives until the call returns, and `response` is a place to write to.
        let error = unsafe { function(self.index(), OpsmithStr::new(request), &raw mut response) };
        // SAFETY: the error is taken once.
        unsafe { take_error(table, error) }?;
        // SAFETY: the library gave this text; it is copied before it is given back, once.
        unsafe {
            let text = String::from_utf8_lossy(response.as_bytes()).into_owned();
            (table.string_free)(response);
            Ok(text)
        }
    }
}
