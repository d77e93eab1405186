//! Tokenizes an expression before the `cel` parser runs, and bounds its length and depth.
//!
//! The parser is recursive, so a deep expression could overflow its stack. The tokenizer also rejects what the subset
//! excludes but the parser accepts: `!!x` and `--x`, which the parser cancels, and unneeded string forms.

use std::ops::Range;

use crate::bounds;
use crate::time::Duration;

/// A syntax error in an expression. `range` is in bytes of its text.
#[derive(Debug)]
pub(super) struct ExprSyntaxError {
    pub code: &'static str,
    pub message: String,
    pub help: String,
    pub range: Range<usize>,
}

impl ExprSyntaxError {
    pub(super) fn new(
        code: &'static str,
        range: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { code, message: message.into(), help: help.into(), range }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExprToken {
    Name,
    Number,
    Text,
    /// `(` or `[`, with the index of the closing token.
    Open(usize),
    Close,
    Comma,
    Dot,
    /// `&&` or `||`. The parser balances chains of them.
    LogicalOperator,
    Question,
    Colon,
    Not,
    Minus,
    /// Any other operator, including `in`.
    Operator,
}

#[derive(Debug)]
pub(super) struct TokenList {
    pub tokens: Vec<(ExprToken, Range<usize>)>,
}

impl TokenList {
    /// Returns the token that starts at this byte.
    pub(super) fn token_at(&self, byte: usize) -> Option<usize> {
        self.tokens.binary_search_by_key(&byte, |(_, at)| at.start).ok()
    }

    /// Extends the range by all brackets directly around it, except those of a call.
    pub(super) fn include_brackets(&self, range: Range<usize>) -> Range<usize> {
        let mut wide = range;
        loop {
            let Some(first) = self.token_at(wide.start) else { return wide };
            let Some(open) = first.checked_sub(1) else { return wide };
            let ExprToken::Open(close) = self.tokens[open].0 else { return wide };
            let is_call = open.checked_sub(1).is_some_and(|before| self.tokens[before].0 == ExprToken::Name);
            let closes_here = close.checked_sub(1).is_some_and(|last| self.tokens[last].1.end == wide.end);
            if is_call || !closes_here {
                return wide;
            }
            wide = self.tokens[open].1.start..self.tokens[close].1.end;
        }
    }
}

/// Splits the text into tokens and checks its bounds.
pub(super) fn tokenize(text: &str) -> Result<TokenList, ExprSyntaxError> {
    if text.len() > bounds::MAX_EXPRESSION_BYTES {
        return Err(ExprSyntaxError::new(
            "expression-too-long",
            0..text.len(),
            format!("the expression has {} bytes; at most {} are allowed", text.len(), bounds::MAX_EXPRESSION_BYTES),
            "split it over several transitions, or set a field to a part of it",
        ));
    }
    let mut tokens = TokenList { tokens: split_tokens(text)? };
    if tokens.tokens.is_empty() {
        return Err(ExprSyntaxError::new(
            "invalid-expression",
            0..text.len(),
            "the expression is empty",
            "write an expression",
        ));
    }
    reject_doubled_signs(&tokens)?;
    TreeHeightMeter::default().limit_height(&mut tokens, text)?;
    Ok(tokens)
}

fn split_tokens(text: &str) -> Result<Vec<(ExprToken, Range<usize>)>, ExprSyntaxError> {
    let bytes = text.as_bytes();
    let mut list = Vec::new();
    let mut offset = 0;
    while offset < bytes.len() {
        if matches!(bytes[offset], b' ' | b'\t' | b'\r' | b'\n') {
            offset += 1;
            continue;
        }
        let (token, length) = next_token(text, offset)?;
        list.push((token, offset..offset + length));
        offset += length;
    }
    Ok(list)
}

fn next_token(text: &str, offset: usize) -> Result<(ExprToken, usize), ExprSyntaxError> {
    let rest = &text[offset..];
    let bytes = rest.as_bytes();
    for (operator, token) in [
        ("&&", ExprToken::LogicalOperator),
        ("||", ExprToken::LogicalOperator),
        ("==", ExprToken::Operator),
        ("!=", ExprToken::Operator),
        ("<=", ExprToken::Operator),
        (">=", ExprToken::Operator),
    ] {
        if rest.starts_with(operator) {
            return Ok((token, 2));
        }
    }
    let single = |token| Ok((token, 1));
    match bytes[0] {
        b'/' if rest.starts_with("//") && text[..offset].ends_with(':') => Err(ExprSyntaxError::new(
            "invalid-expression",
            offset..offset + 2,
            "unexpected `//`",
            format!("write text in single quotes: '{text}'"),
        )),
        b'/' if rest.starts_with("//") => Err(ExprSyntaxError::new(
            "not-in-subset",
            offset..text.len(),
            "an expression cannot contain comments",
            "write the comment in the file, with `#`",
        )),
        b'<' | b'>' | b'+' | b'*' | b'/' | b'%' => single(ExprToken::Operator),
        b'-' => single(ExprToken::Minus),
        b'!' => single(ExprToken::Not),
        b'?' => single(ExprToken::Question),
        b':' => single(ExprToken::Colon),
        b',' => single(ExprToken::Comma),
        b'(' | b'[' => single(ExprToken::Open(0)),
        b')' | b']' => single(ExprToken::Close),
        b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => scan_number(rest, offset),
        b'.' => single(ExprToken::Dot),
        b'0'..=b'9' => scan_number(rest, offset),
        b'\'' | b'"' => scan_string(rest, offset),
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => scan_name(rest, offset),
        b'{' | b'}' => Err(ExprSyntaxError::new(
            "not-in-subset",
            offset..offset + 1,
            "maps and messages are not part of the expression language",
            "use one field for each value",
        )),
        _ => {
            let odd = rest.chars().next().unwrap_or_default();
            Err(ExprSyntaxError::new(
                "invalid-expression",
                offset..offset + odd.len_utf8(),
                format!("unexpected `{}`", odd.escape_default()),
                match odd {
                    '=' => "compare with `==`".to_owned(),
                    '&' => "write `&&`".to_owned(),
                    '|' => "write `||`".to_owned(),
                    _ => "write text in quotes, such as 'text'".to_owned(),
                },
            ))
        }
    }
}

fn count_leading(bytes: &[u8], matches: impl Fn(&u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| matches(byte)).count()
}

fn scan_name(rest: &str, offset: usize) -> Result<(ExprToken, usize), ExprSyntaxError> {
    let length = count_leading(rest.as_bytes(), |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let word = &rest[..length];
    if rest[length..].starts_with(['\'', '"']) && ["r", "R", "b", "B", "rb", "br"].contains(&word) {
        return Err(ExprSyntaxError::new(
            "not-in-subset",
            offset..offset + length,
            "raw strings and bytes are not part of the expression language",
            "write plain text in quotes, such as 'text'",
        ));
    }
    Ok((if word == "in" { ExprToken::Operator } else { ExprToken::Name }, length))
}

fn scan_number(rest: &str, offset: usize) -> Result<(ExprToken, usize), ExprSyntaxError> {
    let bytes = rest.as_bytes();
    let mut length = if rest.starts_with("0x") {
        2 + count_leading(&bytes[2..], u8::is_ascii_hexdigit)
    } else {
        let mut length = count_leading(bytes, u8::is_ascii_digit);
        if bytes.get(length) == Some(&b'.') && bytes.get(length + 1).is_some_and(u8::is_ascii_digit) {
            length += 1 + count_leading(&bytes[length + 1..], u8::is_ascii_digit);
        }
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        if matches!(bytes.get(length), Some(b'e' | b'E'))
            && bytes.get(length + 1 + sign).is_some_and(u8::is_ascii_digit)
        {
            length += 1 + sign + count_leading(&bytes[length + 1 + sign..], u8::is_ascii_digit);
        }
        length
    };
    let tail = count_leading(&bytes[length..], |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if tail > 0 {
        length += tail;
        let written = &rest[..length];
        let help = if written.parse::<Duration>().is_ok() {
            format!("write a duration in single quotes: '{written}', or duration('{written}') next to an operator")
        } else {
            "write a whole number (`60`), a decimal (`0.5`) or a hexadecimal number (`0x3c`)".to_owned()
        };
        return Err(ExprSyntaxError::new(
            "invalid-expression",
            offset..offset + length,
            format!("`{written}` is not a number"),
            help,
        ));
    }
    Ok((ExprToken::Number, length))
}

fn scan_string(rest: &str, offset: usize) -> Result<(ExprToken, usize), ExprSyntaxError> {
    let quote = rest.as_bytes()[0];
    let unclosed = |end: usize| {
        ExprSyntaxError::new(
            "invalid-expression",
            offset..offset + end,
            "the text is not closed",
            "end it with the same quote",
        )
    };
    if rest.len() >= 3 && rest.as_bytes()[1] == quote && rest.as_bytes()[2] == quote {
        return Err(ExprSyntaxError::new(
            "not-in-subset",
            offset..offset + 3,
            "triple quotes are not part of the expression language",
            "write plain text in quotes, such as 'text'",
        ));
    }
    let mut escaped = false;
    for (index, byte) in rest.bytes().enumerate().skip(1) {
        match byte {
            b'\n' | b'\r' => return Err(unclosed(index)),
            _ if escaped => {
                if !b"nrt\\'\"".contains(&byte) {
                    return Err(ExprSyntaxError::new(
                        "not-in-subset",
                        offset + index - 1..offset + index + rest[index..].chars().next().map_or(1, char::len_utf8),
                        "the escape is not part of the expression language",
                        r#"only \n, \r, \t, \\, \' and \" are; write other characters as they are"#,
                    ));
                }
                escaped = false;
            }
            b'\\' => escaped = true,
            _ if byte == quote => return Ok((ExprToken::Text, index + 1)),
            _ => {}
        }
    }
    Err(unclosed(rest.len()))
}

/// Rejects `!!x` and `--x`. The parser cancels doubled signs before any operand, so `!!5` would be a number.
fn reject_doubled_signs(tokens: &TokenList) -> Result<(), ExprSyntaxError> {
    let is_operand =
        |token: ExprToken| matches!(token, ExprToken::Name | ExprToken::Number | ExprToken::Text | ExprToken::Close);
    for (index, pair) in tokens.tokens.windows(2).enumerate() {
        let ((first, at), (second, end)) = (&pair[0], &pair[1]);
        let binary = *first == ExprToken::Minus && index > 0 && is_operand(tokens.tokens[index - 1].0);
        if first == second && matches!(first, ExprToken::Not | ExprToken::Minus) && !binary {
            return Err(ExprSyntaxError::new(
                "not-in-subset",
                at.start..end.end,
                "two consecutive signs cancel each other",
                "remove both",
            ));
        }
    }
    Ok(())
}

/// An open pair of brackets. Computes an upper bound of the height of its tree from consecutive operators, dots and
/// conditions, plus the height of nested brackets.
#[derive(Default)]
struct BracketFrame {
    open_index: usize,
    conditions: usize,
    logic: usize,
    operators: usize,
    dots: usize,
    max_dots: usize,
    max_operators: usize,
    inner_height: usize,
    /// Largest height among the parts separated by commas.
    max_part_height: usize,
}

impl BracketFrame {
    fn end_operand(&mut self) {
        self.max_dots = self.max_dots.max(self.dots);
        self.dots = 0;
    }

    fn end_chain(&mut self) {
        self.end_operand();
        self.max_operators = self.max_operators.max(self.operators);
        self.operators = 0;
    }

    fn end_part(&mut self) {
        self.end_chain();
        self.max_part_height = self.max_part_height.max(self.height());
        *self = Self { open_index: self.open_index, max_part_height: self.max_part_height, ..Self::default() };
    }

    fn height(&self) -> usize {
        // The parser builds a balanced tree from a chain of `&&` or `||`.
        let logic = (usize::BITS - self.logic.leading_zeros()) as usize;
        self.conditions
            + logic
            + self.max_operators.max(self.operators)
            + self.max_dots.max(self.dots)
            + self.inner_height
    }
}

#[derive(Default)]
struct TreeHeightMeter {
    frames: Vec<BracketFrame>,
}

impl TreeHeightMeter {
    /// Links each opening bracket to its closing one. Fails if brackets do not match or the expression is nested too deep.
    fn limit_height(mut self, tokens: &mut TokenList, text: &str) -> Result<(), ExprSyntaxError> {
        self.frames.push(BracketFrame::default());
        for index in 0..tokens.tokens.len() {
            let (token, at) = tokens.tokens[index].clone();
            let depth = self.frames.len();
            let Some(frame) = self.frames.last_mut() else { return Err(unbalanced_bracket(at)) };
            match token {
                ExprToken::Open(_) => self.frames.push(BracketFrame { open_index: index, ..BracketFrame::default() }),
                ExprToken::Close => {
                    if depth == 1
                        || text[at.clone()] != *closing_bracket(&text[tokens.tokens[frame.open_index].1.clone()])
                    {
                        return Err(unbalanced_bracket(at));
                    }
                    frame.end_part();
                    let (open, height) = (frame.open_index, frame.max_part_height + 1);
                    tokens.tokens[open].0 = ExprToken::Open(index);
                    self.frames.pop();
                    if let Some(outer) = self.frames.last_mut() {
                        outer.inner_height = outer.inner_height.max(height);
                    }
                }
                ExprToken::Comma => frame.end_part(),
                ExprToken::Dot => frame.dots += 1,
                ExprToken::LogicalOperator => {
                    frame.logic += 1;
                    frame.end_chain();
                }
                ExprToken::Question => {
                    frame.conditions += 1;
                    frame.end_chain();
                }
                ExprToken::Colon => frame.end_chain(),
                ExprToken::Not | ExprToken::Minus | ExprToken::Operator => {
                    frame.operators += 1;
                    frame.end_operand();
                }
                ExprToken::Name | ExprToken::Number | ExprToken::Text => {}
            }
            let height = self.frames.last().map_or(0, |frame| frame.height().max(frame.max_part_height));
            if self.frames.len() + height > bounds::MAX_EXPRESSION_DEPTH + 1 {
                let at = tokens.tokens[index].1.clone();
                return Err(ExprSyntaxError::new(
                    "expression-too-deep",
                    at,
                    format!("brackets and operators are nested more than {} levels deep", bounds::MAX_EXPRESSION_DEPTH),
                    "split the expression over several transitions, or join its parts with && and ||",
                ));
            }
        }
        match self.frames.last() {
            Some(frame) if self.frames.len() > 1 => Err(ExprSyntaxError::new(
                "invalid-expression",
                tokens.tokens[frame.open_index].1.clone(),
                "the bracket is never closed",
                "close it",
            )),
            _ => Ok(()),
        }
    }
}

fn closing_bracket(open: &str) -> &'static str {
    if open == "(" { ")" } else { "]" }
}

fn unbalanced_bracket(range: Range<usize>) -> ExprSyntaxError {
    ExprSyntaxError::new(
        "invalid-expression",
        range,
        "the bracket has no opening bracket",
        "remove it, or add the opening bracket",
    )
}
