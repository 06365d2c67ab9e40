//! milepost's own: the keys of the table in docs/reference.md, SI units.

use crate::pipeline::decode::keep::Origin;
use crate::pipeline::decode::point::{Field, Point};
use crate::pipeline::decode::points::Points;
use crate::pipeline::decode::refusal::Refusal;

/// The keys that are columns.
pub(super) fn fields() -> Vec<&'static str> {
    let required = ["driver_id", "lat", "lng", "lon", "ts"];
    required.into_iter().chain(Field::ALL.map(Field::name)).collect()
}

pub(super) fn read(points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
    points.documents(json, read_one)
}

/// `None`: it is not plain.
pub(super) fn read_plain(points: &mut Points<'_>, json: &[u8]) -> Option<Result<(), Refusal>> {
    points.plain_documents(json, Point::fill_plain)
}

fn read_one(points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
    let mut point = Point::default();
    match point.fill(json) {
        Ok(()) => points.add(&point, &Origin::whole(json.as_bytes())),
        Err(error) => Err(Refusal::from_json(&error)),
    }
}
