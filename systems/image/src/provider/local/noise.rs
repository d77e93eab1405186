//! Noise that changes smoothly from place to place: the ground's height, clouds, where the wind blows.

use super::chance::{Chance, mixed};
use super::exact::mix;

#[derive(Clone, Copy, Debug)]
pub(super) struct Noise(u64);

impl Noise {
    pub(super) fn new(chance: &mut Chance) -> Self {
        Self(chance.bits())
    }

    /// From -1 to 1, with bumps about one unit wide.
    pub(super) fn at(self, x: f64, y: f64) -> f64 {
        let (left, top) = (x.floor(), y.floor());
        let (right, down) = (x - left, y - top);
        // The sixth-degree ease has no visible creases where cells meet.
        let ease = |t: f64| t * t * t * (t * (t * 6.0 - 15.0) + 10.0);
        let (across, along) = (ease(right), ease(down));
        let corner = |cx: f64, cy: f64| self.slope(left + cx, top + cy, right - cx, down - cy);
        let upper = mix(corner(0.0, 0.0), corner(1.0, 0.0), across);
        let lower = mix(corner(0.0, 1.0), corner(1.0, 1.0), across);
        (mix(upper, lower, along) * 1.5).clamp(-1.0, 1.0)
    }

    /// Several sizes of bumps on top of one another, each half as large and half as high as the one before.
    pub(super) fn rough(self, x: f64, y: f64, layers: u32) -> f64 {
        let (mut sum, mut height, mut all) = (0.0, 1.0, 0.0);
        let (mut x, mut y) = (x, y);
        for _ in 0..layers {
            sum += height * self.at(x, y);
            all += height;
            height *= 0.5;
            // Shifted, so that the layers' grids do not meet at the origin.
            x = x * 2.0 + 17.3;
            y = y * 2.0 + 5.9;
        }
        sum / all
    }

    /// Sharp crests with valleys between, from 0 to 1: mountains.
    pub(super) fn ridged(self, x: f64, y: f64, layers: u32) -> f64 {
        let (mut sum, mut height, mut all) = (0.0, 1.0, 0.0);
        let (mut x, mut y) = (x, y);
        for _ in 0..layers {
            let crest = 1.0 - self.at(x, y).abs();
            sum += height * crest * crest;
            all += height;
            height *= 0.45;
            x = x * 2.1 + 11.7;
            y = y * 2.1 + 3.1;
        }
        sum / all
    }

    /// A slope of its own at each corner of the grid, felt at a distance from it.
    fn slope(self, column: f64, row: f64, x: f64, y: f64) -> f64 {
        // Whole numbers, far from the ends of an i64: pictures are a few units wide.
        let place = (column as i64 as u64).wrapping_mul(0x8DA6_B343).wrapping_add(row as i64 as u64);
        let bits = mixed(self.0 ^ mixed(place));
        // Eight directions suffice and need no sine.
        let (dx, dy) = match bits & 7 {
            0 => (1.0, 0.0),
            1 => (-1.0, 0.0),
            2 => (0.0, 1.0),
            3 => (0.0, -1.0),
            4 => (0.707, 0.707),
            5 => (-0.707, 0.707),
            6 => (0.707, -0.707),
            _ => (-0.707, -0.707),
        };
        dx * x + dy * y
    }
}
