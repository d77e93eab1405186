//! A wall of tiles, each with a simple figure.

use super::super::canvas::{Area, Canvas, Edge};
use super::super::chance::Chance;
use super::super::colour::Colour;
use super::super::palette::Inks;

/// What a tile shows.
#[derive(Clone, Copy, Debug)]
enum Figure {
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

const FIGURES: [Figure; 9] = [
    Figure::Plain,
    Figure::Quarter,
    Figure::Arcs,
    Figure::Half,
    Figure::Slope,
    Figure::Disc,
    Figure::Ring,
    Figure::Leaf,
    Figure::Waves,
];

/// A tile: its figure, turned by so many quarters, in two colours and a third for small things.
#[derive(Clone, Copy, Debug)]
struct Tile {
    figure: Figure,
    quarters: usize,
    ground: Colour,
    ink: Colour,
    spot: Option<Colour>,
}

pub(super) fn paint(canvas: &mut Canvas, inks: &Inks, chance: &mut Chance) {
    let count = 4 + 2 * chance.below(3);
    // A wall that repeats few figures looks meant; one that has them all looks spilled.
    let mut figures = FIGURES.to_vec();
    let kept = 3 + chance.below(4);
    while figures.len() > kept {
        figures.remove(chance.below(figures.len()));
    }
    let mut colours = inks.colours.clone();
    colours.push(inks.paper);
    let mirrored = chance.one_in(2);
    let first = if mirrored { count / 2 } else { count };
    let tiles: Vec<Tile> = (0..first * first).map(|_| tile(&figures, &colours, chance)).collect();
    let width = 1.0 / count as f64;
    for row in 0..count {
        for column in 0..count {
            let fold = |at: usize| if at < first { (at, false) } else { (count - 1 - at, true) };
            let ((down, upside), (across, turned)) = (fold(row), fold(column));
            let tile = tiles[down * first + across];
            let (left, top) = (column as f64 * width, row as f64 * width);
            let area = Area { left, top, right: left + width, bottom: top + width };
            let edge = canvas.edge();
            canvas.lay(area, |x, y| {
                let inside = x >= left && x < left + width && y >= top && y < top + width;
                let (mut u, mut v) = ((x - left) / width, (y - top) / width);
                if turned {
                    u = 1.0 - u;
                }
                if upside {
                    v = 1.0 - v;
                }
                (shown(tile, u, v, width, edge), if inside { 1.0 } else { 0.0 })
            });
        }
    }
}

fn tile(figures: &[Figure], colours: &[Colour], chance: &mut Chance) -> Tile {
    let ground = chance.below(colours.len());
    let mut ink = chance.below(colours.len() - 1);
    if ink >= ground {
        ink += 1;
    }
    let spot = chance.one_in(4).then(|| *chance.pick(colours));
    Tile { figure: *chance.pick(figures), quarters: chance.below(4), ground: colours[ground], ink: colours[ink], spot }
}

/// The colour at a place within a tile, whose sides are 1 and on the canvas `width`.
fn shown(tile: Tile, u: f64, v: f64, width: f64, edge: Edge) -> Colour {
    let (u, v) = match tile.quarters {
        0 => (u, v),
        1 => (v, 1.0 - u),
        2 => (1.0 - u, 1.0 - v),
        _ => (1.0 - v, u),
    };
    let away = |x: f64, y: f64| ((u - x) * (u - x) + (v - y) * (v - y)).sqrt();
    let corner = away(0.0, 0.0);
    // How far outside of the figure, in sides of the tile.
    let outside = match tile.figure {
        Figure::Plain => 1.0,
        Figure::Quarter => corner - 1.0,
        Figure::Arcs => (corner - 0.25).abs().min((corner - 0.58).abs()).min((corner - 0.91).abs()) - 0.085,
        Figure::Half => (away(0.5, 0.0) - 0.5).max(-v),
        Figure::Slope => (u + v - 1.0) * std::f64::consts::FRAC_1_SQRT_2,
        Figure::Disc => away(0.5, 0.5) - 0.34,
        Figure::Ring => (away(0.5, 0.5) - 0.33).abs() - 0.12,
        Figure::Leaf => (corner - 1.0).max(away(1.0, 1.0) - 1.0),
        Figure::Waves => (u * 4.0 - (u * 4.0).floor() - 0.5).abs() / 4.0 - 0.0625,
    };
    let colour = tile.ground.mix(tile.ink, edge.cover(outside * width));
    let Some(spot) = tile.spot else { return colour };
    let dot = match tile.figure {
        Figure::Disc | Figure::Ring | Figure::Plain => away(0.5, 0.5) - 0.13,
        Figure::Leaf => away(0.5, 0.5) - 0.12,
        _ => away(0.76, 0.76) - 0.11,
    };
    colour.mix(spot, edge.cover(dot * width))
}
