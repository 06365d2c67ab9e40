//! Reads milepost's own format: the keys of the table in docs/drivers.md, in SI units and degrees.

use std::sync::LazyLock;

use crate::exponent;
use crate::extract::Pointer;
use crate::keep::Origin;
use crate::point::{Field, Point};
use crate::points::Points;
use crate::reader::{Reader, as_text};
use crate::refusal::{Refusal, invalid, refuse};
use crate::reject::Reason;
use crate::unit::TimeUnit;

/// Returns the keys that the format reads.
pub(super) fn fields() -> Vec<&'static str> {
    let required = ["driver_id", "lat", "lng", "lon", "ts"];
    required.into_iter().chain(Field::ALL.map(Field::name)).collect()
}

/// Reads a payload in one pass: an object, or an array of objects. Returns `None` if the payload is
/// something else or has too many points, and then adds nothing to `points`. The caller then calls
/// [`read`](self::read), which is slower and reports the error.
#[inline(always)]
pub(super) fn read_in_one_pass(
    points: &mut Points<'_>,
    json: &[u8],
) -> Option<Result<(), Refusal>> {
    let mut reader = Reader::new(json);
    if reader.peek() != b'[' {
        let mut point = Point::default();
        point.fill(&mut reader)?;
        reader.end()?;
        return Some(add(points, &point, json));
    }
    let (positions, rejects, omissions) =
        (points.out.positions.len(), points.out.rejects.len(), points.out.omissions);
    let mut count = 0;
    let read = reader.array(|reader| {
        let rest = reader.rest();
        let mut point = Point::default();
        point.fill(reader)?;
        count += 1;
        let raw = reader.read_since(rest);
        if count > points.points_max {
            return None;
        }
        if let Err(refusal) = add(points, &point, raw) {
            points.refuse(raw, raw, refusal);
        }
        Some(())
    });
    if read.is_none() || count == 0 || reader.end().is_none() {
        points.out.positions.truncate(positions);
        points.out.rejects.truncate(rejects);
        points.out.omissions = omissions;
        return None;
    }
    Some(Ok(()))
}

/// Reads a payload point by point. An element that is not an object is rejected, but its neighbours
/// are read.
pub(super) fn read(points: &mut Points<'_>, json: &[u8]) -> Result<(), Refusal> {
    points.documents(json, |points, json| {
        let mut reader = Reader::new(json);
        if reader.peek() != b'{' {
            let detail = format!("{:.40} is not an object with lat and lng", as_text(json));
            return refuse(Reason::WrongShape, detail);
        }
        let mut point = Point::default();
        point.fill(&mut reader).and_then(|()| reader.end()).ok_or_else(|| invalid(json))?;
        add(points, &point, json)
    })
}

#[inline(always)]
fn add(points: &mut Points<'_>, point: &Point<'_>, raw: &[u8]) -> Result<(), Refusal> {
    if exponent::may_have_exponent(&point.ts) {
        check_exponents(raw)?;
    }
    points.add(point, &Origin::whole(raw))
}

#[cold]
fn check_exponents(json: &[u8]) -> Result<(), Refusal> {
    static TS: LazyLock<Pointer> = LazyLock::new(|| Pointer::new("/ts").expect("well formed"));
    if !exponent::is_in(json) {
        return Ok(());
    }
    TS.raw(json)?.map_or(Ok(()), |raw| exponent::check_time_sent(raw, TimeUnit::BySize))
}
