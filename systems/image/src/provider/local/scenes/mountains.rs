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
    let horizon = chance.within(0.62, 0.70);
    let sun = Sun { x: chance.within(0.12, 0.88), y: chance.within(0.12, 0.24), radius: chance.within(0.035, 0.06) };
    sky::paint(canvas, sky, chance, horizon, sun);
    let lake = chance.one_in(2);
    for near in [0.0, 0.45, 0.9] {
        Chain::new(near, horizon, chance).paint(canvas, sky, chance, sun.x);
    }
    if lake {
        let shore = horizon + 0.07;
        let bank = Shape { near: 0.5, horizon: horizon - 0.06, wide: 3.4, high: 0.02 };
        Ridge::new(bank, sky, chance).paint(canvas, sky);
        let ripples = Noise::new(chance);
        canvas.mirror(shore, sky.middle.mix(sky.near, 0.55), |x, depth| {
            ripples.rough(x * 5.0, 0.9 / (depth + 0.05) * 4.0, 3)
        });
        let front = Shape { near: 1.0, horizon, wide: 1.3, high: 0.05 };
        Ridge::new(front, sky, chance).paint(canvas, sky);
    } else {
        for near in [0.55, 0.8, 1.0] {
            let shape = Shape { near, horizon: horizon + 0.02, wide: 1.6, high: 0.045 };
            Ridge::new(shape, sky, chance).paint(canvas, sky);
        }
    }
}

/// Where a peak stands, how far from the top, and how much it falls on its way to the left and to the right.
#[derive(Clone, Copy, Debug)]
struct Peak {
    x: f64,
    top: f64,
    falls: (f64, f64),
}

impl Peak {
    fn line(self, x: f64) -> f64 {
        let off = x - self.x;
        self.top + if off < 0.0 { -off * self.falls.0 } else { off * self.falls.1 }
    }
}

/// A row of peaks.
#[derive(Clone, Debug)]
struct Chain {
    near: f64,
    base: f64,
    peaks: Vec<Peak>,
    crags: Noise,
}

impl Chain {
    fn new(near: f64, horizon: f64, chance: &mut Chance) -> Self {
        let base = horizon + 0.05 * near;
        let high = mix(0.44, 0.17, near);
        let count = 4 + chance.below(2) + (near * 4.0) as usize;
        let highest = chance.below(count);
        let peaks = (0..count)
            .map(|index| {
                let x = (index as f64 + chance.within(0.2, 0.8)) / count as f64 * 1.2 - 0.1;
                let part = if index == highest { 1.0 } else { chance.within(0.45, 0.85) };
                let falls = (chance.within(0.85, 1.35), chance.within(0.85, 1.35));
                Peak { x, top: base - high * part, falls }
            })
            .collect();
        Self { near, base, peaks, crags: Noise::new(chance) }
    }

    /// The peak that is the highest at a place across.
    fn peak(&self, x: f64) -> Peak {
        let first = self.peaks[0];
        self.peaks.iter().fold(first, |best, peak| if peak.line(x) < best.line(x) { *peak } else { best })
    }

    fn line(&self, x: f64) -> f64 {
        let crag = self.crags.rough(x * 13.0, self.near * 7.0, 4);
        self.peak(x).line(x) + 0.022 * crag - 0.012 * self.crags.ridged(x * 9.0, 3.0 + self.near, 3)
    }

    fn paint(&self, canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, sun: f64) {
        let rock = sky.land(0.22 + 0.45 * self.near);
        let snow = if sky.mood.is_dark() { sky.far.mix(sky.sun, 0.62) } else { lch(0.975, 0.012, 250.0).colour() };
        let shade = sky.middle.mix(sky.far, 0.5);
        let reach = if sky.mood == Mood::Winter { 2.0 } else { chance.within(0.07, 0.15) };
        let faces = self.crags;
        canvas.ground(
            |x| self.line(x),
            |x, y, below| {
                // Hidden by the hills before it, or by the water.
                if y > self.base + 0.22 {
                    return sky.foot;
                }
                // Ridges run down from a peak with bends, and so do the creases between two peaks.
                let bent = x + 0.05 * faces.rough(x * 3.0 + 20.0, y * 5.0, 3) * smooth(0.0, 0.2, below);
                let peak = self.peak(bent);
                let down = (y - peak.top).max(0.0);
                let rough = faces.rough(x * 14.0 - y * 6.0, y * 11.0 + 40.0, 4);
                // To the foot light and shadow come together: valleys have no edges.
                let sharp = 1.0 - smooth(0.03, 0.20 - 0.08 * self.near, down);
                let mut lit = 0.45;
                if sharp > 0.0 {
                    let winding = (0.03 + 0.25 * down) * faces.rough(y * 9.0 + peak.x * 31.0, peak.x * 17.0, 3);
                    let side = (bent - peak.x - winding) * if sun < peak.x { -1.0 } else { 1.0 };
                    lit = mix(lit, smooth(-0.008, 0.008, side + 0.05 * rough), sharp);
                }
                let stone = rock.lighter(mix(-0.045, 0.055, lit) + 0.02 * rough);
                // Snow reaches further down in gullies, and at some height there is none.
                let mut white = 0.0;
                if down < reach * 1.45 + 0.006 {
                    let gully = faces.ridged(x * 15.0 + 5.0, y * 4.0, 3);
                    white = 1.0 - smooth(-0.006, 0.006, down - reach * (0.35 + 1.1 * gully));
                }
                let snowy = shade.mix(snow, 0.25 + 0.75 * lit);
                let face = stone.mix(snowy, white * (1.0 - 0.5 * self.near));
                let haze = (0.62 - 0.3 * self.near) * smooth(0.45, 1.0, 1.0 - (self.base - y) / 0.4);
                face.mix(sky.foot, haze)
            },
        );
    }
}
