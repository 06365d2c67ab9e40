//! Messages in every format that milepost reads, as the devices write them.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::fleet::Fix;

/// One metre per second in km/h.
const KMH: f32 = 3.6;
/// One metre per second in knots.
const KNOTS: f32 = 3_600.0 / 1_852.0;

/// A payload format of milepost: a built-in one, or [`Mapped`](Self::Mapped), which is defined in
/// the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    #[default]
    Milepost,
    Owntracks,
    Traccar,
    TraccarClient,
    Teltonika,
    Thingsboard,
    Geojson,
    Nmea,
    W3c,
    Mapped,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 10] = [
        Self::Milepost,
        Self::Owntracks,
        Self::Traccar,
        Self::TraccarClient,
        Self::Teltonika,
        Self::Thingsboard,
        Self::Geojson,
        Self::Nmea,
        Self::W3c,
        Self::Mapped,
    ];

    /// Returns the format's name in milepost's configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Milepost => "milepost",
            Self::Owntracks => "owntracks",
            Self::Traccar => "traccar",
            Self::TraccarClient => "traccar-client",
            Self::Teltonika => "teltonika",
            Self::Thingsboard => "thingsboard",
            Self::Geojson => "geojson",
            Self::Nmea => "nmea",
            Self::W3c => "w3c",
            Self::Mapped => "mapped",
        }
    }

    /// Returns whether the fixes of this format have a `seq`.
    pub(crate) fn has_seq(self) -> bool {
        matches!(self, Self::Milepost | Self::Geojson | Self::Mapped)
    }

    /// Returns the topic of a driver's messages.
    #[must_use]
    pub fn topic(self, driver: &str) -> String {
        match self {
            Self::Milepost => format!("drivers/{driver}/gps"),
            Self::Owntracks => format!("owntracks/{driver}/phone"),
            Self::Traccar => "traccar/positions".to_owned(),
            Self::TraccarClient => "traccar-client".to_owned(),
            Self::Teltonika => format!("teltonika/{driver}/data"),
            Self::Thingsboard => format!("v1/devices/{driver}/telemetry"),
            Self::Geojson => format!("geojson/{driver}"),
            Self::Nmea => format!("nmea/{driver}"),
            Self::W3c => format!("w3c/{driver}"),
            Self::Mapped => format!("acme/{driver}"),
        }
    }

    /// Returns the configuration with which milepost reads this format, as TOML: a `[[sources]]`
    /// table, and for [`Mapped`](Self::Mapped) also a `[formats.mapped]` table.
    #[must_use]
    pub fn source(self) -> &'static str {
        match self {
            Self::Milepost => "[[sources]]\ntopic = \"drivers/+/gps\"\n",
            Self::Owntracks => {
                "[[sources]]\ntopic = \"owntracks/+/+\"\ndriver = \"{1}\"\nformat = \"owntracks\"\n"
            }
            Self::Traccar => {
                "[[sources]]\ntopic = \"traccar/positions\"\ndriver = \"/device/uniqueId\"\n\
                 format = \"traccar\"\n"
            }
            Self::TraccarClient => {
                "[[sources]]\ntopic = \"traccar-client\"\ndriver = \"/device_id\"\n\
                 format = \"traccar-client\"\n"
            }
            Self::Teltonika => {
                "[[sources]]\ntopic = \"teltonika/+/data\"\nformat = \"teltonika\"\n"
            }
            Self::Thingsboard => {
                "[[sources]]\ntopic = \"v1/devices/+/telemetry\"\nformat = \"thingsboard\"\n\
                 speed_unit = \"km/h\"\n"
            }
            Self::Geojson => {
                "[[sources]]\ntopic = \"geojson/+\"\nformat = \"geojson\"\nspeed_unit = \"m/s\"\n"
            }
            Self::Nmea => "[[sources]]\ntopic = \"nmea/+\"\nformat = \"nmea\"\n",
            Self::W3c => "[[sources]]\ntopic = \"w3c/+\"\nformat = \"w3c\"\n",
            Self::Mapped => {
                "[formats.mapped]\npoints = \"/data/track\"\nlat = \"/p/0\"\nlng = \"/p/1\"\n\
                 ts = \"/t\"\nts_unit = \"ms\"\nspeed = \"/v\"\nspeed_unit = \"mph\"\n\
                 heading = \"/dir\"\nacc = \"/acc\"\nseq = \"/n\"\n\
                 [[sources]]\ntopic = \"acme/+\"\nformat = \"mapped\"\n"
            }
        }
    }

    /// Appends one message with one or more fixes of a driver.
    pub fn write(self, driver: &str, fixes: &[Fix], out: &mut String) {
        match (self, fixes) {
            (Self::Nmea, _) => fixes.iter().for_each(|fix| write_nmea(fix, out)),
            (Self::Mapped, _) => {
                self.write_list(driver, fixes, [r#"{"data":{"track":["#, "]}}"], out)
            }
            (Self::Geojson, [_, _, ..]) => {
                self.write_list(
                    driver,
                    fixes,
                    [r#"{"type":"FeatureCollection","features":["#, "]}"],
                    out,
                );
            }
            (_, [fix]) => self.write_one(driver, fix, out),
            (_, _) => self.write_list(driver, fixes, ["[", "]"], out),
        }
    }

    fn write_list(self, driver: &str, fixes: &[Fix], [open, close]: [&str; 2], out: &mut String) {
        out.push_str(open);
        for (index, fix) in fixes.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { "," });
            self.write_one(driver, fix, out);
        }
        out.push_str(close);
    }

    fn write_one(self, driver: &str, fix: &Fix, out: &mut String) {
        let Fix { lat, lng, speed_mps, heading_deg, acc_m, ts_ms, seq } = fix;
        let (kmh, knots, mph) = (speed_mps * KMH, speed_mps * KNOTS, speed_mps / 0.447_04);
        let written = match self {
            // `write` never calls this function for `Nmea`.
            Self::Milepost | Self::Nmea => {
                fix.write_json(out);
                Ok(())
            }
            Self::Owntracks => write!(
                out,
                r#"{{"_type":"location","lat":{lat:.7},"lon":{lng:.7},"tst":{},"vel":{kmh:.0},"cog":{heading_deg:.0},"acc":{acc_m:.0},"batt":80,"tid":"d7"}}"#,
                ts_ms / 1_000
            ),
            Self::Traccar => write!(
                out,
                r#"{{"position":{{"id":{seq},"fixTime":"{}","latitude":{lat:.7},"longitude":{lng:.7},"speed":{knots:.3},"course":{heading_deg:.0},"accuracy":{acc_m:.1},"attributes":{{"motion":true}}}},"device":{{"id":1,"uniqueId":"{driver}"}}}}"#,
                rfc3339(*ts_ms)
            ),
            Self::TraccarClient => write!(
                out,
                r#"{{"location":{{"timestamp":"{}","coords":{{"latitude":{lat:.7},"longitude":{lng:.7},"speed":{speed_mps:.1},"heading":{heading_deg:.0},"accuracy":{acc_m:.0}}}}},"device_id":"{driver}"}}"#,
                rfc3339(*ts_ms)
            ),
            Self::Teltonika => write!(
                out,
                r#"{{"state":{{"reported":{{"ts":{ts_ms},"latlng":"{lat:.7},{lng:.7}","sp":{kmh:.0},"ang":{heading_deg:.0},"sat":9,"evt":0}}}}}}"#
            ),
            Self::Thingsboard => write!(
                out,
                r#"{{"ts":{ts_ms},"values":{{"latitude":{lat:.7},"longitude":{lng:.7},"speed":{kmh:.1},"heading":{heading_deg:.0},"accuracy":{acc_m:.0}}}}}"#
            ),
            Self::Geojson => write!(
                out,
                r#"{{"type":"Feature","geometry":{{"type":"Point","coordinates":[{lng:.7},{lat:.7}]}},"properties":{{"ts":{ts_ms},"seq":{seq},"speed":{speed_mps:.1},"heading":{heading_deg:.0},"acc":{acc_m:.0}}}}}"#
            ),
            Self::W3c => write!(
                out,
                r#"{{"coords":{{"latitude":{lat:.7},"longitude":{lng:.7},"altitude":null,"accuracy":{acc_m:.0},"altitudeAccuracy":null,"heading":{heading_deg:.0},"speed":{speed_mps:.1}}},"timestamp":{ts_ms}}}"#
            ),
            Self::Mapped => write!(
                out,
                r#"{{"p":["{lat:.7}","{lng:.7}"],"t":{ts_ms},"v":{mph:.2},"dir":{heading_deg:.0},"acc":{acc_m:.0},"n":{seq}}}"#
            ),
        };
        written.expect("writing to a String");
    }
}

