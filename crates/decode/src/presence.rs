//! Recognises presence messages of devices and brokers: "online" and "offline".

use super::extract::Pointer;
use super::names::refuse_unread_position;

/// Maximum length of a presence message in bytes.
const BYTES_MAX: usize = 256;
const WORDS: [&str; 4] = ["online", "offline", "connected", "disconnected"];
const KEYS: [&str; 2] = ["/status", "/state"];

/// Returns whether a payload is a presence word: alone, or as the `status` or `state` of an object
/// that has no position.
pub(super) fn is_presence(payload: &[u8]) -> bool {
    let text = std::str::from_utf8(payload)
        .ok()
        .filter(|text| text.len() <= BYTES_MAX)
        .map(str::trim_ascii);
    let Some(text) = text else { return false };
    let is_word = |word: &str| WORDS.iter().any(|known| known.eq_ignore_ascii_case(word));
    if !text.starts_with('{') {
        return is_word(text.trim_matches('"'));
    }
    let has_word = KEYS.iter().any(|key| {
        let pointer = Pointer::new(key).expect("well formed");
        pointer.value(text.as_bytes()).is_ok_and(|value| value.as_text().is_some_and(is_word))
    });
    // A tracker that is `online` may send its position under names that the format does not read.
    has_word && refuse_unread_position(text.as_bytes(), "").is_ok()
}
