#![doc = include_str!("../README.md")]

pub mod prelude;
pub mod testing;

pub use ndarray;
pub use opsmith_body::{Axis, Each, Index, Indexed, IndexedMask, Mask, Rows, Scalar};
pub use opsmith_core::abi::OpsmithLibrary;
pub use opsmith_core::tensor::MAX_RANK;
pub use opsmith_core::{
    AttrValue, Autocast, Code, Compute, DType, Device, DeviceKind, Dim, Element, Error, FreeAxis,
    InferenceContext, KernelDef, Library, Op, OpDef, OpDefinition, OpKernel, OpKernelConstruction,
    OpKernelContext, OutputAxis, Parallel, Resource, Result, Shape, ShapeFn, TensorView, TensorViewMut, attr,
    bail, ensure, infer_error, infer_ok, memory, shape_fns, space,
};
pub use opsmith_kernels::body::AxesKernel;
pub use opsmith_kernels::gemm;
pub use opsmith_kernels::pointwise::ProgramKernel;

/// What [`Compute`] does with whole arrays: [`map`](ComputeExt::map) applies a body to each element,
/// [`gemm`](ComputeExt::gemm) multiplies matrices.
///
/// ```
/// use opsmith::prelude::*;
/// use opsmith::testing::call;
///
/// /// A dense layer: `x · weightᵀ + bias`.
/// #[op(shape = "(n,p),(m,p),(m)->(n,m)", strided)]
/// fn dense<T: AnyFloat>(
///     cx: &Compute,
///     x: ArrayView2<T>,
///     weight: ArrayView2<T>,
///     bias: ArrayView1<T>,
///     mut y: ArrayViewMut2<T>,
/// ) -> Result<()> {
///     y.assign(&bias);
///     cx.gemm(T::one(), x, weight.t(), T::one(), y)
/// }
///
/// let (x, weight, bias) = (array![[1.0, 2.0]], array![[3.0, 4.0], [5.0, 6.0]], array![0.5, 0.25]);
/// let outputs = call::<dense>().input(&x).input(&weight).input(&bias).run()?;
/// assert_eq!(outputs.array::<f64, Ix2>("y")?, array![[11.5, 17.25]]);
/// # Ok::<(), Error>(())
/// ```
pub use opsmith_kernels::ComputeExt;

/// Code that is compiled for several instruction sets, the best of which is chosen at run time: for loops that are written by
/// hand, as those of bodies do it by themselves.
///
/// ```
/// use opsmith::isa::{Isa, Kernel, dispatch};
///
/// /// Adds `factor * x` to `y`.
/// struct AddScaled<'a> {
///     factor: f32,
///     x: &'a [f32],
///     y: &'a mut [f32],
/// }
///
/// impl Kernel for AddScaled<'_> {
///     type Output = ();
///
///     #[inline(always)]
///     fn run<I: Isa>(self) {
///         for (y, x) in self.y.iter_mut().zip(self.x) {
///             *y = if I::FUSED { x.mul_add(self.factor, *y) } else { x * self.factor + *y };
///         }
///     }
/// }
///
/// let mut y = [1.0; 3];
/// dispatch(AddScaled { factor: 2.0, x: &[1.0, 2.0, 3.0], y: &mut y });
/// assert_eq!(y, [3.0, 5.0, 7.0]);
/// ```
pub mod isa {
    pub use opsmith_body::{Isa, Kernel, dispatch};
}

/// CUDA kernels: what launch functions are given, and what they launch.
///
/// An op gets a CUDA kernel by `cuda = "file.cu"` in its [`op`](macro@op) options, and a function beside it that launches what is in the
/// file. It has the name of the op's function with `_cuda` behind it, and its parameters, but for three things: the first is
/// `&CudaCall`, inputs are [`DeviceView`](cuda::DeviceView)s and outputs [`DeviceViewMut`](cuda::DeviceViewMut)s, of any rank, and it
/// returns a `Result<()>`. Shapes are checked and outputs made before, as on the CPU; inputs come with any strides. An input
/// that is marked `#[host]` stays in host memory, and is an array view there too. `docs/cuda.md` tells the rest.
pub mod cuda {
    pub use opsmith_cuda::*;
}

