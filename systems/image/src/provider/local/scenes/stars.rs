//! A night sky with a figure in its stars, and sometimes a planet.

use super::super::canvas::{Area, Canvas};
use super::super::chance::Chance;
use super::super::colour::{Colour, lch};
use super::super::exact::{cos, mix, sin, smooth};
use super::super::noise::Noise;
use super::super::palette::Inks;
use super::super::words::Tint;

/// The night's hues, where no word names one: blues and purples with two colours of dust each.
const NIGHTS: [(f64, f64, f64); 5] =
    [(265.0, 250.0, 340.0), (285.0, 300.0, 20.0), (250.0, 200.0, 300.0), (275.0, 225.0, 60.0), (240.0, 190.0, 265.0)];

/// What the picture is painted with, besides the planet.
#[derive(Clone, Copy, Debug)]
struct Night {
    sky: Colour,
    cool: Colour,
    warm: Colour,
}

impl Night {
    fn new(tint: Option<Tint>, chance: &mut Chance) -> Self {
        let (sky, cool, warm) = *chance.pick(&NIGHTS);
        let (strength, turn) = match tint {
            Some(Tint::Hue(hue)) => (1.0, hue - cool),
            Some(Tint::Grey) => (0.1, 0.0),
            None => (1.0, chance.within(-12.0, 12.0)),
        };
        Self {
            sky: lch(0.16, 0.05 * strength, sky + turn).colour(),
            cool: lch(0.52, 0.14 * strength, cool + turn).colour(),
            warm: lch(0.66, 0.14 * strength, warm + turn).colour(),
        }
    }
}

pub(super) fn paint(canvas: &mut Canvas, inks: &Inks, tint: Option<Tint>, chance: &mut Chance, planet: bool) {
    let night = Night::new(tint, chance);
    let white = lch(0.97, 0.02, 95.0).colour();
    nebula(canvas, night, chance);
    for _ in 0..620 {
        let (x, y) = (chance.unit(), chance.unit());
        let size = chance.unit();
        let warm = white.mix(if chance.one_in(2) { night.cool } else { night.warm }, 0.5 * chance.unit());
        canvas.disc((x, y), 0.0007 + 0.0017 * size * size * size * size, warm, chance.within(0.25, 0.95));
    }
    figure(canvas, night, chance, white, if planet { 0.42 } else { 0.9 });
    if planet {
        let radius = chance.within(0.15, 0.21);
        let place = (chance.within(0.36, 0.64), chance.within(0.62, 0.70));
        world(canvas, inks, night, chance, place, radius);
    }
}

/// Clouds of dust that glow, along a band across the picture.
fn nebula(canvas: &mut Canvas, night: Night, chance: &mut Chance) {
    let (dust, drift) = (Noise::new(chance), Noise::new(chance));
    let turns = chance.unit();
    let (sine, cosine) = (sin(turns), cos(turns));
    let middle = chance.within(-0.15, 0.15);
    canvas.shade(|x, y| {
        let curl = drift.rough(x * 1.7, y * 1.7, 3);
        let across = (x - 0.5) * cosine + (y - 0.5) * sine - middle + curl * 0.18;
        let band = 1.0 - smooth(0.0, 0.48, across.abs());
        let thick = 0.5 + 0.5 * dust.rough(x * 2.6 + curl, y * 2.6 - curl, 5);
        let glow = band * smooth(0.22, 0.85, thick);
        let hue = smooth(0.35, 0.7, 0.5 + 0.5 * drift.rough(x * 2.2 + 7.0, y * 2.2, 3));
        let lanes = smooth(0.1, 0.5, dust.rough(x * 4.0 + 3.0, y * 4.0 + 9.0, 4)) * band;
        night.sky.mix(night.cool.mix(night.warm, hue), glow * 0.8).lighter(-0.06 * lanes)
    });
}

