//! The functions in arithmetic of 192 bits, and the error of a float64 against them.

use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Sub};

use astro_float_num::{BigFloat, Consts, RoundingMode, WORD_BIT_SIZE};

const BITS: usize = 192;
const MODE: RoundingMode = RoundingMode::ToEven;

thread_local! {
    static CONSTS: RefCell<Consts> = RefCell::new(Consts::new().expect("memory for a few constants"));
}

/// Bernoulli's numbers, from the second on.
const BERNOULLI: [(f64, f64); 15] = [
    (1.0, 6.0),
    (-1.0, 30.0),
    (1.0, 42.0),
    (-1.0, 30.0),
    (5.0, 66.0),
    (-691.0, 2730.0),
    (7.0, 6.0),
    (-3617.0, 510.0),
    (43867.0, 798.0),
    (-174_611.0, 330.0),
    (854_513.0, 138.0),
    (-236_364_091.0, 2730.0),
    (8_553_103.0, 6.0),
    (-23_749_461_029.0, 870.0),
    (8_615_841_276_005.0, 14322.0),
];

/// A number of 192 bits.
#[derive(Clone)]
pub struct Big(BigFloat);

macro_rules! operators {
    ($($trait:ident $method:ident)*) => {$(
        impl $trait for &Big {
            type Output = Big;
            fn $method(self, other: &Big) -> Big {
                Big(BigFloat::$method(&self.0, &other.0, BITS, MODE))
            }
        }
    )*};
}

operators!(Add add Sub sub Mul mul Div div);

macro_rules! functions {
    ($($method:ident)*) => {$(
        pub fn $method(&self) -> Self {
            Self(CONSTS.with_borrow_mut(|c| self.0.$method(BITS, MODE, c)))
        }
    )*};
}

impl Big {
    pub fn of(x: f64) -> Self {
        if x != 0.0 && x.abs() < f64::MIN_POSITIVE {
            // The library misreads subnormal numbers.
            let power = 2.0f64.powi(100);
            return &Self::of(x * power) / &Self(BigFloat::from_f64(power, BITS));
        }
        Self(BigFloat::from_f64(x, BITS))
    }

    functions!(exp ln sin cos tanh tan asin acos atan sinh cosh acosh);

    pub fn sqrt(&self) -> Self {
        Self(self.0.sqrt(BITS, MODE))
    }

    pub fn pow(&self, y: &Self) -> Self {
        (y * &self.ln()).exp()
    }

    pub fn pi() -> Self {
        Self(CONSTS.with_borrow_mut(|c| c.pi(BITS, MODE)))
    }

    pub fn neg(&self) -> Self {
        Self(self.0.neg())
    }

    /// The nearest float64, but for a trace, in a range of exponents that is as good as unlimited.
    fn scaled(&self, exponent: i32) -> f64 {
        let Some((words, _, sign, own, _)) = self.0.as_raw_parts() else { return f64::NAN };
        let top = words.last().copied().unwrap_or(0);
        let fraction = top as f64 / 2.0f64.powi(WORD_BIT_SIZE as i32);
        let value = fraction * 2.0f64.powi((own - exponent).clamp(-1000, 1000));
        if sign == astro_float_num::Sign::Neg { -value } else { value }
    }

    /// The nearest float64, but for a trace.
    pub fn rounded(&self) -> f64 {
        self.scaled(0)
    }

    /// eˣ − 1.
    pub fn expm1(&self) -> Self {
        if self.scaled(0).abs() < 1e-30 {
            return self + &(&(self * self) * &Self::of(0.5));
        }
        &self.exp() - &Self::of(1.0)
    }

    /// log(1 + x).
    pub fn ln_1p(&self) -> Self {
        if self.scaled(0).abs() < 1e-30 {
            return self - &(&(self * self) * &Self::of(0.5));
        }
        (self + &Self::of(1.0)).ln()
    }

    /// The inverse of the hyperbolic sine, for x > 0: log(1 + x + x² / (1 + √(1 + x²))).
    pub fn asinh(&self) -> Self {
        let one = Self::of(1.0);
        let root = &(self * self) + &one;
        (&(&(self * self) / &(&root.sqrt() + &one)) + self).ln_1p()
    }

    /// The inverse of the hyperbolic tangent, for x from 0 to 1.
    pub fn atanh(&self) -> Self {
        &(&(self + self) / &(&Self::of(1.0) - self)).ln_1p() * &Self::of(0.5)
    }

    /// log Γ(x) and its first two derivatives, for x > 0, from 64 on by Stirling's series.
    pub fn gamma(&self) -> [Self; 3] {
        let one = Self::of(1.0);
        let (mut product, mut sum, mut squares, mut y) =
            (one.clone(), Self::of(0.0), Self::of(0.0), self.clone());
        while y.scaled(0) < 64.0 {
            let inverse = &one / &y;
            (sum, squares) = (&sum + &inverse, &squares + &(&inverse * &inverse));
            (product, y) = (&product * &y, &y + &one);
        }
        let (half, inverse, log) = (Self::of(0.5), &one / &y, y.ln());
        let square = &inverse * &inverse;
        let constant = &(&Self::pi() + &Self::pi()).ln() * &half;
        let mut value = &(&(&(&y - &half) * &log) - &y) + &(&constant - &product.ln());
        let mut first = &(&log - &(&inverse * &half)) - &sum;
        let mut second = &(&inverse + &(&square * &half)) + &squares;
        let mut power = inverse;
        for (k, (top, bottom)) in BERNOULLI.iter().enumerate() {
            let term = &power * &(&Self::of(*top) / &Self::of(*bottom));
            let n = 2.0 * k as f64 + 2.0;
            value = &value + &(&term / &Self::of(n * (n - 1.0)));
            power = &power * &square;
            first = &first - &(&(&term / &Self::of(n)) * &(&one / &y));
            second = &second + &(&term * &square);
        }
        [value, first, second]
    }

    /// Φ(−t) for t ≥ 0: one half less a series for small t, a continued fraction beyond.
    pub fn normal_tail(&self) -> Self {
        let half = Self::of(0.5);
        let gauss = &(&(self * self) * &half).neg().exp() / &(&Self::of(2.0) * &Self::pi()).sqrt();
        if self.scaled(0) < 5.0 {
            // t + t³/3 + t⁵/(3·5) + …
            let (mut term, mut sum) = (self.clone(), self.clone());
            for n in 1..150 {
                term = &(&(&term * self) * self) / &Self::of(f64::from(2 * n + 1));
                sum = &sum + &term;
            }
            return &half - &(&gauss * &sum);
        }
        let mut fraction = self.clone();
        for n in (1..120).rev() {
            fraction = self + &(&Self::of(f64::from(n)) / &fraction);
        }
        &gauss / &fraction
    }

    /// The error of a float64 in units in the last place of this number.
    pub fn error(&self, got: f64) -> f64 {
        let exponent = self.0.exponent().unwrap_or(i32::MIN / 2);
        if got.is_infinite() {
            // Beyond the largest float by less than half a unit in the last place rounds to infinity.
            return if exponent > 1024 || self.scaled(1024).abs() > 1.0 - 2.0f64.powi(-53) {
                0.0
            } else {
                got
            };
        }
        let unit = (exponent - 53).max(-1074);
        (&Self::of(got) - self).scaled(unit).abs()
    }
}
