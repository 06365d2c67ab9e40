//! Recognises flags that state that an optional field is not known, such as Android's
//! `"hasBearing":false` beside a bearing of 0.

use super::field_names::is_name_of;

/// The fields that such a flag can be about.
const FIELDS: [&str; 4] = ["speed", "heading", "alt", "acc"];
/// Whether speed, heading, altitude and accuracy are stated to be unknown.
pub(super) type Unknown = [bool; FIELDS.len()];

/// Returns whether a flag of a field, whose value is false, 0 or another such word, states that the
/// field is unknown. `name`: normalised. A number `valid_speed` may be the speed itself.
pub(super) fn may_be_flag(name: &str, value: &str) -> bool {
    !name.starts_with("valid") || value.trim() != "0"
}

/// Returns the place in [`Unknown`] of the field that is known if the flag `name` is set, as in
/// `hasSpeed` and `course_valid`. `name`: normalised.
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
