//! Random bodies: expressions of three inputs, which any number computes and PyTorch reads.

use opsmith_body::{Body, Scalar};

use super::Random;

/// An expression.
#[derive(Clone, Debug)]
pub enum Tree {
    Input(usize),
    Constant(f64),
    Attribute(f64),
    Unary(Function, Box<Tree>),
    Binary(Operation, Box<Tree>, Box<Tree>),
    /// `if a < b { yes } else { no }`.
    Select(Box<[Tree; 4]>),
}

macro_rules! functions {
    ($enum:ident: $($name:ident $text:literal;)*) => {
        #[derive(Clone, Copy, Debug)]
        pub enum $enum {
            $($name),*
        }

        impl $enum {
            const ALL: &[Self] = &[$(Self::$name),*];

            /// Its name in PyTorch, `a` and `b` standing for the arguments.
            fn torch(self) -> &'static str {
                match self {
                    $(Self::$name => $text),*
                }
            }
        }
    };
}

functions! { Function:
    Neg "(-a)";
    Exp "torch.exp(2 * torch.tanh(a))";
    Log "torch.log(torch.abs(a) + 0.5)";
    Log1p "torch.log1p(a * a)";
    Expm1 "torch.expm1(torch.tanh(a))";
    Tanh "torch.tanh(a)";
    Sigmoid "torch.sigmoid(a)";
    Erf "torch.erf(a)";
    NormalCdf "torch.special.ndtr(a)";
    NormalPdf "(torch.exp(-0.5 * a * a) / math.sqrt(2 * math.pi))";
    Softplus "F.softplus(a, threshold=1e9)";
    Sin "torch.sin(a)";
    Cos "torch.cos(a)";
    Sqrt "torch.sqrt(a * a + 0.25)";
    Rsqrt "torch.rsqrt(a * a + 0.25)";
    Abs "torch.abs(a)";
    Sign "torch.sign(a)";
    Floor "torch.floor(a)";
    Elu "F.elu(a)";
    Gelu "F.gelu(a)";
    GeluTanh "F.gelu(a, approximate='tanh')";
    Cube "(a ** 3)";
    Exp2 "torch.exp2(2 * torch.tanh(a))";
    Log2 "torch.log2(torch.abs(a) + 0.5)";
    Log10 "torch.log10(torch.abs(a) + 0.5)";
    Tan "torch.tan(torch.tanh(a))";
    Asin "torch.asin(0.9 * torch.tanh(a))";
    Acos "torch.acos(0.9 * torch.tanh(a))";
    Atan "torch.atan(a)";
    Sinh "torch.sinh(torch.tanh(a))";
    Cosh "torch.cosh(torch.tanh(a))";
    Asinh "torch.asinh(a)";
    Acosh "torch.acosh(a * a + 1.25)";
    Atanh "torch.atanh(0.9 * torch.tanh(a))";
    Lgamma "torch.lgamma(2 * torch.tanh(a) + 2.25)";
    Digamma "torch.digamma(2 * torch.tanh(a) + 2.25)";
    Ceil "torch.ceil(a)";
    Trunc "torch.trunc(a)";
    Round "torch.round(a)";
}

functions! { Operation:
    Add "(a + b)";
    Sub "(a - b)";
    Mul "(a * b)";
    Div "(a / (torch.abs(b) + 0.5))";
    Pow "torch.pow(torch.abs(a) + 0.5, 2 * torch.tanh(b))";
    Min "torch.minimum(a, b)";
    Max "torch.maximum(a, b)";
    Atan2 "torch.atan2(a, torch.abs(b) + 0.5)";
}

impl Function {
    fn apply<S: Scalar>(self, a: S) -> S {
        match self {
            Self::Neg => -a,
            Self::Exp => (a.tanh() * 2.0).exp(),
            Self::Log => (a.abs() + 0.5).log(),
            Self::Log1p => (a * a).log1p(),
            Self::Expm1 => a.tanh().expm1(),
            Self::Tanh => a.tanh(),
            Self::Sigmoid => a.sigmoid(),
            Self::Erf => a.erf(),
            Self::NormalCdf => a.normal_cdf(),
            Self::NormalPdf => a.normal_pdf(),
            Self::Softplus => a.softplus(),
            Self::Sin => a.sin(),
            Self::Cos => a.cos(),
            Self::Sqrt => (a * a + 0.25).sqrt(),
            Self::Rsqrt => (a * a + 0.25).rsqrt(),
            Self::Abs => a.abs(),
            Self::Sign => a.sign(),
            Self::Floor => a.floor(),
            Self::Elu => a.elu(),
            Self::Gelu => a.gelu(),
            Self::GeluTanh => a.gelu_tanh(),
            Self::Cube => a.powi(3),
            Self::Exp2 => (a.tanh() * 2.0).exp2(),
            Self::Log2 => (a.abs() + 0.5).log2(),
            Self::Log10 => (a.abs() + 0.5).log10(),
            Self::Tan => a.tanh().tan(),
            Self::Asin => (a.tanh() * 0.9).asin(),
            Self::Acos => (a.tanh() * 0.9).acos(),
            Self::Atan => a.atan(),
            Self::Sinh => a.tanh().sinh(),
            Self::Cosh => a.tanh().cosh(),
            Self::Asinh => a.asinh(),
            Self::Acosh => (a * a + 1.25).acosh(),
            Self::Atanh => (a.tanh() * 0.9).atanh(),
            Self::Lgamma => (a.tanh() * 2.0 + 2.25).lgamma(),
            Self::Digamma => (a.tanh() * 2.0 + 2.25).digamma(),
            Self::Ceil => a.ceil(),
            Self::Trunc => a.trunc(),
            Self::Round => a.round(),
        }
    }
}

