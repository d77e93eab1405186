//! Scene: a night sky with a constellation and sometimes a planet.

use super::super::canvas::{Canvas, CanvasRect};
use super::super::color::{OklabColor, oklch};
use super::super::noise::GradientNoise;
use super::super::palette::InkPalette;
use super::super::portable_math::{cos, lerp, sin, smoothstep};
use super::super::prompt_hints::ColorTint;
use super::super::rng::PromptRng;

/// Hues of the night if the prompt names none: blues and purples with two dust colors each.
const NIGHT_HUES: [(f64, f64, f64); 5] =
    [(265.0, 250.0, 340.0), (285.0, 300.0, 20.0), (250.0, 200.0, 300.0), (275.0, 225.0, 60.0), (240.0, 190.0, 265.0)];

/// Colors of the scene, besides the planet's.
#[derive(Clone, Copy, Debug)]
struct NightPalette {
    sky: OklabColor,
    cool: OklabColor,
    warm: OklabColor,
}

impl NightPalette {
    fn new(tint: Option<ColorTint>, rng: &mut PromptRng) -> Self {
        let (sky, cool, warm) = *rng.pick(&NIGHT_HUES);
        let (strength, turn) = match tint {
            Some(ColorTint::Hue(hue)) => (1.0, hue - cool),
            Some(ColorTint::Gray) => (0.1, 0.0),
            None => (1.0, rng.range(-12.0, 12.0)),
        };
        Self {
            sky: oklch(0.16, 0.05 * strength, sky + turn).to_oklab(),
            cool: oklch(0.52, 0.14 * strength, cool + turn).to_oklab(),
            warm: oklch(0.66, 0.14 * strength, warm + turn).to_oklab(),
        }
    }
}

pub(super) fn paint(
    canvas: &mut Canvas,
    inks: &InkPalette,
    tint: Option<ColorTint>,
    rng: &mut PromptRng,
    has_planet: bool,
) {
    let night = NightPalette::new(tint, rng);
    let white = oklch(0.97, 0.02, 95.0).to_oklab();
    paint_nebula(canvas, night, rng);
    for _ in 0..620 {
        let (x, y) = (rng.next_f64(), rng.next_f64());
        let size = rng.next_f64();
        let warm = white.mix(if rng.one_in(2) { night.cool } else { night.warm }, 0.5 * rng.next_f64());
        canvas.fill_disc((x, y), 0.0007 + 0.0017 * size * size * size * size, warm, rng.range(0.25, 0.95));
    }
    paint_constellation(canvas, night, rng, white, if has_planet { 0.42 } else { 0.9 });
    if has_planet {
        let radius = rng.range(0.15, 0.21);
        let place = (rng.range(0.36, 0.64), rng.range(0.62, 0.70));
        paint_planet(canvas, inks, night, rng, place, radius);
    }
}

/// Paints glowing dust clouds along a band across the image.
fn paint_nebula(canvas: &mut Canvas, night: NightPalette, rng: &mut PromptRng) {
    let (dust, drift) = (GradientNoise::new(rng), GradientNoise::new(rng));
    let turns = rng.next_f64();
    let (sine, cosine) = (sin(turns), cos(turns));
    let middle = rng.range(-0.15, 0.15);
    canvas.fill(|x, y| {
        let curl = drift.fractal(x * 1.7, y * 1.7, 3);
        let across = (x - 0.5) * cosine + (y - 0.5) * sine - middle + curl * 0.18;
        let band = 1.0 - smoothstep(0.0, 0.48, across.abs());
        let thick = 0.5 + 0.5 * dust.fractal(x * 2.6 + curl, y * 2.6 - curl, 5);
        let glow = band * smoothstep(0.22, 0.85, thick);
        let hue = smoothstep(0.35, 0.7, 0.5 + 0.5 * drift.fractal(x * 2.2 + 7.0, y * 2.2, 3));
        let lanes = smoothstep(0.1, 0.5, dust.fractal(x * 4.0 + 3.0, y * 4.0 + 9.0, 4)) * band;
        night.sky.mix(night.cool.mix(night.warm, hue), glow * 0.8).lighten(-0.06 * lanes)
    });
}

