//! Random numbers that are functions of a seed and a position, and of nothing else: on any number of threads they are the same.

mod card;
mod normal;
mod philox;

use opsmith::dtype::{bf16, f16, sets};
use opsmith::prelude::*;

use self::card::Draw;
use self::normal::normal;
use self::philox::{GROUP, Stream, draw};
use crate::along::Near;
use crate::card::is_on_card;
use crate::define::ops;
use crate::linear::{self, FLOATS, Facts, Linear, floats_with, last_input};
use crate::parameters::dims;

ops! {
    /// The op `RandomBits`: integers of random bits.
    RandomBits = random_bits();
    /// The op `RandomUniform`: random numbers between two.
    RandomUniform = random_uniform();
    /// The op `RandomNormal`: random numbers of a normal distribution.
    RandomNormal = random_normal();
    /// The op `RandomBernoulli`: random truth values.
    RandomBernoulli = random_bernoulli();
    /// The op `Dropout`: some elements set to zero.
    Dropout = linear::forward::<Dropping>(), with &[linear::gradient::<Dropping>, linear::second::<Dropping>];
}

/// The inputs that say which numbers are drawn.
const SEED: [&str; 2] = ["seed: int64", "offset: int64"];

/// What is said of them.
macro_rules! seed_doc {
    ($words:literal) => {
        concat!("seed: One number, the key of the generator (Philox 4x32-10; Salmon, Moraes, Dror and Shaw, 2011).\n\
         offset: One number, the block of the generator with which it begins. A block has four words of 32 bits, ", $words, ": the next n \
         numbers begin at the offset plus the number of blocks of these.\n")
    };
}

/// A float that is drawn.
trait Drawn: Near {
    /// How many words of 32 bits one takes.
    const WORDS: usize;
    /// The largest number that is less.
    fn below(self) -> Self;
    /// The number in double precision.
    fn wide(self) -> f64;
}

macro_rules! drawn {
    ($($ty:ident, $words:expr;)*) => {$(
        impl Drawn for $ty {
            const WORDS: usize = $words;

            fn below(self) -> Self {
                let (bits, zero) = (self.to_bits(), $ty::near(0.0));
                if self == zero {
                    return -$ty::from_bits(1);
                }
                $ty::from_bits(if self > zero { bits - 1 } else { bits + 1 })
            }

            #[inline(always)]
            fn wide(self) -> f64 {
                num_traits::AsPrimitive::as_(self)
            }
        }
    )*};
}

drawn! {
    f16, 1;
    bf16, 1;
    f32, 1;
    f64, 2;
}

/// A number from 0 up to 1, of 24 or 53 bits.
#[inline(always)]
fn unit(words: &[u32], wide: bool, at: usize) -> f64 {
    if wide {
        (two(words, at) >> 11) as f64 / (1u64 << 53) as f64
    } else {
        f64::from(words[at] >> 8) / f64::from(1 << 24)
    }
}

/// The words of an element of 64 bits, the lower one first.
#[inline(always)]
fn two(words: &[u32], at: usize) -> u64 {
    u64::from(words[2 * at]) | u64::from(words[2 * at + 1]) << 32
}

/// A kernel that draws numbers of a distribution.
macro_rules! kernel {
    ($name:ident { $($attr:ident: $ty:ty),* }, |$self:ident, $context:ident| $compute:expr) => {
        struct $name {
            $($attr: $ty,)*
        }

        impl OpKernel for $name {
            fn new(construction: &mut OpKernelConstruction<'_>) -> Result<Self> {
                Ok($name { $($attr: construction.attr(stringify!($attr))?,)* })
            }

            fn compute(&$self, $context: &mut OpKernelContext<'_>) -> Result<()> {
                $compute
            }
        }
    };
}

kernel!(Bits { dtype: DType }, |self, context| {
    let (shape, cx) = (dims(context, "shape")?, context.compute());
    if is_on_card(context) {
        let words = self.dtype.size() / size_of::<u32>();
        return card::draw(context, &Draw { name: "bits", words, numbers: [0.0; 3] }, None, &shape);
    }
    let stream = Stream::new(context)?;
    let mut output = context.allocate_output(0, &shape)?;
    match self.dtype {
        DType::UInt32 => draw(&cx, stream, output.as_slice_mut::<u32>()?, 1, |_, words, to| {
            to.copy_from_slice(&words[..to.len()]);
        }),
        _ => draw(&cx, stream, output.as_slice_mut::<u64>()?, 2, |_, words, to| {
            to.iter_mut().enumerate().for_each(|(at, to)| *to = two(words, at));
        }),
    }
});

