//! Arithmetic on two tensors that broadcast by NumPy's rules.

use opsmith::prelude::*;

use crate::define::ops;
use crate::integers;

/// The sum of two tensors, which broadcast by NumPy's rules.
#[pointwise]
pub fn add<S: Scalar>(
    /// Any numbers.
    x: S,
    /// Any numbers.
    y: S,
) -> S {
    x + y
}

/// The difference of two tensors, which broadcast by NumPy's rules.
#[pointwise]
pub fn sub<S: Scalar>(
    /// Any numbers.
    x: S,
    /// What is subtracted.
    y: S,
) -> S {
    x - y
}

/// The product of two tensors, element by element, which broadcast by NumPy's rules.
#[pointwise]
pub fn mul<S: Scalar>(
    /// Any numbers.
    x: S,
    /// Any numbers.
    y: S,
) -> S {
    x * y
}

/// The quotient of two tensors, which broadcast by NumPy's rules.
#[pointwise]
pub fn div<S: Scalar>(
    /// Any numbers.
    x: S,
    /// What is divided by; 0 gives an infinity or, of 0, NaN.
    y: S,
) -> S {
    x / y
}

/// `x` to the power of `y`; the two broadcast by NumPy's rules.
#[pointwise]
pub fn pow<S: Scalar>(
    /// The base; a negative one gives NaN unless the exponent is an integer.
    x: S,
    /// The exponent.
    y: S,
) -> S {
    x.pow(y)
}

/// The larger of each two elements, NaN if one is NaN; the two tensors broadcast by NumPy's rules.
///
/// The gradient goes to the one that is taken, `x` if they are equal.
#[pointwise]
pub fn maximum<S: Scalar>(
    /// Any numbers.
    x: S,
    /// Any numbers.
    y: S,
) -> S {
    x.max(y)
}

/// The smaller of each two elements, NaN if one is NaN; the two tensors broadcast by NumPy's rules.
///
/// The gradient goes to the one that is taken, `x` if they are equal.
#[pointwise]
pub fn minimum<S: Scalar>(
    /// Any numbers.
    x: S,
    /// Any numbers.
    y: S,
) -> S {
    x.min(y)
}

ops! {
    /// The op `Add`: [`add`](fn@add), of integers too.
    Add = integers::also::<integers::Add, 2>(add::def()), with add::COMPANIONS;
    /// The op `Sub`: [`sub`](fn@sub), of integers too.
    Sub = integers::also::<integers::Sub, 2>(sub::def()), with sub::COMPANIONS;
    /// The op `Mul`: [`mul`](fn@mul), of integers too.
    Mul = integers::also::<integers::Mul, 2>(mul::def()), with mul::COMPANIONS;
    /// The op `Maximum`: [`maximum`](fn@maximum), of integers too.
    Maximum = integers::also::<integers::Maximum, 2>(maximum::def()), with maximum::COMPANIONS;
    /// The op `Minimum`: [`minimum`](fn@minimum), of integers too.
    Minimum = integers::also::<integers::Minimum, 2>(minimum::def()), with minimum::COMPANIONS;
}

#[cfg(test)]
mod tests {
    use opsmith::testing;

    use super::*;

    #[test]
    fn integers_wrap_around() -> Result<()> {
        let (x, y) = (array![[i8::MAX], [1]], array![1i8, -1]);
        let outputs = testing::call::<Add>().input(&x).input(&y).run()?;
        assert_eq!(outputs.array::<i8, Ix2>("z")?, array![[i8::MIN, 126], [2, 0]]);
        let outputs = testing::call::<Maximum>().input(&x).input(&y).run()?;
        assert_eq!(outputs.array::<i8, Ix2>("z")?, array![[127, 127], [1, 1]]);
        let error = testing::call::<Sub>().input(&array![1, 2]).input(&array![1, 2, 3]).run().unwrap_err();
        assert_eq!(error.message(), "Sub: expected inputs that broadcast to one shape, got `x` [2], `y` [3]");
        Ok(())
    }
}
