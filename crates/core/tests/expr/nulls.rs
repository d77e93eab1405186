//! Null: where it is known not to be, and where it still may.

use onceward_core::expr::{self, Kind, Want};
use onceward_core::model::Type;

use crate::house::{House, compiled, fits, refused_as};

#[test]
fn tests_against_null_narrow() {
    let house = House::new();
    for text in [
        "record.limit == null ? 0 : record.limit",
        "record.limit != null ? record.limit : 0",
        "null != record.limit ? record.limit : 0",
        "!(record.limit == null) ? record.limit : 0",
        "record.limit != null && record.flag ? record.limit : 0",
        "record.limit == null || record.flag ? 0 : record.limit",
        "record.limit == 3 ? record.limit : 0",
        "record.parent != null && record.parent.limit != null ? record.parent.limit : 0",
        "record.flag ? (record.limit == null ? 1 : record.limit) : 2",
        "max(record.limit, 3)",
        "record.limit < 5 ? record.limit : 0",
    ] {
        house.compile(text, &fits(Type::Int, false)).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
    }
    for text in [
        "record.limit",
        "null",
        "record.limit == null ? record.limit : 0",
        "record.limit == null || record.flag ? record.limit : 0",
        "record.flag && record.limit != null ? 0 : record.limit",
        "max(record.limit, record.limit)",
        "record.parent == null ? 0 : record.parent.limit",
        "record.limit == record.limit ? record.limit : 0",
        "record.nums.exists(n, record.limit != null) ? record.limit : 0",
    ] {
        assert_eq!(refused_as(text, &fits(Type::Int, false)).0, "maybe-null", "{text}");
        house.compile(text, &fits(Type::Int, true)).unwrap();
    }
}

fn risks(text: &str) -> usize {
    expr::null_risks(&compiled(text), &[]).len()
}

#[test]
fn risks_of_null_are_listed() {
    for text in [
        "record.count + 1 > 2",
        "record.due != null && record.due <= now",
        "record.due == null || record.due <= now",
        "record.parent == null || record.parent.count > 1",
        "refs.me == null || refs.me.name == 'x'",
        "refs.me != null && links.parts.exists(p, p.id == refs.me.id)",
        "record.title == 'x'",
    ] {
        assert_eq!(risks(text), 0, "{text}");
    }
    for text in [
        "record.due <= now",
        "record.parent.count > 1",
        "refs.me.name == 'x'",
        "record.maybe && record.flag",
        "record.flag ? record.due < now : true",
        "size(record.title) > 1",
        "record.limit in record.nums",
        "(record.flag ? record.limit : 1) + 1 > 2",
        "record.due == null && record.due < now",
        "max(record.limit, record.limit) + 1 > 2",
        "[record.title] == []",
        "record.limit < 5 || record.limit > 7",
    ] {
        assert_eq!(risks(text), 1, "{text}");
    }
}

#[test]
fn what_the_checker_knows_removes_risks() {
    let expr = compiled("record.parent.count > 1 && record.due <= now");
    let risks = expr::null_risks(&expr, &[]);
    assert_eq!(risks.len(), 2);
    let known: Vec<_> = risks.into_iter().map(|risk| risk.path.unwrap()).collect();
    assert!(expr::null_risks(&expr, &known).is_empty());
    let value = compiled("record.flag ? record.due : now");
    assert!(expr::may_be_null(&value, &[]));
    assert!(!expr::may_be_null(&value, &known));
}

#[test]
fn reads_are_told() {
    let expr = compiled("checks.deposit.ok && checks.deposit.sum > record.count");
    assert_eq!(expr::checks_read(&expr), [0]);
    assert_eq!(expr::paths_read(&expr).len(), 3);
    let mut parts = 0;
    expr::walk(&expr, &mut |_| parts += 1);
    assert_eq!(parts, 5);
    assert!(matches!(expr.kind, Kind::And(..)));
    assert!(House::new().compile("checks.deposit.ok", &Want::Any).is_ok());
}

/// What a row's guard has shown holds in the rest of the row.
#[test]
fn what_one_expression_learns_another_may_know() {
    let house = House::new();
    let text = "record.limit + record.parent.count";
    let guard = compiled("record.limit != null && record.parent.count > 1");
    let known = expr::learned(&guard, Some(true));
    let want = fits(Type::Int, false);
    let place = crate::house::place(text);
    let knowing = expr::compile_knowing(text, place, &house.scope(), &want, &known).unwrap();
    assert!(expr::null_risks(&knowing, &[]).is_empty());
    assert_eq!(expr::null_risks(&compiled(text), &[]).len(), 2);
    assert_eq!(expr::null_risks(&compiled(text), &expr::learned(&guard, Some(false))).len(), 2);
    assert!(expr::compile_knowing("record.limit", place, &house.scope(), &want, &known).is_ok());
}
