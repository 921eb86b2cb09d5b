//! Short rows, sorted beside one another: vector instructions compare a key of each at a time.

use opsmith::isa::{Isa, Kernel};

use super::keys::{Keyed, Ordered};

/// How many rows: as many as the widest vectors have keys.
pub(super) const ROWS: usize = 8;

/// The longest rows. For longer ones the comparisons of a network, which are more than those of a sort that looks at numbers, cost
/// what vectors save.
pub(super) const LONGEST: usize = 256;

/// Makes and sorts the keys of some rows: for each position the numbers of all of them, and room for as many keys.
pub(super) struct Network<'a, T> {
    pub(super) numbers: &'a [[T; ROWS]],
    pub(super) keys: &'a mut [[u64; ROWS]],
    /// Whether the largest comes first.
    pub(super) turned: bool,
}

impl<T: Ordered> Kernel for Network<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        for (at, (keys, numbers)) in self.keys.iter_mut().zip(self.numbers).enumerate() {
            for (key, number) in keys.iter_mut().zip(numbers) {
                let own = <u64 as Keyed>::new(number.key(), at);
                *key = if self.turned { own.turned() } else { own };
            }
        }
        sort(self.keys);
    }
}

/// Batcher's merge exchange, whose pairs do not follow from the keys.
///
/// Source: Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2 M; names as there.
#[inline(always)]
fn sort(keys: &mut [[u64; ROWS]]) {
    let largest = keys.len().next_power_of_two() / 2;
    let mut p = largest;
    while p > 0 {
        let (mut q, mut r, mut d) = (largest, 0, p);
        loop {
            // All i with i & p = r, p of them at a time.
            let mut begin = r;
            while begin + d < keys.len() {
                let (low, high) = keys[begin..].split_at_mut(d);
                low.iter_mut().take(p).zip(high).for_each(|(low, high)| exchange(low, high));
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

/// Puts the smaller key of each row first.
#[inline(always)]
fn exchange(low: &mut [u64; ROWS], high: &mut [u64; ROWS]) {
    for (low, high) in low.iter_mut().zip(high) {
        (*low, *high) = ((*low).min(*high), (*low).max(*high));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A network that sorts all rows of zeros and ones sorts all rows (Knuth, theorem Z).
    #[test]
    fn rows_of_every_length_are_sorted() {
        for length in 0..=14 {
            let mut rows = 0..1u64 << length;
            while !rows.is_empty() {
                let beside: Vec<u64> = rows.by_ref().take(ROWS).collect();
                let key = |at: usize, row: usize| beside.get(row).map_or(0, |bits| bits >> at & 1);
                let mut keys: Vec<[u64; ROWS]> =
                    (0..length).map(|at| std::array::from_fn(|row| key(at, row))).collect();
                sort(&mut keys);
                for row in 0..ROWS {
                    assert!(keys.is_sorted_by_key(|keys| keys[row]), "{length}: {beside:?}");
                }
            }
        }
        for length in [63, 64, 65, 200, LONGEST] {
            let mut keys: Vec<[u64; ROWS]> = (0..length as u64)
                .map(|at| std::array::from_fn(|row| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 + 2 * row as u64)))
                .collect();
            let mut expected: [Vec<u64>; ROWS] =
                std::array::from_fn(|row| keys.iter().map(|keys| keys[row]).collect());
            expected.iter_mut().for_each(|row| row.sort_unstable());
            sort(&mut keys);
            for (row, expected) in expected.iter().enumerate() {
                assert!(keys.iter().map(|keys| keys[row]).eq(expected.iter().copied()), "{length}");
            }
        }
    }
}
