//! `milepost top`: every member on one screen, from the answers of their HTTP ports.
//!
//! Each refresh costs a member three HTTP requests, and needs neither the broker nor ClickHouse.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use milepost_command::Shown;
use milepost_config::Config;
use milepost_core::peers::Peer;
use milepost_core::peers::member::MemberStatus;
use milepost_observe::peers::{MEMBER_BYTES_MAX, MEMBER_PATH, get, resolve};

/// Timeout for resolving a member's host name, and for all answers of one member.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum bytes of an answer of `/readyz` or `/metrics`. `/metrics` has up to 21 series for each
/// source, and the number of sources is not limited.
const METRICS_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Characters per line of the screen.
const WIDTH: usize = 80;
/// Characters of a member's name on the screen.
const NAME_CHARS: usize = 18;
const HEAD: &str =
    "member             recv/s rows/s rej/s lag99 age50 age99 flight  win  spool  err";

#[derive(Debug)]
pub struct TopArgs {
    /// Addresses of the members; empty: this host's member and `shutdown.peers`.
    pub members: Vec<Peer>,
    pub every: Duration,
    pub once: bool,
}

/// The answers of one member.
struct Answer {
    /// Time at which the member was asked.
    at: Instant,
    name: String,
    group: String,
    /// Lines of `/readyz`; empty if the member is ready.
    unready: Vec<String>,
    /// Values of the metrics, summed over their labels.
    values: BTreeMap<String, f64>,
    /// Buckets of the histograms: upper bound and cumulative count of each.
    buckets: BTreeMap<String, Vec<(f64, f64)>>,
}

/// One member's line on the screen, and its object in the JSON.
#[derive(Debug, Default, Serialize)]
struct Row {
    name: String,
    /// The share group; empty if the member did not answer.
    #[serde(skip)]
    group: String,
    address: String,
    answers: bool,
    ready: bool,
    /// Why the member is not ready, or why it gave no answer.
    reasons: Vec<String>,
    /// Average between two refreshes, like the two rates below. `None` if there is no earlier
    /// answer of the same process.
    messages_per_second: Option<f64>,
    positions_per_second: Option<f64>,
    rejects_per_second: Option<f64>,
    /// Number of errors between two refreshes.
    insert_errors: Option<f64>,
    /// 99th percentile of the batches' lag.
    lag_p99_seconds: Option<f64>,
    /// Median age of the fixes at receipt.
    fix_age_p50_seconds: Option<f64>,
    /// 99th percentile of the age of the fixes at receipt.
    fix_age_p99_seconds: Option<f64>,
    positions_in_flight: f64,
    unacked: f64,
    window: f64,
    connections: f64,
    positions_in_spool: f64,
}

#[derive(Debug)]
pub struct Screen(Vec<Row>);

/// Asks all members once per `every`, and passes each screen to `print` until `print` returns
/// `false`. Skips the first screen, because rates need two answers.
///
/// # Errors
/// No member answers, or the screen cannot be printed.
pub async fn top(
    config: &Config,
    args: TopArgs,
    mut print: impl FnMut(&Screen) -> Result<bool>,
) -> Result<()> {
    let members = if args.members.is_empty() { config.members() } else { args.members };
    let (_, mut before) = poll(&members, &Answers::new()).await;
    loop {
        sleep(args.every).await;
        let (screen, now) = poll(&members, &before).await;
        ensure!(screen.0.iter().any(|row| row.answers), "no member answers\n{screen}");
        if !print(&screen)? || args.once {
            return Ok(());
        }
        before = now;
    }
}

type Answers = BTreeMap<SocketAddr, Answer>;
/// The host name of each address, as its index in the list of members.
type Hosts = BTreeMap<SocketAddr, usize>;

