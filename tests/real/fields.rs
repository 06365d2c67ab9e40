//! Tests `[fields.NAME]`: three lines of TOML and `milepost migrate` add a typed column. ClickHouse
//! fills the column for existing rows, too.

use anyhow::{Result, ensure};
use lab_stack::Settings;
use loadgen::format::Format;
use loadgen::publish::Plan;

use crate::world::{SOON, World, finish, publish_in_background, world};

/// A fix without its closing brace.
const FIX: &str = r#"{"lat":1,"lng":2"#;

/// Returns a fix with these further members, such as `,"batt":80`.
fn fix(members: &str) -> Vec<u8> {
    format!("{FIX}{members}}}").into_bytes()
}

/// Adds the field `battery` to the settings.
fn with_battery(settings: &Settings) -> Settings {
    settings
        .clone()
        .with("FIELDS__BATTERY__FROM", "batt")
        .with("FIELDS__BATTERY__TYPE", "UInt8")
        .with("FIELDS__BATTERY__COMMENT", "Charge of the phone, per cent")
        .with("FIELDS__BATTERY__UNKNOWN", "255")
}

fn columns(world: &World) -> Result<String> {
    world.query(
        "SELECT table, position, name, type, default_kind, default_expression, compression_codec, \
         comment FROM system.columns WHERE database = '{db}' \
         AND table IN ('positions', 'last_positions_state', 'fixes', 'last_positions') \
         ORDER BY table, position",
    )
}

fn check_refused(settings: &Settings, arguments: &[&str], expected: &str) -> Result<()> {
    let (code, output) = settings.call(arguments)?;
    ensure!(code != 0 && output.contains(expected), "exit {code}, expected {expected}: {output}");
    Ok(())
}

