//! Random numbers that are the same everywhere.

/// SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014; constants as in Vigna's
/// reference implementation (<https://prng.di.unimi.it/splitmix64.c>, public domain). Not for secrets.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    /// Numbers for one subject of one row: the same for the same arguments, whatever was drawn for other rows.
    pub(super) fn of(seed: u64, subject: Subject, row: u64) -> Rng {
        Rng(mix(mix(seed ^ mix(subject as u64)) ^ row))
    }

    /// The next 64 bits.
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number from 0 up to `bound`, without it; 0 if that is 0. By multiplication, as in Lemire, "Fast random integer
    /// generation in an interval", 2019, without his rejection: the bias is below `bound` in 2^64.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True in `parts` of a million cases.
    pub(super) fn chance(&mut self, parts: u64) -> bool {
        self.below(1_000_000) < parts
    }

    /// One of the options.
    pub(super) fn pick<T: Copy>(&mut self, options: &[T]) -> T {
        options[self.below(options.len() as u64) as usize]
    }
}

/// What numbers are drawn for; each has its own, so that a new column changes no other.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject {
    Contract = 1,
    Claim,
    Report,
    Description,
    Places,
    Placement,
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference_implementation() {
        let mut rng = Rng(1_234_567);
        let expected: [u64; 3] =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(std::array::from_fn(|_| rng.next()), expected);
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut rng = Rng::of(1, Subject::Claim, 0);
        assert!((0..10_000).all(|_| rng.below(7) < 7));
        assert_eq!(rng.below(0), 0);
    }
}
