//! Finds the function bodies of a Rust file. Reads tokens, not grammar; rustc rejects a wrong result.

use std::ops::Range;

/// A function that is not nested in another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FunctionBody {
    /// The text between the outer braces.
    pub(super) body: Range<usize>,
    /// Whether the body can be switched at run time. A `const fn` cannot read the switch, and a function that returns
    /// `impl Trait` can have only one type.
    pub(super) can_switch: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RustToken<'a> {
    Word(&'a str),
    Sign(u8),
}

/// A function's signature up to its body.
struct FunctionHead {
    nesting: usize,
    seen_return_arrow: bool,
    can_switch: bool,
}

pub(super) fn find_functions(text: &str) -> Vec<FunctionBody> {
    let tokens = tokenize(text);
    let mut found = Vec::new();
    let mut head: Option<FunctionHead> = None;
    // The current body: its start, the number of its open braces, and `can_switch`.
    let mut body: Option<(usize, usize, bool)> = None;
    let mut nesting = 0_usize;
    for (number, (at, token)) in tokens.iter().enumerate() {
        if let Some((start, depth, may_ask)) = &mut body {
            match token {
                RustToken::Sign(b'{') => *depth += 1,
                RustToken::Sign(b'}') if *depth == 1 => {
                    found.push(FunctionBody { body: *start..*at, can_switch: *may_ask });
                    body = None;
                }
                RustToken::Sign(b'}') => *depth -= 1,
                _ => {}
            }
            continue;
        }
        let before = number.checked_sub(1).map(|number| tokens[number].1);
        match (token, &mut head) {
            (RustToken::Word("fn"), _) => {
                // `fn(u8)` is a type, not a function.
                if let Some((_, RustToken::Word(_))) = tokens.get(number + 1) {
                    head = Some(FunctionHead {
                        nesting,
                        seen_return_arrow: false,
                        can_switch: before != Some(RustToken::Word("const")),
                    });
                }
            }
            (RustToken::Sign(b'(' | b'['), _) => nesting += 1,
            (RustToken::Sign(b')' | b']'), _) => nesting = nesting.saturating_sub(1),
            (RustToken::Sign(b'>'), Some(head)) if before == Some(RustToken::Sign(b'-')) && head.nesting == nesting => {
                head.seen_return_arrow = true;
            }
            (RustToken::Word("impl"), Some(head)) if head.seen_return_arrow => head.can_switch = false,
            (RustToken::Sign(b';'), Some(own)) if own.nesting == nesting => head = None,
            (RustToken::Sign(b'{'), Some(own)) if own.nesting == nesting => {
                body = Some((at + 1, 1, own.can_switch));
                head = None;
            }
            _ => {}
        }
    }
    found
}

/// Returns words and signs with their offsets. Skips comments and string literals.
fn tokenize(text: &str) -> Vec<(usize, RustToken<'_>)> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let rest = &text[at..];
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            at += block_comment_length(rest);
        } else if byte == b'"' {
            at += string_length(rest);
        } else if byte == b'\'' {
            at += quote_length(rest);
        } else if is_word_byte(byte) {
            let length = bytes[at..].iter().take_while(|byte| is_word_byte(**byte)).count();
            let word = &rest[..length];
            tokens.push((at, RustToken::Word(word)));
            at += length;
            if matches!(word, "r" | "br" | "cr") {
                at += raw_string_length(&text[at..]);
            }
        } else {
            if !byte.is_ascii_whitespace() {
                tokens.push((at, RustToken::Sign(byte)));
            }
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    tokens
}

const fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the length of a `/* … */` comment, which may nest.
fn block_comment_length(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Returns the length of a string literal.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a raw string from its first `#` or `"`, or 0 if there is none (a raw identifier, or a word
/// `r`).
fn raw_string_length(text: &str) -> usize {
    let marks = text.bytes().take_while(|byte| *byte == b'#').count();
    if !text[marks..].starts_with('"') {
        return 0;
    }
    let close = format!("\"{}", "#".repeat(marks));
    text[marks + 1..].find(&close).map_or(text.len(), |end| marks + 1 + end + close.len())
}

/// Returns the length of a character literal or of a lifetime's quote.
fn quote_length(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => {
            letters.next();
            letters.find(|(_, c)| *c == '\'').map_or(text.len(), |(at, _)| at + 1)
        }
        Some(_) => letters.next().filter(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 1),
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find_bodies(text: &str) -> Vec<(&str, bool)> {
        find_functions(text).into_iter().map(|found| (&text[found.body], found.can_switch)).collect()
    }

    #[test]
    fn top_level_function_bodies_are_found() {
        assert_eq!(
            find_bodies("fn a() { 1 } impl X { pub fn b(&self) -> u8 {{ 2 }} }"),
            [(" 1 ", true), ("{ 2 }", true)]
        );
        assert_eq!(find_bodies("trait T { fn a(x: [u8; 2]); fn b() { fn c() {} } }"), [(" fn c() {} ", true)]);
        assert_eq!(find_bodies("struct S { f: fn(u8) } const A: [u8; 1] = [{ 1 }];"), []);
        assert_eq!(find_bodies("fn f(g: impl Fn(u8) -> u8) -> [u8; 2] { g }"), [(" g ", true)]);
    }

    #[test]
    fn braces_in_literals_and_comments_are_ignored() {
        let text = r##"fn a<'a>(x: &'a str) { "}\"}"; '}'; '\''; '\u{7d}'; r#"}"}"#; br"}"; b'}'; /* } /* } */ } */ // }
        x } fn b() {}"##;
        let found = find_bodies(text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].0.ends_with("x "));
        assert_eq!(find_bodies("fn r#if() { r }"), [(" r ", true)]);
    }

    #[test]
    fn const_and_impl_returning_functions_cannot_switch() {
        assert_eq!(find_bodies("const fn a() { 1 }"), [(" 1 ", false)]);
        assert_eq!(find_bodies("fn a() -> Option<impl Iterator<Item = u8>> { 1 }"), [(" 1 ", false)]);
    }
}
