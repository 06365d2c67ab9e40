//! `[fields.NAME]`: a value of the payload as a typed column.
//!
//! ```text
//! [fields.battery]               attributes['batt'] ─▶ battery Nullable(UInt8)
//! from = "batt"
//! type = "UInt8"
//! ```
//!
//! Every source keeps the value at `from`, as `keep` would. ClickHouse computes the column from the
//! kept value.

use std::collections::BTreeSet;
use std::fmt::Display;

use super::field::{Field, FieldType};
use super::settings::Settings;
use milepost_decode::{Keep, Pointer};

/// Maximum number of fields. It is limited because each column costs time in every insert and space
/// in every row.
const FIELDS_MAX: usize = 32;
/// Maximum number of paths that are tried in turn for a field.
const FROM_MAX: usize = 8;
/// Maximum number of values that stand for unknown.
const UNKNOWN_MAX: usize = 32;
/// Maximum length of a column's name, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Maximum length of a comment or a unit, in characters.
const COMMENT_CHARS_MAX: usize = 200;
/// The columns of the tables and views of fixes, one on each line that is not a comment.
const COLUMNS: &str = include_str!("../../../sql/columns.sql");
/// A column that only `last_positions_state` has, so `sql/columns.sql` does not list it.
const VERSION: &str = "version";

/// Returns whether milepost itself gives the tables and views of fixes a column of this name.
fn is_builtin_column(name: &str) -> bool {
    let lines = COLUMNS.lines().map(str::trim_start).filter(|line| !line.starts_with("--"));
    name == VERSION || lines.filter_map(|line| line.split(' ').next()).any(|column| column == name)
}

/// Reads all of `[fields.NAME]`, ordered by name.
pub(super) fn read(settings: &mut Settings) -> Vec<Field> {
    let names = settings.names_in("fields.");
    if names.len() > FIELDS_MAX {
        settings.add_violation(
            "fields",
            format!("at most {FIELDS_MAX} fields; there are {}", names.len()),
        );
    }
    names
        .into_iter()
        .filter_map(|name| Reader { section: format!("fields.{name}"), settings }.read(name))
        .collect()
}

/// Reads one section `[fields.NAME]`.
struct Reader<'s> {
    /// Key of the section, such as `fields.battery`.
    section: String,
    settings: &'s mut Settings,
}

