//! Small changes to an expression. It is read only as far as that needs: words, texts, numbers, signs and brackets.

use std::ops::Range;

use super::Operator;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Word,
    Text,
    Number,
    Sign,
}

#[derive(Clone, Debug)]
struct Token {
    kind: Kind,
    at: Range<usize>,
    /// How many brackets it stands in.
    depth: usize,
}

/// One change: what kind it is, what stood there, and the whole expression after it.
pub(super) struct Change {
    pub(super) operator: Operator,
    pub(super) what: String,
    pub(super) text: String,
}

/// Every change to this expression. `enums` are the closed lists of names that the file declares.
pub(super) fn changes(text: &str, enums: &[Vec<String>]) -> Vec<Change> {
    let tokens = tokens(text);
    let mut out = Vec::new();
    for at in 0..tokens.len() {
        let token = &tokens[at];
        let word = &text[token.at.clone()];
        let mut add = |operator: Operator, new: String| {
            let place = if text.matches(word).count() > 1 { format!(" at {}", token.at.start) } else { String::new() };
            out.push(Change {
                operator,
                what: format!("`{word}` becomes `{new}`{place}"),
                text: format!("{}{new}{}", &text[..token.at.start], &text[token.at.end..]),
            });
        };
        match token.kind {
            Kind::Number => beside(word).into_iter().for_each(|new| add(Operator::ShiftConstant, new)),
            Kind::Text => match longer(word.trim_matches('\'')) {
                Some(duration) => add(Operator::Durations, format!("'{duration}'")),
                None => add(Operator::ChangeName, format!("'{}x'", word.trim_matches('\''))),
            },
            Kind::Word => {
                let part = at > 0 && text[tokens[at - 1].at.clone()] == *".";
                match word {
                    "true" => add(Operator::ChangeName, "false".into()),
                    "false" => add(Operator::ChangeName, "true".into()),
                    "max" if !part => add(Operator::ChangeSign, "min".into()),
                    "min" if !part => add(Operator::ChangeSign, "max".into()),
                    _ if part => {}
                    _ => {
                        for names in enums.iter().filter(|names| names.iter().any(|name| name == word)) {
                            for other in names.iter().filter(|other| *other != word) {
                                add(Operator::ChangeName, other.clone());
                            }
                        }
                    }
                }
            }
            Kind::Sign => {
                if let Some((operator, new)) = other_sign(word, at > 0 && ends_operand(text, &tokens[at - 1])) {
                    add(operator, new.into());
                }
                if word == "?" {
                    out.extend(swapped_branches(text, &tokens, at));
                }
                if matches!(word, "&&" | "||") {
                    out.extend(dropped_parts(text, &tokens, at));
                }
            }
        }
    }
    out
}

fn ends_operand(text: &str, token: &Token) -> bool {
    token.kind != Kind::Sign || matches!(&text[token.at.clone()], ")" | "]")
}

fn other_sign(sign: &str, binary: bool) -> Option<(Operator, &'static str)> {
    Some(match sign {
        "<" => (Operator::ShiftComparison, "<="),
        "<=" => (Operator::ShiftComparison, "<"),
        ">" => (Operator::ShiftComparison, ">="),
        ">=" => (Operator::ShiftComparison, ">"),
        "==" => (Operator::ChangeSign, "!="),
        "!=" => (Operator::ChangeSign, "=="),
        "+" => (Operator::ChangeSign, "-"),
        "-" if binary => (Operator::ChangeSign, "+"),
        "*" => (Operator::ChangeSign, "/"),
        "/" => (Operator::ChangeSign, "*"),
        "!" => (Operator::ChangeSign, ""),
        _ => return None,
    })
}

/// A duration twice as long; none where the text is none.
pub(super) fn longer(text: &str) -> Option<String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
    let (number, unit) = text.split_at(digits);
    if !["us", "ms", "s", "m", "h", "d"].contains(&unit) {
        return None;
    }
    Some(format!("{}{unit}", number.parse::<u64>().ok()? * 2))
}

/// A size in bytes: `32 KB`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ')?;
    let unit = match unit {
        "B" => 1,
        "KB" => 1024,
        "MB" => 1024 * 1024,
        "GB" => 1024 * 1024 * 1024,
        _ => return None,
    };
    Some(number.parse::<u64>().ok()? * unit)
}

/// A number a small step above and below: 1 for a whole one, 0.01 for one with a point.
pub(super) fn beside(number: &str) -> Vec<String> {
    if let Ok(number) = number.parse::<i64>() {
        return [number.checked_add(1), number.checked_sub(1)].iter().flatten().map(ToString::to_string).collect();
    }
    let Ok(found) = number.parse::<f64>() else { return Vec::new() };
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len()).max(2);
    [found + 0.01, found - 0.01].map(|new| format!("{new:.decimals$}")).into()
}

/// `&&` binds closer than `||`, which binds closer than `?`, `:` and a comma.
fn looseness(sign: &str) -> u8 {
    match sign {
        "&&" => 1,
        "||" => 2,
        "?" | ":" | "," => 3,
        _ => 0,
    }
}

/// At the depth of what stands inside, a bracket is the one around it.
fn is_bracket(sign: &str) -> bool {
    matches!(sign, "(" | "[" | "{" | ")" | "]" | "}")
}