/// Appends an RMC sentence and a line break.
fn write_nmea(fix: &Fix, out: &mut String) {
    let Fix { lat, lng, speed_mps, heading_deg, ts_ms, .. } = fix;
    let hemisphere =
        |degrees: &f64, positive, negative| if *degrees < 0.0 { negative } else { positive };
    let split = |degrees: &f64| {
        // Round first: 59.9999999 minutes must not be written as 60.
        let minutes = (degrees.abs() * 60.0 * 1e6).round() / 1e6;
        let whole = (minutes / 60.0).floor();
        (whole, minutes - whole * 60.0)
    };
    let ((lat_deg, lat_min), (lng_deg, lng_min)) = (split(lat), split(lng));
    let time = rfc3339(*ts_ms); // 2026-11-21T08:00:00.123Z
    let date = [&time[8..10], &time[5..7], &time[2..4]].concat();
    let time = [&time[11..13], &time[14..16], &time[17..23]].concat();
    let body = format!(
        "GPRMC,{time},A,{lat_deg:02.0}{lat_min:09.6},{},{lng_deg:03.0}{lng_min:09.6},{},{:.3},\
         {heading_deg:.1},{date},,,A",
        hemisphere(lat, 'N', 'S'),
        hemisphere(lng, 'E', 'W'),
        speed_mps * KNOTS
    );
    let checksum = body.bytes().fold(0, |sum, byte| sum ^ byte);
    write!(out, "${body}*{checksum:02X}\r\n").expect("writing to a String");
}

fn rfc3339(unix_ms: i64) -> String {
    let since_epoch = Duration::from_millis(u64::try_from(unix_ms).expect("after 1970"));
    humantime::format_rfc3339_millis(UNIX_EPOCH + since_epoch).to_string()
}
