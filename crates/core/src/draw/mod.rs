//! Pictures of a lifecycle: `mermaid` for pages that render it, `svg` drawn here without browser, network or
//! layout program. Both are functions of the compiled lifecycle alone and give the same text every time.
//!
//! The drawing goes in steps, one file each: what a row says (`words`), which nodes and edges there are
//! (`graph`), rank, order, place, route, render. Lifecycle files come from untrusted authors, so every step is
//! bounded and every text is cut, measured and escaped (`text`).

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
