//! Peaks with snow on them, now and then with a lake before them.

use super::super::canvas::Canvas;
use super::super::chance::Chance;
use super::super::colour::lch;
use super::super::exact::{mix, smooth};
use super::super::noise::Noise;
use super::super::palette::{Mood, Sky};
use super::hills::{Ridge, Shape};
use super::sky::{self, Sun};

pub(super) fn paint(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance) {
    let horizon = chance.within(0.58, 0.66);
    let sun = Sun { x: chance.within(0.15, 0.85), y: chance.within(0.14, 0.28), radius: chance.within(0.035, 0.06) };
    sky::paint(canvas, sky, chance, horizon, sun);
    let lake = chance.one_in(2);
    let chains = 3;
    for chain in 0..chains {
        let near = f64::from(chain) / f64::from(chains);
        peaks(canvas, sky, chance, near, horizon, sun.x);
    }
    if lake {
        let shore = horizon + 0.13;
        let bank = Shape { near: 0.62, horizon: horizon - 0.09, wide: 3.4, high: 0.018 };
        Ridge::new(bank, sky, chance).paint(canvas, sky);
        let ripples = Noise::new(chance);
        canvas.mirror(shore, sky.middle.mix(sky.near, 0.55), |x, depth| {
            ripples.rough(x * 5.0, 0.9 / (depth + 0.05) * 4.0, 3)
        });
        let front = Shape { near: 1.0, horizon, wide: 1.3, high: 0.055 };
        Ridge::new(front, sky, chance).paint(canvas, sky);
    } else {
        for near in [0.55, 0.8, 1.0] {
            let shape = Shape { near, horizon: horizon + 0.04, wide: 1.6, high: 0.05 };
            Ridge::new(shape, sky, chance).paint(canvas, sky);
        }
    }
}

fn peaks(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, near: f64, horizon: f64, sun: f64) {
    let (crest, face) = (Noise::new(chance), Noise::new(chance));
    let shift = chance.within(0.0, 50.0);
    let high = chance.within(0.30, 0.42) * (1.0 - 0.38 * near);
    let base = horizon + 0.02 + 0.10 * near;
    let wide = mix(1.5, 2.1, near);
    let line = move |x: f64| {
        let rise = crest.ridged(x * wide + shift, shift, 5);
        base - high * rise * (0.55 + 0.45 * crest.at(x * 1.3 + 9.0, shift + 7.0))
    };
    let rock = sky.land(0.12 + 0.5 * near);
    let snow = if sky.mood.is_dark() { sky.far.mix(sky.sun, 0.55) } else { lch(0.97, 0.012, 250.0).colour() };
    let snowline = if sky.mood == Mood::Winter { 0.5 } else { chance.within(0.10, 0.2) };
    canvas.ground(line, |x, y, below| {
        // Faces turned to the sun are lit; the others lie in blue shadow.
        let slant = face.rough(x * 7.0 + (y - base) * if x < sun { 5.0 } else { -5.0 }, y * 4.0, 4);
        let lit = smooth(-0.16, 0.16, slant + (sun - x) * 0.08);
        let stone = rock.lighter(mix(-0.05, 0.05, lit));
        let ragged = face.rough(x * 16.0, y * 16.0, 3) * 0.05;
        let height = (base - y) / high;
        let white = smooth(0.0, 0.06, height - (0.9 - snowline * 2.4) + ragged * 3.0)
            .max(1.0 - smooth(0.0, 0.025 + snowline * 0.28, below + ragged));
        let covered = stone.mix(snow.mix(sky.middle, 0.42 * (1.0 - lit)), white * (0.92 - 0.25 * near));
        covered.mix(sky.foot, (0.75 - 0.25 * near) * (1.0 - smooth(0.0, 0.35, height)))
    });
}
