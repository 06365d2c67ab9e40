//! Which column of a CSV file is which field, and the unit that its name states.

use anyhow::{Context as _, Result, bail, ensure};

use milepost_decode::{Quantity, meant};

/// A field, and its names in lower case without spaces, `_`, `-`, `.` and `/`, the preferred one
/// first.
type Known = (&'static str, Option<Quantity>, &'static [&'static str]);

const KNOWN: [Known; 11] = [
    (
        "lat",
        Some(Quantity::Angle),
        &["lat", "latitude", "gpslat", "gpslatitude", "locationlat", "positionlat"],
    ),
    (
        "lng",
        Some(Quantity::Angle),
        &[
            "lng",
            "lon",
            "long",
            "longitude",
            "gpslon",
            "gpslng",
            "gpslongitude",
            "locationlong",
            "locationlon",
            "positionlong",
        ],
    ),
    ("lat_hemisphere", None, &["ns", "lathemisphere", "latitudehemisphere", "latns", "latdir"]),
    (
        "lng_hemisphere",
        None,
        &["ew", "lnghemisphere", "longitudehemisphere", "lonhemisphere", "lonew", "londir"],
    ),
    (
        "ts",
        None,
        &["ts", "timestamp", "fixtime", "time", "datetime", "utctime", "gpstime", "timeutc"],
    ),
    ("date", None, &["date", "utcdate", "gpsdate", "dateutc"]),
    ("speed", Some(Quantity::Speed), &["speed", "velocity", "groundspeed"]),
    ("heading", Some(Quantity::Angle), &["heading", "course", "bearing"]),
    ("alt", Some(Quantity::Length), &["alt", "altitude", "ele", "elevation", "height"]),
    ("acc", Some(Quantity::Length), &["acc", "accuracy", "hacc", "horizontalaccuracy"]),
    ("seq", None, &["seq"]),
];

/// A column by its number, and the unit in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) at: usize,
    pub(super) unit: Option<&'static str>,
}

fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| !matches!(c, ' ' | '_' | '-' | '.' | '/'))
        .collect::<String>()
        .to_lowercase()
}

/// Integers in units of 1e-7, 1e-6 and 1e-5 degrees: `latitudeE7`.
const SCALED: [(&str, &str); 3] = [("e7", "1e-7 deg"), ("e6", "1e-6 deg"), ("e5", "1e-5 deg")];

