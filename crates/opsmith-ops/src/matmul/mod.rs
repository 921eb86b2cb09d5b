//! Products of matrices, and of stacks of them.

mod cuda;
#[cfg(test)]
mod cuda_tests;
mod gemm;
mod integers;
mod integers_on_card;

use std::marker::PhantomData;

use opsmith::dtype::{bf16, f16, sets};
use opsmith::prelude::*;
use opsmith::space::{Extents, broadcast_shape};
use opsmith::{Autocast, Dim, Shape};

use self::cuda::OnCard;
pub(crate) use self::gemm::Gemm;
use self::gemm::OnCpu;
use self::integers_on_card::IntegersOnCard;
pub(crate) use self::integers_on_card::multiply as multiply_integers;
use crate::define::ops;

ops! {
    /// The op `MatMul`.
    MatMul = forward(), with &[gradient, second_gradient];
}

/// The dims of the arguments of gradients, of which all are free; what lacks one is a sum over it.
const A: &str = "(..., n, k; transpose_a)";
const B: &str = "(..., k, m; transpose_b)";
const PRODUCT: &str = "(..., n, m)";

/// What the op and its gradients have in common.
fn def(name: &str) -> OpDef {
    OpDef::new(name)
        .attr("transpose_a: bool = false")
        .attr("transpose_b: bool = false")
        .attr("T: {float16, bfloat16, float32, float64}")
        .input("a: T")
        .input("b: T")
}

/// The registrations of a kernel on a card.
macro_rules! on_card {
    ($kernel:ident) => {
        [
            KernelDef::cuda::<$kernel<OnCard<f16>>>().type_constraint::<f16>("T"),
            KernelDef::cuda::<$kernel<OnCard<bf16>>>().type_constraint::<bf16>("T"),
            KernelDef::cuda::<$kernel<OnCard<f32>>>().type_constraint::<f32>("T"),
            KernelDef::cuda::<$kernel<OnCard<f64>>>().type_constraint::<f64>("T"),
        ]
    };
}

fn forward() -> OpDef {
    def("MatMul")
        .output("product: T")
        .parallel("(..., n, _; transpose_a), (..., _, m; transpose_b) -> (..., n, m)")
        .doc(
            "The product of two matrices, or of each two of stacks of them.\n\n\
             The last two dims are those of matrices; dims in front broadcast by NumPy's rules. A product over an inner \
             dim of 0 is zero. float16 and bfloat16 are added up in float32; sums and products of integers wrap around.\n\n\
             a: A matrix of shape (n, k), or a stack of them; (k, n) if it is transposed first.\n\
             b: A matrix of shape (k, m), or a stack of them; (m, k) if it is transposed first.\n\
             transpose_a: Whether `a` is transposed first.\n\
             transpose_b: Whether `b` is transposed first.\n\
             product: Of shape (n, m).",
        )
        .shape_fn(|c| {
            let shape = product_shape(c)?;
            c.set_output(0, shape)
        })
        .gradient("MatMulGrad")
        .autocast(Autocast::Lower)
        .more_dtypes("T", sets::INTEGER)
        .kernels(kernels!(Forward<OnCpu<T>> for T in RealNumber).into_iter().map(KernelDef::strided))
        .kernels(on_card!(Forward))
        .kernels(crate::card::kernels::<Forward<IntegersOnCard>>(|dtype| sets::INTEGER.contains(&dtype)))
}

fn gradient() -> OpDef {
    def("MatMulGrad")
        .input("product_grad: T")
        .output("a_grad: T")
        .output("b_grad: T")
        .optional("a_grad")
        .optional("b_grad")
        .parallel(&format!("{A}, {B}, {PRODUCT} -> +{A}, +{B}"))
        .doc("The gradient of `MatMul`.")
        .shape_fn(|c| {
            let (shape, given) = (product_shape(c)?, c.input(2)?);
            c.merge_shapes(&shape, &given)?;
            like_the_factors(c)
        })
        .gradient("MatMulGradGrad")
        .kernels(kernels!(Gradient<OnCpu<T>> for T in AnyFloat).into_iter().map(KernelDef::strided))
        .kernels(on_card!(Gradient))
}

