//! Gradient noise for terrain, clouds and wind.

use super::portable_math::lerp;
use super::rng::{PromptRng, mix_bits};

#[derive(Clone, Copy, Debug)]
pub(super) struct GradientNoise(u64);

/// Eight directions suffice and need no sine. A table lookup avoids a branch that the processor would mispredict.
const GRADIENTS: [(f64, f64); 8] = [
    (1.0, 0.0),
    (-1.0, 0.0),
    (0.0, 1.0),
    (0.0, -1.0),
    (0.707, 0.707),
    (-0.707, 0.707),
    (0.707, -0.707),
    (-0.707, -0.707),
];

impl GradientNoise {
    pub(super) fn new(rng: &mut PromptRng) -> Self {
        Self(rng.next_u64())
    }

    /// Returns a value from -1 to 1 that varies over about one unit.
    pub(super) fn sample(self, x: f64, y: f64) -> f64 {
        let (left, top) = (x.floor(), y.floor());
        let (right, down) = (x - left, y - top);
        // This quintic fade has no visible creases where cells meet.
        let ease = |t: f64| t * t * t * (t * (t * 6.0 - 15.0) + 10.0);
        let (across, along) = (ease(right), ease(down));
        let corner = |cx: f64, cy: f64| self.corner_gradient(left + cx, top + cy, right - cx, down - cy);
        let upper = lerp(corner(0.0, 0.0), corner(1.0, 0.0), across);
        let lower = lerp(corner(0.0, 1.0), corner(1.0, 1.0), across);
        (lerp(upper, lower, along) * 1.5).clamp(-1.0, 1.0)
    }

    /// Sums octaves of noise, each with half the scale and half the amplitude of the one before.
    pub(super) fn fractal(self, x: f64, y: f64, octaves: u32) -> f64 {
        let (mut sum, mut height, mut total) = (0.0, 1.0, 0.0);
        let (mut x, mut y) = (x, y);
        for _ in 0..octaves {
            sum += height * self.sample(x, y);
            total += height;
            height *= 0.5;
            // Shifted so that the grids of the octaves do not coincide at the origin.
            x = x * 2.0 + 17.3;
            y = y * 2.0 + 5.9;
        }
        sum / total
    }

    /// Returns ridged noise from 0 to 1: sharp crests with valleys between, as of mountains.
    pub(super) fn ridged_fractal(self, x: f64, y: f64, octaves: u32) -> f64 {
        let (mut sum, mut height, mut total) = (0.0, 1.0, 0.0);
        let (mut x, mut y) = (x, y);
        for _ in 0..octaves {
            let crest = 1.0 - self.sample(x, y).abs();
            sum += height * crest * crest;
            total += height;
            height *= 0.45;
            x = x * 2.1 + 11.7;
            y = y * 2.1 + 3.1;
        }
        sum / total
    }

    /// Returns the contribution of the gradient at a grid corner.
    fn corner_gradient(self, column: f64, row: f64, x: f64, y: f64) -> f64 {
        // Integers far from the limits of i64: images are a few units wide.
        let (column, row) = (column as i64 as u64, row as i64 as u64);
        let cell = column.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ row.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        let bits = mix_bits(self.0 ^ cell);
        let (dx, dy) = GRADIENTS[(bits & 7) as usize];
        dx * x + dy * y
    }
}
