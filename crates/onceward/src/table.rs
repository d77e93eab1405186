//! Formats text tables.

use std::fmt::Write as _;

use jiff::Timestamp;

/// Formats a table with headings. The last column is not padded.
pub(crate) fn format_table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = headings.map(char_width);
    for row in rows {
        for (column_width, cell) in widths.iter_mut().zip(row) {
            *column_width = (*column_width).max(char_width(cell));
        }
    }
    let mut text = String::new();
    let headings = headings.map(str::to_owned);
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (cell, column_width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell}{}", " ".repeat(column_width.saturating_sub(char_width(cell)) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn char_width(cell: &str) -> usize {
    cell.chars().count()
}

/// Formats a time in UTC with milliseconds.
pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S%.3fZ").to_string()
}

/// Replaces control characters, so that untrusted text is safe on a terminal and stays on one line.
pub(crate) fn sanitize_line(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Formats a value on one line: a string as it is, any other value as JSON.
pub(crate) fn format_value(value: &serde_json::Value) -> String {
    sanitize_line(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_are_aligned() {
        let rows = [["ä".to_owned(), "1".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(format_table(["A", "B"], &rows), "A       B\nä       1\nlonger\n");
    }

    #[test]
    fn time_is_formatted_in_utc() {
        let time: Timestamp = "2026-01-02T03:04:05.678901+02:00".parse().unwrap();
        assert_eq!(format_time(time), "2026-01-02 01:04:05.678Z");
    }

    #[test]
    fn control_characters_are_replaced_in_output() {
        assert_eq!(sanitize_line("a\u{1b}[2Jb\nc"), "a [2Jb c");
        assert_eq!(format_value(&serde_json::json!({ "a": [1] })), r#"{"a":[1]}"#);
    }
}
