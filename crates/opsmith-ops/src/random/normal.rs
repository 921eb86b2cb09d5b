//! Quantiles of the normal distribution: algorithm AS 241 (Wichura, "The percentage points of the normal distribution", 1988), whose
//! relative error is some 1e-16. It is made of operations that are exactly rounded alone, the logarithm too, so that numbers are the
//! same on all machines.

// The coefficients are those of the paper, with all their digits.
#![allow(clippy::excessive_precision)]

use opsmith::isa::{Isa, Kernel, dispatch};

use super::GROUP;

/// Replaces at most [`GROUP`] probabilities, which are more than 0 and less than 1, by the numbers below which a normal number is so
/// often.
pub(super) fn normal(numbers: &mut [f64]) {
    // Those outside the middle part, one after the other. What is behind them is computed too, a few at a time, and not used.
    let (mut tails, mut places, mut count) = ([0.25; GROUP], [0; GROUP], 0);
    for (place, &p) in numbers.iter().enumerate() {
        (tails[count], places[count]) = (p, place);
        count += usize::from((p - 0.5).abs() > CENTRAL);
    }
    dispatch(Middle(numbers));
    let tails = &mut tails[..count.next_multiple_of(8).min(GROUP)];
    dispatch(Tails(tails));
    places.iter().zip(tails).take(count).for_each(|(&place, number)| numbers[place] = *number);
}

/// Numbers as if all were in the middle part: without branches.
struct Middle<'a>(&'a mut [f64]);

impl Kernel for Middle<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        self.0.iter_mut().for_each(|number| *number = central(*number - 0.5));
    }
}

/// Numbers of the outer parts: without branches but for those far out, of which there are hardly any.
struct Tails<'a>(&'a mut [f64]);

impl Kernel for Tails<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let distance = |p: f64| (-logarithm(p.min(1.0 - p))).sqrt();
        let any_far = self.0.iter().fold(false, |any, &p| any | (p.min(1.0 - p) < FAR));
        if any_far {
            for number in self.0 {
                let r = distance(*number);
                *number = signed(*number, if r > 5.0 { far(r - 5.0) } else { near(r - 1.6) });
            }
        } else {
            self.0.iter_mut().for_each(|number| *number = signed(*number, near(distance(*number) - 1.6)));
        }
    }
}

/// Only probabilities below this can have √(−log p) > 5.
const FAR: f64 = 1.4e-11;

/// How far from a half the middle part goes.
const CENTRAL: f64 = 0.425;

#[inline(always)]
fn horner(x: f64, coefficients: [f64; 8]) -> f64 {
    coefficients.into_iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

#[inline(always)]
fn central(q: f64) -> f64 {
    let r = CENTRAL * CENTRAL - q * q;
    let above = [
        3.387_132_872_796_366_608,
        133.141_667_891_784_377_45,
        1_971.590_950_306_551_442_7,
        13_731.693_765_509_461_125,
        45_921.953_931_549_871_457,
        67_265.770_927_008_700_853,
        33_430.575_583_588_128_105,
        2_509.080_928_730_122_672_7,
    ];
    let below = [
        1.0,
        42.313_330_701_600_911_252,
        687.187_007_492_057_908_3,
        5_394.196_021_424_751_107_7,
        21_213.794_301_586_595_867,
        39_307.895_800_092_710_61,
        28_729.085_735_721_942_674,
        5_226.495_278_852_854_561,
    ];
    q * horner(r, above) / horner(r, below)
}

/// Of the square root of the logarithm of a probability, less 1.6, where that root is at most 5.
#[inline(always)]
fn near(r: f64) -> f64 {
    let above = [
        1.423_437_110_749_683_577_34,
        4.630_337_846_156_545_295_9,
        5.769_497_221_460_691_405_5,
        3.647_848_324_763_204_605_04,
        1.270_458_252_452_368_382_58,
        2.417_807_251_774_506_117_7e-1,
        2.272_384_498_926_918_458_33e-2,
        7.745_450_142_783_414_076_4e-4,
    ];
    let below = [
        1.0,
        2.053_191_626_637_758_821_87,
        1.676_384_830_183_803_849_4,
        6.897_673_349_851_000_045_5e-1,
        1.481_039_764_274_800_745_9e-1,
        1.519_866_656_361_645_719_66e-2,
        5.475_938_084_995_344_946e-4,
        1.050_750_071_644_416_843_24e-9,
    ];
    horner(r, above) / horner(r, below)
}

/// Of the same less 5, where it is more.
#[inline(always)]
fn far(r: f64) -> f64 {
    let above = [
        6.657_904_643_501_103_777_2,
        5.463_784_911_164_114_369_9,
        1.784_826_539_917_291_335_8,
        2.965_605_718_285_048_912_3e-1,
        2.653_218_952_657_612_309_3e-2,
        1.242_660_947_388_078_438_6e-3,
        2.711_555_568_743_487_578_15e-5,
        2.010_334_399_292_288_132_65e-7,
    ];
    let below = [
        1.0,
        5.998_322_065_558_879_376_9e-1,
        1.369_298_809_227_358_053_1e-1,
        1.487_536_129_085_061_485_25e-2,
        7.868_691_311_456_132_591e-4,
        1.846_318_317_510_054_681_8e-5,
        1.421_511_758_316_445_888_7e-7,
        2.044_263_103_389_939_785_64e-15,
    ];
    horner(r, above) / horner(r, below)
}

/// A quantile's size with its sign.
#[inline(always)]
fn signed(p: f64, number: f64) -> f64 {
    if p < 0.5 { -number } else { number }
}

/// The natural logarithm of a normal number that is more than 0: of its power of two, and twice the inverse hyperbolic tangent of
/// (m - 1) / (m + 1) for what is left.
#[inline(always)]
fn logarithm(x: f64) -> f64 {
    let bits = x.to_bits();
    // Of 32 bits, for all instruction sets make doubles of these.
    let power = f64::from((bits >> 52) as i32 - 1023);
    let rest = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let large = rest > std::f64::consts::SQRT_2;
    let (power, rest) = if large { (power + 1.0, rest * 0.5) } else { (power, rest) };
    let s = (rest - 1.0) / (rest + 1.0);
    let square = s * s;
    let series = (0..12).rev().fold(0.0, |sum, term| sum * square + 1.0 / f64::from(2 * term + 1));
    power * std::f64::consts::LN_2 + 2.0 * s * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_that_are_known() {
        // The first ones are the paper's, the others tables'.
        for (p, expected) in [
            (0.25, -0.674_489_750_196_081_7),
            (0.001, -3.090_232_306_167_813),
            (1e-20, -9.262_340_089_798_408),
            (0.975, 1.959_963_984_540_054),
            (0.5, 0.0),
            (0.926, 1.446_632_067_158_979),
        ] {
            let mut number = [p];
            normal(&mut number);
            assert!((number[0] - expected).abs() <= 1e-14 * expected.abs().max(1e-2), "{p}: {number:?}");
        }
    }

    #[test]
    fn logarithms() {
        for x in [1e-17, 0.3, 0.5, 0.707, 0.999_999, 1.0] {
            assert!((logarithm(x) - f64::ln(x)).abs() <= 4.0 * f64::EPSILON * f64::ln(x).abs(), "{x}");
        }
    }
}