/// Where the operand left (or right) of this sign reaches to, in tokens.
fn operand(text: &str, tokens: &[Token], at: usize, right: bool) -> Range<usize> {
    let (depth, own) = (tokens[at].depth, looseness(&text[tokens[at].at.clone()]));
    let ends = |token: &Token| {
        let sign = &text[token.at.clone()];
        token.depth == depth && (is_bracket(sign) || looseness(sign) >= own) || token.depth < depth
    };
    if right {
        let end = (at + 1..tokens.len()).find(|i| ends(&tokens[*i])).unwrap_or(tokens.len());
        at + 1..end
    } else {
        let start = (0..at).rev().find(|i| ends(&tokens[*i])).map_or(0, |i| i + 1);
        start..at
    }
}

fn place(tokens: &[Token], range: &Range<usize>) -> Option<Range<usize>> {
    Some(tokens.get(range.start)?.at.start..tokens.get(range.end.checked_sub(1)?)?.at.end)
}

/// Without what stands on the right of this `&&` or `||`; for the first of a chain also without what stands left.
fn dropped_parts(text: &str, tokens: &[Token], at: usize) -> Vec<Change> {
    let mut out = Vec::new();
    let (left, right) = (operand(text, tokens, at, false), operand(text, tokens, at, true));
    let (Some(left_at), Some(right_at)) = (place(tokens, &left), place(tokens, &right)) else { return out };
    let mut drop = |cut: Range<usize>, part: &str| {
        out.push(Change {
            operator: Operator::DropPart,
            what: format!("without `{part}`"),
            text: format!("{}{}", &text[..cut.start], &text[cut.end..]),
        });
    };
    drop(left_at.end..right_at.end, &text[right_at.clone()]);
    let sign = &text[tokens[at].at.clone()];
    let first = left.start == 0 || text[tokens[left.start - 1].at.clone()] != *sign;
    if first {
        drop(left_at.start..right_at.start, &text[left_at]);
    }
    out
}

/// `c ? b : a`.
fn swapped_branches(text: &str, tokens: &[Token], at: usize) -> Option<Change> {
    let depth = tokens[at].depth;
    let mut open = 0;
    let colon = (at + 1..tokens.len()).find(|i| {
        match (tokens[*i].depth == depth, &text[tokens[*i].at.clone()]) {
            (true, "?") => open += 1,
            (true, ":") if open == 0 => return true,
            (true, ":") => open -= 1,
            _ => {}
        }
        false
    })?;
    let ends = |i: &usize| {
        let sign = &text[tokens[*i].at.clone()];
        tokens[*i].depth == depth && (is_bracket(sign) || sign == ",") || tokens[*i].depth < depth
    };
    let end = (colon + 1..tokens.len()).find(ends).unwrap_or(tokens.len());
    let (yes, no) = (place(tokens, &(at + 1..colon))?, place(tokens, &(colon + 1..end))?);
    Some(Change {
        operator: Operator::ChangeSign,
        what: format!("`{}` and `{}` change places", &text[yes.clone()], &text[no.clone()]),
        text: format!("{}({}) : ({}){}", &text[..yes.start], &text[no.clone()], &text[yes], &text[no.end..]),
    })
}

fn tokens(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        let start = at;
        let byte = bytes[at];
        let run =
            |from: usize, fits: fn(u8) -> bool| from + bytes[from..].iter().take_while(|byte| fits(**byte)).count();
        let kind = if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        } else if byte == b'\'' {
            at = text[at + 1..].find('\'').map_or(bytes.len(), |end| at + 1 + end + 1);
            Kind::Text
        } else if byte.is_ascii_digit() {
            at = run(at, |byte| byte.is_ascii_digit());
            if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
                at = run(at + 1, |byte| byte.is_ascii_digit());
            }
            Kind::Number
        } else if byte.is_ascii_alphabetic() || byte == b'_' {
            at = run(at, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            Kind::Word
        } else {
            let two = text.get(at..at + 2).is_some_and(|two| ["&&", "||", "==", "!=", "<=", ">="].contains(&two));
            at += if two { 2 } else { text[at..].chars().next().map_or(1, char::len_utf8) };
            Kind::Sign
        };
        let sign = &text[start..at];
        if kind == Kind::Sign && matches!(sign, ")" | "]" | "}") {
            depth = depth.saturating_sub(1);
        }
        // Brackets themselves stand inside, so that what is around them takes them as one operand.
        let inside = usize::from(kind == Kind::Sign && is_bracket(sign));
        tokens.push(Token { kind, at: start..at, depth: depth + inside });
        if kind == Kind::Sign && matches!(sign, "(" | "[" | "{") {
            depth += 1;
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        changes(text, &[vec!["A".into(), "B".into()]]).into_iter().map(|change| change.text).collect()
    }

    #[test]
    fn comparisons_constants_and_signs_change() {
        assert_eq!(all("a < 3"), ["a <= 3", "a < 4", "a < 2"]);
        assert_eq!(all("a < 0.5"), ["a <= 0.5", "a < 0.51", "a < 0.49"]);
        assert_eq!(all("f(0.0)"), ["f(0.01)", "f(-0.01)"]);
        assert_eq!(all("!x.a"), ["x.a"]);
        assert_eq!(all("now + '1s'"), ["now - '1s'", "now + '2s'"]);
        assert_eq!(all("x == A"), ["x != A", "x == B"]);
        assert_eq!(all("c ? 'a' : d"), ["c ? (d) : ('a')", "c ? 'ax' : d"]);
    }

    #[test]
    fn parts_are_dropped_as_they_bind() {
        assert_eq!(all("a && b && c"), ["a && c", "b && c", "a && b"]);
        assert_eq!(all("a && b || c"), ["a || c", "b || c", "a && b", "c"]);
        assert_eq!(all("f(a || b, c)"), ["f(a, c)", "f(b, c)"]);
        assert_eq!(all("(a || b) && c"), ["(a) && c", "(b) && c", "(a || b)", "c"]);
    }
}
