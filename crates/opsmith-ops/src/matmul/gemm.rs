//! Sums of matrix products, stack by stack, on the threads of the call.

use std::marker::PhantomData;

use opsmith::dtype::{bf16, f16};
use opsmith::ndarray::ArrayViewMut2;
use opsmith::prelude::*;
use opsmith::space::{IndexSpace, Layout, coordinates, row_major_strides};

use super::{Backend, integers};

/// A matrix, or a stack of them.
type Stack<'a, T> = ArrayViewD<'a, T>;

/// Tensors in host memory.
pub(super) struct OnCpu<T>(PhantomData<fn() -> T>);

impl<T: Gemm> Backend for OnCpu<T> {
    type Stack<'a> = Stack<'a, T>;

    fn input<'a>(context: &OpKernelContext<'a>, name: &'static str) -> Result<Option<Stack<'a, T>>> {
        context.optional_view::<T, IxDyn>(name)
    }

    fn shape<'s>(stack: &'s Stack<'_, T>) -> &'s [usize] {
        stack.shape()
    }

    fn transposed<'a>(stack: &Self::Stack<'a>) -> Result<Self::Stack<'a>> {
        let (mut stack, rank) = (stack.clone(), stack.ndim());
        stack.swap_axes(rank - 2, rank - 1);
        Ok(stack)
    }

    fn make(
        context: &OpKernelContext<'_>,
        name: &'static str,
        (shape, transposed): (&[usize], bool),
        stack: &[usize],
        terms: &[(Stack<'_, T>, Stack<'_, T>)],
    ) -> Result<()> {
        let output = context.output_view::<T, IxDyn>(name, shape)?;
        T::add_products(&context.compute(), stack, terms, output, transposed)
    }
}

/// The element type of a matrix.
pub(crate) trait Gemm: RealNumber {
    /// A sum, and a product: those of integers wrap around.
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;

    /// Sets each matrix of `output`, which is transposed if it says so, to the sum of the products of those of the terms.
    ///
    /// All broadcast to the dims `stack`; the products of matrices of `stack` that are one of `output` are added up.
    fn add_products(
        cx: &Compute<'_>,
        stack: &[usize],
        terms: &[(Stack<'_, Self>, Stack<'_, Self>)],
        output: ArrayViewMutD<'_, Self>,
        transposed: bool,
    ) -> Result<()>;
}

macro_rules! native {
    ($multiply:path, |$a:ident, $b:ident| $plus:expr, $times:expr; $($number:ty)*) => {$(
        impl Gemm for $number {
            #[inline(always)]
            fn plus(self, $b: Self) -> Self {
                let $a = self;
                $plus
            }

            #[inline(always)]
            fn times(self, $b: Self) -> Self {
                let $a = self;
                $times
            }

            fn add_products(
                cx: &Compute<'_>,
                stack: &[usize],
                terms: &[(Stack<'_, Self>, Stack<'_, Self>)],
                output: ArrayViewMutD<'_, Self>,
                transposed: bool,
            ) -> Result<()> {
                add_products(cx, stack, terms, output, transposed, $multiply)
            }
        }
    )*};
}

native! { multiply, |a, b| a + b, a * b; f32 f64 }
native! { integers::multiply, |a, b| a.wrapping_add(b), a.wrapping_mul(b); i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! half {
    ($($half:ty)*) => {$(
        impl Gemm for $half {
            fn plus(self, other: Self) -> Self {
                self + other
            }

            fn times(self, other: Self) -> Self {
                self * other
            }

            fn add_products(
                cx: &Compute<'_>,
                stack: &[usize],
                terms: &[(Stack<'_, Self>, Stack<'_, Self>)],
                mut output: ArrayViewMutD<'_, Self>,
                transposed: bool,
            ) -> Result<()> {
                let widen = |stack: &Stack<'_, Self>| {
                    let mut wide = ArrayViewMutD::from_shape(stack.raw_dim(), cx.temp::<f32>(stack.len())?)
                        .map_err(|error| Error::internal(error.to_string()))?;
                    azip!((wide in &mut wide, half in stack) *wide = half.to_f32());
                    Ok(wide)
                };
                let wide = terms.iter().map(|(a, b)| Ok((widen(a)?, widen(b)?))).collect::<Result<Vec<_>>>()?;
                let wide: Vec<_> = wide.iter().map(|(a, b)| (a.view(), b.view())).collect();
                let mut sum = ArrayViewMutD::from_shape(output.raw_dim(), cx.temp::<f32>(output.len())?)
                    .map_err(|error| Error::internal(error.to_string()))?;
                add_products(cx, stack, &wide, sum.view_mut(), transposed, multiply)?;
                azip!((half in &mut output, sum in &sum) *half = <$half>::from_f32(*sum));
                Ok(())
            }
        }
    )*};
}

half! { f16 bf16 }

