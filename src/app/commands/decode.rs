//! `milepost decode`: what a payload becomes, without a server. One JSON object a line.

use std::fmt::Write as _;
use std::io::BufRead;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::json;

use super::lines;
use milepost_config::Config;
use milepost_decode::Message;
use milepost_decode::position::{Accuracy, Altitude, Heading, Position, Speed, Timestamp};
use milepost_decode::{Decoded, Decoder, Field, Lacking, Source, meant};

/// How a driver is called who is named by a topic that was not given.
const SOMEBODY: &str = "some-driver";
/// How much of a refused payload is shown.
const EXCERPT_CHARS: usize = 200;

/// Where the message is to have come from, and when.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Which of the sources, from 1; not needed where the topic or their number says it.
    pub source: Option<usize>,
    /// The topic; by default one that fits the source.
    pub topic: Option<String>,
    /// The age of fixes is judged by it.
    pub received_at: Timestamp,
}

/// What it becomes, and whether nothing of it was refused.
///
/// # Errors
/// It is not clear which source is meant, or the topic is another one's.
pub fn decode(config: &Config, origin: &Origin, payload: &[u8]) -> Result<(String, bool)> {
    let topic = topic(&config.sources, origin)?;
    let mut decoded = Decoded::default();
    Decoder::new(&config.sources, config.decode.clone()).listing_unread().decode(
        Message::new(topic.as_bytes(), payload),
        origin.received_at,
        &mut decoded,
    );
    Ok((shown(&decoded), decoded.rejects.is_empty()))
}

/// What `mosquitto_sub -F %j` prints of a message.
#[derive(Deserialize)]
struct Heard {
    topic: String,
    payload: String,
    #[serde(rename = "payloadlen")]
    _bytes: u64,
    #[serde(default)]
    retain: u8,
}

/// Decodes each line as a message of its own, and passes what it becomes to `print` before it reads
/// the next line; ends early when `print` returns `false`. A line is what `mosquitto_sub -F %j`
/// prints, or a payload that came as `origin` says. Returns whether nothing was rejected.
///
/// # Errors
/// The input cannot be read, or it is not clear which source a line without a topic is meant for.
pub fn decode_lines(
    config: &Config,
    mut origin: Origin,
    mut input: impl BufRead,
    clock: impl Fn() -> Timestamp,
    mut print: impl FnMut(&str) -> Result<bool>,
) -> Result<bool> {
    let decoder = Decoder::new(&config.sources, config.decode.clone()).listing_unread();
    let (mut line, mut decoded, mut is_good) = (Vec::new(), Decoded::default(), true);
    while let Some(length) =
        lines::next_line(&mut input, &mut line).context("cannot read the messages")?
    {
        origin.received_at = clock();
        decoded.clear();
        let heard: Option<Heard> = serde_json::from_slice(&line).ok();
        let mut text = match heard {
            Some(Heard { topic, payload, retain, .. }) => {
                let message = Message::new(topic.as_bytes(), payload.as_bytes());
                decoder.decode(message, origin.received_at, &mut decoded);
                let shown =
                    json!({"topic": topic, "bytes": payload.len(), "retained": retain == 1});
                format!("{}\n", json!({ "message": shown }))
            }
            None => {
                let topic = topic(&config.sources, &origin)?;
                decoder.decode(
                    lines::message(&topic, &line, length),
                    origin.received_at,
                    &mut decoded,
                );
                String::new()
            }
        };
        is_good &= decoded.rejects.is_empty();
        text.push_str(&shown(&decoded));
        if !print(&text)? {
            break;
        }
    }
    Ok(is_good)
}

/// The topic that the message is to have come on.
fn topic(sources: &[Source], origin: &Origin) -> Result<String> {
    let list = || {
        let lines = sources
            .iter()
            .enumerate()
            .map(|(n, source)| format!("\n  {}: {}", n + 1, source.topic()));
        lines.collect::<String>()
    };
    let chosen = match (origin.source, &origin.topic) {
        (Some(number), _) if !(1..=sources.len()).contains(&number) => {
            bail!("there is no source {number}; there are:{}", list())
        }
        (Some(number), _) => number - 1,
        (None, Some(topic)) => {
            let by_topic = sources.iter().position(|source| source.takes(topic));
            by_topic.with_context(|| {
                format!("no source takes the topic {topic}; there are:{}", list())
            })?
        }
        (None, None) if sources.len() == 1 => 0,
        (None, None) => bail!("say which source by --source or --topic; there are:{}", list()),
    };
    let source = &sources[chosen];
    match &origin.topic {
        Some(topic) if !source.takes(topic) => {
            bail!("source {} takes {}, which does not match {topic}", chosen + 1, source.topic())
        }
        Some(topic) => Ok(topic.clone()),
        None => Ok(source.topic().replace('+', SOMEBODY)),
    }
}