/// Element types: the sets that bounds name, and the types that Rust itself lacks.
pub mod dtype {
    pub use half::{bf16, f16};
    pub use num_complex::Complex;
    pub use opsmith_core::dtype::*;
    pub use opsmith_kernels::{AnyFloat, Float};
}

/// Makes a function an op.
///
/// The function's parameters are, in any order but for the first:
///
/// - where wanted, first, `&Compute`: threads, scratch memory, the device;
/// - inputs, `ArrayView0<T>` to `ArrayView6<T>` or `ArrayViewD<T>`; in an `Option`, one that may be absent;
/// - outputs, `ArrayViewMut0<T>` to `ArrayViewMut6<T>` or `ArrayViewMutD<T>`, uninitialised: write every element
///   before reading it. In an `Option`, one that need not be computed: it is `None` when nobody wants it. With
///   `#[saved]`, one that serves the gradient only, which wrappers drop;
/// - lists of either, `&[ArrayView1<T>]`, `&mut [ArrayViewMut1<T>]` or a `Vec`: any number of tensors, at least one. The list that
///   the caller gives decides the number, the attribute `N`, or `N_<input>` where several inputs are lists. An output list is
///   as long as the input whose name its own is with `_grad` behind it, or as the only one that is a list;
/// - outputs whose shape the data decide, `?` in the shape signature: `&mut Array1<T>` to `&mut Array6<T>` or `&mut ArrayD<T>`, which
///   the function assigns; in an `Option`, as others. They are copied into the caller's memory. JAX, whose shapes are all known
///   before a program runs, has such ops only outside `jit`;
/// - attributes, `#[attr(…)] a: i64`, with `default`, `min`, `max`, for a float `above` and `below`, which exclude the bound, `one_of = […]` and, for a list,
///   `min_len`. Types are `i64 i32 u64 u32 usize f64 f32 bool String &str DType`, and `Vec<T>` or `&[T]` of
///   `i64 usize f64 f32 bool String DType`.
///
/// It returns nothing or `Result<()>`. A parameter's name, less underscores in front, is the argument's. The function
/// stays one that Rust code can call, and beside it stands a type of its name that [`library!`] lists.
///
/// A type parameter is a dtype. Its bound says which: `Float`, `AnyFloat`, `Integer`, `RealNumber` or `Number`, and a
/// kernel is compiled for each. One that no input has is an attribute that callers pass.
///
/// # Options
/// - `shape = "(n,p),(m,p)->(n,m)"`, required: [the shapes](opsmith_core::ShapeSignature) of inputs and outputs, in
///   order. Where an argument begins with `...`, any number of batch dims, it is an `ArrayViewD`.
/// - `gradient = path`: the op that computes the gradient; its inputs are inputs and outputs of this op and
///   `<output>_grad`, its outputs `<input>_grad`. An op that has a `name` of its own is given by it:
///   `gradient = "OtherGrad"`.
/// - `not_differentiable`: no gradient flows through; else, with no gradient either, asking for one is an error.
/// - `dtypes(T = [f32, i32])`: the dtypes of a type parameter, where its bound says too many or nothing.
/// - `name = "Other"`: the op's name, where it is not the function's in CamelCase.
/// - `stateful`: calls have effects or memory, and are never merged or dropped.
/// - `cuda = "file.cu"`: CUDA kernels in a file beside this one, which the function `<name>_cuda` launches: see [`cuda`].
/// - `capturable`: the work of its CUDA kernel may be recorded once and replayed: see [`KernelDef::capturable`].
/// - `autocast = "float32"`, `"lower"` or `"widest"`: what PyTorch's autocast does with the inputs: see [`Autocast`].
/// - `parallel = "n, m"`: dims that are independent of each other: see [`Parallel`].
/// - `strided`: inputs come with any strides; without it, one that is not row-major is copied first.
///
/// The function's documentation is the op's; the list under a heading `Arguments`, lines `name: text`, and comments on
/// the parameters themselves document arguments.
///
/// ```
/// use opsmith::prelude::*;
/// use opsmith::testing;
///
/// /// Scales each row of `x` by its own factor.
/// #[op(shape = "(n,p),(n)->(n,p)")]
/// fn scale_rows<T: Float>(
///     x: ArrayView2<T>,
///     factor: ArrayView1<T>,
///     #[attr(default = false)] invert: bool,
///     mut z: ArrayViewMut2<T>,
/// ) {
///     for ((row, mut scaled), &factor) in x.outer_iter().zip(z.outer_iter_mut()).zip(factor) {
///         scaled.assign(&if invert { &row / factor } else { &row * factor });
///     }
/// }
///
/// let (x, factor) = (array![[1.0, 2.0], [3.0, 4.0]], array![10.0, 100.0]);
/// let outputs = testing::call::<scale_rows>().input(&x).input(&factor).run()?;
/// assert_eq!(outputs.array::<f64, Ix2>("z")?, array![[10.0, 20.0], [300.0, 400.0]]);
/// # Ok::<(), Error>(())
/// ```
pub use opsmith_macros::op;

