//! The error of an invalid request names the parameter and what is valid.

use milepost_map::geo::Tile;
use milepost_map::params::{Bbox, Params, Span, TILES_MAX, driver};

const NOW_MS: i64 = 1_760_000_000_000;

fn params(query: &str) -> Result<Params, String> {
    Params::new(
        Some(query),
        &["bbox", "since", "from", "to", "prefix", "limit", "simplify", "zoom", "of"],
    )
}

#[test]
fn month_in_which_clocks_are_set_back_is_a_valid_span() {
    // October 2026 in Berlin.
    let query = "from=2026-09-30T22:00:00Z&to=2026-10-31T23:00:00Z";
    let span = params(query).unwrap().span(NOW_MS).unwrap();
    assert_eq!(span.to_ms - span.from_ms, 31 * 86_400_000 + 3_600_000);
}

#[test]
fn invalid_parameter_is_refused_with_the_valid_form() {
    type Ask = fn(&Params) -> Result<(), String>;
    let bbox: Ask = |params| params.bbox().map(drop);
    let span: Ask = |params| params.span(NOW_MS).map(drop);
    let since: Ask = |params| params.time_ms("since", 0).map(drop);
    let limit: Ask = |params| params.limit(20).map(drop);
    let prefix: Ask = |params| params.prefix().map(drop);
    let simplify: Ask = |params| params.simplify().map(drop);
    let zoom: Ask = |params| params.zoom().map(drop);
    let of: Ask = |params| params.tiles().map(drop);
    for (ask, query, expected) in [
        (bbox, "", "bbox: missing; expected west,south,east,north in degrees"),
        (bbox, "bbox=1,2,3", "\"1,2,3\" is not a box"),
        (bbox, "bbox=1,2,3,4,5", "is not a box"),
        (bbox, "bbox=a,b,c,d", "is not a box"),
        (bbox, "bbox=1,NaN,3,4", "is not a box"),
        (bbox, "bbox=1,inf,3,4", "is not a box"),
        (bbox, "bbox=-181,0,0,1", "is not a box"),
        (bbox, "bbox=0,-91,0,1", "is not a box"),
        (bbox, "bbox=0,2,1,1", "is not a box"),
        (bbox, "bbox=0,0,1,1);DROP TABLE fleet.positions", "is not a box"),
        (
            span,
            "from=yesterday",
            "from: \"yesterday\" is not a time; expected milliseconds since 1970, or a string such \
             as 2026-11-21T08:00:00Z",
        ),
        (span, "from=-1", "is not a time"),
        (span, "from=1e12", "is not a time"),
        (span, "from=9999999999999999", "is not a time"),
        (span, "from=2026-13-01T00:00:00Z", "is not a time"),
        (span, "to=2026-01-01' OR 1=1 --", "is not a time"),
        (span, "from=1000&to=1000", "from: expected a time before to"),
        (span, "from=0&to=2685600001", "to: expected at most 31 days after from"),
        (since, "since=now()", "since: \"now()\" is not a time"),
        (limit, "limit=0", "limit: \"0\" is invalid; expected a whole number from 1 to 100"),
        (limit, "limit=101", "expected a whole number from 1 to 100"),
        (limit, "limit=-5", "a whole number"),
        (limit, "limit=5;", "a whole number"),
        (
            prefix,
            "prefix=%25",
            "prefix: \"%\" is not a driver id; expected 1 to 64 letters, digits and . _ : -",
        ),
        (prefix, "prefix=d'", "is not a driver id"),
        (prefix, "prefix=d%00", "is not a driver id"),
        (simplify, "simplify=-1", "simplify: \"-1\" is invalid; expected metres from 0 to 10000"),
        (simplify, "simplify=NaN", "metres from 0"),
        (simplify, "simplify=10001", "metres from 0"),
        (zoom, "", "zoom: \"\" is invalid; expected a whole number from 0 to 20"),
        (zoom, "zoom=21", "expected a whole number from 0 to 20"),
        (zoom, "zoom=3.5", "a whole number"),
        (
            of,
            "",
            "of: missing; expected z/x/y,z/x/y:version,… with z from 0 to 14, x and y from 0 to \
             2^z - 1",
        ),
        (of, "of=15/0/0", "of: \"15/0/0\" is not a tile; expected z/x/y,z/x/y:version,…"),
        (of, "of=1/2/0", "is not a tile"),
        (of, "of=0/0/1", "is not a tile"),
        (of, "of=-1/0/0", "is not a tile"),
        (of, "of=a/0/0", "is not a tile"),
        (of, "of=1/0/0.mvt", "is not a tile"),
        (of, "of=1/4294967296/0", "is not a tile"),
        (of, "of=256/0/0", "is not a tile"),
        (of, "of=1/0", "is not a tile"),
        (of, "of=1/0/0/0", "is not a tile"),
        (of, "of=0/0/0,", "of: \"\" is not a tile"),
        (of, "of=0/0/0:", "is not a tile"),
        (of, "of=0/0/0:1:2", "is not a tile"),
        (of, "of=0/0/0:18446744073709551616", "is not a tile"),
        (of, "of=0/0/0:0,0/0/0:'", "of: \"0/0/0:'\" is not a tile"),
    ] {
        let error = params(query).and_then(|params| ask(&params)).unwrap_err();
        assert!(error.contains(expected), "{query}: {expected} is not in {error}");
    }
    for (query, expected) in [
        ("box=1", "\"box\": there is no such parameter; there are: bbox, since"),
        ("zoom=1&zoom=2", "zoom: give it once"),
        ("%1b[31m=1", "\"\u{fffd}[31m\": there is no such parameter"),
    ] {
        let error = params(query).unwrap_err();
        assert!(error.contains(expected), "{query}: {expected} is not in {error}");
    }
    assert!(Params::new(Some("a=1"), &[]).unwrap_err().ends_with("there are: none"));
    let long = params(&format!("bbox={}", "9".repeat(10_000))).unwrap().bbox().unwrap_err();
    assert!(long.len() < 250, "{long}");
}