impl Reader<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.section)
    }

    fn add_violation(&mut self, key: &str, problem: impl Display) {
        self.settings.add_violation(&self.key(key), problem);
    }

    /// Reads a field; `None` after a violation.
    fn read(mut self, name: String) -> Option<Field> {
        let violations_before = self.settings.violations.len();
        let section = self.section.clone();
        self.settings.valid(&section, check_name(&name));
        let from = self.read_from();
        let kind = self.read_kind();
        let comment = self.read_text("comment");
        let unit = self.read_text("unit");
        let [min, max] = ["min", "max"].map(|key| self.read_limit(key, kind.as_ref()));
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            self.add_violation("min", format!("{min} is above max, {max}"));
        }
        let unknown = self.read_unknown(kind.as_ref());
        if self.settings.violations.len() > violations_before {
            return None;
        }
        Some(Field { name, from, kind: kind?, comment, unit, min, max, unknown })
    }

    /// Reads `from`, and returns its paths in the notation of `keep`.
    fn read_from(&mut self) -> Vec<String> {
        let key = self.key("from");
        let given: Option<Vec<String>> = self.settings.read(&key);
        // A value that is given but was not read has the wrong type, which `Settings::read` has
        // reported.
        let is_reported = given.is_none() && self.settings.is_given(&key);
        let mut given = given.unwrap_or_default();
        given.retain(|from| !from.is_empty());
        if given.is_empty() && !is_reported {
            self.add_violation(
                "from",
                "required: a key of the payload such as \"batt\", or a JSON pointer",
            );
        } else {
            self.settings.add_effective(&key, &given);
        }
        if given.len() > FROM_MAX {
            self.add_violation("from", format!("must have at most {FROM_MAX} paths"));
        }
        let paths = given.iter().filter_map(|from| {
            let path = path(from).and_then(|path| match Keep::of_names(&[path])? {
                Keep::Named(names) => Ok(names[0].clone()),
                Keep::All | Keep::Nothing => Err("\"*\" names no key".to_owned()),
            });
            self.settings.valid(&key, path)
        });
        let paths: Vec<String> = paths.collect();
        if paths.iter().collect::<BTreeSet<_>>().len() < paths.len() {
            self.add_violation("from", "the same path is listed twice");
        }
        paths
    }

    /// Reads `type`; `None` after a violation.
    fn read_kind(&mut self) -> Option<FieldType> {
        let key = self.key("type");
        let Some(text) = self.settings.read::<String>(&key) else {
            if !self.settings.is_given(&key) {
                self.add_violation(
                    "type",
                    format!("required: {}", &FieldType::EXPECTED["must be ".len()..]),
                );
            }
            return None;
        };
        self.settings.add_effective(&key, &text);
        self.settings.valid(&key, FieldType::parse(&text))
    }

    /// Reads a string that becomes part of a column's comment.
    fn read_text(&mut self, name: &str) -> String {
        let key = self.key(name);
        let Some(text) = self.settings.read::<String>(&key) else { return String::new() };
        self.settings.add_effective(&key, &text);
        if text.chars().count() > COMMENT_CHARS_MAX || text.chars().any(char::is_control) {
            let expected = format!("must be one line of at most {COMMENT_CHARS_MAX} characters");
            self.add_violation(name, expected);
        }
        if text.contains(['[', ']']) {
            self.add_violation(
                name,
                "must not contain [ or ]: milepost puts the origin of the field between them",
            );
        }
        text.trim().to_owned()
    }

    /// Reads `min` or `max`. `kind`: the column's type, `None` if it is invalid.
    fn read_limit(&mut self, name: &str, kind: Option<&FieldType>) -> Option<f64> {
        let key = self.key(name);
        let limit: f64 = self.settings.read(&key)?;
        self.settings.add_effective(&key, &limit);
        match kind.map(|kind| (kind, kind.number_range())) {
            Some((kind, None)) => {
                self.add_violation(name, format!("only for numbers; the type is {kind}"))
            }
            Some((kind, Some([lowest, highest]))) if !(lowest..=highest).contains(&limit) => {
                self.add_violation(name, format!("{limit} is outside {kind}"));
            }
            Some((_, Some(_))) | None => {}
        }
        Some(limit)
    }

    /// Reads `unknown`, the values that stand for "unknown". For an Enum8, adds the counterpart of
    /// each value: the number of a name, or the name of a number.
    fn read_unknown(&mut self, kind: Option<&FieldType>) -> Vec<String> {
        let key = self.key("unknown");
        let mut values: Vec<String> = self.settings.read(&key).unwrap_or_default();
        values.retain(|value| !value.is_empty());
        if values.is_empty() {
            return values;
        }
        self.settings.add_effective(&key, &values);
        if values.len() > UNKNOWN_MAX {
            self.add_violation("unknown", format!("must have at most {UNKNOWN_MAX} values"));
        }
        for value in &values {
            let is_number = value.parse::<f64>().is_ok_and(f64::is_finite);
            if kind.is_some_and(|kind| kind.number_range().is_some()) && !is_number {
                self.add_violation(
                    "unknown",
                    format!("\"{value}\" is not a number, which the type requires"),
                );
            }
            if value.contains(['[', ']']) || value.chars().any(char::is_control) {
                self.add_violation("unknown", "must be one line, without [ and ]");
            }
        }
        // A device may send the name of an Enum8's value, or its number. If one of the two stands
        // for unknown, so does the other.
        if let Some(FieldType::Enum8(members)) = kind {
            let is_unknown = |text: &String| values.contains(text);
            // A string that is both a name and the number of another value counts as the name.
            let is_name = |text: &String| members.iter().any(|(name, _)| name == text);
            let numbers = members.iter().map(|(name, number)| (name, number.to_string()));
            let pairs = numbers.filter(|(_, number)| !is_name(number));
            let counterparts: Vec<String> = pairs
                .filter(|(name, number)| is_unknown(name) || is_unknown(number))
                .flat_map(|(name, number)| [name.clone(), number])
                .filter(|text| !is_unknown(text))
                .collect();
            values.extend(counterparts);
        }
        values
    }
}

