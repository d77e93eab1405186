//! What each operator and function takes.

use onceward_core::model::Type;

use crate::house::{compiled, fits, list, refused, refused_as};

#[test]
fn operators_give_their_types() {
    for (text, ty) in [
        ("1 + 2", Type::Int),
        ("1.0 / 2.0", Type::Double),
        ("7 % 2", Type::Int),
        ("-record.count", Type::Int),
        ("'a' + record.note", Type::Text),
        ("record.state + '!'", Type::Text),
        ("record.tags + ['x']", list(Type::Text)),
        ("now - record.at", Type::Duration),
        ("now - record.wait", Type::Time),
        ("record.wait + now", Type::Time),
        ("record.wait - record.wait", Type::Duration),
        ("now < record.at", Type::Bool),
        ("record.wait >= duration('1s')", Type::Bool),
        ("'a' < record.note", Type::Bool),
        ("1 in record.nums", Type::Bool),
        ("record.tags == []", Type::Bool),
        ("null == null", Type::Bool),
        ("record.nums.filter(n, n > 1)", list(Type::Int)),
        ("record.nums.exists(n, n > 1)", Type::Bool),
        ("size(record.tags) + size(record.note)", Type::Int),
        ("int(now) / 60", Type::Int),
        ("int(1.5)", Type::Int),
        ("double(1)", Type::Double),
        ("string(record.job) + string(1) + string(true)", Type::Text),
        ("max(record.wait, '5s')", Type::Duration),
        ("min(1, 2, 3)", Type::Int),
        ("backoff(record.count, '1s', 2, '5m') + jitter('1s')", Type::Duration),
        ("record.note.startsWith('a')", Type::Bool),
        ("record.flag ? 1 : 2", Type::Int),
        ("[]", list(Type::Null)),
    ] {
        assert_eq!(compiled(text).typed.ty, ty, "{text}");
    }
}

#[test]
fn operands_of_other_types_are_refused() {
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
        assert_eq!(refused(text).0, "type-mismatch", "{text}");
    }
    for text in
        ["backoff(1, '1s', record.count, '5m')", "backoff(1, '1s', 0, '5m')", "size()", "max(1)", "record.nums.all(x)"]
    {
        assert_eq!(refused(text).0, "wrong-arguments", "{text}");
    }
    assert_eq!(refused("[null] == []").0, "maybe-null");
    for (text, at) in [("[[1], [2]] == []", "[1]"), ("[1, []] == []", "[]"), ("[record.nums] == []", "record.nums")] {
        let (code, place, told) = refused(text);
        assert_eq!((code, place, &*told.message), ("type-mismatch", at, "a list holds no lists"), "{text}");
    }
}

#[test]
fn what_is_wanted_must_fit() {
    for (text, ty) in [
        ("1", Type::Double),
        ("1.0", Type::Int),
        ("record.count", Type::Bool),
        ("record.job", Type::Text),
        ("record.tags", list(Type::Int)),
        ("'2026-01-31T12:00:00Z'", Type::Time),
    ] {
        assert_eq!(refused_as(text, &fits(ty, true)).0, "type-mismatch", "{text}");
    }
    let house = crate::house::House::new();
    house.compile("[]", &fits(list(Type::Int), false)).unwrap();
    house.compile("null", &fits(Type::Int, true)).unwrap();
    house.compile("record.flag ? null : 1", &fits(Type::Int, true)).unwrap();
}

#[test]
fn what_is_not_in_the_subset_is_named() {
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
        assert_eq!(refused(text).0, "not-in-subset", "{text}");
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
        let (code, place, diagnostic) = refused(text);
        assert_eq!((code, place), ("bad-expression", at), "{text}: {diagnostic:?}");
    }
}

#[test]
fn messages_point_at_the_exact_bytes() {
    for (text, at) in [
        ("record.note == 'é' && (1 + (2.0)) > 3", "1 + (2.0)"),
        ("true && size( 1 ) > 2", "1"),
        ("record.nums.filter(n, n + 'a' > n) == []", "n + 'a'"),
        ("[1, -2, 'x'] == []", "'x'"),
        ("(record.count) + ((record.rate)) > 1", "(record.count) + ((record.rate))"),
    ] {
        assert_eq!(refused(text).1, at, "{text}");
    }
    // Where escapes hide the positions, messages point at the whole.
    let house = crate::house::House::new();
    let mut place = crate::house::place("1 + 'a'");
    place.content = None;
    let errors =
        onceward_core::expr::compile("1 + 'a'", place, &house.scope(), &onceward_core::expr::Want::Any).unwrap_err();
    assert_eq!(errors[0].at, place.whole);
}

#[test]
fn both_sides_are_looked_at() {
    let errors = crate::house::House::new()
        .compile("record.x == 1 && record.y == 2", &onceward_core::expr::Want::Any)
        .unwrap_err();
    assert_eq!(errors.len(), 2);
}
