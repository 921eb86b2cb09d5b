//! Calling an op from a Rust test, through the same path as every framework: `testing::call::<scale_rows>()`.
//!
//! The caller here is made for finding mistakes: outputs begin as NaN, so an element that the kernel forgets shows, and
//! the shapes of outputs must be those that inference gives.

pub mod cuda;
mod services;

use ndarray::{Array, ArrayBase, Data, DataMut, Dimension, RawData};
use opsmith_core::kernel::CallInputs;
pub use opsmith_core::testing::ShapeTest;
use opsmith_core::{Dim, Request};

use self::services::{Block, Made, TestServices};
use crate::{
    AttrValue, Device, Element, Error, InferenceContext, Op, OpDef, OpDefinition, Result, Shape, TensorView,
    bail, ensure,
};

/// A call of the op that `O` stands for: an `#[op]` function, or a type that implements [`OpDefinition`].
pub fn call<'a, O: OpDefinition>() -> Call<'a> {
    Call::new(O::def())
}

/// The shape function of the op that `O` stands for, to be tested with [`infer_ok!`](crate::infer_ok) and
/// [`infer_error!`](crate::infer_error).
///
/// ```
/// use opsmith::prelude::*;
/// use opsmith::{infer_error, infer_ok, testing};
///
/// #[op(shape = "(n)->(2 * n)")]
/// fn twice<T: Number>(x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
///     let n = x.len();
///     z.slice_mut(s![..n]).assign(&x);
///     z.slice_mut(s![n..]).assign(&x);
/// }
///
/// infer_ok!(testing::shapes::<twice>(), "[?]", "[2 * d0_0]");
/// infer_error!(testing::shapes::<twice>(), "must have rank 1", "[2,3]");
/// ```
///
/// # Panics
/// When the definition is not well formed.
pub fn shapes<O: OpDefinition>() -> ShapeTest {
    let op = O::def().build().unwrap_or_else(|error| panic!("{error}"));
    let signature = op.signature().clone();
    ShapeTest::new(&signature, move |context| op.infer_shapes(context))
}

/// The array as an op sees it, strides and all.
pub fn view<T: Element, S: Data<Elem = T>, D: Dimension>(array: &ArrayBase<S, D>) -> TensorView<'_> {
    raw_view(array, array.as_ptr())
}

fn raw_view<T: Element, S: RawData<Elem = T>, D: Dimension>(
    array: &ArrayBase<S, D>,
    data: *const T,
) -> TensorView<'_> {
    // SAFETY: an array's pointer, shape and strides reach its own elements, which the borrow keeps; where it is a
    // mutable one, `Call` lends it to an input that is changed in place and to nothing else.
    unsafe { TensorView::from_raw_parts(data.cast(), T::DTYPE, Device::CPU, array.shape(), array.strides()) }
}

/// A call in preparation: inputs in order, then attributes by name.
///
/// ```
/// use opsmith::prelude::*;
/// use opsmith::testing;
///
/// #[op(shape = "(n)->()")]
/// fn nth<T: Number>(x: ArrayView1<T>, #[attr(min = 0)] n: usize, mut z: ArrayViewMut0<T>) -> Result<()> {
///     ensure!(n < x.len(), OutOfRange, "n is {n}, but there are {} elements", x.len());
///     z.fill(x[n]);
///     Ok(())
/// }
///
/// let x = array![1, 2, 3];
/// assert_eq!(testing::call::<nth>().input(&x).attr("n", 2).run()?.array::<i32, Ix0>("z")?, ndarray::arr0(3));
///
/// let error = testing::call::<nth>().input(&x).attr("n", 3).run().unwrap_err();
/// assert_eq!(error.to_string(), "OutOfRange: Nth: n is 3, but there are 3 elements");
/// # use opsmith::ndarray;
/// # Ok::<(), Error>(())
/// ```
#[must_use = "nothing is computed before `run`"]
pub struct Call<'a> {
    def: OpDef,
    flat: Vec<Option<TensorView<'a>>>,
    counts: Vec<usize>,
    /// The inputs that may be changed in place.
    lent: Vec<usize>,
    attrs: Vec<(&'a str, AttrValue)>,
    unwanted: Vec<&'a str>,
    threads: usize,
    device: Device,
}

