//! Losses over steps as a picture.

use embedded_graphics::text::Alignment;

use crate::canvas::{Canvas, Colour};
use crate::{Point, RunlogError};

const SIZE: (u32, u32) = (960, 540);
/// Left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (84.0, 24.0, 56.0, 52.0);
const INK: Colour = [40, 44, 52];
const GRID: Colour = [226, 229, 234];
/// Distinguishable without red and green.
const COLOURS: [Colour; 6] =
    [[0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [213, 94, 0]];
/// Points of a curve above which its running mean is drawn over a faint curve.
const SMOOTHED: usize = 60;

/// What to draw.
#[derive(Debug, Clone)]
pub struct Curve {
    /// Above the picture; ASCII, other characters become `?`.
    pub title: String,
    /// Metrics, each a line, at most six.
    pub names: Vec<String>,
}

struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let (width, height) =
            (f64::from(SIZE.0) - MARGIN.0 - MARGIN.1, f64::from(SIZE.1) - MARGIN.2 - MARGIN.3);
        (
            MARGIN.0 + width * (x - self.x.0) / (self.x.1 - self.x.0),
            MARGIN.2 + height * (1.0 - (y - self.y.0) / (self.y.1 - self.y.0)),
        )
    }
}

/// Distance of about `n` grid lines: 1, 2 or 5 times a power of ten.
fn distance(span: f64, n: f64) -> f64 {
    let raw = span / n;
    let power = 10f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|m| m * power).find(|d| *d >= raw).unwrap_or(10.0 * power)
}

fn marks(range: (f64, f64), n: f64) -> Vec<f64> {
    let step = distance(range.1 - range.0, n);
    let first = (range.0 / step).ceil();
    (0..100).map(|i| (first + f64::from(i)) * step).take_while(|v| *v <= range.1 + step * 1e-9).collect()
}

fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn ascii(text: &str, longest: usize) -> String {
    text.chars().take(longest).map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// Draws the named metrics over the steps; values that are not finite leave a gap.
///
/// # Errors
/// `Empty` when there is nothing to draw.
pub fn curve_png(points: &[Point], curve: &Curve) -> Result<Vec<u8>, RunlogError> {
    let series: Vec<(&str, Vec<(f64, f64)>)> = curve
        .names
        .iter()
        .take(COLOURS.len())
        .map(|name| {
            let of = points.iter().filter(|p| p.name == *name && p.value.is_finite());
            (name.as_str(), of.map(|p| (f64::from(p.step), p.value)).collect::<Vec<_>>())
        })
        .filter(|(_, values)| !values.is_empty())
        .collect();
    if series.is_empty() {
        return Err(RunlogError::Empty { names: curve.names.clone() });
    }
    let all = || series.iter().flat_map(|(_, values)| values);
    let span = |pick: fn(&(f64, f64)) -> f64| {
        all().map(pick).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
    };
    let (x, y) = (span(|p| p.0), span(|p| p.1));
    let room = ((y.1 - y.0) * 0.05).max(y.1.abs().max(1.0) * 1e-3);
    let axes = Axes { x: (x.0, x.1.max(x.0 + 1.0)), y: (y.0 - room, y.1 + room) };
    let mut canvas = Canvas::new(SIZE.0, SIZE.1);
    frame(&mut canvas, &axes, &ascii(&curve.title, 60));
    let mut left = MARGIN.0;
    for ((name, values), colour) in series.iter().zip(COLOURS) {
        plot(&mut canvas, &axes, values, colour);
        canvas.line((left, 38.0), (left + 22.0, 38.0), 3.0, colour);
        let name = ascii(name, 24);
        #[expect(clippy::cast_possible_truncation, reason = "pixels")]
        canvas.text(&name, (left + 29.0) as i32, 38, Alignment::Left, INK);
        left += 29.0 + 9.0 * (name.len() as f64 + 3.0);
    }
    canvas.png()
}

#[expect(clippy::cast_possible_truncation, reason = "pixels")]
fn frame(canvas: &mut Canvas, axes: &Axes, title: &str) {
    canvas.text(title, MARGIN.0 as i32, 16, Alignment::Left, INK);
    let bottom = f64::from(SIZE.1) - MARGIN.3;
    for value in marks(axes.y, 6.0) {
        let (from, to) = (axes.at(axes.x.0, value), axes.at(axes.x.1, value));
        canvas.line((from.0, from.1.round()), (to.0, to.1.round()), 1.0, GRID);
        canvas.text(&number(value), from.0 as i32 - 8, from.1.round() as i32, Alignment::Right, INK);
    }
    for value in marks(axes.x, 8.0).into_iter().filter(|v| v.fract() == 0.0) {
        let x = axes.at(value, axes.y.0).0.round();
        canvas.line((x, bottom), (x, bottom + 5.0), 1.0, INK);
        canvas.text(&number(value), x as i32, bottom as i32 + 17, Alignment::Center, INK);
    }
    let corner = axes.at(axes.x.0, axes.y.1);
    canvas.line((corner.0.round(), corner.1), (corner.0.round(), bottom), 1.0, INK);
    canvas.line((corner.0, bottom), (axes.at(axes.x.1, axes.y.0).0, bottom), 1.0, INK);
    canvas.text("step", axes.at(axes.x.1, axes.y.0).0 as i32, SIZE.1 as i32 - 12, Alignment::Right, INK);
}

fn plot(canvas: &mut Canvas, axes: &Axes, values: &[(f64, f64)], colour: Colour) {
    let mut polyline = |values: &[(f64, f64)], width: f64, colour: Colour| {
        if let [(x, y)] = values {
            let at = axes.at(*x, *y);
            canvas.line(at, at, 6.0, colour);
        }
        for pair in values.windows(2) {
            canvas.line(axes.at(pair[0].0, pair[0].1), axes.at(pair[1].0, pair[1].1), width, colour);
        }
    };
    if values.len() <= SMOOTHED {
        return polyline(values, 2.2, colour);
    }
    polyline(values, 1.0, colour.map(|c| 255 - (255 - c) / 3));
    let reach = values.len() / 50 + 1;
    let mean = |i: usize| {
        let near = &values[i.saturating_sub(reach)..(i + reach + 1).min(values.len())];
        (values[i].0, near.iter().map(|v| v.1).sum::<f64>() / near.len() as f64)
    };
    polyline(&(0..values.len()).map(mean).collect::<Vec<_>>(), 2.2, colour);
}
