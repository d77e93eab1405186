//! Names: what they resolve to, and what is said of those that resolve to nothing.

use onceward_core::expr::{Kind, Want};
use onceward_core::model::Type;
use onceward_core::value::Value;

use crate::house::{arcs, compiled, fits, list, refs, refused, refused_as};

/// Each text with the code it is refused with and the bytes the message points at.
fn refusals(cases: &[(&str, &str, &str)]) {
    for (text, code, at) in cases {
        let (found, place, diagnostic) = refused(text);
        assert_eq!((found, place), (*code, *at), "{text}: {diagnostic:?}");
    }
}

#[test]
fn unknown_names_are_pointed_at() {
    refusals(&[
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
        ("record", "bad-expression", "record"),
        ("input", "bad-expression", "input"),
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
fn near_names_are_suggested() {
    for (text, near) in [
        ("record.cout > 1", "`count`"),
        ("record.state == PAYED", "`PAID`"),
        ("record.kind == 'refnd'", "`refund`"),
        ("checks.depsit.ok", "`deposit`"),
        ("recrd.count > 1", "`record`"),
        ("sze(record.tags) > 0", "`size`"),
        ("record.note.startWith('a')", "`startsWith`"),
    ] {
        let (_, _, diagnostic) = refused(text);
        assert!(diagnostic.help.as_deref().unwrap_or("").contains(near), "{text}: {diagnostic:?}");
    }
}

#[test]
fn what_the_scope_lacks_is_not_here() {
    let house = crate::house::House::new();
    let mut scope = house.scope();
    scope.error = false;
    scope.result = None;
    scope.input = None;
    scope.actor = false;
    scope.now = false;
    for text in ["error.code == 'x'", "result.url == 'x'", "input.amount == 1", "actor.id == 'x'", "now > record.at"] {
        let errors = onceward_core::expr::compile(text, crate::house::place(text), &scope, &Want::Any).unwrap_err();
        assert_eq!(errors[0].code, "not-here", "{text}");
    }
}

#[test]
fn bare_names_resolve_by_what_they_meet() {
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
        compiled(text);
    }
    let kind = || Type::Enum(arcs(&["payout", "refund"]));
    let house = crate::house::House::new();
    for text in ["payout", "'payout'", "record.flag ? payout : refund", "record.flag ? 'payout' : refund"] {
        house.compile(text, &fits(kind(), false)).unwrap();
    }
    house.compile("[payout, 'refund']", &fits(list(kind()), false)).unwrap();
    house.compile("record.flag ? [payout] : []", &fits(list(kind()), false)).unwrap();
    // What is text already does not fit a closed list.
    assert_eq!(refused_as("record.note", &fits(kind(), false)).0, "type-mismatch");
    // A closed list is text, and a smaller one fits a larger one.
    house.compile("record.state", &fits(Type::Text, false)).unwrap();
    assert_eq!(refused_as("record.kind", &fits(kind(), false)).0, "type-mismatch");
}

#[test]
fn a_name_with_two_meanings_is_ambiguous() {
    assert_eq!(refused("record.kind == now").0, "ambiguous-name");
    compiled("record.kind == 'now'");
    assert_eq!(refused("record.tags.exists(payout, record.kind == payout)").0, "ambiguous-name");
    assert_eq!(refused("record.tags.exists(record, true)").0, "ambiguous-name");
    assert_eq!(refused("record.tags.exists(t, record.tags.exists(t, true))").0, "ambiguous-name");
}

#[test]
fn refs_to_several_lifecycles_read_what_all_declare_alike() {
    compiled("record.support.all(s, s.both > 1)");
    assert_eq!(refused("record.support.all(s, s.name == 'x')").0, "type-mismatch");
    assert_eq!(refused("record.support.all(s, s.score > 1.0)").0, "unknown-field");
    assert_eq!(refused("record.support.all(s, s.state == NEW)").0, "unknown-name");
}

#[test]
fn paths_are_bounded() {
    compiled("record.job.boss.boss.name == 'x'");
    assert_eq!(refused("record.job.boss.boss.boss.name == 'x'").0, "too-many-hops");
    assert_eq!(refused("links.parts.exists(p, p.boss.boss.boss.name == 'x')").0, "too-many-hops");
    compiled("record.job.boss.boss.boss.id == record.job");
}

#[test]
fn refs_read_as_refs() {
    let expr = compiled("record.job");
    assert_eq!(expr.typed.ty, refs(&["shop.job"]));
    assert_eq!(compiled("record.job.id").typed.ty, refs(&["shop.job"]));
    assert_eq!(compiled("record.id").typed.ty, refs(&["shop.order"]));
    assert_eq!(refused("record.job == record.id").0, "type-mismatch");
    assert_eq!(refused("record.job == actor.id").0, "type-mismatch");
    let house = crate::house::House::new();
    for text in ["record.job", "record.parent", "links.parts", "links.endless", "record.support", "refs.me"] {
        house.compile(text, &Want::Targets).unwrap();
    }
    assert_eq!(refused_as("record.count", &Want::Targets).0, "type-mismatch");
    assert_eq!(refused_as("links.endless.filter(p, true)", &Want::Targets).0, "unbounded-link");
}

#[test]
fn literals_of_durations_and_times_are_folded() {
    let house = crate::house::House::new();
    let second = house.compile("'1s'", &fits(Type::Duration, false)).unwrap();
    assert!(matches!(second.kind, Kind::Const(Value::Duration(_))));
    assert!(matches!(compiled("duration('1h30m')").kind, Kind::Const(Value::Duration(_))));
    assert!(matches!(compiled("timestamp('2026-01-31T12:00:00Z')").kind, Kind::Const(Value::Time(_))));
    assert_eq!(refused("duration('soon')").0, "bad-duration");
    assert_eq!(refused("timestamp('soon')").0, "bad-time");
    assert_eq!(refused("duration(record.note)").0, "type-mismatch");
    assert_eq!(refused_as("'soon'", &fits(Type::Duration, false)).0, "bad-duration");
}
