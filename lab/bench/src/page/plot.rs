//! Plots as SVG inside the page: lines, bars and ranges.
//!
//! A colour is a class, so that the style sheet decides it for light, dark and paper; a consumer has a shape and a
//! written name besides, for those to whom colours say nothing. Sizes are small units of a `viewBox`: on a phone one
//! is a little less than a pixel, so the text stays legible there.

use maud::{Markup, html};

use super::axis::{Axis, short};

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 290.0;
const TOP: f64 = 26.0;
const BELOW: f64 = 42.0;
/// Tick labels of the y axis.
const LEFT: f64 = 44.0;
/// Names at the lines' ends.
const RIGHT: f64 = 116.0;
const LETTER_HEIGHT: f64 = 14.0;
/// Ticks of the x axis nearer than this would run into each other.
const TICK_WIDTH: f64 = 24.0;
/// More points than these, and only the last one gets a shape.
const SHAPES_MAX: usize = 12;

/// Who is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) name: &'static str,
    /// Chooses colour and shape.
    pub(super) index: usize,
}

/// One figure of one consumer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
    /// Against milepost's.
    pub(super) ratio: Option<f64>,
    /// To the point before it; not across one that was not measured.
    pub(super) joined: bool,
}

/// One consumer's figures; what was not measured is not among them.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) mark: Mark,
    pub(super) points: Vec<Point>,
}

/// A plot of lines.
pub(super) struct Lines<'a> {
    /// For those who cannot see it.
    pub(super) about: &'a str,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: &'a [Series],
    /// Draws where y would be x.
    pub(super) as_wanted: bool,
}

impl Lines<'_> {
    pub(super) fn draw(&self) -> Markup {
        let (x, y) = (|value: f64| self.place_x(value), |value: f64| self.place_y(value));
        let labels = self.labels();
        let bottom = HEIGHT - BELOW;
        html! {
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(self.about) {
                text.axis x="0" y="12" { (self.y.label) }
                @for tick in &self.y.ticks {
                    path.grid d=(format!("M{LEFT} {:.1}H{}", y(*tick), WIDTH - RIGHT)) {}
                    text.tick x=(LEFT - 6.0) y=(format!("{:.1}", y(*tick) + 4.0)) text-anchor="end" { (short(*tick)) }
                }
                (ticks_below(&self.x, bottom, x))
                text.axis x=(f64::midpoint(LEFT, WIDTH - RIGHT)) y=(HEIGHT - 6.0) text-anchor="middle" { (self.x.label) }
                @if self.as_wanted { (self.draw_as_wanted()) }
                @for series in self.series {
                    g class=(class(series.mark)) {
                        path.line d=(self.path(series)) {}
                        @for (index, point) in series.points.iter().enumerate() {
                            @if point.most > point.least {
                                path.spread d=(format!("M{:.1} {:.1}V{:.1}", x(point.x), y(point.least), y(point.most))) {}
                            }
                            @if series.points.len() <= SHAPES_MAX || index + 1 == series.points.len() {
                                (shape(series.mark, x(point.x), y(point.median), &told(series.mark, point)))
                            }
                        }
                    }
                }
                @for (series, at) in self.series.iter().zip(&labels) {
                    @if let Some(last) = series.points.last() {
                        path.leader d=(format!("M{:.1} {:.1}L{} {at:.1}", x(last.x) + 6.0, y(last.median), WIDTH - RIGHT + 8.0)) {}
                        g class=(class(series.mark)) { (shape(series.mark, WIDTH - RIGHT + 14.0, *at, series.mark.name)) }
                        text.name x=(WIDTH - RIGHT + 22.0) y=(format!("{:.1}", at + 4.0)) { (series.mark.name) }
                    }
                }
            }
        }
    }

    fn place_x(&self, value: f64) -> f64 {
        LEFT + 10.0 + self.x.share(value) * (WIDTH - LEFT - RIGHT - 20.0)
    }

    fn place_y(&self, value: f64) -> f64 {
        let bottom = HEIGHT - BELOW;
        bottom - self.y.share(value) * (bottom - TOP)
    }

    fn path(&self, series: &Series) -> String {
        let step = |point: &Point| {
            let letter = if point.joined { 'L' } else { 'M' };
            format!("{letter}{:.1} {:.1}", self.place_x(point.x), self.place_y(point.median))
        };
        series.points.iter().map(step).collect()
    }

    fn draw_as_wanted(&self) -> Markup {
        let ends = self.x.ticks.first().zip(self.x.ticks.last());
        html! {
            @if let Some((from, to)) = ends {
                path.wanted d=(format!(
                    "M{:.1} {:.1}L{:.1} {:.1}",
                    self.place_x(*from), self.place_y(*from), self.place_x(*to), self.place_y(*to)
                )) {}
                text.tick x=(format!("{:.1}", self.place_x(*to))) y=(format!("{:.1}", self.place_y(*to) - 8.0)) text-anchor="end" {
                    "as wanted"
                }
            }
        }
    }

    /// Beside each line's end, moved apart where lines end together.
    fn labels(&self) -> Vec<f64> {
        let ends = |series: &Series| series.points.last().map_or(TOP, |point| self.place_y(point.median));
        apart(&self.series.iter().map(ends).collect::<Vec<_>>(), TOP, HEIGHT - BELOW)
    }
}

/// The same heights in the same order, a letter's height apart.
fn apart(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|one, other| wanted[*one].total_cmp(&wanted[*other]));
    let mut places = wanted.to_vec();
    let mut free = top;
    for index in &order {
        places[*index] = places[*index].max(free);
        free = places[*index] + LETTER_HEIGHT;
    }
    let mut free = bottom;
    for index in order.iter().rev() {
        places[*index] = places[*index].min(free);
        free = places[*index] - LETTER_HEIGHT;
    }
    places
}

