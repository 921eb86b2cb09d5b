//! The functions that code calls.

use super::line::Function;
use super::vectors::Vectors;
use crate::element::Element;
use crate::isa::{Isa, Kernel, dispatch};
use crate::scalar::Scalar;

/// What code calls: with the addresses of a vector for the result and of one or two others, which may be the same.
type Called = unsafe extern "C" fn(*mut u8, *const u8, *const u8);

impl Function {
    pub(super) const ALL: [Self; 4] = [Self::Sin, Self::Cos, Self::Pow, Self::GeluTanh];

    pub(super) fn position(self) -> usize {
        Self::ALL.iter().position(|other| *other == self).unwrap_or(0)
    }
}

/// The addresses of the functions, for the frame.
pub fn functions(vectors: Vectors) -> [usize; 4] {
    let of: [Called; 4] = match (vectors.double, vectors.wide) {
        (false, false) => [sin::<f32, 8, 1>, cos::<f32, 8, 1>, pow::<f32, 8, 1>, gelu_tanh::<f32, 8, 1>],
        (false, true) => [sin::<f32, 8, 2>, cos::<f32, 8, 2>, pow::<f32, 8, 2>, gelu_tanh::<f32, 8, 2>],
        (true, false) => [sin::<f64, 4, 1>, cos::<f64, 4, 1>, pow::<f64, 4, 1>, gelu_tanh::<f64, 4, 1>],
        (true, true) => [sin::<f64, 4, 2>, cos::<f64, 4, 2>, pow::<f64, 4, 2>, gelu_tanh::<f64, 4, 2>],
    };
    of.map(|function| function as usize)
}

struct Call<T, const LANES: usize> {
    function: Function,
    a: [T; LANES],
    b: [T; LANES],
}

impl<T: Element, const LANES: usize> Kernel for Call<T, LANES> {
    type Output = [T; LANES];

    #[inline(always)]
    fn run<I: Isa>(self) -> [T; LANES] {
        let mut results = self.a;
        macro_rules! each {
            (|$a:ident, $b:ident| $result:expr) => {
                for (result, b) in results.iter_mut().zip(&self.b) {
                    let ($a, $b) = (result.load::<I>(), b.load::<I>());
                    let _ = $b;
                    *result = T::store($result);
                }
            };
        }
        match self.function {
            Function::Sin => each!(|a, b| a.sin()),
            Function::Cos => each!(|a, b| a.cos()),
            Function::Pow => each!(|a, b| a.pow(b)),
            Function::GeluTanh => each!(|a, b| a.gelu_tanh()),
        }
        results
    }
}

/// Computes a part of a vector; compiled once, for vectors of one part or two.
#[inline(never)]
fn part<T: Element, const LANES: usize>(function: Function, a: [T; LANES], b: [T; LANES]) -> [T; LANES] {
    dispatch(Call { function, a, b })
}

macro_rules! called {
    ($($name:ident $function:ident)*) => {$(
        /// # Safety
        /// There must be a vector of so many parts at each address.
        unsafe extern "C" fn $name<T: Element, const LANES: usize, const PARTS: usize>(
            to: *mut u8,
            a: *const u8,
            b: *const u8,
        ) {
            let (to, a, b) = (to.cast::<[T; LANES]>(), a.cast::<[T; LANES]>(), b.cast::<[T; LANES]>());
            for at in 0..PARTS {
                // SAFETY: promised by the caller; no part of the result is written before that of the others is read.
                unsafe { to.add(at).write(part(Function::$function, a.add(at).read(), b.add(at).read())) };
            }
        }
    )*};
}

called! { sin Sin cos Cos pow Pow gelu_tanh GeluTanh }
