//! Flowers of many petals: one large one, or several.

use super::super::canvas::{Area, Canvas};
use super::super::chance::Chance;
use super::super::colour::{Colour, lch};
use super::super::exact::{cos, mix, sin, smooth};
use super::super::palette::Inks;

/// The part of a turn by which seeds in a flower's middle follow one another.
const GOLDEN: f64 = 0.381_966;

/// What a flower wears: its petals from dark to light, and its middle.
#[derive(Clone, Copy, Debug)]
struct Dress {
    petals: [Colour; 3],
    heart: Colour,
}

impl Dress {
    /// In the inks as they are, or, where it is `free` to choose, in shades of the one that stands out. Free petals are never as green as
    /// leaves.
    fn new(inks: &Inks, free: bool, chance: &mut Chance) -> Self {
        let [dark, middle, light, bright] = [0, 1, 2, 3].map(|index| inks.colours[index]);
        let leafy = |colour: Colour| colour.a < -0.03 && colour.b > -0.02;
        let plain = Self { petals: [dark, middle, light], heart: bright };
        let showy = Self {
            petals: [bright.lighter(-0.20), bright, bright.lighter(0.14)],
            heart: if leafy(light) { lch(0.86, 0.13, 88.0).colour() } else { light },
        };
        if free && (leafy(middle) || (!leafy(bright) && chance.one_in(2))) { showy } else { plain }
    }

    fn along(self, part: f64) -> Colour {
        let place = part.clamp(0.0, 1.0) * 2.0;
        let [dark, middle, light] = self.petals;
        if place < 1.0 { dark.mix(middle, place) } else { middle.mix(light, place - 1.0) }
    }
}

/// `free` to choose its colours: no word names one.
pub(super) fn paint(canvas: &mut Canvas, inks: &Inks, free: bool, chance: &mut Chance) {
    let deep = inks.paper.lighter(if inks.dark { 0.09 } else { -0.06 }).mix(inks.colours[1], 0.08);
    canvas.shade(|x, y| {
        let (dx, dy) = (x - 0.5, y - 0.5);
        deep.mix(inks.paper, smooth(0.05, 0.7, (dx * dx + dy * dy).sqrt()))
    });
    if chance.one_in(2) {
        wreath(canvas, inks, chance);
        let rings = 5 + chance.below(3);
        let dress = Dress::new(inks, free, chance);
        flower(canvas, dress, chance, (0.5, 0.5), 0.36, rings);
    } else {
        bouquet(canvas, inks, free, chance);
    }
}

/// Dots and arcs around a flower that stands alone.
fn wreath(canvas: &mut Canvas, inks: &Inks, chance: &mut Chance) {
    let count = 36 + 12 * chance.below(3);
    let colour = inks.paper.mix(inks.along(0.5), 0.65);
    for index in 0..count {
        let turns = index as f64 / count as f64;
        let large = index % 3 == 0;
        let (away, radius) = if large { (0.435, 0.0065) } else { (0.435, 0.0032) };
        let place = (0.5 + away * cos(turns), 0.5 + away * sin(turns));
        canvas.disc(place, radius, if large { inks.accent() } else { colour }, 1.0);
    }
    let edge = canvas.edge();
    for (radius, width) in [(0.462, 0.0012), (0.408, 0.0012)] {
        canvas.lay(Area::WHOLE, |x, y| {
            let away = ((x - 0.5) * (x - 0.5) + (y - 0.5) * (y - 0.5)).sqrt();
            (colour, edge.cover((away - radius).abs() - width))
        });
    }
}

/// Several flowers that do not touch much, the large ones first, on stems that come from below.
fn bouquet(canvas: &mut Canvas, inks: &Inks, free: bool, chance: &mut Chance) {
    let mut placed: Vec<(f64, f64, f64)> = Vec::new();
    for round in 0..90 {
        let radius = mix(0.23, 0.07, f64::from(round) / 90.0) * chance.within(0.85, 1.1);
        let (x, y) = (chance.within(0.08, 0.92), chance.within(0.10, 0.78));
        let apart = |other: &(f64, f64, f64)| {
            let (dx, dy) = (x - other.0, y - other.1);
            (dx * dx + dy * dy).sqrt() > (radius + other.2) * 0.93
        };
        if placed.iter().all(apart) && placed.len() < 9 {
            placed.push((x, y, radius));
        }
    }
    let stem = lch(if inks.dark { 0.48 } else { 0.58 }, 0.085, 150.0).colour();
    for (x, y, radius) in &placed {
        stalk(canvas, chance, (*x, *y), *radius, stem);
    }
    placed.sort_by(|one, other| one.1.total_cmp(&other.1));
    for (x, y, radius) in placed {
        let rings = if radius > 0.14 { 5 } else { 3 };
        let dress = Dress::new(inks, free, chance);
        flower(canvas, dress, chance, (x, y), radius, rings);
    }
}

