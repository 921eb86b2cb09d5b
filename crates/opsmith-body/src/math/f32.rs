//! Single precision: constants, the layout of the bits, and the polynomials.

use crate::float::Float;
use crate::isa::Isa;
use crate::math::double::multiply_add;
use crate::math::{Pair, Real, horner, horner_of_two, pow, trig};
use crate::scalar::{GELU_CUBIC, GELU_LINEAR};

#[allow(private_interfaces, reason = "the trait is sealed by its module, which is private")]
impl Real for f32 {
    const ZERO: Self = 0.0;
    const INTEGERS: Self = 8_388_608.0;
    const ROUND: f64 = 12_582_912.0;
    const EXP_RANGE: (f64, f64) = (-104.0, 89.0);
    const DESCENT: i32 = 64;
    const ASCENT: f64 = 18_446_744_073_709_551_616.0;
    const EXPM1_LOW: f64 = -20.0;
    const LN2: (f64, f64) = (0.693359375, -2.1219444e-4);
    const TAIL_END: f64 = 14.5;
    const GELU_END: f64 = 11.0;
    const SPLIT: f64 = 4097.0;
    const NORMAL: Self = Self::MIN_POSITIVE;
    const LIFT: (f64, f64) = (33_554_432.0, 25.0);

    #[inline(always)]
    fn from_f64(constant: f64) -> Self {
        constant as f32
    }
    #[inline(always)]
    fn fused(self, factor: Self, term: Self) -> Self {
        self.mul_add(factor, term)
    }
    #[inline(always)]
    fn magnitude(self) -> Self {
        self.abs()
    }
    #[inline(always)]
    fn root(self) -> Self {
        self.sqrt()
    }
    #[inline(always)]
    fn floor_native(self) -> Self {
        self.floor()
    }
    #[inline(always)]
    fn with_sign_of(self, sign: Self) -> Self {
        self.copysign(sign)
    }
    #[inline(always)]
    fn is_nan(self) -> bool {
        Self::is_nan(self)
    }
    #[inline(always)]
    fn power_of_two(rounded: Self, shift: i32) -> Self {
        // The low bits of `ROUND` are zero, so what is left by the shift of the bits is k and the bias.
        Self::from_bits(rounded.to_bits().wrapping_add((shift + 127) as u32) << 23)
    }
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        const SQRT_HALF: u32 = 0x3f35_04f3;
        let shifted = self.to_bits().wrapping_add(0x3f80_0000 - SQRT_HALF);
        let mantissa = (shifted & ((1 << 23) - 1)).wrapping_add(SQRT_HALF);
        // An integer as the low bits of a float from `INTEGERS` on.
        let exponent = Self::from_bits(Self::INTEGERS.to_bits() | (shifted >> 23));
        (Self::from_bits(mantissa), exponent - (Self::INTEGERS + 127.0))
    }

    #[inline(always)]
    fn exp_poly<I: Isa>(r: Float<Self, I>) -> Float<Self, I> {
        horner!(r; 0.5, 0.16666542, 0.041666277, 0.008366639, 0.0013946726)
    }
    #[inline(always)]
    fn log_poly<I: Isa>(z: Float<Self, I>) -> Float<Self, I> {
        horner!(z; 0.66666776, 0.399775, 0.29872945)
    }
    #[inline(always)]
    fn erf_poly<I: Isa>(z: Float<Self, I>) -> Float<Self, I> {
        horner!(z; 0.12837917, -0.37612626, 0.112836, -0.026854448, 0.005189542, -0.00080209033, 7.8893296e-05)
    }
    #[inline(always)]
    fn tail_poly<I: Isa>(t: Float<Self, I>) -> (Pair<Self, I>, bool) {
        let near = t.get() < 1.5;
        let argument = Float::pick(near, t - 0.9375, Float::c(1.0) / (t + 1.03125));
        let rest = horner_of_two!(near, argument;
            (-0.14543065, 0.00035390598),
            (0.06703569, -0.40823781),
            (-0.027527826, -0.6876802),
            (0.0103056375, -1.2611305),
            (-0.003577219, 9.489032),
            (0.0011650169, -13.802797),
            (-0.00033905605, 0.18226679),
            (9.888635e-05, 17.283932),
            (-5.1434417e-05, -12.535737)
        );
        let first = Float::pick(near, Float::c(0.27041242), Float::c(0.39893657));
        (multiply_add(argument, rest, first), near)
    }
    #[inline(always)]
    fn gelu_argument<I: Isa>(x: Float<Self, I>) -> Pair<Self, I> {
        let wide = Float::<f64, I>::new(f64::from(x.get()));
        let argument = (wide * wide).fma(Float::c(GELU_LINEAR * GELU_CUBIC), Float::c(GELU_LINEAR)) * wide;
        let high = argument.get() as f32;
        (Float::new(high), Float::new((argument.get() - f64::from(high)) as f32))
    }
    #[inline(always)]
    fn sin<I: Isa>(x: Float<Self, I>) -> Float<Self, I> {
        trig::sine_f32(x, 0)
    }
    #[inline(always)]
    fn cos<I: Isa>(x: Float<Self, I>) -> Float<Self, I> {
        trig::sine_f32(x, 1)
    }
    #[inline(always)]
    fn pow_positive<I: Isa>(x: Float<Self, I>, y: Float<Self, I>) -> Float<Self, I> {
        pow::pow_f32(x, y)
    }
}
