//! Tests `milepost fences import`: areas from a file.

use std::fs;

use anyhow::Result;

use crate::world::world;

/// Coordinates of a polygon with a hole.
const SQUARE: &str = "[[[13,52],[14,52],[14,53],[13,53],[13,52]],[[13.25,52.25],[13.25,52.3],[13.3,52.3],[13.25,52.25]]]";

fn feature(properties: &str, kind: &str, coordinates: &str) -> String {
    format!(
        r#"{{"type":"Feature","properties":{{{properties}}},"geometry":{{"type":"{kind}","coordinates":{coordinates}}}}}"#
    )
}

#[test]
fn fences_import_stores_all_areas_or_none() -> Result<()> {
    let world = world("fences")?;
    let file = world.folder.path().join("areas.geojson");
    let import = |features: &[String], flags: &[&str]| -> Result<(i32, String)> {
        fs::write(
            &file,
            format!(r#"{{"type":"FeatureCollection","features":[{}]}}"#, features.join(",")),
        )?;
        world
            .settings
            .call(&[&["fences", "import"], flags, &[&*file.display().to_string()]].concat())
    };
    // `expected`: the numbers of new, changed, already stored and invalid areas.
    let check_counts = |code: i32, printed: &str, expected: &str, expected_code: i32| {
        let number_after = |label: &str| {
            let number = printed.lines().find_map(|line| line.strip_prefix(label));
            number.map_or("?", str::trim).to_owned()
        };
        let found = ["new", "changed", "already there", "invalid"].map(number_after).join(" ");
        assert_eq!((&*found, code), (expected, expected_code), "{printed}");
    };
    let office = feature(r#""name":"Büro \"1\"","valid_from":"2020-01-01""#, "Polygon", SQUARE);
    let both = feature(
        r#""name":"both""#,
        "MultiPolygon",
        &format!("[{SQUARE},[[[0,0],[0.0000001,0],[0,1],[0,0]]]]"),
    );
    let wrong = feature(r#""name":"wrong""#, "Polygon", "[[[0,0],[4,4],[4,0],[0,4],[0,0]]]");
    let rows = "SELECT count() FROM {db}.fences";

    let (code, printed) = import(&[office.clone(), wrong.clone(), both.clone()], &[])?;
    check_counts(code, &printed, "2 0 0 1", 1);
    assert!(printed.contains("feature 1 \"wrong\": ring 0: crosses itself near 0, 0"), "{printed}");
    let (code, printed) = import(&[office.clone(), both.clone()], &["--dry-run"])?;
    check_counts(code, &printed, "2 0 0 0", 0);
    assert_eq!(world.query(rows)?, "0");
    let (code, printed) = import(&[office.clone(), wrong, both.clone()], &["--skip-invalid"])?;
    check_counts(code, &printed, "2 0 0 1", 0);
    let (code, printed) = import(&[office, both.clone()], &[])?;
    check_counts(code, &printed, "0 0 2 0", 0);
    assert_eq!(world.query(rows)?, "2");

    world.query(
        "INSERT INTO {db}.positions (driver_id, ts, lat_e7, lng_e7) \
         SELECT 'd', now64(3) - 100 + number, 525000000, 134000000 + number * 100000000 \
         FROM numbers(2)",
    )?;
    let visits = "SELECT fence, fixes FROM {db}_ask.fence_visits(fence = '', driver = '', \
                  from = '2020-01-01', to = '2100-01-01', tz = 'UTC') ORDER BY fence";
    assert_eq!(world.query(visits)?, "Büro \"1\"\t1\nboth\t1");

    // Rules are part of an area: an area with other rules counts as changed.
    let with_rules = feature(
        r#""name":"both","speed_limit_kmh":30,"stay_max_s":2700,"hours":"Mo-Fr 06:00-18:00","drivers":["d"]"#,
        "Polygon",
        SQUARE,
    );
    let (code, printed) = import(std::slice::from_ref(&with_rules), &[])?;
    check_counts(code, &printed, "0 1 0 0", 0);
    let (code, printed) = import(&[with_rules], &[])?;
    check_counts(code, &printed, "0 0 1 0", 0);
    assert_eq!(
        world.query(
            "SELECT speed_limit_kmh, stay_max_s, silent_for_s, hours, hours_zone, drivers \
             FROM {db}.fences FINAL WHERE name = 'both'"
        )?,
        "30\t2700\t\\N\tMo-Fr 06:00-18:00\t\\N\t['d']"
    );
    let wrong = feature(r#""name":"both","hours":"always""#, "Polygon", SQUARE);
    let (code, printed) = import(&[wrong], &[])?;
    check_counts(code, &printed, "0 0 0 1", 1);
    assert!(
        printed.contains("feature 0 \"both\": hours: \"always\" is not a list of opening"),
        "{printed}"
    );

    let moved = feature(r#""name":"both""#, "Polygon", "[[[0,0],[1,0],[0,1],[0,0]]]");
    let (code, printed) = import(&[moved], &[])?;
    check_counts(code, &printed, "0 1 0 0", 0);
    assert_eq!(world.query(visits)?, "Büro \"1\"\t1");

    fs::write(&file, format!("\u{feff}{SQUARE}"))?; // with a byte order mark, as Windows writes it
    let (code, printed) =
        world.settings.call(&["fences", "import", &*file.display().to_string()])?;
    assert!(
        code == 1 && printed.contains("expected a FeatureCollection or a Feature"),
        "{code} {printed}"
    );
    Ok(())
}