/// Asks all members. Returns the screen, and the answers for the rates of the next screen.
async fn poll(members: &[Peer], before: &Answers) -> (Screen, Answers) {
    let (mut rows, mut requests, mut now) = (Vec::new(), JoinSet::new(), Answers::new());
    let (mut hosts, mut unanswered) = (Hosts::new(), Vec::new());
    for (index, Peer { host, port }) in members.iter().enumerate() {
        let resolved = timeout(ANSWER_TIMEOUT, resolve(host, *port)).await;
        match resolved.unwrap_or_else(|_| Err("its host name was not resolved in time".to_owned()))
        {
            Ok(addresses) => {
                for address in addresses {
                    let Entry::Vacant(entry) = hosts.entry(address) else { continue };
                    entry.insert(index);
                    requests.spawn(async move {
                        let late = |_| Err(format!("no answer within {ANSWER_TIMEOUT:?}"));
                        (address, timeout(ANSWER_TIMEOUT, ask(address)).await.unwrap_or_else(late))
                    });
                }
            }
            Err(why) => rows.push(unanswered_row(format!("{host}:{port}"), why)),
        }
    }
    while let Some(Ok((address, answer))) = requests.join_next().await {
        match answer {
            Ok(answer) => {
                rows.push(member_row(address, &answer, before.get(&address)));
                now.insert(address, answer);
            }
            Err(why) => unanswered.push((address, why)),
        }
    }
    unanswered.retain(|(address, _)| !is_unused_family(address, &hosts, &now));
    rows.extend(
        unanswered.into_iter().map(|(address, why)| unanswered_row(address.to_string(), why)),
    );
    (Screen(sorted_members(rows)), now)
}

/// Returns whether the members of this address's host name listen on the other address family only:
/// `localhost` has an IPv4 and an IPv6 address, and a member may listen on one of them.
fn is_unused_family(address: &SocketAddr, hosts: &Hosts, answers: &Answers) -> bool {
    let host = hosts.get(address);
    let is_used = |is_ipv4: bool| {
        let mut answered = answers.keys().filter(|other| hosts.get(*other) == host);
        answered.any(|other| other.is_ipv4() == is_ipv4)
    };
    !is_used(address.is_ipv4()) && is_used(!address.is_ipv4())
}

/// Sorts the rows. Keeps one row of each member: a host name may resolve to an IPv4 and an IPv6
/// address of one member. Members of two groups may have the same name, such as `milepost-0`.
fn sorted_members(mut rows: Vec<Row>) -> Vec<Row> {
    let key = |row: &Row| (row.name.clone(), row.group.clone(), !row.answers, row.address.clone());
    rows.sort_by_cached_key(key);
    rows.dedup_by(|next, row| {
        next.answers && row.answers && (&next.name, &next.group) == (&row.name, &row.group)
    });
    rows
}

fn unanswered_row(address: String, why: String) -> Row {
    Row { name: address.clone(), address, reasons: vec![why], ..Row::default() }
}

/// Asks a member for its name, its readiness and its metrics. Returns the reason if an answer is
/// missing, or the answer of `/member` is invalid.
async fn ask(address: SocketAddr) -> Result<Answer, String> {
    let at = Instant::now();
    let (_, member) = get(address, MEMBER_PATH, MEMBER_BYTES_MAX).await?;
    let (status, ready) = get(address, "/readyz", METRICS_BYTES_MAX).await?;
    let (_, metrics) = get(address, "/metrics", METRICS_BYTES_MAX).await?;
    let unready = if status == StatusCode::OK { Vec::new() } else { lines(&ready) };
    let MemberStatus { name, group, .. } = MemberStatus::from_json(&member)?;
    let mut answer =
        Answer { at, name, group, unready, values: BTreeMap::new(), buckets: BTreeMap::new() };
    for line in lines(&metrics).iter().filter_map(|line| line.strip_prefix("milepost_")) {
        answer.add_sample(line);
    }
    Ok(answer)
}

fn lines(bytes: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect()
}

impl Answer {
    /// Parses `name{labels} value` and adds the value, under the name without milepost's prefix.
    fn add_sample(&mut self, line: &str) {
        let Some((series, Ok(value))) =
            line.rsplit_once(' ').map(|(series, value)| (series, value.parse::<f64>()))
        else {
            return;
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        if let Some(name) = name.strip_suffix("_bucket") {
            let bound = labels.rsplit_once("le=\"").and_then(|(_, bound)| bound.split('"').next());
            let bound = bound.map_or(f64::INFINITY, |bound| bound.parse().unwrap_or(f64::INFINITY));
            self.buckets.entry(name.to_owned()).or_default().push((bound, value));
        } else {
            *self.values.entry(name.to_owned()).or_default() += value;
        }
    }

    fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or_default()
    }