kernel!(Uniform { low: f64, high: f64, dtype: DType }, |self, context| {
    let (shape, cx) = (dims(context, "shape")?, context.compute());
    dispatch!(self.dtype, AnyFloat, |T| {
        let (low, high) = (T::near(self.low), T::near(self.high));
        let (first, width) = (low.wide(), high.wide() - low.wide());
        ensure!(
            low < high && width.is_finite(),
            InvalidArgument for "high",
            "`low` must be less than `high`, as numbers of {} and by no more than such a number says, got {} and {}",
            self.dtype,
            self.low,
            self.high
        );
        let last = high.below();
        if is_on_card(context) {
            let numbers = [first, width, last.wide()];
            return card::draw(context, &Draw { name: "uniform", words: T::WORDS, numbers }, None, &shape);
        }
        let stream = Stream::new(context)?;
        let mut output = context.allocate_output(0, &shape)?;
        draw(&cx, stream, output.as_slice_mut::<T>()?, T::WORDS, |_, words, to| {
            for (at, to) in to.iter_mut().enumerate() {
                // What is rounded up to the end is not in the range.
                let number = T::near(first + width * unit(words, T::WORDS == 2, at));
                *to = if number > last { last } else { number };
            }
        })
    })
});

kernel!(Normal { mean: f64, stddev: f64, dtype: DType }, |self, context| {
    let (mean, stddev) = (self.mean, self.stddev);
    let (shape, cx) = (dims(context, "shape")?, context.compute());
    if is_on_card(context) {
        let (words, numbers) = (if self.dtype == DType::Float64 { 2 } else { 1 }, [mean, stddev, 0.0]);
        return card::draw(context, &Draw { name: "normal", words, numbers }, None, &shape);
    }
    let stream = Stream::new(context)?;
    let mut output = context.allocate_output(0, &shape)?;
    dispatch!(self.dtype, AnyFloat, |T| {
        draw(&cx, stream, output.as_slice_mut::<T>()?, T::WORDS, |_, words, to| {
            let mut numbers = [0.0; GROUP];
            for (at, number) in numbers[..to.len()].iter_mut().enumerate() {
                // In the middle of as many equal parts of the range from 0 to 1: neither 0 nor 1.
                *number = match T::WORDS {
                    2 => ((two(words, at) >> 12) as f64 + 0.5) / (1u64 << 52) as f64,
                    _ => (f64::from(words[at]) + 0.5) / (1u64 << 32) as f64,
                };
            }
            normal(&mut numbers[..to.len()]);
            to.iter_mut().zip(numbers).for_each(|(to, number)| *to = T::near(mean + stddev * number));
        })
    })
});

/// The number below which a word makes a true value of this probability: it is true for `p` of all words.
fn threshold(p: f64) -> u64 {
    (p * (1u64 << 32) as f64).round() as u64
}

/// Whether it is a probability.
fn is_probability(p: f64) -> bool {
    (0.0..=1.0).contains(&p)
}

kernel!(Bernoulli { dtype: DType }, |self, context| {
    let (p, cx) = (context.input("p")?, context.compute());
    if is_on_card(context) {
        let draw = Draw { name: "bernoulli", words: 1, numbers: [0.0; 3] };
        return card::draw(context, &draw, Some(p), p.shape());
    }
    let stream = Stream::new(context)?;
    let mut output = context.allocate_output(0, p.shape())?;
    let thresholds = cx.temp::<u64>(p.num_elements())?;
    dispatch!(p.dtype(), AnyFloat, |T| {
        for (threshold_of, &p) in thresholds.iter_mut().zip(p.as_slice::<T>()?) {
            let p = p.wide();
            ensure!(is_probability(p), InvalidArgument for "p", "`p` must be probabilities from 0 to 1, got {p}");
            *threshold_of = threshold(p);
        }
        Ok(())
    })?;
    let is_true = |first: usize, words: &[u32], at: usize| u64::from(words[at]) < thresholds[first + at];
    match self.dtype {
        DType::Bool => draw(&cx, stream, output.as_slice_mut::<bool>()?, 1, |first, words, to| {
            to.iter_mut().enumerate().for_each(|(at, to)| *to = is_true(first, words, at));
        }),
        dtype => dispatch!(dtype, RealNumber, |T| {
            let [zero, one]: [T; 2] = [num_traits::Zero::zero(), num_traits::One::one()];
            draw(&cx, stream, output.as_slice_mut::<T>()?, 1, |first, words, to| {
                let each = to.iter_mut().enumerate();
                each.for_each(|(at, to)| *to = if is_true(first, words, at) { one } else { zero });
            })
        }),
    }
});

