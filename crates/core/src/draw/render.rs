//! The picture as SVG text.

use std::fmt::Write as _;

use super::layers::START_RADIUS;
use super::legend::{Item, SIGN, Sign};
use super::plate::{ICON, Icon, Line, Plate};
use super::route::{ARROW, Label, Rect, Wire, path, round};
use super::scene::{MARGIN, Scene, scene};
use super::style::STYLE;
use super::text::{clean, escape};
use super::words::Tone;
use crate::model::{Lifecycle, Ready};

/// Draws a lifecycle as an SVG that reads in light and dark surroundings.
pub fn svg(lifecycle: &Lifecycle) -> String {
    let scene = scene(lifecycle);
    render(lifecycle, &scene)
}

fn render(lifecycle: &Lifecycle, scene: &Scene) -> String {
    let mut out = String::new();
    let (width, height) = (scene.width, scene.height);
    let name = escape(&tooltip(&lifecycle.name, ""));
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" role=\"img\" aria-label=\"{name}\">"
    );
    let _ = writeln!(out, "<title>{name}</title>");
    let _ = writeln!(out, "<style>\n{STYLE}</style>");
    let _ = writeln!(
        out,
        "<rect class=\"ground\" x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"12\"/>",
        width - 1.0,
        height - 1.0
    );
    for line in &scene.title {
        text_line(&mut out, line, MARGIN, 0.0, Anchor::Start);
    }
    let _ = writeln!(out, "<g transform=\"translate({} {})\">", scene.drawing.0, scene.drawing.1);
    for wire in &scene.routed.wires {
        draw_wire(&mut out, wire);
    }
    if let Some((x, y)) = scene.routed.start {
        let _ = writeln!(out, "<circle class=\"icon\" cx=\"{x}\" cy=\"{y}\" r=\"{START_RADIUS}\"/>");
    }
    for label in &scene.routed.labels {
        draw_label(&mut out, label, &scene.plates.labels[label.edge]);
    }
    for (node, rect) in &scene.routed.boxes {
        draw_box(&mut out, lifecycle, *node - 1, *rect, &scene.plates.boxes[*node]);
    }
    out.push_str("</g>\n");
    let _ = writeln!(out, "<g transform=\"translate({MARGIN} {})\">", scene.legend_top);
    for item in &scene.legend {
        draw_item(&mut out, item);
    }
    out.push_str("</g>\n</svg>\n");
    out
}

fn tone_class(tone: Option<Tone>) -> &'static str {
    match tone {
        Some(Tone::Called) => " w-called",
        Some(Tone::Engine) => " w-engine",
        Some(Tone::Timer) => " w-timer",
        None => "",
    }
}

fn draw_wire(out: &mut String, wire: &Wire) {
    let class = tone_class(wire.tone);
    let (x, y) = wire.tip;
    let base = if wire.up { y + ARROW } else { y - ARROW };
    let _ = writeln!(out, "<path class=\"wire{class}\" d=\"{}\"/>", path(&wire.straights, wire.up));
    let _ = writeln!(
        out,
        "<path class=\"head{class}\" d=\"M{x} {y}L{} {}H{}Z\"/>",
        round(x - 4.5),
        round(base),
        round(x + 4.5)
    );
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Start,
    Middle,
    End,
}

fn text_line(out: &mut String, line: &Line, x: f64, top: f64, anchor: Anchor) {
    let y = round(top + line.baseline);
    let mut text_x = if anchor == Anchor::Start { x + line.indent } else { x };
    if let Some(icon) = line.icon {
        let icon_x = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - line.width / 2.0,
            Anchor::End => x - ICON + 3.0,
        };
        match anchor {
            Anchor::Start => text_x += ICON,
            Anchor::Middle => text_x += ICON / 2.0,
            Anchor::End => text_x -= ICON,
        }
        draw_icon(out, icon, icon_x, y);
    }
    let anchor = match anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let text_x = round(text_x);
    match line.runs.as_slice() {
        [run] => {
            let _ = writeln!(
                out,
                "<text class=\"{}\" x=\"{text_x}\" y=\"{y}\"{anchor}>{}</text>",
                run.class,
                escape(&run.text)
            );
        }
        runs => {
            let _ = write!(out, "<text x=\"{text_x}\" y=\"{y}\"{anchor}>");
            for run in runs {
                // Some programs drop a space at the edge of a run.
                let text = escape(&run.text);
                let (space, text) = text.strip_prefix(' ').map_or(("", &*text), |rest| ("\u{a0}", rest));
                let _ = write!(out, "<tspan class=\"{}\">{space}{text}</tspan>", run.class);
            }
            out.push_str("</text>\n");
        }
    }
}

/// `y` is the baseline of the words beside it.
fn draw_icon(out: &mut String, icon: Icon, x: f64, y: f64) {
    let (x, y) = (round(x), round(y));
    let _ = match icon {
        Icon::Clock => {
            let (cx, cy) = (round(x + 5.5), round(y - 4.3));
            writeln!(
                out,
                "<path class=\"clock\" d=\"M{cx} {}a5 5 0 1 1 -0.01 0zM{cx} {}V{cy}H{}\"/>",
                round(cy - 5.0),
                round(cy - 3.0),
                round(cx + 2.4)
            )
        }
        Icon::Ready => {
            writeln!(out, "<path class=\"icon\" d=\"M{} {}v10l9 -5z\"/>", round(x + 1.0), round(y - 10.0))
        }
        Icon::Rest => {
            writeln!(out, "<path class=\"icon\" d=\"M{} {}h3v10h-3zm6 0h3v10h-3z\"/>", round(x + 1.0), round(y - 10.0))
        }
    };
}

