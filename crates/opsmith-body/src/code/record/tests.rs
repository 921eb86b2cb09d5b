//! A line gives bit for bit what the functions give that it was recorded from.

use super::*;
use crate::scalar::{Lane, Scalar};

/// A float that lines are interpreted with.
trait Plain: Real<Truth = Lane> {
    fn bits(self) -> u64;
}

impl Plain for f32 {
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Plain for f64 {
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

/// What each operation of a line gives for some inputs, as bits.
fn interpret<T: Plain>(line: &Line, inputs: &[T]) -> Vec<u64> {
    let mut values: Vec<u64> = Vec::with_capacity(line.ops().len());
    for op in line.ops() {
        let value = one(*op, inputs, &values);
        values.push(value);
    }
    values
}

fn one<T: Plain>(op: Op, inputs: &[T], values: &[u64]) -> u64 {
    let bits = |value: Value| values[value.0 as usize];
    let number = |value: Value| T::from_pattern(bits(value));
    let ones = if T::DOUBLE { u64::MAX } else { u64::from(u32::MAX) };
    let mask = |truth: Lane| if truth.0 { ones } else { 0 };
    match op {
        Op::Input(position) => inputs[position as usize].bits(),
        Op::Constant(constant) => T::from_f64(f64::from_bits(constant)).bits(),
        Op::Bits(pattern) => pattern & ones,
        Op::Add(a, b) => (number(a) + number(b)).bits(),
        Op::Sub(a, b) => (number(a) - number(b)).bits(),
        Op::Mul(a, b) => (number(a) * number(b)).bits(),
        Op::Div(a, b) => (number(a) / number(b)).bits(),
        Op::Fma(a, b, c) => number(a).fused(number(b), number(c)).bits(),
        Op::Fms(a, b, c) => number(a).fused(number(b), -number(c)).bits(),
        Op::Fnma(a, b, c) => (-number(a)).fused(number(b), number(c)).bits(),
        Op::Sqrt(a) => number(a).root().bits(),
        Op::Floor(a) => number(a).floor_native().bits(),
        Op::Max(a, b) => bits(if number(b).less(number(a)).0 { a } else { b }),
        Op::Min(a, b) => bits(if number(a).less(number(b)).0 { a } else { b }),
        Op::IsNan(a) => mask(!number(a).equal(number(a))),
        Op::IsNotZero(a) => mask(Lane(number(a).equal(number(a)).0 && !number(a).equal(T::from_f64(0.0)).0)),
        // Of one number there are no others.
        Op::FirstOf(_, a, _) | Op::Quarters(a, _, _) | Op::Permuted(a, _) => bits(a),
        Op::Lt(a, b) => mask(number(a).less(number(b))),
        Op::Le(a, b) => mask(number(a).less_or_equal(number(b))),
        Op::Eq(a, b) => mask(number(a).equal(number(b))),
        Op::And(a, b) => bits(a) & bits(b),
        Op::Or(a, b) => bits(a) | bits(b),
        Op::Xor(a, b) => bits(a) ^ bits(b),
        Op::AndNot(a, b) => !bits(a) & bits(b),
        Op::FmaWhere(m, a, b, c) => match bits(m) {
            0 => bits(c),
            _ => number(a).fused(number(b), number(c)).bits(),
        },
        Op::Select(m, yes, no) => {
            assert!(bits(m) == ones || bits(m) == 0, "a mask is true or false in all bits");
            if bits(m) == ones { bits(yes) } else { bits(no) }
        }
        Op::AddInt(a, b) => bits(a).wrapping_add(bits(b)) & ones,
        Op::ShiftLeft(a, by) => (bits(a) << by) & ones,
        Op::ShiftRight(a, by) => bits(a) >> by,
        Op::Scale(a, b) if T::DOUBLE => {
            let (number, power) = (f64::from_bits(bits(a)), f64::from_bits(bits(b)));
            // So that only the last product is rounded.
            let lift = if power <= 0.0 { 512 } else { -2 };
            (number * 2.0_f64.powi(power as i32 + lift) * 2.0_f64.powi(-lift)).to_bits()
        }
        Op::Scale(a, b) => {
            let [number, power] = [a, b].map(|value| f64::from(f32::from_bits(bits(value) as u32)));
            ((number * 2.0_f64.powi(power as i32)) as f32).to_bits().into()
        }
        Op::OfEight(a, numbers) => u64::from(numbers[(bits(a) & 7) as usize]),
        Op::Angle(turn, far, near, x) => {
            let angle = T::angle(turn, Float::<T, Avx2>::new(number(x)), Float::new(number(near)));
            assert_eq!(bits(far) != 0, T::from_f64(T::FAR).less_or_equal(number(x).magnitude()).0);
            angle.get().bits()
        }
    }
}

/// How many functions `apply` knows.
const FUNCTIONS: usize = 50;

/// A function of a body, by number.
fn apply<S: Scalar>(function: usize, [x, y, z]: [S; 3]) -> S {
    let (zero, one) = (S::of(0.0), S::of(1.0));
    let (below, same) = (x.lt(y), y.eq(z));
    match function {
        0 => x.exp(),
        1 => x.log(),
        2 => x.log1p(),
        3 => x.expm1(),
        4 => x.tanh(),
        5 => x.sigmoid(),
        6 => x.erf(),
        7 => x.normal_cdf(),
        8 => x.normal_pdf(),
        9 => x.gelu(),
        10 => x.gelu_tanh(),
        11 => x.sin(),
        12 => x.cos(),
        13 => x.sqrt(),
        14 => x.rsqrt(),
        15 => x.pow(y),
        16 => x.abs(),
        17 => x.sign(),
        18 => x.floor(),
        19 => x.min(y),
        20 => x.max(y),
        21 => S::select(below, x, z),
        22 => S::select(x.le(y), x, z),
        23 => S::select(same, x, z),
        24 => S::select(x.gt(y), x, zero),
        25 => S::select(x.ge(y), zero, x),
        26 => S::select(x.ne(y), x, S::of(-0.0)),
        27 => x.mul_add(y, z),
        28 => x.elu(),
        29 => x.softplus(),
        30 => x.powi(-5),
        31 => x.powi(0),
        32 => -x,
        33 => (x + y) - z,
        34 => (x * y) / z,
        35 => (x * 0.1 + 0.3) / (y - 0.7),
        36 => S::select(below & same, one, zero),
        37 => S::select(!below & same, one, x),
        38 => S::select(below & !same, zero, x),
        39 => S::select(!below & !same, one, zero),
        40 => S::select(below | same, x, y),
        41 => S::select((!below | same) & x.eq(x), y, x),
        42 => S::select(!below | !same, one, one + one),
        43 => x.atan(),
        44 => x.lgamma(),
        45 => x.digamma(),
        46 => x.atan2(y),
        47 => x.round() + y.trunc(),
        48 => x.sinh() - y.acosh(),
        49 => x.trigamma(),
        _ => unreachable!("there are {FUNCTIONS} functions"),
    }
}

/// Special numbers, and others by the places where functions change, with both signs; and numbers of all sizes.
fn arguments<T: Plain>() -> Vec<T> {
    let edges = [
        0.0,
        T::NORMAL,
        T::LIFT.0,
        T::INTEGERS,
        T::ROUND,
        T::EXP_RANGE.0,
        T::EXP_RANGE.1,
        T::EXPM1_LOW,
        T::EXPM1_LOW * 2.0,
        T::TAIL_END,
        T::TAIL_END * std::f64::consts::FRAC_1_SQRT_2,
        T::GELU_END,
        0.5,
        0.55,
        std::f64::consts::FRAC_1_SQRT_2,
        std::f64::consts::SQRT_2,
        std::f64::consts::LN_2 / 2.0,
        1.0,
        1.5,
        2.0,
        3.0,
        88.72283905206835,
        709.782712893384,
        103.97207708,
        745.13321910194,
        87.336544750553,
        708.396418532264,
        f64::INFINITY,
    ];
    let mut arguments = vec![T::from_f64(f64::NAN), T::from_f64(1e300), T::from_f64(-1e30)];
    for edge in edges {
        let bits = T::from_f64(edge.abs()).bits();
        for near in bits.saturating_sub(4)..bits + 4 {
            arguments.extend([T::from_pattern(near), -T::from_pattern(near)]);
        }
    }
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state ^ (state >> 33)
    };
    for _ in 0..1500 {
        arguments.push(T::from_pattern(next()));
        let unit = (next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        arguments.extend([T::from_f64(unit * 30.0), T::from_f64(unit * 3.0)]);
    }
    arguments
}

/// Whether bits are the same number, all NaN being the same.
fn is_same<T: Plain>(a: u64, b: u64) -> bool {
    let is_nan = |bits| !T::from_pattern(bits).equal(T::from_pattern(bits)).0;
    a == b || (is_nan(a) && is_nan(b))
}

/// Triples of arguments: each is the first of one.
fn triples<T: Plain>() -> impl Iterator<Item = [T; 3]> {
    let arguments = arguments::<T>();
    let len = arguments.len();
    (0..len).map(move |k| {
        let near = if k % 3 == 0 { k } else { k * 7 % len };
        [arguments[k], arguments[near], arguments[if k % 5 == 0 { near } else { k * 31 % len }]]
    })
}

fn functions_of_inputs<T: Plain, const DOUBLE: bool>(scales: bool) {
    for function in 0..FUNCTIONS {
        let mut line = Line::default();
        line.scales = scales;
        let inputs = [0, 1, 2].map(|position| line.push(Op::Input(position)));
        let result = record::<DOUBLE, _>(&mut line, || {
            apply(function, inputs.map(|input| Number::<DOUBLE>::new(input.into()))).get().value()
        });
        for arguments in triples::<T>() {
            let is = interpret(&line, &arguments)[result.0 as usize];
            let expected = apply(function, arguments.map(Float::<T, Avx2>::new)).get().bits();
            assert!(
                is_same::<T>(is, expected),
                "function {function} of {:x?}: {is:x}, not {expected:x}",
                arguments.map(T::bits)
            );
        }
    }
}

fn functions_of_constants<T: Plain, const DOUBLE: bool>(to_f64: fn(T) -> f64) {
    for (k, arguments) in triples::<T>().enumerate().filter(|(k, _)| k % 13 == 0) {
        for function in 0..FUNCTIONS {
            let mut line = Line::default();
            let input = line.push(Op::Input(0));
            let result = record::<DOUBLE, _>(&mut line, || {
                let mut numbers = arguments.map(|argument| Number::<DOUBLE>::of(to_f64(argument)));
                if k % 2 == 0 {
                    numbers[0] = Float::new(input.into());
                }
                apply(function, numbers).get().value()
            });
            let is = interpret(&line, &arguments[..1])[result.0 as usize];
            let expected = apply(function, arguments.map(Float::<T, Avx2>::new)).get().bits();
            assert!(is_same::<T>(is, expected), "function {function} of {:x?}", arguments.map(T::bits));
        }
    }
}

#[test]
fn functions_of_inputs_are_exact() {
    for scales in [false, true] {
        functions_of_inputs::<f32, false>(scales);
        functions_of_inputs::<f64, true>(scales);
    }
}

#[test]
fn functions_of_constants_are_exact() {
    functions_of_constants::<f32, false>(f64::from);
    functions_of_constants::<f64, true>(|x| x);
}

/// The operations that a function of three inputs becomes, after these.
fn ops(function: impl FnOnce([Number<false>; 3]) -> Recorded<false>) -> Vec<Op> {
    let mut line = Line::default();
    let inputs = [0, 1, 2].map(|position| line.push(Op::Input(position)));
    record::<false, _>(&mut line, || function(inputs.map(|input| Float::new(input.into()))).value());
    line.ops()[3..].to_vec()
}

#[test]
fn masks_need_few_operations() {
    let (x, y, z) = (Value(0), Value(1), Value(2));
    let three = Value(3);
    assert_eq!(ops(|[x, y, z]| Scalar::select(x.ne(y), x, z).get()), [Op::Eq(x, y), Op::Select(three, z, x)]);
    assert_eq!(
        ops(|[x, y, _]| Scalar::select(x.lt(y), x, Number::of(0.0)).get()),
        [Op::Lt(x, y), Op::And(three, x)]
    );
    assert_eq!(
        ops(|[x, y, _]| x.min(y).get()),
        [Op::Le(x, y), Op::Eq(x, x), Op::AndNot(three, Value(4)), Op::Select(Value(5), y, x)]
    );
}

#[test]
fn constants_are_computed_at_once() {
    let ops = ops(|[x, _, _]| (x * ((Number::of(0.1) + 0.2) / 3.0).sqrt()).get());
    let expected = ((0.1f32 + 0.2) / 3.0).sqrt();
    assert_eq!(ops, [Op::Constant(f64::from(expected).to_bits()), Op::Mul(Value(0), Value(3))]);
}

#[test]
fn masks_are_vectors_and_back() {
    let mut line = Line::default();
    let given = line.push(Op::Input(0));
    let values = record::<true, _>(&mut line, || {
        let mask = RecordedMask::from(given);
        [mask.value(), (!mask).value(), RecordedMask::Known(true).value()]
    });
    assert_eq!(values[0], given);
    assert_eq!(line.ops()[1..], [Op::Bits(u64::MAX), Op::Xor(given, Value(1))]);
    assert_eq!(values[2], Value(1));
}

#[test]
fn recordings_nest() {
    let (mut outer, mut inner) = (Line::default(), Line::default());
    record::<true, _>(&mut outer, || {
        record::<false, _>(&mut inner, || Number::<false>::of(1.0).get().value());
        Number::<true>::of(2.0).get().value()
    });
    assert_eq!(inner.ops(), [Op::Constant(1f64.to_bits())]);
    assert_eq!(outer.ops(), [Op::Constant(2f64.to_bits())]);
}
