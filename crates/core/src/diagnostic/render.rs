//! Renders diagnostics as text in the style of rustc, and as JSON for tools.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::{Diagnostic, InputFile, InputFiles, Severity, Span};

/// Maximum characters shown of a source line. A longer line is cut around the underlined part.
const MAX_LINE_CHARS: usize = 140;
/// Characters kept before the underlined part of a cut line.
const MAX_LEADING_CHARS: usize = 60;
const TAB_SPACES: &str = "    ";

/// A position for people: line and column from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineColumn {
    pub line: usize,
    pub column: usize,
}

struct SourceLine<'a> {
    number: usize,
    start: usize,
    /// Without its line ending.
    text: &'a str,
}

impl InputFile {
    /// Returns the position of a byte. A byte past the end has the position of the end.
    pub fn position(&self, byte: usize) -> LineColumn {
        let line = self.line(byte);
        let within = floor_char_boundary(line.text, byte.saturating_sub(line.start));
        LineColumn { line: line.number, column: line.text[..within].chars().count() + 1 }
    }

    fn line(&self, byte: usize) -> SourceLine<'_> {
        let text = &*self.text;
        let byte = floor_char_boundary(text, byte);
        let start = text[..byte].rfind('\n').map_or(0, |at| at + 1);
        let end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let number = text[..start].bytes().filter(|b| *b == b'\n').count() + 1;
        SourceLine { number, start, text: text[start..end].trim_end_matches('\r') }
    }
}

/// Returns the last character boundary at or before `byte`.
fn floor_char_boundary(text: &str, byte: usize) -> usize {
    let mut byte = byte.min(text.len());
    while !text.is_char_boundary(byte) {
        byte -= 1;
    }
    byte
}

/// Writes text with or without terminal colors.
struct TerminalStyle {
    color: bool,
}

impl TerminalStyle {
    fn paint(&self, style: &str, text: &str) -> String {
        if self.color && !text.is_empty() { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn frame(&self, text: &str) -> String {
        self.paint("1;34", text)
    }
}

struct SpanLabel<'a> {
    span: Span,
    label: &'a str,
    is_primary: bool,
}

impl Diagnostic {
    /// Renders the message with its source lines and underlines.
    pub fn render(&self, files: &InputFiles, color: bool) -> String {
        let paint = TerminalStyle { color };
        let (word, style) = self.severity.name_and_style();
        let mut out = format!(
            "{}{}\n",
            paint.paint(style, &format!("{word}[{}]", self.code)),
            paint.paint("1", &format!(": {}", escape_control_chars(&self.message)))
        );
        let mut marks = vec![SpanLabel { span: self.span, label: &self.label, is_primary: true }];
        marks.extend(self.related.iter().map(|(at, label)| SpanLabel { span: *at, label, is_primary: false }));
        let gutter = marks.iter().map(|mark| line_number(files, mark.span).to_string().len()).max().unwrap_or(1);
        let mut order: Vec<u32> = Vec::new();
        for mark in &marks {
            if !order.contains(&mark.span.file) {
                order.push(mark.span.file);
            }
        }
        for (nth, index) in order.into_iter().enumerate() {
            let Some(file) = files.files.get(index as usize) else { continue };
            let mut here: Vec<&SpanLabel> = marks.iter().filter(|mark| mark.span.file == index).collect();
            let LineColumn { line, column } = file.position(here[0].span.start as usize);
            here.sort_by_key(|mark| (mark.span.start, !mark.is_primary));
            let arrow = if nth == 0 { "-->" } else { ":::" };
            let location = format!("{}:{line}:{column}", escape_control_chars(&file.name));
            let _ = writeln!(out, "{:gutter$}{} {location}", "", paint.frame(arrow));
            write_source_lines(&mut out, file, &here, gutter, style, &paint);
        }
        if let Some(help) = &self.help {
            let indent = format!("\n{:gutter$}         ", "");
            let help = escape_control_chars(help).replace('\n', &indent);
            let _ = writeln!(out, "{:gutter$} {} {}: {help}", "", paint.frame("="), paint.paint("1", "help"));
        }
        out
    }

