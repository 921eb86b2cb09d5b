//! The functions that code calls.

use super::line::Function;
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
pub fn functions(double: bool) -> [usize; 4] {
    let of: [Called; 4] = match double {
        false => [sin::<f32, 8>, cos::<f32, 8>, pow::<f32, 8>, gelu_tanh::<f32, 8>],
        true => [sin::<f64, 4>, cos::<f64, 4>, pow::<f64, 4>, gelu_tanh::<f64, 4>],
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

macro_rules! called {
    ($($name:ident $function:ident)*) => {$(
        /// # Safety
        /// There must be a vector at each address.
        unsafe extern "C" fn $name<T: Element, const LANES: usize>(to: *mut u8, a: *const u8, b: *const u8) {
            // SAFETY: promised by the caller; no result is written before all is read.
            unsafe {
                let (a, b) = (a.cast::<[T; LANES]>().read(), b.cast::<[T; LANES]>().read());
                let call = Call { function: Function::$function, a, b };
                to.cast::<[T; LANES]>().write(dispatch(call));
            }
        }
    )*};
}

called! { sin Sin cos Cos pow Pow gelu_tanh GeluTanh }
