//! Digests that keys and checksums are made of: FNV-1a of 128 bits, the same in every release of Rust.

const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A digest in the making.
#[derive(Clone, Copy)]
pub(crate) struct Digest(u128);

impl Digest {
    pub(crate) fn new() -> Digest {
        Digest(OFFSET)
    }

    /// With a part, told apart from its neighbours by its length.
    pub(crate) fn part(self, bytes: &[u8]) -> Digest {
        self.bytes(&(bytes.len() as u64).to_le_bytes()).bytes(bytes)
    }

    fn bytes(self, bytes: &[u8]) -> Digest {
        Digest(bytes.iter().fold(self.0, |hash, &byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)))
    }

    pub(crate) fn finish(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn digests_are_fnvs_and_parts_are_told_apart() {
        assert_eq!(Digest::new().bytes(b"foobar").finish(), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
        let of =
            |parts: &[&str]| parts.iter().fold(Digest::new(), |d, part| d.part(part.as_bytes())).finish();
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["", ""]), of(&[""]));
    }
}
