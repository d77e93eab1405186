//! Mutates expressions. Tokenizes them into words, strings, numbers, signs and brackets, without full parsing.

use std::ops::Range;

use super::MutationOperator;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TokenKind {
    Word,
    Text,
    Number,
    Sign,
}

#[derive(Clone, Debug)]
struct ExpressionToken {
    kind: TokenKind,
    span: Range<usize>,
    /// The number of enclosing brackets.
    depth: usize,
}

/// One mutation: its operator, a description, and the whole changed expression.
pub(super) struct ExpressionChange {
    pub(super) operator: MutationOperator,
    pub(super) description: String,
    pub(super) text: String,
}

/// Returns every mutation of this expression. `enums` are the enumerations that the file declares.
pub(super) fn expression_changes(text: &str, enums: &[Vec<String>]) -> Vec<ExpressionChange> {
    let tokens = tokenize(text);
    let mut out = Vec::new();
    for index in 0..tokens.len() {
        let token = &tokens[index];
        let word = &text[token.span.clone()];
        let mut add = |operator: MutationOperator, new: String| {
            let position =
                if text.matches(word).count() > 1 { format!(" at {}", token.span.start) } else { String::new() };
            out.push(ExpressionChange {
                operator,
                description: format!("`{word}` becomes `{new}`{position}"),
                text: format!("{}{new}{}", &text[..token.span.start], &text[token.span.end..]),
            });
        };
        match token.kind {
            TokenKind::Number => {
                for new in adjacent_numbers(word) {
                    add(MutationOperator::ShiftConstant, new);
                }
            }
            TokenKind::Text => match doubled_duration(word.trim_matches('\'')) {
                Some(duration) => add(MutationOperator::DoubleDuration, format!("'{duration}'")),
                None => add(MutationOperator::ChangeName, format!("'{}x'", word.trim_matches('\''))),
            },
            TokenKind::Word => {
                let part = index > 0 && text[tokens[index - 1].span.clone()] == *".";
                match word {
                    "true" => add(MutationOperator::ChangeName, "false".into()),
                    "false" => add(MutationOperator::ChangeName, "true".into()),
                    "max" if !part => add(MutationOperator::ChangeSign, "min".into()),
                    "min" if !part => add(MutationOperator::ChangeSign, "max".into()),
                    _ if part => {}
                    _ => {
                        for names in enums.iter().filter(|names| names.iter().any(|name| name == word)) {
                            for other in names.iter().filter(|other| *other != word) {
                                add(MutationOperator::ChangeName, other.clone());
                            }
                        }
                    }
                }
            }
            TokenKind::Sign => {
                if let Some((operator, new)) = opposite_sign(word, index > 0 && ends_operand(text, &tokens[index - 1]))
                {
                    add(operator, new.into());
                }
                if word == "?" {
                    out.extend(swap_branches(text, &tokens, index));
                }
                if matches!(word, "&&" | "||") {
                    out.extend(drop_operands(text, &tokens, index));
                }
            }
        }
    }
    out
}

fn ends_operand(text: &str, token: &ExpressionToken) -> bool {
    token.kind != TokenKind::Sign || matches!(&text[token.span.clone()], ")" | "]")
}

fn opposite_sign(sign: &str, binary: bool) -> Option<(MutationOperator, &'static str)> {
    Some(match sign {
        "<" => (MutationOperator::ShiftComparison, "<="),
        "<=" => (MutationOperator::ShiftComparison, "<"),
        ">" => (MutationOperator::ShiftComparison, ">="),
        ">=" => (MutationOperator::ShiftComparison, ">"),
        "==" => (MutationOperator::ChangeSign, "!="),
        "!=" => (MutationOperator::ChangeSign, "=="),
        "+" => (MutationOperator::ChangeSign, "-"),
        "-" if binary => (MutationOperator::ChangeSign, "+"),
        "*" => (MutationOperator::ChangeSign, "/"),
        "/" => (MutationOperator::ChangeSign, "*"),
        "!" => (MutationOperator::ChangeSign, ""),
        _ => return None,
    })
}

