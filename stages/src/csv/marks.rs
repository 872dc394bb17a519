//! Marks: where an input has bytes that may mean something to the splitter.
//!
//! ```text
//!  bytes   7 , 2 0 2 6 - 0 1 - 0 3 , " a " " b " \n 8 , ...
//!  marks     ^                     ^ ^   ^ ^   ^ ^    ^
//!          |<------------- one window of 64 bytes ------->|
//! ```
//!
//! - A window is looked at once, without a branch for each byte; its marks are the bits of one word. Finding the next mark then costs
//!   the same for a field of 2 bytes and for one of 20, which a loop over bytes pays for with a mispredicted branch per field.
//! - Marks outlive the record that they were found in: those of the bytes after it serve the next one.
//! - There is a mark wherever the splitter must look, and there may be more: control bytes below CR have one too.

/// Bytes in a window.
const WINDOW: usize = 64;

/// The marks of a window, and how far the bytes were looked at. Offsets are from the start of the record under way.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    delimiter: u8,
    quote: u8,
    /// Bit `i` is the mark of byte `base + i`; those that were taken are cleared.
    mask: u64,
    /// Where the window begins: below zero if that is in the record before.
    base: isize,
    /// How far the bytes were looked at.
    seen: usize,
}

impl Marks {
    pub(crate) fn new(delimiter: u8, quote: Option<u8>) -> Marks {
        Marks { delimiter, quote: quote.unwrap_or(delimiter), mask: 0, base: 0, seen: 0 }
    }

    /// The next mark. `long_run` is asked for the first offset of interest in the rest of the bytes when a window has none.
    #[inline]
    pub(crate) fn next(
        &mut self,
        bytes: &[u8],
        mut long_run: impl FnMut(&[u8]) -> Option<usize>,
    ) -> Option<usize> {
        while self.mask == 0 {
            let rest = &bytes[self.seen..];
            self.base = self.seen as isize;
            match rest.first_chunk::<WINDOW>() {
                Some(window) => {
                    self.mask = self.marks(window);
                    self.seen += WINDOW;
                    if self.mask == 0 {
                        let rest = &rest[WINDOW..];
                        self.seen += long_run(rest).unwrap_or(rest.len());
                    }
                }
                None if rest.is_empty() => return None,
                None => {
                    // Filled up with a byte that has no mark, unless it is a delimiter or a quote.
                    let mut window = [b' '; WINDOW];
                    window[..rest.len()].copy_from_slice(rest);
                    self.mask = self.marks(&window) & !(u64::MAX << rest.len());
                    self.seen = bytes.len();
                }
            }
        }
        let mark = self.mask.trailing_zeros();
        self.mask &= self.mask - 1;
        Some((self.base + mark as isize) as usize)
    }

    /// Gives back the mark at `at`, which was taken last.
    pub(crate) fn put_back(&mut self, at: usize) {
        self.mask |= 1 << (at as isize - self.base);
    }

    /// The bytes before `at` were cut, or let go: offsets are counted from there.
    #[inline]
    pub(crate) fn advance(&mut self, at: usize) {
        if at > self.seen {
            return self.restart();
        }
        let used = at as isize - self.base;
        if used > 0 {
            self.mask &= u64::MAX.checked_shl(used as u32).unwrap_or(0);
        }
        self.base -= at as isize;
        self.seen -= at;
    }

    /// Nothing of what comes next was looked at.
    pub(crate) fn restart(&mut self) {
        self.mask = 0;
        self.seen = 0;
    }

    /// One bit for each byte that is a delimiter, a quote, a line end, a NUL, or another control byte below CR.
    #[inline]
    fn marks(&self, window: &[u8; WINDOW]) -> u64 {
        let mut flags = [0_u8; WINDOW];
        for (flag, &byte) in flags.iter_mut().zip(window) {
            *flag = u8::from(byte == self.delimiter)
                | u8::from(byte == self.quote)
                | u8::from(byte <= b'\r');
        }
        let (words, _) = flags.as_chunks::<8>();
        // The product moves the lowest bit of byte `i` to bit `i` of the highest byte.
        let gather =
            |word: &[u8; 8]| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        words.iter().rev().fold(0, |mask, word| mask << 8 | gather(word))
    }
}
