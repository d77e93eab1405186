//! Diagnostics as people read them, in the manner of rustc, and as JSON for tools.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::{Diagnostic, File, Files, Severity, Span};

/// Characters of a source line that are shown; a longer line is cut around what is underlined.
const SHOWN_CHARS: usize = 140;
/// Characters kept before the underlined part of a line that is cut.
const BEFORE_CHARS: usize = 60;
const TAB: &str = "    ";

/// A place as people name it: line and column from 1, columns counted in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

struct Line<'a> {
    number: usize,
    start: usize,
    /// Without its line ending.
    text: &'a str,
}

impl File {
    /// Where a byte stands. A byte past the end stands at the end.
    pub fn position(&self, byte: usize) -> Position {
        let line = self.line(byte);
        let within = floor(line.text, byte.saturating_sub(line.start));
        Position { line: line.number, column: line.text[..within].chars().count() + 1 }
    }

    fn line(&self, byte: usize) -> Line<'_> {
        let text = &*self.text;
        let byte = floor(text, byte);
        let start = text[..byte].rfind('\n').map_or(0, |at| at + 1);
        let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let number = text[..start].bytes().filter(|b| *b == b'\n').count() + 1;
        Line { number, start, text: text[start..end].trim_end_matches('\r') }
    }
}

/// The last character boundary at or before `byte`.
fn floor(text: &str, byte: usize) -> usize {
    let mut byte = byte.min(text.len());
    while !text.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}

/// Plain words or words with terminal colours.
struct Paint {
    color: bool,
}

impl Paint {
    fn as_is(&self, style: &str, text: &str) -> String {
        if self.color && !text.is_empty() { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn frame(&self, text: &str) -> String {
        self.as_is("1;34", text)
    }
}

struct Mark<'a> {
    at: Span,
    label: &'a str,
    primary: bool,
}

impl Diagnostic {
    /// The message with the lines it speaks of, underlined.
    pub fn render(&self, files: &Files, color: bool) -> String {
        let paint = Paint { color };
        let (word, style) = self.severity.word();
        let mut out = format!(
            "{}{}\n",
            paint.as_is(style, &format!("{word}[{}]", self.code)),
            paint.as_is("1", &format!(": {}", visible(&self.message)))
        );
        let mut marks = vec![Mark { at: self.at, label: &self.label, primary: true }];
        marks.extend(self.also.iter().map(|(at, label)| Mark { at: *at, label, primary: false }));
        let gutter = marks.iter().map(|mark| line_number(files, mark.at).to_string().len()).max().unwrap_or(1);
        let mut order: Vec<u32> = Vec::new();
        for mark in &marks {
            if !order.contains(&mark.at.file) {
                order.push(mark.at.file);
            }
        }
        for (nth, index) in order.into_iter().enumerate() {
            let Some(file) = files.files.get(index as usize) else { continue };
            let mut here: Vec<&Mark> = marks.iter().filter(|mark| mark.at.file == index).collect();
            let Position { line, column } = file.position(here[0].at.start as usize);
            here.sort_by_key(|mark| (mark.at.start, !mark.primary));
            let arrow = if nth == 0 { "-->" } else { ":::" };
            let place = format!("{}:{line}:{column}", visible(&file.name));
            let _ = writeln!(out, "{:gutter$}{} {place}", "", paint.frame(arrow));
            source_lines(&mut out, file, &here, gutter, style, &paint);
        }
        if let Some(help) = &self.help {
            let indent = format!("\n{:gutter$}         ", "");
            let help = visible(help).replace('\n', &indent);
            let _ = writeln!(out, "{:gutter$} {} {}: {help}", "", paint.frame("="), paint.as_is("1", "help"));
        }
        out
    }