/// Makes a function of numbers an op that is applied to every element of its inputs, with its gradients.
///
/// The function is generic over one type, the numbers, bounded by [`Scalar`]. Its parameters are
///
/// - inputs, of that type: tensors that broadcast by NumPy's rules, of any strides;
/// - attributes, `#[attr(…)]`, with the options that [`op`](macro@op) has: of the numbers' type, a float, which formulas and
///   CUDA source name; or of a plain type, `i64 i32 u64 u32 usize f64 f32 bool`, a constant of the body; or `&str` with
///   `one_of`, a text of a set. For each of those texts, and for either value of a `bool`, the function is compiled anew,
///   so that branching on them costs nothing.
///
/// It returns a number, or a tuple or array of numbers: the outputs, which have the shape that the inputs broadcast to.
/// Conditions are [`Scalar::select`], not `if`, as the function is compiled once for many elements.
///
/// There are kernels for float16 and bfloat16, which are computed in float32, float32 and float64, vectorised for what the
/// processor has. The gradient is the op `<Name>Grad`, the gradient's gradient `<Name>GradGrad`, and so on; they come into a
/// library with the op. The function stays one that Rust code can call, and beside it stands a type of its name: the
/// op that [`library!`] lists, with the attributes as fields a body for [`map`](ComputeExt::map) in other kernels.
///
/// # Options
/// - `output = z`, `outputs = [a, b]`: the names of the outputs. One is called `y` unless it is named, or `z` or
///   `output` where arguments have those names.
/// - `dtypes = [f32, f64]`: fewer dtypes.
/// - `orders = 1`: of how many orders there are gradients, 0 to 4; 3 unless it is given.
/// - `autocast = "float32"`: as for [`op`](macro@op); without it, several inputs become the widest among them.
/// - `name = "Other"`: the op's name, where it is not the function's in CamelCase.
///
/// The function's documentation is the op's, as for [`op`](macro@op).
///
/// ```
/// use opsmith::prelude::*;
/// use opsmith::testing;
///
/// /// The leaky rectified linear unit.
/// #[pointwise]
/// fn leaky_relu<S: Scalar>(x: S, #[attr(default = 0.01)] slope: S) -> S {
///     S::select(x.gt(S::of(0.0)), x, x * slope)
/// }
///
/// let x = array![-2.0, 0.0, 3.0];
/// let outputs = testing::call::<leaky_relu>().input(&x).attr("slope", 0.5).run()?;
/// assert_eq!(outputs.array::<f64, Ix1>("y")?, array![-1.0, 0.0, 3.0]);
/// # Ok::<(), Error>(())
/// ```
pub use opsmith_macros::pointwise;