impl Operation {
    fn apply<S: Scalar>(self, a: S, b: S) -> S {
        match self {
            Self::Add => a + b,
            Self::Sub => a - b,
            Self::Mul => a * b,
            Self::Div => a / (b.abs() + 0.5),
            Self::Pow => (a.abs() + 0.5).pow(b.tanh() * 2.0),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::Atan2 => a.atan2(b.abs() + 0.5),
        }
    }
}

impl Tree {
    /// A random expression of a depth.
    pub fn random(random: &mut Random, depth: usize) -> Self {
        let mut pick = |count: usize| (random.bits() % count as u64) as usize;
        let kind = pick(20);
        if depth == 0 || kind == 0 {
            return match pick(6) {
                0 => Self::Constant([-1.0, 0.5, 1.0, 2.0, 0.3][pick(5)]),
                1 => Self::Attribute(0.7),
                _ => Self::Input(pick(3)),
            };
        }
        let (function, operation) = (pick(Function::ALL.len()), pick(Operation::ALL.len()));
        let mut child = || Box::new(Self::random(random, depth - 1));
        match kind {
            1..=9 => Self::Unary(Function::ALL[function], child()),
            10..=17 => Self::Binary(Operation::ALL[operation], child(), child()),
            _ => Self::Select(Box::new(std::array::from_fn(|_| *child()))),
        }
    }

    /// Its value.
    pub fn eval<S: Scalar>(&self, inputs: &[S; 3]) -> S {
        match self {
            Self::Input(k) => inputs[*k],
            Self::Constant(c) => S::of(*c),
            Self::Attribute(value) => S::attr("slope", *value),
            Self::Unary(f, a) => f.apply(a.eval(inputs)),
            Self::Binary(f, a, b) => f.apply(a.eval(inputs), b.eval(inputs)),
            Self::Select(parts) => {
                let [a, b, yes, no] = parts.each_ref().map(|part| part.eval(inputs));
                S::select(a.lt(b), yes, no)
            }
        }
    }

    /// The expression in PyTorch, of tensors `x0`, `x1`, `x2` and a function `c` that makes constants.
    pub fn torch(&self) -> String {
        match self {
            Self::Input(k) => format!("x{k}"),
            Self::Constant(c) | Self::Attribute(c) => format!("c({c:?})"),
            Self::Unary(f, a) => put(f.torch(), &[("a", &a.torch())]),
            Self::Binary(f, a, b) => put(f.torch(), &[("a", &a.torch()), ("b", &b.torch())]),
            Self::Select(parts) => {
                let [a, b, yes, no] = parts.each_ref().map(|part| part.torch());
                format!("torch.where({a} < {b}, {yes}, {no})")
            }
        }
    }
}

/// Puts arguments where a text has their names as words.
fn put(text: &str, arguments: &[(&str, &str)]) -> String {
    let words = text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
    let replaced = words.map(|word| {
        let name = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
        match arguments.iter().find(|(n, _)| *n == name) {
            Some((_, argument)) => format!("{argument}{}", &word[name.len()..]),
            None => word.to_owned(),
        }
    });
    replaced.collect()
}

/// A body of two random expressions.
#[derive(Clone, Debug)]
pub struct RandomBody(pub [Tree; 2]);

impl Body<3, 2> for RandomBody {
    fn eval<S: Scalar>(&self, inputs: [S; 3]) -> [S; 2] {
        [self.0[0].eval(&inputs), self.0[1].eval(&inputs)]
    }
}

/// The same bodies in every run.
pub fn bodies(count: usize) -> Vec<RandomBody> {
    let mut random = Random(2024);
    (0..count).map(|_| RandomBody([Tree::random(&mut random, 4), Tree::random(&mut random, 3)])).collect()
}
