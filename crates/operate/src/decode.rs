//! `milepost decode`: decodes a payload without a server. Prints one JSON object per line.

use std::borrow::Cow;
use std::io::BufRead;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::json;

use milepost_command::lines;
use milepost_command::rows::json_lines;
use milepost_config::Config;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;
use milepost_decode::{Decoded, Decoder, Source};

/// Placeholder driver id when `--topic` is absent.
const PLACEHOLDER_DRIVER: &str = "some-driver";

/// Maximum bytes that `mosquitto_sub -F %j` prints for one byte of a payload: `\u001f`.
const ESCAPED_BYTES_MAX: usize = 6;
/// Space for the topic and the other members in a line of `mosquitto_sub -F %j`.
const HEAD_BYTES_MAX: usize = 512 * 1024;

/// The assumed source, topic and time of receipt of a message.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Number of the source, from 1; `None`: the source that matches the topic, or the only one.
    pub source: Option<usize>,
    /// Topic of the message; `None`: a topic that matches the source.
    pub topic: Option<String>,
    /// Time of receipt, from which the age of fixes is measured.
    pub received_at: Timestamp,
}

/// Decodes a payload. Returns its rows as JSON lines, and whether nothing was rejected.
///
/// # Errors
/// The source is ambiguous or unknown, or the topic does not match it.
pub fn decode(config: &Config, origin: &Origin, payload: &[u8]) -> Result<(String, bool)> {
    let topic = topic(&config.sources, origin)?;
    let mut decoded = Decoded::default();
    Decoder::new(&config.sources, config.decode.clone()).listing_unread().decode(
        Message::new(topic.as_bytes(), payload),
        origin.received_at,
        &mut decoded,
    );
    Ok((json_lines(&decoded, &config.clickhouse.fields), decoded.rejects.is_empty()))
}

/// A message as `mosquitto_sub -F %j` prints it.
#[derive(Deserialize)]
struct MosquittoMessage {
    topic: String,
    /// The payload up to its first NUL byte; null if the payload is empty.
    payload: Option<String>,
    /// Length of the whole payload. A line without this member counts as a payload, even if it has
    /// the members `topic` and `payload`.
    #[serde(rename = "payloadlen")]
    bytes: usize,
    /// 0 or 1; a newer Mosquitto prints false or true.
    #[serde(default)]
    retain: serde_json::Value,
}

/// Advice for a payload that is not text.
const NOT_TEXT: &str = "mosquitto_sub -F %j prints only text: save this payload with mosquitto_sub \
                        -C 1 -N > FILE, and run milepost decode --topic TOPIC FILE";

/// Decodes each line as a message of its own and passes its rows to `print` before reading the next
/// line. Ends early if `print` returns `false`. A line is an object that `mosquitto_sub -F %j`
/// printed, or a payload with the topic and source of `origin`. `clock` gives each line's time of
/// receipt. Returns whether nothing was rejected or unreadable.
///
/// # Errors
/// The input cannot be read, or the source of a line without a topic is ambiguous.
pub fn decode_lines(
    config: &Config,
    mut origin: Origin,
    mut input: impl BufRead,
    clock: impl Fn() -> Timestamp,
    mut print: impl FnMut(&str) -> Result<bool>,
) -> Result<bool> {
    let decoder = Decoder::new(&config.sources, config.decode.clone()).listing_unread();
    let (mut line, mut decoded, mut is_good) = (Vec::new(), Decoded::default(), true);
    // Keep the whole line of any message that the decoder accepts.
    let payload_bytes_max = config.decode.payload_bytes_max.saturating_mul(ESCAPED_BYTES_MAX);
    let line_bytes_max = payload_bytes_max.saturating_add(HEAD_BYTES_MAX);
    while let Some(length) = lines::next_line_up_to(line_bytes_max, &mut input, &mut line)
        .context("cannot read the messages")?
    {
        origin.received_at = clock();
        decoded.clear();
        let text = String::from_utf8_lossy(&line);
        let message_line: Option<MosquittoMessage> = serde_json::from_str(&text).ok();
        let mut text = match message_line {
            Some(MosquittoMessage { topic, payload, bytes, retain }) => {
                let payload = payload.unwrap_or_default();
                let message = Message::new(topic.as_bytes(), payload.as_bytes());
                decoder.decode(message, origin.received_at, &mut decoded);
                let is_retained = retain == 1 || retain == true;
                let message = json!({"topic": topic, "bytes": bytes, "retained": is_retained});
                let mut lines = format!("{}\n", json!({ "message": message }));
                // A text that ends with NUL bytes is complete without them. If the line is not
                // UTF-8, other characters stand here for the bytes of the payload.
                let is_complete = payload.len() == bytes || decoded.rejects.is_empty();
                // Without a source, the payload does not matter.
                let has_source = config.sources.iter().any(|source| source.takes(&topic));
                if has_source && (!is_complete || matches!(text, Cow::Owned(_))) {
                    decoded.clear();
                    is_good = false;
                    lines += &format!("{}\n", json!({"unreadable": {"hint": NOT_TEXT}}));
                }
                lines
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
        text.push_str(&json_lines(&decoded, &config.clickhouse.fields));
        if !print(&text)? {
            break;
        }
    }
    Ok(is_good)
}

/// Returns the topic to assume for the message: that of `origin`, or one that matches the source.
fn topic(sources: &[Source], origin: &Origin) -> Result<String> {
    let list = || {
        let lines = sources
            .iter()
            .enumerate()
            .map(|(index, source)| format!("\n  {}: {}", index + 1, source.topic()));
        lines.collect::<String>()
    };
    let index = match (origin.source, &origin.topic) {
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
        (None, None) => bail!("choose a source with --source or --topic; there are:{}", list()),
    };
    let source = &sources[index];
    match &origin.topic {
        Some(topic) if !source.takes(topic) => {
            bail!("source {} takes {}, which does not match {topic}", index + 1, source.topic())
        }
        Some(topic) => Ok(topic.clone()),
        None => Ok(source.topic().replace('+', PLACEHOLDER_DRIVER)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_after_year_9999_is_printed_in_milliseconds() {
        const LAST_OF_9999: i64 = 253_402_300_799_999;
        let later = LAST_OF_9999 + 1;
        let config = Config::parse("[[sources]]\ntopic = 'a/+'\nformat = 'owntracks'").unwrap();
        let fix = br#"{"_type":"location","lat":1,"lon":2,"tst":253402300800}"#;
        let received_at = Timestamp::from_unix_ms(LAST_OF_9999);
        let (text, _) =
            decode(&config, &Origin { source: None, topic: None, received_at }, fix).unwrap();
        assert!(text.contains(&format!("\"ts\":{later}")), "{text}");
    }
}
