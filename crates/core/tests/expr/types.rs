//! Tests the operand types of operators and functions.

use onceward_core::model::DataType;

use crate::support::{compile_any, expect_type, list_type, rejection, rejection_for};

#[test]
fn operators_and_functions_return_declared_types() {
    for (text, ty) in [
        ("1 + 2", DataType::Int),
        ("1.0 / 2.0", DataType::Double),
        ("7 % 2", DataType::Int),
        ("-record.count", DataType::Int),
        ("'a' + record.note", DataType::Text),
        ("record.state + '!'", DataType::Text),
        ("record.tags + ['x']", list_type(DataType::Text)),
        ("now - record.at", DataType::Duration),
        ("now - record.wait", DataType::Time),
        ("record.wait + now", DataType::Time),
        ("record.wait - record.wait", DataType::Duration),
        ("now < record.at", DataType::Bool),
        ("record.wait >= duration('1s')", DataType::Bool),
        ("'a' < record.note", DataType::Bool),
        ("1 in record.nums", DataType::Bool),
        ("record.tags == []", DataType::Bool),
        ("null == null", DataType::Bool),
        ("record.nums.filter(n, n > 1)", list_type(DataType::Int)),
        ("record.nums.exists(n, n > 1)", DataType::Bool),
        ("size(record.tags) + size(record.note)", DataType::Int),
        ("int(now) / 60", DataType::Int),
        ("int(1.5)", DataType::Int),
        ("double(1)", DataType::Double),
        ("string(record.job) + string(1) + string(true)", DataType::Text),
        ("max(record.wait, '5s')", DataType::Duration),
        ("min(1, 2, 3)", DataType::Int),
        ("backoff(record.count, '1s', 2, '5m') + jitter('1s')", DataType::Duration),
        ("record.note.startsWith('a')", DataType::Bool),
        ("record.flag ? 1 : 2", DataType::Int),
        ("[]", list_type(DataType::Null)),
    ] {
        assert_eq!(compile_any(text).value_type.ty, ty, "{text}");
    }
}

#[test]
fn mismatched_operand_types_are_rejected() {
    for text in [
        "1 + 1.0",
        "1 == 1.0",
        "1 < 2.0",
        "now + now",
        "now + 1",
        "now < 5",
        "record.wait * 2",
        "'a' * 2",
        "1.0 % 2.0",
        "record.flag < true",
        "record.note == 1",
        "record.flag && 1",
        "!record.count",
        "-record.note",
        "-record.wait",
        "record.count ? 1 : 2",
        "record.flag ? 1 : 'a'",
        "1 in record.tags",
        "1 in 2",
        "null in record.nums",
        "null + 1",
        "null < 1",
        "record.blob == record.blob",
        "record.blob == 'x'",
        "record.kind < record.kind",
        "record.kind == record.state",
        "record.tags + record.nums",
        "record.tags == record.nums",
        "[1, 'a'] == []",
        "size(1) > 0",
        "int('1') > 0",
        "int(record.flag) > 0",
        "string(1.0) == 'x'",
        "string(now) == 'x'",
        "max(1, 2.0) > 1",
        "max('a', 'b') == 'a'",
        "max(record.flag, record.flag)",
        "record.count.all(x, true)",
        "record.nums.all(x, x)",
        "record.count.startsWith('a')",
        "record.note.startsWith(1)",
        "jitter(1) > record.wait",
        "now - '1s' < now",
        "backoff(1.0, '1s', 2, '5m') > record.wait",
    ] {
        assert_eq!(rejection(text).0, "type-mismatch", "{text}");
    }
    for text in
        ["backoff(1, '1s', record.count, '5m')", "backoff(1, '1s', 0, '5m')", "size()", "max(1)", "record.nums.all(x)"]
    {
        assert_eq!(rejection(text).0, "wrong-arguments", "{text}");
    }
    assert_eq!(rejection("[null] == []").0, "null-not-allowed");
    for (text, at) in [("[[1], [2]] == []", "[1]"), ("[1, []] == []", "[]"), ("[record.nums] == []", "record.nums")] {
        let (code, place, told) = rejection(text);
        assert_eq!((code, place, &*told.message), ("type-mismatch", at, "a list cannot contain lists"), "{text}");
    }
}

#[test]
fn expression_must_fit_expected_type() {
    for (text, ty) in [
        ("1", DataType::Double),
        ("1.0", DataType::Int),
        ("record.count", DataType::Bool),
        ("record.job", DataType::Text),
        ("record.tags", list_type(DataType::Int)),
        ("'2026-01-31T12:00:00Z'", DataType::Time),
    ] {
        assert_eq!(rejection_for(text, &expect_type(ty, true)).0, "type-mismatch", "{text}");
    }
    let house = crate::support::ExprFixture::new();
    house.compile("[]", &expect_type(list_type(DataType::Int), false)).unwrap();
    house.compile("null", &expect_type(DataType::Int, true)).unwrap();
    house.compile("record.flag ? null : 1", &expect_type(DataType::Int, true)).unwrap();
}

#[test]
fn syntax_outside_subset_is_rejected() {
    for text in [
        "record.tags[0] == 'a'",
        "{'a': 1}",
        "Thing{a: 1}",
        "has(record.title)",
        "record.note.matches('a')",
        "b'abc' == b'abc'",
        "r'a' == 'a'",
        "'''a''' == 'a'",
        "'\\x41' == 'a'",
        "now.getHours() == 1",
        "!!record.flag",
        "--1 > 0",
        ".record.count > 1",
        "1 > 0 // always",
        "type(1) == int",
    ] {
        assert_eq!(rejection(text).0, "not-in-subset", "{text}");
    }
    for (text, at) in [
        ("1 +", "+"),
        ("(1", "("),
        ("1)", ")"),
        ("(1]", "]"),
        ("1 2", "2"),
        ("record.count = 1", "="),
        ("record.flag & true", "&"),
        ("'open", "'open"),
        ("1u", "1u"),
        ("if == 1", "if"),
        ("99999999999999999999", "99999999999999999999"),
        ("record.tags.all(1, true)", "1"),
        ("", ""),
        ("a ?? b", "?"),
        ("#", "#"),
    ] {
        let (code, place, diagnostic) = rejection(text);
        assert_eq!((code, place), ("invalid-expression", at), "{text}: {diagnostic:?}");
    }
}

#[test]
fn diagnostics_point_at_exact_bytes() {
    for (text, at) in [
        ("record.note == 'é' && (1 + (2.0)) > 3", "1 + (2.0)"),
        ("true && size( 1 ) > 2", "1"),
        ("record.nums.filter(n, n + 'a' > n) == []", "n + 'a'"),
        ("[1, -2, 'x'] == []", "'x'"),
        ("(record.count) + ((record.rate)) > 1", "(record.count) + ((record.rate))"),
    ] {
        assert_eq!(rejection(text).1, at, "{text}");
    }
    // If the string has escapes, diagnostics point to the whole value.
    let house = crate::support::ExprFixture::new();
    let mut place = crate::support::location_of("1 + 'a'");
    place.content_start = None;
    let errors =
        onceward_core::expr::compile("1 + 'a'", place, &house.scope(), &onceward_core::expr::ExpectedType::Any)
            .unwrap_err();
    assert_eq!(errors[0].span, place.value_span);
}

#[test]
fn errors_on_both_sides_are_reported() {
    let errors = crate::support::ExprFixture::new()
        .compile("record.x == 1 && record.y == 2", &onceward_core::expr::ExpectedType::Any)
        .unwrap_err();
    assert_eq!(errors.len(), 2);
}
