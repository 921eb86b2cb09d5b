//! Random graphs over axes.

use super::families;
use opsmith_body::{
    Axes, Axis, Expr, Graph, Index, Indexed, IndexedMask, Kind, MaskExpr, Scalar, trace_over,
};

/// Numbers that are the same in every run (splitmix64).
pub(super) struct Random {
    state: u64,
    /// Whether there are more sizes, choices, masks, means and divisions.
    pub(super) is_wide: bool,
}

impl Random {
    /// Every second seed is of the wide kind.
    pub(super) fn new(seed: u64) -> Self {
        Self { state: seed, is_wide: seed.is_multiple_of(2) }
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ bits >> 31) % end as u64) as usize
    }

    /// Once in so many times.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// From −2 to 2.
    pub(super) fn number(&mut self) -> f64 {
        self.below(1 << 24) as f64 / f64::from(1 << 22) - 2.0
    }
}

/// A graph, and what its arguments are.
pub(super) struct Made {
    pub(super) graph: Graph,
    pub(super) inputs: Vec<(Axes, Kind)>,
    pub(super) outputs: Vec<(Axes, Kind)>,
    /// Whether sums of small integers are all that there is, so that comparisons do not depend on rounding.
    pub(super) is_exact: bool,
}

#[derive(Clone, Copy)]
struct Known {
    x: Expr,
    axes: Axes,
    /// A number that its magnitude hardly exceeds.
    bound: f64,
}

struct Builder<'a> {
    random: &'a mut Random,
    sizes: &'a [usize],
    is_exact: bool,
    /// Whether inputs are such that numbers are often equal but for rounding.
    has_ties: bool,
    pool: Vec<Known>,
}

/// What numbers are divided by: powers of two, and one that is none.
const DIVISORS: [f64; 9] = [0.5, 2.0, 4.0, -8.0, 16.0, 64.0, 1024.0, 0.125, 3.0];

pub(super) const NAMES: [&str; 4] = ["i", "j", "k", "l"];

/// A graph over axes of these sizes.
pub(super) fn graph(random: &mut Random, sizes: &[usize]) -> Made {
    let is_exact = random.one_in(2);
    let axes = |random: &mut Random| {
        let all = (0..sizes.len()).filter(|_| random.below(10) < 6);
        Axes::at(&all.collect::<Vec<_>>())
    };
    let order = random.below(5).min(3).saturating_sub(1);
    if sizes.len() > 2 && random.one_in(4) {
        return derived(families::graph(random, sizes), order);
    }
    let has_kinds = order == 0 && random.one_in(3);
    let inputs: Vec<(Axes, Kind)> = (0..1 + random.below(4))
        .map(|_| {
            let kind =
                if has_kinds { random.of(&[Kind::Number, Kind::Index, Kind::Mask]) } else { Kind::Number };
            (axes(random), kind)
        })
        .collect();
    let outputs: Vec<(Axes, Kind)> = (0..1 + random.below(3))
        .map(|_| {
            let kind =
                if has_kinds { random.of(&[Kind::Number, Kind::Index, Kind::Mask]) } else { Kind::Number };
            (axes(random), kind)
        })
        .collect();
    let named = |names: [&'static str; 4], all: &[(Axes, Kind)]| {
        names.into_iter().zip(all).map(|(name, (axes, _))| (name, *axes)).collect::<Vec<_>>()
    };
    let (given, results) = (named(["a", "b", "c", "d"], &inputs), named(["w", "x", "y", "z"], &outputs));
    let graph = trace_over(&NAMES[..sizes.len()], &given, &results, |x| {
        let pool = x.iter().zip(&inputs).map(|(x, (axes, _))| Known { x: *x, axes: *axes, bound: 3.0 });
        let mut builder =
            Builder { sizes, is_exact, has_ties: has_kinds && !is_exact, pool: pool.collect(), random };
        for _ in 0..3 + builder.random.below(12) {
            let new = builder.any();
            let new = builder.bounded(new);
            builder.pool.push(new);
        }
        let mut done: Vec<Known> = Vec::new();
        for (axes, kind) in &outputs {
            let has_log = !is_exact && *kind == Kind::Number && builder.random.one_in(4);
            let output = if has_log { builder.logarithm(*axes, &done) } else { builder.output(*axes, *kind) };
            done.push(output);
        }
        done.into_iter().map(|output| output.x).collect()
    });
    derived(Made { graph, inputs, outputs, is_exact }, order)
}

