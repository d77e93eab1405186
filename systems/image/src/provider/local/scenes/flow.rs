//! Strokes that follow a wind.

use super::super::canvas::Canvas;
use super::super::chance::Chance;
use super::super::exact::{angle, cos, mix, sin, smooth};
use super::super::noise::Noise;
use super::super::palette::Inks;

/// Strokes start from a grid, each a little off its knot, so that no part of the picture stays empty.
const GRID: usize = 26;

/// Pieces of a stroke, and how long each is.
const PIECES: usize = 44;
const PIECE: f64 = 0.0105;

pub(super) fn paint(canvas: &mut Canvas, inks: &Inks, chance: &mut Chance) {
    let (wind, shades) = (Noise::new(chance), Noise::new(chance));
    let scale = chance.within(0.9, 2.1);
    let heading = chance.unit();
    let turning = chance.within(0.25, 0.6);
    // An eye that the wind circles, strongly or hardly.
    let eye = (chance.within(0.25, 0.75), chance.within(0.25, 0.75));
    let pull = chance.within(0.0, 1.0);
    // Where a stroke goes on from a place. The two winds are added, not their angles, so there is no seam where one turns over.
    let onward = |x: f64, y: f64| {
        let (dx, dy) = (x - eye.0, y - eye.1);
        let near = pull * (1.0 - smooth(0.05, 0.55, (dx * dx + dy * dy).sqrt()));
        let free = heading + turning * wind.rough(x * scale, y * scale, 2);
        let around = angle(dx, dy) + 0.27;
        let (sx, sy) = (mix(cos(free), cos(around), near), mix(sin(free), sin(around), near));
        let length = (sx * sx + sy * sy).sqrt().max(0.05);
        (x + PIECE * sx / length, y + PIECE * sy / length)
    };
    let far = inks.paper.lighter(if inks.dark { 0.05 } else { -0.03 });
    canvas.shade(|x, y| inks.paper.mix(far, smooth(0.0, 1.2, x * 0.4 + y)));
    let thick = chance.within(0.0030, 0.0075);
    let mut knots: Vec<usize> = (0..GRID * GRID).collect();
    for last in (1..knots.len()).rev() {
        knots.swap(last, chance.below(last + 1));
    }
    for knot in knots {
        let start = |at: usize, chance: &mut Chance| ((at as f64 + chance.unit()) / GRID as f64) * 1.16 - 0.08;
        let mut place = (start(knot % GRID, chance), start(knot / GRID, chance));
        let part = 0.5 + 0.75 * shades.rough(place.0 * 1.6, place.1 * 1.6, 2) + chance.within(-0.12, 0.12);
        let colour = if chance.one_in(11) { inks.accent() } else { inks.along(part) };
        let width = thick * chance.within(0.45, 1.6);
        let pieces = PIECES / 2 + chance.below(PIECES / 2);
        let mut path = vec![place];
        for _ in 0..pieces {
            place = onward(place.0, place.1);
            path.push(place);
        }
        // A rim in the paper's colour sets a stroke off from those below it.
        let rim = width + 0.0016;
        for (index, ends) in path.windows(2).enumerate() {
            canvas.stroke(ends[0], ends[1], (rim * taper(index, pieces), rim * taper(index + 1, pieces)), far, 0.8);
        }
        for (index, ends) in path.windows(2).enumerate() {
            canvas.stroke(
                ends[0],
                ends[1],
                (width * taper(index, pieces), width * taper(index + 1, pieces)),
                colour,
                1.0,
            );
        }
    }
}

/// Thin at both ends of a stroke.
fn taper(index: usize, pieces: usize) -> f64 {
    let part = index as f64 / pieces as f64;
    (4.0 * part * (1.0 - part)).sqrt()
}