impl<'a> Call<'a> {
    /// A call of the op that `def` states.
    pub fn new(def: OpDef) -> Call<'a> {
        Call {
            def,
            flat: Vec::new(),
            counts: Vec::new(),
            lent: Vec::new(),
            attrs: Vec::new(),
            unwanted: Vec::new(),
            threads: 1,
            device: Device::CPU,
        }
    }

    /// The next input.
    pub fn input<T: Element, S: Data<Elem = T>, D: Dimension>(self, array: &'a ArrayBase<S, D>) -> Call<'a> {
        self.tensors([Some(view(array))])
    }

    /// The next input, which the op changes in place: a `Ref`.
    pub fn input_mut<T: Element, S: DataMut<Elem = T>, D: Dimension>(
        mut self,
        array: &'a mut ArrayBase<S, D>,
    ) -> Call<'a> {
        let data = array.as_mut_ptr();
        self.lent.push(self.counts.len());
        self.tensors([Some(raw_view(array, data))])
    }

    /// The next input, a list; its elements are made by [`view`].
    pub fn input_list(self, tensors: impl IntoIterator<Item = TensorView<'a>>) -> Call<'a> {
        self.tensors(tensors.into_iter().map(Some))
    }

    /// The next input, an optional one, is absent.
    pub fn absent(self) -> Call<'a> {
        self.tensors([None])
    }

    fn tensors(mut self, tensors: impl IntoIterator<Item = Option<TensorView<'a>>>) -> Call<'a> {
        let before = self.flat.len();
        self.flat.extend(tensors);
        self.counts.push(self.flat.len() - before);
        self
    }

    /// The value of an attribute.
    pub fn attr(mut self, name: &'a str, value: impl Into<AttrValue>) -> Call<'a> {
        self.attrs.push((name, value.into()));
        self
    }

    /// Nobody wants this output, which must be an optional one.
    pub fn without(mut self, output: &'a str) -> Call<'a> {
        self.unwanted.push(output);
        self
    }

    /// Lets the kernel use this many threads; 1 unless set.
    pub fn threads(mut self, threads: usize) -> Call<'a> {
        self.threads = threads.max(1);
        self
    }

    /// Makes the call.
    ///
    /// # Errors
    /// Those of the definition and of the op; `NotFound` for an output that the op lacks; `Internal`
    /// when the kernel makes an output of another shape than inference says.
    pub fn run(self) -> Result<Outputs> {
        let op = self.def.clone().build()?;
        self.run_op(&op).map_err(|error| error.with_op(&op.signature().name))
    }

    fn run_op(self, op: &Op) -> Result<Outputs> {
        let placed = self.placed(op);
        let inputs = CallInputs { flat: &placed, counts: &self.counts };
        let attrs = self.attr_values(op)?;
        let request = Request { inputs, attrs: &attrs, device: self.device.kind };
        let plan = op.plan(&request)?;
        self.check_lent(op)?;
        let services = TestServices::new(plan.output_dtypes().len(), self.threads, self.device);
        plan.run(op, inputs, self.wanted(op)?, &services)?;
        let offsets = (0..=op.signature().outputs.len()).map(|output| plan.output_offset(output)).collect();
        let names = op.signature().outputs.iter().map(|output| output.name.clone()).collect();
        let (made, texts) = services.into_made();
        let op_name = op.signature().name.clone();
        let outputs = Outputs { op_name, names, offsets, made, _texts: texts };
        outputs.check_shapes(self.infer(op, plan.attrs())?)?;
        Ok(outputs)
    }

    /// The inputs, on the call's device but for those that its kernels read in host memory.
    fn placed(&self, op: &Op) -> Vec<Option<TensorView<'a>>> {
        if self.device == Device::CPU {
            return self.flat.clone();
        }
        let kernels = op.kernels().iter().filter(|kernel| kernel.device() == self.device.kind);
        let services: Vec<&str> =
            kernels.flat_map(|kernel| kernel.host_memory_arguments()).copied().collect();
        let inputs = op.signature().inputs.iter().zip(&self.counts);
        let is_host =
            inputs.flat_map(|(input, &count)| std::iter::repeat_n(services.contains(&&*input.name), count));
        let place = |(tensor, is_host): (&Option<TensorView<'a>>, bool)| {
            let tensor = tensor.as_ref()?;
            let device = if is_host { Device::CPU } else { self.device };
            // SAFETY: it is the same tensor. A kernel on another device than the CPU gets no typed view of it.
            Some(unsafe {
                let (data, dtype) = (tensor.data_ptr(), tensor.dtype());
                TensorView::from_raw_parts(data, dtype, device, tensor.shape(), tensor.strides())
            })
        };
        self.flat.iter().zip(is_host.chain(std::iter::repeat(false))).map(place).collect()
    }

    fn attr_values(&self, op: &Op) -> Result<Vec<Option<AttrValue>>> {
        let signature = op.signature();
        let mut values = vec![None; signature.attrs.len()];
        for (name, value) in &self.attrs {
            let Some(index) = signature.attr_index(name) else {
                return Err(signature.unknown_attr(name));
            };
            values[index] = Some(value.clone());
        }
        Ok(values)
    }

    fn wanted(&self, op: &Op) -> Result<u64> {
        let signature = op.signature();
        self.unwanted.iter().try_fold(u64::MAX, |wanted, name| match signature.output_index(name) {
            Some(output) if signature.outputs[output].optional => Ok(wanted & !(1 << output)),
            Some(_) => bail!(InvalidArgument for name, "output `{name}` is not optional"),
            None => bail!(NotFound, "has no output `{name}`"),
        })
    }

    /// An input that the op changes in place must have been given as one, for only then is it ours to lend.
    fn check_lent(&self, op: &Op) -> Result<()> {
        let mut inputs = op.signature().inputs.iter().enumerate();
        match inputs.find(|(position, input)| input.is_ref && !self.lent.contains(position)) {
            Some((_, input)) => {
                bail!(InvalidArgument, "input `{}` is changed in place; give it by `input_mut`", input.name)
            }
            None => Ok(()),
        }
    }

    fn infer(&self, op: &Op, attrs: &[AttrValue]) -> Result<Vec<Shape>> {
        let mut rest = self.flat.as_slice();
        let shapes = self.counts.iter().map(|&count| {
            let (own, after) = rest.split_at(count);
            rest = after;
            own.iter().map(|tensor| tensor.as_ref().map(|tensor| Shape::known(tensor.shape()))).collect()
        });
        let mut context = InferenceContext::new(op.signature(), attrs, shapes.collect())?;
        op.infer_shapes(&mut context)?;
        Ok(context.into_parts().0)
    }
}

