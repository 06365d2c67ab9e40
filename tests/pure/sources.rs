//! Checks that each violation in `[[sources]]` and `[formats.NAME]` is reported with the valid
//! form.

use milepost_config::{Config, Error};

fn violations(toml: &str) -> Vec<String> {
    match Config::parse(toml) {
        Err(Error::Violations(violations)) => violations,
        other => panic!("{toml}: expected violations, got {other:?}"),
    }
}

/// Asserts that the only violation is about this key and contains all of these words.
#[track_caller]
fn check(toml: &str, key: &str, expected: &[&str]) {
    let reported = violations(toml);
    assert_eq!(reported.len(), 1, "{toml}: {reported:#?}");
    assert!(reported[0].starts_with(&format!("{key}:")), "{toml}: {reported:#?}");
    for words in expected {
        assert!(reported[0].contains(words), "{toml}: {words} in {reported:#?}");
    }
}

fn source(lines: &str) -> String {
    format!("[[sources]]\ntopic = 'a/+'\n{lines}")
}

fn format(lines: &str) -> String {
    format!("[[sources]]\ntopic = 'a/+'\nformat = 'acme'\n[formats.acme]\n{lines}")
}

#[test]
fn invalid_source_is_reported_with_the_valid_form() {
    check("[[sources]]\nformat = 'owntracks'", "sources[1].topic", &["owntracks/+/+"]);
    for topic in ["a/#", "$share/g/a/+", "a+/b", "", "+/+/+/+/+/+/+/+/+"] {
        let reported = violations(&format!("[[sources]]\ntopic = '{topic}'\ndriver = '{{1}}'"));
        assert!(
            reported.len() == 1 && reported[0].starts_with("sources[1].topic:"),
            "{topic}: {reported:#?}"
        );
    }
    check(
        &source("format = 'own-tracks'"),
        "sources[1].format",
        &["owntracks, traccar,", "[formats.NAME]"],
    );
    check("[[sources]]\ntopic = 'a/+/+'", "sources[1].driver", &["\"{1}:{2}\""]);
    check(
        "[[sources]]\ntopic = 'positions'\nformat = 'traccar'",
        "sources[1].driver",
        &["JSON pointer", "/device/uniqueId"],
    );
    check(&source("driver = '{2}'"), "sources[1].driver", &["no {2}", "has 1 `+`"]);
    check(&source("driver = '{x}'"), "sources[1].driver", &["\"{1}\""]);
    check(&source("driver = 'van'"), "sources[1].driver", &["\"{1}\"", "/device/id"]);
    check(&source("driver = '{1}/x'"), "sources[1].driver", &["A-Z a-z 0-9"]);
    check(&source("driver = '/'"), "sources[1].driver", &["JSON pointer"]);
    check(&source("driver = '/id'\nformat = 'nmea'"), "sources[1].driver", &["{1}"]);
    check(&source("format = 'thingsboard'"), "sources[1].speed_unit", &["\"km/h\"", "\"knots\""]);
    check(
        &source("format = 'geojson'\nspeed_unit = 'kmh'"),
        "sources[1].speed_unit",
        &["\"km/h\""],
    );
    check(
        &source("format = 'owntracks'\nspeed_unit = 'km/h'"),
        "sources[1].speed_unit",
        &["its own"],
    );
    check(&source("keep = ['/batt']"), "sources[1].keep", &["without a leading /"]);
    check(&source("keep = ['*', 'batt']"), "sources[1].keep", &["alone"]);
    check(&source("keep = 'batt'\nformat = 'nmea'"), "sources[1].keep", &["nmea"]);
    check(&source("formt = 'nmea'"), "sources[1].formt", &["did you mean sources[1].format?"]);
    let keep = |names: String| source(&format!("keep = [{names}]"));
    check(
        &keep((0..65).map(|n| format!("'f{n}',")).collect()),
        "sources[1].keep",
        &["at most 64 names"],
    );
    check(&keep(format!("'{}'", "x".repeat(129))), "sources[1].keep", &["\"batt\""]);
    let most =
        (0..63).map(|n| format!("'f{n}',")).chain([format!("'{}'", "x".repeat(128))]).collect();
    assert!(Config::parse(&keep(most)).is_ok());
    check(&source("driver = '/a~2'"), "sources[1].driver", &["~0", "~1"]);
    for nothing in ["topic = ''", "", "topic = ''\n[[sources]]\ntopic = 'a/+'"] {
        check(&format!("[[sources]]\n{nothing}"), "sources[1].topic", &["owntracks/+/+"]);
    }
    check("[sources]\ntopic = 'a/+'", "sources", &["[[sources]]"]);
    check("sources = []", "sources", &["[[sources]]"]);
}

#[test]
fn sources_are_defined_once_and_do_not_overlap() {
    check(
        "[mqtt]\ntopics = ['b/+']\n[[sources]]\ntopic = 'a/+'",
        "mqtt.topics",
        &["not both", "format = \"milepost\""],
    );
    check("[source]\ntopic = 'b/+'\n[[sources]]\ntopic = 'a/+'", "source", &["not both"]);
    let two = |other: &str| {
        format!("[[sources]]\ntopic = 'a/+/c'\n[[sources]]\ntopic = '{other}'\ndriver = '{{1}}'")
    };
    check(&two("a/b/+"), "sources", &["a/+/c", "a/b/+", "overlap"]);
    check(&two("a/+/c"), "sources", &["a/+/c", "keep one"]);
    assert!(Config::parse(&two("a/+/d")).is_ok());
}

