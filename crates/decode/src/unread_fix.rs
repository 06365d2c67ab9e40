//! Finds flags that deny the fix of a point, such as `"valid":false`, under names that the format
//! does not read. The position of such a point is old or wrong. Also finds flags that deny the time
//! or an optional field.

use super::field_flags::{Unknown, field_of_flag, may_be_flag};
use super::field_names::normalised;
use super::hemisphere::hemisphere;
use super::json::{Scalar, UNSET_IN_OTHER_LANGUAGES, UNSET_WORDS, is_unset};
use super::keep::{Keep, Value, visit_values};
use super::refusal::{Refusal, refuse};
use crate::reject::Reason;

/// Maximum length of the name of a flag in bytes.
const NAME_BYTES_MAX: usize = 32;
/// Maximum length of the value of a flag in bytes.
const VALUE_BYTES_MAX: usize = 30;
/// Names of flags and types that state whether there is a fix. `false` and 0 mean that there is
/// none.
const FLAGS: [&str; 64] = [
    "valid",
    "isvalid",
    "datavalid",
    "validfix",
    "fixvalid",
    "isfixvalid",
    "gpsvalid",
    "isgpsvalid",
    "gpsisvalid",
    "validgps",
    "gnssvalid",
    "posvalid",
    "positionvalid",
    "validposition",
    "locvalid",
    "locationvalid",
    "validlocation",
    "coordsvalid",
    "fix",
    "isfix",
    "hasfix",
    "gotfix",
    "hasgpsfix",
    "hasgnssfix",
    "fixok",
    "gpsok",
    "gpsfix",
    "gpsfixok",
    "gnssfix",
    "gnssfixok",
    "gpsfixed",
    "isgpsfixed",
    "gpslock",
    "gpslocked",
    "positioned",
    "gpspositioned",
    "fixtype",
    "gpsfixtype",
    "gnssfixtype",
    "fixquality",
    "gpsfixquality",
    "gpsquality",
    "located",
    "islocated",
    "gpslocated",
    // Other languages.
    "gültig",
    "gueltig",
    "gpsgültig",
    "gpsgueltig",
    "válido",
    "válida",
    "valido",
    "valida",
    "gpsválido",
    "gpsvalido",
    "valide",
    "gpsvalide",
    "geldig",
    "giltig",
    "gyldig",
    "действителен",
    "достоверность",
    "有效",
    "定位有效",
];
/// Names of flags that are set if the time is valid, such as u-blox's `validTime`.
const TIME_FLAGS: [&str; 13] = [
    "timevalid",
    "validtime",
    "istimevalid",
    "isvalidtime",
    "tsvalid",
    "validts",
    "timestampvalid",
    "validtimestamp",
    "datevalid",
    "validdate",
    "datetimevalid",
    "gpstimevalid",
    "hastime",
];
/// Names of flags that are set if the time is invalid: the opposite of [`TIME_FLAGS`].
const INVALID_TIME_FLAGS: [&str; 2] = ["timeinvalid", "istimeinvalid"];
/// Names of members whose string states whether there is a fix. A number under such a name means
/// something else.
const STATES: [&str; 17] = [
    "gps",
    "gnss",
    "gpsstatus",
    "gnssstatus",
    "gpsstate",
    "gnssstate",
    "positionstatus",
    "locationstatus",
    "validity",
    "fixmode",
    "fixstatus",
    "fixstate",
    "gpsfixstatus",
    "gpssignal",
    "locstatus",
    "positionstate",
    "定位状态",
];
/// Names of flags that are set if there is no fix: the opposite of [`FLAGS`].
const NO_FIX_FLAGS: [&str; 12] = [
    "invalid",
    "isinvalid",
    "nofix",
    "gpsnofix",
    "nogpsfix",
    "nognssfix",
    "fixfailed",
    "gpsfixfailed",
    "invalidfix",
    "gpsinvalid",
    "positioninvalid",
    "locationinvalid",
];
/// Words that state that there is no fix. `V` is the status "void" of NMEA.
const NO_FIX: [&str; 31] = [
    "v",
    "void",
    "invalid",
    "none",
    "notfixed",
    "nogpsfix",
    "nolock",
    "notvalid",
    "unfixed",
    "nogps",
    "lost",
    "gpslost",
    "nosignal",
    "nogpssignal",
    "searching",
    "acquiring",
    "unavailable",
    "notavailable",
    "notlocated",
    "invalidposition",
    "ungültig",
    "ungueltig",
    "keinfix",
    "inválido",
    "inválida",
    "invalido",
    "invalida",
    "ongeldig",
    "недействителен",
    "无效",
    "未定位",
];
/// Words of [`NO_FIX`] that may also be the `status` of the driver or the vehicle.
const AMBIGUOUS: [&str; 6] =
    ["none", "lost", "searching", "acquiring", "unavailable", "notavailable"];
