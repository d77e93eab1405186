//! Scenes of the built-in generator: five landscapes, the night sky, and three patterns.

mod bloom;
mod city;
mod flow;
mod forest;
mod hills;
mod mountains;
mod sea;
mod sky;
mod stars;
mod tiles;

use super::canvas::Canvas;
use super::palette::{DEFAULT_MOODS, InkPalette, LightMood, SkyPalette};
use super::prompt_hints::PromptHints;
use super::rng::PromptRng;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SceneKind {
    Hills,
    Mountains,
    Forest,
    Sea,
    City,
    Flow,
    Bloom,
    Tiles,
    Stars,
    Planet,
}

const ALL_SCENES: [SceneKind; 10] = [
    SceneKind::Hills,
    SceneKind::Mountains,
    SceneKind::Forest,
    SceneKind::Sea,
    SceneKind::City,
    SceneKind::Flow,
    SceneKind::Bloom,
    SceneKind::Tiles,
    SceneKind::Stars,
    SceneKind::Planet,
];

/// Paints the scene of a prompt.
pub(super) fn paint_prompt(prompt: &str, side: u32) -> Canvas {
    let hints = PromptHints::parse(prompt);
    let mut scene_rng = PromptRng::for_prompt(prompt, "scene");
    let scene = hints.scene.unwrap_or(*scene_rng.pick(&ALL_SCENES));
    let mood = hints.mood.unwrap_or(*scene_rng.pick(&DEFAULT_MOODS));
    let mut color_rng = PromptRng::for_prompt(prompt, "colours");
    let mut shape_rng = PromptRng::for_prompt(prompt, "shapes");
    let mut canvas = Canvas::new(side);
    match scene {
        SceneKind::Hills | SceneKind::Mountains | SceneKind::Forest | SceneKind::Sea | SceneKind::City => {
            let sky = SkyPalette::new(mood, &hints.tints, &mut color_rng);
            match scene {
                SceneKind::Mountains => mountains::paint(&mut canvas, &sky, &mut shape_rng),
                SceneKind::Forest => forest::paint(&mut canvas, &sky, &mut shape_rng),
                SceneKind::Sea => sea::paint(&mut canvas, &sky, &mut shape_rng),
                SceneKind::City if hints.tints.is_empty() => city::paint(&mut canvas, &sky.for_city(), &mut shape_rng),
                SceneKind::City => city::paint(&mut canvas, &sky, &mut shape_rng),
                _ => hills::paint(&mut canvas, &sky, &mut shape_rng),
            }
        }
        SceneKind::Flow => {
            flow::paint(&mut canvas, &InkPalette::new(hints.mood, &hints.tints, &mut color_rng), &mut shape_rng);
        }
        SceneKind::Bloom => {
            let inks = InkPalette::new(hints.mood, &hints.tints, &mut color_rng);
            bloom::paint(&mut canvas, &inks, hints.tints.is_empty(), &mut shape_rng);
        }
        SceneKind::Tiles => {
            tiles::paint(&mut canvas, &InkPalette::new(hints.mood, &hints.tints, &mut color_rng), &mut shape_rng);
        }
        // Stars and planets are painted in the colors of night, because there are no stars by day.
        SceneKind::Stars | SceneKind::Planet => {
            let inks = InkPalette::new(Some(LightMood::Night), &hints.tints, &mut color_rng);
            stars::paint(&mut canvas, &inks, hints.tints.first().copied(), &mut shape_rng, scene == SceneKind::Planet);
        }
    }
    canvas
}