    /// Returns the diagnostic as JSON, for `check --json`.
    pub fn to_json(&self, files: &InputFiles) -> Json {
        let mut object = span_json(files, self.span);
        object["code"] = json!(self.code);
        object["severity"] = json!(self.severity.name_and_style().0);
        object["message"] = json!(self.message);
        object["label"] = json!(self.label);
        object["help"] = json!(self.help);
        object["also"] = self
            .related
            .iter()
            .map(|(at, label)| {
                let mut span = span_json(files, *at);
                span["label"] = json!(label);
                span
            })
            .collect();
        object
    }
}

impl Severity {
    const fn name_and_style(self) -> (&'static str, &'static str) {
        match self {
            Self::Error => ("error", "1;31"),
            Self::Warning => ("warning", "1;33"),
        }
    }
}

/// Renders all diagnostics by file and position, followed by their counts. Returns an empty text if there are none.
pub fn render_all(diagnostics: &[Diagnostic], files: &InputFiles, color: bool) -> String {
    let mut sorted: Vec<&Diagnostic> = diagnostics.iter().collect();
    sorted.sort_by_key(|diagnostic| (diagnostic.span, diagnostic.severity, diagnostic.code));
    let mut out = String::new();
    for diagnostic in &sorted {
        out.push_str(&diagnostic.render(files, color));
        out.push('\n');
    }
    if let Some(summary) = summarize_counts(diagnostics) {
        let _ = writeln!(out, "{summary}");
    }
    out
}

/// Returns the counts, such as `2 errors, 1 warning`, or `None` if there are no diagnostics.
pub fn summarize_counts(diagnostics: &[Diagnostic]) -> Option<String> {
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

fn span_json(files: &InputFiles, span: Span) -> Json {
    let Some(file) = files.files.get(span.file as usize) else { return json!({}) };
    let start = file.position(span.start as usize);
    let end = file.position(span.end as usize);
    json!({
        "file": file.name, "line": start.line, "column": start.column,
        "end": { "line": end.line, "column": end.column },
    })
}

fn line_number(files: &InputFiles, span: Span) -> usize {
    files.files.get(span.file as usize).map_or(1, |file| file.line(span.start as usize).number)
}

fn write_source_lines(
    out: &mut String,
    file: &InputFile,
    marks: &[&SpanLabel],
    gutter: usize,
    style: &str,
    paint: &TerminalStyle,
) {
    let bar = paint.frame("|");
    let _ = writeln!(out, "{:gutter$} {bar}", "");
    let mut shown: Option<usize> = None;
    let mut at = 0;
    while at < marks.len() {
        let line = file.line(marks[at].span.start as usize);
        let same =
            marks[at..].iter().take_while(|mark| file.line(mark.span.start as usize).number == line.number).count();
        if shown.is_some_and(|before| line.number > before + 1) {
            let _ = writeln!(out, "{}", paint.frame("..."));
        }
        let window = LineWindow::around(&line, marks[at].span);
        let number = paint.frame(&format!("{:>gutter$}", line.number));
        let _ = writeln!(out, "{number} {bar} {}", window.text(&line));
        for mark in &marks[at..at + same] {
            let (indent, width) = window.underline(&line, mark.span);
            let (sign, style) = if mark.is_primary { ("^", style) } else { ("-", "1;34") };
            let label =
                if mark.label.is_empty() { String::new() } else { format!(" {}", escape_control_chars(mark.label)) };
            let under = paint.paint(style, &format!("{}{label}", sign.repeat(width)));
            let _ = writeln!(out, "{:gutter$} {bar} {:indent$}{under}", "", "");
        }
        shown = Some(line.number);
        at += same;
    }
    let _ = writeln!(out, "{:gutter$} {bar}", "");
}

/// The part of a line that is shown, as byte offsets in the line.
struct LineWindow {
    start: usize,
    end: usize,
}

impl LineWindow {
    fn around(line: &SourceLine, span: Span) -> Self {
        let nth = |from: usize, count: usize| {
            line.text[from..].char_indices().nth(count).map_or(line.text.len(), |(offset, _)| from + offset)
        };
        if nth(0, MAX_LINE_CHARS) == line.text.len() {
            return Self { start: 0, end: line.text.len() };
        }
        let focus = floor_char_boundary(line.text, (span.start as usize).saturating_sub(line.start));
        let start = line.text[..focus].char_indices().rev().nth(MAX_LEADING_CHARS - 1).map_or(0, |(offset, _)| offset);
        Self { start, end: nth(start, MAX_LINE_CHARS) }
    }

    fn text(&self, line: &SourceLine) -> String {
        let before = if self.start > 0 { "…" } else { "" };
        let after = if self.end < line.text.len() { "…" } else { "" };
        format!("{before}{}{after}", escape_control_chars(&line.text[self.start..self.end]))
    }

    /// Returns the columns before the underline and its width, cut to the window.
    fn underline(&self, line: &SourceLine, span: Span) -> (usize, usize) {
        let within = |byte: u32| {
            floor_char_boundary(line.text, (byte as usize).saturating_sub(line.start)).clamp(self.start, self.end)
        };
        let (start, end) = (within(span.start), within(span.end.max(span.start)));
        let lead = usize::from(self.start > 0);
        (lead + display_width(&line.text[self.start..start]), display_width(&line.text[start..end.max(start)]).max(1))
    }
}

/// Expands tabs and replaces control characters, because the text may come from an untrusted author.
fn escape_control_chars(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '\t' => out.push_str(TAB_SPACES),
            '\n' => out.push('\n'),
            c if c.is_control() || is_bidi_control(c) => out.push('\u{fffd}'),
            c => out.push(c),
        }
        out
    })
}

