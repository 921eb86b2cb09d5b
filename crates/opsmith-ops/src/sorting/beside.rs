//! Short rows, sorted beside one another: vector instructions compare a key of each at a time.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use opsmith_body::Level;

use super::keys::{Keyed, Ordered};

/// How many rows: as many as the widest vectors have keys.
pub(super) const ROWS: usize = 8;

/// The longest rows. For longer ones the comparisons of a network, which are more than those of a sort that looks at numbers, cost
/// what vectors save.
pub(super) const LONGEST: usize = 256;

/// The keys of all rows at a position, as numbers with a sign: AVX2 compares no others.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Keys([i64; ROWS]);

impl Keys {
    pub(super) const NONE: Keys = Keys([0; ROWS]);

    /// The position in its row of the number of which one is.
    pub(super) fn at(self, row: usize) -> usize {
        self.0[row].cast_unsigned().at()
    }
}

/// Whether this processor has vectors that compare keys.
pub(super) fn is_there() -> bool {
    cfg!(target_arch = "x86_64") && Level::best() > Level::Plain
}

/// Makes and sorts the keys of rows, of which the numbers at each position are given; the largest come first if they are `turned`.
/// Nothing is done where [`is_there`] says no.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(super) fn sort<T: Ordered>(numbers: &[[T; ROWS]], keys: &mut [Keys], turned: bool) {
    #[cfg(target_arch = "x86_64")]
    match Level::best() {
        Level::Plain => {}
        // SAFETY: the processor has the level.
        Level::Avx2 => unsafe { with_avx2(numbers, keys, turned) },
        // SAFETY: as above.
        Level::Avx512 => unsafe { with_avx512(numbers, keys, turned) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<T: Ordered>(numbers: &[[T; ROWS]], keys: &mut [Keys], turned: bool) {
    sort_with::<T, Avx2>(numbers, keys, turned);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512dq,avx512bw,avx512vl")]
fn with_avx512<T: Ordered>(numbers: &[[T; ROWS]], keys: &mut [Keys], turned: bool) {
    sort_with::<T, Avx512>(numbers, keys, turned);
}

/// Written with intrinsics: of plain comparisons the compiler makes vectors along positions, which it gathers.
trait Exchange {
    /// Puts the smaller key of each row first.
    fn exchange(low: &mut Keys, high: &mut Keys);
}

/// Only for functions that are compiled for the instruction set.
#[cfg(target_arch = "x86_64")]
struct Avx2;
#[cfg(target_arch = "x86_64")]
struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Exchange for Avx2 {
    #[inline(always)]
    fn exchange(Keys(low): &mut Keys, Keys(high): &mut Keys) {
        for half in 0..2 {
            // SAFETY: four keys of each half are there, aligned; the processor has the instructions.
            unsafe {
                let (to_low, to_high) = (
                    low.as_mut_ptr().cast::<__m256i>().add(half),
                    high.as_mut_ptr().cast::<__m256i>().add(half),
                );
                let (a, b) = (_mm256_load_si256(to_low), _mm256_load_si256(to_high));
                let is_greater = _mm256_cmpgt_epi64(a, b);
                _mm256_store_si256(to_low, _mm256_blendv_epi8(a, b, is_greater));
                _mm256_store_si256(to_high, _mm256_blendv_epi8(b, a, is_greater));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Exchange for Avx512 {
    #[inline(always)]
    fn exchange(Keys(low): &mut Keys, Keys(high): &mut Keys) {
        // SAFETY: eight keys of each are there, aligned; the processor has the instructions.
        unsafe {
            let (to_low, to_high) = (low.as_mut_ptr().cast::<__m512i>(), high.as_mut_ptr().cast::<__m512i>());
            let (a, b) = (_mm512_load_si512(to_low), _mm512_load_si512(to_high));
            _mm512_store_si512(to_low, _mm512_min_epi64(a, b));
            _mm512_store_si512(to_high, _mm512_max_epi64(a, b));
        }
    }
}

#[inline(always)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn sort_with<T: Ordered, E: Exchange>(numbers: &[[T; ROWS]], keys: &mut [Keys], turned: bool) {
    for (at, (keys, numbers)) in keys.iter_mut().zip(numbers).enumerate() {
        for (key, number) in keys.0.iter_mut().zip(numbers) {
            let own = <u64 as Keyed>::new(number.key(), at);
            *key = (if turned { own.turned() } else { own } ^ 1 << 63).cast_signed();
        }
    }
    exchange_all::<E>(keys);
}

/// Batcher's merge exchange, whose pairs do not follow from the keys.
///
/// Source: Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2 M; names as there.
#[inline(always)]
fn exchange_all<E: Exchange>(keys: &mut [Keys]) {
    let largest = keys.len().next_power_of_two() / 2;
    let mut p = largest;
    while p > 0 {
        let (mut q, mut r, mut d) = (largest, 0, p);
        loop {
            // All i with i & p = r, p of them at a time.
            let mut begin = r;
            while begin + d < keys.len() {
                let (low, high) = keys[begin..].split_at_mut(d);
                for (low, high) in low[..p].iter_mut().zip(high) {
                    E::exchange(low, high);
                }
                begin += 2 * p;
            }
            if q == p {
                break;
            }
            (d, q, r) = (q - p, q / 2, p);
        }
        p /= 2;
    }
}

#[cfg(target_arch = "x86_64")]
#[cfg(test)]
mod tests {
    use super::*;

    type Sort = unsafe fn(&[[u16; ROWS]], &mut [Keys], bool);

    /// Sorts rows of which the numbers at each position are given, both ways, and looks at the positions.
    fn check(sort: Sort, numbers: &[[u16; ROWS]]) {
        for turned in [false, true] {
            let mut keys = vec![Keys::NONE; numbers.len()];
            // SAFETY: the processor has the level of the function.
            unsafe { sort(numbers, &mut keys, turned) };
            for row in 0..ROWS {
                let mut expected: Vec<usize> = (0..numbers.len()).collect();
                let number = |&at: &usize| i32::from(numbers[at][row]) * if turned { -1 } else { 1 };
                expected.sort_by_key(number);
                assert!(keys.iter().map(|keys| keys.at(row)).eq(expected), "{numbers:?}");
            }
        }
    }

    /// A network that sorts all rows of zeros and ones sorts all rows (Knuth, theorem Z).
    #[test]
    fn rows_of_every_length_are_sorted() {
        let all: [(Level, Sort); 2] = [(Level::Avx2, with_avx2), (Level::Avx512, with_avx512)];
        for (_, sort) in all.into_iter().filter(|(level, _)| *level <= Level::best()) {
            for length in 0..=10 {
                for first in (0..1u16 << length).step_by(ROWS) {
                    let bit = |at: u16, row: usize| ((first + row as u16) >> at) & 1;
                    let numbers: Vec<_> =
                        (0..length).map(|at| std::array::from_fn(|row| bit(at, row))).collect();
                    check(sort, &numbers);
                }
            }
            for length in [63, 64, 65, 200, LONGEST] {
                let number = |at: usize, row: usize| (at * at * 31 + at * row * 7) as u16 % 997;
                let numbers: Vec<_> =
                    (0..length).map(|at| std::array::from_fn(|row| number(at, row))).collect();
                check(sort, &numbers);
            }
        }
    }
}