    /// For tools: `check --json`.
    pub fn to_json(&self, files: &Files) -> Json {
        let mut object = place_json(files, self.at);
        object["code"] = json!(self.code);
        object["severity"] = json!(self.severity.word().0);
        object["message"] = json!(self.message);
        object["label"] = json!(self.label);
        object["help"] = json!(self.help);
        object["also"] = self
            .also
            .iter()
            .map(|(at, label)| {
                let mut place = place_json(files, *at);
                place["label"] = json!(label);
                place
            })
            .collect();
        object
    }
}

impl Severity {
    const fn word(self) -> (&'static str, &'static str) {
        match self {
            Self::Error => ("error", "1;31"),
            Self::Warning => ("warning", "1;33"),
        }
    }
}

/// All of them by file and position, and a closing line that counts them. Empty where there are none.
pub fn render_all(diagnostics: &[Diagnostic], files: &Files, color: bool) -> String {
    let mut sorted: Vec<&Diagnostic> = diagnostics.iter().collect();
    sorted.sort_by_key(|diagnostic| (diagnostic.at, diagnostic.severity, diagnostic.code));
    let mut out = String::new();
    for diagnostic in &sorted {
        out.push_str(&diagnostic.render(files, color));
        out.push('\n');
    }
    if let Some(summary) = summary(diagnostics) {
        let _ = writeln!(out, "{summary}");
    }
    out
}

/// `2 errors, 1 warning`; `None` where there is neither.
pub fn summary(diagnostics: &[Diagnostic]) -> Option<String> {
    let count = |severity| diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
    let words = |count: usize, word: &str| match count {
        0 => None,
        1 => Some(format!("1 {word}")),
        _ => Some(format!("{count} {word}s")),
    };
    let parts: Vec<String> = [words(count(Severity::Error), "error"), words(count(Severity::Warning), "warning")]
        .into_iter()
        .flatten()
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn place_json(files: &Files, at: Span) -> Json {
    let Some(file) = files.files.get(at.file as usize) else { return json!({}) };
    let start = file.position(at.start as usize);
    let end = file.position(at.end as usize);
    json!({
        "file": file.name, "line": start.line, "column": start.column,
        "end": { "line": end.line, "column": end.column },
    })
}

fn line_number(files: &Files, at: Span) -> usize {
    files.files.get(at.file as usize).map_or(1, |file| file.line(at.start as usize).number)
}

fn source_lines(out: &mut String, file: &File, marks: &[&Mark], gutter: usize, style: &str, paint: &Paint) {
    let bar = paint.frame("|");
    let _ = writeln!(out, "{:gutter$} {bar}", "");
    let mut shown: Option<usize> = None;
    let mut at = 0;
    while at < marks.len() {
        let line = file.line(marks[at].at.start as usize);
        let same =
            marks[at..].iter().take_while(|mark| file.line(mark.at.start as usize).number == line.number).count();
        if shown.is_some_and(|before| line.number > before + 1) {
            let _ = writeln!(out, "{}", paint.frame("..."));
        }
        let window = Window::around(&line, marks[at].at);
        let number = paint.frame(&format!("{:>gutter$}", line.number));
        let _ = writeln!(out, "{number} {bar} {}", window.text(&line));
        for mark in &marks[at..at + same] {
            let (indent, width) = window.underline(&line, mark.at);
            let (sign, style) = if mark.primary { ("^", style) } else { ("-", "1;34") };
            let label = if mark.label.is_empty() { String::new() } else { format!(" {}", visible(mark.label)) };
            let under = paint.as_is(style, &format!("{}{label}", sign.repeat(width)));
            let _ = writeln!(out, "{:gutter$} {bar} {:indent$}{under}", "", "");
        }
        shown = Some(line.number);
        at += same;
    }
    let _ = writeln!(out, "{:gutter$} {bar}", "");
}

/// The part of a line that is shown, in bytes of the line.
struct Window {
    start: usize,
    end: usize,
}

impl Window {
    fn around(line: &Line, at: Span) -> Self {
        let nth = |from: usize, count: usize| {
            line.text[from..].char_indices().nth(count).map_or(line.text.len(), |(offset, _)| from + offset)
        };
        if nth(0, SHOWN_CHARS) == line.text.len() {
            return Self { start: 0, end: line.text.len() };
        }
        let focus = floor(line.text, (at.start as usize).saturating_sub(line.start));
        let start = line.text[..focus].char_indices().rev().nth(BEFORE_CHARS - 1).map_or(0, |(offset, _)| offset);
        Self { start, end: nth(start, SHOWN_CHARS) }
    }

    fn text(&self, line: &Line) -> String {
        let before = if self.start > 0 { "…" } else { "" };
        let after = if self.end < line.text.len() { "…" } else { "" };
        format!("{before}{}{after}", visible(&line.text[self.start..self.end]))
    }

    /// Columns before the underline, and its width; a part beyond the window or the line's end is cut.
    fn underline(&self, line: &Line, at: Span) -> (usize, usize) {
        let within =
            |byte: u32| floor(line.text, (byte as usize).saturating_sub(line.start)).clamp(self.start, self.end);
        let (start, end) = (within(at.start), within(at.end.max(at.start)));
        let lead = usize::from(self.start > 0);
        (lead + columns(&line.text[self.start..start]), columns(&line.text[start..end.max(start)]).max(1))
    }
}

/// The text with tabs widened and control characters made harmless: it may come from anyone.
fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '\t' => out.push_str(TAB),
            '\n' => out.push('\n'),
            c if c.is_control() || is_direction(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
        out
    })
}