/// Returns whether the character would reorder the line on screen.
const fn is_bidi_control(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the width of a text in terminal columns. Wide scripts and emoji take two columns, combining marks none.
fn display_width(text: &str) -> usize {
    text.chars()
        .map(|c| match c {
            '\t' => TAB_SPACES.len(),
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

    fn single_file(text: &str) -> InputFiles {
        InputFiles { files: vec![InputFile { name: "a.toml".into(), text: text.into() }] }
    }

    fn render_at(text: &str, range: std::ops::Range<usize>) -> String {
        Diagnostic::error("test", Span::new(0, range), "wrong").label("here").render(&single_file(text), false)
    }

    #[test]
    fn render_underlines_span() {
        let text = "a = 1\nbb = \"c\"\n";
        assert_eq!(
            render_at(text, 11..14),
            "error[test]: wrong\n --> a.toml:2:6\n  |\n2 | bb = \"c\"\n  |      ^^^ here\n  |\n"
        );
    }

    #[test]
    fn spans_at_edges_and_in_long_lines_render_without_panic() {
        assert!(render_at("", 0..0).contains("1 | \n  | ^ here"));
        assert!(render_at("ab", 2..9).contains("a.toml:1:3\n"));
        assert!(
            render_at("\t日本 = x\r\n", 8..12).contains("1 |     日本 = x\n  |          ^^^ here"),
            "{}",
            render_at("\t日本 = x\r\n", 8..12)
        );
        assert!(render_at("é = 1", 1..2).contains("a.toml:1:1\n"));
        let long = format!("x = \"{}needle{}\"", "a".repeat(5_000), "b".repeat(5_000));
        let at = long.find("needle").unwrap();
        let out = render_at(&long, at..at + 6);
        assert!(out.lines().all(|line| line.chars().count() < 170), "{out}");
        assert!(out.contains("needle") && out.contains("^^^^^^ here"));
        assert!(!render_at("a\u{1b}[31m = 1", 0..1).contains('\u{1b}'));
    }

    #[test]
    fn render_all_sorts_by_position_and_counts() {
        let at = |n: usize| Span::new(0, n..n + 1);
        let diagnostics = [
            Diagnostic::warning("w", at(4), "later"),
            Diagnostic::error("e", at(0), "first").related(at(4), "there").help("do\nthis"),
            Diagnostic::error("e", at(2), "second"),
        ];
        let out = render_all(&diagnostics, &single_file("a\nb\nc\n"), false);
        assert!(out.ends_with("2 errors, 1 warning\n"));
        assert!(out.find("first") < out.find("second") && out.find("second") < out.find("later"));
        assert!(out.contains("1 | a\n  | ^\n...\n3 | c\n  | - there\n"), "{out}");
        let json = diagnostics[1].to_json(&single_file("a\nb\nc\n"));
        assert_eq!(json["line"], 1);
        assert_eq!(json["also"][0]["line"], 3);
    }
}
