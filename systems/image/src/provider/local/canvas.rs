//! What is painted on. Places are told in parts of a side, from the left and from the top, so a picture is the same at
//! every size.

use super::colour::Colour;

#[derive(Clone, Debug)]
pub(super) struct Canvas {
    side: usize,
    pixels: Vec<Colour>,
}

/// How edges are softened on a canvas, apart from its pixels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    side: usize,
}

impl Edge {
    /// How much of a pixel is covered whose middle lies so far outside of an edge; inside is below 0.
    pub(super) fn cover(self, outside: f64) -> f64 {
        (0.5 - outside * self.side as f64).clamp(0.0, 1.0)
    }

    /// Along a side.
    pub(super) fn pixels(self) -> usize {
        self.side
    }
}

/// A rectangle, in parts of a side. What lies outside the canvas is cut off.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) const WHOLE: Self = Self { left: 0.0, top: 0.0, right: 1.0, bottom: 1.0 };

    /// All that is no further from a point than this, along either side.
    pub(super) fn around(x: f64, y: f64, reach: f64) -> Self {
        Self { left: x - reach, top: y - reach, right: x + reach, bottom: y + reach }
    }
}

/// Which way values between two steps of a screen fall, place by place: an even pattern that nobody sees.
const DITHER: [[f64; 4]; 4] =
    [[0.0, 8.0, 2.0, 10.0], [12.0, 4.0, 14.0, 6.0], [3.0, 11.0, 1.0, 9.0], [15.0, 7.0, 13.0, 5.0]];

impl Canvas {
    pub(super) fn new(side: u32) -> Self {
        let side = side as usize;
        Self { side, pixels: vec![Colour::BLACK; side * side] }
    }

    /// A pixel's width.
    pub(super) fn pixel(&self) -> f64 {
        1.0 / self.side as f64
    }

    pub(super) fn edge(&self) -> Edge {
        Edge { side: self.side }
    }

    /// A colour for every place.
    pub(super) fn shade(&mut self, colour: impl Fn(f64, f64) -> Colour) {
        self.lay(Area::WHOLE, |x, y| (colour(x, y), 1.0));
    }

    /// Paint over an area: for each place a colour, and how much of what is there it covers.
    pub(super) fn lay(&mut self, area: Area, paint: impl Fn(f64, f64) -> (Colour, f64)) {
        let (columns, rows) = (self.span(area.left, area.right), self.span(area.top, area.bottom));
        let scale = self.pixel();
        for row in rows {
            let y = (row as f64 + 0.5) * scale;
            let line = &mut self.pixels[row * self.side..(row + 1) * self.side];
            for column in columns.clone() {
                let (colour, cover) = paint((column as f64 + 0.5) * scale, y);
                if cover > 0.0 {
                    line[column] = line[column].mix(colour, cover.min(1.0));
                }
            }
        }
    }

    /// What stands at a place; at the nearest one, where it lies outside.
    pub(super) fn at(&self, x: f64, y: f64) -> Colour {
        let last = self.side - 1;
        let index = |part: f64| ((part * self.side as f64).floor().max(0.0) as usize).min(last);
        self.pixels[index(y) * self.side + index(x)]
    }

    fn span(&self, from: f64, to: f64) -> std::ops::Range<usize> {
        let side = self.side as f64;
        // A pixel more at each end, for edges that cover it in part.
        let first = (from * side - 1.0).floor().clamp(0.0, side) as usize;
        let end = (to * side + 1.0).ceil().clamp(0.0, side) as usize;
        first..end.max(first)
    }

    /// Red, green, blue, row by row, a little darker to the corners.
    pub(super) fn finish(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.pixels.len() * 3);
        let scale = self.pixel();
        for (row, line) in self.pixels.chunks(self.side).enumerate() {
            let y = row as f64 * scale - 0.5;
            for (column, colour) in line.iter().enumerate() {
                let x = column as f64 * scale - 0.5;
                let dim = 1.0 - 0.10 * (x * x + y * y);
                let shown = Colour { light: colour.light * dim, ..*colour };
                let threshold = (DITHER[row % 4][column % 4] + 0.5) / 16.0;
                bytes.extend(shown.screen(threshold));
            }
        }
        bytes
    }
}