fn draw_groups(out: &mut String, plate: &Plate, x: f64, y: f64, anchor: Anchor) {
    for group in &plate.rows {
        out.push_str("<g>");
        if !group.tip.is_empty() {
            let _ = write!(out, "<title>{}</title>", escape(&group.tip));
        }
        out.push('\n');
        for line in &group.lines {
            text_line(out, line, x, y, anchor);
        }
        out.push_str("</g>\n");
    }
}

fn draw_label(out: &mut String, label: &Label, plate: &Plate) {
    let Rect { x, y, width, .. } = label.rect;
    if label.left_of_edge {
        draw_groups(out, plate, x + width, y, Anchor::End);
    } else {
        draw_groups(out, plate, x, y, Anchor::Start);
    }
}

fn draw_box(out: &mut String, lifecycle: &Lifecycle, state: usize, rect: Rect, plate: &Plate) {
    let Some(state) = lifecycle.states.get(state) else { return };
    let mut class = String::from("state");
    for (holds, name) in [
        (state.ready != Ready::No, " ready"),
        (state.rest, " rest"),
        (state.is_final, " final"),
        (state.reserved, " reserved"),
    ] {
        if holds {
            class.push_str(name);
        }
    }
    let Rect { x, y, width, height } = rect;
    let _ = writeln!(out, "<g class=\"{class}\">");
    let _ = writeln!(out, "<title>{}</title>", escape(&tooltip(&state.name, &state.about)));
    let _ = writeln!(out, "<rect class=\"box\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"10\"/>");
    if state.is_final {
        let _ = writeln!(
            out,
            "<rect class=\"inner\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"7\"/>",
            round(x + 3.5),
            round(y + 3.5),
            width - 7.0,
            height - 7.0
        );
    }
    let middle = round(x + width / 2.0);
    for line in &plate.head {
        text_line(out, line, middle, y, Anchor::Middle);
    }
    if let Some(divider) = plate.divider {
        let _ = writeln!(
            out,
            "<path class=\"divider\" d=\"M{} {}H{}\"/>",
            round(x + 10.0),
            round(y + divider),
            round(x + width - 10.0)
        );
    }
    draw_groups(out, plate, x + 12.0, y, Anchor::Start);
    out.push_str("</g>\n");
}

fn tooltip(name: &str, about: &str) -> String {
    let first = |text: &str, most| -> String { clean(text).chars().take(most).collect() };
    let (name, about) = (first(name, 200), first(about, 600));
    if about.is_empty() { name } else { format!("{name}: {about}") }
}

fn draw_item(out: &mut String, item: &Item) {
    let (x, y) = (round(item.x), item.y);
    let middle = y + 9.0;
    let small_box = |class: &str, extra: &str| {
        format!(
            "<g class=\"{class}\"><rect class=\"box\" x=\"{x}\" y=\"{}\" width=\"22\" height=\"14\" rx=\"4\"/>{extra}</g>\n",
            middle - 7.0
        )
    };
    match item.sign {
        Sign::Start => {
            let _ = writeln!(out, "<circle class=\"icon\" cx=\"{}\" cy=\"{middle}\" r=\"6\"/>", round(x + 12.0));
        }
        Sign::Ready => {
            out.push_str(&small_box("ready", ""));
            draw_icon(out, Icon::Ready, x + 6.0, middle + 5.0);
        }
        Sign::Rest => {
            out.push_str(&small_box("rest", ""));
            draw_icon(out, Icon::Rest, x + 6.0, middle + 5.0);
        }
        Sign::Final => {
            let inner = format!(
                "<rect class=\"inner\" x=\"{}\" y=\"{}\" width=\"16\" height=\"8\" rx=\"2\"/>",
                round(x + 3.0),
                middle - 4.0
            );
            out.push_str(&small_box("final", &inner));
        }
        Sign::Reserved => out.push_str(&small_box("reserved", "")),
        Sign::Called | Sign::Engine | Sign::Timer | Sign::Mixed => {
            let tone = match item.sign {
                Sign::Called => Some(Tone::Called),
                Sign::Engine => Some(Tone::Engine),
                Sign::Timer => Some(Tone::Timer),
                _ => None,
            };
            let class = tone_class(tone);
            let _ = writeln!(out, "<path class=\"wire{class}\" d=\"M{x} {middle}H{}\"/>", round(x + 17.0));
            let _ = writeln!(
                out,
                "<path class=\"head{class}\" d=\"M{} {middle}L{} {}V{}Z\"/>",
                round(x + 24.0),
                round(x + 16.0),
                middle - 4.5,
                middle + 4.5
            );
        }
        Sign::Words => {}
    }
    let sign = if item.sign == Sign::Words { 0.0 } else { SIGN };
    let mut line = item.line.clone();
    line.baseline = y + 13.0;
    text_line(out, &line, x + sign, 0.0, Anchor::Start);
}
