//! Derives the events that a fence's rules cause (stay, opening hours, speed), and those of the
//! speed limit `events.faster_than`.

use std::collections::{BTreeSet, HashMap};

use super::area::Area;
use super::event::{Event, Fix, GAP_MS_MAX, Kind, event};

/// A fast driver is slow again at or below this share of the limit. So a speed that wavers around
/// the limit causes only one event.
const SLOW_SHARE: f64 = 0.95;

/// The state of a driver at a fence, after the driver's newest event of that fence.
#[derive(Debug, Clone)]
pub(super) struct Stay {
    pub(super) is_inside: bool,
    has_overstayed: bool,
    began: Began,
}

/// The event that led to a state at a fence, without its strings: a driver may have many states.
#[derive(Debug, Clone)]
struct Began {
    ts: i64,
    seq: u32,
    lat: f64,
    lng: f64,
    speed: Option<f64>,
    known_at: i64,
}

/// The state of a driver at each fence for which the driver has had an event, by name. A sorted
/// `Vec`, because a map would need some 800 bytes for the first fence.
#[derive(Debug, Clone, Default)]
pub(super) struct Stays(Vec<(Box<str>, Stay)>);

impl Stays {
    pub(super) fn is_inside(&self, fence: &str) -> bool {
        self.index(fence).is_ok_and(|index| self.0[index].1.is_inside)
    }

    pub(super) fn insert(&mut self, fence: &str, stay: Stay) {
        match self.index(fence) {
            Ok(index) => self.0[index].1 = stay,
            Err(index) => {
                if self.0.len() == self.0.capacity() {
                    self.0.reserve_exact(1 + self.0.len() / 4);
                }
                self.0.insert(index, (fence.into(), stay));
            }
        }
    }

    /// Returns the names of the fences that the driver is inside.
    pub(super) fn inside(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, stay)| stay.is_inside).map(|(fence, _)| &**fence)
    }

    /// Returns the states at the fences that the driver is inside, with their names.
    pub(super) fn inside_mut(&mut self) -> impl Iterator<Item = (&str, &mut Stay)> {
        let stays = self.0.iter_mut().map(|(fence, stay)| (&**fence, stay));
        stays.filter(|(_, stay)| stay.is_inside)
    }

    /// Returns the names of all fences that have a state.
    pub(super) fn into_names(self) -> Vec<String> {
        self.0.into_iter().map(|(fence, _)| fence.into_string()).collect()
    }

    fn index(&self, fence: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(name, _)| (**name).cmp(fence))
    }
}

impl Stay {
    /// Returns the state after an event of the fence.
    pub(super) fn after(event: &Event) -> Self {
        let Event { ts, seq, lat, lng, speed, known_at, .. } = *event;
        Self {
            is_inside: event.kind != Kind::Left,
            has_overstayed: event.kind == Kind::Overstayed,
            began: Began { ts, seq, lat, lng, speed, known_at },
        }
    }

