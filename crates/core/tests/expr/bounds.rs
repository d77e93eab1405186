//! Tests that the cost of expressions is bounded.

use onceward_core::bounds::{MAX_EXPRESSION_BYTES, MAX_EXPRESSION_DEPTH};
use onceward_core::expr::FaultKind;
use onceward_core::value::Value;

use crate::support::{EvalFixture, compile_any, rejection};

#[test]
fn overlong_expression_is_rejected() {
    let long = format!("'{}' == 'a'", "a".repeat(MAX_EXPRESSION_BYTES));
    assert_eq!(rejection(&long).0, "expression-too-long");
}

#[test]
fn overly_deep_expression_is_rejected() {
    let many = MAX_EXPRESSION_DEPTH + 1;
    for text in [
        format!("{}1{}", "(".repeat(many), ")".repeat(many)),
        format!("{}1{}", "[".repeat(many), "]".repeat(many)),
        format!("{}true{}", "!(".repeat(many), ")".repeat(many)),
        format!("{}1", "1+".repeat(many)),
        format!("{}1", "1<".repeat(many)),
        format!("{}1", "1-".repeat(many)),
        format!("record{}", ".a".repeat(many)),
        format!("{}1", "true?1:".repeat(many)),
        format!("{}1", "true?".repeat(many)),
        format!("{}1{}", "size(".repeat(many), ")".repeat(many)),
        format!("record.tags{}", ".filter(x, true)".repeat(many)),
        format!("{}1{}", "(".repeat(many / 2), "+1+1)".repeat(many / 2)),
        format!("{}1{}", "(1+1+".repeat(many / 2), ")".repeat(many / 2)),
    ] {
        assert_eq!(rejection(&text).0, "expression-too-deep", "{text}");
    }
    for text in ["-".repeat(4_000), "!".repeat(4_000), "(".repeat(4_000), "1+".repeat(2_000), "[(".repeat(2_000)] {
        rejection(&text);
    }
}

#[test]
fn long_flat_expressions_compile_and_evaluate() {
    for text in [
        vec!["record.count + 1 >= record.budget"; 100].join(" && "),
        vec!["record.count == 1"; 100].join(" || "),
        format!("record.count in [{}]", vec!["1"; 1_000].join(", ")),
        format!("max({})", vec!["record.count"; 200].join(", ")),
        vec!["1"; 30].join(" + "),
    ] {
        let expr = compile_any(&text);
        EvalFixture::new().eval(&expr).unwrap();
    }
}

#[test]
fn overly_costly_expression_is_rejected_at_compile() {
    // A list has 20 elements: three nested loops take 8,000 rounds, five take millions.
    compile_any("record.nums.all(a, record.nums.all(b, record.nums.all(c, a + b + c > 0)))");
    let text =
        "record.nums.all(a, record.nums.all(b, record.nums.all(c, record.nums.all(d, record.nums.all(e, a > 0)))))";
    let (code, at, _) = rejection(text);
    assert_eq!((code, at), ("expression-too-costly", text));
    assert_eq!(
        rejection("actor.roles.all(a, actor.roles.all(b, a == b))").0,
        "expression-too-costly",
        "a list without `max` counts with the general bound"
    );
}

#[test]
fn overly_costly_evaluation_is_fault() {
    let mut scene = EvalFixture::new();
    scene.set_field("nums", Value::List(vec![Value::Int(1); 2_000].into()));
    assert_eq!(scene.eval_fault("record.nums.all(a, record.nums.all(b, a == b))"), FaultKind::CostExceeded);
}

/// Null facts are computed once per node, although the number of branches doubles.
#[test]
fn nested_conditions_compile_without_exponential_work() {
    for (open, middle, close) in [
        ("!(", "record.flag", ")"),
        ("(", "record.flag", " && record.flag)"),
        ("(", "record.flag", " ? record.flag : record.flag)"),
    ] {
        let text = |depth: usize| format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
        let house = crate::support::ExprFixture::new();
        let deepest =
            (1..40).map(text).take_while(|text| house.compile(text, &onceward_core::expr::ExpectedType::Any).is_ok());
        assert!(deepest.count() >= 10);
    }
}
