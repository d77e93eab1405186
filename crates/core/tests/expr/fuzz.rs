//! Tests that `compile` never panics, hangs or overflows a small stack.

use std::fmt::Write as _;

use onceward_core::expr::ExpectedType;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::ExprFixture;

const FUZZ_TOKENS: [&str; 62] = [
    "record",
    "input",
    "refs",
    "links",
    "actor",
    "now",
    "count",
    "state",
    "tags",
    "x",
    "PAID",
    "payout",
    "null",
    "true",
    "false",
    "in",
    "if",
    "has",
    "size",
    "max",
    "duration",
    "all",
    "exists",
    "map",
    "filter",
    "1",
    "2.5",
    "0x1f",
    "1u",
    "1e400",
    "99999999999999999999",
    "'a'",
    "\"b\"",
    "'1s'",
    "'",
    "\"",
    "'''",
    "b'a'",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    "?",
    ":",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "<",
    "<=",
    "==",
    "!=",
    "&&",
    "||",
    "\\",
    "é\u{0}\u{202e}",
];

fn run_on_small_stack(run: impl FnOnce() + Send + 'static) {
    // Spawned threads have 2 MB by default. Half of it must be enough, even without optimization.
    std::thread::Builder::new().stack_size(1024 * 1024).spawn(run).unwrap().join().unwrap();
}

fn compiles(fixture: &ExprFixture, text: &str) -> bool {
    match fixture.compile(text, &ExpectedType::Any) {
        Ok(_) => true,
        Err(errors) => {
            // The message for a failure of the parser itself.
            assert!(errors.iter().all(|error| error.message != "the expression cannot be parsed"), "{text:?}");
            false
        }
    }
}

#[test]
fn random_text_compiles_without_panic() {
    run_on_small_stack(|| {
        let house = ExprFixture::new();
        let mut runner = TestRunner::new(Config { cases: 3_000, failure_persistence: None, ..Config::default() });
        let bytes = proptest::collection::vec(any::<char>(), 0..40);
        runner
            .run(&bytes, |chars| {
                compiles(&house, &chars.into_iter().collect::<String>());
                Ok(())
            })
            .unwrap();
    });
}

#[test]
fn random_tokens_compile_without_panic() {
    run_on_small_stack(|| {
        let house = ExprFixture::new();
        let mut runner = TestRunner::new(Config { cases: 6_000, failure_persistence: None, ..Config::default() });
        let tokens = proptest::collection::vec((0..FUZZ_TOKENS.len(), any::<bool>()), 0..60);
        runner
            .run(&tokens, |tokens| {
                let text = tokens.iter().fold(String::new(), |mut text, (index, space)| {
                    let _ = write!(text, "{}{}", FUZZ_TOKENS[*index], if *space { " " } else { "" });
                    text
                });
                compiles(&house, &text);
                Ok(())
            })
            .unwrap();
    });
}

/// Mutated valid expressions reach deeper into the parser and the typer than noise does.
#[test]
fn mutated_expressions_compile_without_panic() {
    const VALID_EXPRESSIONS: [&str; 6] = [
        "record.count + 1 >= record.budget && !(record.flag || record.kind in [payout, 'refund'])",
        "now + max(backoff(record.count, '2s', 2, '30s') + jitter('1s'), error.retryAfter)",
        "size(record.support) == 0 || !record.support.all(s, s.state in ['Live', Hint, Claim, Fact])",
        "record.parent != null && record.parent.state != PAID ? record.nums.filter(n, n * 2 > 3) : [1, -2]",
        "double(record.count + 1) / double(record.budget) < 0.5 == (record.rate > 1.0)",
        "refs.me == null || size(links.parts.filter(p, p.id == refs.me.id)) == 1",
    ];
    run_on_small_stack(|| {
        let house = ExprFixture::new();
        let mut runner = TestRunner::new(Config { cases: 6_000, failure_persistence: None, ..Config::default() });
        let edits = proptest::collection::vec((any::<prop::sample::Index>(), 0..FUZZ_TOKENS.len(), 0..3_u8), 1..4);
        runner
            .run(&(0..VALID_EXPRESSIONS.len(), edits), |(good, edits)| {
                let mut text = VALID_EXPRESSIONS[good].to_owned();
                for (place, token, how) in edits {
                    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
                    let at = *place.get(&starts);
                    match how {
                        0 => text.insert_str(at, FUZZ_TOKENS[token]),
                        1 if at < text.len() => drop(text.remove(at)),
                        _ => text.truncate(at),
                    }
                }
                compiles(&house, &text);
                Ok(())
            })
            .unwrap();
    });
}

/// Covers the parser, the typer and the evaluation.
#[test]
fn deepest_expressions_fit_small_stack() {
    run_on_small_stack(|| {
        let scene = crate::support::EvalFixture::new();
        let deepest = |open: &str, middle: &str, close: &str| {
            let text = (1..40)
                .map(|depth| format!("{}{middle}{}", open.repeat(depth), close.repeat(depth)))
                .take_while(|text| compiles(&ExprFixture::new(), text))
                .last()
                .unwrap();
            scene.eval(&crate::support::compile_any(&text)).unwrap();
            text.len()
        };
        let lengths = [
            deepest("(", "1", ")"),
            deepest("!(", "true", ")"),
            deepest("size([", "1", "])"),
            deepest("1+(", "1", ")"),
            deepest("true?(", "1", "):1"),
            deepest("max(1,", "1", ")"),
            deepest("", "1", "+1"),
        ];
        assert!(lengths.iter().all(|length| *length > 20), "{lengths:?}");
    });
}