/// Checks the name of a field, which becomes the name of its column.
fn check_name(name: &str) -> Result<(), String> {
    let mut bytes = name.bytes();
    let is_name = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.len() <= NAME_BYTES_MAX;
    if !is_name {
        return Err(format!(
            "must be a name of a column: only a to z, 0 to 9 and _, beginning with a letter, at \
             most {NAME_BYTES_MAX} bytes"
        ));
    }
    if is_builtin_column(name) {
        return Err("the tables have a column of this name; choose another".to_owned());
    }
    Ok(())
}

/// Converts a key, a path such as `io/239`, or a JSON pointer to a path as `keep` writes it.
fn path(from: &str) -> Result<String, String> {
    let Some(steps) = from.strip_prefix('/') else { return Ok(from.to_owned()) };
    Pointer::new(from)?;
    Ok(steps.replace("~1", "/").replace("~0", "~"))
}

#[cfg(test)]
mod tests {
    use crate::{Config, Error};

    fn violations(toml: &str) -> Vec<String> {
        match Config::parse(toml) {
            Err(Error::Violations(violations)) => violations,
            other => panic!("expected violations, got {other:?}"),
        }
    }

    #[test]
    fn field_is_read_and_printed() {
        let config = Config::parse(
            "[fields.battery]\nfrom = 'batt'\ntype = 'UInt8'\n\
             comment = 'Charge of the phone, per cent'",
        )
        .unwrap();
        let [field] = &config.clickhouse.fields[..] else { panic!("{:?}", config.clickhouse) };
        assert_eq!(
            (&*field.name, &*field.from[0], field.kind.to_string()),
            ("battery", "batt", "UInt8".to_owned())
        );
        let again = Config::parse(&config.to_string()).unwrap();
        assert_eq!(again.clickhouse.fields, config.clickhouse.fields, "{config}");
    }

    #[test]
    fn from_is_a_key_a_path_or_a_json_pointer() {
        let config = Config::parse(
            "[fields.ignition]\nfrom = ['/io/239', 'a/b', '/x~1y/~0z']\ntype = 'Bool'\n\
             unknown = [2, 'n/a']",
        )
        .unwrap();
        assert_eq!(config.clickhouse.fields[0].from, ["io/239", "a/b", "x/y/~z"]);
        assert_eq!(config.clickhouse.fields[0].unknown, ["2", "n/a"]);
    }

    #[test]
    fn single_number_is_a_list_of_one() {
        let toml = "[fields.ignition]\nfrom = 239\ntype = 'UInt8'\nunknown = 255";
        let field = &Config::parse(toml).unwrap().clickhouse.fields[0];
        assert_eq!(
            (&field.from[..], &field.unknown[..]),
            (&["239".to_owned()][..], &["255".to_owned()][..])
        );
        assert!(violations("[fields.a]\nfrom = ''\ntype = 'UInt8'")[0].contains("required"));
        let lines = violations("[fields.battery]");
        assert!(lines[0].starts_with("fields.battery.from: required"), "{lines:#?}");
        let lines = violations("[fields]\nbattery = 'UInt8'");
        assert!(lines[0].contains("such as [fields.battery]"), "{lines:#?}");
    }

