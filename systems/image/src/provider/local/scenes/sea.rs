//! The sea under a low sun, perhaps with a sail on it.

use super::super::canvas::{Area, Canvas};
use super::super::chance::Chance;
use super::super::exact::{mix, smooth};
use super::super::noise::Noise;
use super::super::palette::Sky;
use super::sky::{self, Sun};

pub(super) fn paint(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance) {
    let horizon = chance.within(0.50, 0.62);
    let radius = chance.within(0.06, 0.11);
    let sun = Sun { x: chance.within(0.22, 0.78), y: horizon - chance.within(-0.3, 2.6) * radius, radius };
    sky::paint(canvas, sky, chance, horizon, sun);
    if chance.below(3) > 0 {
        headland(canvas, sky, chance, horizon);
    }
    water(canvas, sky, chance, horizon, sun);
    if chance.below(3) > 0 {
        boat(canvas, sky, chance, horizon, sun);
    }
}

fn headland(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, horizon: f64) {
    for near in [0.15, 0.4] {
        let noise = Noise::new(chance);
        let (shift, from_left) = (chance.within(0.0, 50.0), chance.one_in(2));
        let reach = chance.within(0.35, 0.65);
        let high = chance.within(0.05, 0.11);
        let colour = sky.land(near);
        let line = |x: f64| {
            let along = if from_left { x } else { 1.0 - x };
            let falling = 1.0 - smooth(0.0, reach, along);
            horizon + 0.004 - high * falling * (1.0 + 0.5 * noise.rough(x * 5.0, shift, 4)) + 0.01 * (1.0 - falling)
        };
        canvas.ground(line, |_, _, below| colour.mix(sky.foot, 0.5 * smooth(0.0, high, below)));
    }
}

fn water(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, horizon: f64, sun: Sun) {
    let (swell, sparkle) = (Noise::new(chance), Noise::new(chance));
    let deep = sky.near.mix(sky.top, 0.3);
    let edge = canvas.edge();
    canvas.lay(Area { top: horizon, ..Area::WHOLE }, |x, y| {
        let depth = ((y - horizon) / (1.0 - horizon)).max(0.0);
        // Waves crowd together to the horizon.
        let away = 1.0 / (depth * 0.9 + 0.045);
        let wave = swell.rough(x * mix(2.2, 0.5, depth) * away.sqrt() * 1.6, away * 2.6, 4);
        let seen = sky::between(sky, 1.0 - depth * 0.85);
        let body = seen.mix(deep, 0.28 + 0.55 * smooth(0.0, 0.9, depth));
        let ridges = body.lighter(wave * (0.03 + 0.05 * depth));
        // The sun's road: narrow at the horizon, broken into pieces by the waves.
        let width = sun.radius * (0.75 + 1.6 * depth);
        let off = ((x - sun.x) / width).abs();
        let glint = sparkle.rough(x * 9.0 * (1.2 - depth * 0.7), away * 7.0, 3);
        let road = smooth(0.05, 0.42, glint + 0.42 - off * 0.62) * (1.0 - smooth(0.6, 1.5, off));
        (ridges.mix(sky.sun, road * (0.85 - 0.35 * depth)), edge.cover(horizon - y))
    });
}

fn boat(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, horizon: f64, sun: Sun) {
    let away = chance.within(0.12, 0.4);
    let across = if sun.x < 0.5 { chance.within(0.55, 0.85) } else { chance.within(0.15, 0.45) };
    let (x, y) = (across, mix(horizon, 1.0, away));
    let size = mix(0.05, 0.16, away);
    let hull = sky.near.lighter(-0.02);
    let sail = if sky.mood.is_dark() { sky.far.mix(sky.sun, 0.55) } else { sky.sun.mix(sky.foot, 0.25) };
    let shadow = sail.mix(sky.near, 0.25);
    for step in 0..7 {
        let down = f64::from(step) / 7.0;
        let half = size * (0.30 - 0.22 * down) * chance.within(0.7, 1.0);
        let row = y + size * (0.06 + 0.5 * down);
        canvas.stroke((x - half, row), (x + half, row), (size * 0.012, size * 0.012), shadow, 0.35 * (1.0 - down));
    }
    canvas.triangle(
        [(x + size * 0.02, y - size), (x + size * 0.36, y - size * 0.12), (x + size * 0.02, y - size * 0.12)],
        sail,
    );
    canvas.triangle(
        [(x - size * 0.02, y - size * 0.86), (x - size * 0.02, y - size * 0.12), (x - size * 0.28, y - size * 0.12)],
        shadow,
    );
    canvas.stroke((x, y - size * 1.04), (x, y), (size * 0.010, size * 0.014), hull, 1.0);
    canvas.stroke((x - size * 0.27, y), (x + size * 0.29, y), (size * 0.045, size * 0.03), hull, 1.0);
    canvas.stroke(
        (x - size * 0.20, y + size * 0.03),
        (x + size * 0.22, y + size * 0.03),
        (size * 0.04, size * 0.03),
        hull,
        1.0,
    );
}
