//! Scene: rolling hills, one behind the other into the haze.

use super::super::canvas::Canvas;
use super::super::noise::GradientNoise;
use super::super::palette::{LightMood, SkyPalette};
use super::super::portable_math::smoothstep;
use super::super::rng::PromptRng;
use super::sky::{self, SunPosition};

pub(super) fn paint(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng) {
    let horizon = rng.range(0.52, 0.62);
    let sun = SunPosition { x: rng.range(0.2, 0.8), y: rng.range(0.24, 0.44), radius: rng.range(0.045, 0.085) };
    sky::paint(canvas, sky, rng, horizon + 0.1, sun);
    let layers = 5 + rng.next_below(2);
    for layer in 0..layers {
        let near = layer as f64 / (layers - 1) as f64;
        let shape = RidgeShape { near, horizon, hills_per_width: 2.6 - 1.2 * near, height: 0.05 + 0.05 * near };
        HillRidge::new(shape, sky, rng).paint(canvas, sky);
    }
}

/// Position and shape of a ridge.
#[derive(Clone, Copy, Debug)]
pub(super) struct RidgeShape {
    /// 0 is far, 1 is near.
    pub(super) near: f64,
    pub(super) horizon: f64,
    /// Number of hills across the image.
    pub(super) hills_per_width: f64,
    pub(super) height: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HillRidge {
    shape: RidgeShape,
    base: f64,
    shift: f64,
    /// Slant of the ridge: dunes have a windward and a lee side.
    lean: f64,
    hills: GradientNoise,
    fields: GradientNoise,
}

impl HillRidge {
    pub(super) fn new(shape: RidgeShape, sky: &SkyPalette, rng: &mut PromptRng) -> Self {
        Self {
            shape,
            base: shape.horizon + (0.97 - shape.horizon) * shape.near * (0.55 + 0.45 * shape.near),
            shift: rng.range(0.0, 50.0),
            lean: if sky.mood == LightMood::Desert { 0.1 } else { 0.0 },
            hills: GradientNoise::new(rng),
            fields: GradientNoise::new(rng),
        }
    }

    /// Returns the ridge's distance from the top of the canvas at `x`.
    pub(super) fn top_at(&self, x: f64) -> f64 {
        let RidgeShape { hills_per_width: wide, height: high, .. } = self.shape;
        let leaning = x + self.lean * self.hills.sample(x * wide * 0.5, self.shift);
        self.base - high * (0.3 + self.hills.fractal(leaning * wide, self.shift, 3))
    }

    pub(super) fn paint(&self, canvas: &mut Canvas, sky: &SkyPalette) {
        let near = self.shape.near;
        let color = sky.land_color(near);
        canvas.fill_below(
            |x| self.top_at(x),
            |x, y, below| {
                let misty = (0.55 - 0.45 * near) * smoothstep(0.0, 0.16, below);
                // Fields: long, flat patches in a slightly different shade.
                let patch = self.fields.fractal(x * 3.0 + y * 2.0, below * 22.0 + self.shift, 3);
                let lit = 0.035 * (1.0 - smoothstep(0.0, 0.035, below));
                color.lighten(lit + patch * 0.022).mix(sky.bottom, misty)
            },
        );
    }
}