struct Dropping {
    p: f64,
}

impl Dropping {
    fn drop(&self, context: &OpKernelContext<'_>, x: TensorView<'_>) -> Result<()> {
        let p = self.p;
        let (below, scale) = (threshold(p), 1.0 / (1.0 - p));
        if is_on_card(context) {
            let draw = Draw { name: "dropout", words: 1, numbers: [p, scale, 0.0] };
            return card::draw(context, &draw, Some(x), x.shape());
        }
        let stream = Stream::new(context)?;
        let mut output = context.allocate_output(0, x.shape())?;
        dispatch!(x.dtype(), AnyFloat, |T| {
            let x = x.as_slice::<T>()?;
            draw(&context.compute(), stream, output.as_slice_mut::<T>()?, 1, |first, words, to| {
                let x = &x[first..first + to.len()];
                for ((to, &x), &word) in to.iter_mut().zip(x).zip(words) {
                    let kept = T::near(x.wide() * scale);
                    *to = if u64::from(word) < below { T::default() } else { kept };
                }
            })
        })
    }
}

impl Linear for Dropping {
    const FACTS: Facts = Facts {
        name: "Dropout",
        x: "x",
        attrs: &["p: float >= 0 <= 1 = 0.5"],
        dtypes: FLOATS,
        parameters: &SEED,
        host: &[],
        dims: &[],
        doc: concat!(
            "Each element with probability `p` set to zero, else divided by 1 - p. Which ones are zero is a function of seed, offset and \
             position: the gradient has them too.\n\n\
             x: Any numbers.\n",
            seed_doc!("each element takes one"),
            "p: The probability, from 0 to 1.\n\
             y: Of the same shape."
        ),
        shape: |c| {
            one_number_each(c, 1)?;
            c.input(0)
        },
    };
    const STRIDED: bool = false;
    const ON_CARD: [fn(DType) -> bool; 2] = [linear::is_float; 2];

    fn new(construction: &OpKernelConstruction<'_>) -> Result<Self> {
        Ok(Dropping { p: construction.attr("p")? })
    }

    fn forward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        self.drop(context, context.input(0)?)
    }

    fn backward(&self, context: &OpKernelContext<'_>) -> Result<()> {
        self.drop(context, last_input(context, context.input_shape(0)?)?)
    }

    fn kernels() -> Vec<KernelDef> {
        floats_with::<linear::Forward<Self>>(false).collect()
    }
}

/// The inputs from `first` on are seed and offset: one number each, in whatever shape.
fn one_number_each(c: &InferenceContext<'_>, first: usize) -> Result<()> {
    for index in [first, first + 1] {
        let shape = c.input(index)?;
        if let Some(shape) = shape.to_known()
            && shape.iter().product::<usize>() != 1
        {
            let name = &c.signature().inputs[index].name;
            return Err(c
                .error(format!("input `{name}` must have one element, got shape {shape:?}"))
                .naming(name));
        }
    }
    Ok(())
}

/// An op whose output has the shape that input 0 holds.
fn of_shape<K: OpKernel>(name: &str, attrs: &[&str], dtypes: &str, doc: &str, attrs_doc: &str) -> OpDef {
    let def = attrs.iter().fold(OpDef::new(name), |def, attr| def.attr(attr));
    let def =
        def.attr(&format!("dtype: {dtypes}")).attr("Index: {int32, int64} = DT_INT64").input("shape: Index");
    SEED.iter()
        .fold(def, |def, input| def.input(input))
        .output("y: dtype")
        .doc(&format!(
            "{doc} Each is a function of seed, offset and position, on any number of threads.\n\n\
             shape: The shape, a vector.\n{}{attrs_doc}dtype: The dtype of the result.\ny: Of that shape.",
            seed_doc!("a float64 or an integer of 64 bits takes two, any other element one")
        ))
        .shape_fn(|c| {
            one_number_each(c, 1)?;
            let shape = c.shape_from_input(0)?;
            c.set_output(0, shape)
        })
        .not_differentiable()
        .kernel(KernelDef::cpu::<K>())
        .kernel(KernelDef::cuda::<K>().host_memory("shape"))
}

