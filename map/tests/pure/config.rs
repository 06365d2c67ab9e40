//! The map refuses to listen beyond the loopback without access control, and never prints secrets.

use milepost_map::config::Config;
use rcgen::{CertifiedKey, generate_simple_self_signed};

fn violations(toml: &str) -> Vec<String> {
    match Config::parse(toml) {
        Err(milepost_config::Error::Violations(reported)) => reported,
        other => panic!("expected violations, got {other:?}"),
    }
}

#[test]
fn defaults_listen_on_loopback_and_round_trip() {
    let defaults = Config::parse("").unwrap();
    assert!(defaults.http.listen.ip().is_loopback() && !defaults.http.requires_login());
    assert_eq!(Config::parse(&defaults.to_string()).unwrap().effective(), defaults.effective());
}

#[test]
fn public_address_requires_login_and_tls_or_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (cert_file, key_file) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    std::fs::write(&cert_file, cert.pem()).unwrap();
    std::fs::write(&key_file, signing_key.serialize_pem()).unwrap();
    let tls = format!("cert_file = '{}'\nkey_file = '{}'", cert_file.display(), key_file.display());
    let (login, token) = ("username = 'u'\npassword = 'p'", "token = 't'");
    let everywhere = |lines: &[&str]| format!("[http]\nlisten = '0.0.0.0:1'\n{}", lines.join("\n"));
    for bad in [vec![], vec![login], vec![token], vec![&*tls]] {
        let reported = violations(&everywhere(&bad));
        assert!(
            reported.len() == 1
                && reported[0].contains("personal data")
                && reported[0].contains("http.behind_proxy"),
            "{reported:#?}"
        );
    }
    for good in [
        vec!["behind_proxy = true"],
        vec![&tls, login],
        vec![&*tls, token],
        vec![&tls, login, token],
    ] {
        assert!(Config::parse(&everywhere(&good)).is_ok(), "{good:?}");
    }
    let reported =
        violations(&format!("[http]\ncert_file = '{}'\nkey_file = '/none'", cert_file.display()));
    assert!(
        reported.len() == 1 && reported[0].starts_with("http.key_file: /none: "),
        "{reported:#?}"
    );
}

#[test]
fn all_violations_are_reported_at_once_without_secrets() {
    let reported = violations(
        "[http]\nlisten = 'x'\npassword = 'hunter2'\ntoken = 'hunter3'\ntoken_file = '/x'\n\
         viewers_max = 0\n[map]\ndrivers_max = 0\n\
         style_url = 'ftp://x'\nstyle_origins = ['y']\npoints = 1\n[clickhouse]\n\
         url = 'http://u:hunter2@h'\nquery_timeout = '1h'\n[mqtt]\nqos = 1\n[log]\nformat = 'xml'",
    );
    for key in [
        "http.listen:",
        "http.username:",
        "http.token:",
        "http.viewers_max:",
        "map.drivers_max:",
        "map.style_url:",
        "map.style_origins:",
        "map.points:",
        "clickhouse.url:",
        "clickhouse.query_timeout:",
        "mqtt.qos:",
        "log.format:",
    ] {
        assert_eq!(
            reported.iter().filter(|reported| reported.starts_with(key)).count(),
            1,
            "{key} in {reported:#?}"
        );
    }
    assert!(!reported.join("\n").contains("hunter"), "{reported:#?}");
    let config = Config::parse(
        "[http]\nusername = 'u'\npassword = 'hunter2'\ntoken = 'hunter3'\n\
         [clickhouse]\npassword = 'hunter4'",
    )
    .unwrap();
    assert!(!format!("{config} {config:?}").contains("hunter"), "{config:?}");
}

#[test]
fn style_url_defines_the_origins_the_page_may_load_from() {
    let map = Config::parse(
        "[map]\nstyle_url = 'https://tiles.example/style.json?key=1'\n\
         style_origins = ['https://fonts.example/x', '']",
    )
    .unwrap()
    .map;
    assert_eq!(map.origins(), ["https://tiles.example", "https://fonts.example"]);
}

#[test]
fn user_header_requires_that_only_a_proxy_reaches_the_map() {
    for (bad, why) in [
        ("[http]\nuser_header = 'X-User'", "http.user_header: requires"),
        (
            "[http]\nuser_header = 'X-User'\nbehind_proxy = true\nusername = 'u'\npassword = 'p'",
            "http.user_header: requires",
        ),
        (
            "[http]\nuser_header = 'X-User'\nbehind_proxy = true\nlisten = '0.0.0.0:9480'",
            "set http.token_file, and let only the proxy",
        ),
        ("[http]\nuser_header = 'X User'\nbehind_proxy = true", "not a valid header name"),
        ("[fences]\neditors = ['ada']", "fences.editors: requires"),
        ("[fences]\npassword = 'p'", "fences.user: required"),
    ] {
        let reported = violations(bad);
        assert!(reported.iter().any(|line| line.contains(why)), "{bad}: {reported:?}");
    }
    let good = "[http]\nbehind_proxy = true\nuser_header = 'X-User'\n[fences]\nuser = 'fencer'\n\
                editors = ['ada']";
    assert!(Config::parse(good).is_ok());
    let good =
        "[http]\nbehind_proxy = true\nuser_header = 'X-User'\nlisten = '0.0.0.0:9480'\ntoken = 't'";
    assert!(Config::parse(good).is_ok());
}
