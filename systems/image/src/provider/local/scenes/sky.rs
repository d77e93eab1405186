//! The sky over a place: its colours from top to foot, the sun or the moon, clouds by day and stars by night.

use super::super::canvas::{Area, Canvas};
use super::super::chance::Chance;
use super::super::colour::Colour;
use super::super::exact::smooth;
use super::super::noise::Noise;
use super::super::palette::{Mood, Sky};

/// Where the sun or the moon stands, and how large it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sun {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) radius: f64,
}

/// The whole canvas as sky, down to a horizon; what stands before it is painted over it.
pub(super) fn paint(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, horizon: f64, sun: Sun) {
    let clouds = Noise::new(chance);
    let cover = if sky.mood.is_dark() { chance.within(0.05, 0.2) } else { chance.within(0.2, 0.6) };
    let lowest = chance.within(-0.05, 0.2);
    let bright = sky.foot.mix(sky.sun, 0.5);
    canvas.shade(|x, y| {
        let mut colour = between(sky, y / horizon);
        let (dx, dy) = (x - sun.x, y - sun.y);
        let away = (dx * dx + dy * dy).sqrt();
        let near = 1.0 / (1.0 + (away / 0.16) * (away / 0.16));
        colour = colour.mix(sky.sun, near * if sky.mood.is_dark() { 0.22 } else { 0.45 });
        // Clouds are wider than high, and thin out to the horizon.
        let cloud = clouds.rough(x * 2.4 + y * 0.8, y * 9.0, 5);
        let there = smooth(lowest, lowest + 0.55, cloud) * cover * smooth(0.0, 0.35, horizon - y);
        colour.mix(bright, there)
    });
    if sky.mood.is_dark() {
        stars(canvas, sky, chance, horizon);
    }
    shine(canvas, sky, chance, sun);
}

/// The sky's colour from its top, 0, to its foot, 1.
pub(super) fn between(sky: &Sky, part: f64) -> Colour {
    let part = part.clamp(0.0, 1.0);
    if part < 0.55 { sky.top.mix(sky.middle, smooth(0.0, 0.62, part) * 1.02) } else { lower(sky, part) }
}

fn lower(sky: &Sky, part: f64) -> Colour {
    let start = sky.top.mix(sky.middle, smooth(0.0, 0.62, 0.55) * 1.02);
    start.mix(sky.foot, smooth(0.50, 1.0, part).max((part - 0.55) / 0.45 * 0.6))
}

fn stars(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, horizon: f64) {
    let count = if sky.mood == Mood::Night { 170 } else { 60 };
    for _ in 0..count {
        let (x, y) = (chance.unit(), chance.unit() * horizon);
        let (size, light) = (chance.unit(), chance.within(0.35, 1.0));
        let fade = 1.0 - smooth(0.3, 1.0, y / horizon);
        canvas.disc((x, y), 0.0009 + 0.0016 * size * size * size, sky.sun, light * fade);
    }
}

fn shine(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, sun: Sun) {
    let place = (sun.x, sun.y);
    canvas.glow(place, sun.radius * 5.0, sky.sun, 0.55);
    // Half of the moons are not full.
    let crescent = sky.mood == Mood::Night && chance.one_in(2);
    let bite = (sun.x + sun.radius * chance.within(0.35, 0.6), sun.y - sun.radius * 0.25);
    let edge = canvas.edge();
    let behind = canvas.clone();
    canvas.lay(Area::around(sun.x, sun.y, sun.radius), |x, y| {
        let away = |(cx, cy): (f64, f64)| ((x - cx) * (x - cx) + (y - cy) * (y - cy)).sqrt();
        let full = edge.cover(away(place) - sun.radius);
        let dark = if crescent { edge.cover(away(bite) - sun.radius * 0.92) } else { 0.0 };
        (sky.sun.mix(behind.at(x, y), dark), full)
    });
}