/// Returns a duration twice as long, or `None` if the text is not a duration.
pub(super) fn doubled_duration(text: &str) -> Option<String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?;
    let (number, unit) = text.split_at(digits);
    if !["us", "ms", "s", "m", "h", "d"].contains(&unit) {
        return None;
    }
    Some(format!("{}{unit}", number.parse::<u64>().ok()? * 2))
}

/// Parses a size in bytes such as `32 KB`.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
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

/// Returns the number plus and minus a small step: 1 for an integer, 0.01 for a decimal number.
pub(super) fn adjacent_numbers(number: &str) -> Vec<String> {
    if let Ok(number) = number.parse::<i64>() {
        return [number.checked_add(1), number.checked_sub(1)].iter().flatten().map(ToString::to_string).collect();
    }
    let Ok(found) = number.parse::<f64>() else { return Vec::new() };
    let decimals = number.split_once('.').map_or(0, |(_, decimals)| decimals.len()).max(2);
    [found + 0.01, found - 0.01].map(|new| format!("{new:.decimals$}")).into()
}

/// Returns the precedence of a sign. `&&` binds closer than `||`, which binds closer than `?`, `:` and a comma.
fn looseness(sign: &str) -> u8 {
    match sign {
        "&&" => 1,
        "||" => 2,
        "?" | ":" | "," => 3,
        _ => 0,
    }
}

/// A bracket at the depth of its content encloses that content.
fn is_bracket(sign: &str) -> bool {
    matches!(sign, "(" | "[" | "{" | ")" | "]" | "}")
}

/// Returns the token range of the operand left or right of this sign.
fn operand_range(text: &str, tokens: &[ExpressionToken], index: usize, right: bool) -> Range<usize> {
    let (depth, own) = (tokens[index].depth, looseness(&text[tokens[index].span.clone()]));
    let ends = |token: &ExpressionToken| {
        let sign = &text[token.span.clone()];
        token.depth == depth && (is_bracket(sign) || looseness(sign) >= own) || token.depth < depth
    };
    if right {
        let end = (index + 1..tokens.len()).find(|i| ends(&tokens[*i])).unwrap_or(tokens.len());
        index + 1..end
    } else {
        let start = (0..index).rev().find(|i| ends(&tokens[*i])).map_or(0, |i| i + 1);
        start..index
    }
}

fn text_span(tokens: &[ExpressionToken], range: &Range<usize>) -> Option<Range<usize>> {
    Some(tokens.get(range.start)?.span.start..tokens.get(range.end.checked_sub(1)?)?.span.end)
}

/// Drops the operand on the right of this `&&` or `||`, and for the first sign of a chain also the one on the left.
fn drop_operands(text: &str, tokens: &[ExpressionToken], index: usize) -> Vec<ExpressionChange> {
    let mut out = Vec::new();
    let (left, right) = (operand_range(text, tokens, index, false), operand_range(text, tokens, index, true));
    let (Some(left_at), Some(right_at)) = (text_span(tokens, &left), text_span(tokens, &right)) else { return out };
    let mut drop = |cut: Range<usize>, part: &str| {
        out.push(ExpressionChange {
            operator: MutationOperator::DropOperand,
            description: format!("without `{part}`"),
            text: format!("{}{}", &text[..cut.start], &text[cut.end..]),
        });
    };
    drop(left_at.end..right_at.end, &text[right_at.clone()]);
    let sign = &text[tokens[index].span.clone()];
    let first = left.start == 0 || text[tokens[left.start - 1].span.clone()] != *sign;
    if first {
        drop(left_at.start..right_at.start, &text[left_at]);
    }
    out
}

