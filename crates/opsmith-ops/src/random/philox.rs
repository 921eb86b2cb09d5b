//! Philox 4x32-10, a generator that turns a key and a counter into four random words: "Parallel random numbers: as easy as 1, 2,
//! 3", Salmon, Moraes, Dror and Shaw, 2011.

use opsmith::isa::{Isa, Kernel, dispatch};
use opsmith::prelude::*;

/// How many elements are drawn at once.
pub(super) const GROUP: usize = 64;
/// How many blocks are made side by side.
const LANES: usize = 16;
const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Which random words: those of a key, from a block on.
#[derive(Clone, Copy)]
pub(super) struct Stream {
    key: [u32; 2],
    offset: u64,
}

impl Stream {
    /// The stream that the inputs `seed` and `offset` say.
    pub(super) fn new(context: &OpKernelContext<'_>) -> Result<Stream> {
        let one = |name| Ok(one_number(context, name)?.as_slice::<i64>()?[0].cast_unsigned());
        let seed: u64 = one("seed")?;
        Ok(Stream { key: [seed as u32, (seed >> 32) as u32], offset: one("offset")? })
    }
}

/// An input that is one number, in whatever shape.
pub(super) fn one_number<'a>(context: &OpKernelContext<'a>, name: &'static str) -> Result<TensorView<'a>> {
    let tensor = context.input(name)?;
    ensure!(
        tensor.num_elements() == 1,
        InvalidArgument for name,
        "input `{name}` must have one element, got shape {:?}",
        tensor.shape()
    );
    Ok(tensor)
}

/// Blocks whose counters follow each other, one behind the other.
struct Blocks<'a> {
    key: [u32; 2],
    first: u64,
    words: &'a mut [u32],
}

impl Kernel for Blocks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Isa>(self) {
        let lanes = self.words.as_chunks_mut::<{ 4 * LANES }>().0;
        for (at, words) in lanes.iter_mut().enumerate() {
            let first = self.first.wrapping_add((at * LANES) as u64);
            let mut made = [[0u32; LANES]; 4];
            #[allow(clippy::needless_range_loop)] // It is of four arrays.
            for lane in 0..LANES {
                let counter = first.wrapping_add(lane as u64);
                let block = block([counter as u32, (counter >> 32) as u32, 0, 0], self.key);
                // One by one, for a loop over lanes is vectorised then.
                made[0][lane] = block[0];
                made[1][lane] = block[1];
                made[2][lane] = block[2];
                made[3][lane] = block[3];
            }
            for (lane, words) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *words = [made[0][lane], made[1][lane], made[2][lane], made[3][lane]];
            }
        }
    }
}

/// The words of a counter.
#[inline(always)]
fn block([mut a, mut b, mut c, mut d]: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let left = u64::from(a) * u64::from(MULTIPLIERS[0]);
        let right = u64::from(c) * u64::from(MULTIPLIERS[1]);
        (a, b, c, d) =
            ((right >> 32) as u32 ^ b ^ key[0], right as u32, (left >> 32) as u32 ^ d ^ key[1], left as u32);
        key = [key[0].wrapping_add(STEPS[0]), key[1].wrapping_add(STEPS[1])];
    }
    [a, b, c, d]
}

/// Makes all elements, each of `per` words, on the threads of the call: `make` is given the position of the first one of a group, its
/// words, and the group.
pub(super) fn draw<Z: Element>(
    cx: &Compute<'_>,
    stream: Stream,
    to: &mut [Z],
    per: usize,
    make: impl Fn(usize, &[u32], &mut [Z]) + Sync,
) -> Result<()> {
    let total = to.len();
    cx.try_parallel_over(ArrayViewMut1::from(to), Axis(0), 2 + per, |range, mut part| {
        let part = part.as_slice_mut().ok_or_else(|| Error::internal("an output is dense"))?;
        let (mut words, mut made) = ([0u32; 2 * GROUP], [Z::default(); GROUP]);
        let mut at = range.start;
        while at < range.end {
            let first = at - at % GROUP;
            let (made, words) = (&mut made[..GROUP.min(total - first)], &mut words[..per * GROUP]);
            let block = stream.offset.wrapping_add((first * per / 4) as u64);
            dispatch(Blocks { key: stream.key, first: block, words: &mut *words });
            make(first, words, made);
            let end = range.end.min(first + made.len());
            part[at - range.start..end - range.start].copy_from_slice(&made[at - first..end - first]);
            at = end;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        // Those that the authors' library, Random123, publishes for `philox4x32 10`.
        assert_eq!(block([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(block([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            block([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn blocks_side_by_side_are_the_same_and_the_counter_carries() {
        let mut words = [0; 8 * LANES];
        let (first, key) = ((1 << 32) - 5, [7, 8]);
        dispatch(Blocks { key, first, words: &mut words });
        for (at, words) in words.as_chunks::<4>().0.iter().enumerate() {
            let counter = first + at as u64;
            assert_eq!(*words, block([counter as u32, (counter >> 32) as u32, 0, 0], key));
        }
    }
}