    #[test]
    fn enum_values_have_names_and_numbers() {
        let config =
            Config::parse("[fields.mode]\nfrom = 'm'\ntype = \"Enum8( 'on'=1 , 'off' = 0)\"")
                .unwrap();
        assert_eq!(config.clickhouse.fields[0].kind.to_string(), "Enum8('off' = 0, 'on' = 1)");
        let toml = "[fields.mode]\nfrom = 'm'\ntype = \"Enum8('off' = 0, 'none' = 2, '0' = 3)\"";
        for (unknown, expected) in [
            ("['none', 'n/a']", &["none", "n/a", "2"][..]),
            ("[2]", &["2", "none"]),
            // The text `0` is the name of value 3, not the number of `off`.
            ("['off']", &["off"]),
            ("['0']", &["0", "3"]),
        ] {
            let config = Config::parse(&format!("{toml}\nunknown = {unknown}")).unwrap();
            assert_eq!(config.clickhouse.fields[0].unknown, expected, "{unknown}");
        }
        let counted =
            Config::parse("[fields.mode]\nfrom = 'm'\ntype = \"Enum8('off', 'on')\"").unwrap();
        assert_eq!(counted.clickhouse.fields[0].kind.to_string(), "Enum8('off' = 1, 'on' = 2)");
    }

    #[test]
    fn all_violations_of_fields_are_reported_at_once() {
        let lines = violations(
            "[fields.speed]\nfrom = 'v'\ntype = 'UInt8'\n\
             [fields.Battery]\nfrom = 'b'\ntype = 'UInt8'\n\
             [fields.version]\nfrom = 'b'\ntype = 'UInt8'\n\
             [fields.a]\ntype = 'Array(UInt8)'\n\
             [fields.b]\nfrom = '/b~2'\ntype = 'Nullable(UInt8)'\n\
             [fields.c]\nfrom = '*'\ntype = 'UInt8'\nmin = -1\nmax = 300\n\
             [fields.d]\nfrom = 'd'\ntype = 'String'\nmin = 1\n\
             [fields.e]\nfrom = 'e'\ntype = 'Int8'\nmin = 5\nmax = 4\nunknown = ['x']\n\
             [fields.f]\nfrom = 'f'\ntype = \"Enum8('a' = 1, 'a' = 2)\"\ncomment = 'see [1]'\n\
             [fields.g]\nfrom = 'g'\nkind = 'Bool'\n",
        );
        for expected in [
            "fields.speed: the tables have a column of this name",
            "fields.Battery: must be a name of a column",
            "fields.version: the tables have a column of this name",
            "fields.a.from: required",
            "fields.a.type: \"Array(UInt8)\": must be UInt8 to UInt64",
            "fields.b.from: \"/b~2\": must be a JSON pointer",
            "fields.b.type: \"Nullable(UInt8)\": leave Nullable out",
            "fields.c.from: \"*\" names no key",
            "fields.c.min: -1 is outside UInt8",
            "fields.c.max: 300 is outside UInt8",
            "fields.d.min: only for numbers; the type is String",
            "fields.e.min: 5 is above max, 4",
            "fields.e.unknown: \"x\" is not a number",
            "fields.f.type: \"Enum8('a' = 1, 'a' = 2)\": must be like Enum8",
            "fields.f.comment: must not contain [ or ]",
            "fields.g.type: required",
            "fields.g.kind: unknown key; did you mean fields.g.",
        ] {
            let count = lines.iter().filter(|line| line.starts_with(expected)).count();
            assert_eq!(count, 1, "{expected} in {lines:#?}");
        }
        assert_eq!(lines.len(), 17, "{lines:#?}");
    }

    #[test]
    fn fields_and_kept_names_are_limited_together() {
        let field = |n: usize| format!("[fields.f{n}]\nfrom = 'k{n}'\ntype = 'UInt8'\n");
        let many: String = (0..33).map(field).collect();
        assert!(violations(&many)[0].starts_with("fields: at most 32 fields; there are 33"));
        let keep = (0..60).map(|n| format!("'n{n}'")).collect::<Vec<_>>().join(", ");
        let source = format!("[[sources]]\ntopic = 'a/+'\nkeep = [{keep}]\n");
        let four: String = (0..4).map(field).collect();
        assert!(Config::parse(&format!("{source}{four}")).is_ok());
        let lines = violations(&format!("{source}{four}{}", field(4)));
        assert_eq!(
            lines,
            ["sources[1].keep: 65 names, including those of [fields.NAME]; at most 64"]
        );
    }
}
