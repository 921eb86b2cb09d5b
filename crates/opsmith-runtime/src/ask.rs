//! Questions to a library about an op: what it computes.

use std::ptr::null;
use std::sync::Arc;

use opsmith_core::abi::OpsmithStr;
use opsmith_core::{AttrValue, DType, Error, Explanation, Result};
use serde_json::Value;

use crate::attrs::{Named, with_abi_attrs};
use crate::call::take_error;
use crate::library::Op;
use crate::program::{self, OpProgram};
use crate::told::Attrs;

impl Op {
    /// What the kernel is made of, where it is written once for all devices: its formula, its CUDA C++ source and the
    /// instructions that it runs with here. Attributes not given have their defaults, dtypes `float32` where they may.
    ///
    /// # Errors
    /// `Unimplemented` for a kernel that was written by hand, `InvalidArgument` for attributes that do not fit the op.
    pub fn explain(&self, attrs: &[(&str, AttrValue)]) -> Result<Explanation> {
        let attrs: Vec<Named<'_>> = attrs.iter().map(|(name, value)| (*name, value)).collect();
        let table = self.library().table();
        let mut response = OpsmithStr::new("");
        with_abi_attrs(&attrs, |attrs| {
            // SAFETY: the attributes live until the call returns, and `response` is a place to write to.
            let error =
                unsafe { (table.explain)(self.index(), attrs.as_ptr(), attrs.len(), &raw mut response) };
            // SAFETY: the error is taken once.
            unsafe { take_error(table, error) }
        })
        .map_err(|error| error.with_op(&self.signature().name))?;
        // SAFETY: the library gave this text; it is read before it is given back, once.
        let told = unsafe {
            let told = serde_json::from_slice::<Value>(response.as_bytes());
            (table.string_free)(response);
            told
        };
        let told =
            told.map_err(|_| Error::internal("its explanation is not JSON").with_op(&self.signature().name))?;
        let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        Ok(Explanation {
            formula: text("formula"),
            cuda_source: text("cuda_source"),
            vectors: text("vectors"),
        })
    }

    /// What the op computes of each element with these attributes and floats of this dtype; none where it is more than
    /// that, or has a node that is not known here.
    ///
    /// # Errors
    /// `Internal` for a program that is none, and what the library says of the attributes.
    pub(crate) fn program(&self, attrs: &Attrs, dtype: DType) -> Result<Option<Arc<OpProgram>>> {
        let programs = &self.library().answers().programs;
        let question = (self.index(), dtype, attrs.clone());
        if let Some(known) = programs.get(&question) {
            return Ok(known);
        }
        let dtype = AttrValue::from(dtype);
        let mut all: Vec<Named<'_>> = attrs.iter().map(|(name, value)| (name.as_str(), value)).collect();
        if self.signature().attrs.iter().any(|attr| attr.name == "T")
            && !attrs.iter().any(|(name, _)| name == "T")
        {
            all.push(("T", &dtype));
        }
        let program = self.ask_program(&all)?.map(Arc::new);
        programs.keep(question, program.clone());
        Ok(program)
    }

    fn ask_program(&self, attrs: &[Named<'_>]) -> Result<Option<OpProgram>> {
        let table = self.library().table();
        let mut told = null();
        with_abi_attrs(attrs, |attrs| {
            // SAFETY: the attributes live until the call returns, and `told` is a place to write to.
            let error = unsafe { (table.program)(self.index(), attrs.as_ptr(), attrs.len(), &raw mut told) };
            // SAFETY: the error is taken once.
            unsafe { take_error(table, error) }
        })?;
        if told.is_null() {
            return Ok(None);
        }
        // SAFETY: the library gave it, and it is there until it is given back.
        let program = unsafe { program::read(told) };
        // SAFETY: it is given back once, and nothing of it is kept.
        unsafe { (table.program_free)(told) };
        program.map_err(|error| {
            let library = self.library().name();
            error
                .within(format_args!("the program that library `{library}` tells"))
                .with_op(&self.signature().name)
        })
    }
}
