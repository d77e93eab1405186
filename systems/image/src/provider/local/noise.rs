//! Noise that changes smoothly from place to place: the ground's height, clouds, where the wind blows.

use super::portable_math::lerp;
use super::rng::{PromptRng, mix_bits};

#[derive(Clone, Copy, Debug)]
pub(super) struct GradientNoise(u64);

/// Eight directions suffice and need no sine. A table, since which one it is cannot be foretold, by a processor neither.
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

    /// From -1 to 1, with bumps about one unit wide.
    pub(super) fn sample(self, x: f64, y: f64) -> f64 {
        let (left, top) = (x.floor(), y.floor());
        let (right, down) = (x - left, y - top);
        // The sixth-degree ease has no visible creases where cells meet.
        let ease = |t: f64| t * t * t * (t * (t * 6.0 - 15.0) + 10.0);
        let (across, along) = (ease(right), ease(down));
        let corner = |cx: f64, cy: f64| self.corner_gradient(left + cx, top + cy, right - cx, down - cy);
        let upper = lerp(corner(0.0, 0.0), corner(1.0, 0.0), across);
        let lower = lerp(corner(0.0, 1.0), corner(1.0, 1.0), across);
        (lerp(upper, lower, along) * 1.5).clamp(-1.0, 1.0)
    }

    /// Several sizes of bumps on top of one another, each half as large and half as high as the one before.
    pub(super) fn fractal(self, x: f64, y: f64, octaves: u32) -> f64 {
        let (mut sum, mut height, mut total) = (0.0, 1.0, 0.0);
        let (mut x, mut y) = (x, y);
        for _ in 0..octaves {
            sum += height * self.sample(x, y);
            total += height;
            height *= 0.5;
            // Shifted, so that the layers' grids do not meet at the origin.
            x = x * 2.0 + 17.3;
            y = y * 2.0 + 5.9;
        }
        sum / total
    }

    /// Sharp crests with valleys between, from 0 to 1: mountains.
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

    /// A slope of its own at each corner of the grid, felt at a distance from it.
    fn corner_gradient(self, column: f64, row: f64, x: f64, y: f64) -> f64 {
        // Whole numbers, far from the ends of an i64: pictures are a few units wide.
        let (column, row) = (column as i64 as u64, row as i64 as u64);
        let cell = column.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ row.wrapping_mul(0xC2B2_AE3D_27D4_EB4F);
        let bits = mix_bits(self.0 ^ cell);
        let (dx, dy) = GRADIENTS[(bits & 7) as usize];
        dx * x + dy * y
    }
}