    /// Returns the quantile `share` (from 0 to 1) of the values observed since `before`: the upper
    /// bound of its bucket. If that bound is infinite, returns the largest finite bound. Returns
    /// `None` if no value was observed.
    fn quantile(&self, before: &Self, name: &str, share: f64) -> Option<f64> {
        let (now, then) = (self.buckets.get(name)?, before.buckets.get(name)?);
        let counts: Vec<(f64, f64)> =
            now.iter().zip(then).map(|((bound, now), (_, then))| (*bound, now - then)).collect();
        let all = counts.last().map(|(_, all)| *all).filter(|all| *all > 0.0)?;
        let largest =
            counts.iter().rev().find(|(bound, _)| bound.is_finite()).map(|(bound, _)| *bound);
        let found = counts.iter().find(|(_, count)| *count >= share * all).map(|(bound, _)| *bound);
        found.filter(|bound| bound.is_finite()).or(largest)
    }
}

fn member_row(address: SocketAddr, now: &Answer, before: Option<&Answer>) -> Row {
    // If the counter decreased, the process was restarted, so the earlier answer is of no use.
    let before = before.filter(|before| {
        before.name == now.name
            && before.value("messages_received_total") <= now.value("messages_received_total")
    });
    let increase =
        |name: &str| before.map(|before| (now.value(name) - before.value(name)).max(0.0));
    let rate = |name: &str| {
        increase(name)
            .zip(before)
            .map(|(increase, before)| increase / (now.at - before.at).as_secs_f64().max(0.001))
    };
    let quantile = |name: &str, share: f64| now.quantile(before?, name, share);
    Row {
        name: now.name.clone(),
        group: now.group.clone(),
        address: address.to_string(),
        answers: true,
        ready: now.unready.is_empty(),
        reasons: now.unready.clone(),
        messages_per_second: rate("messages_received_total"),
        positions_per_second: rate("positions_inserted_total"),
        rejects_per_second: rate("positions_rejected_total"),
        insert_errors: increase("insert_errors_total"),
        lag_p99_seconds: quantile("ingest_seconds", 0.99),
        fix_age_p50_seconds: quantile("fix_age_seconds", 0.5),
        fix_age_p99_seconds: quantile("fix_age_seconds", 0.99),
        positions_in_flight: now.value("positions_in_flight"),
        unacked: now.value("mqtt_unacked"),
        window: now.value("mqtt_window"),
        connections: now.value("mqtt_connected"),
        positions_in_spool: now.value("positions_in_spool"),
    }
}

impl Screen {
    /// Returns the row for all members together: the sum of their counts, and the worst of their
    /// times.
    fn totals(&self) -> Row {
        let rows = || self.0.iter().filter(|row| row.answers);
        let sum = |value: fn(&Row) -> Option<f64>| rows().filter_map(value).reduce(|a, b| a + b);
        let max = |value: fn(&Row) -> Option<f64>| rows().filter_map(value).reduce(f64::max);
        // Do not use `sum()`: for no values it returns -0.0.
        let total = |value: fn(&Row) -> f64| rows().map(value).fold(0.0, |sum, value| sum + value);
        Row {
            name: "all".to_owned(),
            answers: true,
            messages_per_second: sum(|row| row.messages_per_second),
            positions_per_second: sum(|row| row.positions_per_second),
            rejects_per_second: sum(|row| row.rejects_per_second),
            insert_errors: sum(|row| row.insert_errors),
            lag_p99_seconds: max(|row| row.lag_p99_seconds),
            fix_age_p50_seconds: max(|row| row.fix_age_p50_seconds),
            fix_age_p99_seconds: max(|row| row.fix_age_p99_seconds),
            positions_in_flight: total(|row| row.positions_in_flight),
            unacked: total(|row| row.unacked),
            window: total(|row| row.window),
            positions_in_spool: total(|row| row.positions_in_spool),
            ..Row::default()
        }
    }
}

impl Shown for Screen {
    fn json(&self) -> Value {
        json!({ "members": self.0 })
    }
}

