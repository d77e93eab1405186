//! A first look at an expression's text, before the `cel` parser sees it: which bytes are which token, and that
//! nothing is so long or so deep that a recursive parser would run out of stack.
//!
//! It also turns away what the subset leaves out and the parser would quietly take: `!!x` and `--x`, which it
//! cancels, and the string forms nobody needs in a guard.

use std::ops::Range;

use crate::bounds;
use crate::time::Duration;

/// What is wrong with the text, at which bytes of it.
#[derive(Debug)]
pub(super) struct Bad {
    pub code: &'static str,
    pub message: String,
    pub help: String,
    pub at: Range<usize>,
}

impl Bad {
    pub(super) fn new(
        code: &'static str,
        at: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self { code, message: message.into(), help: help.into(), at }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Name,
    Number,
    Text,
    /// `(` or `[`, with the index of the token that closes it.
    Open(usize),
    Close,
    Comma,
    Dot,
    /// `&&` and `||`: the parser balances chains of them.
    Logic,
    Question,
    Colon,
    Not,
    Minus,
    /// Every other operator, `in` included.
    Operator,
}

#[derive(Debug)]
pub(super) struct Tokens {
    pub list: Vec<(Token, Range<usize>)>,
}

impl Tokens {
    /// The token that starts at this byte.
    pub(super) fn starting_at(&self, byte: usize) -> Option<usize> {
        self.list.binary_search_by_key(&byte, |(_, at)| at.start).ok()
    }

    /// The range with the brackets directly around it, as many as there are; a call's own brackets do not count.
    pub(super) fn widen(&self, range: Range<usize>) -> Range<usize> {
        let mut wide = range;
        loop {
            let Some(first) = self.starting_at(wide.start) else { return wide };
            let Some(open) = first.checked_sub(1) else { return wide };
            let Token::Open(close) = self.list[open].0 else { return wide };
            let is_call = open.checked_sub(1).is_some_and(|before| self.list[before].0 == Token::Name);
            let closes_here = close.checked_sub(1).is_some_and(|last| self.list[last].1.end == wide.end);
            if is_call || !closes_here {
                return wide;
            }
            wide = self.list[open].1.start..self.list[close].1.end;
        }
    }
}

/// Cut the text into tokens and bound it.
pub(super) fn read(text: &str) -> Result<Tokens, Bad> {
    if text.len() > bounds::EXPRESSION_BYTES {
        return Err(Bad::new(
            "expression-too-long",
            0..text.len(),
            format!("the expression has {} bytes; at most {} are read", text.len(), bounds::EXPRESSION_BYTES),
            "split it over several rows, or keep a part of it in a field",
        ));
    }
    let mut tokens = Tokens { list: cut(text)? };
    if tokens.list.is_empty() {
        return Err(Bad::new("bad-expression", 0..text.len(), "the expression is empty", "write an expression"));
    }
    doubled_signs(&tokens)?;
    Heights::default().measure(&mut tokens, text)?;
    Ok(tokens)
}

fn cut(text: &str) -> Result<Vec<(Token, Range<usize>)>, Bad> {
    let bytes = text.as_bytes();
    let mut list = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if matches!(bytes[at], b' ' | b'\t' | b'\r' | b'\n') {
            at += 1;
            continue;
        }
        let (token, length) = next(text, at)?;
        list.push((token, at..at + length));
        at += length;
    }
    Ok(list)
}

fn next(text: &str, at: usize) -> Result<(Token, usize), Bad> {
    let rest = &text[at..];
    let bytes = rest.as_bytes();
    for (operator, token) in [
        ("&&", Token::Logic),
        ("||", Token::Logic),
        ("==", Token::Operator),
        ("!=", Token::Operator),
        ("<=", Token::Operator),
        (">=", Token::Operator),
    ] {
        if rest.starts_with(operator) {
            return Ok((token, 2));
        }
    }
    let single = |token| Ok((token, 1));
    match bytes[0] {
        b'/' if rest.starts_with("//") => Err(Bad::new(
            "not-in-subset",
            at..text.len(),
            "comments have no place inside an expression",
            "write the comment in the file, with `#`",
        )),
        b'<' | b'>' | b'+' | b'*' | b'/' | b'%' => single(Token::Operator),
        b'-' => single(Token::Minus),
        b'!' => single(Token::Not),
        b'?' => single(Token::Question),
        b':' => single(Token::Colon),
        b',' => single(Token::Comma),
        b'(' | b'[' => single(Token::Open(0)),
        b')' | b']' => single(Token::Close),
        b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => number(rest, at),
        b'.' => single(Token::Dot),
        b'0'..=b'9' => number(rest, at),
        b'\'' | b'"' => string(rest, at),
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => name(rest, at),
        b'{' | b'}' => Err(Bad::new(
            "not-in-subset",
            at..at + 1,
            "maps and messages are not part of the expression language",
            "name each value in a field of its own",
        )),
        _ => {
            let odd = rest.chars().next().unwrap_or_default();
            Err(Bad::new(
                "bad-expression",
                at..at + odd.len_utf8(),
                format!("`{}` means nothing here", odd.escape_default()),
                match odd {
                    '=' => "compare with `==`".to_owned(),
                    '&' => "write `&&`".to_owned(),
                    '|' => "write `||`".to_owned(),
                    _ => "text stands in quotes, as 'text'".to_owned(),
                },
            ))
        }
    }
}