/// A line for each thing that a message became.
pub(super) fn shown(decoded: &Decoded) -> String {
    let mut lines = String::new();
    for position in &decoded.positions {
        let is_undated = decoded.lacking.undated > 0 && position.ts == position.received_at;
        put_position(position, is_undated, &mut lines);
    }
    for reject in &decoded.rejects {
        let payload: String =
            String::from_utf8_lossy(&reject.payload).chars().take(EXCERPT_CHARS).collect();
        let (reason, detail) = (reject.reason.name(), &reject.detail);
        put(
            &mut lines,
            &json!({"reject": {"reason": reason, "detail": detail, "payload": payload}}),
        );
    }
    for kind in &decoded.ignored {
        put(&mut lines, &json!({"ignored": kind.name()}));
    }
    for (field, count) in unusable(&decoded.lacking) {
        put(&mut lines, &json!({"unusable": {"field": field, "times": count}}));
    }
    for name in &decoded.unread {
        let unread = match meant(name) {
            Some(field) => {
                json!({"field": name, "hint": format!("did you mean {field}? keep = [\"{name}\"] stores it as it is")})
            }
            None => json!({"field": name, "hint": format!("keep = [\"{name}\"] stores it")}),
        };
        put(&mut lines, &json!({ "unread": unread }));
    }
    if decoded.lacking.attributes_cut > 0 {
        put(&mut lines, &json!({"attributes_cut": decoded.lacking.attributes_cut}));
    }
    lines
}

/// The optional fields that were invalid, each with its count.
pub(super) fn unusable(lacking: &Lacking) -> impl Iterator<Item = (&'static str, u64)> {
    Field::ALL.iter().map(|field| field.name()).zip(lacking.fields).filter(|(_, count)| *count > 0)
}

/// In the units that people read, as the table's columns show them.
fn put_position(position: &Position, is_undated: bool, lines: &mut String) {
    let mut shown = fix(position);
    if is_undated {
        shown["undated"] = true.into();
    }
    put(lines, &json!({ "position": shown }));
}

/// A position in the units of the table's columns.
pub(super) fn fix(position: &Position) -> serde_json::Value {
    let known =
        |is_known: bool, units: i32, per_one: f64| is_known.then(|| f64::from(units) / per_one);
    let attributes: serde_json::Map<_, _> =
        position.attributes.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    json!({
        "driver_id": position.driver_id.as_str(),
        "ts": rfc3339(position.ts),
        "seq": position.seq,
        "lat": f64::from(position.lat.e7()) / 1e7,
        "lng": f64::from(position.lng.e7()) / 1e7,
        "speed": known(position.speed != Speed::UNKNOWN, position.speed.cms().into(), 100.0),
        "heading": known(position.heading != Heading::UNKNOWN, position.heading.cdeg().into(), 100.0),
        "alt": known(position.alt != Altitude::UNKNOWN, position.alt.dm(), 10.0),
        "acc": known(position.acc != Accuracy::UNKNOWN, position.acc.dm().into(), 10.0),
        "attributes": attributes,
    })
}

fn put(lines: &mut String, line: &serde_json::Value) {
    writeln!(lines, "{line}").expect("writing to a String");
}

/// Milliseconds, where the years are not of four digits or before 1970.
pub(super) fn rfc3339(ts: Timestamp) -> serde_json::Value {
    let mut text = String::new();
    match u64::try_from(ts.unix_ms()).map(|ms| UNIX_EPOCH + Duration::from_millis(ms)) {
        Ok(time) if write!(text, "{}", humantime::format_rfc3339_millis(time)).is_ok() => {
            text.into()
        }
        Ok(_) | Err(_) => ts.unix_ms().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_that_nobody_writes_are_shown_as_numbers() {
        const LAST_OF_9999: i64 = 253_402_300_799_999;
        let later = LAST_OF_9999 + 1;
        for (ts, expected) in [
            (LAST_OF_9999, "\"9999-12-31T23:59:59.999Z\"".to_owned()),
            (later, later.to_string()),
            (-1, "-1".to_owned()),
        ] {
            assert_eq!(rfc3339(Timestamp::from_unix_ms(ts)).to_string(), expected);
        }
        let config = Config::parse("[[sources]]\ntopic = 'a/+'\nformat = 'owntracks'").unwrap();
        let fix = br#"{"_type":"location","lat":1,"lon":2,"tst":253402300800}"#;
        let received_at = Timestamp::from_unix_ms(LAST_OF_9999);
        let (text, _) =
            decode(&config, &Origin { source: None, topic: None, received_at }, fix).unwrap();
        assert!(text.contains(&format!("\"ts\":{later}")), "{text}");
    }
}