const FLOATS_OR_FLOAT32: &str = "{float16, bfloat16, float32, float64} = DT_FLOAT";

fn random_bits() -> OpDef {
    of_shape::<Bits>("RandomBits", &[], "{uint32, uint64} = DT_UINT32", "Integers of random bits.", "")
}

fn random_uniform() -> OpDef {
    of_shape::<Uniform>(
        "RandomUniform",
        &["low: float = 0.0", "high: float = 1.0"],
        FLOATS_OR_FLOAT32,
        "Random numbers from `low` on and below `high`, all equally likely.",
        "low: The least number.\nhigh: What all are below.\n",
    )
}

fn random_normal() -> OpDef {
    of_shape::<Normal>(
        "RandomNormal",
        &["mean: float > -inf < inf = 0.0", "stddev: float >= 0 < inf = 1.0"],
        FLOATS_OR_FLOAT32,
        "Random numbers of a normal distribution: its quantiles (Wichura, 1988) of uniform numbers.",
        "mean: The mean.\nstddev: The standard deviation.\n",
    )
}

fn random_bernoulli() -> OpDef {
    let def = OpDef::new("RandomBernoulli").attr(
        "dtype: {bool, float16, bfloat16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64} = DT_BOOL",
    );
    let def = def.attr(&format!("T: {FLOATS}")).input("p: T");
    SEED.iter()
        .fold(def, |def, input| def.input(input))
        .output("y: dtype")
        .doc(concat!(
            "Random truth values, or 1 and 0 in their place: each is true with a probability of its own. It is a function of seed, offset and \
             position, on any number of threads.\n\n\
             p: The probabilities, from 0 to 1. On a card what is less counts as 0 and what is more as 1.\n",
            seed_doc!("each element takes one"),
            "dtype: The dtype of the result.\ny: Of the shape of `p`."
        ))
        .shape_fn(|c| {
            one_number_each(c, 1)?;
            shape_fns::unchanged(c)
        })
        .not_differentiable()
        .kernels(sets::ANY_FLOAT.iter().map(|&dtype| KernelDef::cpu::<Bernoulli>().dtype_constraint("T", dtype)))
        .kernels(crate::card::kernels::<Bernoulli>(linear::is_float))
}

#[cfg(test)]
mod tests {
    use opsmith::ndarray::{Array1, arr0};
    use opsmith::{infer_error, infer_ok, testing};

    use super::*;

    fn drawn(call: testing::Call<'_>, count: i64, seed: i64, offset: i64) -> Result<Array1<f64>> {
        let (shape, seed, offset) = (array![count], arr0(seed), arr0(offset));
        let outputs = call.input(&shape).input(&seed).input(&offset).attr("dtype", DType::Float64).run()?;
        outputs.array::<f64, Ix1>("y")
    }

    #[test]
    fn numbers_go_on_where_others_end() -> Result<()> {
        let whole = drawn(testing::call::<RandomNormal>(), 300, 5, -3)?;
        let rest = drawn(testing::call::<RandomNormal>(), 100, 5, -3 + 100)?;
        assert_eq!(whole.slice(s![200..]), rest);
        assert_ne!(drawn(testing::call::<RandomNormal>(), 300, 6, -3)?, whole);
        // Elements that are kept or not take one word, four of them a block, in float64 too.
        let (ones, seed) = (Array1::from_elem(32, 1f64), arr0(5i64));
        let kept = |offset: i64| {
            let offset = arr0(offset);
            let call = testing::call::<Dropout>().input(&ones).input(&seed).input(&offset);
            let truth =
                testing::call::<RandomBernoulli>().input(&(&ones * 0.5)).input(&seed).input(&offset).run()?;
            Ok::<_, Error>((call.run()?.array::<f64, Ix1>("y")?, truth.array::<bool, Ix1>("y")?))
        };
        let (first, second) = (kept(0)?, kept(4)?);
        assert_eq!(first.0.slice(s![16..]), second.0.slice(s![..16]));
        assert_eq!(first.1.slice(s![16..]), second.1.slice(s![..16]));
        Ok(())
    }

