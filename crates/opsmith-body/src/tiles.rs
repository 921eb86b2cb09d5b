//! Bodies of two numbers over all pairs of rows: the tiles that pairwise folds and their gradients are made of.

#![allow(
    clippy::needless_range_loop,
    reason = "no closures: only what is inlined, whatever happens, is compiled for the instruction set"
)]

use crate::blocks::{Blocks, Compiled};
use crate::body::{BLOCK, Block, Body};
use crate::dual::Dual;
use crate::element::Element;
use crate::expr::Fold;
use crate::expr::{Graph, trace};
use crate::isa::{Isa, Kernel, Level, dispatch_at};
use crate::scalar::Scalar;
use crate::term::Term;

/// Elements of a row of a tile: 256 or 512 bytes.
pub const TILE: usize = 64;

/// A body of two numbers with the fold of its values over the elements of a pair of rows.
pub trait Pair: Body<2, 1> {
    /// The fold.
    const FOLD: Fold;
    /// Whether the body is long, so that copies of it would cost more code than they win time.
    const LONG: bool = false;
}

/// What one call of [`Tiles`] computes the gradient of, in rows of [`TILE`] elements.
#[derive(Debug)]
pub struct GradientTile<'a, T> {
    /// Rows of the first operand.
    pub x: &'a [[T; TILE]],
    /// Rows of the second operand.
    pub y: &'a [[T; TILE]],
    /// The gradient of the sum of each row of `x` with each row of `y`, row by row.
    pub weights: &'a [T],
    /// What the gradients of the rows of `x` are added to.
    pub x_grads: &'a mut [[T; TILE]],
    /// What the gradients of the rows of `y` are added to.
    pub y_grads: &'a mut [[T; TILE]],
}

