//! Double precision: constants, the layout of the bits, and the polynomials.

use crate::float::Float;
use crate::isa::Isa;
use crate::math::double::multiply_add;
use crate::math::normal::gelu_argument;
use crate::math::{Pair, Real, horner, horner_of_two, pow, trig};

#[allow(private_interfaces, reason = "the trait is sealed by its module, which is private")]
impl Real for f64 {
    const ZERO: Self = 0.0;
    const INTEGERS: Self = 4_503_599_627_370_496.0;
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const EXP_RANGE: (f64, f64) = (-746.0, 710.0);
    const DESCENT: i32 = 512;
    const ASCENT: f64 = 1.3407807929942597e154;
    const EXPM1_LOW: f64 = -40.0;
    const LN2: (f64, f64) = (0.6931471803691238, 1.9082149292705877e-10);
    const TAIL_END: f64 = 39.0;
    const GELU_END: f64 = 21.7;
    const SPLIT: f64 = 134_217_729.0;
    const NORMAL: Self = Self::MIN_POSITIVE;
    const LIFT: (f64, f64) = (18_014_398_509_481_984.0, 54.0);

    #[inline(always)]
    fn from_f64(constant: f64) -> Self {
        constant
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
        Self::from_bits(rounded.to_bits().wrapping_add((shift + 1023) as u64) << 52)
    }
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
        let shifted = self.to_bits().wrapping_add(0x3ff0_0000_0000_0000 - SQRT_HALF);
        let mantissa = (shifted & ((1 << 52) - 1)).wrapping_add(SQRT_HALF);
        // An integer as the low bits of a float from `INTEGERS` on.
        let exponent = Self::from_bits(Self::INTEGERS.to_bits() | (shifted >> 52));
        (Self::from_bits(mantissa), exponent - (Self::INTEGERS + 1023.0))
    }

    #[inline(always)]
    fn exp_poly<I: Isa>(r: Float<Self, I>) -> Float<Self, I> {
        horner!(r; 0.5, 0.16666666666666677, 0.0416666666666667, 0.008333333333321534, 0.0013888888888866824,
            0.0001984126988639654, 2.4801587360611332e-05, 2.755724391664394e-06, 2.755724269573038e-07,
            2.5109145472903444e-08, 2.092446663774374e-09)
    }
    #[inline(always)]
    fn log_poly<I: Isa>(z: Float<Self, I>) -> Float<Self, I> {
        horner!(z; 0.6666666666666735, 0.3999999999941134, 0.28571428743208505, 0.22222198481764885,
            0.1818356942569664, 0.15313911615331227, 0.14797421084758025)
    }
    #[inline(always)]
    fn erf_poly<I: Isa>(z: Float<Self, I>) -> Float<Self, I> {
        horner!(z; 0.1283791670955126, -0.3761263890318375, 0.11283791670954885, -0.026866170645077864,
            0.0052239776248283265, -0.0008548326981420047, 0.00012055331132770141, -1.4925595768029759e-05,
            1.646100841570146e-06, -1.6350395608127136e-07, 1.4660324860158946e-08, -1.137494178995884e-09,
            5.960663312498602e-11)
    }
    #[inline(always)]
    fn tail_poly<I: Isa>(t: Float<Self, I>) -> (Pair<Self, I>, bool) {
        let near = t.get() < 2.0;
        let argument = Float::pick(near, t - 0.796875, Float::c(1.0) / (t + 2.125));
        let rest = horner_of_two!(near, argument;
            (-0.1660395881924757, 2.1901628940868053e-10),
            (0.07997862414204289, -0.39894230848042084),
            (-0.03410220735976748, -1.6955024999789245),
            (0.013200856913071676, -4.207711233784795),
            (-0.004716554901322415, -5.134970470524314),
            (0.0015737253707629826, 7.25382515215633),
            (-0.0004946417861310915, 52.66181665936989),
            (0.00014744471432148764, 18.40381523769831),
            (-4.19051939850263e-05, 521.7900205791574),
            (1.1405141147814424e-05, -9521.4806653312),
            (-2.9833451924206695e-06, 73658.96442002033),
            (7.523431471070521e-07, -508886.57121312467),
            (-1.8337036438631955e-07, 2868565.162779275),
            (4.325997462660871e-08, -11713684.036538972),
            (-9.908429862268555e-09, 33595434.70416616),
            (2.240107014445432e-09, -66595091.457081184),
            (-5.041047433650628e-10, 87656798.18057922),
            (9.852433489107703e-11, -69423051.57193814),
            (-1.0920639589947701e-11, 25170587.856494337)
        );
        let first = Float::pick(near, Float::c(0.2922700451249655), Float::c(0.39894228040065066));
        (multiply_add(argument, rest, first), near)
    }
    #[inline(always)]
    fn gelu_argument<I: Isa>(x: Float<Self, I>) -> Pair<Self, I> {
        gelu_argument(x)
    }
    #[inline(always)]
    fn sin<I: Isa>(x: Float<Self, I>) -> Float<Self, I> {
        trig::sine_f64(x, 0)
    }
    #[inline(always)]
    fn cos<I: Isa>(x: Float<Self, I>) -> Float<Self, I> {
        trig::sine_f64(x, 1)
    }
    #[inline(always)]
    fn pow_positive<I: Isa>(x: Float<Self, I>, y: Float<Self, I>) -> Float<Self, I> {
        pow::pow_f64(x, y)
    }
}
