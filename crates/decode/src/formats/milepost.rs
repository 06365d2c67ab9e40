//! milepost's own: the keys of the table in docs/reference.md, SI units.

use crate::keep::Origin;
use crate::point::{Field, Point};
use crate::points::Points;
use crate::refusal::Refusal;

/// The keys that are columns.
pub(super) fn fields() -> Vec<&'static str> {
    let required = ["driver_id", "lat", "lng", "lon", "ts"];
    required.into_iter().chain(Field::ALL.map(Field::name)).collect()
}

pub(super) fn read(points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
    points.documents(json, read_one)
}

fn read_one(points: &mut Points<'_>, json: &str) -> Result<(), Refusal> {
    let mut point = Point::default();
    point.fill(json)?;
    points.add(&point, &Origin::whole(json.as_bytes()))
}