#[test]
fn driver_ids_follow_the_rules_of_milepost() {
    for good in ["d7", "a", "A.b_c:d-9", &"x".repeat(64)] {
        assert_eq!(driver(good), Ok(good));
    }
    for bad in ["", "a b", "a,b", "a'b", "a/b", "é", "a\\", "a\n", "{x:String}", &"x".repeat(65)] {
        assert!(driver(bad).unwrap_err().contains("is not a driver id"), "{bad}");
    }
}

#[test]
fn valid_parameters_are_accepted() {
    let ask = |query: &str| params(query).unwrap();
    assert_eq!(
        ask("bbox=-80.3, 25.6,-80.1,25.9").bbox(),
        Ok(Bbox { west: -80.3, south: 25.6, east: -80.1, north: 25.9 })
    );
    let across = ask("bbox=170,-10,-170,10").bbox().unwrap();
    assert!(
        across.contains(0, 1_750_000_000)
            && across.contains(0, -1_750_000_000)
            && !across.contains(0, 0)
            && !across.contains(200_000_000, 1_750_000_000)
    );
    let hour = Span { from_ms: NOW_MS - 3_600_000, to_ms: NOW_MS };
    assert_eq!(ask("").span(NOW_MS), Ok(hour), "the last hour");
    let same = ask(&format!("from={}&to=2025-10-09T08:53:20Z", hour.from_ms)).span(0);
    assert_eq!(same, Ok(hour));
    assert_eq!(ask("to=2025-10-09T08:53:20").span(0), Ok(hour));
    let tile = |z, x, y| Tile::new(z, x, y).unwrap();
    let tiles = vec![
        (tile(14, 16_383, 0), None),
        (tile(3, 7, 2), Some(u64::MAX)),
        (tile(0, 0, 0), Some(0)),
    ];
    assert_eq!(ask("of=14/16383/0,3/7/2:18446744073709551615,0/0/0:0").tiles(), Ok(tiles));
    let many = |count| ask(&format!("of={}", vec!["0/0/0"; count].join(","))).tiles();
    assert_eq!(many(TILES_MAX).map(|tiles| tiles.len()), Ok(128));
    assert_eq!(many(129), Err("of: 129 tiles are too many; expected at most 128".to_owned()));
    assert_eq!(ask("prefix=").prefix(), Ok(""));
    assert_eq!((ask("").limit(20), ask("limit=7").limit(20)), (Ok(20), Ok(7)));
    assert_eq!(
        (ask("").simplify(), ask("simplify=2.5").simplify(), ask("zoom=20").zoom()),
        (Ok(0.0), Ok(2.5), Ok(20))
    );
}