/// A [`Pair`] as loops over matrices call it, its type forgotten.
///
/// Its [`Blocks`] are those of the body: two inputs, one output.
pub trait Tiles: Blocks {
    /// The fold.
    fn fold(&self) -> Fold;
    /// The body, traced.
    fn graph(&self) -> Graph;
    /// Folds the terms of rows of `x`, which lie `stride` apart, with the transposed rows of `y`: `folds[r][l]` becomes
    /// its fold with that of `f(x[r * stride + k], y[k][l])` for all `k`.
    ///
    /// # Panics
    /// If `x` is too short.
    fn fold_f32(&self, level: Level, x: &[f32], stride: usize, y: &[[f32; TILE]], folds: &mut [[f32; TILE]]);
    /// The same in float64.
    ///
    /// # Panics
    /// As [`fold_f32`](Self::fold_f32).
    fn fold_f64(&self, level: Level, x: &[f64], stride: usize, y: &[[f64; TILE]], folds: &mut [[f64; TILE]]);
    /// Adds the gradients of the rows of a tile, where the fold is a sum.
    ///
    /// # Panics
    /// If the lengths of the slices do not fit each other, or the fold is no sum.
    fn gradient_f32(&self, level: Level, tile: GradientTile<'_, f32>);
    /// The same in float64.
    ///
    /// # Panics
    /// As [`gradient_f32`](Self::gradient_f32).
    fn gradient_f64(&self, level: Level, tile: GradientTile<'_, f64>);
}

/// A [`Pair`] as [`Tiles`], compiled for every instruction set.
#[derive(Clone, Copy, Debug)]
pub struct Tiled<B>(pub B);

impl<B: Pair + Send + Sync> Blocks for Tiled<B> {
    fn inputs(&self) -> usize {
        2
    }

    fn outputs(&self) -> usize {
        1
    }

    fn eval_f32(&self, level: Level, inputs: &[&[f32; BLOCK]], outputs: &mut [Block<f32>]) {
        Compiled::<_, 2, 1>(&self.0).eval_f32(level, inputs, outputs);
    }

    fn eval_f64(&self, level: Level, inputs: &[&[f64; BLOCK]], outputs: &mut [Block<f64>]) {
        Compiled::<_, 2, 1>(&self.0).eval_f64(level, inputs, outputs);
    }
}

impl<B: Pair + Send + Sync> Tiles for Tiled<B> {
    fn fold(&self) -> Fold {
        B::FOLD
    }

    fn graph(&self) -> Graph {
        trace(&self.0)
    }

    fn fold_f32(&self, level: Level, x: &[f32], stride: usize, y: &[[f32; TILE]], folds: &mut [[f32; TILE]]) {
        dispatch_at(level, FoldTile { body: &self.0, closing: Folded(B::FOLD), x, stride, y, folds });
    }

    fn fold_f64(&self, level: Level, x: &[f64], stride: usize, y: &[[f64; TILE]], folds: &mut [[f64; TILE]]) {
        dispatch_at(level, FoldTile { body: &self.0, closing: Folded(B::FOLD), x, stride, y, folds });
    }

    fn gradient_f32(&self, level: Level, tile: GradientTile<'_, f32>) {
        dispatch_at(level, Gradients { body: &self.0, tile });
    }

    fn gradient_f64(&self, level: Level, tile: GradientTile<'_, f64>) {
        dispatch_at(level, Gradients { body: &self.0, tile });
    }
}

/// Rows and elements of a row that are done at once: as many numbers as there are registers for.
const ROWS: usize = 4;
const STEP: usize = 2;
/// Rows of `y` that are done at once in a gradient.
const COLUMNS: usize = 2;

/// A loop of at most eight turns, written out: what is left to the compiler to unroll it may leave, and then the loop
/// around is not vectorised.
macro_rules! each {
    ($index:ident < $count:ident $body:block) => { each!(@ $index $count $body 0 1 2 3 4 5 6 7) };
    (@ $index:ident $count:ident $body:block $($number:literal)*) => {$(
        if const { $number < $count } {
            let $index: usize = $number;
            $body
        }
    )*};
}

/// What becomes of the folds of a tile.
pub trait Closing<T> {
    /// Brings the folds of a tile's row into `folds`.
    ///
    /// To be `#[inline(always)]`, as everything that is compiled for each instruction set.
    fn close<I: Isa>(&self, row: usize, tile: &[T; TILE], folds: &mut [T; TILE]);
}

/// Folds are folded with what is there.
struct Folded(Fold);

impl<T: Element> Closing<T> for Folded {
    #[inline(always)]
    fn close<I: Isa>(&self, _: usize, tile: &[T; TILE], folds: &mut [T; TILE]) {
        for l in 0..TILE {
            folds[l] = T::store(self.0.of_two(folds[l].load::<I>(), tile[l].load::<I>()));
        }
    }
}

/// Folds the terms of rows of `x`, which lie `stride` apart, with the transposed rows of `y`, as [`Tiles::fold_f32`] does
/// but for what becomes of the folds.
///
/// # Panics
/// If `x` is too short.
#[derive(Debug)]
pub struct FoldTile<'a, B, C, T> {
    /// The body and its fold.
    pub body: &'a B,
    /// What becomes of the folds.
    pub closing: C,
    /// Rows of the first operand.
    pub x: &'a [T],
    /// How far they are apart.
    pub stride: usize,
    /// Rows of the second operand, transposed.
    pub y: &'a [[T; TILE]],
    /// The folds, a row for each row of `x`.
    pub folds: &'a mut [[T; TILE]],
}

impl<B: Pair, C: Closing<T>, T: Element> Kernel for FoldTile<'_, B, C, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let mut row = 0;
        if !B::LONG {
            while row + ROWS <= self.folds.len() {
                let tile = fold_rows::<I, T, B, ROWS, STEP>(
                    self.body,
                    &self.x[row * self.stride..],
                    self.stride,
                    self.y,
                );
                for r in 0..ROWS {
                    self.closing.close::<I>(row + r, &tile[r], &mut self.folds[row + r]);
                }
                row += ROWS;
            }
        }
        while row < self.folds.len() {
            let [tile] =
                fold_rows::<I, T, B, 1, 1>(self.body, &self.x[row * self.stride..], self.stride, self.y);
            self.closing.close::<I>(row, &tile, &mut self.folds[row]);
            row += 1;
        }
    }
}

/// Folds `R` rows, `K` elements at a time, beginning anew: the sums of a tile are short ones.
#[inline(always)]
fn fold_rows<I: Isa, T: Element, B: Pair, const R: usize, const K: usize>(
    body: &B,
    x: &[T],
    stride: usize,
    y: &[[T; TILE]],
) -> [[T; TILE]; R] {
    let mut tile = [[T::store(B::FOLD.identity::<T::Number<I>>()); TILE]; R];
    // Lengths that are seen to agree leave no checks in the loop, where they would hold the units that compute.
    let (steps, rest) = y.as_chunks::<K>();
    let none: &[[T; K]] = &[];
    let mut rows = [none; R];
    for r in 0..R {
        rows[r] = &x[r * stride..][..y.len()].as_chunks::<K>().0[..steps.len()];
    }
    for (step, y) in steps.iter().enumerate() {
        let mut from_x = [[T::Number::<I>::of(0.0); K]; R];
        for r in 0..R {
            for s in 0..K {
                from_x[r][s] = rows[r][step][s].load::<I>();
            }
        }
        fold_step::<I, T, B, R, K>(body, &from_x, y, &mut tile);
    }
    for (k, y) in rest.iter().enumerate() {
        let mut from_x = [[T::Number::<I>::of(0.0)]; R];
        for r in 0..R {
            from_x[r][0] = x[r * stride + steps.len() * K + k].load::<I>();
        }
        fold_step::<I, T, B, R, 1>(body, &from_x, std::array::from_ref(y), &mut tile);
    }
    tile
}