#[test]
fn invalid_mapping_is_reported_with_the_valid_form() {
    let good = "lat = '/lat'\nlng = '/lng'\n";
    assert!(Config::parse(&format(good)).is_ok());
    check(&format("lat = '/lat'"), "formats.acme.lng", &["JSON pointer", "/lng"]);
    check(&format("lat = 'lat'\nlng = '/lng'"), "formats.acme.lat", &["JSON pointer"]);
    check(&format("lat = '/a~2'\nlng = '/lng'"), "formats.acme.lat", &["~0", "~1"]);
    check(&format("lat = '/lat'\nlng = '/lat'"), "formats.acme", &["/lat", "two fields"]);
    check(
        &format(&format!("{good}speed = '/v'")),
        "formats.acme.speed_unit",
        &["m/s", "km/h", "mph", "knots"],
    );
    check(
        &format(&format!("{good}speed = '/v'\nspeed_unit = 'kph'")),
        "formats.acme.speed_unit",
        &["\"km/h\""],
    );
    check(
        &format(&format!("{good}ts = '/t'")),
        "formats.acme.ts_unit",
        &["\"s\"", "\"ms\"", "\"rfc3339\""],
    );
    check(
        &format(&format!("{good}alt = '/t'\nalt_unit = 'feet'")),
        "formats.acme.alt_unit",
        &["\"ft\""],
    );
    check(&format(&format!("{good}speed_unit = 'm/s'")), "formats.acme.speed_unit", &["no speed"]);
    check(
        &format(&format!("{good}speeed = '/v'")),
        "formats.acme.speeed",
        &["did you mean formats.acme.speed"],
    );
    check("[formats.nmea]\nlat = '/lat'\nlng = '/lng'", "formats.nmea", &["choose another"]);
    check(
        "[formats.'a b']\nlat = '/lat'\nlng = '/lng'",
        "formats.a b",
        &["letters, digits, _ and -"],
    );
    check(
        "[formats.acme]\nlat = '/lat'\nlng = '/lng'",
        "formats.acme",
        &["no source uses it", "format = \"acme\"", "or remove it"],
    );
    let other = "[formats.acme]\nlat = '/lat'\nlng = '/lng'\n[[sources]]\ntopic = 'a/+'";
    check(other, "formats.acme", &["no source uses it"]);
}

#[test]
fn empty_string_is_unset_and_missing_fields_are_reported() {
    check(
        &source("format = 'thingsboard'\nspeed_unit = ''"),
        "sources[1].speed_unit",
        &["\"km/h\""],
    );
    check("[[sources]]\ntopic = ''\ndriver = '/id'", "sources[1].topic", &["owntracks/+/+"]);
    check(&format("lat = ''\nlng = '/lng'"), "formats.acme.lat", &["JSON pointer"]);
    let good = "lat = '/lat'\nlng = '/lng'\n";
    check(
        &format(&format!("{good}speed = '/v'\nspeed_unit = ''")),
        "formats.acme.speed_unit",
        &["\"m/s\""],
    );
    check(&format(&format!("{good}ts = ''\nts_unit = 's'")), "formats.acme.ts_unit", &["no ts"]);
    let nothing = "points = ''\nspeed = ''\nspeed_unit = ''\nheading = ''\ndriver = ''\n";
    let config = Config::parse(&format(&format!("{good}{nothing}"))).unwrap();
    assert_eq!(config.mqtt.topics, ["a/+"]);
    assert!(Config::parse(&source("driver = ''\nformat = ''\nspeed_unit = ''\nkeep = ''")).is_ok());
}

#[test]
fn printed_sources_parse_to_the_same_sources() {
    let toml = "[formats.acme]\nlat = '/lat'\nlng = '/lng'\nts = '/t'\nts_unit = 's'\n\
                driver = '/id'\n[[sources]]\ntopic = 'owntracks/+/+'\ndriver = '{1}:{2}'\n\
                format = 'owntracks'\nkeep = ['batt', 'a/b']\n[[sources]]\ntopic = 'acme'\n\
                format = 'acme'\n[[sources]]\ntopic = 'drivers/+/gps'";
    let config = Config::parse(toml).unwrap();
    let printed = config.to_string();
    let again = Config::parse(&printed).unwrap_or_else(|error| panic!("{error}\n{printed}"));
    assert_eq!(config.effective(), again.effective());
    assert_eq!(printed.matches("[[sources]]").count(), 3, "{printed}");
    assert!(
        printed.contains("driver = \"{1}\"") && printed.contains("format = \"milepost\""),
        "{printed}"
    );
    assert!(!printed.contains("topics"), "{printed}");
    assert_eq!(config.mqtt.topics, ["owntracks/+/+", "acme", "drivers/+/gps"]);
}