/// Makes a function of two numbers an op on all pairs of rows of two matrices, with its gradients.
///
/// From matrices of shapes (n, p) and (m, p) comes one of shape (n, m): `z[i, j]` is the sum over `k` of the function of
/// `x[i, k]` and `y[j, k]`. The function is generic over one type, the numbers, bounded by [`Scalar`]; its parameters are
/// two inputs and, beside them, attributes as [`pointwise`](macro@pointwise) has them, but no text; it returns one number. No memory
/// is needed for the terms, and the result does not depend on the number of threads.
///
/// # Options
/// - `fold = sum`, or `mean`, `max` or `min`: how the terms of a pair of rows become one number. A largest or smallest term
///   takes the gradient, and several equal ones share it; NaN is both the largest and the smallest. Rows with no
///   elements have the sum 0, the mean NaN, and −∞ and ∞ as the largest and smallest number.
/// - `finish = Scalar::sqrt`: a function of the folded number, by its path.
/// - `output = z`, `dtypes = […]`, `orders = 2`, `name = "Other"`: as for `pointwise`.
///
/// ```
/// use opsmith::prelude::*;
/// use opsmith::testing;
///
/// /// Euclidean distances.
/// #[pairwise(finish = Scalar::sqrt)]
/// fn distance<S: Scalar>(x: S, y: S) -> S {
///     (x - y) * (x - y)
/// }
///
/// let (x, y) = (array![[0.0, 0.0], [3.0, 4.0]], array![[3.0, 0.0]]);
/// let outputs = testing::call::<distance>().input(&x).input(&y).run()?;
/// assert_eq!(outputs.array::<f64, Ix2>("z")?, array![[3.0], [4.0]]);
/// # Ok::<(), Error>(())
/// ```
pub use opsmith_macros::pairwise;

/// Makes a function of numbers that lie on named axes an op, with its gradients: whatever folds, of pairs and of rows, one of
/// another.
///
/// The signature, one parenthesis for each argument, names the axes of its last dims. The function is generic over one type `S`,
/// bounded by [`Indexed`]. An input lies on its axes: there is one number for each of their positions. What an operation gives
/// lies on the axes of all its operands, and a fold, `sum mean amax amin log_sum_exp argmax argmin`, takes one away; so do
/// `any`, `all` and `count` of masks. `S::index(axis)` is the position along an axis, `S::count(axis)` its size. A result has to
/// lie on the axes of its output and no others. Locals may have an axis' name; a function that is called may take an axis, of
/// type [`Axis`].
///
/// What is larger than the largest argument, such as the distance of every pair, is not in memory.
///
/// Every argument may have dims before those of its axes; they broadcast, and the outputs have them all.
///
/// Inputs of type `S::Index` are positions, int64, such as labels and lengths; those of type `S::Mask` are bool. They are read and have no
/// gradient. An op whose outputs are of one of these types has none either. The other options and attributes are
/// those of [`pointwise`](macro@pointwise).
///
/// ```
/// use opsmith::prelude::*;
/// use opsmith::testing;
///
/// /// Attention: for each query, the mean of the values, weighted by how well their keys fit.
/// #[body("(i,k),(j,k),(j,e)->(i,e)")]
/// fn attention<S: Indexed>(query: S, key: S, value: S, #[attr(default = 1.0)] scale: S) -> S {
///     let fit = (query * key).sum(k) * scale;
///     let weight = (fit - fit.amax(j).detached()).exp();
///     (weight * value).sum(j) / weight.sum(j)
/// }
///
/// let (query, key) = (array![[0.0, 0.0]], array![[1.0, 2.0], [3.0, 4.0]]);
/// let outputs = testing::call::<attention>().input(&query).input(&key).input(&array![[1.0], [3.0]]).run()?;
/// assert_eq!(outputs.array::<f64, Ix2>("z")?, array![[2.0]]);
/// # Ok::<(), Error>(())
/// ```
pub use opsmith_macros::body;