/// `K` elements of `R` rows. The loop over the lanes is the one that is vectorised.
#[inline(always)]
fn fold_step<I: Isa, T: Element, B: Pair, const R: usize, const K: usize>(
    body: &B,
    from_x: &[[T::Number<I>; K]; R],
    y: &[[T; TILE]; K],
    tile: &mut [[T; TILE]; R],
) {
    for l in 0..TILE {
        each!(r < R {
            let mut fold = tile[r][l].load::<I>();
            each!(s < K {
                let [term] = body.eval([Term::new(from_x[r][s]), Term::new(y[s][l].load::<I>())]);
                fold = match B::FOLD {
                    Fold::Sum => term.add_to(fold),
                    _ => B::FOLD.of_two(fold, term.value()),
                };
            });
            tile[r][l] = T::store(fold);
        });
    }
}

struct Gradients<'a, B, T> {
    body: &'a B,
    tile: GradientTile<'a, T>,
}

impl<B: Pair, T: Element> Kernel for Gradients<'_, B, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let Self { body, mut tile } = self;
        let (rows, columns) = (tile.x.len(), tile.y.len());
        assert!(B::FOLD == Fold::Sum, "the gradient of a largest or smallest term is the graph's");
        let pairs = rows * columns;
        let fits = tile.weights.len() == pairs && tile.x_grads.len() == rows && tile.y_grads.len() == columns;
        assert!(fits, "the slices of a tile fit each other");
        let mut row = 0;
        if !B::LONG {
            while row + ROWS <= rows {
                let mut column = 0;
                while column + COLUMNS <= columns {
                    gradient_step::<I, T, B, ROWS, COLUMNS>(body, &mut tile, row, column);
                    column += COLUMNS;
                }
                while column < columns {
                    gradient_step::<I, T, B, ROWS, 1>(body, &mut tile, row, column);
                    column += 1;
                }
                row += ROWS;
            }
        }
        while row < rows {
            for column in 0..columns {
                gradient_step::<I, T, B, 1, 1>(body, &mut tile, row, column);
            }
            row += 1;
        }
    }
}

/// `R` rows by `C` columns.
#[inline(always)]
fn gradient_step<I: Isa, T: Element, B: Pair, const R: usize, const C: usize>(
    body: &B,
    tile: &mut GradientTile<'_, T>,
    row: usize,
    column: usize,
) {
    let zero = T::Number::<I>::of(0.0);
    let mut weights = [[zero; C]; R];
    for r in 0..R {
        for c in 0..C {
            let pair = (row + r) * tile.y.len() + column + c;
            weights[r][c] = tile.weights[pair].load::<I>();
        }
    }
    let (mut x, mut y) = ([&tile.x[row]; R], [&tile.y[column]; C]);
    let (mut x_grads, mut y_grads) = ([Lanes([T::default(); TILE]); R], [Lanes([T::default(); TILE]); C]);
    for r in 0..R {
        x[r] = &tile.x[row + r];
        x_grads[r].0 = tile.x_grads[row + r];
    }
    for c in 0..C {
        y[c] = &tile.y[column + c];
        y_grads[c].0 = tile.y_grads[column + c];
    }
    for l in 0..TILE {
        let (mut by_x, mut by_y) = ([zero; R], [zero; C]);
        each!(r < R { by_x[r] = x_grads[r].0[l].load::<I>(); });
        each!(c < C { by_y[c] = y_grads[c].0[l].load::<I>(); });
        each!(r < R {
            each!(c < C {
                let inputs = [x[r][l].load::<I>(), y[c][l].load::<I>()];
                let [x_term, y_term] = partials(body, inputs, weights[r][c]);
                by_x[r] = x_term.add_to(by_x[r]);
                by_y[c] = y_term.add_to(by_y[c]);
            });
        });
        each!(r < R { x_grads[r].0[l] = T::store(by_x[r]); });
        each!(c < C { y_grads[c].0[l] = T::store(by_y[c]); });
    }
    for r in 0..R {
        tile.x_grads[row + r] = x_grads[r].0;
    }
    for c in 0..C {
        tile.y_grads[column + c] = y_grads[c].0;
    }
}

