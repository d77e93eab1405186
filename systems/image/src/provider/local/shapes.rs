//! Antialiased shapes.

use super::canvas::{Canvas, CanvasRect};
use super::color::OklabColor;
use super::portable_math::smoothstep;

impl Canvas {
    pub(super) fn fill_disc(&mut self, (x, y): (f64, f64), radius: f64, color: OklabColor, strength: f64) {
        let edge = self.edge_smoothing();
        self.paint_rect(CanvasRect::square_around(x, y, radius), |px, py| {
            let (dx, dy) = (px - x, py - y);
            (color, strength * edge.coverage((dx * dx + dy * dy).sqrt() - radius))
        });
    }

    /// Paints a glow that fades out with the distance from its center.
    pub(super) fn paint_glow(&mut self, (x, y): (f64, f64), radius: f64, color: OklabColor, strength: f64) {
        self.paint_rect(CanvasRect::square_around(x, y, radius), |px, py| {
            let (dx, dy) = (px - x, py - y);
            let near = 1.0 - ((dx * dx + dy * dy).sqrt() / radius).min(1.0);
            (color, strength * near * near * near)
        });
    }

    /// Draws a line with round ends; its radius changes from `from_radius` to `to_radius`.
    pub(super) fn draw_stroke(
        &mut self,
        from: (f64, f64),
        to: (f64, f64),
        radii: (f64, f64),
        color: OklabColor,
        strength: f64,
    ) {
        let edge = self.edge_smoothing();
        let reach = radii.0.max(radii.1);
        let area = CanvasRect {
            left: from.0.min(to.0) - reach,
            top: from.1.min(to.1) - reach,
            right: from.0.max(to.0) + reach,
            bottom: from.1.max(to.1) + reach,
        };
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = dx * dx + dy * dy;
        self.paint_rect(area, |x, y| {
            let (px, py) = (x - from.0, y - from.1);
            let along = if length > 0.0 { ((px * dx + py * dy) / length).clamp(0.0, 1.0) } else { 0.0 };
            let (ox, oy) = (px - along * dx, py - along * dy);
            let radius = radii.0 + (radii.1 - radii.0) * along;
            (color, strength * edge.coverage((ox * ox + oy * oy).sqrt() - radius))
        });
    }

    pub(super) fn fill_rect(&mut self, area: CanvasRect, color: OklabColor, strength: f64) {
        let edge = self.edge_smoothing();
        self.paint_rect(area, |x, y| {
            let across = (area.left - x).max(x - area.right);
            let along = (area.top - y).max(y - area.bottom);
            (color, strength * edge.coverage(across) * edge.coverage(along))
        });
    }

    /// Fills a triangle whose corners are in clockwise order.
    pub(super) fn fill_triangle(&mut self, corners: [(f64, f64); 3], color: OklabColor) {
        let edge = self.edge_smoothing();
        let [a, b, c] = corners;
        let area = CanvasRect {
            left: a.0.min(b.0).min(c.0),
            top: a.1.min(b.1).min(c.1),
            right: a.0.max(b.0).max(c.0),
            bottom: a.1.max(b.1).max(c.1),
        };
        let outside = |x: f64, y: f64, from: (f64, f64), to: (f64, f64)| {
            let (dx, dy) = (to.0 - from.0, to.1 - from.1);
            let length = (dx * dx + dy * dy).sqrt();
            if length > 0.0 { (dy * (x - from.0) - dx * (y - from.1)) / length } else { 0.0 }
        };
        self.paint_rect(area, |x, y| {
            let far = outside(x, y, a, b).max(outside(x, y, b, c)).max(outside(x, y, c, a));
            (color, edge.coverage(far))
        });
    }

    /// Fills everything below the line `height(x)`. `paint` receives the point and its distance below the line.
    pub(super) fn fill_below(&mut self, height: impl Fn(f64) -> f64, paint: impl Fn(f64, f64, f64) -> OklabColor) {
        let edge = self.edge_smoothing();
        let width = self.pixel_width();
        let columns = edge.side_pixels();
        let line: Vec<(f64, f64)> = (0..columns)
            .map(|column| {
                let x = (column as f64 + 0.5) * width;
                let (before, here, after) = (height(x - width), height(x), height(x + width));
                let slope = (after - before) / (2.0 * width);
                // On a steep edge, the vertical distance is longer than the distance to the edge.
                (here, 1.0 / (1.0 + slope * slope).sqrt())
            })
            .collect();
        let highest = line.iter().map(|(top, _)| *top).fold(1.0, f64::min);
        let area = CanvasRect { top: highest, ..CanvasRect::FULL };
        self.paint_rect(area, |x, y| {
            let (top, steep) = line[((x / width) as usize).min(columns - 1)];
            let below = y - top;
            (paint(x, y, below), edge.coverage(-below * steep))
        });
    }

    /// Paints the reflection of everything above `shore` into the water below.
    pub(super) fn paint_reflection(&mut self, shore: f64, water: OklabColor, ripple: impl Fn(f64, f64) -> f64) {
        let above = self.clone();
        let edge = self.edge_smoothing();
        self.paint_rect(CanvasRect { top: shore, ..CanvasRect::FULL }, |x, y| {
            let depth = (y - shore).max(0.0);
            let wave = ripple(x, depth);
            // Near water has longer waves.
            let seen = above.sample(x + wave * 0.02 * (0.2 + depth * 3.0), shore - depth * 1.05 - wave * 0.012);
            let tint = 0.22 + 0.45 * smoothstep(0.0, 0.45, depth);
            (seen.mix(water, tint).lighten(wave * 0.025), edge.coverage(shore - y))
        });
    }
}
