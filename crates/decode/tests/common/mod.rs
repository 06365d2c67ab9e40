//! Sources that the tests of this folder share.

use std::sync::Arc;

use milepost_decode::formats::{Fields, Format, Mapping, shipped};
use milepost_decode::position::Timestamp;
use milepost_decode::{
    Decoded, Decoder, Driver, Keep, Message, Pointer, Source, SpeedUnit, Template, TimeUnit,
};

/// 2026-11-27T09:00:10Z.
pub(crate) const NOW_MS: i64 = 1_795_770_010_000;

/// Creates a source of the topics `in/+`, in which `+` is the driver's id.
pub(crate) fn source(format: Format) -> Source {
    Source::new("in/+", Driver::Topic(Template::first()), format, Keep::Nothing)
}

/// Creates a source of the format of this name, with speeds in m/s if the source defines the unit.
pub(crate) fn format_called(name: &str) -> Source {
    source(match name {
        "milepost" => Format::Milepost,
        "geojson" => Format::GeoJson(SpeedUnit::MetresPerSecond),
        _ => {
            let mapping = shipped(name, Some(SpeedUnit::MetresPerSecond)).expect("a known name");
            Format::Mapped(Arc::new(mapping))
        }
    })
}

/// Decodes a payload that is published to `in/d7` and received at [`NOW_MS`].
pub(crate) fn decode_by(decoder: &Decoder, payload: impl AsRef<[u8]>) -> Decoded {
    let mut decoded = Decoded::default();
    let message = Message::new(b"in/d7", payload.as_ref());
    decoder.decode(message, Timestamp::from_unix_ms(NOW_MS), &mut decoded);
    decoded
}

pub(crate) fn pointer(text: &str) -> Pointer {
    Pointer::new(text).expect("well formed")
}

/// Returns the pointers `/lat`, `/lng` and `/ts`.
pub(crate) fn fields(unit: TimeUnit) -> Fields {
    Fields {
        points: None,
        lat: pointer("/lat"),
        lng: pointer("/lng"),
        ts: Some((pointer("/ts"), unit)),
        speed: None,
        heading: None,
        alt: None,
        acc: None,
        seq: None,
        driver: None,
        has_unit_of_degrees: false,
        more: None,
    }
}

pub(crate) fn mapped_source(fields: Fields) -> Source {
    source(Format::Mapped(Arc::new(Mapping::new(fields))))
}