/// A row of gradients in memory that nothing else knows.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Lanes<T>([T; TILE]);

/// What one term adds to the gradients of its two numbers.
#[inline(always)]
fn partials<S: Scalar, B: Pair>(body: &B, [x, y]: [S; 2], weight: S) -> [Term<S>; 2] {
    let [value] = body.eval([Dual::<S, 2>::variable(x, 0), Dual::variable(y, 1)]);
    let mut terms = [Term::new(S::of(0.0)); 2];
    for index in 0..2 {
        terms[index] = Term::new(value.derivative(index)) * Term::new(weight);
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Product;

    impl Body<2, 1> for Product {
        #[inline(always)]
        fn eval<S: Scalar>(&self, [x, y]: [S; 2]) -> [S; 1] {
            [x * y]
        }
    }

    impl Pair for Product {
        const FOLD: Fold = Fold::Sum;
    }

    struct Farthest;

    impl Body<2, 1> for Farthest {
        #[inline(always)]
        fn eval<S: Scalar>(&self, [x, y]: [S; 2]) -> [S; 1] {
            [(x - y).abs()]
        }
    }

    impl Pair for Farthest {
        const FOLD: Fold = Fold::Max;
        const LONG: bool = true;
    }

    /// Small integers, whose sums are exact in any order.
    fn integers(count: usize, factor: usize) -> Vec<f64> {
        (0..count).map(|i| (i * factor % 17) as f64 - 8.0).collect()
    }

    fn rows(values: &[f64]) -> Vec<[f64; TILE]> {
        values.as_chunks().0.to_vec()
    }

    #[test]
    fn a_tile_is_folded_on_every_level() {
        let (depth, stride, count) = (21, 23, 5);
        let (x, y) = (integers(count * stride, 5), rows(&integers(depth * TILE, 7)));
        let term = |r: usize, l: usize, k: usize| (x[r * stride + k], y[k][l]);
        for level in Level::available() {
            let mut sums = vec![[3.0; TILE]; count];
            Tiled(Product).fold_f64(level, &x, stride, &y, &mut sums);
            let mut largest = vec![[-1.0; TILE]; count];
            Tiled(Farthest).fold_f64(level, &x, stride, &y, &mut largest);
            for (r, l) in (0..count).flat_map(|r| (0..TILE).map(move |l| (r, l))) {
                let terms = || (0..depth).map(|k| term(r, l, k));
                assert_eq!(sums[r][l], 3.0 + terms().map(|(x, y)| x * y).sum::<f64>());
                assert_eq!(largest[r][l], terms().map(|(x, y)| (x - y).abs()).fold(-1.0, f64::max));
            }
        }
    }

    #[test]
    fn nan_is_the_largest() {
        let x = [f64::NAN, 1.0, 2.0, f64::NAN];
        for level in Level::available() {
            let mut largest = [[0.0; TILE]; 2];
            Tiled(Farthest).fold_f64(level, &x, 2, &[[0.0; TILE]; 2], &mut largest);
            assert!(largest.as_flattened().iter().all(|l| l.is_nan()));
        }
    }

    #[test]
    fn gradients_are_added_on_every_level() {
        let (count, columns) = (5, 7);
        let (x, y) = (rows(&integers(count * TILE, 5)), rows(&integers(columns * TILE, 7)));
        let weights = integers(count * columns, 3);
        for level in Level::available() {
            let (mut x_grads, mut y_grads) = (vec![[1.0; TILE]; count], vec![[2.0; TILE]; columns]);
            let tile = GradientTile {
                x: &x,
                y: &y,
                weights: &weights,
                x_grads: &mut x_grads,
                y_grads: &mut y_grads,
            };
            Tiled(Product).gradient_f64(level, tile);
            for l in 0..TILE {
                for i in 0..count {
                    let sum: f64 = (0..columns).map(|j| weights[i * columns + j] * y[j][l]).sum();
                    assert_eq!(x_grads[i][l], 1.0 + sum);
                }
                for j in 0..columns {
                    let sum: f64 = (0..count).map(|i| weights[i * columns + j] * x[i][l]).sum();
                    assert_eq!(y_grads[j][l], 2.0 + sum);
                }
            }
        }
    }
}
