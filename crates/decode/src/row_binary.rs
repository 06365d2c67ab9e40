//! Encodes rows in ClickHouse's RowBinary, and describes the tables that milepost inserts into.
//!
//! RowBinary carries no types. So each column states its type here, and milepost compares the type
//! with the server's.

/// The RowBinary form of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The length as unsigned LEB128, then the bytes.
    Text,
    /// Milliseconds since 1970-01-01 UTC.
    Time,
    /// The number of pairs as unsigned LEB128, then names and values, each a [`Text`](Self::Text).
    Texts,
    /// A number of this ClickHouse type and length in bytes.
    Number(&'static str, usize),
    /// One byte: 1 for NULL, otherwise 0. The value follows only after 0.
    Nullable(&'static Self),
    /// Polygons, each a list of rings, each a list of points: the length of each list as unsigned
    /// LEB128, each point as two Float64.
    Polygons,
    /// Strings: their number as unsigned LEB128, then each as a [`Text`](Self::Text).
    List,
}

const POLYGONS: &str = "Array(Array(Array(Tuple(lng Float64, lat Float64))))";

pub const U16: Kind = Kind::Number("UInt16", 2);
pub const U32: Kind = Kind::Number("UInt32", 4);
pub const U64: Kind = Kind::Number("UInt64", 8);
pub const I32: Kind = Kind::Number("Int32", 4);
const F32: Kind = Kind::Number("Float32", 4);
const F64: Kind = Kind::Number("Float64", 8);

impl Kind {
    /// Returns whether a column of this ClickHouse type accepts such values.
    #[must_use]
    pub fn fits(self, clickhouse_type: &str) -> bool {
        match self {
            Self::Text => matches!(clickhouse_type, "String" | "LowCardinality(String)"),
            Self::Texts => clickhouse_type == "Map(LowCardinality(String), String)",
            Self::Time => clickhouse_type.starts_with("DateTime64(3"),
            Self::Number(name, _) => clickhouse_type == name,
            Self::Polygons => clickhouse_type == POLYGONS,
            Self::List => clickhouse_type == "Array(String)",
            Self::Nullable(kind) => clickhouse_type
                .strip_prefix("Nullable(")
                .and_then(|rest| rest.strip_suffix(')'))
                .is_some_and(|inner| kind.fits(inner)),
        }
    }

    /// Returns the length of the value at the beginning of `bytes`; `None` if it ends early.
    pub fn length(self, bytes: &[u8]) -> Option<usize> {
        let length = match self {
            Self::Time => 8,
            Self::Number(_, bytes) => bytes,
            Self::Text => {
                let (prefix, text) = count_at(bytes)?;
                prefix.checked_add(text)?
            }
            Self::Texts | Self::List => {
                let (mut length, count) = count_at(bytes)?;
                let strings =
                    if matches!(self, Self::List) { count } else { count.checked_mul(2)? };
                for _ in 0..strings {
                    length += Self::Text.length(bytes.get(length..)?)?;
                }
                length
            }
            Self::Nullable(kind) => match bytes.first()? {
                0 => 1 + kind.length(&bytes[1..])?,
                _ => 1,
            },
            Self::Polygons => polygons(bytes)?,
        };
        (length <= bytes.len()).then_some(length)
    }
}

/// Returns the length of the polygons at the beginning of `bytes`.
fn polygons(bytes: &[u8]) -> Option<usize> {
    let (mut length, polygons) = count_at(bytes)?;
    for _ in 0..polygons {
        let (prefix, rings) = count_at(bytes.get(length..)?)?;
        length += prefix;
        for _ in 0..rings {
            let (prefix, points) = count_at(bytes.get(length..)?)?;
            length = length.checked_add(prefix)?.checked_add(points.checked_mul(16)?)?;
        }
    }
    Some(length)
}

/// The table that `milepost events` writes.
pub static EVENTS: Table = Table {
    name: "events",
    columns: &[
        (DRIVER_ID, Kind::Text),
        ("ts", Kind::Time),
        ("seq", U32),
        ("kind", Kind::Text),
        ("fence", Kind::Text),
        ("lat", F64),
        ("lng", F64),
        ("speed", Kind::Nullable(&F32)),
        ("known_at", Kind::Time),
        ("mqtt_at", Kind::Nullable(&Kind::Time)),
        ("webhook_at", Kind::Nullable(&Kind::Time)),
    ],
};

/// The table that `milepost fences` writes.
pub static FENCES: Table = Table {
    name: "fences",
    columns: &[
        ("name", Kind::Text),
        ("valid_from", Kind::Time),
        ("valid_until", Kind::Time),
        ("polygons", Kind::Polygons),
        ("speed_limit_kmh", Kind::Nullable(&F64)),
        ("stay_max_s", Kind::Nullable(&U32)),
        ("silent_for_s", Kind::Nullable(&U32)),
        ("hours", Kind::Nullable(&Kind::Text)),
        ("hours_zone", Kind::Nullable(&Kind::Text)),
        ("drivers", Kind::List),
    ],
};

/// Name of the column with the driver id, in every inserted table whose rows have one driver.
pub const DRIVER_ID: &str = "driver_id";

/// An inserted table with its columns in the order of the insert.
#[derive(Debug)]
pub struct Table {
    pub name: &'static str,
    pub columns: &'static [(&'static str, Kind)],
}

