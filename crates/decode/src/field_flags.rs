//! Recognises flags that state that an optional field is not known, such as Android's
//! `"hasBearing":false` beside a bearing of 0.

use super::field_names::is_name_of;

/// The fields that a flag can be about, in the order of [`Unknown`].
const FIELDS: [&str; 4] = ["speed", "heading", "alt", "acc"];
/// One flag each for speed, heading, altitude and accuracy: the payload states that the field is
/// unknown.
pub(super) type Unknown = [bool; FIELDS.len()];

/// Returns whether a flag with this name and value states that its field is unknown. `name` is
/// normalised, and `value` stands for "no", such as `false` or 0. Returns `false` for a 0 under a
/// name that begins with `valid`, such as `valid_speed`: the 0 may be the speed itself.
pub(super) fn may_be_flag(name: &str, value: &str) -> bool {
    !name.starts_with("valid") || value.trim() != "0"
}

/// Returns the index in [`Unknown`] of the field that a flag of this name is about, such as speed
/// for `hasSpeed` and heading for `course_valid`. Returns `None` if no such flag has this name.
/// `name`: normalised.
pub(super) fn field_of_flag(name: &str) -> Option<usize> {
    let beginnings = ["has", "isvalid", "valid"];
    let stem = beginnings.iter().find_map(|begin| name.strip_prefix(begin));
    let stem = stem.or_else(|| name.strip_suffix("valid"))?;
    // `has_track` may be about a route.
    FIELDS.iter().position(|field| is_name_of(field, stem)).filter(|_| stem != "track")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_names_its_field() {
        for (name, field) in [
            ("hasspeed", Some(0)),
            ("hasbearing", Some(1)),
            ("hasaltitude", Some(2)),
            ("hasaccuracy", Some(3)),
            ("speedvalid", Some(0)),
            ("validcourse", Some(1)),
            ("hastrack", None),
            ("hasfix", None),
            ("valid", None),
            ("speed", None),
            ("hasseq", None),
        ] {
            assert_eq!(field_of_flag(name), field, "{name}");
        }
    }
}
