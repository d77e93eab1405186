//! Columns that stand under each other.

use std::fmt::Write as _;

use jiff::Timestamp;

/// A table with a line of headings. The last column is as wide as it likes.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = headings.map(width);
    for row in rows {
        for (wide, cell) in widths.iter_mut().zip(row) {
            *wide = (*wide).max(width(cell));
        }
    }
    let mut text = String::new();
    let headings = headings.map(str::to_owned);
    for row in std::iter::once(&headings).chain(rows) {
        let mut line = String::new();
        for (cell, wide) in row.iter().zip(widths) {
            let _ = write!(line, "{cell}{}", " ".repeat(wide.saturating_sub(width(cell)) + 2));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn width(cell: &str) -> usize {
    cell.chars().count()
}

/// To the millisecond, in UTC, and it says so: whoever reads it may be anywhere.
pub(crate) fn when(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S%.3fZ").to_string()
}

/// Text of anybody's, safe to show on a terminal, on one line.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// A value on one line: text as it is, all else as JSON.
pub(crate) fn value(value: &serde_json::Value) -> String {
    plain(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let rows = [["ä".to_owned(), "1".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(table(["A", "B"], &rows), "A       B\nä       1\nlonger\n");
    }

    #[test]
    fn a_time_says_that_it_is_in_utc() {
        let time: Timestamp = "2026-01-02T03:04:05.678901+02:00".parse().unwrap();
        assert_eq!(when(time), "2026-01-02 01:04:05.678Z");
    }

    #[test]
    fn what_others_wrote_does_not_move_the_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\nc"), "a [2Jb c");
        assert_eq!(value(&serde_json::json!({ "a": [1] })), r#"{"a":[1]}"#);
    }
}
