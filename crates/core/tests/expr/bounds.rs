//! Nothing an author writes costs more than was allowed.

use onceward_core::bounds::{EXPRESSION_BYTES, EXPRESSION_DEPTH};
use onceward_core::expr::FaultKind;
use onceward_core::value::Value;

use crate::house::{Scene, compiled, refused};

#[test]
fn length_is_bounded() {
    let long = format!("'{}' == 'a'", "a".repeat(EXPRESSION_BYTES));
    assert_eq!(refused(&long).0, "expression-too-long");
}

#[test]
fn depth_is_bounded_however_it_comes_about() {
    let many = EXPRESSION_DEPTH + 1;
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
        assert_eq!(refused(&text).0, "expression-too-deep", "{text}");
    }
    for text in ["-".repeat(4_000), "!".repeat(4_000), "(".repeat(4_000), "1+".repeat(2_000), "[(".repeat(2_000)] {
        refused(&text);
    }
}

#[test]
fn long_flat_expressions_are_fine() {
    for text in [
        vec!["record.count + 1 >= record.budget"; 100].join(" && "),
        vec!["record.count == 1"; 100].join(" || "),
        format!("record.count in [{}]", vec!["1"; 1_000].join(", ")),
        format!("max({})", vec!["record.count"; 200].join(", ")),
        vec!["1"; 30].join(" + "),
    ] {
        let expr = compiled(&text);
        Scene::new().eval(&expr).unwrap();
    }
}

#[test]
fn cost_is_bounded_before_it_runs() {
    // Twenty elements: three loops inside each other are 8,000 rounds, five are millions.
    compiled("record.nums.all(a, record.nums.all(b, record.nums.all(c, a + b + c > 0)))");
    let text =
        "record.nums.all(a, record.nums.all(b, record.nums.all(c, record.nums.all(d, record.nums.all(e, a > 0)))))";
    let (code, at, _) = refused(text);
    assert_eq!((code, at), ("expression-too-costly", text));
    assert_eq!(
        refused("actor.roles.all(a, actor.roles.all(b, a == b))").0,
        "expression-too-costly",
        "what has no bound of its own counts with the general one"
    );
}

#[test]
fn cost_is_bounded_while_it_runs() {
    let mut scene = Scene::new();
    scene.set("nums", Value::List(vec![Value::Int(1); 2_000].into()));
    assert_eq!(scene.fault("record.nums.all(a, record.nums.all(b, a == b))"), FaultKind::TooCostly);
}

/// What is learned about nulls is found once for each part: ways through nested conditions double, the work must not.
#[test]
fn nested_conditions_take_no_time() {
    for (open, middle, close) in [
        ("!(", "record.flag", ")"),
        ("(", "record.flag", " && record.flag)"),
        ("(", "record.flag", " ? record.flag : record.flag)"),
    ] {
        let text = |depth: usize| format!("{}{middle}{}", open.repeat(depth), close.repeat(depth));
        let house = crate::house::House::new();
        let deepest = (1..40).map(text).take_while(|text| house.compile(text, &onceward_core::expr::Want::Any).is_ok());
        assert!(deepest.count() >= 10);
    }
}