/// Name of the type of fix in gpsd's reports (`"class":"TPV"`). 0 and 1 mean that there is no fix.
const MODE: &str = "mode";
/// Words that mean that a flag is set.
const SET: [&str; 14] = [
    "true",
    "1",
    "yes",
    "ja",
    "oui",
    "si",
    "sí",
    "sim",
    "wahr",
    "vrai",
    "verdadero",
    "истина",
    "да",
    "是",
];
/// Ending of words such as `no fix` and `GPS_FIX_TYPE_NO_FIX`.
const NO_FIX_ENDING: &str = "nofix";

/// The meaning of a value, if its member is a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FlagValue {
    Unset,
    Set,
    /// One of [`NO_FIX`], or a word that ends in [`NO_FIX_ENDING`].
    NoFix,
}

/// Returns whether a member may deny the fix. The value excludes most members, and a few bytes of
/// the name exclude most of the remaining ones.
#[inline]
pub(super) fn may_deny_fix(key: &[u8], value: &Scalar<'_>) -> bool {
    let stated = match value {
        Scalar::Integer(0) | Scalar::Other("false") => Some(FlagValue::Unset),
        Scalar::Integer(1) | Scalar::Other("true") => Some(FlagValue::Set),
        Scalar::Other("an object") => return is_receiver(key),
        Scalar::Text(text) if text.len() <= VALUE_BYTES_MAX && may_be_name(key) => flag_value(text),
        Scalar::Text(_)
        | Scalar::Integer(_)
        | Scalar::Missing
        | Scalar::Number(_)
        | Scalar::Other(_) => None,
    };
    stated.is_some_and(|stated| may_be_name(key) && is_flag(key, stated))
}

/// Returns whether an object of this name describes the receiver or its fix.
fn is_receiver(key: &[u8]) -> bool {
    ["gps", "gnss", "fix"].iter().any(|name| key.eq_ignore_ascii_case(name.as_bytes()))
}

/// Returns whether a key may be the name of a flag, by a quick check of its bytes.
#[inline]
pub(super) fn may_be_name(key: &[u8]) -> bool {
    let is_part = |part: &[u8]| {
        matches!(
            [part[0] | 0x20, part[1] | 0x20, part[2] | 0x20],
            [b'v', b'a', b'l']
                // `vál` in UTF-8, as in `válido`.
                | [b'v', 0xe3, 0xa1]
                | [b'f', b'i', b'x']
                | [b'g', b'p', b's']
                | [b'g', b'n', b's']
                | [b't', b'u', b's']
                | [b'p', b'o', b's']
                | [b'q', b'u', b'a']
                | [b't', b'y', b'p']
                | [b'l', b'o', b'c']
                // `hasSpeed`
                | [b'h', b'a', b's']
                // `gültig`, `geldig`, and gpsd's `mode`.
                | [b't', b'i', b'g']
                | [b'd', b'i', b'g']
                | [b'm', b'o', b'd']
        )
    };
    let begins_above_ascii = || key.first().is_some_and(|first| *first >= 0x80);
    key.len() <= NAME_BYTES_MAX && (key.windows(3).any(is_part) || begins_above_ascii())
}

/// Normalises the name of a flag. Drops a question mark, or a remark as in `Valid (Y/N)`.
fn bare_name(name: &str) -> String {
    normalised(name.split(['(', '[', '?']).next().unwrap_or_default())
}

/// Returns whether a member may deny the fix, its time or one of its fields. `key`: the member's
/// name; `stated`: the meaning of the member's value.
#[cold]
fn is_flag(key: &[u8], stated: FlagValue) -> bool {
    let name = bare_name(&String::from_utf8_lossy(key));
    let is_in = |names: &[&str]| names.contains(&&*name);
    match stated {
        // A `type` or a `lock` counts only inside an object that describes the receiver, as in
        // `{"fix":{"type":0}}` and `{"gps":{"lock":false}}`. `check_fix` checks the object's name.
        FlagValue::Unset => {
            is_in(&FLAGS)
                || is_in(&TIME_FLAGS)
                || field_of_flag(&name).is_some()
                || ["quality", "type", "lock", MODE].contains(&&*name)
        }
        FlagValue::Set => is_in(&NO_FIX_FLAGS) || is_in(&INVALID_TIME_FLAGS) || name == MODE,
        FlagValue::NoFix => {
            is_in(&FLAGS)
                || is_in(&STATES)
                || is_in(&TIME_FLAGS)
                || field_of_flag(&name).is_some()
                || ["status", "type", "lock"].contains(&&*name)
        }
    }
}

