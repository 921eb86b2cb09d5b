//! Products of tensors along named dims on a card: views of any strides, and a launch for each step.

use opsmith::cuda::{CudaCall, Folding, Source, index_of};
use opsmith::prelude::*;
use opsmith::space::IndexSpace;

use super::Call;
use super::contract::{Backend, Operand, Sizes, contract, counting, once};
use super::equation::Label;
use crate::card::strided::Strided;
use crate::card::{SOURCE as STANDARD, name};
use crate::linear::is_float;
use crate::matmul::multiply_integers;
use crate::moved_on_card::name as name_of_size;

static SOURCE: Source = Source::new("einsum.cu", include_str!("einsum.cu")).beside(file!());

type Factor<'a> = Operand<Strided<'a>>;

/// The type in CUDA C++ of numbers of a dtype; of integers one without a sign.
fn number(dtype: DType) -> Result<&'static str> {
    let whole = || name_of_size(dtype.size()).ok_or_else(|| Error::internal("integers have few bytes"));
    if is_float(dtype) { name(dtype) } else { whole() }
}

/// The dtype that numbers are added up in.
fn wide(dtype: DType) -> DType {
    if matches!(dtype, DType::Float16 | DType::BFloat16) { DType::Float32 } else { dtype }
}

/// A tensor of these labels: each of its dims that counts, once, along the diagonal of those of one label.
fn factor<'c>(tensor: &Strided<'c>, labels: &[Label], sizes: &Sizes) -> Factor<'c> {
    let counting = counting(labels, &tensor.shape, sizes);
    let own: Vec<(Label, isize)> =
        (0..labels.len()).filter(|&at| counting[at]).map(|at| (labels[at], tensor.dim(at).1)).collect();
    let all = once(&own.iter().map(|(label, _)| *label).collect::<Vec<_>>());
    let stride = |label: &Label| {
        own.iter().filter(|(other, _)| other == label).fold(0isize, |sum, (_, own)| sum.wrapping_add(*own))
    };
    let array = tensor.with(all.iter().map(|label| (sizes[label], stride(label))));
    Operand { labels: all, array }
}

/// With dims in the order of these labels, repeated along those that it lacks.
fn along<'c>(x: &Factor<'c>, labels: &[Label], sizes: &Sizes) -> Strided<'c> {
    let own = |label: &Label| x.labels.iter().position(|own| own == label);
    x.array.with(labels.iter().map(|label| own(label).map_or((sizes[label], 0), |at| x.array.dim(at))))
}

/// Dims as one; nothing where strides do not allow it.
fn merged(dims: &[(usize, isize)]) -> Option<(usize, isize)> {
    if dims.iter().any(|(size, _)| *size == 0) {
        return Some((0, 0));
    }
    let mut space = IndexSpace::with_room(dims.len(), 1);
    dims.iter().rev().for_each(|&(size, stride)| space.push(size, [stride]));
    (space.dims().len() <= 1).then(|| (space.len(), space.steps([0])[0]))
}

/// A stack of matrices: behind the dims of the stack come those of rows, and those of columns, both as one dim; nothing where
/// strides do not allow it.
fn matrices<'c>(x: &Strided<'c>, stack: usize, rows: usize) -> Option<Strided<'c>> {
    let dims: Vec<_> = (0..x.shape.len()).map(|at| x.dim(at)).collect();
    let (stack, (rows, columns)) = (&dims[..stack], dims[stack..].split_at(rows));
    let matrix = [merged(rows)?, merged(columns)?];
    Some(x.with(stack.iter().copied().chain(matrix)))
}

/// Puts elements in the places of a tensor of the same shape, or adds them to what is there; zeros where there are none.
fn put(
    context: &OpKernelContext<'_>,
    from: Option<&Strided<'_>>,
    to: &Strided<'_>,
    added: bool,
) -> Result<()> {
    let x = from.unwrap_or(to);
    let space = IndexSpace::new(&to.shape, &[x.layout(), to.layout()])?;
    let index = index_of(&[&space], 2, 0);
    let kernel = format!("placed<{}, {}, {}>", number(x.dtype)?, number(to.dtype)?, index.name());
    let call = CudaCall::new(context, &SOURCE);
    let launch = call.kernel(kernel).for_each(space.len());
    let launch = launch.address(from.map_or(std::ptr::null(), Strided::address)).address(to.address());
    // SAFETY: these are the kernel's parameters, and the space stays in both tensors, which are on the call's card.
    unsafe { launch.value(added).space(&space, 2, index).launch() }
}

/// What multiplies tensors on a card.
struct OnCard<'c> {
    context: &'c OpKernelContext<'c>,
    /// Where the product of two factors goes at once, if it has the same dims.
    target: Option<Factor<'c>>,
}

