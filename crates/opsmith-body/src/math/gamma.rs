//! The logarithm of the gamma function, and its derivative.
//!
//! Positive arguments are moved to where a polynomial is fitted, or are far enough for Stirling's series. Negative ones are mirrored:
//! Γ(x) Γ(1 − x) = π / sin(πx).

use std::f64::consts::PI;

use crate::float::{Float, Real};
use crate::isa::Isa;
use crate::math::double::{constant, multiply_add, product, two_product};
use crate::math::log::log;
use crate::math::polynomials;
use crate::math::pow::log_double;
use crate::scalar::Scalar;

/// log π, and (log(2π) − 1) / 2.
const LN_PI: f64 = 1.1447298858494002;
const STIRLING: f64 = 0.418_938_533_204_672_7;
/// 1 − γ, the slope of log Γ(x) at 2, in two parts.
const FIRST: (f64, f64) = (0.42278433509846713, 4.942915152430645e-18);
/// The positive zero of digamma in two parts.
const ROOT: (f64, f64) = (1.4616321449683622, 9.549995429965697e-17);

/// An argument, 1 − x for a negative x.
struct Mirrored<T: Real, I> {
    x: Float<T, I>,
    /// How far a negative x is from the nearest integer: 0, or NaN, at poles.
    distance: Float<T, I>,
    /// Whether that integer is below.
    is_below: T::Truth,
}

impl<T: Real, I: Isa> Mirrored<T, I> {
    #[inline(always)]
    fn of(x: Float<T, I>) -> Self {
        let one = Float::c(1.0);
        let part = x.abs() - x.abs().floor();
        let is_below = Float::c(0.5).lt(part);
        let distance = Float::pick(is_below, one - part, part);
        Self { x: Float::pick(x.lt(Float::c(0.0)), one - x, x), distance, is_below }
    }
}

/// sin(πr), for r from 0 to ½.
#[inline(always)]
fn sine_of_turn<T: Real, I: Isa>(r: Float<T, I>) -> Float<T, I> {
    let angle = r * PI;
    let z = angle * angle;
    (z * angle).fma(polynomials::sine(z), angle)
}

/// log |Γ(x)|.
#[inline(always)]
pub(crate) fn lgamma<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let (zero, one, infinity) = (Float::c(0.0), Float::c(1.0), Float::c(f64::INFINITY));
    let Mirrored { x: u, distance, .. } = Mirrored::of(x);
    let (is_small, is_low, is_far) = (u.lt(Float::c(0.5)), u.lt(Float::c(1.5)), Float::c(2.5).le(u));
    // Γ(2 + v) is Γ(u) times what is taken the logarithm of.
    let v = u - Float::pick(is_low, Float::pick(is_small, zero, one), Float::c(2.0));
    let factor = Float::pick(is_small, u * (u + 1.0), Float::pick(is_low | is_far, u, one));
    let (log_factor, log_low) = log_double(factor);
    let (first, first_low) = constant::<T, I>(FIRST.0, FIRST.1);
    let (slope, slope_low) = multiply_add(v, polynomials::lgamma(v), first);
    let (near, near_low) = product(two_product(v, v + 1.0), (slope, slope_low + first_low));
    let near = (near - log_factor) + (near_low - log_low);
    // (u − ½) (log u − 1) + …
    let (inverse, shifted) = (one / u, u - 0.5);
    let (far, low) = two_product(shifted, log_factor - 1.0);
    let low = Float::pick(u.lt(Float::c(T::LARGE)), shifted.fma(log_low, low), zero);
    let series = inverse.fma(polynomials::stirling(inverse * inverse), Float::c(STIRLING));
    let result = Float::pick(is_far, far + (series + low), near);
    let limit = Float::pick(u.eq(zero), infinity, u);
    let result = Float::pick(zero.lt(u) & u.lt(infinity), result, limit);
    let mirrored = Float::c(LN_PI) - log(sine_of_turn(distance)) - result;
    Float::pick(x.lt(zero), Float::pick(zero.lt(distance), mirrored, infinity), result)
}

/// The derivative of log |Γ(x)|.
#[inline(always)]
pub(crate) fn digamma<T: Real, I: Isa>(x: Float<T, I>) -> Float<T, I> {
    let (zero, one) = (Float::c(0.0), Float::c(1.0));
    let Mirrored { x: u, distance, is_below } = Mirrored::of(x);
    let inverse = one / u;
    let is_low = u.lt(one);
    let (root, root_low) = constant::<T, I>(ROOT.0, ROOT.1);
    let d = (u - Float::pick(is_low, root - 1.0, root)) - root_low;
    let near = d.fma(polynomials::digamma(d), -Float::pick(is_low, inverse, zero));
    let z = inverse * inverse;
    let far = z.fma(-polynomials::digamma_far(z), log(u) - inverse * 0.5);
    let result = Float::pick(u.lt(Float::c(2.0)), near, far);
    let cotangent = sine_of_turn(Float::c(0.5) - distance) / sine_of_turn(distance) * PI;
    let mirrored = result + Float::pick(is_below, -cotangent, cotangent);
    Float::pick(x.lt(zero), Float::pick(zero.lt(distance), mirrored, Float::c(f64::NAN)), result)
}