/// Characters that would reorder the line on screen.
const fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// How wide a text stands on a terminal: wide scripts and pictures take two columns, marks on letters none.
fn columns(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            '\t' => TAB.len(),
            '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200d}' | '\u{fe00}'..='\u{fe0f}' => 0,
            '\u{1100}'..='\u{115f}'
            | '\u{2e80}'..='\u{a4cf}'
            | '\u{ac00}'..='\u{d7a3}'
            | '\u{f900}'..='\u{faff}'
            | '\u{fe30}'..='\u{fe6f}'
            | '\u{ff00}'..='\u{ff60}'
            | '\u{ffe0}'..='\u{ffe6}'
            | '\u{1f300}'..='\u{1f64f}'
            | '\u{1f900}'..='\u{1f9ff}'
            | '\u{20000}'..='\u{3fffd}' => 2,
            _ => 1,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Files {
        Files { files: vec![File { name: "a.toml".into(), text: text.into() }] }
    }

    fn shown(text: &str, range: std::ops::Range<usize>) -> String {
        Diagnostic::error("test", Span::new(0, range), "wrong").label("here").render(&files(text), false)
    }

    #[test]
    fn underlines_the_span() {
        let text = "a = 1\nbb = \"c\"\n";
        assert_eq!(
            shown(text, 11..14),
            "error[test]: wrong\n --> a.toml:2:6\n  |\n2 | bb = \"c\"\n  |      ^^^ here\n  |\n"
        );
    }

    #[test]
    fn odd_places_are_shown_without_panic() {
        assert!(shown("", 0..0).contains("1 | \n  | ^ here"));
        assert!(shown("ab", 2..9).contains("a.toml:1:3\n"));
        assert!(
            shown("\t日本 = x\r\n", 8..12).contains("1 |     日本 = x\n  |          ^^^ here"),
            "{}",
            shown("\t日本 = x\r\n", 8..12)
        );
        assert!(shown("é = 1", 1..2).contains("a.toml:1:1\n"));
        let long = format!("x = \"{}needle{}\"", "a".repeat(5_000), "b".repeat(5_000));
        let at = long.find("needle").unwrap();
        let out = shown(&long, at..at + 6);
        assert!(out.lines().all(|line| line.chars().count() < 170), "{out}");
        assert!(out.contains("needle") && out.contains("^^^^^^ here"));
        assert!(!shown("a\u{1b}[31m = 1", 0..1).contains('\u{1b}'));
    }

    #[test]
    fn several_are_sorted_and_counted() {
        let at = |n: usize| Span::new(0, n..n + 1);
        let diagnostics = [
            Diagnostic::warning("w", at(4), "later"),
            Diagnostic::error("e", at(0), "first").also(at(4), "there").help("do\nthis"),
            Diagnostic::error("e", at(2), "second"),
        ];
        let out = render_all(&diagnostics, &files("a\nb\nc\n"), false);
        assert!(out.ends_with("2 errors, 1 warning\n"));
        assert!(out.find("first") < out.find("second") && out.find("second") < out.find("later"));
        assert!(out.contains("1 | a\n  | ^\n...\n3 | c\n  | - there\n"), "{out}");
        let json = diagnostics[1].to_json(&files("a\nb\nc\n"));
        assert_eq!(json["line"], 1);
        assert_eq!(json["also"][0]["line"], 3);
    }
}
