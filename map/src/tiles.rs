//! Encodes tiles, as points or, if there are too many points, as cells. docs/map.md describes the
//! format.

use std::borrow::Cow;

use crate::fleet::filter::Filter;
use crate::fleet::{Fleet, Row, UNKNOWN};
use crate::geo::{KEY_BITS, Tile};

/// Cells per side of a tile, as a power of two.
const CELL_BITS: u32 = 5;
/// Version of the format.
const VERSION: u8 = 1;
/// Bytes before the columns.
pub const HEADER_BYTES: usize = 16;

/// The kind of a tile's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Points = 0,
    Cells = 1,
}

/// The drivers of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Cell {
    /// Mean place of the cell's drivers.
    pub lat_e7: i32,
    pub lng_e7: i32,
    /// Newest time of a fix in the cell.
    pub ts_s: u32,
    pub count: u32,
    /// Mean speed; 65535: unknown.
    pub speed_cms: u16,
}

/// Returns one kind for all tiles of a view: points if at most `points_max` drivers are in view,
/// else cells. So a view never mixes points and cells.
#[must_use]
pub fn kind(
    fleet: &Fleet,
    mut view: impl Iterator<Item = Tile> + Clone,
    filter: &Filter<'_>,
    points_max: usize,
) -> Kind {
    let all: usize = view.clone().map(|tile| fleet.in_tile(tile).len()).sum();
    if all <= points_max {
        return Kind::Points;
    }
    // Stops counting visible drivers as soon as there are too many.
    let mut shown = 0;
    let is_too_many = view.any(|tile| {
        fleet.in_tile(tile).iter().any(|row| {
            shown += usize::from(filter.shows(row));
            shown > points_max
        })
    });
    if is_too_many { Kind::Cells } else { Kind::Points }
}

/// Encodes a tile with the drivers that the filter shows, as of `now_ms`.
#[must_use]
pub fn cut(fleet: &Fleet, tile: Tile, kind: Kind, filter: &Filter<'_>, now_ms: i64) -> Vec<u8> {
    let all = fleet.in_tile(tile);
    // Do not copy the rows of a tile that shows all of its drivers, as most tiles do.
    let rows: Cow<'_, [Row]> = if all.iter().all(|row| filter.shows(row)) {
        Cow::Borrowed(all)
    } else {
        all.iter().filter(|row| filter.shows(row)).copied().collect()
    };
    match kind {
        Kind::Points => points(fleet, &rows, now_ms),
        Kind::Cells => cells(&gather(&rows, tile), now_ms),
    }
}

fn points(fleet: &Fleet, rows: &[Row], now_ms: i64) -> Vec<u8> {
    let mut out = header(Kind::Points, rows.len(), rows.len() * 32, now_ms);
    let ids = || rows.iter().map(|row| fleet.id(row.number()));
    column(&mut out, rows.iter().map(|row| row.lat_e7.to_le_bytes()));
    column(&mut out, rows.iter().map(|row| row.lng_e7.to_le_bytes()));
    column(&mut out, rows.iter().map(|row| row.ts_s.to_le_bytes()));
    column(&mut out, rows.iter().map(|row| row.speed_cms.to_le_bytes()));
    column(&mut out, rows.iter().map(|row| row.heading_cdeg.to_le_bytes()));
    column(&mut out, ids().map(|id| [u8::try_from(id.len()).unwrap_or(u8::MAX)]));
    ids().for_each(|id| out.extend_from_slice(id));
    out
}

/// Encodes a tile of cells.
#[must_use]
pub fn cells(cells: &[Cell], now_ms: i64) -> Vec<u8> {
    let mut out = header(Kind::Cells, cells.len(), cells.len() * 20, now_ms);
    column(&mut out, cells.iter().map(|cell| cell.lat_e7.to_le_bytes()));
    column(&mut out, cells.iter().map(|cell| cell.lng_e7.to_le_bytes()));
    column(&mut out, cells.iter().map(|cell| cell.ts_s.to_le_bytes()));
    column(&mut out, cells.iter().map(|cell| cell.count.to_le_bytes()));
    column(&mut out, cells.iter().map(|cell| cell.speed_cms.to_le_bytes()));
    out
}

/// Encodes the header of a tile. `bytes`: length of the columns, to allocate once.
fn header(kind: Kind, rows: usize, bytes: usize, now_ms: i64) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + bytes);
    out.extend([VERSION, kind as u8, 0, 0]);
    out.extend(u32::try_from(rows).unwrap_or(u32::MAX).to_le_bytes());
    out.extend((now_ms as f64).to_le_bytes());
    out
}

/// Appends the values, padded with zeros to a multiple of four bytes.
fn column<const BYTES: usize>(out: &mut Vec<u8>, values: impl Iterator<Item = [u8; BYTES]>) {
    values.for_each(|value| out.extend(value));
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Groups the rows of a tile into cells. The rows are sorted along the Z-order curve, so the rows
/// of a cell are contiguous.
fn gather(rows: &[Row], tile: Tile) -> Vec<Cell> {
    let shift = KEY_BITS - 2 * (u32::from(tile.z) + CELL_BITS);
    rows.chunk_by(|a, b| a.place() >> shift == b.place() >> shift).map(cell).collect()
}

#[expect(clippy::cast_possible_truncation, reason = "a mean is between its values")]
fn cell(rows: &[Row]) -> Cell {
    let (mut lat, mut lng, mut ts_s, mut speed_sum, mut speed_count) =
        (0_i64, 0_i64, 0, 0_u64, 0_u64);
    for row in rows {
        lat += i64::from(row.lat_e7);
        lng += i64::from(row.lng_e7);
        ts_s = row.ts_s.max(ts_s);
        if row.speed_cms != UNKNOWN {
            speed_sum += u64::from(row.speed_cms);
            speed_count += 1;
        }
    }
    let count = rows.len() as i64;
    Cell {
        lat_e7: (lat / count) as i32,
        lng_e7: (lng / count) as i32,
        ts_s,
        count: u32::try_from(count).unwrap_or(u32::MAX),
        speed_cms: speed_sum.checked_div(speed_count).map_or(UNKNOWN, |mean| mean as u16),
    }
}
