//! Tests name resolution and the errors for unknown names.

use onceward_core::expr::{ExpectedType, ExprKind};
use onceward_core::model::DataType;
use onceward_core::value::Value;

use crate::support::{arc_names, compile_any, expect_type, list_type, ref_type, rejection, rejection_for};

/// Asserts the code of each error and the text that it points to.
fn assert_rejections(cases: &[(&str, &str, &str)]) {
    for (text, code, at) in cases {
        let (found, place, diagnostic) = rejection(text);
        assert_eq!((found, place), (*code, *at), "{text}: {diagnostic:?}");
    }
}

#[test]
fn unknown_name_is_rejected_at_its_span() {
    assert_rejections(&[
        ("record.cout > 1", "unknown-field", "cout"),
        ("record.job.nam == 'x'", "unknown-field", "nam"),
        ("recrd.count > 1", "unknown-name", "recrd"),
        ("count > 1", "unknown-name", "count"),
        ("input.nothing == 1", "unknown-field", "nothing"),
        ("error.kode == 'x'", "unknown-field", "kode"),
        ("actor.name == 'x'", "unknown-field", "name"),
        ("checks.depsit.ok", "unknown-check", "depsit"),
        ("checks.deposit.okay", "unknown-field", "okay"),
        ("checks.deposit", "unknown-field", "deposit"),
        ("refs.you == null", "unknown-ref", "you"),
        ("size(links.part) > 0", "unknown-link", "part"),
        ("size(links.endless) > 0", "unbounded-link", "endless"),
        ("sizes(record.tags) > 0", "unknown-function", "sizes"),
        ("record.nums.map(n, n) == []", "unknown-function", "map"),
        ("record.nums.exists_one(n, n > 1)", "unknown-function", "exists_one"),
        ("record.tags.size() > 0", "unknown-function", "size"),
        ("record.tags.al(t, t == 'x')", "unknown-function", "al"),
        ("record.state == RUNNING", "unknown-name", "RUNNING"),
        ("record.state == 'RUNNING'", "unknown-value", "'RUNNING'"),
        ("record.kind in [payout, 'refnd']", "unknown-value", "'refnd'"),
        ("record", "invalid-expression", "record"),
        ("input", "invalid-expression", "input"),
        ("record.blob.x == 1", "unknown-field", "x"),
        ("record.tags.x == 1", "unknown-field", "x"),
        ("record.note == pending", "unknown-name", "pending"),
        ("pending == waiting", "unknown-name", "pending"),
        (
            "(record.flag ? record.job : record.job).name == 'x'",
            "not-in-subset",
            "record.flag ? record.job : record.job",
        ),
    ]);
}

#[test]
fn unknown_name_suggests_closest_name() {
    for (text, near) in [
        ("record.cout > 1", "`count`"),
        ("record.state == PAYED", "`PAID`"),
        ("record.kind == 'refnd'", "`refund`"),
        ("checks.depsit.ok", "`deposit`"),
        ("recrd.count > 1", "`record`"),
        ("sze(record.tags) > 0", "`size`"),
        ("record.note.startWith('a')", "`startsWith`"),
    ] {
        let (_, _, diagnostic) = rejection(text);
        assert!(diagnostic.help.as_deref().unwrap_or("").contains(near), "{text}: {diagnostic:?}");
    }
}

#[test]
fn name_outside_scope_is_rejected_as_not_available() {
    let house = crate::support::ExprFixture::new();
    let mut scope = house.scope();
    scope.error = false;
    scope.result = None;
    scope.input = None;
    scope.actor = false;
    scope.now = false;
    for text in ["error.code == 'x'", "result.url == 'x'", "input.amount == 1", "actor.id == 'x'", "now > record.at"] {
        let errors = onceward_core::expr::compile(text, crate::support::location_of(text), &scope, &ExpectedType::Any)
            .unwrap_err();
        assert_eq!(errors[0].code, "not-available", "{text}");
    }
}