/// Makes a function of the numbers of rows an op, with its gradients: a reduction, or a function of the whole row.
///
/// The function is generic over one type `R`, bounded by [`Rows`]. Its parameters are inputs and attributes as for
/// [`pointwise`](macro@pointwise): what varies along the row is of type `R::Each`, what there is one of for each row,
/// float attributes among it, of type `R::One`. Both are [`Scalar`]s. Folds lead from the first to the second, `sum`,
/// `mean`, `amax`, `amin` and `count` (see [`Each`]); arithmetic between them gives the first. It returns a number of
/// either type, or a tuple or array of them: the outputs.
///
/// A row is the last dims of a tensor: as many as the attribute `axes` says, which every such op has and which is 1 by
/// default. Inputs of type `R::Each` broadcast to all dims, those of type `R::One` to the other dims; an output of type
/// `R::One` has the other dims. Rows may be empty: their sum is 0, their largest number −∞.
///
/// The error of a sum is at most 48 roundings of the sum of the magnitudes, however many terms there are, and results have the
/// same bits for any number of threads. float16 and bfloat16 are computed in float32.
///
/// The gradient of a largest number is shared equally by those that are it, and by the whole row if it is NaN. What is
/// [`detached`](Scalar::detached) is a constant for derivatives: worth saying of what changes no result, only how exactly it is
/// computed.
///
/// The options are those of [`pointwise`](macro@pointwise), and
/// - `axes = any`: a row is made of any dims, not of the last ones. The attribute `axes` lists them, from the end where
///   negative, and is empty for all; `keep_dims` says whether what there is one of for each row keeps them, as dims of 1. Such a
///   function has one input.
///
/// ```
/// use opsmith::prelude::*;
/// use opsmith::testing;
///
/// /// The softmax of each row.
/// #[reduce]
/// fn softmax<R: Rows>(x: R::Each) -> R::Each {
///     let e = (x - x.amax().detached()).exp();
///     e / e.sum()
/// }
///
/// let x = array![[0.0, 0.0], [1.0, 1.0 + 3.0f64.ln()]];
/// let outputs = testing::call::<softmax>().input(&x).run()?;
/// let difference = outputs.array::<f64, Ix2>("y")? - array![[0.5, 0.5], [0.25, 0.75]];
/// assert!(difference.iter().all(|d| d.abs() <= 1e-15));
/// # Ok::<(), Error>(())
/// ```
pub use opsmith_macros::reduce;

/// Makes ops a library that every framework loads: once in a crate whose type is `cdylib`.
///
/// ```
/// use opsmith::prelude::*;
///
/// #[op(shape = "(n)->(n)")]
/// fn double<T: Number>(x: ArrayView1<T>, mut z: ArrayViewMut1<T>) {
///     azip!((z in &mut z, &x in &x) *z = x + x);
/// }
///
/// opsmith::library! { name = "doubles", ops = [double] }
///
/// # fn main() -> Result<()> {
/// assert_eq!(library()?.op("double")?.signature().name, "Double");
/// # Ok(())
/// # }
/// ```
///
/// `name` is the namespace in every framework, in snake_case; with `namespace = ""`, TensorFlow's ops and wrappers have none,
/// and so must have names that no other has. `ops` are paths of `#[op]` functions or of types that
/// implement [`OpDefinition`]. `version` is that of the crate unless it is given. The macro adds a function
/// `library()`, through which Rust code has the same ops.
///
/// With `embedded = true` the library is for the program that it is compiled into, and no framework finds it: nothing is exported,
/// and in place of that the macro adds a function `table()`, which gives the C ABI's [`OpsmithLibrary`]: the engine's
/// `Library::from_table` takes it. A crate may have several such libraries, in modules of their own.
pub use opsmith_macros::library;

/// Makes all ops in files a library: what a just-in-time build writes where an author would write [`library!`].
///
/// ```ignore
/// opsmith::library_of! { name = "distances", version = "0.1.0", files = ["/home/me/distances.rs"], cuda = [] }
/// ```
///
/// Each file becomes a module of its name, with the prelude in scope, so it need say nothing but the ops: functions that
/// are `#[op]`, `#[pointwise]`, `#[pairwise]`, `#[reduce]` or `#[body]`, and types that implement [`OpDefinition`], at the top of the
/// file or, where they are `pub`, in modules written out there. The files in `cuda` are the texts of `CUDA_SOURCES`.
pub use opsmith_macros::library_of;