/// The columns of the fields, by `--field` or by their names. `sample`: the values of a row.
///
/// # Errors
/// `--field` names a field or a column that is not there, or two columns have a name that is read.
pub(super) fn find(
    columns: &[String],
    sample: &[String],
    given: &[(String, String)],
) -> Result<Vec<(&'static str, Column)>> {
    if let Some((field, _)) =
        given.iter().find(|(field, _)| !KNOWN.iter().any(|(known, ..)| known == field))
    {
        let all: Vec<&str> = KNOWN.iter().map(|(field, ..)| *field).collect();
        bail!("--field {field}: there is {}", all.join(", "));
    }
    let named = |field: &str| {
        given.iter().rev().find(|(known, _)| known == field).map(|(_, at)| at.as_str())
    };
    let column = |field: &str, name: &str| {
        let mut same = (0..columns.len()).filter(|n| columns[*n].eq_ignore_ascii_case(name));
        let at = same.next().with_context(|| {
            format!(
                "--field {field}={name}: the file has no column {name}, only {}",
                columns.join(", ")
            )
        })?;
        ensure!(same.next().is_none(), "two columns {name}: rename one");
        Ok::<_, anyhow::Error>(at)
    };
    let mut found: Vec<(&'static str, Column)> = Vec::new();
    for (field, quantity, names) in KNOWN {
        let unit_in = |name: &str| {
            quantity.and_then(|quantity| quantity.stated_in(name)).map(|(_, unit)| unit)
        };
        match named(field) {
            // A name with a + in it is a column all the same.
            Some(name) if field == "ts" && name.contains('+') && column("ts", name).is_err() => {
                let (date, time) = name.split_once('+').unwrap_or((name, ""));
                found.push(("date", Column { at: column("ts", date)?, unit: None }));
                found.push(("ts", Column { at: column("ts", time)?, unit: None }));
            }
            Some(name) => {
                let at = column(field, name)?;
                found.push((field, Column { at, unit: unit_in(&columns[at]) }));
            }
            None if field == "date" => {
                let has_date = found.iter().any(|(known, _)| *known == "date");
                let is_clock = found.iter().any(|(known, ts)| {
                    *known == "ts" && sample.get(ts.at).is_some_and(|value| is_time_of_day(value))
                });
                if let (false, true, Some(date)) =
                    (has_date, is_clock, by_name(columns, quantity, names)?)
                {
                    found.push(("date", date));
                }
            }
            None => found.extend(by_name(columns, quantity, names)?.map(|column| (field, column))),
        }
    }
    // `Date` alone is the time, if it has one.
    if !found.iter().any(|(field, _)| *field == "ts") {
        let date = by_name(columns, None, &["date"])?;
        found.extend(
            date.filter(|date| sample.get(date.at).is_some_and(|value| value.contains(':')))
                .map(|date| ("ts", date)),
        );
    }
    Ok(found)
}

/// Whether a value is hh:mm:ss, or hhmmss.
fn is_time_of_day(value: &str) -> bool {
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let behind = value.as_bytes().get(digits).copied();
    matches!((digits, behind), (1 | 2, Some(b':')) | (6, None | Some(b'.')))
}

fn by_name(
    columns: &[String],
    quantity: Option<Quantity>,
    names: &[&str],
) -> Result<Option<Column>> {
    let understood = columns.iter().enumerate().map(|(at, name)| {
        let (rest, unit) = quantity
            .and_then(|quantity| quantity.stated_in(name))
            .map_or((name.as_str(), None), |(rest, unit)| (rest, Some(unit)));
        let rest = plain(rest);
        if quantity == Some(Quantity::Angle) {
            for (ending, unit) in SCALED {
                if let Some(rest) = rest.strip_suffix(ending) {
                    return (rest.to_owned(), Column { at, unit: Some(unit) });
                }
            }
        }
        (rest, Column { at, unit })
    });
    let understood: Vec<(String, Column)> = understood.collect();
    for name in names {
        let mut same = understood.iter().filter(|(known, _)| known == name);
        if let Some((_, column)) = same.next() {
            if let Some((_, other)) = same.next() {
                bail!("two columns {} and {}: rename one", columns[column.at], columns[other.at]);
            }
            return Ok(Some(*column));
        }
    }
    Ok(None)
}

/// The columns that nobody reads, with the field that they may have been meant for.
pub(super) fn unread(
    columns: &[String],
    found: &[(&'static str, Column)],
    keep: &[String],
    driver: &str,
) -> Vec<String> {
    if keep.iter().any(|name| name == "*") {
        return Vec::new();
    }
    let is_read = |(at, name): &(usize, &String)| {
        found.iter().any(|(_, column)| column.at == *at) || keep.contains(name) || *name == driver
    };
    let others = columns.iter().enumerate().filter(|column| !is_read(column));
    let shown = others.map(|(_, name)| match meant(name) {
        Some(field) if !found.iter().any(|(known, _)| *known == field) => {
            format!("{name} (is it {field}? --field {field}='{name}')")
        }
        Some(_) | None => name.clone(),
    });
    shown.collect()
}

/// A column whose name contains one of the field's, for an error.
pub(super) fn nearest<'c>(columns: &'c [String], field: &str) -> Option<&'c str> {
    let (_, _, names) = KNOWN.iter().find(|(known, ..)| *known == field)?;
    let is_near = |name: &&String| {
        meant(name) == Some(field)
            || names.iter().any(|known| known.len() > 2 && plain(name).contains(known))
    };
    columns.iter().find(is_near).map(String::as_str)
}

/// AIS (ITU-R M.1371): 102.3 knots and a course of 360.0 degrees are "not available", a heading is
/// 511.
pub(super) fn not_available(
    found: &[(&'static str, Column)],
    columns: &[String],
) -> Vec<(usize, f64)> {
    let has = |field: &str, name: &str| {
        let column = found.iter().find(|(known, _)| *known == field);
        column.is_some_and(|(_, column)| columns[column.at].eq_ignore_ascii_case(name))
    };
    let values = [
        ("speed", "sog", 3, 102.3),
        ("heading", "cog", 4, 360.0),
        ("heading", "heading", 4, 511.0),
    ];
    let is_ais = columns.iter().any(|name| name.eq_ignore_ascii_case("mmsi"));
    let here = values.into_iter().filter(|(field, name, ..)| is_ais && has(field, name));
    here.map(|(.., slot, value)| (slot, value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `field=NAME unit` of each column that was found.
    fn check(names: &str, sample: &str, expected: &str) {
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let (columns, sample) = (list(names), list(sample));
        let shown = match find(&columns, &sample, &[]) {
            Ok(found) => {
                let each = found.iter().map(|(field, column)| {
                    format!(
                        "{field}={}{}",
                        columns[column.at],
                        column.unit.map_or(String::new(), |unit| format!("[{unit}]"))
                    )
                });
                each.collect::<Vec<_>>().join(" ")
            }
            Err(why) => why.to_string(),
        };
        assert_eq!(shown, expected, "{names}");
    }

    #[test]
    fn columns_are_found_by_their_names_and_units() {
        check("lat,lon,time", "1,2,3", "lat=lat lng=lon ts=time");
        check(
            "TIME,LATITUDE,N/S,LONGITUDE,E/W",
            "2026-01-01T00:00:00Z",
            "lat=LATITUDE lng=LONGITUDE lat_hemisphere=N/S lng_hemisphere=E/W ts=TIME",
        );
        check(
            "Latitude (deg),Longitude (deg),Time,Speed (km/h),alt_ft",
            "",
            "lat=Latitude (deg)[deg] lng=Longitude (deg)[deg] ts=Time speed=Speed (km/h)[km/h] alt=alt_ft[ft]",
        );
        check(
            "latitudeE7,longitudeE7,timestamp",
            "",
            "lat=latitudeE7[1e-7 deg] lng=longitudeE7[1e-7 deg] ts=timestamp",
        );
        check("DATE,TIME,LAT,LON", "2026/11/24,10:12:47,1,2", "lat=LAT lng=LON ts=TIME date=DATE");
        check("DATE,TIME,LAT,LON", "x,2026-11-24T10:12:47Z,1,2", "lat=LAT lng=LON ts=TIME");
        check("date,time,lat,lon", "241126,101247.00,1,2", "lat=lat lng=lon ts=time date=date");
        check("Date,lat,lon", "2026-11-24 10:12:47,1,2", "lat=lat lng=lon ts=Date");
        check("lat,lat,lon,ts", "", "two columns lat and lat: rename one");
        check("Lat,LAT,lon,ts", "", "two columns Lat and LAT: rename one");
        check("timestamp,time,lat,lon", "", "lat=lat lng=lon ts=timestamp");
        check(
            "location-lat,location-long,timestamp,ground-speed",
            "",
            "lat=location-lat lng=location-long ts=timestamp speed=ground-speed",
        );
    }
}