impl<'c> OnCard<'c> {
    /// The place of a product with these dims, if there is one.
    fn target(&self, labels: &[Label]) -> Option<&Factor<'c>> {
        let target = self.target.as_ref()?;
        let has_all = labels.iter().all(|own| target.labels.contains(own));
        (has_all && target.labels.len() == labels.len()).then_some(target)
    }

    /// A tensor as a stack of matrices of a dtype, copied where it has to be.
    fn matrices(
        &self,
        x: &Factor<'c>,
        dtype: DType,
        [stack, rows, columns]: [&[Label]; 3],
        sizes: &Sizes,
    ) -> Result<Strided<'c>> {
        let all = along(x, &[stack, rows, columns].concat(), sizes);
        let as_it_is = matrices(&all, stack.len(), rows.len()).filter(|all| all.dtype == dtype);
        if let Some(found) = as_it_is {
            return Ok(found);
        }
        let copy = Strided::temp(self.context, dtype, &all.shape)?;
        put(self.context, Some(&all), &copy, false)?;
        matrices(&copy, stack.len(), rows.len()).ok_or_else(|| Error::internal("dense dims are one"))
    }

    /// Sets each matrix of `c` to the product of those of `a` and `b`.
    fn multiply(&self, [a, b, c]: [&Strided<'_>; 3]) -> Result<()> {
        if !is_float(c.dtype) {
            return multiply_integers(self.context, [a, b, c]);
        }
        let call = CudaCall::new(self.context, &SOURCE);
        dispatch!(c.dtype, AnyFloat, |T| call.gemm::<T>(1.0, &a.array()?, &b.array()?, 0.0, &c.array()?))
    }
}

impl<'c> Backend<Strided<'c>> for OnCard<'c> {
    fn folded(&self, x: Factor<'c>, keep: &dyn Fn(&Label) -> bool) -> Result<Factor<'c>> {
        let kept: Vec<usize> = (0..x.labels.len()).filter(|&at| keep(&x.labels[at])).collect();
        if kept.len() == x.labels.len() {
            return Ok(x);
        }
        let (layout, marks) = (x.array.layout(), |dim: usize| usize::from(!kept.contains(&dim)));
        let [results, terms] = IndexSpace::split(&x.array.shape, &[layout, layout], marks)?;
        let shape: Vec<usize> = kept.iter().map(|&at| x.array.shape[at]).collect();
        let dtype = x.array.dtype;
        let sum = Strided::temp(self.context, wide(dtype), &shape)?;
        let fold = if is_float(dtype) { "opsmith::Total<-1>" } else { "wrapped_sum" };
        let (from, to) = ((x.array.data(), number(dtype)?), (sum.data(), number(sum.dtype)?));
        let folding = Folding { source: &STANDARD, name: fold };
        // SAFETY: the spaces stay in the tensor, and there is room for each result, on the call's card.
        unsafe { folding.launch(self.context, [from, from], to, [&results, &terms])? };
        Ok(Operand { labels: kept.iter().map(|&at| x.labels[at]).collect(), array: sum })
    }

    fn each(&self, a: &Factor<'c>, b: &Factor<'c>, labels: Vec<Label>, sizes: &Sizes) -> Result<Factor<'c>> {
        let Operand { labels, array: z } = match self.target(&labels) {
            Some(target) => target.clone(),
            None => {
                let shape: Vec<usize> = labels.iter().map(|label| sizes[label]).collect();
                let array = Strided::temp(self.context, wide(a.array.dtype), &shape)?;
                Operand { labels, array }
            }
        };
        let (x, y) = (along(a, &labels, sizes), along(b, &labels, sizes));
        let space = IndexSpace::new(&z.shape, &[x.layout(), y.layout(), z.layout()])?;
        let index = index_of(&[&space], 3, 0);
        let types = [number(x.dtype)?, number(y.dtype)?, number(z.dtype)?, index.name()].join(", ");
        let call = CudaCall::new(self.context, &SOURCE);
        let launch = call.kernel(format!("multiplied<{types}>")).for_each(space.len());
        let launch = launch.address(x.address()).address(y.address()).address(z.address());
        // SAFETY: these are the kernel's parameters, and the space stays in the tensors, which are on the call's card.
        unsafe { launch.space(&space, 3, index).launch()? };
        Ok(Operand { labels, array: z })
    }

    fn product(
        &self,
        a: &Factor<'c>,
        b: &Factor<'c>,
        [stack, left, inner, right]: [&[Label]; 4],
        sizes: &Sizes,
    ) -> Result<Factor<'c>> {
        // One block would go through all of a single sum.
        if left.is_empty() && right.is_empty() {
            let products = self.each(a, b, [stack, inner].concat(), sizes)?;
            return self.folded(products, &|label| !inner.contains(label));
        }
        let (labels, given) = ([stack, left, right].concat(), a.array.dtype);
        // Half precision is rounded once, where the output is.
        let is_last = self.target.as_ref().is_some_and(|target| target.array.dtype == given);
        let dtype = if is_last && b.array.dtype == given { given } else { wide(given) };
        let x = self.matrices(a, dtype, [stack, left, inner], sizes)?;
        let y = self.matrices(b, dtype, [stack, inner, right], sizes)?;
        if let Some(target) = self.target(&labels).filter(|target| target.array.dtype == dtype)
            && let Some(z) = matrices(&along(target, &labels, sizes), stack.len(), left.len())
        {
            self.multiply([&x, &y, &z])?;
            return Ok(target.clone());
        }
        let shape: Vec<usize> = labels.iter().map(|label| sizes[label]).collect();
        let product = Operand { array: Strided::temp(self.context, dtype, &shape)?, labels };
        let z = self.matrices(&product, dtype, [stack, left, right], sizes)?;
        self.multiply([&x, &y, &z])?;
        Ok(product)
    }
}