fn second_gradient() -> OpDef {
    def("MatMulGradGrad")
        .input("product_grad: T")
        .input("a_grad_grad: T")
        .input("b_grad_grad: T")
        .output("a_grad: T")
        .output("b_grad: T")
        .output("product_grad_grad: T")
        .optional("a_grad_grad")
        .optional("b_grad_grad")
        .optional("a_grad")
        .optional("b_grad")
        .optional("product_grad_grad")
        .parallel(&format!("{A}, {B}, {PRODUCT}, {A}, {B} -> +{A}, +{B}, +{PRODUCT}"))
        .doc("The gradient of `MatMulGrad`.")
        .shape_fn(|c| {
            let (shape, given) = (product_shape(c)?, c.input(2)?);
            let shape = c.merge_shapes(&shape, &given)?;
            for factor in [0, 1] {
                if c.has_input(3 + factor) {
                    let (shape, given) = (c.input(factor)?, c.input(3 + factor)?);
                    c.merge_shapes(&shape, &given)?;
                }
            }
            c.set_output(2, shape)?;
            like_the_factors(c)
        })
        .kernels(kernels!(SecondGradient<OnCpu<T>> for T in AnyFloat).into_iter().map(KernelDef::strided))
        .kernels(on_card!(SecondGradient))
}

fn like_the_factors(c: &mut InferenceContext<'_>) -> Result<()> {
    for factor in [0, 1] {
        let shape = c.input(factor)?;
        c.set_output(factor, shape)?;
    }
    Ok(())
}

/// The shape of the product of inputs 0 and 1.
fn product_shape(c: &mut InferenceContext<'_>) -> Result<Shape> {
    let (rows, inner_a, stack_a) = factor_dims(c, 0, "transpose_a")?;
    let (inner_b, columns, stack_b) = factor_dims(c, 1, "transpose_b")?;
    c.assume_equal(&inner_a, &inner_b, "the inner dims of `a` and `b` must be equal")?;
    let stack = c.broadcast(&stack_a, &stack_b)?;
    let matrix = c.matrix(rows, columns);
    Ok(c.concatenate(&stack, &matrix))
}

/// Rows and columns of a factor, transposed if it is to be, and the dims in front.
fn factor_dims(c: &InferenceContext<'_>, input: usize, transpose: &str) -> Result<(Dim, Dim, Shape)> {
    let shape = c.with_rank_at_least(c.input(input)?, 2)?;
    let (rows, columns) = (c.dim(&shape, -2)?, c.dim(&shape, -1)?);
    let stack = c.subshape(&shape, 0, -2)?;
    Ok(if c.get_bool(transpose)? { (columns, rows, stack) } else { (rows, columns, stack) })
}

/// Whether each factor is transposed first.
#[derive(Clone, Copy)]
struct Transposed {
    a: bool,
    b: bool,
}

impl Transposed {
    fn new(construction: &OpKernelConstruction<'_>) -> Result<Transposed> {
        Ok(Transposed { a: construction.attr("transpose_a")?, b: construction.attr("transpose_b")? })
    }
}

/// The error of a call whose shapes do not fit: what inference says of them.
#[cold]
fn shape_error(context: &OpKernelContext<'_>, transposed: Transposed) -> Error {
    let signature = context.signature();
    let shapes: Vec<String> = signature
        .inputs
        .iter()
        .filter_map(|input| {
            Some(format!("`{}` {:?}", input.name, context.input_shape(input.name.as_str()).ok()?))
        })
        .collect();
    let Transposed { a, b } = transposed;
    let gradients =
        if signature.inputs.len() > 2 { ", and gradients of the shapes of what they belong to" } else { "" };
    Error::invalid_argument(format!(
        "expected matrices, or stacks of them that broadcast, of shapes (n, k) and (k, m){gradients}; got {} \
         (transpose_a {a}, transpose_b {b})",
        shapes.join(", ")
    ))
}

