//! Tests TLS and logins. The real binary connects to a secured broker, and to the real engine
//! through HTTPS. Valid setups work, a log line names the setting to change after each failure, and
//! files are reloaded without a restart.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use lab_harness::proxy::{Fault, Proxy};
use lab_harness::tls::{Authority, Identity, TlsFront};
use lab_stack::{ClickHouse, Milepost, wait_until};
use loadgen::publish::Plan;
use loadgen::verify::verify;

use crate::secure::{
    ProxyAction, SecureBroker, broker_password, scripted_clickhouse, tls_lines, write_file,
};
use crate::world::{
    DatabaseGuard, SOON, finish, publish, publish_in_background, settings, shared_engine,
    wait_for_metric, world,
};

const HOSTS: [&str; 2] = ["localhost", "127.0.0.1"];

fn fix_payload(seq: u32) -> Vec<u8> {
    format!(r#"{{"lat":1,"lng":2,"seq":{seq}}}"#).into_bytes()
}

/// Waits until `/readyz` and the log contain these words.
fn wait_for_words(milepost: &Milepost, words: &str) -> Result<()> {
    let mut last = String::new();
    wait_until(&format!("/readyz says {words:?}"), SOON, || {
        last = milepost.get("/readyz").err().map_or(String::new(), |error| error.to_string());
        Ok(last.contains(words))
    })
    .with_context(|| {
        format!("/readyz: {last}, log: {}", milepost.process.log().unwrap_or_default())
    })?;
    wait_until(&format!("a line of the log says {words:?}"), SOON, || {
        Ok(milepost.process.log()?.lines().any(|line| line.contains(words)))
    })?;
    let log = milepost.process.log()?;
    ensure!(!log.contains("panicked"), "{log}");
    Ok(())
}

/// Publishes a fix through the plain listener, and waits until milepost acknowledges it.
fn publish_until_acked(broker: &SecureBroker, milepost: &Milepost, seq: u32) -> Result<()> {
    let acks = milepost.metric("acks_total")?;
    publish(broker.port("plain"), &[("drivers/d1/gps", &fix_payload(seq))])?;
    wait_for_metric(milepost, "acks_total", acks + 1.0)
}

#[test]
fn tls_and_password_files_are_reloaded_without_a_restart() -> Result<()> {
    let folder = lab_stack::folder()?;
    let folder = folder.path();
    let (old, new) = (Authority::new("old")?, Authority::new("new")?);
    let engine = ClickHouse::start_with_password(folder, "ch-Secret-1")?;
    let https = TlsFront::start(&old.sign(&HOSTS)?, engine.port)?;
    let passwords = broker_password(folder, "milepost", "mq-Secret-1")?;
    let lines = format!(
        "{}\npassword_file {passwords}\nallow_anonymous false",
        tls_lines(folder, "server", &old.pem, &old.sign(&HOSTS)?)?
    );
    let mut broker = SecureBroker::start(folder, &[("tls", lines)])?;
    let settings = settings(folder, 1, &format!("https://localhost:{}", https.port))
        .with("MQTT__URL", format!("mqtts://localhost:{}", broker.port("tls")))
        .with("MQTT__CA_FILE", write_file(folder, "mqtt-ca.pem", &old.pem)?)
        .with("MQTT__USERNAME", "milepost")
        .with("MQTT__PASSWORD_FILE", write_file(folder, "mqtt.password", "mq-Secret-1\n")?)
        .with("CLICKHOUSE__CA_FILE", write_file(folder, "clickhouse-ca.pem", &old.pem)?)
        .with(
            "CLICKHOUSE__PASSWORD_FILE",
            write_file(folder, "clickhouse.password", "ch-Secret-1\n")?,
        );
    settings.migrate()?;
    let mut milepost = settings.run()?;
    publish_until_acked(&broker, &milepost, 1)?;

    // Replace the broker's password and certificate; another CA has signed the new certificate.
    broker_password(folder, "milepost", "mq-Secret-2")?;
    tls_lines(folder, "server", &new.pem, &new.sign(&HOSTS)?)?;
    broker = broker.restart()?;
    wait_for_words(&milepost, "not signed by a CA that milepost trusts; set mqtt.ca_file")?;
    write_file(folder, "mqtt-ca.pem", "an incomplete file")?;
    // An attempt may read the incomplete file; a later one reads the complete file.
    std::thread::sleep(std::time::Duration::from_millis(300));
    write_file(folder, "mqtt-ca.pem", &new.pem)?;
    wait_for_words(&milepost, "set mqtt.username and mqtt.password_file")?;
    write_file(folder, "mqtt.password", "mq-Secret-2")?;
    wait_until("the broker is back", SOON, || Ok(milepost.get("/readyz").is_ok()))?;
    publish_until_acked(&broker, &milepost, 2)?;

    // Replace ClickHouse's certificate.
    https.set_certificate(&new.sign(&HOSTS)?)?;
    std::thread::sleep(std::time::Duration::from_secs(3)); // an idle connection is kept for 2 s
    publish(broker.port("plain"), &[("drivers/d1/gps", &fix_payload(3))])?;
    wait_for_words(&milepost, "not signed by a CA that milepost trusts; set clickhouse.ca_file")?;
    write_file(folder, "clickhouse-ca.pem", &new.pem)?;
    wait_for_metric(&milepost, "acks_total", 3.0)?;
    assert_eq!(
        engine.query("SELECT arraySort(groupArray(seq)) FROM fleet.fixes")?.trim(),
        "[1,2,3]"
    );

    let output =
        [milepost.process.log()?, milepost.get("/metrics")?, settings.call(&["config"])?.1];
    let cmdline = std::fs::read(format!("/proc/{}/cmdline", milepost.process.pid()))?;
    let output = format!("{}\n{}", output.join("\n"), String::from_utf8_lossy(&cmdline));
    for secret in ["Secret", "PRIVATE KEY", "BEGIN CERTIFICATE"] {
        ensure!(!output.contains(secret), "{secret} is printed: {output}");
    }
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

#[test]
fn client_certificate_login_is_reloaded_without_a_restart() -> Result<()> {
    let folder = lab_stack::folder()?;
    let folder = folder.path();
    let (ca, client_ca, new_client_ca) =
        (Authority::new("ca")?, Authority::new("clients")?, Authority::new("new_clients")?);
    let lines = format!(
        "{}\nrequire_certificate true\nuse_identity_as_username true",
        tls_lines(folder, "server", &client_ca.pem, &ca.sign(&HOSTS)?)?
    );
    let mut broker = SecureBroker::start(folder, &[("mutual", lines)])?;
    let engine = shared_engine()?;
    let _database_guard = DatabaseGuard::new(&engine, "client_certificate");
    let first_identity = client_ca.sign(&["milepost"])?;
    let settings = settings(folder, 1, &engine.server.url())
        .with("CLICKHOUSE__DATABASE", "client_certificate")
        .with("MQTT__URL", format!("mqtts://127.0.0.1:{}", broker.port("mutual")))
        .with("MQTT__CA_FILE", write_file(folder, "ca.pem", &ca.pem)?)
        .with("MQTT__CERT_FILE", write_file(folder, "client.pem", &first_identity.cert)?)
        .with("MQTT__KEY_FILE", write_file(folder, "client.key", &first_identity.key)?);
    settings.migrate()?;
    let mut milepost = settings.run()?;
    publish_until_acked(&broker, &milepost, 1)?;

    write_file(folder, "server-ca.pem", &new_client_ca.pem)?;
    broker = broker.restart()?;
    wait_for_words(
        &milepost,
        "the server refuses the client certificate; mqtt.cert_file must be valid",
    )?;
    let second_identity = new_client_ca.sign(&["milepost"])?;
    write_file(folder, "client.pem", &second_identity.cert)?;
    write_file(folder, "client.key", &second_identity.key)?;
    wait_until("the new certificate is accepted", SOON, || Ok(milepost.get("/readyz").is_ok()))?;
    publish_until_acked(&broker, &milepost, 2)?;
    let log = milepost.process.log()?;
    ensure!(!log.contains("PRIVATE KEY") && !log.contains("BEGIN CERTIFICATE"), "{log}");
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

#[test]
fn kill_9_under_tls_on_both_sides_loses_nothing() -> Result<()> {
    let folder = lab_stack::folder()?;
    let folder = folder.path();
    let ca = Authority::new("ca")?;
    let engine = shared_engine()?;
    let _database_guard = DatabaseGuard::new(&engine, "fleet_through_tls");
    let https = TlsFront::start(&ca.sign(&HOSTS)?, engine.server.port)?;
    let lines = tls_lines(folder, "server", &ca.pem, &ca.sign(&HOSTS)?)?;
    let broker = SecureBroker::start(folder, &[("tls", format!("{lines}\nallow_anonymous true"))])?;
    let ca_file = write_file(folder, "ca.pem", &ca.pem)?;
    let settings = settings(folder, 1, &format!("https://127.0.0.1:{}", https.port))
        .with("MQTT__URL", format!("mqtts://127.0.0.1:{}", broker.port("tls")))
        .with("MQTT__CA_FILE", &ca_file)
        .with("CLICKHOUSE__CA_FILE", &ca_file)
        .with("CLICKHOUSE__DATABASE", "fleet_through_tls");
    settings.migrate()?;
    let mut milepost = settings.run()?;
    let fleet = publish_in_background(Plan {
        broker: format!("127.0.0.1:{}", broker.port("plain")),
        run: "tls".to_owned(),
        drivers: 50,
        connections: 2,
        rate: 5_000.0,
        messages: 20_000,
        ..Plan::default()
    });
    wait_for_metric(&milepost, "batch_rows_count", 1.0)?;
    milepost.process.kill()?;
    milepost = settings.run()?;
    let verdict = verify(&engine.server.store("fleet_through_tls"), &finish(fleet)?, SOON)?;
    ensure!(verdict.is_exact(), "{verdict}");
    assert_eq!(milepost.terminate(SOON)?, 0);
    Ok(())
}

/// Starts a milepost with its own folder. A case tests one of the two servers and leaves the other
/// unreachable. The unreachable server does not hide the fault under test: milepost connects to the
/// broker even if ClickHouse never answers, queries ClickHouse even without a broker, and reports
/// the faults of both.
fn start_case(folder: &Path, name: &str, changes: &[(&str, String)]) -> Result<Milepost> {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder)?;
    let mut settings = settings(&folder, 1, "http://127.0.0.1:1");
    for (key, value) in changes {
        settings = settings.with(key, value);
    }
    settings.start()
}

/// Name of a case, settings that override the usual settings, and the words that report its fault.
type Case<'a> = (&'a str, Vec<(&'a str, String)>, &'a str);

/// Asserts that the log and `/readyz` contain the words of each case. Runs all cases at the same
/// time, because each waits for a timeout.
fn check_each_is_reported<'a>(
    folder: &Path,
    cases: impl IntoIterator<Item = Case<'a>>,
) -> Result<()> {
    let started: Result<Vec<_>> = cases
        .into_iter()
        .map(|(name, changes, words)| Ok((name, start_case(folder, name, &changes)?, words)))
        .collect();
    for (name, mut milepost, words) in started? {
        wait_for_words(&milepost, words).context(name.to_owned())?;
        ensure!(!milepost.process.log()?.contains("Wrong-Secret"), "{name}");
        milepost.terminate(SOON)?;
    }
    Ok(())
}

#[test]
fn each_broker_connection_failure_logs_the_setting_to_change() -> Result<()> {
    let folder = lab_stack::folder()?;
    let folder = folder.path();
    let (ca, other) = (Authority::new("ca")?, Authority::new("other")?);
    let good = ca.sign(&HOSTS)?;
    let lines = |name: &str, identity: &Identity| tls_lines(folder, name, &ca.pem, identity);
    let passwords = broker_password(folder, "milepost", "right")?;
    let broker = SecureBroker::start(
        folder,
        &[
            ("tls", format!("{}\nallow_anonymous true", lines("tls", &good)?)),
            ("expired", lines("expired", &ca.sign_until(&HOSTS, 2020)?)?),
            ("elsewhere", lines("elsewhere", &ca.sign(&["elsewhere.example"])?)?),
            ("mutual", format!("{}\nrequire_certificate true", lines("mutual", &good)?)),
            ("password", format!("{}\npassword_file {passwords}", lines("password", &good)?)),
        ],
    )?;
    let url = |scheme: &str, listener: &str| {
        ("MQTT__URL", format!("{scheme}://127.0.0.1:{}", broker.port(listener)))
    };
    let ca_file = ("MQTT__CA_FILE", write_file(folder, "ca.pem", &ca.pem)?);
    let other_file = ("MQTT__CA_FILE", write_file(folder, "other.pem", &other.pem)?);
    let stranger = other.sign(&["milepost"])?;
    let cert = ("MQTT__CERT_FILE", write_file(folder, "stranger.pem", &stranger.cert)?);
    let key = ("MQTT__KEY_FILE", write_file(folder, "stranger.key", &stranger.key)?);
    let user = ("MQTT__USERNAME", "milepost".to_owned());
    let password = ("MQTT__PASSWORD", "Wrong-Secret".to_owned());

    let untrusted = "not signed by a CA that milepost trusts; set mqtt.ca_file";
    let cases = [
        ("wrong_ca", vec![url("mqtts", "tls"), other_file], untrusted),
        ("no_ca", vec![url("mqtts", "tls")], untrusted),
        (
            "expired",
            vec![url("mqtts", "expired"), ca_file.clone()],
            "the server's certificate has expired",
        ),
        (
            "host_name",
            vec![url("mqtts", "elsewhere"), ca_file.clone()],
            "for another host name; set mqtt.url to",
        ),
        (
            "no_cert",
            vec![url("mqtts", "mutual"), ca_file.clone()],
            "set mqtt.cert_file and mqtt.key_file",
        ),
        (
            "cert",
            vec![url("mqtts", "mutual"), ca_file.clone(), cert, key],
            "the server refuses the client certificate; mqtt.cert_file must be valid",
        ),
        (
            "password",
            vec![url("mqtts", "password"), ca_file.clone(), user, password],
            "set mqtt.username and mqtt.password_file",
        ),
        (
            "plain_to_tls",
            vec![url("mqtt", "tls")],
            "is this a TLS port? Then use mqtts:// in mqtt.url",
        ),
        (
            "tls_to_plain",
            vec![url("mqtts", "plain"), ca_file],
            "the server does not speak TLS on this port; set mqtt.url to",
        ),
    ];
    check_each_is_reported(folder, cases)
}

#[test]
fn closed_plain_connection_does_not_suggest_tls() -> Result<()> {
    let world = world("hangs_up")?;
    let proxy = Proxy::start(world.broker.port)?;
    let settings =
        world.settings.clone().with("MQTT__URL", format!("mqtt://127.0.0.1:{}", proxy.port));
    let mut milepost = settings.run()?;
    proxy.set(Fault::Refuse);
    wait_until("attempts fail", SOON, || {
        Ok(milepost.process.log()?.matches("no connection").count() >= 12)
    })?;
    let log = milepost.process.log()?;
    ensure!(!log.contains("TLS port"), "{log}");
    proxy.set(Fault::None);
    milepost.wait_until_ready()?;
    milepost.terminate(SOON)?;
    Ok(())
}

#[test]
fn each_clickhouse_connection_failure_logs_the_setting_to_change() -> Result<()> {
    let folder = lab_stack::folder()?;
    let folder = folder.path();
    let (ca, other) = (Authority::new("ca")?, Authority::new("other")?);
    let engine = ClickHouse::start_with_password(folder, "right")?;
    let front = |identity: &Identity| TlsFront::start(identity, engine.port);
    let good = front(&ca.sign(&HOSTS)?)?;
    let expired = front(&ca.sign_until(&HOSTS, 2020)?)?;
    let elsewhere = front(&ca.sign(&["elsewhere.example"])?)?;
    let no_grant = scripted_clickhouse(engine.port, |_| {
        ProxyAction::Answer(
            403,
            "Code: 497. DB::Exception: milepost: Not enough privileges. (ACCESS_DENIED)".to_owned(),
        )
    })?;
    let url = |scheme: &str, port: u16| ("CLICKHOUSE__URL", format!("{scheme}://127.0.0.1:{port}"));
    let ca_file = ("CLICKHOUSE__CA_FILE", write_file(folder, "ca.pem", &ca.pem)?);
    let other_file = ("CLICKHOUSE__CA_FILE", write_file(folder, "other.pem", &other.pem)?);
    let password = ("CLICKHOUSE__PASSWORD", "Wrong-Secret".to_owned());

    let untrusted = "not signed by a CA that milepost trusts; set clickhouse.ca_file";
    let cases = [
        ("wrong_ca", vec![url("https", good.port), other_file], untrusted),
        ("no_ca", vec![url("https", good.port)], untrusted),
        (
            "expired",
            vec![url("https", expired.port), ca_file.clone()],
            "the server's certificate has expired",
        ),
        (
            "host_name",
            vec![url("https", elsewhere.port), ca_file.clone()],
            "for another host name; set clickhouse.url to",
        ),
        (
            "password",
            vec![url("https", good.port), ca_file.clone(), password],
            "set clickhouse.user and clickhouse.password_file",
        ),
        ("grant", vec![("CLICKHOUSE__URL", no_grant)], "grant clickhouse.user what it lacks"),
        (
            "plain_to_tls",
            vec![url("http", good.port)],
            "is this a TLS port? Then use https:// in clickhouse.url",
        ),
        (
            "tls_to_plain",
            vec![url("https", engine.port), ca_file],
            "the server does not speak TLS on this port; set clickhouse.url to",
        ),
    ];
    check_each_is_reported(folder, cases)
}

#[test]
fn start_fails_and_explains_unusable_tls_files() -> Result<()> {
    let folder = lab_stack::folder()?;
    let folder = folder.path();
    let ca = Authority::new("ca")?;
    let (one, two) = (ca.sign(&["one"])?, ca.sign(&["two"])?);
    let tls =
        || settings(folder, 1, "http://127.0.0.1:1").with("MQTT__URL", "mqtts://localhost:8883");
    let cert = write_file(folder, "one.pem", &one.cert)?;
    let key = write_file(folder, "two.key", &two.key)?;
    let empty = write_file(folder, "empty.pem", "nothing\n")?;
    let cases = [
        (tls().with("MQTT__CERT_FILE", &cert), "mqtt.key_file: missing, but mqtt.cert_file is set"),
        (tls().with("MQTT__KEY_FILE", &key), "mqtt.cert_file: missing, but mqtt.key_file is set"),
        (
            tls().with("MQTT__CERT_FILE", &cert).with("MQTT__KEY_FILE", &key),
            "two.key: is not the key of",
        ),
        (
            tls().with("MQTT__CERT_FILE", &cert).with("MQTT__KEY_FILE", &cert),
            "holds no private key",
        ),
        (tls().with("MQTT__CA_FILE", &empty), "empty.pem: holds no certificate"),
        (tls().with("MQTT__CA_FILE", "/dev/zero"), "/dev/zero: is larger than any list"),
        (tls().with("MQTT__CA_FILE", "nowhere.pem"), "mqtt.ca_file: nowhere.pem: No such file"),
        (
            tls().with("CLICKHOUSE__CA_FILE", &cert),
            "clickhouse.ca_file: only for TLS, but clickhouse.url is plain text",
        ),
    ];
    for (settings, words) in cases {
        let (code, printed) = settings.call(&["run"])?;
        assert_eq!(code, 64, "{printed}");
        ensure!(printed.contains(words), "{words} is not in {printed}");
        ensure!(!printed.contains("PRIVATE KEY"), "{printed}");
    }
    Ok(())
}