    /// Appends `overstayed` if, at this fix and by the device's clock, the driver has been inside
    /// for longer than one of these areas of the fence allows. Only this method finds a stay that
    /// the device reports late.
    pub(super) fn judge_stay_at_fix<'a>(
        &mut self,
        fix: &Fix,
        fence: &str,
        areas: impl Iterator<Item = &'a Area>,
        out: &mut Vec<Event>,
    ) {
        if self.has_overstayed {
            return;
        }
        let areas: Vec<&Area> = areas.collect();
        let Some(stay) = self.stay_limit(&areas) else { return };
        // Measure by the device's clock. By the server's clock, a fix that is inserted late because
        // of an outage of ClickHouse would lengthen the stay by the length of the outage.
        let by_device = self.began.ts.saturating_add(stay);
        if fix.ts > by_device && is_any_valid(&areas, by_device) {
            let by_clock = self.began.known_at.saturating_add(stay);
            self.overstay(&fix.driver_id, fence, by_clock.min(fix.inserted_at), out);
        }
    }

    /// Appends `overstayed` if, by the server's clock, the driver has been inside for longer than
    /// one of these areas of the fence allows. Needs no fix, because a sleeping device sends none.
    /// An area of the fence must still be valid at the time at which the limit is exceeded.
    pub(super) fn judge_stay_at_time(
        &mut self,
        now: i64,
        (driver_id, fence): (&str, &str),
        areas: &[&Area],
        out: &mut Vec<Event>,
    ) {
        if self.has_overstayed || areas.is_empty() {
            return;
        }
        let is_for_driver = |area: &&Area| area.is_for(driver_id);
        let areas: Vec<&Area> = areas.iter().copied().filter(is_for_driver).collect();
        let Some(stay) = self.stay_limit(&areas) else { return };
        let known_at = self.began.known_at.saturating_add(stay);
        if known_at < now && is_any_valid(&areas, known_at) {
            self.overstay(driver_id, fence, known_at, out);
        }
    }

    /// Returns the lowest stay limit, in milliseconds, of the areas that were valid when the stay
    /// began; `None` if these areas have no such limit.
    fn stay_limit(&self, areas: &[&Area]) -> Option<i64> {
        let valid = areas.iter().filter(|area| area.is_valid(self.began.ts));
        valid.filter_map(|area| area.limits.stay_ms).min()
    }

    fn overstay(&mut self, driver_id: &str, fence: &str, known_at: i64, out: &mut Vec<Event>) {
        let (driver_id, fence, kind) = (driver_id.to_owned(), fence.to_owned(), Kind::Overstayed);
        let Began { ts, seq, lat, lng, speed, known_at: _ } = self.began;
        out.push(Event { driver_id, kind, fence, ts, seq, lat, lng, speed, known_at });
        self.has_overstayed = true;
    }
}

/// Appends `off_hours` if the fence was closed at this fix, at which the driver entered or left.
pub(super) fn judge_hours<'a>(
    fix: &Fix,
    fence: &str,
    mut areas: impl Iterator<Item = &'a Area>,
    out: &mut Vec<Event>,
) {
    let is_closed = |area: &Area| {
        area.is_valid(fix.ts)
            && area.limits.hours.as_ref().is_some_and(|hours| !hours.is_open(fix.ts))
    };
    if areas.any(is_closed) {
        out.push(event(fix, Kind::OffHours, fence));
    }
}

fn is_any_valid(areas: &[&Area], at: i64) -> bool {
    areas.iter().any(|area| area.is_valid(at))
}

/// The fences with a limit for the stay or the silence, by name: a driver can exceed these limits
/// without sending a fix. Includes all areas of such a fence, because an area without a limit can
/// follow an area with one.
pub(super) struct TimeLimited<'a>(HashMap<&'a str, Vec<&'a Area>>);

impl<'a> TimeLimited<'a> {
    pub(super) fn new(areas: &'a [Area]) -> Self {
        let has_rule =
            |area: &&Area| area.limits.stay_ms.is_some() || area.limits.silent_for_ms.is_some();
        let names = areas.iter().filter(has_rule).map(|area| (&*area.name, Vec::new()));
        let mut limited: HashMap<&str, Vec<&Area>> = names.collect();
        for area in areas {
            if let Some(areas) = limited.get_mut(&*area.name) {
                areas.push(area);
            }
        }
        Self(limited)
    }

    /// Returns all areas of a fence; an empty slice if none of them has such a limit.
    pub(super) fn areas(&self, fence: &str) -> &[&'a Area] {
        self.0.get(fence).map_or(&[], Vec::as_slice)
    }
}

/// The speed limits that a driver exceeds.
#[derive(Debug, Clone, Default)]
pub(super) struct Speeding {
    /// Names of the fences whose limit the driver exceeds; an empty name stands for
    /// `events.faster_than`.
    exceeded: BTreeSet<String>,
}