/// Returns the meaning of a value as a flag. `None`: no flag has such a value.
#[cold]
fn flag_value(value: &str) -> Option<FlagValue> {
    if !may_be_flag_word(value) {
        return None;
    }
    let word = normalised(value.trim());
    if is_unset(&word) {
        return Some(FlagValue::Unset);
    }
    if SET.contains(&&*word) {
        return Some(FlagValue::Set);
    }
    (NO_FIX.contains(&&*word) || word.ends_with(NO_FIX_ENDING)).then_some(FlagValue::NoFix)
}

/// Lengths of the words for a flag, by their first byte: bit `n` is set if there is a word of `n`
/// bytes.
static WORD_LENGTHS: [u64; 128] = {
    let lists: [&[&str]; 4] = [&UNSET_WORDS, &UNSET_IN_OTHER_LANGUAGES, &SET, &NO_FIX];
    let (mut lengths, mut list) = ([0; 128], 0);
    while list < lists.len() {
        let mut at = 0;
        while at < lists[list].len() {
            let word = lists[list][at].as_bytes();
            if word[0].is_ascii() {
                lengths[word[0] as usize] |= 1 << word.len();
            }
            at += 1;
        }
        list += 1;
    }
    lengths
};

/// Returns whether a value may be a word for a flag, by its first letter and its length. This check
/// is fast, and excludes most values, such as the `type` of GeoJSON.
fn may_be_flag_word(value: &str) -> bool {
    let value = value.trim_ascii().as_bytes();
    // The table cannot judge this value: it holds only ASCII, and separators change the length.
    if value.len() > VALUE_BYTES_MAX || !value.iter().all(u8::is_ascii_alphanumeric) {
        return true;
    }
    let [first, .., last] = value else { return true };
    // A word that ends in `nofix` may have any length.
    WORD_LENGTHS[usize::from(first.to_ascii_lowercase())] >> value.len() & 1 == 1
        || last.eq_ignore_ascii_case(&b'x')
}

/// Paths that a format reads.
pub(super) struct ReadPaths<'s> {
    pub(super) lat: &'s str,
    /// Paths of the objects that hold the speed, heading, altitude and accuracy.
    pub(super) parents: &'s [String; 4],
    pub(super) all: &'s [String],
}