/// A consumer and two figures: a bar from zero to the first, or a range from the one to the other.
pub(super) struct Bar {
    pub(super) mark: Mark,
    pub(super) from: f64,
    pub(super) to: f64,
    /// What is written beside it.
    pub(super) value: String,
}

const ROW_HEIGHT: f64 = 24.0;
const NAMES_WIDTH: f64 = 122.0;
const VALUES_WIDTH: f64 = 100.0;

/// Bars from zero.
pub(super) fn bars(about: &str, axis: &Axis, rows: &[Bar]) -> Markup {
    draw_rows(about, axis, rows, |row, y, x| {
        html! {
            rect.bar x=(NAMES_WIDTH) y=(format!("{:.1}", y - 8.0)) width=(format!("{:.1}", (x(row.to) - NAMES_WIDTH).max(1.0))) height="16" {}
        }
    })
}

/// From a median, which has the consumer's shape, to a 99th percentile, which has a stroke.
pub(super) fn ranges(about: &str, axis: &Axis, rows: &[Bar]) -> Markup {
    draw_rows(about, axis, rows, |row, y, x| {
        html! {
            path.line d=(format!("M{:.1} {y:.1}H{:.1}m0 -6v12", x(row.from), x(row.to))) {}
            (shape(row.mark, x(row.from), y, row.mark.name))
        }
    })
}

fn draw_rows(
    about: &str,
    axis: &Axis,
    rows: &[Bar],
    draw: impl Fn(&Bar, f64, &dyn Fn(f64) -> f64) -> Markup,
) -> Markup {
    let bottom = 8.0 + rows.len() as f64 * ROW_HEIGHT;
    let height = bottom + BELOW;
    let x = |value: f64| NAMES_WIDTH + axis.share(value) * (WIDTH - NAMES_WIDTH - VALUES_WIDTH);
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) role="img" aria-label=(about) {
            @for tick in &axis.ticks {
                path.grid d=(format!("M{:.1} 4V{bottom}", x(*tick))) {}
            }
            (ticks_below(axis, bottom, x))
            text.axis x=(f64::midpoint(NAMES_WIDTH, WIDTH - VALUES_WIDTH)) y=(height - 6.0) text-anchor="middle" { (axis.label) }
            @for (index, row) in rows.iter().enumerate() {
                @let y = 8.0 + (index as f64 + 0.5) * ROW_HEIGHT;
                g class=(class(row.mark)) {
                    (shape(row.mark, 7.0, y, row.mark.name))
                    (draw(row, y, &x))
                }
                text.name x="18" y=(format!("{:.1}", y + 4.0)) { (row.mark.name) }
                text.value x=(format!("{:.1}", x(row.to) + 6.0)) y=(format!("{:.1}", y + 4.0)) { (row.value) }
            }
        }
    }
}

fn ticks_below(axis: &Axis, bottom: f64, x: impl Fn(f64) -> f64) -> Markup {
    let mut shown: Vec<f64> = Vec::new();
    // From the right: the end of an axis is what one looks for.
    for tick in axis.ticks.iter().rev() {
        if shown.last().is_none_or(|last| x(*last) - x(*tick) >= TICK_WIDTH) {
            shown.push(*tick);
        }
    }
    html! {
        @for tick in shown {
            path.grid d=(format!("M{:.1} {bottom}v4", x(tick))) {}
            text.tick x=(format!("{:.1}", x(tick))) y=(bottom + 17.0) text-anchor="middle" { (short(tick)) }
        }
    }
}

fn told(mark: Mark, point: &Point) -> String {
    let spread = if point.most > point.least {
        format!(" ({}–{})", short(point.least), short(point.most))
    } else {
        String::new()
    };
    format!("{} at {}: {}{spread}", mark.name, short(point.x), short(point.median))
}

/// How many colours the style sheet has, and how many shapes there are here.
pub(super) const LOOKS: usize = 8;

/// What the style sheet calls a consumer.
pub(super) fn class(mark: Mark) -> String {
    format!("look-{}", mark.index % LOOKS)
}

/// A consumer's shape, which says its text when pointed at.
pub(super) fn shape(mark: Mark, x: f64, y: f64, says: &str) -> Markup {
    let outline = match mark.index % LOOKS {
        0 => "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
        1 => "m-4.5 -4.5h9v9h-9z",
        2 => "m0 -6l5.5 10h-11z",
        3 => "m0 -6l6 6l-6 6l-6 -6z",
        4 => "m0 6l5.5 -10h-11z",
        5 => "m-1.5 -5.5h3v4h4v3h-4v4h-3v-4h-4v-3h4z",
        6 => "m-5 -3l2 -2l3 3l3 -3l2 2l-3 3l3 3l-2 2l-3 -3l-3 3l-2 -2l3 -3z",
        _ => "m-3 -5h6l3 5l-3 5h-6l-3 -5z",
    };
    html! { path.shape d=(format!("M{x:.1} {y:.1}{outline}")) { title { (says) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_order_and_do_not_touch() {
        let wanted = [100.0, 101.0, 30.0, 100.5, 240.0, 239.0];
        let places = apart(&wanted, 20.0, 245.0);
        for one in 0..wanted.len() {
            assert!((20.0..=245.0).contains(&places[one]), "{places:?}");
            for other in 0..wanted.len() {
                assert!(wanted[one] >= wanted[other] || places[one] < places[other], "{places:?}");
                assert!(one == other || (places[one] - places[other]).abs() >= LETTER_HEIGHT - 1e-9);
            }
        }
    }
}