impl Table {
    /// Returns the bytes that the columns of fixed length take in a row: times and numbers.
    pub const fn fixed_bytes(&self) -> usize {
        let (mut bytes, mut column) = (0, 0);
        while column < self.columns.len() {
            bytes += match self.columns[column].1 {
                Kind::Time => 8,
                Kind::Number(_, bytes) => bytes,
                Kind::Text | Kind::Texts | Kind::Nullable(_) | Kind::Polygons | Kind::List => 0,
            };
            column += 1;
        }
        bytes
    }

    /// Returns the INSERT statement.
    pub fn statement(&self, database: &str) -> String {
        let columns: Vec<_> = self.columns.iter().map(|(name, _)| *name).collect();
        format!("INSERT INTO {database}.{} ({}) FORMAT RowBinary", self.name, columns.join(", "))
    }

    /// Returns the end of the INSERT statement, from the dot before the table's name on.
    pub fn statement_end(&self) -> String {
        self.statement("").split_off("INSERT INTO ".len())
    }

    /// Returns the length of the first `rows` rows in `bytes`; `None` if a row is cut off.
    pub fn skip(&self, bytes: &[u8], rows: usize) -> Option<usize> {
        let mut at = 0;
        for _ in 0..rows {
            for (_, kind) in self.columns {
                at += kind.length(&bytes[at..])?;
            }
        }
        Some(at)
    }
}

/// Appends a RowBinary String.
pub fn put_text(text: &[u8], out: &mut Vec<u8>) {
    put_count(text.len(), out);
    out.extend_from_slice(text);
}

/// Appends a number as unsigned LEB128.
pub fn put_count(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(u8::try_from(number & 0x7f).expect("seven bits") | 0x80);
        number >>= 7;
    }
    out.push(u8::try_from(number).expect("less than 0x80"));
}

/// Returns the length and the value of the unsigned LEB128 number at the beginning of `bytes`.
pub fn count_at(bytes: &[u8]) -> Option<(usize, usize)> {
    let prefix = 1 + bytes.iter().take(9).position(|byte| byte & 0x80 == 0)?;
    let digits = bytes[..prefix].iter().rev();
    Some((prefix, digits.fold(0, |value, byte| value << 7 | usize::from(byte & 0x7F))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_fits_only_its_own_type() {
        assert!(
            Kind::Time.fits("DateTime64(3, 'UTC')")
                && !Kind::Time.fits("DateTime64(6)")
                && !U16.fits("Int16")
                && Kind::Texts.fits("Map(LowCardinality(String), String)")
        );
    }
}
