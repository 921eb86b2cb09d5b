//! `Op`: an op of a loaded library, to be called from Python.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use opsmith_core::def::ArgDef;
use opsmith_core::fork::Mutex;
use opsmith_core::{AttrValue, Batch, FreeAxis, Result, TensorView};
use opsmith_runtime::CallInputs;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use smallvec::SmallVec;

use crate::attrs;
use crate::errors::to_python;
use crate::inputs::{Inputs, all_ready, prepare};
use crate::outputs::NumpyMemory;

/// A free axis: its name, its dim in each input, and in each output beside whether that is a sum.
type FreeAxisRow = (String, Vec<Option<usize>>, Vec<(Option<usize>, bool)>);

/// Calls on at most this many elements keep the interpreter's lock unless the op has been slow: giving the lock back and
/// taking it again would cost more than they do. NumPy's own operators draw the line at the same place.
const FEW_ELEMENTS: usize = 500;

/// A call that takes this long is a slow one.
const SLOW: Duration = Duration::from_micros(20);

/// After this many slow calls in a row an op gives the lock back however few the elements, until a call is quick.
const SLOW_CALLS: u8 = 2;

/// Of calls that keep the lock, one in so many is timed.
const TIMED: u8 = 8;

/// An op of a library. Call it with its inputs: NumPy arrays, anything with the DLPack, array or buffer protocol, numbers
/// and nested lists; a list or tuple of these for an input that is a list. `attrs` are its attributes: a tuple in the
/// definition's order of those that inputs do not decide, or a dict by name; None stands for a default. `wanted` has bit i
/// set when output i is wanted, which matters for optional outputs.
///
/// Gives an array, a list of arrays for an output that is a list, or a tuple of these where the op has several outputs.
#[pyclass(frozen, module = "opsmith._native")]
pub(crate) struct Op {
    op: opsmith_runtime::Op,
    /// The attributes that inputs do not decide, which callers give, by the definition's indices.
    visible: Vec<usize>,
    /// Whether a single output, not a list, is all that there is.
    gives_one: bool,
    calls: AtomicU8,
    slow_calls: AtomicU8,
    fallback: Mutex<Option<Py<PyAny>>>,
}

impl Op {
    pub(crate) fn new(op: opsmith_runtime::Op) -> Op {
        let signature = op.signature();
        let visible = (0..signature.attrs.len()).filter(|&attr| !signature.attrs[attr].inferred).collect();
        let gives_one = matches!(&*signature.outputs, [output] if !output.count.is_list());
        Op {
            visible,
            gives_one,
            calls: AtomicU8::new(0),
            slow_calls: AtomicU8::new(0),
            fallback: Mutex::new(None),
            op,
        }
    }

    /// The op of the engine.
    pub(crate) fn inner(&self) -> &opsmith_runtime::Op {
        &self.op
    }

    /// The attributes that callers give, by the definition's indices.
    pub(crate) fn visible(&self) -> &[usize] {
        &self.visible
    }

    /// Runs the op and wraps its outputs.
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: &Inputs<'_>,
        attrs: &[(&str, AttrValue)],
        wanted: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut views: SmallVec<[Option<TensorView<'_>>; 4]> = SmallVec::new();
        // Filled where it lies: a collected one would be copied.
        views.extend(inputs.views());
        let named: SmallVec<[(&str, &AttrValue); 2]> =
            attrs.iter().map(|(name, value)| (*name, value)).collect();
        let mut counts: SmallVec<[usize; 4]> = SmallVec::from_elem(0, self.op.signature().outputs.len());
        let mut memory = NumpyMemory::default();
        let tensors = CallInputs { flat: &views, counts: &inputs.counts };
        let call = |counts: &mut [usize], memory: &mut NumpyMemory| {
            // SAFETY: what is changed in place is a writable array, as `inputs` has checked. That no other thread uses it
            // meanwhile is its caller's to see to, as for NumPy's own functions.
            unsafe { self.op.call_into(tensors, &named, wanted as u64, counts, memory) }
        };
        self.with_or_without_lock(py, &views, || call(&mut counts, &mut memory))
            .map_err(|error| to_python(py, &error))?;
        if self.gives_one {
            return memory.take(py, 0);
        }
        self.group(py, &counts, &mut memory)
    }

    /// Runs `call` under the interpreter's lock where it is likely to be short, else without.
    fn with_or_without_lock(
        &self,
        py: Python<'_>,
        views: &[Option<TensorView<'_>>],
        call: impl FnOnce() -> Result<()> + Send,
    ) -> Result<()> {
        let elements: usize = views.iter().flatten().map(TensorView::num_elements).sum();
        if elements > FEW_ELEMENTS || self.op.signature().stateful {
            return py.detach(call);
        }
        let slow_calls = self.slow_calls.load(Ordering::Relaxed);
        if slow_calls == 0 && !self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(TIMED) {
            return call();
        }
        let start = Instant::now();
        let result = if slow_calls < SLOW_CALLS { call() } else { py.detach(call) };
        let is_slow = start.elapsed() > SLOW;
        self.slow_calls.store(if is_slow { slow_calls.saturating_add(1) } else { 0 }, Ordering::Relaxed);
        result
    }

    /// The outputs as the definition groups them.
    fn group<'py>(
        &self,
        py: Python<'py>,
        counts: &[usize],
        memory: &mut NumpyMemory,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut next = 0..;
        let mut take = |_| memory.take(py, next.next().unwrap_or_default());
        let mut one = |(def, &count): (&ArgDef, &usize)| {
            if def.count.is_list() {
                let list = (0..count).map(&mut take).collect::<PyResult<Vec<_>>>()?;
                return PyList::new(py, list).map(Bound::into_any);
            }
            take(0)
        };
        let outputs = &self.op.signature().outputs;
        match &outputs[..] {
            [] => Ok(py.None().into_bound(py)),
            [output] => one((output, &counts[0])),
            _ => {
                let values = outputs.iter().zip(counts).map(one).collect::<PyResult<Vec<_>>>()?;
                PyTuple::new(py, values).map(Bound::into_any)
            }
        }
    }