/// Stars joined by lines, each to the nearest that is joined already.
fn figure(canvas: &mut Canvas, night: Night, chance: &mut Chance, white: Colour, height: f64) {
    let wanted = 7 + chance.below(6);
    let mut stars: Vec<(f64, f64)> = Vec::new();
    for _ in 0..400 {
        let place = (chance.within(0.12, 0.88), chance.within(0.10, height));
        let near = |other: &(f64, f64)| away(place, *other) < 0.105;
        if stars.len() < wanted && !stars.iter().any(near) {
            stars.push(place);
        }
    }
    let line = white.mix(night.cool, 0.3);
    for index in 1..stars.len() {
        let here = stars[index];
        let nearest =
            stars[..index].iter().copied().min_by(|one, other| away(here, *one).total_cmp(&away(here, *other)));
        if let Some(there) = nearest {
            // The line stops short of either star.
            let gap = 0.017 / away(here, there);
            let at = |part: f64| (mix(here.0, there.0, part), mix(here.1, there.1, part));
            canvas.stroke(at(gap), at(1.0 - gap), (0.0011, 0.0011), line, 0.55);
        }
    }
    for (index, star) in stars.iter().enumerate() {
        let size = chance.within(0.0032, 0.0062) * if index == 0 { 1.5 } else { 1.0 };
        let tone = if index % 4 == 0 { night.warm.lighter(0.2) } else { white };
        canvas.glow(*star, size * 8.0, tone, 0.5);
        for (dx, dy) in [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)] {
            let tip = (star.0 + dx * size * 3.6, star.1 + dy * size * 3.6);
            canvas.stroke(*star, tip, (size * 0.32, 0.0), white, 0.85);
        }
        canvas.disc(*star, size, white, 1.0);
    }
}

fn away(one: (f64, f64), other: (f64, f64)) -> f64 {
    ((one.0 - other.0) * (one.0 - other.0) + (one.1 - other.1) * (one.1 - other.1)).sqrt()
}

/// A planet with bands of cloud, lit from one side, with rings around every other one.
fn world(canvas: &mut Canvas, inks: &Inks, night: Night, chance: &mut Chance, (x, y): (f64, f64), radius: f64) {
    let bands = Noise::new(chance);
    let shift = chance.within(0.0, 50.0);
    let tilt = chance.within(-0.07, 0.07);
    let (sine, cosine) = (sin(tilt), cos(tilt));
    let lit_from = if chance.one_in(2) { -1.0 } else { 1.0 };
    let ringed = chance.below(3) > 0;
    let dark = night.sky.lighter(-0.05);
    let edge = canvas.edge();
    let ring = inks.along(0.85);
    canvas.glow((x, y), radius * 1.5, inks.along(0.5), 0.35);
    if ringed {
        rings(canvas, (x, y), radius, (sine, cosine), ring, -1.0);
    }
    canvas.lay(Area::around(x, y, radius), |px, py| {
        let (dx, dy) = ((px - x) / radius, (py - y) / radius);
        let inside = dx * dx + dy * dy;
        let toward = (1.0 - inside).max(0.0).sqrt();
        let (along, up) = (dx * cosine + dy * sine, dy * cosine - dx * sine);
        let curl = bands.rough(along * 1.4 + shift, up * 3.0, 4);
        let band = bands.rough(shift, up * 4.2 + curl * 0.35, 3);
        let face = inks.along(0.5 + band * 1.1).mix(inks.accent(), 0.35 * smooth(0.15, 0.5, band));
        let light = lit_from * dx * 0.72 - dy * 0.38 + toward * 0.58;
        let shown = dark.mix(face.lighter(0.04 * curl), smooth(-0.12, 0.72, light) * 0.96 + 0.02);
        (shown, edge.cover((inside.sqrt() - 1.0) * radius))
    });
    if ringed {
        rings(canvas, (x, y), radius, (sine, cosine), ring, 1.0);
    }
}

/// The half of the rings that lies behind the planet (`half` below 0) or before it.
fn rings(canvas: &mut Canvas, (x, y): (f64, f64), radius: f64, (sine, cosine): (f64, f64), colour: Colour, half: f64) {
    canvas.lay(Area::around(x, y, radius * 2.3), |px, py| {
        let (dx, dy) = ((px - x) / radius, (py - y) / radius);
        let (along, up) = (dx * cosine + dy * sine, dy * cosine - dx * sine);
        if up * half < 0.0 {
            return (colour, 0.0);
        }
        let out = (along * along + (up / 0.26) * (up / 0.26)).sqrt();
        let there = smooth(1.32, 1.36, out) * (1.0 - smooth(2.12, 2.2, out));
        let gap = 1.0 - 0.8 * smooth(1.70, 1.72, out) * (1.0 - smooth(1.78, 1.80, out));
        let grooves = 0.86 + 0.14 * sin(out * 6.0);
        (colour, 0.82 * there * gap * grooves)
    });
}
