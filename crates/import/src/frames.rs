//! Checks what a file states about all its points. A fault may concern a field that points may
//! lack, such as headings from magnetic north. Such a fault stops the reading only if a point has
//! that field.

use std::cell::{Cell, RefCell};

use super::stated_zone::FIXES_MAY_BE_STORED;
use anyhow::{Result, anyhow, bail};
use milepost_decode::Decoder;
use milepost_decode::position::{Accuracy, Altitude, Heading, Position, Speed};

/// Fields that a point may lack.
const OPTIONAL: [&str; 4] = ["speed", "heading", "alt", "acc"];

/// Checks the frames of a file. A frame is a JSON object of statements about all points, such as a
/// unit or a reference system.
pub(super) struct Frames<'f> {
    decoder: &'f Decoder,
    /// The fields whose unit an option states.
    settled: Vec<&'f str>,
    /// For each field of [`OPTIONAL`]: whether a point had the field.
    are_read: Cell<[bool; 4]>,
    /// For each field of [`OPTIONAL`]: the first fault that a frame had in this field before any
    /// point had the field.
    pending_faults: RefCell<[Option<String>; 4]>,
}

impl<'f> Frames<'f> {
    pub(super) fn new(decoder: &'f Decoder, settled: Vec<&'f str>) -> Self {
        Self { decoder, settled, are_read: Cell::default(), pending_faults: RefCell::default() }
    }

    /// Checks a frame. `place`: where the frame is in the file, for errors.
    ///
    /// # Errors
    /// A stated unit, reference system or zone differs from the one in which the values are read.
    pub(super) fn check(&self, frame: &[u8], place: &str) -> Result<()> {
        let check = |settled: &[&str]| {
            let checked = self.decoder.check_frame(frame, settled);
            checked.map_err(|why| anyhow!("{place}: {why}"))
        };
        if check(&self.settled).is_ok() {
            return Ok(());
        }
        // Leave out the optional fields: a fault that remains concerns every point.
        check(&[&self.settled, &OPTIONAL[..]].concat())?;
        let mut pending_faults = self.pending_faults.borrow_mut();
        for (at, field) in OPTIONAL.iter().enumerate() {
            if self.settled.contains(field) {
                continue;
            }
            let others = OPTIONAL.iter().filter(|other| *other != field);
            let settled: Vec<&str> = self.settled.iter().chain(others).copied().collect();
            match check(&settled) {
                Err(why) if self.are_read.get()[at] => return Err(why),
                Err(why) => {
                    pending_faults[at].get_or_insert_with(|| why.to_string());
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Adds the points that were read. `is_first`: no point was read before.
    ///
    /// # Errors
    /// A frame had a fault in some field, and `positions` has the first point with this field.
    pub(super) fn add(&self, positions: &[Position], is_first: bool) -> Result<()> {
        let mut are_read = self.are_read.get();
        for position in positions {
            are_read[0] |= position.speed != Speed::UNKNOWN;
            are_read[1] |= position.heading != Heading::UNKNOWN;
            are_read[2] |= position.alt != Altitude::UNKNOWN;
            are_read[3] |= position.acc != Accuracy::UNKNOWN;
        }
        if are_read == self.are_read.replace(are_read) {
            return Ok(());
        }
        let pending_faults = self.pending_faults.borrow();
        let mut faults = pending_faults.iter().zip(are_read).filter(|(_, is_read)| *is_read);
        let Some(fault) = faults.find_map(|(fault, _)| fault.as_ref()) else { return Ok(()) };
        let after = if is_first { "" } else { FIXES_MAY_BE_STORED };
        bail!("{fault}{after}")
    }
}
