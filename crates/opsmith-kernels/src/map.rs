//! What hand-written kernels compute with: bodies, and products of matrices.

use std::any::TypeId;
use std::fmt::Debug;
use std::sync::Arc;

use ndarray::{ArrayView, ArrayView2, ArrayViewMut, ArrayViewMut2, Dimension};
use opsmith_body::{Body, trace};
use opsmith_core::fork::Mutex;
use opsmith_core::space::{Layout, broadcast_shape};
use opsmith_core::{Compute, Result, bail};
use smallvec::SmallVec;

use crate::arithmetic::Arithmetic;
use crate::float::AnyFloat;
use crate::product::Product;

/// What [`Compute`] does with whole arrays.
pub trait ComputeExt {
    /// Applies a body to every element of inputs, which broadcast to the outputs' shape, on the call's threads.
    ///
    /// Inputs and outputs may have any strides. The body is what `#[pointwise]` makes of a function: a type of its name
    /// with the attributes as fields. A body of your own has to tell its fields by `Debug`: one that prints the same computes the same. The
    /// first call of a body with attributes of these values takes some tenths of a millisecond more.
    ///
    /// # Errors
    /// `InvalidArgument` when the outputs differ in shape or the inputs do not broadcast to it.
    fn map<T, D, B, const IN: usize, const OUT: usize>(
        &self,
        body: &B,
        inputs: [ArrayView<'_, T, D>; IN],
        outputs: [ArrayViewMut<'_, T, D>; OUT],
    ) -> Result<()>
    where
        T: AnyFloat,
        D: Dimension,
        B: Body<IN, OUT> + Debug + 'static;

    /// The product of two matrices, `c = alpha · a · b + beta · c`, on the call's threads.
    ///
    /// All three may have any strides, so a factor is transposed by `t()`. Where `beta` is 0, `c` is not read: it may be
    /// uninitialised, as outputs are. float16 and bfloat16 are added up in float32. A loop that is on several threads
    /// itself calls [`gemm`](crate::gemm), which stays on its thread.
    ///
    /// # Errors
    /// `InvalidArgument` when the shapes are not (n, k), (k, m) and (n, m); `ResourceExhausted` when there is no memory
    /// for the float32 copies of matrices of float16 or bfloat16.
    fn gemm<T: AnyFloat>(
        &self,
        alpha: T,
        a: ArrayView2<'_, T>,
        b: ArrayView2<'_, T>,
        beta: T,
        c: ArrayViewMut2<'_, T>,
    ) -> Result<()>;
}

/// The most bodies that are kept, those that were used last.
const MOST_KNOWN: usize = 256;

/// A body's type, how many inputs and outputs it has, what it prints as, which tells its attributes, and its arithmetic.
type Known = (Key, String, Arc<Arithmetic>);
type Key = (TypeId, usize, usize);

/// The arithmetic of a body, made at its first use.
fn arithmetic<B: Body<IN, OUT> + Debug + 'static, const IN: usize, const OUT: usize>(
    body: &B,
) -> Arc<Arithmetic> {
    static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());
    let (key, text) = ((TypeId::of::<B>(), IN, OUT), format!("{body:?}"));
    let find = |known: &mut Vec<Known>| {
        let place = known.iter().position(|(other, own, _)| *other == key && *own == text)?;
        // The last one is the one used last.
        known[place..].rotate_left(1);
        known.last().map(|(.., made)| made.clone())
    };
    if let Some(made) = find(&mut KNOWN.lock()) {
        return made;
    }
    // Nobody's code is called under the lock.
    let made = Arc::new(Arithmetic::new(&trace(body)));
    let mut known = KNOWN.lock();
    if let Some(made) = find(&mut known) {
        return made;
    }
    if known.len() == MOST_KNOWN {
        known.remove(0);
    }
    known.push((key, text, made.clone()));
    made
}

impl ComputeExt for Compute<'_> {
    fn map<T, D, B, const IN: usize, const OUT: usize>(
        &self,
        body: &B,
        inputs: [ArrayView<'_, T, D>; IN],
        mut outputs: [ArrayViewMut<'_, T, D>; OUT],
    ) -> Result<()>
    where
        T: AnyFloat,
        D: Dimension,
        B: Body<IN, OUT> + Debug + 'static,
    {
        let Some(shape) = outputs.first().map(|output| output.shape().to_vec()) else { return Ok(()) };
        let given = inputs.iter().map(ArrayView::shape);
        let differs = outputs.iter().any(|output| output.shape() != shape);
        let all = broadcast_shape(given.clone().chain([shape.as_slice()]));
        if differs || all.is_none_or(|all| all.as_slice() != shape) {
            let given: Vec<_> = given.collect();
            let outputs: Vec<_> = outputs.iter().map(ArrayViewMut::shape).collect();
            bail!(
                InvalidArgument,
                "the inputs of a body must broadcast to the shape that all its outputs have, got inputs of \
                 shapes {given:?} and outputs of shapes {outputs:?}"
            );
        }
        let places: SmallVec<[*mut T; 8]> = outputs.iter_mut().map(ArrayViewMut::as_mut_ptr).collect();
        let mut sources = inputs.iter().map(|input| (input.as_ptr(), Layout::from(input)));
        let mut targets = places.iter().zip(&outputs).map(|(&place, output)| (place, Layout::from(output)));
        // SAFETY: views reach their elements, which are borrowed for as long as this takes; mutable views are of
        // different elements, at one index each.
        unsafe { T::apply(self, &arithmetic(body), &shape, &mut sources, &mut targets) }
    }

    fn gemm<T: AnyFloat>(
        &self,
        alpha: T,
        a: ArrayView2<'_, T>,
        b: ArrayView2<'_, T>,
        beta: T,
        c: ArrayViewMut2<'_, T>,
    ) -> Result<()> {
        T::product(Product::new(alpha, a, b, beta, c)?, Some(self))
    }
}

/// The product of two matrices on the calling thread, for loops that are on several threads themselves; else it is
/// [`ComputeExt::gemm`](crate::ComputeExt::gemm).
///
/// # Errors
/// As that has them.
pub fn gemm<T: AnyFloat>(
    alpha: T,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    beta: T,
    c: ArrayViewMut2<'_, T>,
) -> Result<()> {
    T::product(Product::new(alpha, a, b, beta, c)?, None)
}