#[test]
fn new_field_is_filled_for_old_fixes() -> Result<()> {
    let world = world("fields_old_fixes")?;
    let before =
        world.settings.clone().with("SOURCE__TOPIC", "drivers/+/gps").with("SOURCE__KEEP", "batt");
    let older = before.run()?;
    world.publish(&[
        ("drivers/kept/gps", &fix(r#","batt":80"#)),
        ("drivers/unknown/gps", &fix(r#","batt":255"#)),
        ("drivers/without/gps", &fix("")),
    ])?;
    world.wait_for("SELECT count() FROM {db}.fixes", "3", SOON)?;

    let settings = with_battery(&world.settings).with("SOURCE__TOPIC", "drivers/+/gps");
    settings.migrate()?;
    for table in ["positions FINAL", "fixes", "last_positions_state FINAL", "last_positions"] {
        let sql = format!("SELECT driver_id, battery FROM {{db}}.{table} ORDER BY driver_id");
        assert_eq!(world.query(&sql)?, "kept\t80\nunknown\t\\N\nwithout\t\\N", "{table}");
    }

    // A member without the field keeps inserting, and the rows of both members get the value.
    let newer = settings.with("MQTT__CLIENT_ID", "newer").run()?;
    let names: Vec<String> = (0..40).map(|n| format!("drivers/n{n:02}/gps")).collect();
    let payload = fix(r#","batt":7"#);
    let messages: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &*payload)).collect();
    world.publish(&messages)?;
    let sql = "SELECT count(), countIf(battery = 7) FROM {db}.fixes WHERE driver_id LIKE 'n%'";
    world.wait_for(sql, "40\t40", SOON)?;
    drop((older, newer));

    world.query("OPTIMIZE TABLE {db}.positions FINAL")?;
    world.query("OPTIMIZE TABLE {db}.last_positions_state FINAL")?;
    let sql =
        "SELECT countIf(battery = 80), countIf(battery = 7), countIf(battery IS NULL) FROM {db}.";
    for table in ["positions", "last_positions"] {
        assert_eq!(world.query(&format!("{sql}{table}"))?, "1\t40\t2", "merged {table}");
    }
    Ok(())
}

#[test]
fn migrate_gives_the_same_columns_from_every_earlier_state() -> Result<()> {
    let world = world("fields_again")?;
    let first = with_battery(&world.settings);
    first.migrate()?;
    let with_both_fields = first
        .clone()
        .with("FIELDS__AZIMUTH__FROM", "/io/9,az")
        .with("FIELDS__AZIMUTH__TYPE", "Float32")
        .with("FIELDS__AZIMUTH__COMMENT", "It's {odd}; \\");
    with_both_fields.migrate()?;
    let after = columns(&world)?;
    with_both_fields.migrate()?;
    assert_eq!(columns(&world)?, after);
    // Tables that are created with both fields equal the tables to which both fields were added.
    let new = crate::world::unmigrated("fields_again_at_once")?;
    let at_once = with_both_fields.clone().with("CLICKHOUSE__DATABASE", &*new.database);
    at_once.migrate()?;
    assert_eq!(columns(&new)?, after);

    first.migrate()?;
    ensure!(
        !columns(&world)?.contains("fixes\t13\tazimuth"),
        "the view still has the field: {}",
        columns(&world)?
    );
    let sql = "SELECT count() FROM system.columns WHERE database = '{db}' AND name = 'azimuth'";
    assert_eq!(world.query(sql)?, "2", "the columns of the tables must stay");
    with_both_fields.migrate()?;
    assert_eq!(columns(&world)?, after);

    let renamed = with_both_fields
        .with("FIELDS__BATTERY__COMMENT", "Charge")
        .with("FIELDS__BATTERY__UNIT", "per cent");
    renamed.migrate()?;
    let sql = "SELECT comment FROM system.columns WHERE database = '{db}' AND name = 'battery' \
               AND table = ";
    for table in ["positions", "last_positions_state", "fixes", "last_positions"] {
        let comment = world.query(&format!("{sql}'{table}'"))?;
        assert_eq!(comment, "Charge, in per cent [field from batt; unknown 255]", "{table}");
    }
    Ok(())
}

#[test]
fn column_type_does_not_change_silently() -> Result<()> {
    let world = world("fields_changed")?;
    world.query("ALTER TABLE {db}.positions ADD COLUMN odometer UInt32")?;
    let settings = with_battery(&world.settings).with("SOURCE__TOPIC", "drivers/+/gps");
    settings.migrate()?;
    let milepost = settings.run()?;
    world.publish(&[("drivers/d/gps", &fix(r#","batt":80,"mood":"fine""#))])?;
    world.wait_for("SELECT battery FROM {db}.fixes", "80", SOON)?;
    drop(milepost);

    let wider = settings
        .clone()
        .with("FIELDS__BATTERY__TYPE", "UInt16")
        .with("FIELDS__BATTERY__MAX", "100")
        .with("FIELDS__ODOMETER__FROM", "odo")
        .with("FIELDS__ODOMETER__TYPE", "UInt32");
    for expected in [
        "fields.battery: the column is Nullable(UInt8) but configured as Nullable(UInt16)",
        "[field from batt; max 100; unknown 255]",
        "--drop-field battery",
        "fields.odometer: positions has a column of this name that is not a field",
    ] {
        check_refused(&wider, &["migrate"], expected)?;
    }
    let (_, output) = wider.call(&["check"])?;
    ensure!(output.contains("--drop-field battery"), "{output}");
    assert_eq!(
        world.query("SELECT battery FROM {db}.fixes")?,
        "80",
        "a refused migration must change nothing"
    );

    // Drop the column, and compute it with another type from the kept attributes.
    let wider = settings.clone().with("FIELDS__BATTERY__TYPE", "Int16");
    check_refused(&wider, &["migrate", "--drop-field", "lat"], "there is no field lat")?;
    // A migration that fails because of another field drops nothing.
    let clashing =
        wider.clone().with("FIELDS__SERVER__FROM", "srv").with("FIELDS__SERVER__TYPE", "String");
    check_refused(&clashing, &["migrate", "--drop-field", "battery"], "fields.server: ")?;
    assert_eq!(world.query("SELECT toTypeName(battery) FROM {db}.fixes")?, "Nullable(UInt8)");
    let (code, output) = wider.call(&["migrate", "--drop-field", "battery"])?;
    ensure!(code == 0, "{output}");
    assert_eq!(
        world.query("SELECT battery, toTypeName(battery) FROM {db}.fixes")?,
        "80\tNullable(Int16)"
    );

    let (code, output) = world.settings.call(&["migrate", "--drop-field", "battery"])?;
    ensure!(code == 0, "{output}");
    let battery_columns =
        "SELECT count() FROM system.columns WHERE database = '{db}' AND name = 'battery'";
    assert_eq!(world.query(battery_columns)?, "0");
    assert_eq!(world.query("SELECT attributes['batt'] FROM {db}.last_positions")?, "80");
    Ok(())
}

#[test]
fn check_reports_what_migrate_would_change() -> Result<()> {
    let world = world("fields_check")?;
    let settings = with_battery(&world.settings);
    let (_, output) = settings.call(&["check"])?;
    ensure!(output.contains("without a column: battery"), "{output}");
    settings.migrate()?;
    let (_, output) = settings.call(&["check"])?;
    ensure!(output.contains("1 configured, each with its column"), "{output}");
    let (_, output) = world.settings.call(&["check"])?;
    ensure!(output.contains("not configured, so not in the views: battery"), "{output}");
    Ok(())
}

/// At first, each of two consumers has a field that the other one does not have. Then both fields
/// are migrated, and finally one consumer goes back to its earlier configuration.
#[test]
fn consumers_with_different_fields_keep_inserting() -> Result<()> {
    let world = world("fields_two_consumers")?;
    let subscribed_to = |topic: &str| world.settings.clone().with("SOURCE__TOPIC", topic);
    let first_settings = with_battery(&subscribed_to("a/+/gps")).with("MQTT__CLIENT_ID", "a");
    let with_ignition = |settings: Settings| {
        settings.with("FIELDS__IGNITION__FROM", "/io/239").with("FIELDS__IGNITION__TYPE", "Bool")
    };
    let second_settings = with_ignition(subscribed_to("b/+/gps")).with("MQTT__CLIENT_ID", "b");
    first_settings.migrate()?;
    let first = first_settings.run()?;
    second_settings.migrate()?;
    let second = second_settings.run()?;
    let send = |driver: &str| {
        let payload = fix(r#","batt":80,"io":{"239":1}"#);
        // Use two drivers: two undated fixes of one driver in the same millisecond would count as
        // one fix.
        let topics = [format!("a/{driver}-a/gps"), format!("b/{driver}-b/gps")];
        world.publish(&topics.each_ref().map(|topic| (&**topic, &*payload)))
    };
    send("one")?;
    world.wait_for("SELECT count() FROM {db}.fixes", "2", SOON)?;
    let stored = "SELECT uniqExactIf(driver_id, battery > 0), uniqExactIf(driver_id, ignition) \
                  FROM {db}.positions";
    assert_eq!(world.query(stored)?, "1\t1", "the rows of each consumer must have its field");
    check_query_refused(&world, "SELECT battery FROM {db}.fixes", "battery")?;
    with_ignition(first_settings.clone()).migrate()?;
    let in_views = "SELECT count(battery), countIf(ignition) FROM {db}.fixes";
    assert_eq!(world.query(in_views)?, "1\t1", "the views must show both fields");

    // One consumer goes back to the earlier configuration: the field that it no longer keeps is
    // NULL.
    drop(first);
    let first = subscribed_to("a/+/gps").with("MQTT__CLIENT_ID", "a").run()?;
    send("two")?;
    world.wait_for("SELECT count() FROM {db}.fixes", "4", SOON)?;
    assert_eq!(world.query(in_views)?, "1\t2");
    assert_eq!(world.query("SELECT count() FROM {db}.rejects")?, "0");
    drop((first, second));
    Ok(())
}

fn check_query_refused(world: &World, sql: &str, expected: &str) -> Result<()> {
    let answer = world.query(sql);
    ensure!(
        answer.as_ref().is_err_and(|error| format!("{error:#}").contains(expected)),
        "{answer:?}"
    );
    Ok(())
}

/// Spool files that were written without a field are replayed after the field is added. A spool
/// file that was written with the field is replayed after the field is dropped.
#[test]
fn older_spool_files_are_replayed_into_tables_with_fields() -> Result<()> {
    let world = world("fields_spool")?;
    let spool = world.folder.path().join("spool");
    let before = (world.settings.clone())
        .with("SOURCE__TOPIC", "drivers/+/gps")
        .with("SOURCE__KEEP", "batt")
        .with("SPOOL__DIR", spool.to_string_lossy());
    let after = with_battery(&before);
    // Spools a fix of this driver; the spool then has `spooled` positions.
    let spool_fix = |settings: &Settings, driver: &str, spooled: f64| -> Result<()> {
        let unreachable = settings.clone().with("CLICKHOUSE__URL", "http://127.0.0.1:1");
        let milepost = unreachable.listen()?;
        wait_until_subscribed(&milepost)?;
        let topic = format!("drivers/{driver}/gps");
        world.publish(&[(&topic, &fix(r#","batt":80"#))])?;
        crate::world::wait_for_metric(&milepost, "positions_in_spool", spooled)
    };
    spool_fix(&before, "old", 1.0)?;
    after.migrate()?;
    spool_fix(&after, "new", 2.0)?;
    let replay = |settings: &Settings, expected: &str| -> Result<()> {
        let (code, output) = settings.call(&["spool", "replay"])?;
        ensure!(code == 0, "{output}");
        let sql = "SELECT groupArray((driver_id, battery)) FROM (SELECT * FROM {db}.fixes \
                   ORDER BY driver_id)";
        assert_eq!(world.query(sql)?, expected);
        Ok(())
    };
    replay(&after, "[('new',80),('old',80)]")?;
    spool_fix(&after, "third", 1.0)?;
    let (code, output) = before.call(&["migrate", "--drop-field", "battery"])?;
    ensure!(code == 0, "{output}");
    let (code, output) = before.call(&["spool", "replay"])?;
    ensure!(code == 0, "{output}");
    assert_eq!(world.query("SELECT count() FROM {db}.fixes")?, "3");
    after.migrate()?;
    replay(&after, "[('new',80),('old',80),('third',80)]")
}

fn wait_until_subscribed(milepost: &lab_stack::Milepost) -> Result<()> {
    lab_stack::wait_until("milepost is subscribed", SOON, || {
        Ok(milepost.metric("mqtt_connected")? >= 1.0)
    })
}

/// The exports of fixes as CSV and as GeoJSON have every column of `fixes`, fields included.
#[test]
fn exports_have_the_fields() -> Result<()> {
    let world = world("fields_exports")?;
    let settings = with_battery(&world.settings).with("SOURCE__TOPIC", "drivers/+/gps");
    settings.migrate()?;
    let milepost = settings.run()?;
    world.publish(&[
        ("drivers/known/gps", &fix(r#","batt":80"#)),
        ("drivers/without/gps", &fix("")),
    ])?;
    world.wait_for("SELECT count() FROM {db}.fixes", "2", SOON)?;
    drop(milepost);
    let export = |name: &str| -> Result<String> {
        let file = lab_stack::repository().join("sql/exports").join(name);
        let mut sql = std::fs::read_to_string(file)?.replace("fleet.", "{db}.");
        for (parameter, value) in
            [("driver", ""), ("from", "2020-01-01"), ("to", "2100-01-01"), ("tz", "UTC")]
        {
            sql = sql.replace(&format!("{{{parameter}:String}}"), &format!("'{value}'"));
        }
        world.query(&sql)
    };
    let csv = export("fixes.csv.sql")?;
    let lines: Vec<&str> = csv.lines().collect();
    ensure!(lines[0].ends_with(r#""acc","battery""#) && lines.len() == 3, "{csv}");
    ensure!(lines[1].ends_with(",80") && lines[2].ends_with(','), "{csv}");
    let geojson: serde_json::Value = serde_json::from_str(&export("fixes.geojson.sql")?)?;
    let [known, without] = [0, 1].map(|n| &geojson["features"][n]["properties"]);
    assert_eq!((&known["driver_id"], &known["battery"]), (&"known".into(), &80.into()));
    ensure!(without["battery"].is_null() && without.get("battery").is_some(), "{geojson}");
    let place = &geojson["features"][0]["geometry"]["coordinates"];
    assert_eq!(*place, serde_json::json!([2, 1]));
    Ok(())
}

/// `milepost decode` prints the same values that ClickHouse computes.
#[test]
fn decode_agrees_with_the_columns() -> Result<()> {
    const TYPES: [(&str, &str); 11] = [
        ("u8", "type = 'UInt8'\nmax = 200\nunknown = [7]"),
        ("i16", "type = 'Int16'\nunknown = [-1, 255]"),
        ("u64", "type = 'UInt64'"),
        ("i64", "type = 'Int64'"),
        ("f32", "type = 'Float32'\nmin = -10"),
        ("f64", "type = 'Float64'"),
        ("b", "type = 'Bool'"),
        ("s", "type = 'String'\nunknown = ['n/a']"),
        ("lc", "type = 'LowCardinality(String)'"),
        ("moment", "type = 'DateTime64(3)'\nunknown = [0, -1, -3]"),
        ("mode", "type = \"Enum8('off' = 0, 'on' = 1, 'it is' = -3)\""),
    ];
    const VALUES: [&str; 48] = [
        "80",
        "80.0",
        "80.5",
        "8e1",
        "\"80\"",
        "\" 80\"",
        "\"80 \"",
        "0",
        "-0",
        "-1",
        "1",
        "7",
        "200",
        "201",
        "255",
        "256",
        "-3",
        "70000",
        "9007199254740993",
        "18446744073709551615",
        "-9223372036854775808",
        "18446744073709551616",
        "18446744073709551616.0",
        "9223372036854775808",
        "1e300",
        "-1e300",
        "0.1",
        "\"nan\"",
        "\"inf\"",
        "\"n/a\"",
        "\"\"",
        "true",
        "false",
        "\"ON\"",
        "\"no\"",
        "\"off\"",
        "\"it is\"",
        "1700000000",
        "1700000000123",
        "1700000000123456",
        "\"2026-01-02T03:04:05.678+02:00\"",
        "\"12:30\"",
        "\"Jan\"",
        "\"1,5\"",
        "\"2026-00-10\"",
        "\"2026-11-00T10:15:00Z\"",
        "\"2026-11-27T10:99:00Z\"",
        "null",
    ];
    let world = crate::world::unmigrated("fields_decode")?;
    let fields: String = TYPES
        .iter()
        .map(|(name, toml)| format!("[fields.{name}]\nfrom = ['{name}', 'v']\n{toml}\n"))
        .collect();
    let file = world.folder.path().join("fields.toml");
    std::fs::write(&file, fields)?;
    let settings = world.settings.clone().with_variable("MILEPOST_CONFIG", file.to_string_lossy());
    settings.migrate()?;
    let milepost = settings.run()?;
    let payloads = VALUES.map(|value| format!(r#"{{"lat":1,"lng":2,"v":{value}}}"#));
    let topics: Vec<String> = (0..VALUES.len()).map(|n| format!("drivers/{n:02}/gps")).collect();
    let messages: Vec<(&str, &[u8])> =
        topics.iter().zip(&payloads).map(|(topic, text)| (&**topic, text.as_bytes())).collect();
    world.publish(&messages)?;
    world.wait_for("SELECT count() FROM {db}.fixes", &VALUES.len().to_string(), SOON)?;
    drop(milepost);

    let names = TYPES
        .map(|(name, _)| {
            if name == "moment" {
                "replaceOne(toString(moment), ' ', 'T') || 'Z' AS moment"
            } else {
                name
            }
        })
        .join(", ");
    let stored = world.query(&format!(
        "SELECT {names} FROM {{db}}.fixes ORDER BY driver_id FORMAT JSONEachRow \
         SETTINGS output_format_json_quote_64bit_integers = 0"
    ))?;
    let mut differences = Vec::new();
    for (payload, stored) in payloads.iter().zip(stored.lines()) {
        let message = world.folder.path().join("message.json");
        std::fs::write(&message, payload)?;
        let (_, output) = settings.call(&["decode", &message.to_string_lossy()])?;
        let stored: serde_json::Value = serde_json::from_str(stored)?;
        let line = output.lines().next().unwrap_or_default();
        let decoded: serde_json::Value = serde_json::from_str(line)?;
        for (name, _) in TYPES {
            let [stored, decoded] = [&stored[name], &decoded["position"][name]];
            let is_near = stored.as_f64().zip(decoded.as_f64()).is_some_and(|(a, b)| {
                (a - b).abs() <= if name == "f32" { b.abs() * 1e-6 } else { 0.0 }
            });
            if stored != decoded && !is_near {
                differences.push(format!("{payload}: {name} is {stored}, decode shows {decoded}"));
            }
        }
    }
    ensure!(differences.is_empty(), "{differences:#?}");
    // If both sides were always null, the comparison would prove nothing.
    let count = TYPES.map(|(name, _)| format!("count({name}) > 0")).join(" AND ");
    assert_eq!(world.query(&format!("SELECT {count} FROM {{db}}.fixes"))?, "1");
    Ok(())
}

/// The scenario of docs/story.json: while a fleet publishes, a field is added. Two members are
/// restarted with the new field, one after the other. The second member is stopped by `kill -9`.
#[test]
fn field_added_under_load_loses_nothing() -> Result<()> {
    let world = world("fields_under_load")?;
    let before = world
        .settings
        .clone()
        .with("SOURCE__TOPIC", "owntracks/+/phone")
        .with("SOURCE__FORMAT", "owntracks")
        .with("MQTT__SESSION_EXPIRY", "5m");
    let after =
        before.clone().with("FIELDS__BATTERY__FROM", "batt").with("FIELDS__BATTERY__TYPE", "UInt8");
    let member =
        |settings: &Settings, name: &str| settings.clone().with("MQTT__CLIENT_ID", name).run();
    let mut first = member(&before, "first")?;
    let mut second = member(&before, "second")?;
    // Each device sends a fix every two seconds, because OwnTracks has times in whole seconds.
    let plan =
        Plan { format: Format::Owntracks, drivers: 4_000, ..world.plan("fields", 2_000, 30) };
    let fleet = publish_in_background(plan);
    world.wait_for("SELECT count() > 2000 FROM {db}.positions", "1", SOON)?;

    after.migrate()?;
    ensure!(first.terminate(SOON)? == 0, "the first member left data behind");
    let restarted = member(&after, "first")?;
    world.wait_for("SELECT count(battery) > 2000 FROM {db}.positions", "1", SOON)?;
    second.process.kill()?;
    let second = member(&after, "second")?;

    let manifest = finish(fleet)?;
    let verdict = world.verify(&manifest)?;
    ensure!(verdict.is_exact() && verdict.rejects == 0 && verdict.stored > 0, "{verdict}");
    // A row has the value if and only if the member that inserted it kept the attribute.
    let filled = "SELECT countIf(battery = 80) > 0, countIf(battery IS NULL \
                  AND mapContains(attributes, 'batt')), countIf(battery IS NOT NULL \
                  AND NOT mapContains(attributes, 'batt')) FROM {db}.fixes";
    assert_eq!(world.query(filled)?, "1\t0\t0");
    drop((restarted, second));
    Ok(())
}