/// Where the tensors of a call are, and what multiplies them there.
trait Backend: Sized + Send + Sync + 'static {
    /// A matrix, or a stack of them, of any strides.
    type Stack<'a>: Clone;

    /// An input, if it is there.
    fn input<'a>(context: &OpKernelContext<'a>, name: &'static str) -> Result<Option<Self::Stack<'a>>>;

    /// The dims.
    fn shape<'s>(stack: &'s Self::Stack<'_>) -> &'s [usize];

    /// With each matrix transposed; there are two dims at least.
    fn transposed<'a>(stack: &Self::Stack<'a>) -> Result<Self::Stack<'a>>;

    /// Makes an output of this shape, whose matrices are transposed if it says so, of the sum of the products of those of the
    /// terms, of which there are at most two. All broadcast to the dims `stack`, and what belongs to one matrix of the output is
    /// added up.
    fn make(
        context: &OpKernelContext<'_>,
        name: &'static str,
        output: (&[usize], bool),
        stack: &[usize],
        terms: &[(Self::Stack<'_>, Self::Stack<'_>)],
    ) -> Result<()>;
}

fn transposed_if<'a, P: Backend>(stack: &P::Stack<'a>, transposed: bool) -> Result<P::Stack<'a>> {
    if transposed { P::transposed(stack) } else { Ok(stack.clone()) }
}

/// What a call of one of the ops multiplies: the factors as they are multiplied, and the dims of the stack that both
/// broadcast to.
struct Call<'a, P: Backend> {
    a: P::Stack<'a>,
    b: P::Stack<'a>,
    stack: Extents,
    transposed: Transposed,
}

impl<'a, P: Backend> Call<'a, P> {
    fn new(context: &OpKernelContext<'a>, transposed: Transposed) -> Result<Call<'a, P>> {
        let error = || shape_error(context, transposed);
        let factor = |name, transposed| {
            let factor = P::input(context, name)?.filter(has_matrices::<P>).ok_or_else(error)?;
            transposed_if::<P>(&factor, transposed)
        };
        let (a, b) = (factor("a", transposed.a)?, factor("b", transposed.b)?);
        let (left, right) = (P::shape(&a), P::shape(&b));
        if left[left.len() - 1] != right[right.len() - 2] {
            return Err(error());
        }
        let stack =
            broadcast_shape([&left[..left.len() - 2], &right[..right.len() - 2]]).ok_or_else(error)?;
        Ok(Call { a, b, stack, transposed })
    }

    fn product_shape(&self) -> Vec<usize> {
        let (left, right) = (P::shape(&self.a), P::shape(&self.b));
        let matrix = [left[left.len() - 2], right[right.len() - 1]];
        self.stack.iter().copied().chain(matrix).collect()
    }

    /// An optional input that has the shape of what it is the gradient of.
    fn gradient(
        &self,
        context: &OpKernelContext<'a>,
        name: &'static str,
        shape: &[usize],
        transposed: bool,
    ) -> Result<Option<P::Stack<'a>>> {
        let Some(gradient) = P::input(context, name)? else { return Ok(None) };
        let error = || shape_error(context, self.transposed);
        let gradient = Some(gradient).filter(has_matrices::<P>).ok_or_else(error)?;
        let gradient = transposed_if::<P>(&gradient, transposed)?;
        if P::shape(&gradient) == shape { Ok(Some(gradient)) } else { Err(error()) }
    }

    /// Makes an output of this shape, as it is before transposition, from the sum of products; nothing if nobody wants it.
    fn write(
        &self,
        context: &OpKernelContext<'_>,
        name: &'static str,
        (shape, transposed): (&[usize], bool),
        terms: &[(P::Stack<'_>, P::Stack<'_>)],
    ) -> Result<()> {
        if !context.output_wanted(name)? {
            return Ok(());
        }
        let mut given = shape.to_vec();
        if transposed {
            let rank = given.len();
            given.swap(rank - 2, rank - 1);
        }
        P::make(context, name, (&given, transposed), &self.stack, terms)
    }
}

/// Whether there are two dims at least.
fn has_matrices<P: Backend>(stack: &P::Stack<'_>) -> bool {
    P::shape(stack).len() >= 2
}

/// A kernel of one of the ops.
macro_rules! kernel {
    ($name:ident, |$call:ident, $context:ident| $compute:expr) => {
        struct $name<P>(Transposed, PhantomData<fn() -> P>);

        impl<P: Backend> OpKernel for $name<P> {
            fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
                Ok($name(Transposed::new(construction)?, PhantomData))
            }

            fn compute(&self, $context: &mut OpKernelContext<'_>) -> Result<()> {
                let $call = Call::<P>::new($context, self.0)?;
                $compute
            }
        }
    };
}

