//! `opsmith._native`: operator libraries as Python objects that work on NumPy arrays.
//!
//! The Python package `opsmith` wraps this module; nothing here knows a framework. Tensors of PyTorch, TensorFlow and
//! JAX go to the fallback that the package sets on each op.

mod array;
mod attrs;
mod check;
mod convert;
mod dtypes;
mod errors;
mod files;
mod graph;
mod inputs;
mod just_in_time;
mod kinds;
mod library;
mod op;
mod outputs;
mod program;
mod python_values;

/// The native part of `opsmith`.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::check::{check_worker, run_checks};
    #[pymodule_export]
    use crate::files::{check_own, read_file};
    #[pymodule_export]
    use crate::graph::{
        Graph, GraphOperation, GraphOutput, GraphSession, SparseTensor, card_memory, check_places, gradients,
        jvp, minimize, release_card_memory,
    };
    #[pymodule_export]
    use crate::just_in_time::{crate_sources, processor_feature};
    #[pymodule_export]
    use crate::library::{Library, check, open, standard};
    #[pymodule_export]
    use crate::op::Op;
    #[pymodule_export]
    use crate::program::run_program;
    use pyo3::prelude::*;
    use pyo3::types::PyType;

    /// Has PyO3 make the strings that it keeps, of all that is used of it: a thread that makes one gives Python's lock away
    /// meanwhile, and a child that is forked then would wait for it for ever.
    fn make_interned(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let kind: Bound<'_, PyType> = module.get_type();
        kind.name()?;
        kind.mro();
        kind.mro().try_iter()?.size_hint();
        Bound::new(module.py(), Graph::new())?;
        module.as_any().getattr("__name__")?.extract::<String>().map(drop)
    }

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        make_interned(module)?;
        let names = opsmith_check::Property::ALL.map(opsmith_check::Property::name);
        module.add("PROPERTIES", names.to_vec())?;
        module.add("VERSION", env!("CARGO_PKG_VERSION"))
    }
}