/// The matrices of a stack, in the form in which one is found with the least work.
enum Matrices<'a, T> {
    /// One for all positions.
    Same(ArrayView2<'a, T>),
    /// One dim of matrices.
    Each(ArrayView3<'a, T>),
    /// Two dims of matrices, and the size of the second.
    Table(ArrayView4<'a, T>, usize),
    /// Any dims, which may broadcast.
    Any(&'a Stack<'a, T>),
}

impl<'a, T> Matrices<'a, T> {
    /// Those of `all`, which broadcasts to the dims `stack`.
    fn of(all: &'a Stack<'_, T>, stack: &[usize]) -> Matrices<'a, T> {
        let own = &all.shape()[..all.ndim() - 2];
        match (own, stack) {
            _ if own.iter().all(|dim| *dim == 1) => Matrices::Same(matrix(all, &vec![0; stack.len()])),
            ([_], [_]) => all.view().into_dimensionality().map_or(Matrices::Any(all), Matrices::Each),
            ([_, columns], _) if own == stack => all
                .view()
                .into_dimensionality()
                .map_or(Matrices::Any(all), |table| Matrices::Table(table, *columns)),
            _ => Matrices::Any(all),
        }
    }

    /// The matrix at this position of `stack`.
    fn at(&self, stack: &[usize], index: usize) -> ArrayView2<'_, T> {
        match self {
            Matrices::Same(matrix) => matrix.view(),
            Matrices::Each(all) => all.index_axis(Axis(0), index),
            Matrices::Table(all, columns) => {
                all.index_axis(Axis(0), index / columns).index_axis_move(Axis(0), index % columns)
            }
            Matrices::Any(all) => matrix(all, &coordinates(stack, index)),
        }
    }
}

/// The matrix of a stack at this position.
fn matrix<'a, T>(stack: &'a Stack<'_, T>, at: &[usize]) -> ArrayView2<'a, T> {
    let mut rest = stack.view();
    for &at in at.iter().rev() {
        // It may have fewer dims in front, or one of 1 in this place.
        if let Some(last) = rest.ndim().checked_sub(3) {
            let at = if rest.len_of(Axis(last)) == 1 { 0 } else { at };
            rest.index_axis_inplace(Axis(last), at);
        }
    }
    rest.into_dimensionality().unwrap_or_else(|_| unreachable!("all dims but the last two are gone"))
}

/// Sets a matrix to the product of two, or adds that to it, on the threads of the call if there are any.
type Multiply<T> =
    fn(ArrayView2<'_, T>, ArrayView2<'_, T>, bool, ArrayViewMut2<'_, T>, Option<&Compute<'_>>) -> Result<()>;

/// `c = a · b`, or `c + a · b` if it is added.
fn multiply<T: Float>(
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    added: bool,
    c: ArrayViewMut2<'_, T>,
    cx: Option<&Compute<'_>>,
) -> Result<()> {
    let of_c = if added { T::one() } else { T::zero() };
    match cx {
        Some(cx) => cx.gemm(T::one(), a, b, of_c, c),
        None => opsmith::gemm(T::one(), a, b, of_c, c),
    }
}

/// How many multiplications with an addition are done in a nanosecond.
const PER_NANOSECOND: usize = 64;

fn add_products<T: Gemm>(
    cx: &Compute<'_>,
    stack: &[usize],
    terms: &[(Stack<'_, T>, Stack<'_, T>)],
    mut output: ArrayViewMutD<'_, T>,
    transposed: bool,
    multiply: Multiply<T>,
) -> Result<()> {
    let rank = output.ndim();
    let own = output.shape()[..rank - 2].to_vec();
    let (rows, columns) = (output.shape()[rank - 2], output.shape()[rank - 1]);
    let count: usize = stack.iter().product();
    let inner = terms.iter().map(|(a, _)| a.shape()[a.ndim() - 1]).sum::<usize>();
    if count == 0 || inner == 0 {
        output.fill(T::zero());
        return Ok(());
    }
    if output.is_empty() {
        return Ok(());
    }
    let matrices = output.len() / (rows * columns);
    let mut output = output
        .into_shape_with_order((matrices, rows, columns))
        .map_err(|error| Error::internal(error.to_string()))?;
    let operands: Vec<_> =
        terms.iter().map(|(a, b)| (Matrices::of(a, stack), Matrices::of(b, stack))).collect();
    let products = |index: usize, output: ArrayViewMut2<'_, T>, added: bool, cx: Option<&Compute<'_>>| {
        let mut output = if transposed { output.reversed_axes() } else { output };
        for (number, (a, b)) in operands.iter().enumerate() {
            let (a, b) = (a.at(stack, index), b.at(stack, index));
            multiply(a, b, added || number > 0, output.view_mut(), cx)?;
        }
        Ok(())
    };
    let cost = (rows * columns).saturating_mul(inner) / PER_NANOSECOND;
    if matrices == count && count >= 2 * cx.num_threads() {
        return cx.try_parallel_over(output, Axis(0), cost, |range, mut output| {
            range
                .zip(output.outer_iter_mut())
                .try_for_each(|(index, output)| products(index, output, false, None))
        });
    }
    let mut added = opsmith::memory::filled(false, matrices, "marks of matrices")?;
    let places = IndexSpace::new(stack, &[Layout { shape: &own, strides: &row_major_strides(&own) }])?;
    (0..count).try_for_each(|index| {
        // Products are added up in the matrix of the output that has this place.
        let place = places.place(0, index) as usize;
        let added = std::mem::replace(&mut added[place], true);
        products(index, output.index_axis_mut(Axis(0), place), added, Some(cx))
    })
}