/// Turns a dtype that is known at run time into a type: `dispatch!(dtype, Float, |T| body)`.
///
/// The dtypes are those that a bound names, or a list `[f32, i32]`. The value is that of the body, which is a
/// `Result`; for any other dtype it is an `Unimplemented` error that names the dtype.
///
/// ```
/// use opsmith::prelude::*;
///
/// fn size(dtype: DType) -> Result<usize> {
///     dispatch!(dtype, Float, |T| Ok(size_of::<T>()))
/// }
///
/// assert_eq!(size(DType::Float64)?, 8);
/// let error = size(DType::Int32).unwrap_err();
/// assert_eq!(error.message(), "dtype int32 is not implemented here; expected float32 or float64");
/// # Ok::<(), Error>(())
/// ```
pub use opsmith_macros::dispatch;

/// The registrations of a generic kernel for each of its dtypes, as a `Vec<KernelDef>`.
///
/// `kernels!(ZeroOut<T> for T in Float)` registers `ZeroOut<f32>` for calls whose attribute `T` is `float32`, and so
/// on. The dtypes are those that a bound names, or a list; several parameters give all combinations:
/// `kernels!(Gather<T, S> for T in Number, S in [i32, i64])`.
///
/// ```
/// use opsmith::prelude::*;
///
/// struct ZeroOut<T>(std::marker::PhantomData<fn() -> T>);
///
/// impl<T: Number> OpKernel for ZeroOut<T> {
///     fn new(_: &mut OpKernelConstruction) -> Result<Self> {
///         Ok(ZeroOut(std::marker::PhantomData))
///     }
///
///     fn compute(&self, context: &mut OpKernelContext) -> Result<()> {
///         let x = context.slice::<T>("to_zero")?;
///         let mut output = context.allocate_output("zeroed", context.input("to_zero")?.shape())?;
///         let zeroed = output.as_slice_mut::<T>()?;
///         zeroed.fill(T::zero());
///         if let (Some(kept), Some(&first)) = (zeroed.first_mut(), x.first()) {
///             *kept = first;
///         }
///         Ok(())
///     }
/// }
///
/// let def = OpDef::new("ZeroOut")
///     .attr("T: {int32, float}")
///     .input("to_zero: T")
///     .output("zeroed: T")
///     .shape_fn(shape_fns::unchanged)
///     .kernels(kernels!(ZeroOut<T> for T in [i32, f32]));
/// assert_eq!(def.build()?.kernels().len(), 2);
/// # Ok::<(), Error>(())
/// ```
pub use opsmith_macros::kernels;

/// What expanded macros refer to. Not for direct use.
#[doc(hidden)]
pub mod __private {
    pub use opsmith_body as body;
    pub use opsmith_core::kernel::{Settled, SettledTensors};
    pub use opsmith_core::{Arguments, KernelRow, check_gradient};
    pub use opsmith_frameworks as frameworks;
    pub use opsmith_kernels as kernels;

    use ndarray::{Array, Dimension};

    use crate::{DType, Element, Error};

    /// What an output whose shape is found begins as: an array of the rank of `shape` without elements.
    pub fn no_elements<T: Element, D: Dimension>(shape: &[usize]) -> Array<T, D> {
        let mut dims = D::zeros(shape.len());
        dims.slice_mut().fill(0);
        Array::from_shape_vec(dims, Vec::new())
            .unwrap_or_else(|_| unreachable!("the shape has a dim `?`, hence one of 0"))
    }

    /// The error of `dispatch!` for a dtype that is not among those it was given.
    #[cold]
    pub fn no_dispatch(dtype: DType, expected: &[DType]) -> Error {
        let names: Vec<&str> = expected.iter().map(|dtype| dtype.name()).collect();
        let names = match names.as_slice() {
            [some @ .., last] if !some.is_empty() => format!("{} or {last}", some.join(", ")),
            one => one.concat(),
        };
        Error::unimplemented(format!("dtype {dtype} is not implemented here; expected {names}"))
    }
}

/// The code in the repository's README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ProjectReadme;

/// The code in the reference of definitions, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/definitions.md")]
struct DefinitionsReference;

/// The code in the guide to one-body kernels, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/one-body.md")]
struct OneBodyGuide;

/// The code in the author's guide, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/author-guide.md")]
struct AuthorGuide;
