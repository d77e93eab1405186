//! Tests the values and faults of expressions.

use onceward_core::expr::{EvalStop, FaultKind};
use onceward_core::time::{Duration, Time};
use onceward_core::value::Value;

use crate::support::{EvalFixture, compile_any, record_id};

#[test]
fn expressions_evaluate_to_true() {
    let scene = EvalFixture::new();
    for text in [
        "record.count + 1 >= record.budget",
        "record.state == PAID",
        "record.kind == payout && record.kind != refund",
        "record.note == 'héllo' && size(record.note) == 5",
        "record.due == null",
        "null == record.title",
        "record.job.name == 'bob'",
        "record.job.boss.name == 'cy'",
        "record.job.boss.boss == null",
        "refs.me.id == record.job",
        "refs.me == record.job",
        "refs.me != null",
        "links.parts.exists(p, p.state == Dead)",
        "links.parts.all(p, p.name in ['bob', 'cy'])",
        "!links.parts.all(p, p.state == Live)",
        "record.support.all(s, s.state in ['Live', Fact])",
        "record.support.exists(s, s.both == 7) && record.support.all(s, s.both in [7, 9])",
        "'user' in actor.roles && !('admin' in actor.roles)",
        "!('x' in actor.capabilities) && !actor.user",
        "actor.roles == ['user']",
        "actor.id == 'bob' && record.owner == 'ann'",
        "now == timestamp('1970-01-01T00:01:40Z')",
        "now - record.at == duration('50s')",
        "int(now) / 60 == 1",
        "input.amount == 12 && input.until == null",
        "result.url == 'http'",
        "error.code == 'lost' && error.message == 'gone' && error.retryable && error.retryAfter == null",
        "record.version == 3 && record.attempt == 2 && record.hold == 5",
        "record.created_at < record.updated_at && record.started_at == null && record.finished_at == null",
        "record.id == record.id",
        "string(record.id) == '00000000-0000-0000-0000-000000000001'",
        "record.tags + ['x'] == ['red', 'blue', 'x']",
        "record.tags.filter(t, t != 'red') == ['blue']",
        "size(record.nums.filter(n, n > 2)) == 1 && size(record.nums.filter(n, n > 1)) != 1",
        "record.nums.all(n, record.nums.exists(m, m >= n))",
        "record.nums.filter(n, record.nums.filter(m, m < n) == [1]) == [2]",
        "[].all(x, false) && ![].exists(x, true)",
        "max(1, 3, 2) == 3 && min(1, 3, 2) == 1",
        "max(record.gap, record.wait) == record.wait",
        "max(record.gap, error.retryAfter) == null",
        "int(-1.9) == -1 && int(1.9) == 1",
        "-7 / 2 == -3 && -7 % 2 == -1",
        "'a' + 'b' == 'ab' && 'abc'.contains('b') && 'abc'.endsWith('c') && 'abc'.startsWith('a')",
        "true || 1 / 0 == 1",
        "!(false && 1 / 0 == 1)",
        "record.flag ? true : 1 / 0 == 1",
    ] {
        assert_eq!(scene.eval_text(text), Value::Bool(true), "{text}");
    }
}

#[test]
fn runtime_errors_are_faults_not_false() {
    let scene = EvalFixture::new();
    for (text, kind) in [
        ("9223372036854775807 + record.count > 0", FaultKind::Overflow),
        ("-9223372036854775808 - record.count > 0", FaultKind::Overflow),
        ("9223372036854775807 * record.count > 0", FaultKind::Overflow),
        ("-9223372036854775808 / (record.count - 5) > 0", FaultKind::Overflow),
        ("-(-9223372036854775808) > 0", FaultKind::Overflow),
        ("int(1e30) > 0", FaultKind::Overflow),
        ("int(9223372036854775808.0) > 0", FaultKind::Overflow),
        ("timestamp('9999-12-30T00:00:00Z') + duration('3d') > now", FaultKind::Overflow),
        ("1 / (record.count - 4) > 0", FaultKind::DivisionByZero),
        ("1 % (record.count - 4) > 0", FaultKind::DivisionByZero),
        ("1.0 / 0.0 > 0.0", FaultKind::DivisionByZero),
        ("1e308 * 10.0 > 0.0", FaultKind::NotANumber),
        ("record.due < now", FaultKind::Null),
        ("record.limit + 1 > 0", FaultKind::Null),
        ("record.maybe && record.flag", FaultKind::Null),
        ("record.flag && record.maybe", FaultKind::Null),
        ("!record.maybe", FaultKind::Null),
        ("record.maybe ? true : false", FaultKind::Null),
        ("record.parent.count > 1", FaultKind::Null),
        ("record.parent.id == record.id", FaultKind::Null),
        ("record.limit in record.nums", FaultKind::Null),
        ("size(record.title) > 0", FaultKind::Null),
        ("[record.title] == []", FaultKind::Null),
        ("record.nums.filter(n, record.limit < n) == []", FaultKind::Null),
        // `&&` and `||` absorb no error.
        ("1 / 0 == 1 || true", FaultKind::DivisionByZero),
        ("1 / 0 == 1 && false", FaultKind::DivisionByZero),
        ("record.nums.exists(n, 1 / (n - 1) > 5 || n == 2)", FaultKind::DivisionByZero),
    ] {
        assert_eq!(scene.eval_fault(text), kind, "{text}");
    }
}