kernel!(Forward, |call, context| {
    let terms = [(call.a.clone(), call.b.clone())];
    call.write(context, "product", (&call.product_shape(), false), &terms)
});

kernel!(Gradient, |call, context| {
    let Transposed { a, b } = call.transposed;
    let Some(product) = call.gradient(context, "product_grad", &call.product_shape(), false)? else {
        return Err(shape_error(context, call.transposed));
    };
    let of_a = [(product.clone(), P::transposed(&call.b)?)];
    call.write(context, "a_grad", (P::shape(&call.a), a), &of_a)?;
    let of_b = [(P::transposed(&call.a)?, product.clone())];
    call.write(context, "b_grad", (P::shape(&call.b), b), &of_b)
});

// With U and V for the gradients of the gradients of A and B, and G for that of the product, it is of ⟨U, G·Bᵀ⟩ + ⟨V, Aᵀ·G⟩.
kernel!(SecondGradient, |call, context| {
    let Transposed { a, b } = call.transposed;
    let shape = call.product_shape();
    let Some(product) = call.gradient(context, "product_grad", &shape, false)? else {
        return Err(shape_error(context, call.transposed));
    };
    let u = call.gradient(context, "a_grad_grad", P::shape(&call.a), a)?;
    let v = call.gradient(context, "b_grad_grad", P::shape(&call.b), b)?;
    let mut of_product = Vec::new();
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    if let Some(u) = &u {
        of_product.push((u.clone(), call.b.clone()));
        of_b.push((P::transposed(u)?, product.clone()));
    }
    if let Some(v) = &v {
        of_product.push((call.a.clone(), v.clone()));
        of_a.push((product.clone(), P::transposed(v)?));
    }
    call.write(context, "a_grad", (P::shape(&call.a), a), &of_a)?;
    call.write(context, "b_grad", (P::shape(&call.b), b), &of_b)?;
    call.write(context, "product_grad_grad", (&shape, false), &of_product)
});

#[cfg(test)]
mod tests {
    use opsmith::dtype::f16;
    use opsmith::ndarray::{Array, Array2, Array3, Dimension};
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    fn numbers<const N: usize>(shape: [usize; N]) -> opsmith::ndarray::ArrayD<f64> {
        Array::from_shape_fn(shape.to_vec(), |i| {
            ((i.slice().iter().fold(7, |n, i| n * 31 + i) % 17) as f64) - 8.0
        })
    }