fn stalk(canvas: &mut Canvas, chance: &mut Chance, head: (f64, f64), radius: f64, colour: Colour) {
    let foot = (0.5 + (head.0 - 0.5) * 0.35, 1.05);
    let bend = chance.within(-0.05, 0.05);
    let at = |part: f64| {
        let bow = 4.0 * part * (1.0 - part) * bend;
        (mix(head.0, foot.0, part * part * 0.6 + part * 0.4) + bow, mix(head.1, foot.1, part))
    };
    for piece in 0..24 {
        let (from, to) = (f64::from(piece) / 24.0, f64::from(piece + 1) / 24.0);
        canvas.stroke(at(from), at(to), (0.0035, 0.0035), colour, 1.0);
    }
    for side in [-1.0, 1.0] {
        let part = chance.within(0.35, 0.7);
        let base = at(part);
        let turns = 0.75 + side * chance.within(0.09, 0.15);
        let leaf = Petal { base, turns, length: radius * 0.5 + 0.05, half: radius * 0.07 + 0.008 };
        petal(canvas, leaf, colour.lighter(-0.03), colour.lighter(0.05));
    }
}

/// Rings of petals from the outside in, each ring between the petals of the one before.
fn flower(canvas: &mut Canvas, dress: Dress, chance: &mut Chance, centre: (f64, f64), radius: f64, rings: usize) {
    let count = [8, 10, 12, 16][chance.below(4)];
    let slender = chance.within(0.85, 1.25);
    let inward = chance.one_in(2);
    let start = chance.unit();
    let (heart, rim) = if inward { (0.05, 0.95) } else { (0.95, 0.05) };
    for ring in 0..rings {
        let part = ring as f64 / rings as f64;
        let outer = radius * (1.0 - 0.72 * part);
        let length = outer * 0.80;
        let half = outer * std::f64::consts::PI / f64::from(count) * 0.62 * slender;
        let tone = mix(rim, heart, part);
        let (base, tip) = (dress.along(tone).lighter(-0.10), dress.along(tone).lighter(0.05));
        let shift = if ring % 2 == 0 { 0.0 } else { 0.5 };
        // Every other petal lies on top of its neighbours.
        for lot in 0..2 {
            for index in (lot..count).step_by(2) {
                let turns = start + (f64::from(index) + shift) / f64::from(count);
                let inner = outer - length;
                let foot = (centre.0 + inner * cos(turns), centre.1 + inner * sin(turns));
                petal(canvas, Petal { base: foot, turns, length, half }, base, tip);
            }
        }
    }
    seeds(canvas, dress.heart, centre, radius * 0.21);
}

fn seeds(canvas: &mut Canvas, heart: Colour, centre: (f64, f64), radius: f64) {
    let ground = heart.lighter(-0.16);
    canvas.glow(centre, radius * 1.6, ground.lighter(-0.2), 0.5);
    canvas.disc(centre, radius, ground, 1.0);
    let count = 70;
    for index in 0..count {
        let part = (f64::from(index) + 0.5) / f64::from(count);
        let (turns, away) = (f64::from(index) * GOLDEN, radius * 0.93 * part.sqrt());
        let place = (centre.0 + away * cos(turns), centre.1 + away * sin(turns));
        canvas.disc(place, radius * 0.075, heart.lighter(0.08 - 0.08 * part), 1.0);
    }
}

/// From its base, in a direction, so long and half so wide.
#[derive(Clone, Copy, Debug)]
struct Petal {
    base: (f64, f64),
    turns: f64,
    length: f64,
    half: f64,
}

/// The lens between two arcs, lighter to its tip, with a shadow on what lies below.
fn petal(canvas: &mut Canvas, petal: Petal, base: Colour, tip: Colour) {
    let edge = canvas.edge();
    let reach = petal.length / 2.0;
    let (sine, cosine) = (sin(petal.turns), cos(petal.turns));
    let middle = (petal.base.0 + reach * cosine, petal.base.1 + reach * sine);
    let half = petal.half.min(reach * 0.98);
    let arc = (reach * reach + half * half) / (2.0 * half);
    let off = arc - half;
    let shadow = base.lighter(-0.22);
    let soft = half * 0.35;
    canvas.lay(Area::around(middle.0, middle.1, reach + soft), |x, y| {
        let (dx, dy) = (x - middle.0, y - middle.1);
        let (along, across) = (dx * cosine + dy * sine, (dy * cosine - dx * sine).abs());
        // Widest beyond the middle: the base is drawn out.
        let even = along - reach * 0.16 * (1.0 - (along / reach) * (along / reach));
        let outside = if (even.abs() - reach) * off > across * reach {
            (across * across + (even.abs() - reach) * (even.abs() - reach)).sqrt()
        } else {
            ((across + off) * (across + off) + even * even).sqrt() - arc
        };
        if outside > soft {
            return (shadow, 0.0);
        }
        let cover = edge.cover(outside);
        let part = ((along + reach) / petal.length).clamp(0.0, 1.0);
        let vein = 1.0 - smooth(0.0, half * 0.16, across);
        let rim = smooth(-half * 0.22, 0.0, outside);
        let colour = base.mix(tip, part).lighter(-0.05 * vein * (1.0 - part) + 0.045 * rim);
        if cover >= 1.0 {
            return (colour, 1.0);
        }
        let shade = 0.30 * (1.0 - smooth(0.0, soft, outside));
        (shadow.mix(colour, cover), cover + (1.0 - cover) * shade)
    });
}
