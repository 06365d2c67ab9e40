//! Tests analysts' queries about a drive that was published over MQTT. tests/answers checks the
//! views themselves.

use std::fmt::Write as _;

use anyhow::Result;
use lab_stack::unix_ms;

use crate::world::{SOON, world};

const DAY_MS: i64 = 86_400_000;

/// Returns the fixes of a drive: east along the equator, a thousandth of a degree (111.3195 m)
/// every 10 s, sixty times. Then the driver stands for ten minutes.
fn drive(began_ms: i64) -> String {
    let mut points = String::new();
    for number in 0..=120_u32 {
        let lng = 100.0 + f64::from(number.min(60)) / 1000.0;
        let ts = began_ms + i64::from(number) * 10_000;
        let separator = if number == 0 { '[' } else { ',' };
        let _ = write!(
            points,
            "{separator}{{\"lat\":0,\"lng\":{lng},\"ts\":{ts},\"seq\":{}}}",
            number + 1
        );
    }
    points + "]"
}

#[test]
fn drive_over_mqtt_becomes_a_trip_and_a_stop() -> Result<()> {
    let world = world("answers")?;
    let _milepost = world.settings.run()?;
    // Begin yesterday at noon, so that the drive does not cross midnight. It must end at a multiple
    // of 15 s, because the definition of stops samples the fixes at these times.
    let began_ms = (unix_ms() / DAY_MS - 1) * DAY_MS + DAY_MS / 2;
    let payload = drive(began_ms);
    // A device that missed its acknowledgement sends all fixes again.
    for _ in 0..2 {
        world.publish(&[("drivers/d1/gps", payload.as_bytes())])?;
    }
    world.wait_for("SELECT count(), uniqExact(seq) FROM {db}.fixes", "121\t121", SOON)?;
    for sql in lab_stack::sql::REFRESH_ROLLUPS {
        world.query(sql)?;
    }
    let quarters = "SELECT round(sum(distance_m)), round(sum(moving_s)), round(sum(tracked_s)), \
                    sum(fixes) FROM {db}.driver_quarters";
    // A stop includes only fixes within 100 m of its place. The last fix before the stop is 111 m
    // away, so the stop takes no distance from the trip.
    world.wait_for(quarters, "6679\t600\t1200\t121", SOON)?;
    let window =
        format!("from = '{began_ms}', to = '{}', tz = 'Asia/Jakarta'", began_ms + 3_600_000);
    let episodes =
        "SELECT kind, seconds, round(metres), fixes FROM {db}_ask.episodes(driver = 'd1', ";
    let episodes = world.query(&format!("{episodes}{window}) ORDER BY began"))?;
    assert_eq!(episodes, "trip\t600\t6679\t60\nstop\t600\t0\t60");
    let days = world.query(&format!(
        "SELECT round(sum(metres)), sum(moving_s), sum(standing_s), sum(fixes) \
         FROM {{db}}_ask.days(driver = '', {window})"
    ))?;
    assert_eq!(days, "6679\t600\t600\t121");
    let trips = "SELECT driver_id, seconds, round(metres), fixes FROM {db}.trips";
    assert_eq!(world.query(trips)?, "d1\t600\t6679\t60");
    assert_eq!(world.query("SELECT driver_id, seconds, fixes FROM {db}.stops")?, "d1\t600\t60");
    assert_eq!(world.query("SELECT name FROM {db}.rollups WHERE pending > 0")?, "");
    let near = format!(
        "SELECT driver_id, fixes FROM {{db}}_ask.near(lat = 0, lng = 100.06, metres = 50, \
         driver = '', {window})"
    );
    assert_eq!(world.query(&near)?, "d1\t61");
    Ok(())
}