    #[test]
    fn products_with_each_factor_transposed() -> Result<()> {
        let (a, b) = (numbers([3, 4]), numbers([4, 5]));
        let (a2, b2) =
            (a.view().into_dimensionality::<Ix2>().unwrap(), b.view().into_dimensionality::<Ix2>().unwrap());
        let expected = a2.dot(&b2);
        for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let turned =
                |x: &opsmith::ndarray::ArrayD<f64>, turn| if turn { x.t().to_owned() } else { x.clone() };
            let (a, b) = (turned(&a, transpose_a), turned(&b, transpose_b));
            let call = testing::call::<MatMul>().input(&a).input(&b);
            let outputs = call.attr("transpose_a", transpose_a).attr("transpose_b", transpose_b).run()?;
            assert_eq!(outputs.array::<f64, Ix2>("product")?, expected);
        }
        Ok(())
    }

    #[test]
    fn nothing_to_add_up_gives_zeros() -> Result<()> {
        let (a, b) = (Array2::<f32>::ones((2, 0)), Array2::<f32>::ones((0, 3)));
        let outputs = testing::call::<MatMul>().input(&a).input(&b).run()?;
        assert_eq!(outputs.array::<f32, Ix2>("product")?, Array2::<f32>::zeros((2, 3)));
        let (a, b) = (Array2::<f32>::ones((0, 4)), Array2::<f32>::ones((4, 3)));
        let outputs = testing::call::<MatMul>().input(&a).input(&b).run()?;
        assert_eq!(outputs.array::<f32, Ix2>("product")?.dim(), (0, 3));
        Ok(())
    }

    #[test]
    fn stacks_broadcast_and_half_is_added_up_in_float32() -> Result<()> {
        let (a, b) = (numbers([2, 1, 3, 4]), numbers([5, 4, 2]));
        let outputs = testing::call::<MatMul>().input(&a).input(&b).run()?;
        let product = outputs.array::<f64, Ix4>("product")?;
        assert_eq!(product.dim(), (2, 5, 3, 2));
        for (i, j) in (0..2).flat_map(|i| (0..5).map(move |j| (i, j))) {
            let a: ArrayView2<'_, f64> = a.slice(s![i, 0, .., ..]);
            let b: ArrayView2<'_, f64> = b.slice(s![j, .., ..]);
            assert_eq!(product.slice(s![i, j, .., ..]), a.dot(&b));
        }
        let ones = Array2::from_elem((1, 4096), f16::ONE);
        let outputs = testing::call::<MatMul>().input(&ones).input(&ones).attr("transpose_b", true).run()?;
        assert_eq!(outputs.array::<f16, Ix2>("product")?[[0, 0]], f16::from_f32(4096.0));
        Ok(())
    }

    #[test]
    fn integers_wrap_around() -> Result<()> {
        let (a, b) = (Array2::from_elem((2, 3), 100i8), Array2::from_elem((3, 9), 100i8));
        let outputs = testing::call::<MatMul>().input(&a).input(&b).run()?;
        assert_eq!(outputs.array::<i8, Ix2>("product")?, Array2::from_elem((2, 9), 30_000i32 as i8));
        let a = Array2::from_shape_fn((70, 45), |(i, k)| (i * 31 + k * 17) as i64 - 700);
        let b = Array2::from_shape_fn((45, 600), |(k, j)| (k * 13 + j * 7) as i64 - 900);
        for columns in [1, 7, 600] {
            let b = b.slice(s![.., ..columns]).to_owned();
            let outputs = testing::call::<MatMul>().input(&a).input(&b).run()?;
            assert_eq!(outputs.array::<i64, Ix2>("product")?, a.dot(&b));
        }
        Ok(())
    }

    #[test]
    fn copies_that_memory_has_no_room_for_are_errors() {
        let one = opsmith::ndarray::arr0(1i64);
        let (row, column) = (one.broadcast((1, 1 << 56)).unwrap(), one.broadcast((1 << 56, 1)).unwrap());
        let error = testing::call::<MatMul>().input(&row).input(&column).run().unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        let said = "MatMul: cannot allocate 576460752303423488 bytes for a copy of the second factor";
        assert_eq!(error.message(), said);
    }

    #[test]
    fn gradients_of_a_stack_that_is_repeated_are_added_up() -> Result<()> {
        let (a, b) = (numbers([3, 4]), numbers([2, 4, 5]));
        let product_grad = Array3::<f64>::ones((2, 3, 5));
        let outputs = testing::Call::new(gradient()).input(&a).input(&b).input(&product_grad).run()?;
        let (rows, sums) = (outputs.array::<f64, Ix2>("a_grad")?, b.sum_axis(Axis(2)).sum_axis(Axis(0)));
        assert!(rows.outer_iter().all(|row| row.into_dyn() == sums));
        assert_eq!(outputs.array::<f64, Ix3>("b_grad")?.dim(), (2, 4, 5));
        Ok(())
    }

    #[test]
    fn shapes() -> Result<()> {
        infer_ok!(testing::shapes::<MatMul>(), "[2,3];[3,4]", "[d0_0,d1_1]");
        infer_ok!(testing::shapes::<MatMul>(), "?;[3,4]", "?");
        infer_ok!(testing::shapes::<MatMul>(), "[5,1,2,?];[7,3,4]", "[5,7,2,4]");
        infer_error!(testing::shapes::<MatMul>(), "inner dims", "[2,3];[4,5]");
        infer_error!(testing::shapes::<MatMul>(), "rank at least 2", "[3];[3,4]");
        let error = testing::call::<MatMul>()
            .input(&Array2::<f32>::ones((2, 3)))
            .input(&Array2::<f32>::ones((2, 3)))
            .run();
        assert!(error.unwrap_err().message().starts_with("MatMul: expected matrices"));
        Ok(())
    }
}