#[test]
fn bare_names_resolve_by_expected_enum() {
    for text in [
        "record.state == PAID",
        "PAID == record.state",
        "record.state in [NEW, PAID, 'FAILED']",
        "record.kind != payout",
        "payout in record.kinds",
        "record.kind == (record.flag ? payout : refund)",
        "(record.flag ? payout : record.kind) == refund",
        "record.support.all(s, s.state in ['Live', Hint, Claim])",
        "links.parts.exists(p, p.state == Live)",
        "record.kinds == [payout, refund]",
        "record.kinds + [record.kind] == [payout]",
        "[record.kind, payout] == record.kinds",
    ] {
        compile_any(text);
    }
    let kind = || DataType::Enum(arc_names(&["payout", "refund"]));
    let house = crate::support::ExprFixture::new();
    for text in ["payout", "'payout'", "record.flag ? payout : refund", "record.flag ? 'payout' : refund"] {
        house.compile(text, &expect_type(kind(), false)).unwrap();
    }
    house.compile("[payout, 'refund']", &expect_type(list_type(kind()), false)).unwrap();
    house.compile("record.flag ? [payout] : []", &expect_type(list_type(kind()), false)).unwrap();
    // Text does not fit an enum.
    assert_eq!(rejection_for("record.note", &expect_type(kind(), false)).0, "type-mismatch");
    // An enum is text, and a smaller enum fits a larger one.
    house.compile("record.state", &expect_type(DataType::Text, false)).unwrap();
    assert_eq!(rejection_for("record.kind", &expect_type(kind(), false)).0, "type-mismatch");
}

#[test]
fn name_with_two_meanings_is_rejected_as_ambiguous() {
    assert_eq!(rejection("record.kind == now").0, "ambiguous-name");
    compile_any("record.kind == 'now'");
    assert_eq!(rejection("record.tags.exists(payout, record.kind == payout)").0, "ambiguous-name");
    assert_eq!(rejection("record.tags.exists(record, true)").0, "ambiguous-name");
    assert_eq!(rejection("record.tags.exists(t, record.tags.exists(t, true))").0, "ambiguous-name");
}

#[test]
fn multi_lifecycle_ref_reads_only_common_fields() {
    compile_any("record.support.all(s, s.both > 1)");
    assert_eq!(rejection("record.support.all(s, s.name == 'x')").0, "type-mismatch");
    assert_eq!(rejection("record.support.all(s, s.score > 1.0)").0, "unknown-field");
    assert_eq!(rejection("record.support.all(s, s.state == NEW)").0, "unknown-name");
}

#[test]
fn path_with_too_many_hops_is_rejected() {
    compile_any("record.job.boss.boss.name == 'x'");
    assert_eq!(rejection("record.job.boss.boss.boss.name == 'x'").0, "too-many-hops");
    assert_eq!(rejection("links.parts.exists(p, p.boss.boss.boss.name == 'x')").0, "too-many-hops");
    compile_any("record.job.boss.boss.boss.id == record.job");
}

#[test]
fn ref_paths_have_ref_type() {
    let expr = compile_any("record.job");
    assert_eq!(expr.value_type.ty, ref_type(&["shop.job"]));
    assert_eq!(compile_any("record.job.id").value_type.ty, ref_type(&["shop.job"]));
    assert_eq!(compile_any("record.id").value_type.ty, ref_type(&["shop.order"]));
    assert_eq!(rejection("record.job == record.id").0, "type-mismatch");
    assert_eq!(rejection("record.job == actor.id").0, "type-mismatch");
    let house = crate::support::ExprFixture::new();
    for text in ["record.job", "record.parent", "links.parts", "links.endless", "record.support", "refs.me"] {
        house.compile(text, &ExpectedType::Targets).unwrap();
    }
    assert_eq!(rejection_for("record.count", &ExpectedType::Targets).0, "type-mismatch");
    assert_eq!(rejection_for("links.endless.filter(p, true)", &ExpectedType::Targets).0, "unbounded-link");
}

#[test]
fn duration_and_time_literals_are_folded_at_compile() {
    let house = crate::support::ExprFixture::new();
    let second = house.compile("'1s'", &expect_type(DataType::Duration, false)).unwrap();
    assert!(matches!(second.kind, ExprKind::Const(Value::Duration(_))));
    assert!(matches!(compile_any("duration('1h30m')").kind, ExprKind::Const(Value::Duration(_))));
    assert!(matches!(compile_any("timestamp('2026-01-31T12:00:00Z')").kind, ExprKind::Const(Value::Time(_))));
    assert_eq!(rejection("duration('soon')").0, "invalid-duration");
    assert_eq!(rejection("timestamp('soon')").0, "invalid-time");
    assert_eq!(rejection("duration(record.note)").0, "type-mismatch");
    assert_eq!(rejection_for("'soon'", &expect_type(DataType::Duration, false)).0, "invalid-duration");
}
