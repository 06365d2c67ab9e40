//! The size of an insert that the way to ClickHouse lets through: a proxy in between may refuse a
//! large one (HTTP 413).

use super::report::Report;
use milepost_clickhouse::ClickHouse;
use milepost_config::Config;
use milepost_core::error_chain;

/// The largest insert that milepost sends.
const WANTED: usize = 8 << 20;
/// Largest row: a reject with its payload.
const ROW: usize = 128 << 10;
/// Smallest insert that is tried, in bytes.
const LEAST: usize = 16 << 10;
const ADVICE: &str = "raise the limit there to 8 MiB (nginx: client_max_body_size 8m; Kubernetes ingress-nginx: proxy-body-size)";

/// Sends bodies without a row, the largest first, each half as large as the one before: 16 MiB at
/// most, and nothing is written.
pub(super) async fn check(report: &mut Report, config: &Config) {
    for url in &config.clickhouse.urls {
        let mut of_one = config.clickhouse.clone();
        of_one.urls = vec![url.clone()];
        let Ok(clickhouse) = ClickHouse::new(&of_one) else { continue };
        let (mut bytes, mut largest) = (WANTED, None);
        while bytes >= LEAST {
            match clickhouse.takes_body(bytes).await {
                Ok(true) => {
                    largest = Some(bytes);
                    break;
                }
                Ok(false) => bytes /= 2,
                Err(error) if bytes == WANTED => {
                    report
                        .ok("insert size", format!("{url}: not measured: {}", error_chain(&error)));
                    return;
                }
                Err(_) => break,
            }
        }
        judge(report, url, largest);
    }
}

fn judge(report: &mut Report, url: &str, largest: Option<usize>) {
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    let refuses = format!("{url}: something on the way refuses an insert of 8 MiB (HTTP 413)");
    match largest {
        Some(WANTED) => report.ok("insert size", format!("{url} takes an insert of 8 MiB")),
        Some(bytes) if bytes >= ROW => report.warning(
            "insert size",
            format!(
                "{refuses} and takes {}: milepost splits its inserts, and ClickHouse gets more parts",
                kib(bytes)
            ),
            ADVICE,
        ),
        Some(bytes) => report.error(
            "insert size",
            format!("{refuses} and takes {}: a single row can be too large for it", kib(bytes)),
            ADVICE,
        ),
        None => report.error("insert size", format!("{refuses} and one of {}", kib(LEAST)), ADVICE),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    #[test]
    fn size_below_a_row_is_an_error_and_below_an_insert_a_warning() {
        for (largest, level, words) in [
            (Some(WANTED), Level::Ok, "takes an insert of 8 MiB"),
            (Some(WANTED / 2), Level::Warning, "takes 4096 KiB: milepost splits"),
            (Some(ROW), Level::Warning, "takes 128 KiB"),
            (Some(ROW / 2), Level::Error, "a single row"),
            (None, Level::Error, "and one of 16 KiB"),
        ] {
            let mut report = Report::default();
            judge(&mut report, "http://ch", largest);
            assert!(report.finds(level, "insert size", words), "{report}");
        }
    }
}