/// Makes a tensor with these labels: the sum of some products, each of as many factors.
fn make<'c>(
    context: &'c OpKernelContext<'c>,
    (to, labels): (Strided<'c>, &[Label]),
    sizes: &Sizes,
    products: Vec<Vec<Factor<'c>>>,
) -> Result<()> {
    let dtype = if products.len() > 1 { wide(to.dtype) } else { to.dtype };
    let sum = if dtype == to.dtype { to.clone() } else { Strided::temp(context, dtype, &to.shape)? };
    let target = factor(&sum, labels, sizes);
    // What lies beside a diagonal is zero, and so is the sum of nothing.
    if products.is_empty() || target.array.count() != sum.count() {
        put(context, None, &sum, false)?;
    }
    for (at, factors) in products.into_iter().enumerate() {
        let added = at > 0;
        let on = OnCard { context, target: (!added && factors.len() == 2).then(|| target.clone()) };
        let found = contract(&on, factors, &target.labels, sizes)?;
        if added || found.array.address() != target.array.address() {
            put(context, Some(&along(&found, &target.labels, sizes)), &target.array, added)?;
        }
    }
    if dtype == to.dtype { Ok(()) } else { put(context, Some(&sum), &to, false) }
}

/// Makes the output of the op.
pub(super) fn forward<'c>(
    context: &'c OpKernelContext<'c>,
    call: &Call,
    tensors: &[TensorView<'c>],
) -> Result<()> {
    let to = Strided::output(&context.allocate_output(0, &call.shape)?);
    let own = tensors.iter().zip(&call.labels.inputs);
    let factors = own.map(|(&tensor, labels)| factor(&Strided::of(tensor), labels, &call.labels.sizes));
    make(context, (to, &call.labels.output), &call.labels.sizes, vec![factors.collect()])
}

/// Makes the outputs of the gradient, or, with the gradients of the inputs' gradients, of that one's.
pub(super) fn gradients<'c>(
    context: &'c OpKernelContext<'c>,
    call: &Call,
    y_grad: TensorView<'c>,
    (tensors, changes): (&[TensorView<'c>], Option<&[TensorView<'c>]>),
) -> Result<()> {
    let (sizes, labels, count) = (&call.labels.sizes, &call.labels.inputs, tensors.len());
    // The inputs but for one, where another one changes.
    let inputs = |without: Option<usize>, changed: Option<usize>| {
        let tensor = |at: usize| match changes {
            Some(changes) if changed == Some(at) => changes[at],
            _ => tensors[at],
        };
        let others = (0..count).filter(|&at| Some(at) != without);
        others.map(|at| factor(&Strided::of(tensor(at)), &labels[at], sizes)).collect::<Vec<_>>()
    };
    for (index, shape) in call.shapes.iter().enumerate() {
        let to = Strided::output(&context.allocate_output_at(0, index, shape)?);
        // One input at a time changes; none, of the first order.
        let changed: Vec<Option<usize>> = match changes {
            Some(_) => (0..count).filter(|&at| at != index).map(Some).collect(),
            None => vec![None],
        };
        let products = changed.into_iter().map(|changed| {
            let mut factors = vec![factor(&Strided::of(y_grad), &call.labels.output, sizes)];
            factors.extend(inputs(Some(index), changed));
            factors
        });
        make(context, (to, &labels[index]), sizes, products.collect())?;
    }
    if changes.is_none() {
        return Ok(());
    }
    let to = Strided::output(&context.allocate_output("y_grad_grad", &call.shape)?);
    let products = (0..count).map(|at| inputs(None, Some(at))).collect();
    make(context, (to, &call.labels.output), sizes, products)
}
