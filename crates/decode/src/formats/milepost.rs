//! Reads milepost's own format: the keys of the table in docs/drivers.md, in SI units and degrees.

use std::sync::LazyLock;

use crate::exponent;
use crate::extract::Pointer;
use crate::keep::Origin;
use crate::point::{Field, Point};
use crate::points::Points;
use crate::refusal::Refusal;
use crate::unit::TimeUnit;

/// Returns the keys that the format reads.
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
    if exponent::may_have_exponent(&point.ts) {
        check_exponents(json)?;
    }
    points.add(&point, &Origin::whole(json.as_bytes()))
}

#[cold]
fn check_exponents(json: &str) -> Result<(), Refusal> {
    static TS: LazyLock<Pointer> = LazyLock::new(|| Pointer::new("/ts").expect("well formed"));
    if !exponent::is_in(json) {
        return Ok(());
    }
    TS.raw(json)?.map_or(Ok(()), |raw| exponent::check_time_sent(raw.get(), TimeUnit::BySize))
}
