//! Imports files with extremely long features, keys or rows.

use std::io::{Read as _, Write as _};

use serde_json::Value;

/// A file with a feature, key or row of 128 MiB is a damaged export, or is made to exhaust
/// milepost's memory.
#[test]
fn long_feature_key_or_row_is_not_held_in_memory() {
    const LONG: u64 = 128 << 20;
    // At most 160,000 KiB of address space; the process itself needs less than 90 MB.
    const LIMITED: &str = "ulimit -v 160000; exec \"$0\" \"$@\"";
    let folder = tempfile::tempdir().unwrap();
    let good = r#"{"type":"Feature","geometry":null,"properties":{}}"#;
    // milepost rejects the long row, or skips a long key outside of the features. milepost then
    // reads the rows that follow.
    for (name, before, after, fixes, rejected) in [
        ("value.geojson", r#"[{"type":"Feature","x":""#, format!("\"}},{good}]"), 2, 1),
        ("key.geojson", r#"[{"type":"Feature",""#, format!("\":1}},{good}]"), 2, 1),
        ("key-outside.geojson", r#"{""#, format!("\":1,\"features\":[{good}]}}"), 1, 0),
        ("line.geojsonl", "", format!("\n{good}\n"), 2, 1),
        ("row.csv", "ts,lat,lng\n", "\n,1,2\n".to_owned(), 2, 2),
        ("quoted.csv", "ts,lat,lng\n\"", "\n,1,2\n".to_owned(), 2, 2),
    ] {
        let path = folder.path().join(name);
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(before.as_bytes()).unwrap();
        std::io::copy(&mut std::io::repeat(b'x').take(LONG), &mut file).unwrap();
        file.write_all(after.as_bytes()).unwrap();
        let output = std::process::Command::new("sh")
            .args(["-c", LIMITED, env!("CARGO_BIN_EXE_milepost"), "import", "--dry-run", "--json"])
            .args(["--driver", "d1", "--speed-unit", "m/s"])
            .arg(&path)
            .env("MALLOC_ARENA_MAX", "1")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        let whole_output = format!("{name}: {printed}{}", String::from_utf8_lossy(&output.stderr));
        let imported: Value =
            serde_json::from_str(&printed).unwrap_or_else(|_| panic!("{whole_output}"));
        let refused: u64 =
            imported["rejected"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
        assert_eq!(
            (imported["fixes"].as_u64(), refused),
            (Some(fixes), rejected),
            "{whole_output}"
        );
        std::fs::remove_file(&path).unwrap();
    }
}
