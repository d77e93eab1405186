//! Measures, cuts, wraps and escapes text.

/// Widths of the characters from space to `~`, in hundredths of the font size. They are those of a wide system font, so
/// that text in a narrower font also fits.
const CHAR_WIDTHS: [u8; 95] = [
    32, 40, 46, 84, 64, 95, 78, 28, 39, 39, 50, 84, 32, 36, 32, 34, // space to /
    64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 34, 34, 84, 84, 84, 56, // 0 to ?
    100, 68, 69, 72, 77, 67, 61, 78, 75, 29, 50, 67, 56, 86, 75, 79, // @ to O
    67, 79, 72, 67, 61, 73, 68, 99, 69, 67, 69, 39, 34, 39, 84, 56, // P to _
    50, 61, 63, 55, 63, 62, 35, 63, 63, 28, 28, 58, 28, 97, 63, 61, // ` to o
    63, 63, 41, 52, 39, 63, 59, 82, 59, 59, 52, 64, 34, 64, 84, // p to ~
];

/// Bold text is about this much wider.
const BOLD_WIDTH_FACTOR: f64 = 1.13;

const ELLIPSIS: char = '…';

fn char_width(c: char) -> f64 {
    let code = c as u32;
    match code {
        0x20..=0x7e => f64::from(CHAR_WIDTHS[(code - 0x20) as usize]) / 100.0,
        // Combining marks count too: a gap is better than an overflow.
        0x00..=0x2fff => 1.0,
        // Ideographs, full-width forms, emoji, and characters of fallback fonts.
        _ => 1.4,
    }
}

pub(crate) fn text_width(text: &str, size: f64, bold: bool) -> f64 {
    let em: f64 = text.chars().map(char_width).sum();
    em * size * if bold { BOLD_WIDTH_FACTOR } else { 1.0 }
}

/// Cuts the text to one line of at most `max_width` pixels, with an ellipsis if something was cut.
pub(crate) fn fit_to_width(text: &str, max_width: f64, size: f64, bold: bool) -> String {
    let text = sanitize_line(text);
    // Even the narrowest character takes a quarter of the font size. Characters beyond that cannot be visible and are
    // not measured.
    let visible = take_chars(&text, max_width / (size * 0.25));
    if visible.len() == text.len() && text_width(visible, size, bold) <= max_width {
        return text;
    }
    let mut out = String::new();
    let room = max_width - text_width(&ELLIPSIS.to_string(), size, bold);
    let mut used = 0.0;
    for c in visible.chars() {
        used += text_width(c.encode_utf8(&mut [0; 4]), size, bold);
        if used > room {
            break;
        }
        out.push(c);
    }
    out.truncate(out.trim_end().len());
    out.push(ELLIPSIS);
    out
}

fn take_chars(text: &str, max_chars: f64) -> &str {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count of characters")]
    let chars = max_chars.max(1.0) as usize;
    text.char_indices().nth(chars).map_or(text, |(at, _)| &text[..at])
}

/// Wraps the text to lines of at most `max_width` pixels, at spaces and preferably before logical operators. Returns at
/// most `max_lines` lines and cuts the last one.
pub(crate) fn wrap_text(text: &str, max_width: f64, size: f64, bold: bool, max_lines: usize) -> Vec<String> {
    let text = sanitize_line(text);
    let mut rest = text.as_str();
    let mut out = Vec::new();
    while !rest.is_empty() {
        if out.len() + 1 == max_lines {
            out.push(fit_to_width(rest, max_width, size, bold));
            break;
        }
        let (line, after) = first_line(rest, max_width, size, bold);
        out.push(line.to_owned());
        rest = after;
    }
    out
}

fn first_line(text: &str, max_width: f64, size: f64, bold: bool) -> (&str, &str) {
    let mut used = 0.0;
    let mut depth = 0_i32;
    let mut break_at = None;
    // Best break so far: outside of brackets first, then before the operator that binds most loosely.
    let mut best: Option<(i32, i32, usize)> = None;
    for (at, c) in text.char_indices() {
        match c {
            ' ' => {
                break_at = Some(at);
                let place = break_penalty(text, at).map(|looseness| (depth, looseness, at));
                // An early break would leave the line nearly empty. Among equal breaks, the last one wins.
                if let Some(place) = place
                    && used > max_width * 0.3
                    && best.is_none_or(|best| (place.0, place.1) <= (best.0, best.1))
                {
                    best = Some(place);
                }
            }
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            _ => {}
        }
        used += text_width(c.encode_utf8(&mut [0; 4]), size, bold);
        if used > max_width && at > 0 {
            let cut = best.map(|(.., at)| at).or(break_at).filter(|at| *at > 0).unwrap_or(at);
            return (text[..cut].trim_end(), text[cut..].trim_start());
        }
    }
    (text, "")
}

/// Returns the penalty for a break at this space; lower is better. A break belongs before a logical operator, or before
/// the text of another transfer or effect.
fn break_penalty(text: &str, space: usize) -> Option<i32> {
    let rest = &text[space + 1..];
    let starts = |words: &[&str]| words.iter().any(|word| rest.starts_with(word));
    if starts(&["|| "]) {
        Some(0)
    } else if starts(&["&& "]) {
        Some(1)
    } else if starts(&["? ", ": "]) {
        Some(2)
    } else if starts(&["if "]) || (starts(&["("]) && text[..space].contains('→')) {
        Some(3)
    } else {
        None
    }
}

/// Returns one line without characters that XML forbids or that change the reading direction.
pub(crate) fn sanitize_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' ' | '\t' | '\n' | '\r' => {
                if !out.is_empty() && !out.ends_with(' ') {
                    out.push(' ');
                }
            }
            c if is_forbidden_in_xml(c) => out.push('\u{fffd}'),
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Returns whether XML forbids the character, or some parsers reject it.
fn is_forbidden_in_xml(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Escapes text for an XML element or a double-quoted attribute.
pub(crate) fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' => out.push('\n'),
            c if is_forbidden_in_xml(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