/// Searches a point, and its objects that describe the receiver, for flags that deny the fix or the
/// time. Returns the fields that a flag denies, in the point itself or in the object of the field.
/// `root`: the path of the object at which the paths of `keep` begin; `has_time`: the point has a
/// time.
///
/// # Errors
/// A flag denies the fix or the time, and `keep` does not name the flag.
#[cold]
pub(super) fn check_fix(
    json: &[u8],
    root: &'static [&'static str],
    read: &ReadPaths<'_>,
    keep: &Keep,
    has_time: bool,
) -> Result<Unknown, Refusal> {
    let lat = read.lat.trim_start_matches('/');
    let lat = lat.strip_prefix(&(root.join("/") + "/")).unwrap_or(lat);
    let own_parent = lat.rsplit_once('/').map_or("", |(parent, _)| parent);
    // In a GeoJSON feature, the properties describe the point.
    let is_feature = root.is_empty() && own_parent == "geometry/coordinates";
    let properties = if is_feature { "properties" } else { "" };
    let (mut flag, mut status, mut mode, mut time_flag) = (None, None, None, None);
    let (mut is_nmea, mut is_ais, mut is_gpsd, mut is_time_valid) = (false, false, false, false);
    let mut unknown = Unknown::default();
    visit_values(json, root, &mut |path, value| {
        let Value::Scalar(value) = value else { return };
        // A remark in brackets may have a `/`: `Valid (Y/N)`.
        let has_remark = path.ends_with([')', ']']);
        let end = path.find(['(', '[']).filter(|_| has_remark).unwrap_or(path.len());
        let parent = path[..end].rsplit_once('/').map_or("", |(parent, _)| parent);
        let name = path[parent.len()..].trim_start_matches('/');
        let inner = parent.strip_prefix(properties).unwrap_or(parent).trim_start_matches('/');
        let is_own = inner.is_empty()
            || parent == own_parent
            || inner.split('/').all(|name| is_receiver(name.as_bytes()));
        if !is_own {
            return;
        }
        let name = bare_name(name);
        // `V` can also mean that a taxi is vacant. Next to other fields of NMEA's RMC sentence, it
        // means that there is no fix.
        is_nmea |= hemisphere(&name).is_some()
            || ["magvar", "magvardir", "magvariation", "sentence"].contains(&&*name)
            || name.starts_with("sat") && value == "0";
        // In a ship's AIS message, `fix_type` is the kind of positioning device; 0 is undefined.
        is_ais |= ["mmsi", "userid", "messageid"].contains(&&*name);
        is_gpsd |= name == "class" && value == "TPV";
        let is_read = read.all.iter().any(|used| used == path);
        if is_read || keep.has(path) {
            return;
        }
        let stated = flag_value(value);
        if name == "status" && stated == Some(FlagValue::NoFix) {
            status.get_or_insert_with(|| (path.to_owned(), value.to_owned()));
        }
        if name == MODE && ["0", "1"].contains(&value) {
            mode.get_or_insert_with(|| (path.to_owned(), value.to_owned()));
        }
        let is_set = stated == Some(FlagValue::Set);
        let is_invalid = matches!(stated, Some(FlagValue::Unset | FlagValue::NoFix));
        let is_time_flag = TIME_FLAGS.contains(&&*name);
        is_time_valid |= is_time_flag && is_set;
        if is_time_flag && is_invalid || INVALID_TIME_FLAGS.contains(&&*name) && is_set {
            time_flag.get_or_insert_with(|| (path.to_owned(), value.to_owned()));
        }
        if let Some(field) = field_of_flag(&name)
            && (parent.is_empty() || *parent == *read.parents[field])
        {
            unknown[field] |= is_invalid && may_be_flag(&name, value);
        }
        let parent = normalised(parent.rsplit('/').next().unwrap_or_default());
        if flag.is_none() && stated.is_some_and(|stated| denies_fix(&parent, &name, value, stated))
        {
            flag = Some((path.to_owned(), value.to_owned()));
        }
    });
    let is_status = |(_, value): &(String, String)| {
        let word = normalised(value);
        word.ends_with(NO_FIX_ENDING) || is_nmea && !AMBIGUOUS.contains(&&*word)
    };
    let is_ship_flag =
        |(path, _): &(String, String)| is_ais && normalised(path).ends_with("fixtype");
    let found = flag.filter(|flag| !is_ship_flag(flag)).or(status.filter(is_status));
    let (reason, cause, remedy, (path, value)) = match (
        found.or(mode.filter(|_| is_gpsd)),
        time_flag.filter(|_| has_time && !is_time_valid),
    ) {
        (Some(flag), _) => (
            Reason::WrongType,
            "the receiver had no fix, so the place is an old or a wrong one",
            "send only valid fixes",
            flag,
        ),
        (None, Some(flag)) => (
            Reason::BadTs,
            "the device did not know the time, so the time of the fix is wrong",
            "send only valid times",
            flag,
        ),
        (None, None) => return Ok(unknown),
    };
    refuse(
        reason,
        format!(
            "{path:.40} is {value:.20}: {cause}; {remedy}, or store this one with keep = \
             [\"{path:.40}\"] (import: --keep)"
        ),
    )
}

/// Returns whether a member denies the fix. `parent` and `name` are normalised; `stated`: the
/// meaning of `value`.
fn denies_fix(parent: &str, name: &str, value: &str, stated: FlagValue) -> bool {
    let joined = format!("{parent}{name}");
    // `{"fix":{"fix":0}}` may be the first of several fixes, numbered from 0.
    let is_number_of_fix = name == "fix" && parent == "fix";
    // A fix of the type `F` is a float solution of RTK, not `false`.
    let is_float = !name.contains("valid") && value.trim().eq_ignore_ascii_case("f");
    let is_in = |names: &[&str]| names.contains(&name) || names.contains(&&*joined);
    match stated {
        FlagValue::Unset => is_in(&FLAGS) && !is_number_of_fix && !is_float,
        FlagValue::Set => is_in(&NO_FIX_FLAGS),
        FlagValue::NoFix => is_in(&FLAGS) || is_in(&STATES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_for_a_flag_passes_the_first_check() {
        let words = UNSET_WORDS.iter().chain(&UNSET_IN_OTHER_LANGUAGES).chain(&SET).chain(&NO_FIX);
        for word in words.chain(&[NO_FIX_ENDING, "GPS_FIX_TYPE_NO_FIX", " No Fix "]) {
            let upper = word.to_uppercase();
            assert!(may_be_flag_word(word) && may_be_flag_word(&upper), "{word}");
            assert!(flag_value(word).is_some(), "{word}");
        }
        assert!(!may_be_flag_word("Feature") && !may_be_flag_word("Point"));
    }
}
