//! What the accuracy tests and the accuracy bench share.

#![allow(dead_code, unreachable_pub, reason = "each of the tests and benches uses a part")]

pub mod exact;
pub mod tree;

use opsmith_body::{Body, Scalar};

/// Φ in float64, good enough for float32.
pub fn phi(x: f64) -> f64 {
    libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2) * 0.5
}

/// GELU likewise; −0 at −∞.
pub fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * phi(x) }
}

/// The tanh form of GELU likewise.
pub fn gelu_tanh(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return -0.0;
    }
    x / (1.0 + (-1.595_769_121_605_730_7 * (x + 0.044715 * x * x * x)).exp())
}

/// log(1 + eˣ) likewise.
pub fn softplus(x: f64) -> f64 {
    if x == f64::INFINITY { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

/// The sine, for exponents that the reference takes long for through a reduction in enough bits.
pub fn sin(x: &exact::Big) -> exact::Big {
    x.sin()
}

/// The cosine likewise.
pub fn cos(x: &exact::Big) -> exact::Big {
    x.cos()
}

/// Numbers that are the same in every run (Knuth's generator of 64 bits).
pub struct Random(pub u64);

impl Random {
    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        let mut bits = 0;
        for _ in 0..2 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bits = (bits << 32) | (self.0 >> 32);
        }
        bits
    }

    /// A number of a range.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.bits() >> 11) as f64 / 2.0f64.powi(53)
    }
}

/// Defines a body of one input for each function.
macro_rules! unary {
    ($($body:ident $method:ident),* $(,)?) => {$(
        pub struct $body;
        impl Body<1, 1> for $body {
            #[inline(always)]
            fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 1] {
                [x.$method()]
            }
        }
    )*};
}

unary! {
    Exp exp, Log log, Log1p log1p, Expm1 expm1, Tanh tanh, Sigmoid sigmoid, Erf erf, NormalCdf normal_cdf,
    NormalPdf normal_pdf, Sin sin, Cos cos, Sqrt sqrt, Rsqrt rsqrt, Abs abs, Sign sign, Floor floor, Elu elu,
    Gelu gelu, GeluTanh gelu_tanh, Softplus softplus, Exp2 exp2, Log2 log2, Log10 log10, Tan tan, Asin asin, Acos acos,
    Atan atan, Sinh sinh, Cosh cosh, Asinh asinh, Acosh acosh, Atanh atanh, Lgamma lgamma, Digamma digamma,
    Trigamma trigamma, Ceil ceil, Trunc trunc, Round round,
}

/// log |Γ(x)|, or its first or second derivative.
pub struct Gammas(pub usize);

impl Body<1, 1> for Gammas {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [x]: [S; 1]) -> [S; 1] {
        [match self.0 {
            0 => x.lgamma(),
            1 => x.digamma(),
            _ => x.trigamma(),
        }]
    }
}

/// The angle of the point (x, y).
pub struct Atan2;

impl Body<2, 1> for Atan2 {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [y, x]: [S; 2]) -> [S; 1] {
        [y.atan2(x)]
    }
}

/// x to the power y.
pub struct Pow;

impl Body<2, 1> for Pow {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [x, y]: [S; 2]) -> [S; 1] {
        [x.pow(y)]
    }
}

/// The error of a float32 in units in the last place of the exact value, which is known in float64.
pub fn error_f32(got: f32, exact: f64) -> f64 {
    let rounded = exact as f32;
    if got.to_bits() == rounded.to_bits() || (got.is_nan() && exact.is_nan()) {
        return if rounded.is_finite() { (f64::from(got) - exact).abs() / ulp_f32(exact) } else { 0.0 };
    }
    if !got.is_finite() || !exact.is_finite() {
        // Overflow within two units of the largest number is rounding.
        let near = (2.0f64.powi(128) - exact.abs()).abs() <= 2.0 * 2.0f64.powi(104);
        return if near && got.is_infinite() { 1.0 } else { f64::INFINITY };
    }
    (f64::from(got) - exact).abs() / ulp_f32(exact)
}

fn ulp_f32(exact: f64) -> f64 {
    let exponent = ((exact.abs().to_bits() >> 52) as i32 - 1023).clamp(-126, 127);
    2.0f64.powi(exponent - 23)
}

/// The cell of an LLTM: the pointwise part of a recurrent unit.
pub struct Lltm;

impl Body<4, 2> for Lltm {
    #[inline(always)]
    fn eval<S: Scalar>(&self, [g0, g1, g2, old_cell]: [S; 4]) -> [S; 2] {
        let new_cell = old_cell + g2.elu() * g0.sigmoid();
        [new_cell.tanh() * g1.sigmoid(), new_cell]
    }
}
