//! Tests null analysis of expressions.

use onceward_core::expr::{self, ExpectedType, ExprKind};
use onceward_core::model::DataType;

use crate::support::{ExprFixture, compile_any, expect_type, rejection_for};

#[test]
fn null_comparison_narrows_nullable_type() {
    let house = ExprFixture::new();
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
        house.compile(text, &expect_type(DataType::Int, false)).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
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
        assert_eq!(rejection_for(text, &expect_type(DataType::Int, false)).0, "null-not-allowed", "{text}");
        house.compile(text, &expect_type(DataType::Int, true)).unwrap();
    }
}

fn null_risk_count(text: &str) -> usize {
    expr::null_risks(&compile_any(text), &[]).len()
}

#[test]
fn null_risks_lists_unguarded_operands() {
    for text in [
        "record.count + 1 > 2",
        "record.due != null && record.due <= now",
        "record.due == null || record.due <= now",
        "record.parent == null || record.parent.count > 1",
        "refs.me == null || refs.me.name == 'x'",
        "refs.me != null && links.parts.exists(p, p.id == refs.me.id)",
        "record.title == 'x'",
    ] {
        assert_eq!(null_risk_count(text), 0, "{text}");
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
        assert_eq!(null_risk_count(text), 1, "{text}");
    }
}

#[test]
fn known_non_null_paths_remove_null_risks() {
    let expr = compile_any("record.parent.count > 1 && record.due <= now");
    let risks = expr::null_risks(&expr, &[]);
    assert_eq!(risks.len(), 2);
    let non_null: Vec<_> = risks.into_iter().map(|risk| risk.path.unwrap()).collect();
    assert!(expr::null_risks(&expr, &non_null).is_empty());
    let value = compile_any("record.flag ? record.due : now");
    assert!(expr::can_be_null(&value, &[]));
    assert!(!expr::can_be_null(&value, &non_null));
}

#[test]
fn referenced_checks_and_paths_are_listed() {
    let expr = compile_any("checks.deposit.ok && checks.deposit.sum > record.count");
    assert_eq!(expr::referenced_checks(&expr), [0]);
    assert_eq!(expr::referenced_paths(&expr).len(), 3);
    let mut parts = 0;
    expr::walk(&expr, &mut |_| parts += 1);
    assert_eq!(parts, 5);
    assert!(matches!(expr.kind, ExprKind::And(..)));
    assert!(ExprFixture::new().compile("checks.deposit.ok", &ExpectedType::Any).is_ok());
}

#[test]
fn non_null_paths_of_guard_apply_to_other_expression() {
    let house = ExprFixture::new();
    let text = "record.limit + record.parent.count";
    let guard = compile_any("record.limit != null && record.parent.count > 1");
    let non_null = expr::non_null_paths(&guard, Some(true));
    let expected = expect_type(DataType::Int, false);
    let location = crate::support::location_of(text);
    let narrowed = expr::compile_with_non_null(text, location, &house.scope(), &expected, &non_null).unwrap();
    assert!(expr::null_risks(&narrowed, &[]).is_empty());
    assert_eq!(expr::null_risks(&compile_any(text), &[]).len(), 2);
    assert_eq!(expr::null_risks(&compile_any(text), &expr::non_null_paths(&guard, Some(false))).len(), 2);
    assert!(expr::compile_with_non_null("record.limit", location, &house.scope(), &expected, &non_null).is_ok());
}