impl fmt::Display for Screen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        let totals = (self.0.len() > 1).then(|| self.totals());
        for row in self.0.iter().chain(&totals) {
            let name = format!("{:<NAME_CHARS$}", shortened(&row.name));
            if !row.answers {
                writeln!(f, "{name} -")?;
                continue;
            }
            let count = |value: Option<f64>| value.map_or("-".to_owned(), format_number);
            let seconds = |value: Option<f64>| value.map_or("-".to_owned(), format_seconds);
            let window = if row.window > 0.0 {
                format!("{:.0}%", 100.0 * row.unacked / row.window)
            } else {
                "-".to_owned()
            };
            writeln!(
                f,
                "{name} {:>6} {:>6} {:>5} {:>5} {:>5} {:>5} {:>6} {window:>4} {:>6} {:>4}",
                count(row.messages_per_second),
                count(row.positions_per_second),
                count(row.rejects_per_second),
                seconds(row.lag_p99_seconds),
                seconds(row.fix_age_p50_seconds),
                seconds(row.fix_age_p99_seconds),
                format_number(row.positions_in_flight),
                format_number(row.positions_in_spool),
                count(row.insert_errors),
            )?;
        }
        for row in &self.0 {
            for reason in &row.reasons {
                writeln!(f, "{}", truncated(&format!("{}: {reason}", row.name), WIDTH))?;
            }
        }
        Ok(())
    }
}

/// Shortens a name in its middle to [`NAME_CHARS`]: the names of members often differ only at their
/// end.
fn shortened(name: &str) -> String {
    let count = name.chars().count();
    if count <= NAME_CHARS {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - NAME_CHARS / 2).collect();
    truncated(name, NAME_CHARS - NAME_CHARS / 2 - 1) + "…" + &end
}

