//! Fingerprints: what the bytes of an input were, from its first one on.

use std::fmt;

use xxhash_rust::xxh3::Xxh3Default;

/// The xxh3-128 of all bytes of an input so far, as a state that can be gone on with.
///
/// ```
/// use gegendruck_checkpoints::Fingerprint;
///
/// let mut fingerprint = Fingerprint::new();
/// fingerprint.update(b"claim_id,");
/// fingerprint.update(b"amount\n");
/// assert_eq!(fingerprint.bytes(), 16);
/// ```
#[derive(Clone)]
pub struct Fingerprint {
    state: Xxh3Default,
    bytes: u64,
}

impl Fingerprint {
    /// The fingerprint of no bytes.
    pub const fn new() -> Fingerprint {
        Fingerprint { state: Xxh3Default::new(), bytes: 0 }
    }

    /// Takes in the bytes that follow.
    pub fn update(&mut self, bytes: &[u8]) {
        self.state.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// How many bytes it covers.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The hash of the bytes so far.
    pub fn value(&self) -> u128 {
        self.state.digest128()
    }
}

impl Default for Fingerprint {
    fn default() -> Fingerprint {
        Fingerprint::new()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({} of {} bytes)", text(self.value()), self.bytes)
    }
}

/// A hash as the ledger writes it: 32 hexadecimal digits.
pub(crate) fn text(value: u128) -> String {
    format!("{value:032x}")
}

/// The hash that a text stands for, if it is one as the ledger writes it.
pub(crate) fn parse(text: &str) -> Option<u128> {
    let digits = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (text.len() == 32 && text.bytes().all(digits)).then(|| u128::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_give_the_fingerprint_of_the_whole() {
        let bytes: Vec<u8> = (0..5_000u32).map(|n| (n * 31 % 251) as u8).collect();
        let whole = xxhash_rust::xxh3::xxh3_128(&bytes);
        for piece in [1, 7, 63, 64, 65, 255, 256, 257, 1_024, 5_000] {
            let mut fingerprint = Fingerprint::new();
            bytes.chunks(piece).for_each(|piece| fingerprint.update(piece));
            assert_eq!((fingerprint.value(), fingerprint.bytes()), (whole, 5_000), "piece {piece}");
        }
    }

    #[test]
    fn only_its_own_form_of_text_is_taken() {
        assert_eq!(parse(&text(u128::MAX / 3)), Some(u128::MAX / 3));
        assert_eq!(parse(&text(0)), Some(0));
        for bad in ["", "0", &"0".repeat(31), &"0".repeat(33), &"A".repeat(32), &"+".repeat(32)] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }
}
