//! What has been stored, as sets of (driver, seq), for stores that are not ClickHouse.
//!
//! Drivers are numbered, and number their fixes `first`, `first` + 1, …; so a driver's set is a run of bits. Memory:
//! an eighth of a byte a fix and 32 bytes a driver.

/// No fleet here is larger, and no driver sends more: other rows are strange.
const DRIVERS_MAX: u32 = 200_000;
const FIXES_MAX: u32 = 1 << 24;

#[derive(Debug, Default)]
pub struct Tally {
    pub(crate) rows: u64,
    /// The first number a driver gives.
    first: u32,
    seen: Vec<Driver>,
    /// Rows whose (driver, seq) was there already.
    again: u64,
    /// Rows no driver of ours can have sent.
    strange: u64,
}

#[derive(Debug, Default, Clone)]
struct Driver {
    bits: Vec<u64>,
    different: u32,
}

/// What was stored against what was sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    pub lost: u64,
    pub duplicates: u64,
    pub never_sent: u64,
}

impl Tally {
    /// Of drivers whose first fix is number `first`.
    pub(crate) fn new(first: u32) -> Self {
        Self { first, ..Self::default() }
    }

    pub(crate) fn add(&mut self, driver_id: &[u8], seq: u32) {
        self.rows += 1;
        let index = seq.checked_sub(self.first).filter(|index| *index < FIXES_MAX);
        let (Some(n), Some(index)) = (number(driver_id).filter(|n| *n < DRIVERS_MAX), index) else {
            self.strange += 1;
            return;
        };
        let n = n as usize;
        if self.seen.len() <= n {
            self.seen.resize(n + 1, Driver::default());
        }
        let driver = &mut self.seen[n];
        let (word, bit) = ((index / 64) as usize, 1_u64 << (index % 64));
        if driver.bits.len() <= word {
            driver.bits.resize(word + 1, 0);
        }
        if driver.bits[word] & bit == 0 {
            driver.bits[word] |= bit;
            driver.different += 1;
        } else {
            self.again += 1;
        }
    }

    /// `sent[n]` is how many fixes driver `n` has sent.
    #[must_use]
    pub fn compare(&self, sent: &[u32]) -> Verdict {
        let mut verdict = Verdict { duplicates: self.again, never_sent: self.strange, ..Verdict::default() };
        for (n, &sent) in sent.iter().enumerate() {
            let stored = self.seen.get(n).map_or(0, |driver| driver.upto(sent));
            verdict.lost += u64::from(sent - stored);
        }
        for (n, driver) in self.seen.iter().enumerate() {
            let sent = sent.get(n).copied().unwrap_or(0);
            verdict.never_sent += u64::from(driver.different - driver.upto(sent));
        }
        verdict
    }
}

impl Driver {
    /// How many of the first `count` fixes are there.
    fn upto(&self, count: u32) -> u32 {
        let (whole, rest) = ((count / 64) as usize, count % 64);
        let full: u32 = self.bits.iter().take(whole).map(|word| word.count_ones()).sum();
        full + self.bits.get(whole).map_or(0, |word| (word & ((1 << rest) - 1)).count_ones())
    }
}

/// The digits an id ends with.
fn number(driver_id: &[u8]) -> Option<u32> {
    let digits = driver_id.rsplit(|byte| *byte == b'-').next()?;
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits.iter().try_fold(0, |n, byte| byte.is_ascii_digit().then(|| n * 10 + u32::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_duplicates_and_inventions_are_told_apart() {
        let mut tally = Tally::new(1);
        for n in 0..3 {
            for seq in 1..=100 {
                tally.add(format!("sim-t-{n}").as_bytes(), seq);
            }
        }
        assert_eq!(tally.compare(&[100, 100, 100]), Verdict::default());
        assert_eq!(tally.compare(&[101, 100, 99]), Verdict { lost: 1, duplicates: 0, never_sent: 1 });
        tally.add(b"sim-t-2", 64);
        tally.add(b"nobody", 1);
        assert_eq!(tally.compare(&[100, 100, 100]), Verdict { lost: 0, duplicates: 1, never_sent: 1 });
        assert_eq!(tally.rows, 302);
    }
}
