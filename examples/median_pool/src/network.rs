//! Which elements to compare so that the median of so many comes to its place.
//!
//! Batcher's odd-even merge sort, less all that the median does not depend on. It compares the same places whatever the
//! numbers are, so many windows are done at once, a lane each.

/// A step of a network: the smaller of two elements goes to the first place, the larger to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) low: u16,
    pub(crate) high: u16,
    pub(crate) kept: Kept,
}

/// What of a step is looked at later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    Both,
    Lower,
    Upper,
}

/// The steps after which element `size / 2` of `size` is where it would be if all were sorted.
pub(crate) fn median_network(size: usize) -> Vec<Step> {
    let mut steps = sorting_network(size);
    let mut needed = vec![false; size];
    if let Some(median) = needed.get_mut(size / 2) {
        *median = true;
    }
    let mut kept = Vec::with_capacity(steps.len());
    while let Some((low, high)) = steps.pop() {
        let which = match (needed[low], needed[high]) {
            (false, false) => continue,
            (true, true) => Kept::Both,
            (true, false) => Kept::Lower,
            (false, true) => Kept::Upper,
        };
        (needed[low], needed[high]) = (true, true);
        kept.push(Step { low: low as u16, high: high as u16, kept: which });
    }
    kept.reverse();
    kept
}

/// Knuth, The Art of Computer Programming, volume 3, 5.2.2, algorithm M.
fn sorting_network(size: usize) -> Vec<(usize, usize)> {
    let mut steps = Vec::new();
    let top = size.next_power_of_two() / 2;
    let mut p = top;
    while p > 0 {
        let (mut q, mut r, mut d) = (top, 0, p);
        loop {
            let pairs = (0..size.saturating_sub(d)).filter(|i| i & p == r);
            steps.extend(pairs.map(|i| (i, i + d)));
            if q == p {
                break;
            }
            (d, q, r) = (q - p, q / 2, p);
        }
        p /= 2;
    }
    steps
}

/// A function that finds the median of so many keys by a network that is known to be short.
macro_rules! short_network {
    ($(#[$doc:meta])* $name:ident of $size:literal: $($low:literal $high:literal),*) => {
        $(#[$doc])*
        #[inline(always)]
        pub(crate) fn $name<K: Copy>(
            mut keys: [K; $size],
            lower: impl Fn(K, K) -> K + Copy,
            upper: impl Fn(K, K) -> K + Copy,
        ) -> K {
            $(
                let (a, b) = (keys[$low], keys[$high]);
                (keys[$low], keys[$high]) = (lower(a, b), upper(a, b));
            )*
            keys[$size / 2]
        }
    };
}

short_network! {
    /// Smith, Implementing median filters in XC4000E FPGAs, 1996.
    median_of_9 of 9:
    1 2, 4 5, 7 8, 0 1, 3 4, 6 7, 1 2, 4 5, 7 8, 0 3, 5 8, 4 7, 3 6, 1 4, 2 5, 4 7, 4 2, 6 4, 4 2
}

short_network! {
    /// Devillard, Fast median search: an ANSI C implementation, 1998.
    median_of_25 of 25:
    0 1, 3 4, 2 4, 2 3, 6 7, 5 7, 5 6, 9 10, 8 10, 8 9, 12 13, 11 13, 11 12, 15 16, 14 16, 14 15, 18 19, 17 19, 17 18,
    21 22, 20 22, 20 21, 23 24, 2 5, 3 6, 0 6, 0 3, 4 7, 1 7, 1 4, 11 14, 8 14, 8 11, 12 15, 9 15, 9 12, 13 16, 10 16,
    10 13, 20 23, 17 23, 17 20, 21 24, 18 24, 18 21, 19 22, 8 17, 9 18, 0 18, 0 9, 10 19, 1 19, 1 10, 11 20, 2 20,
    2 11, 12 21, 3 21, 3 12, 13 22, 4 22, 4 13, 14 23, 5 23, 5 14, 15 24, 6 24, 6 15, 7 16, 7 19, 13 21, 15 23, 7 13,
    7 15, 1 9, 3 11, 5 17, 11 17, 9 17, 4 10, 6 12, 7 14, 4 6, 4 7, 12 14, 10 14, 6 7, 10 12, 6 10, 6 17, 12 17, 7 17,
    7 10, 12 18, 7 12, 10 18, 12 20, 10 20, 10 12
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 sequences at a time: bit `i` of key `k` is bit `k` of sequence `64 n + i`.
    fn sequences<const N: usize>(n: u64) -> [u64; N] {
        const LOW: [u64; 6] = [
            0xAAAA_AAAA_AAAA_AAAA,
            0xCCCC_CCCC_CCCC_CCCC,
            0xF0F0_F0F0_F0F0_F0F0,
            0xFF00_FF00_FF00_FF00,
            0xFFFF_0000_FFFF_0000,
            0xFFFF_FFFF_0000_0000,
        ];
        std::array::from_fn(|k| if k < 6 { LOW[k] } else { 0u64.wrapping_sub(n >> (k - 6) & 1) })
    }

    /// Which of the 64 sequences have more than `size / 2` ones, by adding the bits up.
    fn majority(keys: &[u64]) -> u64 {
        let ones = |i: usize| keys.iter().filter(|key| *key >> i & 1 == 1).count();
        (0..64).fold(0, |all, i| all | u64::from(ones(i) > keys.len() / 2) << i)
    }

    #[test]
    fn short_networks_are_right() {
        for n in 0..1 << 3 {
            let keys = sequences::<9>(n);
            assert_eq!(median_of_9(keys, |a, b| a & b, |a, b| a | b), majority(&keys));
        }
        // 64 of each 61 × 64 sequences of 25.
        for n in (0..1 << 19).step_by(61) {
            let keys = sequences::<25>(n);
            assert_eq!(median_of_25(keys, |a, b| a & b, |a, b| a | b), majority(&keys));
        }
    }

    /// The element that the network brings to the median's place.
    fn run(network: &[Step], size: usize, mut elements: u32) -> bool {
        for &Step { low, high, kept } in network {
            let (a, b) = (elements >> low & 1, elements >> high & 1);
            if kept != Kept::Upper {
                elements = elements & !(1 << low) | (a & b) << low;
            }
            if kept != Kept::Lower {
                elements = elements & !(1 << high) | (a | b) << high;
            }
        }
        elements >> (size / 2) & 1 == 1
    }

    /// A network that is right for all sequences of zeros and ones is right for all.
    #[test]
    fn medians_of_zeros_and_ones() {
        for size in 1..=13 {
            let network = median_network(size);
            for elements in 0..1u32 << size {
                let ones = elements.count_ones() as usize;
                assert_eq!(run(&network, size, elements), size - ones <= size / 2, "{elements:b} of {size}");
            }
        }
    }

    #[test]
    fn steps_that_change_nothing_are_left_out() {
        assert!(median_network(1).is_empty());
        assert!(median_network(9).len() < sorting_network(9).len());
        assert_eq!(median_network(2), [Step { low: 0, high: 1, kept: Kept::Upper }]);
    }
}
