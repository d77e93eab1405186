//! Draws a lifecycle as a Mermaid state diagram or as SVG.
//!
//! Both depend on the compiled lifecycle only, so the output is deterministic. The SVG needs no browser, network or
//! layout program.
//!
//! The SVG is a layered graph drawing, one step per file: texts of transitions (`labels`), nodes and edges (`graph`),
//! `rank`, `layers`, `order`, `coordinates`, `route`, `svg`. Lifecycle files come from untrusted authors. Each step is
//! therefore bounded, and each text is cut, measured and escaped (`text`).

mod coordinates;
mod graph;
mod labels;
mod layers;
mod legend;
mod mermaid;
mod order;
mod rank;
mod route;
mod scene;
mod style;
mod svg;
mod text;
mod text_block;

#[cfg(test)]
mod tests;

pub use mermaid::render_mermaid;
pub use svg::render_svg;
