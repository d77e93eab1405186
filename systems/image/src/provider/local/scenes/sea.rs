//! Scene: the sea under a low sun, sometimes with a sail.

use super::super::canvas::{Canvas, CanvasRect};
use super::super::noise::GradientNoise;
use super::super::palette::SkyPalette;
use super::super::portable_math::{lerp, smoothstep};
use super::super::rng::PromptRng;
use super::sky::{self, SunPosition};

pub(super) fn paint(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng) {
    let horizon = rng.range(0.50, 0.62);
    let radius = rng.range(0.06, 0.11);
    let sun = SunPosition { x: rng.range(0.22, 0.78), y: horizon - rng.range(-0.3, 2.6) * radius, radius };
    sky::paint(canvas, sky, rng, horizon, sun);
    if rng.next_below(3) > 0 {
        paint_headland(canvas, sky, rng, horizon);
    }
    paint_water(canvas, sky, rng, horizon, sun);
    if rng.next_below(3) > 0 {
        paint_boat(canvas, sky, rng, horizon, sun);
    }
}

fn paint_headland(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng, horizon: f64) {
    for near in [0.15, 0.4] {
        let noise = GradientNoise::new(rng);
        let (shift, from_left) = (rng.range(0.0, 50.0), rng.one_in(2));
        let reach = rng.range(0.35, 0.65);
        let high = rng.range(0.05, 0.11);
        let color = sky.land_color(near);
        let line = |x: f64| {
            let along = if from_left { x } else { 1.0 - x };
            let falling = 1.0 - smoothstep(0.0, reach, along);
            horizon + 0.004 - high * falling * (1.0 + 0.5 * noise.fractal(x * 5.0, shift, 4)) + 0.01 * (1.0 - falling)
        };
        canvas.fill_below(line, |_, _, below| color.mix(sky.bottom, 0.5 * smoothstep(0.0, high, below)));
    }
}

fn paint_water(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng, horizon: f64, sun: SunPosition) {
    let (swell, sparkle) = (GradientNoise::new(rng), GradientNoise::new(rng));
    let deep = sky.near.mix(sky.top, 0.3);
    let edge = canvas.edge_smoothing();
    canvas.paint_rect(CanvasRect { top: horizon, ..CanvasRect::FULL }, |x, y| {
        let depth = ((y - horizon) / (1.0 - horizon)).max(0.0);
        // Waves get denser toward the horizon.
        let away = 1.0 / (depth * 0.9 + 0.045);
        let wave = swell.fractal(x * lerp(2.2, 0.5, depth) * away.sqrt() * 1.6, away * 2.6, 4);
        let seen = sky::gradient_color(sky, 1.0 - depth * 0.85);
        let body = seen.mix(deep, 0.28 + 0.55 * smoothstep(0.0, 0.9, depth));
        let ridges = body.lighten(wave * (0.03 + 0.05 * depth));
        // The sun's reflection: narrow at the horizon, broken up by the waves.
        let width = sun.radius * (0.75 + 1.6 * depth);
        let off = ((x - sun.x) / width).abs();
        let glint = sparkle.fractal(x * 9.0 * (1.2 - depth * 0.7), away * 7.0, 3);
        let road = smoothstep(0.05, 0.42, glint + 0.42 - off * 0.62) * (1.0 - smoothstep(0.6, 1.5, off));
        (ridges.mix(sky.sun, road * (0.85 - 0.35 * depth)), edge.coverage(horizon - y))
    });
}

fn paint_boat(canvas: &mut Canvas, sky: &SkyPalette, rng: &mut PromptRng, horizon: f64, sun: SunPosition) {
    let away = rng.range(0.12, 0.4);
    let across = if sun.x < 0.5 { rng.range(0.55, 0.85) } else { rng.range(0.15, 0.45) };
    let (x, y) = (across, lerp(horizon, 1.0, away));
    let size = lerp(0.05, 0.16, away);
    let hull = sky.near.lighten(-0.02);
    let sail = if sky.mood.is_dark() { sky.far.mix(sky.sun, 0.55) } else { sky.sun.mix(sky.bottom, 0.25) };
    let shadow = sail.mix(sky.near, 0.25);
    for step in 0..7 {
        let down = f64::from(step) / 7.0;
        let half = size * (0.30 - 0.22 * down) * rng.range(0.7, 1.0);
        let row = y + size * (0.06 + 0.5 * down);
        canvas.draw_stroke((x - half, row), (x + half, row), (size * 0.012, size * 0.012), shadow, 0.35 * (1.0 - down));
    }
    canvas.fill_triangle(
        [(x + size * 0.02, y - size), (x + size * 0.36, y - size * 0.12), (x + size * 0.02, y - size * 0.12)],
        sail,
    );
    canvas.fill_triangle(
        [(x - size * 0.02, y - size * 0.86), (x - size * 0.02, y - size * 0.12), (x - size * 0.28, y - size * 0.12)],
        shadow,
    );
    canvas.draw_stroke((x, y - size * 1.04), (x, y), (size * 0.010, size * 0.014), hull, 1.0);
    canvas.draw_stroke((x - size * 0.27, y), (x + size * 0.29, y), (size * 0.045, size * 0.03), hull, 1.0);
    canvas.draw_stroke(
        (x - size * 0.20, y + size * 0.03),
        (x + size * 0.22, y + size * 0.03),
        (size * 0.04, size * 0.03),
        hull,
        1.0,
    );
}
