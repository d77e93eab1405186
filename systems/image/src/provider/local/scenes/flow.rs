//! Pattern: strokes that follow a vector field.

use super::super::canvas::Canvas;
use super::super::noise::GradientNoise;
use super::super::palette::InkPalette;
use super::super::portable_math::{angle, cos, lerp, sin, smoothstep};
use super::super::rng::PromptRng;

/// Strokes start at the knots of a jittered grid, so that no part of the image stays empty.
const GRID_KNOTS: usize = 26;

/// Maximum number of pieces in a stroke, and the length of each.
const MAX_STROKE_PIECES: usize = 44;
const PIECE_LENGTH: f64 = 0.0105;

pub(super) fn paint(canvas: &mut Canvas, inks: &InkPalette, rng: &mut PromptRng) {
    let (wind, shades) = (GradientNoise::new(rng), GradientNoise::new(rng));
    let scale = rng.range(0.9, 2.1);
    let heading = rng.next_f64();
    let turning = rng.range(0.25, 0.6);
    // The center that the field circles, with random strength.
    let eye = (rng.range(0.25, 0.75), rng.range(0.25, 0.75));
    let pull = rng.range(0.0, 1.0);
    // Direction of a stroke at a point. It adds two vectors, not two angles: an angle has a seam where it wraps around.
    let direction_at = |x: f64, y: f64| {
        let (dx, dy) = (x - eye.0, y - eye.1);
        let near = pull * (1.0 - smoothstep(0.05, 0.55, (dx * dx + dy * dy).sqrt()));
        let free = heading + turning * wind.fractal(x * scale, y * scale, 2);
        let around = angle(dx, dy) + 0.27;
        let (sx, sy) = (lerp(cos(free), cos(around), near), lerp(sin(free), sin(around), near));
        let length = (sx * sx + sy * sy).sqrt().max(0.05);
        (x + PIECE_LENGTH * sx / length, y + PIECE_LENGTH * sy / length)
    };
    let far = inks.paper.lighten(if inks.is_dark { 0.05 } else { -0.03 });
    canvas.fill(|x, y| inks.paper.mix(far, smoothstep(0.0, 1.2, x * 0.4 + y)));
    let thick = rng.range(0.0030, 0.0075);
    let mut knots: Vec<usize> = (0..GRID_KNOTS * GRID_KNOTS).collect();
    for last in (1..knots.len()).rev() {
        knots.swap(last, rng.next_below(last + 1));
    }
    for knot in knots {
        let start = |at: usize, rng: &mut PromptRng| ((at as f64 + rng.next_f64()) / GRID_KNOTS as f64) * 1.16 - 0.08;
        let mut position = (start(knot % GRID_KNOTS, rng), start(knot / GRID_KNOTS, rng));
        let part = 0.5 + 0.75 * shades.fractal(position.0 * 1.6, position.1 * 1.6, 2) + rng.range(-0.12, 0.12);
        let color = if rng.one_in(11) { inks.accent() } else { inks.gradient(part) };
        let width = thick * rng.range(0.45, 1.6);
        let pieces = MAX_STROKE_PIECES / 2 + rng.next_below(MAX_STROKE_PIECES / 2);
        let mut path = vec![position];
        for _ in 0..pieces {
            position = direction_at(position.0, position.1);
            path.push(position);
        }
        // A rim in the background color separates a stroke from the strokes below it.
        let rim = width + 0.0016;
        for (index, ends) in path.windows(2).enumerate() {
            canvas.draw_stroke(
                ends[0],
                ends[1],
                (rim * taper(index, pieces), rim * taper(index + 1, pieces)),
                far,
                0.8,
            );
        }
        for (index, ends) in path.windows(2).enumerate() {
            canvas.draw_stroke(
                ends[0],
                ends[1],
                (width * taper(index, pieces), width * taper(index + 1, pieces)),
                color,
                1.0,
            );
        }
    }
}

/// Returns the width factor of a piece: strokes are thin at both ends.
fn taper(index: usize, pieces: usize) -> f64 {
    let part = index as f64 / pieces as f64;
    (4.0 * part * (1.0 - part)).sqrt()
}