/// What a call made.
#[derive(Debug)]
pub struct Outputs {
    op_name: String,
    names: Vec<String>,
    offsets: Vec<usize>,
    made: Vec<Option<Made>>,
    /// What the elements of `string` outputs point to.
    _texts: Vec<Block>,
}

impl Outputs {
    /// The output `name`, one that is not a list.
    ///
    /// # Errors
    /// `NotFound` when there is none of the name or it was not made; `InvalidArgument` when dtype or rank differ.
    pub fn array<T: Element, D: Dimension>(&self, name: &str) -> Result<Array<T, D>> {
        self.element(name, 0)
    }

    /// The element `index` of the output `name`, a list.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn element<T: Element, D: Dimension>(&self, name: &str, index: usize) -> Result<Array<T, D>> {
        self.read(name, index, |tensor| Ok(tensor.view::<T, D>()?.to_owned()))
    }

    /// The elements of the `string` output `name`, row-major.
    ///
    /// # Errors
    /// As [`array`](Self::array).
    pub fn strings(&self, name: &str) -> Result<Vec<Vec<u8>>> {
        self.read(name, 0, |tensor| Ok(tensor.strings()?.into_iter().map(<[u8]>::to_vec).collect()))
    }

    /// What `read` makes of an element of an output; an error names the op and the output.
    fn read<R>(&self, name: &str, index: usize, read: impl FnOnce(TensorView<'_>) -> Result<R>) -> Result<R> {
        let made = self.find(name, index).map_err(|error| error.with_op(&self.op_name))?;
        made.read(read).map_err(|error| error.with_argument("output", name).with_op(&self.op_name))
    }

    /// Whether the output `name` was made.
    pub fn has(&self, name: &str) -> bool {
        self.find(name, 0).is_ok()
    }

    /// How many tensors the output `name` holds; none if there is none of the name.
    pub fn count(&self, name: &str) -> usize {
        let position = self.names.iter().position(|other| other == name);
        position.map_or(0, |output| self.offsets[output + 1] - self.offsets[output])
    }

    fn find(&self, name: &str, index: usize) -> Result<&Made> {
        let output = self.names.iter().position(|other| other == name);
        let output = output.ok_or_else(|| {
            let names = self.names.join("`, `");
            Error::not_found(format!("there is no output `{name}`; the op has `{names}`"))
        })?;
        let (begin, end) = (self.offsets[output], self.offsets[output + 1]);
        let made = (begin..end).nth(index).and_then(|flat| self.made[flat].as_ref());
        made.ok_or_else(|| Error::not_found(format!("output `{name}` has no element {index}")))
    }

    fn check_shapes(&self, inferred: Vec<Shape>) -> Result<()> {
        for (made, inferred) in self.made.iter().zip(inferred) {
            let Some(made) = made else { continue };
            let fits = inferred.dims().is_none_or(|dims| {
                let is =
                    |(dim, &size): (&Dim, &usize)| !matches!(dim, Dim::Known(known) if *known != size as u64);
                dims.len() == made.shape.len() && dims.iter().zip(&made.shape).all(is)
            });
            let shape = &made.shape;
            ensure!(fits, Internal, "made an output of shape {shape:?}, but inference says {inferred}");
        }
        Ok(())
    }
}
