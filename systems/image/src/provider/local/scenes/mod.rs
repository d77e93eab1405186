//! What the artist can draw: five places on earth, the sky at night, and three patterns.

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
use super::chance::Chance;
use super::palette::{Inks, Mood, Sky, USUAL};
use super::words::Hints;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scene {
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

const ALL: [Scene; 10] = [
    Scene::Hills,
    Scene::Mountains,
    Scene::Forest,
    Scene::Sea,
    Scene::City,
    Scene::Flow,
    Scene::Bloom,
    Scene::Tiles,
    Scene::Stars,
    Scene::Planet,
];

/// The prompt, painted.
pub(super) fn paint(prompt: &str, side: u32) -> Canvas {
    let hints = Hints::of(prompt);
    let mut first = Chance::of(prompt, "scene");
    let scene = hints.scene.unwrap_or(*first.pick(&ALL));
    let mood = hints.mood.unwrap_or(*first.pick(&USUAL));
    let mut colours = Chance::of(prompt, "colours");
    let mut chance = Chance::of(prompt, "shapes");
    let mut canvas = Canvas::new(side);
    match scene {
        Scene::Hills | Scene::Mountains | Scene::Forest | Scene::Sea | Scene::City => {
            let sky = Sky::new(mood, &hints.tints, &mut colours);
            match scene {
                Scene::Mountains => mountains::paint(&mut canvas, &sky, &mut chance),
                Scene::Forest => forest::paint(&mut canvas, &sky, &mut chance),
                Scene::Sea => sea::paint(&mut canvas, &sky, &mut chance),
                Scene::City if hints.tints.is_empty() => city::paint(&mut canvas, &sky.of_a_town(), &mut chance),
                Scene::City => city::paint(&mut canvas, &sky, &mut chance),
                _ => hills::paint(&mut canvas, &sky, &mut chance),
            }
        }
        Scene::Flow => flow::paint(&mut canvas, &Inks::new(hints.mood, &hints.tints, &mut colours), &mut chance),
        Scene::Bloom => {
            let inks = Inks::new(hints.mood, &hints.tints, &mut colours);
            bloom::paint(&mut canvas, &inks, hints.tints.is_empty(), &mut chance);
        }
        Scene::Tiles => tiles::paint(&mut canvas, &Inks::new(hints.mood, &hints.tints, &mut colours), &mut chance),
        // There are no stars by day, so their planets are painted in the colours of night.
        Scene::Stars | Scene::Planet => {
            let inks = Inks::new(Some(Mood::Night), &hints.tints, &mut colours);
            stars::paint(&mut canvas, &inks, hints.tints.first().copied(), &mut chance, scene == Scene::Planet);
        }
    }
    canvas
}
