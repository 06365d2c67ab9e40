//! Tests the main path: from a publish over MQTT to the last position in ClickHouse.

use anyhow::Result;
use lab_stack::unix_ms;

use crate::world::{
    SOON, finish, publish_in_background, publish_with_retain, wait_for_metric, world,
};

#[test]
fn published_position_is_read_back() -> Result<()> {
    let world = world("read_back")?;
    let _milepost = world.settings.run()?;
    // The batch of one row closes by age. The models simulate the clock, and check that such a
    // batch closes at `batch.age_max`.
    world.publish(&[(
        "drivers/d7/gps",
        br#"{"lat":25.7617,"lng":-80.1918,"speed":12.4,"heading":271}"#,
    )])?;
    let columns = "driver_id, lat, lng, speed, heading, alt, acc";
    world.wait_for(
        &format!("SELECT {columns} FROM {{db}}.last_positions WHERE driver_id = 'd7'"),
        "d7\t25.7617\t-80.1918\t12.4\t271\t\\N\t\\N",
        SOON,
    )
}

#[test]
fn each_reject_is_stored_with_its_reason() -> Result<()> {
    let world = world("reasons")?;
    let settings =
        world.settings.clone().with("LAB__PAYLOAD_BYTES_MAX", "5000").with("LAB__POINTS_MAX", "20");
    let milepost = settings.with("MQTT__TOPICS", "drivers/+/gps,other/+").run()?;
    let topic = "drivers/d7/gps";
    let large = vec![b' '; 5_001];
    let too_many_points = format!("[{}]", vec![r#"{"lat":1,"lng":2}"#; 21].join(","));
    let cases: [(&str, &str, &[u8]); 15] = [
        ("too_large", topic, &large),
        ("bad_topic", "other/not a driver", b"{}"),
        ("empty", topic, b""),
        ("invalid_utf8", topic, b"{\"x\":\"\xff\"}"),
        ("invalid_json", topic, b"{"),
        ("wrong_shape", topic, b"[]"),
        ("too_many_points", topic, too_many_points.as_bytes()),
        ("driver_mismatch", topic, br#"{"lat":1,"lng":2,"driver_id":"d8"}"#),
        ("missing_field", topic, br#"{"lat":1}"#),
        ("lat_range", topic, br#"{"lat":91,"lng":2}"#),
        ("lng_range", topic, br#"{"lat":1,"lng":181}"#),
        ("null_island", topic, br#"{"lat":0,"lng":0}"#),
        ("bad_ts", topic, br#"{"lat":1,"lng":2,"ts":"x"}"#),
        ("too_old", topic, br#"{"lat":1,"lng":2,"ts":0}"#),
        ("too_new", topic, br#"{"lat":1,"lng":2,"ts":4102444800}"#),
    ];
    for (index, (_, topic, payload)) in cases.iter().enumerate() {
        let seq = index + 1;
        let good = format!(r#"{{"lat":1,"lng":2,"seq":{seq}}}"#);
        world.publish(&[(topic, payload), ("drivers/good/gps", good.as_bytes())])?;
    }
    let reasons: Vec<&str> = cases.iter().map(|(reason, ..)| *reason).collect();
    let mut sorted = reasons.clone();
    sorted.sort_unstable();
    // Query the table itself, not `{rejects}`: without an outage, no row may be stored twice.
    world.wait_for("SELECT reason FROM {db}.rejects ORDER BY reason", &sorted.join("\n"), SOON)?;
    world.wait_for("SELECT count() FROM {db}.fixes WHERE driver_id = 'good'", "15", SOON)?;
    assert_eq!(
        world.query(
            "SELECT min(payload_bytes = 5001), count() FROM {rejects} WHERE reason = 'too_large'"
        )?,
        "1\t1"
    );
    assert_eq!(world.query("SELECT min(length(detail)) > 0 FROM {db}.rejects")?, "1");
    assert_eq!(milepost.metric("positions_rejected_total")?, 15.0);
    wait_for_metric(&milepost, "acks_total", 30.0)?;
    Ok(())
}

/// Mosquitto sends retained messages to shared subscriptions too, unless the client declines them.
/// milepost must decline them: it would store a retained fix that has no time once more at every
/// SUBSCRIBE, each time as another fix.
#[test]
fn earlier_retained_messages_are_not_received() -> Result<()> {
    let world = world("retained")?;
    let fix = br#"{"lat":1,"lng":2}"#;
    publish_with_retain(world.broker.port, true, &[("drivers/old/gps", fix)])?;
    for run in 1..=2 {
        let milepost = world.settings.run()?;
        wait_for_metric(&milepost, "mqtt_connected", 4.0)?;
        publish_with_retain(world.broker.port, true, &[("drivers/new/gps", fix)])?;
        wait_for_metric(&milepost, "acks_total", 1.0)?;
        let new = "SELECT groupArray(DISTINCT driver_id), count() FROM {db}.fixes";
        world.wait_for(new, &format!("['new']\t{run}"), SOON)?;
        assert_eq!(
            milepost.metric("messages_received_total")?,
            1.0,
            "a retained message must not be received"
        );
    }
    Ok(())
}

#[test]
fn good_points_of_an_array_with_bad_points_are_stored() -> Result<()> {
    let world = world("arrays")?;
    let milepost = world.settings.run()?;
    let now = unix_ms();
    let array = format!(
        r#"[{{"lat":1,"lng":2,"ts":{now},"seq":1}},{{"lat":99,"lng":2,"ts":{now},"seq":2}},{{"lat":1,"lng":2,"ts":{now},"seq":3}}]"#
    );
    world.publish(&[("drivers/d1/gps", array.as_bytes())])?;
    world.wait_for(
        "SELECT groupArray(seq) FROM (SELECT seq FROM {db}.fixes ORDER BY seq)",
        "[1,3]",
        SOON,
    )?;
    world.wait_for(
        "SELECT reason, payload FROM {rejects}",
        &format!("lat_range\t{{\"lat\":99,\"lng\":2,\"ts\":{now},\"seq\":2}}"),
        SOON,
    )?;
    wait_for_metric(&milepost, "acks_total", 1.0)?;
    assert_eq!(milepost.metric("messages_received_total")?, 1.0);
    assert_eq!(milepost.metric("positions_received_total")?, 3.0);
    Ok(())
}

#[test]
fn batches_close_by_rows_and_by_age() -> Result<()> {
    let world = world("batches")?;
    let milepost = world.settings.run()?;
    let manifest = finish(publish_in_background(world.plan("rows", 30_000, 1)))?;
    assert!(world.verify(&manifest)?.is_exact());
    let metrics = milepost.get("/metrics")?;
    let batches_up_to = |rows: &str| -> f64 {
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("milepost_batch_rows_bucket{{le=\"{rows}\"}}")));
        line.unwrap().rsplit_once(' ').unwrap().1.parse().unwrap()
    };
    assert!(
        batches_up_to("5000") > batches_up_to("2500"),
        "no batch has 2,501 to 5,000 rows: {metrics}"
    );

    let batches_before = milepost.metric("batch_rows_count")?;
    world.publish(&[("drivers/d1/gps", br#"{"lat":1,"lng":2}"#)])?;
    wait_for_metric(&milepost, "batch_rows_count", batches_before + 1.0)?;
    world.wait_for("SELECT count() FROM {db}.fixes WHERE driver_id = 'd1'", "1", SOON)?;
    Ok(())
}

#[test]
fn fix_is_identified_by_its_content() -> Result<()> {
    let world = world("identity")?;
    let milepost = world.settings.run()?;
    let now = unix_ms();
    let fix = |seq: u32| format!(r#"{{"lat":1,"lng":2,"ts":{now},"seq":{seq}}}"#);
    world
        .publish(&[("drivers/d1/gps", fix(1).as_bytes()), ("drivers/d1/gps", fix(2).as_bytes())])?;
    wait_for_metric(&milepost, "positions_inserted_total", 2.0)?;
    // Publish the second message again. Its fix gets into another batch and another data part, but
    // the view `fixes` still has the fix once.
    world.publish(&[("drivers/d1/gps", fix(2).as_bytes())])?;
    wait_for_metric(&milepost, "positions_inserted_total", 3.0)?;
    assert_eq!(world.query("SELECT count() FROM {db}.fixes")?, "2");

    // Late fixes do not move the last position back.
    let late = format!(r#"{{"lat":50,"lng":2,"ts":{},"seq":9}}"#, now - 60_000);
    world.publish(&[("drivers/d1/gps", late.as_bytes())])?;
    wait_for_metric(&milepost, "positions_inserted_total", 4.0)?;
    assert_eq!(world.query("SELECT lat FROM {db}.last_positions")?, "1");
    assert_eq!(world.query("SELECT count() FROM {db}.last_positions")?, "1");
    Ok(())
}

#[test]
fn qos_0_arrives_and_is_never_acknowledged() -> Result<()> {
    let world = world("qos0")?;
    let milepost = world.settings.run()?;
    let plan = loadgen::publish::Plan { qos: 0, ..world.plan("zero", 2_000, 1) };
    let manifest = finish(publish_in_background(plan))?;
    assert!(world.verify(&manifest)?.is_exact());
    assert_eq!(milepost.metric("acks_total")?, 0.0);
    Ok(())
}
