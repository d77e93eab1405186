//! Scene: snowy peaks, sometimes with a lake in front.

use super::super::canvas::Canvas;
use super::super::color::oklch;
use super::super::noise::GradientNoise;
use super::super::palette::{LightMood, SkyPalette};
use super::super::portable_math::{lerp, smoothstep};
use super::super::rng::PromptRng;
use super::hills::{HillRidge, RidgeShape};
use super::sky::{self, SunPosition};

pub(super) fn paint(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng) {
    let horizon = rng.range(0.62, 0.70);
    let sun = SunPosition { x: rng.range(0.12, 0.88), y: rng.range(0.12, 0.24), radius: rng.range(0.035, 0.06) };
    sky::paint(canvas, sky, rng, horizon, sun);
    let lake = rng.one_in(2);
    for near in [0.0, 0.45, 0.9] {
        MountainChain::new(near, horizon, rng).paint(canvas, sky, rng, sun.x);
    }
    if lake {
        let shore = horizon + 0.07;
        let bank = RidgeShape { near: 0.5, horizon: horizon - 0.06, hills_per_width: 3.4, height: 0.02 };
        HillRidge::new(bank, sky, rng).paint(canvas, sky);
        let ripples = GradientNoise::new(rng);
        canvas.paint_reflection(shore, sky.middle.mix(sky.near, 0.55), |x, depth| {
            ripples.fractal(x * 5.0, 0.9 / (depth + 0.05) * 4.0, 3)
        });
        let front = RidgeShape { near: 1.0, horizon, hills_per_width: 1.3, height: 0.05 };
        HillRidge::new(front, sky, rng).paint(canvas, sky);
    } else {
        for near in [0.55, 0.8, 1.0] {
            let shape = RidgeShape { near, horizon: horizon + 0.02, hills_per_width: 1.6, height: 0.045 };
            HillRidge::new(shape, sky, rng).paint(canvas, sky);
        }
    }
}

/// Position of a peak and its slopes to the left and right.
#[derive(Clone, Copy, Debug)]
struct MountainPeak {
    x: f64,
    top: f64,
    slopes: (f64, f64),
}

impl MountainPeak {
    fn top_at(self, x: f64) -> f64 {
        let off = x - self.x;
        self.top + if off < 0.0 { -off * self.slopes.0 } else { off * self.slopes.1 }
    }
}

#[derive(Clone, Debug)]
struct MountainChain {
    near: f64,
    base: f64,
    peaks: Vec<MountainPeak>,
    crags: GradientNoise,
}

impl MountainChain {
    fn new(near: f64, horizon: f64, rng: &mut PromptRng) -> Self {
        let base = horizon + 0.05 * near;
        let high = lerp(0.44, 0.17, near);
        let count = 4 + rng.next_below(2) + (near * 4.0) as usize;
        let highest = rng.next_below(count);
        let peaks = (0..count)
            .map(|index| {
                let x = (index as f64 + rng.range(0.2, 0.8)) / count as f64 * 1.2 - 0.1;
                let part = if index == highest { 1.0 } else { rng.range(0.45, 0.85) };
                let falls = (rng.range(0.85, 1.35), rng.range(0.85, 1.35));
                MountainPeak { x, top: base - high * part, slopes: falls }
            })
            .collect();
        Self { near, base, peaks, crags: GradientNoise::new(rng) }
    }

    /// Returns the highest peak at `x`.
    fn highest_peak_at(&self, x: f64) -> MountainPeak {
        let first = self.peaks[0];
        self.peaks.iter().fold(first, |best, peak| if peak.top_at(x) < best.top_at(x) { *peak } else { best })
    }

    fn top_at(&self, x: f64) -> f64 {
        let crag = self.crags.fractal(x * 13.0, self.near * 7.0, 4);
        self.highest_peak_at(x).top_at(x) + 0.022 * crag
            - 0.012 * self.crags.ridged_fractal(x * 9.0, 3.0 + self.near, 3)
    }

    fn paint(&self, canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng, sun: f64) {
        let rock = sky.land_color(0.22 + 0.45 * self.near);
        let snow = if sky.mood.is_dark() { sky.far.mix(sky.sun, 0.62) } else { oklch(0.975, 0.012, 250.0).to_oklab() };
        let shade = sky.middle.mix(sky.far, 0.5);
        let reach = if sky.mood == LightMood::Winter { 2.0 } else { rng.range(0.07, 0.15) };
        let faces = self.crags;
        canvas.fill_below(
            |x| self.top_at(x),
            |x, y, below| {
                // Hidden by the hills or the water in front.
                if y > self.base + 0.22 {
                    return sky.bottom;
                }
                // Ridges and the creases between peaks run down in bends.
                let bent = x + 0.05 * faces.fractal(x * 3.0 + 20.0, y * 5.0, 3) * smoothstep(0.0, 0.2, below);
                let peak = self.highest_peak_at(bent);
                let down = (y - peak.top).max(0.0);
                let rough = faces.fractal(x * 14.0 - y * 6.0, y * 11.0 + 40.0, 4);
                // Light and shadow merge toward the foot: valleys have no edges.
                let sharp = 1.0 - smoothstep(0.03, 0.20 - 0.08 * self.near, down);
                let mut lit = 0.45;
                if sharp > 0.0 {
                    let winding = (0.03 + 0.25 * down) * faces.fractal(y * 9.0 + peak.x * 31.0, peak.x * 17.0, 3);
                    let side = (bent - peak.x - winding) * if sun < peak.x { -1.0 } else { 1.0 };
                    lit = lerp(lit, smoothstep(-0.008, 0.008, side + 0.05 * rough), sharp);
                }
                let stone = rock.lighten(lerp(-0.045, 0.055, lit) + 0.02 * rough);
                // Snow reaches further down in gullies and ends at some height.
                let mut white = 0.0;
                if down < reach * 1.45 + 0.006 {
                    let gully = faces.ridged_fractal(x * 15.0 + 5.0, y * 4.0, 3);
                    white = 1.0 - smoothstep(-0.006, 0.006, down - reach * (0.35 + 1.1 * gully));
                }
                let snowy = shade.mix(snow, 0.25 + 0.75 * lit);
                let face = stone.mix(snowy, white * (1.0 - 0.5 * self.near));
                let haze = (0.62 - 0.3 * self.near) * smoothstep(0.45, 1.0, 1.0 - (self.base - y) / 0.4);
                face.mix(sky.bottom, haze)
            },
        );
    }
}
