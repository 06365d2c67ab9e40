//! The set of stored fixes, by (driver, seq), for stores that are not ClickHouse.
//!
//! Drivers are numbered, and each driver numbers its fixes `first`, `first` + 1, … The set is
//! therefore an array of bits: the first fix of every driver, then the second fix of every driver,
//! and so on. A fix takes one bit, whatever the number of drivers.

/// Maximum number of bits; they take half a GiB. Rows beyond this limit count as never sent.
const BITS_MAX: u64 = 1 << 32;

/// The stored fixes.
#[derive(Debug, Default)]
pub struct Tally {
    /// Number of all rows, repeated and foreign ones included.
    pub(crate) rows: u64,
    drivers: u32,
    /// Sequence number of each driver's first fix.
    first: u32,
    /// Bit `fix * drivers + driver`.
    bits: Vec<u64>,
    /// Number of distinct fixes that were stored.
    distinct: u64,
    /// Rows whose (driver, seq) was already stored.
    repeated: u64,
    /// Rows that no driver of the load can have sent.
    foreign: u64,
}

/// The differences between the fixes stored and the fixes sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    pub lost: u64,
    pub duplicates: u64,
    pub never_sent: u64,
}

impl Tally {
    /// Creates a tally for `drivers` drivers, whose first fix has the sequence number `first`.
    pub(crate) fn new(drivers: u32, first: u32) -> Self {
        Self { drivers, first, ..Self::default() }
    }

    /// Adds a stored row.
    pub(crate) fn add(&mut self, driver_id: &[u8], seq: u32) {
        self.rows += 1;
        let driver = number(driver_id).filter(|driver| *driver < self.drivers);
        let Some(bit) =
            driver.zip(seq.checked_sub(self.first)).and_then(|(driver, fix)| self.bit(driver, fix))
        else {
            self.foreign += 1;
            return;
        };
        let (word, mask) = (bit / 64, 1_u64 << (bit % 64));
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if self.bits[word] & mask == 0 {
            self.bits[word] |= mask;
            self.distinct += 1;
        } else {
            self.repeated += 1;
        }
    }

    /// Returns the index of a fix's bit; `None` above [`BITS_MAX`]. `fix`: 0 for the first fix.
    fn bit(&self, driver: u32, fix: u32) -> Option<usize> {
        let bit = u64::from(fix) * u64::from(self.drivers) + u64::from(driver);
        usize::try_from(bit).ok().filter(|_| bit < BITS_MAX)
    }

    fn has(&self, driver: u32, fix: u32) -> bool {
        let word =
            self.bit(driver, fix).and_then(|bit| Some(self.bits.get(bit / 64)? >> (bit % 64)));
        word.is_some_and(|word| word & 1 == 1)
    }

    /// Compares the stored fixes with the sent fixes. `sent[n]`: number of fixes of driver `n`.
    #[must_use]
    pub fn compare(&self, sent: &[u32]) -> Verdict {
        let fixes_max = sent.iter().copied().max().unwrap_or(0);
        let mut stored = 0;
        for fix in 0..fixes_max {
            let senders = (0_u32..).zip(sent).filter(|(_, sent)| fix < **sent);
            stored += senders.filter(|(driver, _)| self.has(*driver, fix)).count() as u64;
        }
        let all: u64 = sent.iter().map(|sent| u64::from(*sent)).sum();
        let never_sent = self.foreign + self.distinct - stored;
        Verdict { lost: all - stored, duplicates: self.repeated, never_sent }
    }
}

/// Returns the number at the end of a driver id.
fn number(driver_id: &[u8]) -> Option<u32> {
    let digits = driver_id.rsplit(|byte| *byte == b'-').next()?;
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    digits
        .iter()
        .try_fold(0, |n, byte| byte.is_ascii_digit().then(|| n * 10 + u32::from(byte - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tally_of_ten_million_drivers_takes_one_bit_per_fix() {
        let mut tally = Tally::new(10_000_000, 1);
        tally.add(b"sim-fh-0000000", 1);
        tally.add(b"sim-fh-9999999", 2);
        assert_eq!(tally.bits.len(), 20_000_000 / 64);
        let mut sent = vec![0; 10_000_000];
        (sent[0], sent[9_999_999]) = (1, 2);
        assert_eq!(tally.compare(&sent), Verdict { lost: 1, duplicates: 0, never_sent: 0 });
        tally.add(b"sim-fh-10000000", 1);
        assert_eq!(tally.compare(&sent).never_sent, 1, "there is no such driver");
    }

    #[test]
    fn lost_duplicate_and_unknown_rows_are_distinguished() {
        let mut tally = Tally::new(3, 1);
        for n in 0..3 {
            for seq in 1..=100 {
                tally.add(format!("sim-t-{n}").as_bytes(), seq);
            }
        }
        assert_eq!(tally.compare(&[100, 100, 100]), Verdict::default());
        assert_eq!(
            tally.compare(&[101, 100, 99]),
            Verdict { lost: 1, duplicates: 0, never_sent: 1 }
        );
        tally.add(b"sim-t-2", 64);
        tally.add(b"nobody", 1);
        assert_eq!(
            tally.compare(&[100, 100, 100]),
            Verdict { lost: 0, duplicates: 1, never_sent: 1 }
        );
        assert_eq!(tally.rows, 302);
    }
}
