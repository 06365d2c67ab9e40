//! Checks whether ClickHouse gets many small inserts: an insert costs its parts, however few rows
//! it has, so members that share a small load multiply the cost.

use milepost_clickhouse::{ClickHouse, Error};

use crate::report::Report;

const WHAT: &str = "inserts";
/// Period in seconds in which new parts are counted. The server lists a merged part for 8 more
/// minutes, so it lists every new part of this period.
const SECONDS: u64 = 300;
/// Parts a second that ClickHouse merges without falling behind; the alert `MilepostSmallInserts`
/// has the same limits.
const PARTS_A_SECOND_MAX: u64 = 8;
/// Inserts of at least this many rows are as cheap as inserts get.
const ROWS_MIN: u64 = 1_000;

pub(super) async fn check(report: &mut Report, clickhouse: &ClickHouse) -> Result<(), Error> {
    let sql = format!(
        "SELECT count(), sum(rows) FROM system.parts WHERE database = '{}' AND table = 'positions' \
         AND level = 0 AND modification_time > now() - {SECONDS}",
        clickhouse.database
    );
    let rows = clickhouse.ask_if_allowed::<2>("reading system.parts", &sql).await?;
    let number = |cell: &String| cell.parse::<u64>().ok();
    let found = rows.and_then(|rows| match rows.first() {
        Some([parts, rows]) => number(parts).zip(number(rows)),
        None => None,
    });
    judge(report, found);
    Ok(())
}

/// `found`: new parts of `positions` and their rows; `None`: the user cannot read them.
fn judge(report: &mut Report, found: Option<(u64, u64)>) {
    let Some((parts, rows)) = found else {
        let how = "GRANT SELECT ON system.parts shows them";
        return report.ok(WHAT, format!("not known: this user cannot read the new parts; {how}"));
    };
    let minutes = SECONDS / 60;
    if parts == 0 {
        return report.ok(WHAT, format!("none in the last {minutes} minutes"));
    }
    let rows_each = rows / parts;
    let found = format!(
        "{}.{} a second of {rows_each} rows, in the last {minutes} minutes",
        parts / SECONDS,
        parts * 10 / SECONDS % 10
    );
    if parts > PARTS_A_SECOND_MAX * SECONDS && rows_each < ROWS_MIN {
        report.warning(
            WHAT,
            found,
            "an insert costs ClickHouse its parts, however few rows it has: run fewer members, or set batch.members_age_max",
        );
    } else {
        report.ok(WHAT, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;

    #[test]
    fn many_small_inserts_are_a_warning_and_many_large_ones_are_not() {
        for (found, level, words) in [
            (Some((4_800, 2_400_000)), Level::Warning, "16.0 a second of 500 rows"),
            (Some((2_430, 2_400_000)), Level::Warning, "8.1 a second of 987 rows"),
            (Some((2_400, 1_200_000)), Level::Ok, "8.0 a second of 500 rows"),
            (Some((4_800, 4_800_000)), Level::Ok, "16.0 a second of 1000 rows"),
            (Some((30, 30)), Level::Ok, "0.1 a second of 1 rows"),
            (Some((0, 0)), Level::Ok, "none in the last 5 minutes"),
            (None, Level::Ok, "not known"),
        ] {
            let mut report = Report::default();
            judge(&mut report, found);
            assert!(report.finds(level, WHAT, words), "{found:?}: {report}");
        }
    }
}