/// Paints a constellation: each star is joined by a line to the nearest star that is already joined.
fn paint_constellation(canvas: &mut Canvas, night: NightPalette, rng: &mut PromptRng, white: OklabColor, height: f64) {
    let wanted = 7 + rng.next_below(6);
    let mut stars: Vec<(f64, f64)> = Vec::new();
    for _ in 0..400 {
        let place = (rng.range(0.12, 0.88), rng.range(0.10, height));
        let near = |other: &(f64, f64)| distance(place, *other) < 0.105;
        if stars.len() < wanted && !stars.iter().any(near) {
            stars.push(place);
        }
    }
    let line = white.mix(night.cool, 0.3);
    for index in 1..stars.len() {
        let here = stars[index];
        let nearest =
            stars[..index].iter().copied().min_by(|one, other| distance(here, *one).total_cmp(&distance(here, *other)));
        if let Some(there) = nearest {
            // The line stops short of both stars.
            let gap = 0.017 / distance(here, there);
            let at = |part: f64| (lerp(here.0, there.0, part), lerp(here.1, there.1, part));
            canvas.draw_stroke(at(gap), at(1.0 - gap), (0.0011, 0.0011), line, 0.55);
        }
    }
    for (index, star) in stars.iter().enumerate() {
        let size = rng.range(0.0032, 0.0062) * if index == 0 { 1.5 } else { 1.0 };
        let tone = if index % 4 == 0 { night.warm.lighten(0.2) } else { white };
        canvas.paint_glow(*star, size * 8.0, tone, 0.5);
        for (dx, dy) in [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0)] {
            let tip = (star.0 + dx * size * 3.6, star.1 + dy * size * 3.6);
            canvas.draw_stroke(*star, tip, (size * 0.32, 0.0), white, 0.85);
        }
        canvas.fill_disc(*star, size, white, 1.0);
    }
}

fn distance(one: (f64, f64), other: (f64, f64)) -> f64 {
    ((one.0 - other.0) * (one.0 - other.0) + (one.1 - other.1) * (one.1 - other.1)).sqrt()
}

/// Paints a planet with cloud bands, lit from one side; every other planet has rings.
fn paint_planet(
    canvas: &mut Canvas,
    inks: &InkPalette,
    night: NightPalette,
    rng: &mut PromptRng,
    (x, y): (f64, f64),
    radius: f64,
) {
    let bands = GradientNoise::new(rng);
    let shift = rng.range(0.0, 50.0);
    let tilt = rng.range(-0.07, 0.07);
    let (sine, cosine) = (sin(tilt), cos(tilt));
    let lit_from = if rng.one_in(2) { -1.0 } else { 1.0 };
    let ringed = rng.next_below(3) > 0;
    let dark = night.sky.lighten(-0.05);
    let edge = canvas.edge_smoothing();
    let ring = inks.gradient(0.85);
    canvas.paint_glow((x, y), radius * 1.5, inks.gradient(0.5), 0.35);
    if ringed {
        paint_rings(canvas, (x, y), radius, (sine, cosine), ring, -1.0);
    }
    canvas.paint_rect(CanvasRect::square_around(x, y, radius), |px, py| {
        let (dx, dy) = ((px - x) / radius, (py - y) / radius);
        let inside = dx * dx + dy * dy;
        let toward = (1.0 - inside).max(0.0).sqrt();
        let (along, up) = (dx * cosine + dy * sine, dy * cosine - dx * sine);
        let curl = bands.fractal(along * 1.4 + shift, up * 3.0, 4);
        let band = bands.fractal(shift, up * 4.2 + curl * 0.35, 3);
        let face = inks.gradient(0.5 + band * 1.1).mix(inks.accent(), 0.35 * smoothstep(0.15, 0.5, band));
        let light = lit_from * dx * 0.72 - dy * 0.38 + toward * 0.58;
        let shown = dark.mix(face.lighten(0.04 * curl), smoothstep(-0.12, 0.72, light) * 0.96 + 0.02);
        (shown, edge.coverage((inside.sqrt() - 1.0) * radius))
    });
    if ringed {
        paint_rings(canvas, (x, y), radius, (sine, cosine), ring, 1.0);
    }
}

/// Paints the half of the rings behind the planet (`half` below 0) or in front of it.
fn paint_rings(
    canvas: &mut Canvas,
    (x, y): (f64, f64),
    radius: f64,
    (sine, cosine): (f64, f64),
    color: OklabColor,
    half: f64,
) {
    canvas.paint_rect(CanvasRect::square_around(x, y, radius * 2.3), |px, py| {
        let (dx, dy) = ((px - x) / radius, (py - y) / radius);
        let (along, up) = (dx * cosine + dy * sine, dy * cosine - dx * sine);
        if up * half < 0.0 {
            return (color, 0.0);
        }
        let out = (along * along + (up / 0.26) * (up / 0.26)).sqrt();
        let there = smoothstep(1.32, 1.36, out) * (1.0 - smoothstep(2.12, 2.2, out));
        let gap = 1.0 - 0.8 * smoothstep(1.70, 1.72, out) * (1.0 - smoothstep(1.78, 1.80, out));
        let grooves = 0.86 + 0.14 * sin(out * 6.0);
        (color, 0.82 * there * gap * grooves)
    });
}
