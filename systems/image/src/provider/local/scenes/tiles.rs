//! Pattern: a wall of tiles, each with a simple figure.

use super::super::canvas::{Canvas, CanvasRect, EdgeSmoothing};
use super::super::color::OklabColor;
use super::super::palette::InkPalette;
use super::super::rng::PromptRng;

#[derive(Clone, Copy, Debug)]
enum TileFigure {
    Plain,
    Quarter,
    Arcs,
    Half,
    Slope,
    Disc,
    Ring,
    Leaf,
    Waves,
}

const TILE_FIGURES: [TileFigure; 9] = [
    TileFigure::Plain,
    TileFigure::Quarter,
    TileFigure::Arcs,
    TileFigure::Half,
    TileFigure::Slope,
    TileFigure::Disc,
    TileFigure::Ring,
    TileFigure::Leaf,
    TileFigure::Waves,
];

/// A tile: its figure, rotated by quarter turns, and its colors.
#[derive(Clone, Copy, Debug)]
struct TileSpec {
    figure: TileFigure,
    quarters: usize,
    ground: OklabColor,
    ink: OklabColor,
    spot: Option<OklabColor>,
}

pub(super) fn paint(canvas: &mut Canvas, inks: &InkPalette, rng: &mut PromptRng) {
    let count = 4 + 2 * rng.next_below(3);
    // A wall with a few repeated figures looks deliberate; one with all of them looks random.
    let mut figures = TILE_FIGURES.to_vec();
    let kept = 3 + rng.next_below(4);
    while figures.len() > kept {
        figures.remove(rng.next_below(figures.len()));
    }
    let mut colors = inks.colors.clone();
    colors.push(inks.paper);
    let mirrored = rng.one_in(2);
    let first = if mirrored { count / 2 } else { count };
    let tiles: Vec<TileSpec> = (0..first * first).map(|_| random_tile(&figures, &colors, rng)).collect();
    let width = 1.0 / count as f64;
    for row in 0..count {
        for column in 0..count {
            let fold = |at: usize| if at < first { (at, false) } else { (count - 1 - at, true) };
            let ((down, upside), (across, turned)) = (fold(row), fold(column));
            let tile = tiles[down * first + across];
            let (left, top) = (column as f64 * width, row as f64 * width);
            let area = CanvasRect { left, top, right: left + width, bottom: top + width };
            let edge = canvas.edge_smoothing();
            canvas.paint_rect(area, |x, y| {
                let inside = x >= left && x < left + width && y >= top && y < top + width;
                let (mut u, mut v) = ((x - left) / width, (y - top) / width);
                if turned {
                    u = 1.0 - u;
                }
                if upside {
                    v = 1.0 - v;
                }
                (color_at(tile, u, v, width, edge), if inside { 1.0 } else { 0.0 })
            });
        }
    }
}

fn random_tile(figures: &[TileFigure], colors: &[OklabColor], rng: &mut PromptRng) -> TileSpec {
    let ground = rng.next_below(colors.len());
    let mut ink = rng.next_below(colors.len() - 1);
    if ink >= ground {
        ink += 1;
    }
    let spot = rng.one_in(4).then(|| *rng.pick(colors));
    TileSpec { figure: *rng.pick(figures), quarters: rng.next_below(4), ground: colors[ground], ink: colors[ink], spot }
}

/// Returns the color at a point of a tile. `u` and `v` go from 0 to 1; `width` is the tile's width on the canvas.
fn color_at(tile: TileSpec, u: f64, v: f64, width: f64, edge: EdgeSmoothing) -> OklabColor {
    let (u, v) = match tile.quarters {
        0 => (u, v),
        1 => (v, 1.0 - u),
        2 => (1.0 - u, 1.0 - v),
        _ => (1.0 - v, u),
    };
    let away = |x: f64, y: f64| ((u - x) * (u - x) + (v - y) * (v - y)).sqrt();
    let corner = away(0.0, 0.0);
    // Distance outside the figure, in sides of the tile.
    let outside = match tile.figure {
        TileFigure::Plain => 1.0,
        TileFigure::Quarter => corner - 1.0,
        TileFigure::Arcs => (corner - 0.25).abs().min((corner - 0.58).abs()).min((corner - 0.91).abs()) - 0.085,
        TileFigure::Half => (away(0.5, 0.0) - 0.5).max(-v),
        TileFigure::Slope => (u + v - 1.0) * std::f64::consts::FRAC_1_SQRT_2,
        TileFigure::Disc => away(0.5, 0.5) - 0.34,
        TileFigure::Ring => (away(0.5, 0.5) - 0.33).abs() - 0.12,
        TileFigure::Leaf => (corner - 1.0).max(away(1.0, 1.0) - 1.0),
        TileFigure::Waves => (u * 4.0 - (u * 4.0).floor() - 0.5).abs() / 4.0 - 0.0625,
    };
    let color = tile.ground.mix(tile.ink, edge.coverage(outside * width));
    let Some(spot) = tile.spot else { return color };
    let dot = match tile.figure {
        TileFigure::Disc | TileFigure::Ring | TileFigure::Plain => away(0.5, 0.5) - 0.13,
        TileFigure::Leaf => away(0.5, 0.5) - 0.12,
        _ => away(0.76, 0.76) - 0.11,
    };
    color.mix(spot, edge.coverage(dot * width))
}