fn count(bytes: &[u8], of: impl Fn(&u8) -> bool) -> usize {
    bytes.iter().take_while(|byte| of(byte)).count()
}

fn name(rest: &str, at: usize) -> Result<(Token, usize), Bad> {
    let length = count(rest.as_bytes(), |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let word = &rest[..length];
    if rest[length..].starts_with(['\'', '"']) && ["r", "R", "b", "B", "rb", "br"].contains(&word) {
        return Err(Bad::new(
            "not-in-subset",
            at..at + length,
            "raw strings and bytes are not part of the expression language",
            "write plain text in quotes, as 'text'",
        ));
    }
    Ok((if word == "in" { Token::Operator } else { Token::Name }, length))
}

fn number(rest: &str, at: usize) -> Result<(Token, usize), Bad> {
    let bytes = rest.as_bytes();
    let mut length = if rest.starts_with("0x") {
        2 + count(&bytes[2..], u8::is_ascii_hexdigit)
    } else {
        let mut length = count(bytes, u8::is_ascii_digit);
        if bytes.get(length) == Some(&b'.') && bytes.get(length + 1).is_some_and(u8::is_ascii_digit) {
            length += 1 + count(&bytes[length + 1..], u8::is_ascii_digit);
        }
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        if matches!(bytes.get(length), Some(b'e' | b'E'))
            && bytes.get(length + 1 + sign).is_some_and(u8::is_ascii_digit)
        {
            length += 1 + sign + count(&bytes[length + 1 + sign..], u8::is_ascii_digit);
        }
        length
    };
    let tail = count(&bytes[length..], |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    if tail > 0 {
        length += tail;
        let written = &rest[..length];
        let help = if written.parse::<Duration>().is_ok() {
            format!("a duration stands in single quotes: '{written}', or duration('{written}') beside an operator")
        } else {
            "numbers are whole (`60`), with a point (`0.5`) or hexadecimal (`0x3c`)".to_owned()
        };
        return Err(Bad::new("bad-expression", at..at + length, format!("`{written}` is not a number"), help));
    }
    Ok((Token::Number, length))
}

fn string(rest: &str, at: usize) -> Result<(Token, usize), Bad> {
    let quote = rest.as_bytes()[0];
    let unclosed = |end: usize| {
        Bad::new("bad-expression", at..at + end, "the text is not closed", "end it with the quote it begins with")
    };
    if rest.len() >= 3 && rest.as_bytes()[1] == quote && rest.as_bytes()[2] == quote {
        return Err(Bad::new(
            "not-in-subset",
            at..at + 3,
            "triple quotes are not part of the expression language",
            "write plain text in quotes, as 'text'",
        ));
    }
    let mut escaped = false;
    for (index, byte) in rest.bytes().enumerate().skip(1) {
        match byte {
            b'\n' | b'\r' => return Err(unclosed(index)),
            _ if escaped => {
                if !b"nrt\\'\"".contains(&byte) {
                    return Err(Bad::new(
                        "not-in-subset",
                        at + index - 1..at + index + rest[index..].chars().next().map_or(1, char::len_utf8),
                        "this escape is not part of the expression language",
                        r#"only \n, \r, \t, \\, \' and \" are; write other characters as they are"#,
                    ));
                }
                escaped = false;
            }
            b'\\' => escaped = true,
            _ if byte == quote => return Ok((Token::Text, index + 1)),
            _ => {}
        }
    }
    Err(unclosed(rest.len()))
}

/// The parser cancels pairs of signs whatever they stand before, so that `!!5` would be a number.
fn doubled_signs(tokens: &Tokens) -> Result<(), Bad> {
    let is_operand = |token: Token| matches!(token, Token::Name | Token::Number | Token::Text | Token::Close);
    for (index, pair) in tokens.list.windows(2).enumerate() {
        let ((first, at), (second, end)) = (&pair[0], &pair[1]);
        let binary = *first == Token::Minus && index > 0 && is_operand(tokens.list[index - 1].0);
        if first == second && matches!(first, Token::Not | Token::Minus) && !binary {
            return Err(Bad::new(
                "not-in-subset",
                at.start..end.end,
                "two signs in a row undo each other",
                "write neither",
            ));
        }
    }
    Ok(())
}

/// One pair of brackets while it is open. The height of a tree is bounded from above by what can stand on another:
/// operators in a row, dots in a row, conditions in a row, and whatever the brackets inside come to.
#[derive(Default)]
struct Frame {
    open: usize,
    conditions: usize,
    logic: usize,
    operators: usize,
    dots: usize,
    most_dots: usize,
    most_operators: usize,
    inside: usize,
    /// The highest of the parts between commas.
    part: usize,
}

impl Frame {
    fn end_operand(&mut self) {
        self.most_dots = self.most_dots.max(self.dots);
        self.dots = 0;
    }

    fn end_chain(&mut self) {
        self.end_operand();
        self.most_operators = self.most_operators.max(self.operators);
        self.operators = 0;
    }

    fn end_part(&mut self) {
        self.end_chain();
        self.part = self.part.max(self.height());
        *self = Self { open: self.open, part: self.part, ..Self::default() };
    }

    fn height(&self) -> usize {
        // The parser makes a balanced tree of a chain of `&&` or `||`.
        let logic = (usize::BITS - self.logic.leading_zeros()) as usize;
        self.conditions + logic + self.most_operators.max(self.operators) + self.most_dots.max(self.dots) + self.inside
    }
}

#[derive(Default)]
struct Heights {
    frames: Vec<Frame>,
}

impl Heights {
    fn measure(mut self, tokens: &mut Tokens, text: &str) -> Result<(), Bad> {
        self.frames.push(Frame::default());
        for index in 0..tokens.list.len() {
            let (token, at) = tokens.list[index].clone();
            let depth = self.frames.len();
            let Some(frame) = self.frames.last_mut() else { return Err(unbalanced(at)) };
            match token {
                Token::Open(_) => self.frames.push(Frame { open: index, ..Frame::default() }),
                Token::Close => {
                    if depth == 1 || text[at.clone()] != *closing(&text[tokens.list[frame.open].1.clone()]) {
                        return Err(unbalanced(at));
                    }
                    frame.end_part();
                    let (open, height) = (frame.open, frame.part + 1);
                    tokens.list[open].0 = Token::Open(index);
                    self.frames.pop();
                    if let Some(outer) = self.frames.last_mut() {
                        outer.inside = outer.inside.max(height);
                    }
                }
                Token::Comma => frame.end_part(),
                Token::Dot => frame.dots += 1,
                Token::Logic => {
                    frame.logic += 1;
                    frame.end_chain();
                }
                Token::Question => {
                    frame.conditions += 1;
                    frame.end_chain();
                }
                Token::Colon => frame.end_chain(),
                Token::Not | Token::Minus | Token::Operator => {
                    frame.operators += 1;
                    frame.end_operand();
                }
                Token::Name | Token::Number | Token::Text => {}
            }
            let height = self.frames.last().map_or(0, |frame| frame.height().max(frame.part));
            if self.frames.len() + height > bounds::EXPRESSION_DEPTH + 1 {
                let at = tokens.list[index].1.clone();
                return Err(Bad::new(
                    "expression-too-deep",
                    at,
                    format!("more than {} brackets and operators stand on each other here", bounds::EXPRESSION_DEPTH),
                    "split the expression over several rows, or join its parts with && and ||",
                ));
            }
        }
        match self.frames.last() {
            Some(frame) if self.frames.len() > 1 => Err(Bad::new(
                "bad-expression",
                tokens.list[frame.open].1.clone(),
                "this bracket is never closed",
                "close it",
            )),
            _ => Ok(()),
        }
    }
}

fn closing(open: &str) -> &'static str {
    if open == "(" { ")" } else { "]" }
}

fn unbalanced(at: Range<usize>) -> Bad {
    Bad::new("bad-expression", at, "this bracket closes none that is open", "remove it, or open one")
}
