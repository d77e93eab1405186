//! Rolling hills, one behind the other into the haze.

use super::super::canvas::Canvas;
use super::super::chance::Chance;
use super::super::exact::smooth;
use super::super::noise::Noise;
use super::super::palette::{Mood, Sky};
use super::sky::{self, Sun};

pub(super) fn paint(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance) {
    let horizon = chance.within(0.52, 0.62);
    let sun = Sun { x: chance.within(0.2, 0.8), y: chance.within(0.24, 0.44), radius: chance.within(0.045, 0.085) };
    sky::paint(canvas, sky, chance, horizon + 0.1, sun);
    let layers = 5 + chance.below(2);
    for layer in 0..layers {
        let near = layer as f64 / (layers - 1) as f64;
        let shape = Shape { near, horizon, wide: 2.6 - 1.2 * near, high: 0.05 + 0.05 * near };
        Ridge::new(shape, sky, chance).paint(canvas, sky);
    }
}

/// How a line of hills lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// 0 is far away, 1 near by.
    pub(super) near: f64,
    pub(super) horizon: f64,
    /// Hills to a picture's width.
    pub(super) wide: f64,
    pub(super) high: f64,
}

/// One line of hills.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ridge {
    shape: Shape,
    base: f64,
    shift: f64,
    /// Dunes have a windward and a lee side: their line leans over.
    lean: f64,
    hills: Noise,
    fields: Noise,
}

impl Ridge {
    pub(super) fn new(shape: Shape, sky: &Sky, chance: &mut Chance) -> Self {
        Self {
            shape,
            base: shape.horizon + (0.97 - shape.horizon) * shape.near * (0.55 + 0.45 * shape.near),
            shift: chance.within(0.0, 50.0),
            lean: if sky.mood == Mood::Desert { 0.1 } else { 0.0 },
            hills: Noise::new(chance),
            fields: Noise::new(chance),
        }
    }

    /// How far from the top it begins, at a place across.
    pub(super) fn line(&self, x: f64) -> f64 {
        let Shape { wide, high, .. } = self.shape;
        let leaning = x + self.lean * self.hills.at(x * wide * 0.5, self.shift);
        self.base - high * (0.3 + self.hills.rough(leaning * wide, self.shift, 3))
    }

    pub(super) fn paint(&self, canvas: &mut Canvas, sky: &Sky) {
        let near = self.shape.near;
        let colour = sky.land(near);
        canvas.ground(
            |x| self.line(x),
            |x, y, below| {
                let misty = (0.55 - 0.45 * near) * smooth(0.0, 0.16, below);
                // Fields: long, flat patches of a slightly other shade.
                let patch = self.fields.rough(x * 3.0 + y * 2.0, below * 22.0 + self.shift, 3);
                let lit = 0.035 * (1.0 - smooth(0.0, 0.035, below));
                colour.lighter(lit + patch * 0.022).mix(sky.foot, misty)
            },
        );
    }
}
