//! Firs on misty slopes.

use super::super::canvas::{Area, Canvas};
use super::super::chance::Chance;
use super::super::colour::Colour;
use super::super::exact::smooth;
use super::super::palette::{Mood, Sky};
use super::hills::{Ridge, Shape};
use super::sky::{self, Sun};

pub(super) fn paint(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance) {
    let horizon = chance.within(0.46, 0.54);
    let sun = Sun { x: chance.within(0.2, 0.8), y: chance.within(0.18, 0.36), radius: chance.within(0.05, 0.09) };
    sky::paint(canvas, sky, chance, horizon + 0.12, sun);
    let rows = 5;
    for row in 0..rows {
        let near = f64::from(row) / f64::from(rows - 1);
        let shape = Shape { near, horizon, wide: 1.9 - 0.6 * near, high: 0.05 + 0.035 * near };
        let slope = Ridge::new(shape, sky, chance);
        let high = 0.05 + 0.19 * near * near;
        let mut x = -high * chance.unit();
        while x < 1.04 {
            let size = high * chance.within(0.6, 1.15);
            let colour = shade(sky, near, chance);
            fir(canvas, (x, slope.line(x) + high * 0.08), size, colour, sky.mood == Mood::Winter);
            // Clearings, now and then.
            x += size * chance.within(0.16, 0.40) + if chance.one_in(9) { size * 0.7 } else { 0.0 };
        }
        // The slope hides the feet of its trees.
        slope.paint(canvas, sky);
    }
}

fn shade(sky: &Sky, near: f64, chance: &mut Chance) -> Colour {
    sky.land(near).lighter(chance.within(-0.018, 0.03))
}

/// A fir by its foot: boughs in tiers, each wider than the one above.
fn fir(canvas: &mut Canvas, (x, foot): (f64, f64), size: f64, colour: Colour, snowy: bool) {
    let top = foot - size;
    let half = size * 0.21;
    let edge = canvas.edge();
    let tiers = 5.0;
    let area = Area { left: x - half, top, right: x + half, bottom: foot };
    let white = colour.lighter(0.42);
    canvas.lay(area, |px, py| {
        let down = ((py - top) / size).clamp(0.0, 1.0);
        let tier = down * tiers;
        let within = tier - tier.floor();
        let width = half * (0.08 + 0.92 * down) * (0.58 + 0.42 * within);
        let away = (px - x).abs();
        // Snow lies on each tier, most of it above, and thins out to the boughs' ends.
        let snow =
            if snowy { 0.75 * (1.0 - smooth(0.0, 0.6, within)) * smooth(0.0, 0.5, away / width + 0.2) } else { 0.0 };
        let bough = colour.mix(white, snow);
        // One side has a little more light.
        (bough.lighter(if px < x { 0.012 } else { -0.012 }), edge.cover((away - width) * 0.9))
    });
}