    #[test]
    fn numbers_are_in_their_range_in_every_dtype() -> Result<()> {
        let (shape, seed) = (array![100_000i64], arr0(1i64));
        for dtype in sets::ANY_FLOAT {
            let call = testing::call::<RandomUniform>().input(&shape).input(&seed).input(&seed);
            let outputs = call.attr("dtype", *dtype).attr("low", -1.0).attr("high", 2.0).run()?;
            dispatch!(*dtype, AnyFloat, |T| {
                let y = outputs.array::<T, Ix1>("y")?;
                assert!(y.iter().all(|&y| (-1.0..2.0).contains(&y.wide())), "{dtype}");
                let mean = y.iter().map(|&y| y.wide()).sum::<f64>() / y.len() as f64;
                assert!((mean - 0.5).abs() < 0.02, "{dtype} {mean}");
                Ok(())
            })?;
        }
        Ok(())
    }

    #[test]
    fn what_is_dropped_is_a_function_of_the_seed() -> Result<()> {
        let (x, seed, offset) = (Array1::from_elem(10_000, 3f32), arr0(9i64), array![[2i64]]);
        let of = |p: f64| {
            let call = testing::call::<Dropout>().input(&x).input(&seed).input(&offset).attr("p", p);
            call.run()?.array::<f32, Ix1>("y")
        };
        let y = of(0.25)?;
        assert!(y.iter().all(|&y| y == 0.0 || y == 4.0));
        let dropped = y.iter().filter(|&&y| y == 0.0).count();
        assert!((2300..2700).contains(&dropped), "{dropped}");
        let gradient = testing::Call::new(Dropout::COMPANIONS[0]()).input(&x).input(&seed).input(&offset);
        assert_eq!(gradient.input(&x).attr("p", 0.25).run()?.array::<f32, Ix1>("x_grad")?, y);
        assert_eq!(of(0.0)?, x);
        assert_eq!(of(1.0)?, Array1::<f32>::zeros(10_000));
        assert!(of(1.5).unwrap_err().message().contains("attribute `p` must be at most 1.0, got 1.5"));
        Ok(())
    }

    #[test]
    fn what_is_no_distribution_or_seed_is_an_error() {
        let attempt = |call: testing::Call<'_>| drawn(call, 3, 1, 1).unwrap_err().message().to_owned();
        let uniform = testing::call::<RandomUniform>;
        assert!(attempt(uniform().attr("low", 1.0)).contains("`low` must be less than `high`"));
        assert!(attempt(uniform().attr("high", f64::NAN)).contains("`low` must be less"));
        assert!(attempt(uniform().attr("low", -1e308).attr("high", 1e308)).contains("`low` must be less"));
        let normal = testing::call::<RandomNormal>;
        assert!(attempt(normal().attr("stddev", -1.0)).contains("`stddev` must be at least 0.0, got -1.0"));
        assert!(
            attempt(normal().attr("stddev", f64::INFINITY)).contains("`stddev` must be below inf, got inf")
        );
        assert!(attempt(normal().attr("mean", f64::NAN)).contains("`mean` must be above -inf, got nan"));
        let (shape, seed, seeds) = (array![2i64], arr0(1i64), array![1i64, 2]);
        let call = uniform().input(&shape).input(&seeds).input(&seed);
        assert_eq!(
            call.run().unwrap_err().message(),
            "RandomUniform: input `seed` must have one element, got shape [2]"
        );
        assert!(uniform().input(&shape).input(&seed).run().is_err());
        let (p, huge) = (array![0.5, 1.5], array![i64::MAX]);
        let error = testing::call::<RandomBernoulli>().input(&p).input(&seed).input(&seed).run().unwrap_err();
        assert!(error.message().contains("`p` must be probabilities from 0 to 1, got 1.5"));
        let error = uniform().input(&huge).input(&seed).input(&seed).run().unwrap_err();
        assert_eq!(error.code(), Code::ResourceExhausted);
        infer_ok!(testing::shapes::<RandomNormal>(), "[3];[];[1]", "[?,?,?]");
        infer_ok!(testing::shapes::<Dropout>(), "[3,?];[];?", "[3,?]");
        infer_error!(testing::shapes::<RandomBernoulli>(), "`offset` must have one element", "[3];[];[2]");
    }
}
