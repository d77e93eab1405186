//! Writes the scene as SVG.

use std::fmt::Write as _;

use crate::labels::TriggerKind;
use crate::layers::START_RADIUS;
use crate::legend::{LegendItem, LegendSymbol, SYMBOL_WIDTH};
use crate::route::{ARROW_LENGTH, EdgeLabel, EdgePath, PixelRect, round_to_tenth, svg_path_data};
use crate::scene::{DiagramScene, SCENE_MARGIN, build_scene};
use crate::style::STYLE_SHEET;
use crate::text::{escape_xml, sanitize_line};
use crate::text_block::{ICON_WIDTH, LineIcon, TextBlock, TextLine};
use onceward_core::model::{Lifecycle, StateReadiness};

/// Renders a lifecycle as SVG for light and dark color schemes.
pub fn render_svg(lifecycle: &Lifecycle) -> String {
    let scene = build_scene(lifecycle);
    write_svg(lifecycle, &scene)
}

fn write_svg(lifecycle: &Lifecycle, scene: &DiagramScene) -> String {
    let mut out = String::new();
    let (width, height) = (scene.width, scene.height);
    let name = escape_xml(&tooltip(&lifecycle.name, ""));
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{name}\">"
    );
    let _ = writeln!(out, "<title>{name}</title>");
    let _ = writeln!(out, "<style>\n{STYLE_SHEET}</style>");
    let _ = writeln!(
        out,
        "<rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"12\"/>",
        width - 1.0,
        height - 1.0
    );
    for line in &scene.title {
        draw_line(&mut out, line, SCENE_MARGIN, 0.0, TextAnchor::Start);
    }
    let _ = writeln!(out, "<g transform=\"translate({} {})\">", scene.drawing_origin.0, scene.drawing_origin.1);
    for wire in &scene.routed_graph.edge_paths {
        draw_edge(&mut out, wire);
    }
    if let Some((x, y)) = scene.routed_graph.start {
        let _ = writeln!(out, "<circle class=\"icon\" cx=\"{x}\" cy=\"{y}\" r=\"{START_RADIUS}\"/>");
    }
    for label in &scene.routed_graph.labels {
        draw_label(&mut out, label, &scene.blocks.labels[label.edge]);
    }
    for (node, rect) in &scene.routed_graph.boxes {
        draw_box(&mut out, lifecycle, *node - 1, *rect, &scene.blocks.boxes[*node]);
    }
    out.push_str("</g>\n");
    let _ = writeln!(out, "<g transform=\"translate({SCENE_MARGIN} {})\">", scene.legend_top);
    for item in &scene.legend {
        draw_legend_item(&mut out, item);
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn trigger_class(tone: Option<TriggerKind>) -> &'static str {
    match tone {
        Some(TriggerKind::Called) => " w-called",
        Some(TriggerKind::Engine) => " w-engine",
        Some(TriggerKind::Timer) => " w-timer",
        None => "",
    }
}