fn truncated(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// Formats a number in at most five characters.
fn format_number(number: f64) -> String {
    match number {
        ..9.95 if number.fract() != 0.0 => format!("{number:.1}"),
        ..9_999.5 => format!("{number:.0}"),
        ..999_950.0 => format!("{:.0}k", number / 1e3),
        _ => format!("{:.1}M", number / 1e6),
    }
}

/// Formats seconds in at most five characters.
fn format_seconds(seconds: f64) -> String {
    match seconds {
        ..0.9995 => format!("{:.0}ms", seconds * 1e3),
        ..99.5 => format!("{seconds:.1}s"),
        ..5_970.0 => format!("{:.0}m", seconds / 60.0),
        _ => format!("{:.0}h", seconds / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    fn answer(name: &str, at: Instant, metrics: &str) -> Answer {
        let (values, buckets) = (BTreeMap::new(), BTreeMap::new());
        let (name, group) = (name.to_owned(), "g".to_owned());
        let mut answer = Answer { at, name, group, unready: Vec::new(), values, buckets };
        metrics.lines().for_each(|line| answer.add_sample(line));
        answer
    }

    #[test]
    fn screen_has_rates_and_quantiles_of_the_interval() {
        let before = "messages_received_total 100\npositions_rejected_total{reason=\"a\"} 1\n\
                      positions_rejected_total{reason=\"b\"} 1\n\
                      fix_age_seconds_bucket{le=\"1\"} 9\n\
                      fix_age_seconds_bucket{le=\"+Inf\"} 100\n";
        let after = "messages_received_total 40100\npositions_rejected_total{reason=\"a\"} 5\n\
                     positions_rejected_total{reason=\"b\"} 1\n\
                     fix_age_seconds_bucket{le=\"1\"} 108\n\
                     fix_age_seconds_bucket{le=\"+Inf\"} 200\nmqtt_window 400\nmqtt_unacked 100\n\
                     positions_in_spool 1234567\n";
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let began = Instant::now();
        let (before, after) =
            (answer("m", began, before), answer("m", began + Duration::from_secs(4), after));
        let mut row = member_row(address, &after, Some(&before));
        row.messages_per_second = row.messages_per_second.map(f64::round);
        row.rejects_per_second = row.rejects_per_second.map(f64::round);
        row.reasons = vec!["x".repeat(200)];
        let screen = Screen(vec![
            row,
            unanswered_row("10.0.0.7:9464".to_owned(), "cannot be reached".to_owned()),
        ]);
        let text = screen.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "m                     10k      0     1     -  1.0s  1.0s      0  25%   1.2M    0"
        );
        assert_eq!(lines[2], "10.0.0.7:9464      -");
        assert!(
            lines[3].starts_with("all ") && lines[5] == "10.0.0.7:9464: cannot be reached",
            "{text}"
        );
        assert!(lines.iter().all(|line| line.len() <= WIDTH), "{text}");
        let json = screen.json();
        assert_eq!(
            (&json["members"][0]["messages_per_second"], &json["members"][1]["answers"]),
            (&json!(10_000.0), &json!(false))
        );
        let printed =
            Screen(["a", "b"].map(|name| unanswered_row(name.to_owned(), String::new())).into())
                .to_string();
        assert!(
            printed.lines().any(|line| line.starts_with("all ")) && !printed.contains("-0"),
            "{printed}"
        );
        // A row has no rates without an earlier answer, and none after a restart.
        assert_eq!(super::member_row(address, &after, None).messages_per_second, None);
        assert_eq!(super::member_row(address, &before, Some(&after)).messages_per_second, None);
    }

    #[test]
    fn long_names_that_differ_at_their_end_differ_on_the_screen() {
        let names = ["production-milepost-10", "production-milepost-11"];
        let rows = names.map(|name| unanswered_row(name.to_owned(), String::new()));
        let text = Screen(rows.into()).to_string();
        assert!(text.contains("producti…lepost-10 -\nproducti…lepost-11 -\n"), "{text}");
    }

    #[test]
    fn member_with_two_addresses_is_shown_once_but_members_of_two_groups_are_two() {
        let row = |address: &str, group: &str| Row {
            group: group.to_owned(),
            ..member_row(address.parse().unwrap(), &answer("m-0", Instant::now(), ""), None)
        };
        let shown = |groups: [&str; 3]| {
            let addresses = ["127.0.0.1:1", "[::1]:1", "10.0.0.1:1"];
            let rows = addresses.iter().zip(groups).map(|(address, group)| row(address, group));
            sorted_members(rows.collect()).len()
        };
        assert_eq!(shown(["live", "live", "live"]), 1);
        assert_eq!(shown(["live", "staging", "live"]), 2);
    }

    #[test]
    fn address_family_on_which_a_host_does_not_listen_is_not_shown() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let [v4, v6, other_v6] = ["127.0.0.1:1", "[::1]:1", "[fd00::7]:1"].map(address);
        let hosts = Hosts::from([(v4, 0), (v6, 0), (other_v6, 1)]);
        let answers = Answers::from([(v4, answer("m", Instant::now(), ""))]);
        assert!(is_unused_family(&v6, &hosts, &answers));
        assert!(!is_unused_family(&other_v6, &hosts, &answers), "another host name");
        assert!(!is_unused_family(&v6, &hosts, &Answers::new()), "nobody answers");
    }

    /// Answers one request on each connection.
    async fn serve(listener: TcpListener, bodies: [&str; 3]) {
        for body in bodies {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await;
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn answers_of_a_member_with_many_sources_are_read() {
        let sources = 0..200;
        let unread = sources.flat_map(|source| {
            (0..21).map(move |field| {
                format!(
                    "milepost_fields_unread_total{{source=\"s{source}/+\",field=\"f{field}\"}} 1\n"
                )
            })
        });
        let metrics = unread.collect::<String>() + "milepost_mqtt_window 400\n";
        let status = MemberStatus {
            name: "m".to_owned(),
            group: "g".to_owned(),
            topics: (0..3_000).map(|source| format!("fleet/of/customer/{source}/+/gps")).collect(),
            subscribed: true,
            leaving: false,
            erased: None,
            spool_files: 0,
        };
        let member = status.to_json();
        assert!(metrics.len() > 200_000 && member.len() > 65_536, "{}", member.len());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let bodies = [&*member, "ready\n", &metrics];
        let (answer, ()) = tokio::join!(ask(address), serve(listener, bodies));
        let answer = answer.unwrap_or_else(|why| panic!("{why}"));
        assert!(answer.name == "m" && answer.value("mqtt_window") > 399.0, "{}", answer.name);
    }

    #[test]
    fn numbers_and_times_fit_five_characters() {
        let numbers = [0.0, 0.25, 9.96, 1_234.0, 9_999.6, 123_456.0, 999_960.0, 12_345_678.0]
            .map(format_number);
        assert_eq!(numbers, ["0", "0.2", "10", "1234", "10k", "123k", "1.0M", "12.3M"]);
        assert_eq!(
            [0.0025, 1.0, 60.0, 600.0, 86_400.0].map(format_seconds),
            ["2ms", "1.0s", "60.0s", "10m", "24h"]
        );
    }
}
