//! Checks whether ClickHouse gets many small inserts. Each insert creates parts, however few rows
//! it has, so members that share a small load multiply the cost of merging.

use milepost_clickhouse::{ClickHouse, Error};

use crate::report::Report;

const SUBJECT: &str = "inserts";
/// Period in seconds in which new parts are counted. The server still lists a part for 8 minutes
/// after merging it, so the count misses no part of this period.
const PERIOD_SECONDS: u64 = 300;
/// Parts a second that ClickHouse can merge without falling behind. The alert
/// `MilepostSmallInserts` has the same limits.
const PARTS_A_SECOND_MAX: u64 = 8;
/// Inserts with fewer rows than this are small. Above this number, larger inserts hardly reduce the
/// cost of a row.
const ROWS_MIN: u64 = 1_000;

/// Counts the recent parts of `positions`, and reports the rate and the size of inserts.
pub(super) async fn check(report: &mut Report, clickhouse: &ClickHouse) -> Result<(), Error> {
    let sql = format!(
        "SELECT count(), sum(rows) FROM system.parts WHERE database = '{}' AND table = 'positions' \
         AND level = 0 AND modification_time > now() - {PERIOD_SECONDS}",
        clickhouse.database
    );
    let rows = clickhouse.query_rows_if_allowed::<2>("reading system.parts", &sql).await?;
    let number = |cell: &String| cell.parse::<u64>().ok();
    let found = rows.and_then(|rows| match rows.first() {
        Some([parts, rows]) => number(parts).zip(number(rows)),
        None => None,
    });
    judge(report, found);
    Ok(())
}

/// Reports the rate and the size of inserts. `found`: the number of new parts of `positions`, and
/// the number of their rows; `None` if the user cannot read `system.parts`.
fn judge(report: &mut Report, found: Option<(u64, u64)>) {
    let Some((parts, rows)) = found else {
        let advice = "to count new parts, GRANT SELECT ON system.parts";
        return report
            .ok(SUBJECT, format!("not known: this user cannot read system.parts; {advice}"));
    };
    let minutes = PERIOD_SECONDS / 60;
    if parts == 0 {
        return report.ok(SUBJECT, format!("none in the last {minutes} minutes"));
    }
    let rows_each = rows / parts;
    let found = format!(
        "{}.{} a second, with {rows_each} rows on average, in the last {minutes} minutes",
        parts / PERIOD_SECONDS,
        parts * 10 / PERIOD_SECONDS % 10
    );
    if parts > PARTS_A_SECOND_MAX * PERIOD_SECONDS && rows_each < ROWS_MIN {
        report.warning(
            SUBJECT,
            found,
            "run fewer members, or set batch.members_age_max: each insert creates parts to merge, \
             however few rows it has",
        );
    } else {
        report.ok(SUBJECT, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Level;

    #[test]
    fn only_many_small_inserts_are_a_warning() {
        for (found, level, expected) in [
            (Some((4_800, 2_400_000)), Level::Warning, "16.0 a second, with 500 rows on average"),
            (Some((2_430, 2_400_000)), Level::Warning, "8.1 a second, with 987 rows on average"),
            (Some((2_400, 1_200_000)), Level::Ok, "8.0 a second, with 500 rows on average"),
            (Some((4_800, 4_800_000)), Level::Ok, "16.0 a second, with 1000 rows on average"),
            (Some((30, 30)), Level::Ok, "0.1 a second, with 1 rows on average"),
            (Some((0, 0)), Level::Ok, "none in the last 5 minutes"),
            (None, Level::Ok, "not known"),
        ] {
            let mut report = Report::default();
            judge(&mut report, found);
            assert!(report.has_finding(level, SUBJECT, expected), "{found:?}: {report}");
        }
    }
}