fn draw_edge(out: &mut String, wire: &EdgePath) {
    let class = trigger_class(wire.trigger);
    let (x, y) = wire.arrow_tip;
    let base = if wire.points_up { y + ARROW_LENGTH } else { y - ARROW_LENGTH };
    let _ = writeln!(out, "<path class=\"wire{class}\" d=\"{}\"/>", svg_path_data(&wire.straights, wire.points_up));
    let _ = writeln!(
        out,
        "<path class=\"head{class}\" d=\"M{x} {y}L{} {}H{}Z\"/>",
        round_to_tenth(x - 4.5),
        round_to_tenth(base),
        round_to_tenth(x + 4.5)
    );
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TextAnchor {
    Start,
    Middle,
    End,
}

fn draw_line(out: &mut String, line: &TextLine, x: f64, top: f64, anchor: TextAnchor) {
    let y = round_to_tenth(top + line.baseline);
    let mut text_x = if anchor == TextAnchor::Start { x + line.indent } else { x };
    if let Some(icon) = line.icon {
        let icon_x = match anchor {
            TextAnchor::Start => x,
            TextAnchor::Middle => x - line.width / 2.0,
            TextAnchor::End => x - ICON_WIDTH + 3.0,
        };
        match anchor {
            TextAnchor::Start => text_x += ICON_WIDTH,
            TextAnchor::Middle => text_x += ICON_WIDTH / 2.0,
            TextAnchor::End => text_x -= ICON_WIDTH,
        }
        draw_icon(out, icon, icon_x, y);
    }
    let anchor = match anchor {
        TextAnchor::Start => "",
        TextAnchor::Middle => " text-anchor=\"middle\"",
        TextAnchor::End => " text-anchor=\"end\"",
    };
    let text_x = round_to_tenth(text_x);
    match line.runs.as_slice() {
        [run] => {
            let _ = writeln!(
                out,
                "<text class=\"{}\" x=\"{text_x}\" y=\"{y}\"{anchor}>{}</text>",
                run.class,
                escape_xml(&run.text)
            );
        }
        runs => {
            let _ = write!(out, "<text x=\"{text_x}\" y=\"{y}\"{anchor}>");
            for run in runs {
                // Some viewers drop a space at the edge of a run.
                let text = escape_xml(&run.text);
                let (space, text) = text.strip_prefix(' ').map_or(("", &*text), |rest| ("\u{a0}", rest));
                let _ = write!(out, "<tspan class=\"{}\">{space}{text}</tspan>", run.class);
            }
            out.push_str("</text>\n");
        }
    }
}

/// Draws an icon. `y` is the baseline of the text beside it.
fn draw_icon(out: &mut String, icon: LineIcon, x: f64, y: f64) {
    let (x, y) = (round_to_tenth(x), round_to_tenth(y));
    let _ = match icon {
        LineIcon::Clock => {
            let (cx, cy) = (round_to_tenth(x + 5.5), round_to_tenth(y - 4.3));
            writeln!(
                out,
                "<path class=\"clock\" d=\"M{cx} {}a5 5 0 1 1 -0.01 0zM{cx} {}V{cy}H{}\"/>",
                round_to_tenth(cy - 5.0),
                round_to_tenth(cy - 3.0),
                round_to_tenth(cx + 2.4)
            )
        }
        LineIcon::Ready => {
            writeln!(
                out,
                "<path class=\"icon\" d=\"M{} {}v10l9 -5z\"/>",
                round_to_tenth(x + 1.0),
                round_to_tenth(y - 10.0)
            )
        }
        LineIcon::Rest => {
            writeln!(
                out,
                "<path class=\"icon\" d=\"M{} {}h3v10h-3zm6 0h3v10h-3z\"/>",
                round_to_tenth(x + 1.0),
                round_to_tenth(y - 10.0)
            )
        }
    };
}

fn draw_groups(out: &mut String, block: &TextBlock, x: f64, y: f64, anchor: TextAnchor) {
    for group in &block.groups {
        out.push_str("<g>");
        if !group.tooltip.is_empty() {
            let _ = write!(out, "<title>{}</title>", escape_xml(&group.tooltip));
        }
        out.push('\n');
        for line in &group.lines {
            draw_line(out, line, x, y, anchor);
        }
        out.push_str("</g>\n");
    }
}

fn draw_label(out: &mut String, label: &EdgeLabel, block: &TextBlock) {
    let PixelRect { x, y, width, .. } = label.rect;
    if label.left_of_edge {
        draw_groups(out, block, x + width, y, TextAnchor::End);
    } else {
        draw_groups(out, block, x, y, TextAnchor::Start);
    }
}

fn draw_box(out: &mut String, lifecycle: &Lifecycle, state: usize, rect: PixelRect, block: &TextBlock) {
    let Some(state) = lifecycle.states.get(state) else { return };
    let mut class = String::from("state");
    for (holds, name) in [
        (state.readiness != StateReadiness::NotReady, " ready"),
        (state.can_rest, " rest"),
        (state.is_final, " final"),
        (state.is_reserved, " reserved"),
    ] {
        if holds {
            class.push_str(name);
        }
    }
    let PixelRect { x, y, width, height } = rect;
    let _ = writeln!(out, "<g class=\"{class}\">");
    let _ = writeln!(out, "<title>{}</title>", escape_xml(&tooltip(&state.name, &state.about)));
    let _ = writeln!(out, "<rect class=\"box\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"10\"/>");
    if state.is_final {
        let _ = writeln!(
            out,
            "<rect class=\"inner\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"7\"/>",
            round_to_tenth(x + 3.5),
            round_to_tenth(y + 3.5),
            width - 7.0,
            height - 7.0
        );
    }
    let middle = round_to_tenth(x + width / 2.0);
    for line in &block.head {
        draw_line(out, line, middle, y, TextAnchor::Middle);
    }
    if let Some(divider) = block.divider {
        let _ = writeln!(
            out,
            "<path class=\"divider\" d=\"M{} {}H{}\"/>",
            round_to_tenth(x + 10.0),
            round_to_tenth(y + divider),
            round_to_tenth(x + width - 10.0)
        );
    }
    draw_groups(out, block, x + 12.0, y, TextAnchor::Start);
    out.push_str("</g>\n");
}

fn tooltip(name: &str, about: &str) -> String {
    let first = |text: &str, max_chars| -> String { sanitize_line(text).chars().take(max_chars).collect() };
    let (name, about) = (first(name, 200), first(about, 600));
    if about.is_empty() { name } else { format!("{name}: {about}") }
}

fn draw_legend_item(out: &mut String, item: &LegendItem) {
    let (x, y) = (round_to_tenth(item.x), item.y);
    let middle = y + 9.0;
    let small_box = |class: &str, extra: &str| {
        format!(
            "<g class=\"{class}\"><rect class=\"box\" x=\"{x}\" y=\"{}\" width=\"22\" height=\"14\" rx=\"4\"/>{extra}</g>\n",
            middle - 7.0
        )
    };
    match item.symbol {
        LegendSymbol::Start => {
            let _ =
                writeln!(out, "<circle class=\"icon\" cx=\"{}\" cy=\"{middle}\" r=\"6\"/>", round_to_tenth(x + 12.0));
        }
        LegendSymbol::Ready => {
            out.push_str(&small_box("ready", ""));
            draw_icon(out, LineIcon::Ready, x + 6.0, middle + 5.0);
        }
        LegendSymbol::Rest => {
            out.push_str(&small_box("rest", ""));
            draw_icon(out, LineIcon::Rest, x + 6.0, middle + 5.0);
        }
        LegendSymbol::Final => {
            let inner = format!(
                "<rect class=\"inner\" x=\"{}\" y=\"{}\" width=\"16\" height=\"8\" rx=\"2\"/>",
                round_to_tenth(x + 3.0),
                middle - 4.0
            );
            out.push_str(&small_box("final", &inner));
        }
        LegendSymbol::Reserved => out.push_str(&small_box("reserved", "")),
        LegendSymbol::Called | LegendSymbol::Engine | LegendSymbol::Timer | LegendSymbol::Mixed => {
            let tone = match item.symbol {
                LegendSymbol::Called => Some(TriggerKind::Called),
                LegendSymbol::Engine => Some(TriggerKind::Engine),
                LegendSymbol::Timer => Some(TriggerKind::Timer),
                _ => None,
            };
            let class = trigger_class(tone);
            let _ = writeln!(out, "<path class=\"wire{class}\" d=\"M{x} {middle}H{}\"/>", round_to_tenth(x + 17.0));
            let _ = writeln!(
                out,
                "<path class=\"head{class}\" d=\"M{} {middle}L{} {}V{}Z\"/>",
                round_to_tenth(x + 24.0),
                round_to_tenth(x + 16.0),
                middle - 4.5,
                middle + 4.5
            );
        }
        LegendSymbol::TextOnly => {}
    }
    let sign = if item.symbol == LegendSymbol::TextOnly { 0.0 } else { SYMBOL_WIDTH };
    let mut line = item.line.clone();
    line.baseline = y + 13.0;
    draw_line(out, &line, x + sign, 0.0, TextAnchor::Start);
}
