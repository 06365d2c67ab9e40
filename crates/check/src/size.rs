//! Measures the largest insert that reaches ClickHouse. A proxy in front of ClickHouse may refuse a
//! large insert (HTTP 413).

use std::error::Error;

use super::report::Report;
use milepost_clickhouse::ClickHouse;
use milepost_config::Config;
use milepost_core::error_chain;

const SUBJECT: &str = "insert size";
/// Largest insert that milepost sends, in bytes.
const INSERT_MAX: usize = 8 << 20;
/// Largest row (a reject with its payload), in bytes.
const ROW_MAX: usize = 128 << 10;
/// Smallest insert that is tried, in bytes.
const TRIED_MIN: usize = 16 << 10;
const ADVICE: &str = "raise the limit of that proxy to 8 MiB (nginx: client_max_body_size 8m; \
                      Kubernetes ingress-nginx: proxy-body-size)";

/// A measurement that ended with an error, such as a timeout, before any size was accepted.
struct Unmeasured {
    why: String,
    /// Smallest size that was refused before the error, in bytes; `None` if no size was refused.
    refused: Option<usize>,
}

/// Measures the largest insert that each endpoint accepts. Writes nothing, and sends each endpoint
/// at most 16 MiB.
pub(super) async fn check(report: &mut Report, config: &Config) {
    for url in &config.clickhouse.urls {
        let mut endpoint = config.clickhouse.clone();
        endpoint.urls = vec![url.clone()];
        let measured = match ClickHouse::new(&endpoint) {
            Ok(clickhouse) => {
                measure(async |bytes| clickhouse.accepts_body_size(bytes).await).await
            }
            Err(error) => Err(Unmeasured { why: error_chain(&error), refused: None }),
        };
        judge(report, url, measured);
    }
}

/// Sends bodies without a row. The first is the largest, and each is half as large as the previous
/// one. Returns the first accepted size; `None` if even the smallest body is refused.
async fn measure<E: Error>(
    accepts: impl AsyncFn(usize) -> Result<bool, E>,
) -> Result<Option<usize>, Unmeasured> {
    let (mut bytes, mut refused) = (INSERT_MAX, None);
    while bytes >= TRIED_MIN {
        match accepts(bytes).await {
            Ok(true) => return Ok(Some(bytes)),
            Ok(false) => refused = Some(bytes),
            Err(error) => return Err(Unmeasured { why: error_chain(&error), refused }),
        }
        bytes /= 2;
    }
    Ok(None)
}

fn judge(report: &mut Report, url: &str, measured: Result<Option<usize>, Unmeasured>) {
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    let refuses = format!("{url}: a proxy in between refuses an insert of 8 MiB (HTTP 413)");
    match measured {
        Ok(Some(INSERT_MAX)) => report.ok(SUBJECT, format!("{url} takes an insert of 8 MiB")),
        Ok(Some(bytes)) if bytes >= ROW_MAX => report.warning(
            SUBJECT,
            format!(
                "{refuses} and takes {}: milepost splits its inserts, and ClickHouse gets more \
                 parts",
                kib(bytes)
            ),
            ADVICE,
        ),
        Ok(Some(bytes)) => report.error(
            SUBJECT,
            format!("{refuses} and takes {}: a single row can be too large for it", kib(bytes)),
            ADVICE,
        ),
        Ok(None) => {
            report.error(SUBJECT, format!("{refuses} and one of {}", kib(TRIED_MIN)), ADVICE)
        }
        Err(Unmeasured { why, refused: None }) => {
            report.ok(SUBJECT, format!("{url}: not measured: {why}"));
        }
        Err(Unmeasured { why, refused: Some(bytes) }) => report.warning(
            SUBJECT,
            format!("{refuses}; below {}: not measured: {why}", kib(bytes)),
            ADVICE,
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use super::super::report::Level;
    use super::*;

    #[test]
    fn accepted_size_decides_the_level_of_the_finding() {
        for (largest, level, expected) in [
            (Some(INSERT_MAX), Level::Ok, "takes an insert of 8 MiB"),
            (Some(INSERT_MAX / 2), Level::Warning, "takes 4096 KiB: milepost splits"),
            (Some(ROW_MAX), Level::Warning, "takes 128 KiB"),
            (Some(ROW_MAX / 2), Level::Error, "a single row"),
            (None, Level::Error, "and one of 16 KiB"),
        ] {
            let mut report = Report::default();
            judge(&mut report, "http://ch", Ok(largest));
            assert!(report.has_finding(level, "insert size", expected), "{report}");
        }
    }

    #[tokio::test]
    async fn timeout_is_not_reported_as_a_refusal() {
        for (refusals, level, expected) in [
            (0, Level::Ok, "not measured: no answer"),
            (1, Level::Warning, "of 8 MiB (HTTP 413); below 8192 KiB: not measured: no answer"),
            (3, Level::Warning, "below 2048 KiB: not measured: no answer"),
        ] {
            let sent = Cell::new(0);
            let accepts = async |_| match sent.replace(sent.get() + 1) {
                n if n < refusals => Ok(false),
                _ => Err(io::Error::other("no answer")),
            };
            let mut report = Report::default();
            judge(&mut report, "http://ch", measure(accepts).await);
            assert!(report.has_finding(level, "insert size", expected), "{report}");
        }
    }
}
