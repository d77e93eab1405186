//! Canvas. Coordinates are fractions of a side, from the left and from the top, so an image is the same at every size.

use super::color::OklabColor;

#[derive(Clone, Debug)]
pub(super) struct Canvas {
    side: usize,
    colors: Vec<OklabColor>,
}

/// Antialiasing of edges, independent of the canvas's pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct EdgeSmoothing {
    side: usize,
}

impl EdgeSmoothing {
    /// Returns how much of a pixel is covered if its center is `distance` outside an edge; negative is inside.
    pub(super) fn coverage(self, distance: f64) -> f64 {
        (0.5 - distance * self.side as f64).clamp(0.0, 1.0)
    }

    /// Returns the number of pixels along a side.
    pub(super) fn side_pixels(self) -> usize {
        self.side
    }
}

/// A rectangle in fractions of a side. Parts outside the canvas are cut off.
#[derive(Clone, Copy, Debug)]
pub(super) struct CanvasRect {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl CanvasRect {
    pub(super) const FULL: Self = Self { left: 0.0, top: 0.0, right: 1.0, bottom: 1.0 };

    /// Returns the square with this center and half side.
    pub(super) fn square_around(x: f64, y: f64, half_side: f64) -> Self {
        Self { left: x - half_side, top: y - half_side, right: x + half_side, bottom: y + half_side }
    }
}

/// Ordered dither matrix: rounding thresholds in a pattern too even to be visible.
const DITHER_MATRIX: [[f64; 4]; 4] =
    [[0.0, 8.0, 2.0, 10.0], [12.0, 4.0, 14.0, 6.0], [3.0, 11.0, 1.0, 9.0], [15.0, 7.0, 13.0, 5.0]];

impl Canvas {
    pub(super) fn new(side: u32) -> Self {
        let side = side as usize;
        Self { side, colors: vec![OklabColor::BLACK; side * side] }
    }

    pub(super) fn pixel_width(&self) -> f64 {
        1.0 / self.side as f64
    }

    pub(super) fn edge_smoothing(&self) -> EdgeSmoothing {
        EdgeSmoothing { side: self.side }
    }

    /// Sets the color of every pixel.
    pub(super) fn fill(&mut self, color_at: impl Fn(f64, f64) -> OklabColor) {
        self.paint_rect(CanvasRect::FULL, |x, y| (color_at(x, y), 1.0));
    }

    /// Paints over a rectangle. `paint` returns the color and its opacity at each point.
    pub(super) fn paint_rect(&mut self, rect: CanvasRect, paint: impl Fn(f64, f64) -> (OklabColor, f64)) {
        let (columns, rows) = (self.pixel_range(rect.left, rect.right), self.pixel_range(rect.top, rect.bottom));
        let scale = self.pixel_width();
        for row in rows {
            let y = (row as f64 + 0.5) * scale;
            let line = &mut self.colors[row * self.side..(row + 1) * self.side];
            for column in columns.clone() {
                let (color, coverage) = paint((column as f64 + 0.5) * scale, y);
                if coverage > 0.0 {
                    line[column] = line[column].mix(color, coverage.min(1.0));
                }
            }
        }
    }

    /// Returns the color at a point; points outside are clamped to the canvas.
    pub(super) fn sample(&self, x: f64, y: f64) -> OklabColor {
        let last = self.side - 1;
        let index = |fraction: f64| ((fraction * self.side as f64).floor().max(0.0) as usize).min(last);
        self.colors[index(y) * self.side + index(x)]
    }

    fn pixel_range(&self, from: f64, to: f64) -> std::ops::Range<usize> {
        let side = self.side as f64;
        // One more pixel at each end, for edges that cover it partly.
        let first = (from * side - 1.0).floor().clamp(0.0, side) as usize;
        let end = (to * side + 1.0).ceil().clamp(0.0, side) as usize;
        first..end.max(first)
    }

    /// Returns red, green and blue, row by row, slightly darker toward the corners.
    pub(super) fn to_rgb_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.colors.len() * 3);
        let scale = self.pixel_width();
        for (row, line) in self.colors.chunks(self.side).enumerate() {
            let y = row as f64 * scale - 0.5;
            for (column, color) in line.iter().enumerate() {
                let x = column as f64 * scale - 0.5;
                let vignette = 1.0 - 0.10 * (x * x + y * y);
                let dimmed = OklabColor { lightness: color.lightness * vignette, ..*color };
                let threshold = (DITHER_MATRIX[row % 4][column % 4] + 0.5) / 16.0;
                bytes.extend(dimmed.to_srgb(threshold));
            }
        }
        bytes
    }
}
