//! Houses against the sky, and their lights in the water.

use super::super::canvas::{Area, Canvas};
use super::super::chance::Chance;
use super::super::colour::Colour;
use super::super::exact::{mix, smooth};
use super::super::noise::Noise;
use super::super::palette::Sky;
use super::sky::{self, Sun};

pub(super) fn paint(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance) {
    let shore = chance.within(0.70, 0.78);
    let sun = Sun { x: chance.within(0.2, 0.8), y: chance.within(0.18, 0.36), radius: chance.within(0.05, 0.10) };
    sky::paint(canvas, sky, chance, shore, sun);
    let middle = chance.within(0.3, 0.7);
    for row in 0..4 {
        houses(canvas, sky, chance, f64::from(row) / 3.0, shore, middle);
    }
    let ripples = Noise::new(chance);
    canvas.mirror(shore, sky.near.mix(sky.middle, 0.35), |x, depth| {
        ripples.rough(x * 7.0, 0.6 / (depth + 0.04) * 5.0, 3)
    });
    // The quay.
    let quay = Area { left: 0.0, top: shore - 0.004, right: 1.0, bottom: shore + 0.004 };
    canvas.block(quay, sky.near.lighter(-0.03), 1.0);
}

/// One row of houses, highest around the middle of the town.
fn houses(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, near: f64, shore: f64, middle: f64) {
    let outline = Noise::new(chance);
    let shift = chance.within(0.0, 50.0);
    let body = sky.land(0.10 + 0.80 * near);
    let mut x = -chance.within(0.0, 0.05);
    while x < 1.0 {
        let width = chance.within(0.035, 0.075) * mix(0.8, 1.25, near);
        let off = (x + width / 2.0 - middle).abs();
        let centre = 1.0 - smooth(0.0, 0.6, off);
        let rise = 0.5 + 0.5 * outline.at(x * 7.0, shift);
        let high = mix(0.16, 0.09, near) + (0.10 + 0.30 * centre) * rise * mix(1.0, 0.42, near);
        let area = Area { left: x, top: shore - high, right: x + width, bottom: shore };
        let colour = body.lighter(chance.within(-0.025, 0.025));
        house(canvas, sky, chance, area, near, colour);
        x += width + if chance.one_in(4) { chance.within(0.0, 0.03) } else { 0.0 };
    }
}

fn house(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, area: Area, near: f64, colour: Colour) {
    let width = area.right - area.left;
    let middle = f64::midpoint(area.left, area.right);
    match chance.below(6) {
        // A gable.
        0 => canvas.triangle([(middle, area.top - width * 0.5), (area.right, area.top), (area.left, area.top)], colour),
        // A mast.
        1 => canvas.stroke((middle, area.top - width * 1.1), (middle, area.top), (0.0012, 0.002), colour, 1.0),
        // A smaller storey on top.
        2 => {
            let inset = width * 0.22;
            let upper =
                Area { left: area.left + inset, right: area.right - inset, top: area.top - width * 0.4, ..area };
            canvas.block(upper, colour, 1.0);
        }
        _ => {}
    }
    let bottom = sky.foot;
    let edge = canvas.edge();
    let high = area.bottom - area.top;
    canvas.lay(area, |x, y| {
        let cover = edge.cover((area.left - x).max(x - area.right)) * edge.cover((area.top - y).max(y - area.bottom));
        let misty = (0.5 - 0.42 * near) * smooth(0.2, 1.0, (y - area.top) / high);
        // Houses are round enough to the eye if one side is lit.
        let lit = mix(0.018, -0.018, (x - area.left) / width);
        (colour.lighter(lit).mix(bottom, misty), cover)
    });
    if near > 0.3 {
        windows(canvas, sky, chance, area, near);
    }
}

fn windows(canvas: &mut Canvas, sky: &Sky, chance: &mut Chance, area: Area, near: f64) {
    let dark = sky.mood.is_dark();
    let lamp = sky.sun.mix(Colour { light: 0.86, a: 0.03, b: 0.13 }, 0.75);
    let pane = sky.land(0.10 + 0.80 * near).mix(sky.middle, 0.35);
    let columns = 2 + chance.below(3);
    let pitch = (area.right - area.left) / (columns as f64 + 0.5);
    let (wide, high) = (pitch * 0.46, pitch * 0.62);
    let lived_in = if dark { chance.within(0.25, 0.7) } else { 0.12 };
    let mut y = area.top + pitch * 0.7;
    while y + high < area.bottom - 0.012 {
        for column in 0..columns {
            let x = area.left + pitch * (column as f64 + 0.52);
            let window = Area { left: x, top: y, right: x + wide, bottom: y + high };
            let (lit, strength) = (chance.unit() < lived_in, chance.within(0.55, 1.0));
            match (lit, dark) {
                (true, _) => canvas.block(window, lamp, strength),
                (false, false) => canvas.block(window, pane, 0.6 * strength),
                (false, true) => {}
            }
        }
        y += pitch * 1.15;
    }
}