/// The gradient so often.
fn derived(mut made: Made, order: usize) -> Made {
    for _ in 0..order {
        let graph = made.graph.gradient();
        if graph.nodes().len() > 400 {
            break;
        }
        let inputs = made.inputs.iter().chain(&made.outputs).copied().collect();
        made = Made { graph, outputs: made.inputs, inputs, is_exact: made.is_exact };
    }
    made
}

impl Builder<'_> {
    fn pick(&mut self) -> Known {
        // What is new more often.
        let count = self.pool.len();
        let position = self.random.below(count).max(self.random.below(count));
        self.pool[position]
    }

    fn axis(&mut self) -> Axis {
        Axis::new(self.random.below(self.sizes.len()))
    }

    fn constant(&mut self) -> Known {
        let number = if self.is_exact { self.random.below(5) as f64 - 2.0 } else { self.random.number() };
        Known { x: Expr::of(number), axes: Axes::NONE, bound: number.abs() }
    }

    fn any(&mut self) -> Known {
        match self.random.below(if self.random.is_wide { 28 } else { 21 }) {
            21..=23 => self.select(),
            24..=25 => self.over_count(),
            26 if !self.is_exact => {
                let (a, by) = (self.pick(), self.random.of(&DIVISORS));
                Known { x: a.x / Expr::of(by), axes: a.axes, bound: a.bound / by.abs() }
            }
            27 if !self.is_exact => {
                let (a, axis) = (self.pick(), self.axis());
                Known { x: a.x.mean(axis), axes: a.axes.without(axis), bound: a.bound }
            }
            0..=3 => self.unary(),
            4..=9 => self.binary(),
            10..=11 => self.select(),
            12..=16 => {
                let a = self.pick();
                self.fold(a)
            }
            17 => self.position(),
            18 => self.nearest(),
            19 => {
                let (axis, is_count) = (self.axis(), self.random.one_in(2));
                let size = self.sizes[axis.index()] as f64;
                match is_count {
                    true => Known { x: Expr::count(axis), axes: Axes::NONE, bound: size },
                    false => Known { x: Expr::index(axis).number(), axes: Axes::of(axis), bound: size },
                }
            }
            _ => self.constant(),
        }
    }

    fn unary(&mut self) -> Known {
        let Known { x, axes, bound } = self.pick();
        let half = Expr::of(0.5);
        let (x, bound) = if self.is_exact {
            match self.random.below(5) {
                0 => (-x, bound),
                1 => (x.abs(), bound),
                2 => (x.sign(), 1.0),
                3 => (x.detached(), bound),
                _ => ((x * half).floor(), bound),
            }
        } else {
            match self.random.below(23) {
                0 => (-x, bound),
                1 => (x.exp(), bound.exp()),
                2 => ((x.abs() + half).log(), 2.0 + bound.ln().abs()),
                3 => (x.abs().log1p(), bound),
                4 => (x.expm1(), bound.exp()),
                5 => (x.tanh(), 1.0),
                6 => (x.sigmoid(), 1.0),
                7 => (x.erf(), 1.0),
                8 => (x.normal_cdf(), 1.0),
                9 => (x.normal_pdf(), 1.0),
                10 => (x.softplus(), bound + 1.0),
                11 => (x.sin(), 1.0),
                12 => (x.cos(), 1.0),
                13 => ((x.abs() + half).sqrt(), bound + 1.0),
                14 => ((x.abs() + half).rsqrt(), 2.0),
                15 => (x.abs(), bound),
                16 => (x.sign(), 1.0),
                17 => (x.gelu(), bound),
                18 => (x.gelu_tanh(), bound),
                19 => (x.atan(), 2.0),
                20 => ((x.abs() + half).lgamma(), 2.0 + bound * bound),
                21 => ((x.abs() + half).digamma(), 2.0 + bound),
                _ => (x.detached(), bound),
            }
        };
        Known { x, axes, bound }
    }

    fn binary(&mut self) -> Known {
        let (a, b) = (self.pick(), self.pick());
        let (x, bound) = match self.random.below(if self.is_exact { 8 } else { 11 }) {
            0..=1 => (a.x + b.x, a.bound + b.bound),
            2..=3 => (a.x - b.x, a.bound + b.bound),
            4..=5 => (a.x * b.x, a.bound * b.bound),
            6 => (a.x.max(b.x), a.bound.max(b.bound)),
            7 => (a.x.min(b.x), a.bound.max(b.bound)),
            8 => (a.x / (b.x.abs() + Expr::of(0.5)), 2.0 * a.bound),
            9 => (a.x.pow(b.x), 1e9),
            _ => ((a.x.abs() + Expr::of(0.3)).pow(b.x.sin()), a.bound + 4.0),
        };
        Known { x, axes: a.axes.union(b.axes), bound }
    }

    fn mask(&mut self) -> (MaskExpr, Axes) {
        let (a, b) = (self.pick(), self.pick());
        let axes = a.axes.union(b.axes);
        let mask = match self.random.below(4) {
            0 => a.x.lt(b.x),
            1 => a.x.le(b.x),
            2 => Scalar::eq(a.x, b.x),
            _ => Scalar::ne(a.x, b.x),
        };
        match self.random.below(if self.random.is_wide { 12 } else { 6 }) {
            0 | 6 | 7 => {
                let (other, more) = self.mask();
                (mask & other, axes.union(more))
            }
            8 => {
                let (other, more) = self.mask();
                (!(mask & !other), axes.union(more))
            }
            9 => {
                let (other, more) = self.mask();
                (!(mask | other), axes.union(more))
            }
            10 => (!mask, axes),
            1 => {
                let (other, more) = self.mask();
                (mask | !other, axes.union(more))
            }
            2 => {
                let axis = self.axis();
                (if self.random.one_in(2) { mask.any(axis) } else { mask.all(axis) }, axes.without(axis))
            }
            _ => (mask, axes),
        }
    }

    fn select(&mut self) -> Known {
        let (mask, axes) = self.mask();
        if self.random.one_in(4) {
            return Known { x: mask.number(), axes, bound: 1.0 };
        }
        let (a, b) = (self.pick(), if self.random.one_in(3) { self.constant() } else { self.pick() });
        let axes = axes.union(a.axes).union(b.axes);
        Known { x: Expr::select(mask, a.x, b.x), axes, bound: a.bound.max(b.bound) }
    }

    /// Mostly along one of its axes.
    fn fold(&mut self, a: Known) -> Known {
        let mut axis = self.axis();
        for _ in 0..3 {
            if !a.axes.has(axis) {
                axis = self.axis();
            }
        }
        self.fold_along(a, axis)
    }

    /// A number divided by the size of an axis, or that size.
    fn over_count(&mut self) -> Known {
        let axis = self.axis();
        let size = self.sizes[axis.index()] as f64;
        let a = self.pick();
        match self.is_exact || size == 0.0 {
            true => Known { x: Expr::count(axis), axes: Axes::NONE, bound: size },
            false => Known { x: a.x / Expr::count(axis), axes: a.axes, bound: a.bound },
        }
    }

    fn fold_along(&mut self, a: Known, axis: Axis) -> Known {
        let size = self.sizes[axis.index()] as f64;
        let kinds = match (self.is_exact, self.random.is_wide) {
            (true, _) => 6,
            (false, false) => 8,
            (false, true) => 10,
        };
        let (x, bound) = match self.random.below(kinds) {
            0..=2 => (a.x.sum(axis), a.bound * size),
            3 => (a.x.amax(axis), a.bound),
            4 => (a.x.amin(axis), a.bound),
            // Of numbers that are often 0, and of others about 1.
            5 if self.is_exact => (a.x.min(Expr::of(1.0)).max(Expr::of(-1.0)).prod(axis), 1.0),
            5 => ((a.x * Expr::of(1.0 / (1.0 + a.bound * size)) + Expr::of(1.0)).prod(axis), 3.0),
            6 | 8 | 9 => (a.x.mean(axis), a.bound),
            _ => (a.x.log_sum_exp(axis), a.bound + 5.0),
        };
        Known { x, axes: a.axes.without(axis), bound }
    }

    fn position(&mut self) -> Known {
        let (a, axis) = (self.pick(), self.axis());
        let size = self.sizes[axis.index()] as f64;
        let index = if self.random.one_in(2) { a.x.argmax(axis) } else { a.x.argmin(axis) };
        Known { x: index.number(), axes: a.axes.without(axis), bound: size }
    }

    /// The smallest of some distances, or which it is: the distance is computed twice, and must be the same.
    fn nearest(&mut self) -> Known {
        let (a, b) = (self.random.below(self.pool.len()), self.random.below(self.pool.len()));
        let (a, b) = (self.pool[a], self.pool[b]);
        let (along, among) = (self.axis(), self.axis());
        let squares = (a.x - b.x) * (a.x - b.x);
        let of = squares.sum(along);
        let axes = a.axes.union(b.axes).without(along).without(among);
        let bound = (a.bound + b.bound).powi(2) * self.sizes[along.index()] as f64;
        match if self.has_ties { 2 } else { self.random.below(3) } {
            0 => Known { x: of.argmin(among).number(), axes, bound: self.sizes[among.index()] as f64 },
            1 => {
                let other = (a.x * b.x).sum(along);
                let is_it = Scalar::eq(of, of.amin(among));
                let x = Expr::select(is_it, other, Expr::of(0.0)).sum(among);
                Known { x, axes, bound: bound * self.sizes[among.index()] as f64 }
            }
            _ => Known { x: of.amin(among), axes, bound },
        }
    }

    /// Of small magnitude, so that sums are exact or gradients tame.
    fn bounded(&mut self, a: Known) -> Known {
        let most = if self.is_exact { 3000.0 } else { 8.0 };
        if a.bound <= most {
            return a;
        }
        if self.is_exact {
            return Known { x: a.x.min(Expr::of(3.0)).max(Expr::of(-3.0)), bound: 3.0, ..a };
        }
        match self.random.below(3) {
            0 => Known { x: a.x.tanh(), bound: 1.0, ..a },
            _ => Known { x: a.x * Expr::of(2.0 / a.bound), bound: 2.0, ..a },
        }
    }

    /// An output that says the logarithm of a sum, perhaps beside other outputs.
    fn logarithm(&mut self, axes: Axes, others: &[Known]) -> Known {
        let a = self.pick();
        let weight = if self.random.one_in(4) { self.pick() } else { self.constant() };
        let mut sum = if self.random.one_in(3) { a.x.exp() * weight.x } else { a.x.exp() };
        for axis in a.axes.union(weight.axes).minus(axes).iter() {
            sum = sum.sum(axis);
        }
        let mut x = if self.random.one_in(6) { (Expr::of(2.0) - sum).log() } else { sum.log() };
        for other in others.iter().copied().chain([self.pick()]) {
            if other.axes.is_within(axes) {
                match self.random.below(3) {
                    0 => x = x + other.x,
                    1 => x = x - other.x,
                    _ => {}
                }
            }
        }
        Known { x, axes: a.axes.union(weight.axes).both(axes), bound: 1e9 }
    }

    fn output(&mut self, axes: Axes, kind: Kind) -> Known {
        let mut of = match kind {
            Kind::Number => self.pick(),
            Kind::Mask => {
                let (mask, own) = self.mask();
                Known { x: mask.number(), axes: own, bound: 1.0 }
            }
            Kind::Index => {
                let axis = self.axis();
                match self.random.one_in(3) || self.sizes[axis.index()] == 0 {
                    true => Known { x: Expr::index(axis).number(), axes: Axes::of(axis), bound: 1.0 },
                    false => {
                        let a = self.pick();
                        Known { x: a.x.argmin(axis).number(), axes: a.axes.without(axis), bound: 1.0 }
                    }
                }
            }
        };
        while let Some(axis) = of.axes.minus(axes).iter().next() {
            of = match kind {
                Kind::Number => self.fold_along(of, axis),
                _ => Known { x: of.x.amax(axis).max(Expr::of(0.0)), axes: of.axes.without(axis), bound: 1.0 },
            };
            of = self.bounded(of);
        }
        of
    }
}