impl Speeding {
    /// Restores a state from a known event.
    pub(super) fn restore_event(&mut self, event: &Event) {
        if event.kind == Kind::Fast {
            self.exceeded.insert(event.fence.clone());
        } else {
            self.exceeded.remove(&event.fence);
        }
    }

    /// Appends `fast` and `slow`. A fix above the limit causes `fast` only if the next fix is not
    /// slow: a single fast fix may be an error of the device. `last`: the previous fix, with the
    /// names of the fences that the driver was in; `None` if this fix is the first. `around`: the
    /// areas that contain the fix, and those that the driver has not left yet because the fix is
    /// within their margin. The limit of a fence in `crossed`, which the driver may have left, does
    /// not count: the next fix decides.
    pub(super) fn judge(
        &mut self,
        last: Option<(&Fix, &BTreeSet<String>)>,
        fix: &Fix,
        (around, crossed): (&[&Area], &BTreeSet<String>),
        faster_than: Option<f64>,
        out: &mut Vec<Event>,
    ) {
        if let (Some(limit), Some(speed)) = (faster_than, fix.speed) {
            self.judge_limit(("", limit), last.map(|(last, _)| last), (fix, speed), out);
        }
        if faster_than.is_none() {
            self.leave(fix, "", out); // the limit was switched off
        }
        let limit_of = |area: &&Area| area.limits.speed_mps.map(|limit| (area.name.clone(), limit));
        let exceeded_fences = self.exceeded.iter().filter(|name| !name.is_empty());
        let names: BTreeSet<String> = exceeded_fences
            .cloned()
            .chain(around.iter().filter_map(limit_of).map(|(name, _)| name))
            .collect();
        for name in names {
            let fence_areas = || around.iter().copied().filter(|area| area.name == name);
            let limit = fence_areas().filter_map(|area| area.limits.speed_mps).reduce(f64::min);
            match (limit, fix.speed) {
                (Some(limit), Some(speed)) => {
                    let inside = last.filter(|(_, was_inside)| was_inside.contains(&name));
                    let last = inside.map(|(last, _)| last);
                    self.judge_limit((&name, limit), last, (fix, speed), out);
                }
                (Some(_), None) => {}
                (None, _) if crossed.contains(&name) => {}
                // The driver is outside, or the fence has no limit any more.
                (None, _) => self.leave(fix, &name, out),
            }
        }
    }

    /// Appends `slow` if the driver exceeded the limit of this fence, which no longer applies. An
    /// empty name stands for `events.faster_than`.
    pub(super) fn leave(&mut self, fix: &Fix, fence: &str, out: &mut Vec<Event>) {
        if self.exceeded.remove(fence) {
            out.push(event(fix, Kind::Slow, fence));
        }
    }

    /// Judges a speed by one limit. `last`: the previous fix; `None` if the limit did not apply
    /// there.
    fn judge_limit(
        &mut self,
        (fence, limit): (&str, f64),
        last: Option<&Fix>,
        (fix, speed): (&Fix, f64),
        out: &mut Vec<Event>,
    ) {
        // `positions` has hundredths of m/s: 50 km/h is 13.89 there, which is not above a limit of
        // 50 km/h.
        let limit = (limit * 100.0).round() / 100.0;
        let (slow_limit, is_fast) = (limit * SLOW_SHARE, self.exceeded.contains(fence));
        if is_fast && speed <= slow_limit {
            out.push(event(fix, Kind::Slow, fence));
            self.exceeded.remove(fence);
        } else if !is_fast && speed > slow_limit {
            let is_first = |last: &&Fix| {
                fix.ts - last.ts <= GAP_MS_MAX && last.speed.is_some_and(|speed| speed > limit)
            };
            if let Some(first) = last.filter(is_first) {
                out.push(Event { known_at: fix.inserted_at, ..event(first, Kind::Fast, fence) });
                self.exceeded.insert(fence.to_owned());
            }
        }
    }
}