/// Swaps the branches: `c ? a : b` becomes `c ? b : a`.
fn swap_branches(text: &str, tokens: &[ExpressionToken], index: usize) -> Option<ExpressionChange> {
    let depth = tokens[index].depth;
    let mut open = 0;
    let colon = (index + 1..tokens.len()).find(|i| {
        match (tokens[*i].depth == depth, &text[tokens[*i].span.clone()]) {
            (true, "?") => open += 1,
            (true, ":") if open == 0 => return true,
            (true, ":") => open -= 1,
            _ => {}
        }
        false
    })?;
    let ends = |i: &usize| {
        let sign = &text[tokens[*i].span.clone()];
        tokens[*i].depth == depth && (is_bracket(sign) || sign == ",") || tokens[*i].depth < depth
    };
    let end = (colon + 1..tokens.len()).find(ends).unwrap_or(tokens.len());
    let (yes, no) = (text_span(tokens, &(index + 1..colon))?, text_span(tokens, &(colon + 1..end))?);
    Some(ExpressionChange {
        operator: MutationOperator::ChangeSign,
        description: format!("`{}` and `{}` change places", &text[yes.clone()], &text[no.clone()]),
        text: format!("{}({}) : ({}){}", &text[..yes.start], &text[no.clone()], &text[yes], &text[no.end..]),
    })
}

fn tokenize(text: &str) -> Vec<ExpressionToken> {
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
            TokenKind::Text
        } else if byte.is_ascii_digit() {
            at = run(at, |byte| byte.is_ascii_digit());
            if bytes.get(at) == Some(&b'.') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
                at = run(at + 1, |byte| byte.is_ascii_digit());
            }
            TokenKind::Number
        } else if byte.is_ascii_alphabetic() || byte == b'_' {
            at = run(at, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            TokenKind::Word
        } else {
            let two = text.get(at..at + 2).is_some_and(|two| ["&&", "||", "==", "!=", "<=", ">="].contains(&two));
            at += if two { 2 } else { text[at..].chars().next().map_or(1, char::len_utf8) };
            TokenKind::Sign
        };
        let sign = &text[start..at];
        if kind == TokenKind::Sign && matches!(sign, ")" | "]" | "}") {
            depth = depth.saturating_sub(1);
        }
        // A bracket has the depth of its content, so that the tokens around it treat the whole as one operand.
        let inside = usize::from(kind == TokenKind::Sign && is_bracket(sign));
        tokens.push(ExpressionToken { kind, span: start..at, depth: depth + inside });
        if kind == TokenKind::Sign && matches!(sign, "(" | "[" | "{") {
            depth += 1;
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed_texts(text: &str) -> Vec<String> {
        expression_changes(text, &[vec!["A".into(), "B".into()]]).into_iter().map(|change| change.text).collect()
    }

    #[test]
    fn comparisons_constants_and_signs_are_mutated() {
        assert_eq!(changed_texts("a < 3"), ["a <= 3", "a < 4", "a < 2"]);
        assert_eq!(changed_texts("a < 0.5"), ["a <= 0.5", "a < 0.51", "a < 0.49"]);
        assert_eq!(changed_texts("f(0.0)"), ["f(0.01)", "f(-0.01)"]);
        assert_eq!(changed_texts("!x.a"), ["x.a"]);
        assert_eq!(changed_texts("now + '1s'"), ["now - '1s'", "now + '2s'"]);
        assert_eq!(changed_texts("x == A"), ["x != A", "x == B"]);
        assert_eq!(changed_texts("c ? 'a' : d"), ["c ? (d) : ('a')", "c ? 'ax' : d"]);
    }

    #[test]
    fn operands_are_dropped_by_precedence() {
        assert_eq!(changed_texts("a && b && c"), ["a && c", "b && c", "a && b"]);
        assert_eq!(changed_texts("a && b || c"), ["a || c", "b || c", "a && b", "c"]);
        assert_eq!(changed_texts("f(a || b, c)"), ["f(a, c)", "f(b, c)"]);
        assert_eq!(changed_texts("(a || b) && c"), ["(a) && c", "(b) && c", "(a || b)", "c"]);
    }
}