#[test]
fn fault_span_covers_failing_operand() {
    let text = "record.flag && record.due < now";
    let Err(EvalStop::Fault(fault)) = EvalFixture::new().eval(&compile_any(text)) else { panic!() };
    assert_eq!(&text[fault.span.range().start - 100..fault.span.range().end - 100], "record.due");
}

#[test]
fn unanswered_check_stops_only_expressions_that_read_it() {
    let mut scene = EvalFixture::new();
    assert_eq!(scene.eval(&compile_any("checks.deposit.ok")), Err(EvalStop::UnansweredCheck(0)));
    assert_eq!(scene.eval_text("record.flag || checks.deposit.ok"), Value::Bool(true));
    scene.answers = vec![Some([Value::Bool(true), Value::Int(7)].into())];
    assert_eq!(scene.eval_text("checks.deposit.ok && checks.deposit.sum == 7"), Value::Bool(true));
}

#[test]
fn backoff_is_capped_and_never_overflows() {
    let mut scene = EvalFixture::new();
    for (tries, seconds) in [(-5, 1), (0, 1), (1, 2), (3, 8), (8, 256), (9, 300), (i64::MAX, 300)] {
        scene.set_field("count", Value::Int(tries));
        let value = scene.eval_text("backoff(record.count, '1s', 2, '5m')");
        assert_eq!(value, Value::Duration(Duration::from_secs(seconds)), "{tries}");
    }
    assert_eq!(scene.eval_text("backoff(9, '1s', 1, '5m')"), Value::Duration(Duration::from_secs(1)));
    assert_eq!(scene.eval_text("backoff(9, '10m', 3, '5m')"), Value::Duration(Duration::from_secs(300)));
    assert_eq!(scene.eval_text("backoff(9, '0s', 3, '5m')"), Value::Duration(Duration::ZERO));
    assert_eq!(scene.eval_text("backoff(99, '1us', 1000, '3000000d')"), scene.eval_text("duration('3000000d')"));
}

#[test]
fn jitter_is_deterministic_and_evenly_spread() {
    let mut scene = EvalFixture::new();
    let expr = compile_any("jitter('1s')");
    let mut seen = Vec::new();
    for version in 0..1_000 {
        scene.record.version = version;
        scene.record.id = record_id(u128::from(version / 2));
        let Ok(Value::Duration(length)) = scene.eval(&expr) else { panic!() };
        assert_eq!(scene.eval(&expr), Ok(Value::Duration(length)));
        assert!((0..1_000_000).contains(&length.micros()));
        seen.push(length.micros());
    }
    let mean = seen.iter().sum::<i64>() / 1_000;
    assert!((450_000..550_000).contains(&mean), "{mean}");
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 990);
    assert_eq!(scene.eval_text("jitter('0s')"), Value::Duration(Duration::ZERO));
    assert_eq!(scene.eval_text("jitter(duration('0s') - record.wait)"), Value::Duration(Duration::ZERO));
}

#[test]
fn field_of_other_version_is_read_by_name() {
    let mut scene = EvalFixture::new();
    let expr = compile_any("record.job.both == 7");
    let job = scene.records.records.get_mut(&record_id(2)).unwrap();
    let mut lifecycle = (*job.lifecycle).clone();
    lifecycle.fields.reverse();
    job.lifecycle = lifecycle.into();
    job.fields.reverse();
    assert_eq!(scene.eval(&expr), Ok(Value::Bool(true)));
    let job = scene.records.records.get_mut(&record_id(2)).unwrap();
    let mut lifecycle = (*job.lifecycle).clone();
    lifecycle.fields.retain(|field| &*field.name != "both");
    job.lifecycle = lifecycle.into();
    job.fields.remove(0);
    assert_eq!(scene.eval_fault("record.job.both == 7"), FaultKind::WrongType);
}

#[test]
fn dangling_ref_is_fault_only_when_record_is_read() {
    let mut scene = EvalFixture::new();
    scene.set_field("job", Value::Ref(record_id(77)));
    assert_eq!(scene.eval_fault("record.job.name == 'x'"), FaultKind::DanglingRef);
    // The ref itself needs no record.
    assert_eq!(scene.eval_text("record.job.id == record.job"), Value::Bool(true));
    scene.set_field("at", Value::Time(Time::MAX));
    assert_eq!(scene.eval_fault("record.at + record.wait > now"), FaultKind::Overflow);
}