    fn invoke<'py>(
        &self,
        py: Python<'py>,
        given: &Bound<'py, PyTuple>,
        attrs: Option<&Bound<'py, PyAny>>,
        wanted: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let signature = self.op.signature();
        let mut inputs = Inputs::default();
        if !all_ready(signature, given, &mut inputs) {
            inputs = match prepare(signature, given)? {
                Some(inputs) => inputs,
                None => return self.fall_back(py, given, attrs),
            };
        }
        match attrs {
            None => self.run(py, &inputs, &[], wanted),
            Some(attrs) => self.run(py, &inputs, &attrs::read(signature, &self.visible, attrs)?, wanted),
        }
    }

    fn fall_back<'py>(
        &self,
        py: Python<'py>,
        given: &Bound<'py, PyTuple>,
        attrs: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The lock is given back before the call: the fallback may call this op again, here or on another thread.
        let fallback = self.fallback.lock().as_ref().map(|callable| callable.clone_ref(py));
        match fallback {
            Some(fallback) => fallback.into_bound(py).call1((given, attrs)),
            None => {
                let text = "an input is a framework's tensor, and no fallback is set";
                Err(to_python(py, &opsmith_core::Error::unimplemented(text).with_op(self.name())))
            }
        }
    }
}

#[pymethods]
impl Op {
    /// The op's name, CamelCase.
    #[getter]
    fn name(&self) -> &str {
        &self.op.signature().name
    }

    /// The file of its library, with symbolic links resolved.
    #[getter]
    fn path(&self) -> String {
        self.op.library().path().to_string_lossy().into_owned()
    }

    /// The op's position in its library.
    #[getter]
    fn index(&self) -> usize {
        self.op.index()
    }

    #[pyo3(signature = (*inputs, attrs=None, wanted=-1))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyTuple>,
        attrs: Option<&Bound<'py, PyAny>>,
        wanted: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.invoke(py, inputs, attrs, wanted)
    }

    /// Calls the op with its inputs in a tuple.
    #[pyo3(signature = (inputs, attrs=None, wanted=-1))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        inputs: &Bound<'py, PyTuple>,
        attrs: Option<&Bound<'py, PyAny>>,
        wanted: i64,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.invoke(py, inputs, attrs, wanted)
    }

    /// The ways in which a batch of calls is one call, best first: `(ranks, outputs, attrs)` where the batch is one more dim in front of
    /// each input, of these ranks, and other attributes then hold; `(inputs, outputs, None)` where it is put together with a dim of
    /// each. Dims are counted from the end. `None` stands for an input that stays as it is, and an output that is not asked for.
    fn batches<'py>(
        &self,
        py: Python<'py>,
        attrs: &Bound<'py, PyAny>,
        ranks: Vec<Option<usize>>,
        batched: Vec<bool>,
        wanted: Vec<bool>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let attrs = attrs::read(self.op.signature(), &self.visible, attrs)?;
        let told = |batch: Batch| match batch {
            Batch::InFront { ranks, attrs, outputs } => {
                let changed = PyDict::new(py);
                for (name, value) in attrs {
                    match value {
                        AttrValue::Int(position) => changed.set_item(name, position)?,
                        AttrValue::Ints(positions) => changed.set_item(name, positions)?,
                        // No others have positions.
                        _ => {}
                    }
                }
                (ranks, outputs, Some(changed)).into_pyobject(py)
            }
            Batch::Beside(axis) => {
                let outputs: Vec<_> = axis.outputs.iter().map(|output| output.dim).collect();
                (axis.inputs, outputs, None::<Bound<'_, PyDict>>).into_pyobject(py)
            }
        };
        self.op.batches(&attrs, &ranks, &batched, &wanted).into_iter().map(told).collect()
    }

    /// The free axes of a call with inputs of these ranks, of a list the largest: `(name, inputs, outputs)`, where `inputs` tell which dim
    /// of each it is, and `outputs` that and whether an output that lacks it is the sum over the parts. Dims are counted from the end;
    /// `None` stands for what lacks the axis.
    fn free_axes(&self, attrs: &Bound<'_, PyAny>, ranks: Vec<Option<usize>>) -> PyResult<Vec<FreeAxisRow>> {
        let attrs = attrs::read(self.op.signature(), &self.visible, attrs)?;
        let told = |axis: FreeAxis| {
            let outputs = axis.outputs.iter().map(|output| (output.dim, output.is_sum)).collect();
            (axis.name, axis.inputs, outputs)
        };
        Ok(self.op.free_axes(&attrs, &ranks).into_iter().map(told).collect())
    }

    /// Sets what is called as `fallback(inputs, attrs)` when an input is a tensor of PyTorch, TensorFlow or JAX.
    fn set_fallback(&self, fallback: Option<Py<PyAny>>) {
        let before = std::mem::replace(&mut *self.fallback.lock(), fallback);
        // What it was may run code of Python's when it goes, which must not find the lock taken.
        drop(before);
    }

    fn __repr__(&self) -> String {
        format!("<op {} of library {}>", self.name(), self.op.library().name())
    }
}
