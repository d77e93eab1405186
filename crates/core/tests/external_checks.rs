//! Tests that external checks run last: an operation that is refused without them asks none.

use std::cell::RefCell;
use std::rc::Rc;

use onceward_core::compile::compile;
use onceward_core::diagnostic::{InputFile, InputFiles, render_all};
use onceward_testkit::{Simulator, user};
use serde_json::{Value as Json, json};

/// An order with a moderation check. Tests replace `{keys}` and `{transition}`.
const ORDER_LIFECYCLE: &str = r#"
language = 1
lifecycle = "shop.order"
about = "a moderated order"
asset = "coin"
outside = ["world"]
[states]
open = { about = "open", rest = true }
shut = { about = "shut", rest = true }
[fields]
text   = { type = "string", default = "" }
key    = { type = "string", optional = true }
digest = { type = "string", optional = true }
price  = { type = "int", default = 5, min = 0, max = 100 }
level  = { type = "int", default = 1, min = 0, max = 9 }
share  = { type = "int", default = 0, min = 0, max = 9 }
{keys}
[checks]
guard = { ask = { text = "record.text" }, answer = { pass = "bool", digest = "string", level = "int" } }
[[on.fund]]
go = "open | shut"
move = [{ from = "world", to = "user:{record.owner}", amount = "100" }]
[[on.shut]]
go = "open -> shut"
[[on.open]]
go = "shut -> open"
refuse = [{ if = "!checks.guard.pass", as = "422 blocked" }]
[[on.create]]
go = "-> open"
by = "never"
[who]
never = { is = "false" }
[[on.create]]
go = "-> open"
take = ["text", "key", "price", "level"]
{transition}
"#;

const PAYMENT_KEYS: &str = r#"
refuse = [{ if = "!checks.guard.pass", as = "422 blocked" }]
move = [{ from = "user:{record.owner}", to = "hold", amount = "record.price", short = "402 broke" }]
"#;

/// A simulator and the texts that it sent to the check. The check passes all texts except bad ones.
struct CheckScenario {
    simulator: Simulator,
    queries: Rc<RefCell<Vec<String>>>,
}

fn new_scenario(keys: &str, transition: &str) -> CheckScenario {
    let text = ORDER_LIFECYCLE.replace("{keys}", keys).replace("{transition}", transition);
    let files = InputFiles { files: vec![InputFile { name: "order.toml".into(), text: text.into() }] };
    let compiled = compile(&files);
    let definitions =
        compiled.definitions.unwrap_or_else(|| panic!("{}", render_all(&compiled.diagnostics, &files, false)));
    let queries = Rc::new(RefCell::new(Vec::new()));
    let recorded = Rc::clone(&queries);
    let simulator = Simulator::new(definitions).on_check("shop.order", "guard", move |question, _| {
        let text = question.arguments["text"].as_str().unwrap_or_default().to_owned();
        let answer = json!({ "pass": !text.contains("bad"), "digest": text, "level": text.len() });
        recorded.borrow_mut().push(text);
        answer
    });
    CheckScenario { simulator, queries }
}

impl CheckScenario {
    /// Returns the number of checks since the last call.
    fn take_query_count(&self) -> usize {
        self.queries.borrow_mut().drain(..).count()
    }

    fn create_order(&mut self, fields: Json) -> onceward_testkit::SimulatedCall<'_> {
        self.simulator.create("shop.order", &user("ann")).with_all(fields)
    }

    /// Gives ann a hundred coins through a free order.
    fn fund_owner(&mut self) {
        let ann = user("ann");
        let free_order = self.create_order(json!({ "price": 0 })).expect_ok();
        self.simulator.fire(free_order, "fund", &ann).expect_ok();
        self.simulator.fire(free_order, "shut", &ann).expect_ok();
        self.take_query_count();
    }
}

#[test]
fn insufficient_funds_refuses_before_check_is_asked() {
    let mut scenario = new_scenario("", PAYMENT_KEYS);
    scenario.create_order(json!({ "text": "hello" })).expect_refusal(402, "broke");
    assert_eq!(scenario.take_query_count(), 0);
    scenario.fund_owner();
    scenario.create_order(json!({ "text": "hello" })).expect_ok();
    assert_eq!(scenario.take_query_count(), 1);
}

/// Applies to new records and to records that return to the counted set.
#[test]
fn full_limit_refuses_before_check_is_asked() {
    let limit = "[limit]\nopen = { on = [\"owner\"], in = [\"open\"], max = 1, clash = \"429 full\" }";
    let mut scenario = new_scenario(limit, PAYMENT_KEYS);
    scenario.fund_owner();
    let first = scenario.create_order(json!({ "text": "one" })).expect_ok();
    assert_eq!(scenario.take_query_count(), 1);
    scenario.create_order(json!({ "text": "two" })).expect_refusal(429, "full");
    let ann = user("ann");
    scenario.simulator.fire(first, "shut", &ann).expect_ok();
    scenario.create_order(json!({ "text": "two" })).expect_ok();
    assert_eq!(scenario.take_query_count(), 1);
    scenario.simulator.fire(first, "open", &ann).expect_refusal(429, "full");
    assert_eq!(scenario.take_query_count(), 0);
}

#[test]
fn duplicate_unique_key_refuses_before_check_is_asked() {
    let mut scenario = new_scenario("[unique]\none = { on = [\"key\"], clash = \"409 taken\" }", PAYMENT_KEYS);
    scenario.fund_owner();
    scenario.create_order(json!({ "text": "one", "key": "k" })).expect_ok();
    scenario.take_query_count();
    scenario.create_order(json!({ "text": "two", "key": "k" })).expect_refusal(409, "taken");
    assert_eq!(scenario.take_query_count(), 0);
}

const RETURNING_UNIQUE_KEYS: &str = "[unique]\nonce = { on = [\"owner\", \"key\"], clash = \"return\" }\n\
    [limit]\nopen = { on = [\"owner\"], in = [\"open\"], max = 1, clash = \"429 full\" }";

/// A unique key that returns its holder does not refuse. The check may refuse and comes first, so the engine asks it
/// even if a limit behind the key is full.
#[test]
fn existing_record_is_returned_only_after_refusing_check() {
    let mut scenario = new_scenario(RETURNING_UNIQUE_KEYS, PAYMENT_KEYS);
    scenario.fund_owner();
    let first = scenario.create_order(json!({ "text": "one", "key": "k" })).expect_ok();
    scenario.take_query_count();
    assert_eq!(scenario.create_order(json!({ "text": "two", "key": "k" })).expect_existing(), first);
    assert_eq!(scenario.take_query_count(), 1);
    scenario.create_order(json!({ "text": "bad", "key": "k" })).expect_refusal(422, "blocked");
    assert_eq!(scenario.take_query_count(), 1);
    scenario.create_order(json!({ "text": "bad", "key": "other" })).expect_refusal(429, "full");
    assert_eq!(scenario.take_query_count(), 0, "a new unique key can only be refused");
}

/// If the transition only stores the answer, the holder is known without it.
#[test]
fn existing_record_is_returned_without_non_refusing_check() {
    let mut scenario = new_scenario(RETURNING_UNIQUE_KEYS, "set = { digest = \"checks.guard.digest\" }");
    let first = scenario.create_order(json!({ "text": "one", "key": "k" })).expect_ok();
    scenario.take_query_count();
    assert_eq!(scenario.create_order(json!({ "text": "two", "key": "k" })).expect_existing(), first);
    assert_eq!(scenario.take_query_count(), 0);
}

/// A unique key from the answer may return its holder. Neither a full limit nor an empty account may refuse before
/// that.
#[test]
fn limits_and_transfers_wait_for_unique_key_from_check_answer() {
    let keys = RETURNING_UNIQUE_KEYS.replace("\"key\"]", "\"digest\"]");
    let transition = format!("set = {{ digest = \"checks.guard.digest\" }}\n{}", PAYMENT_KEYS.trim());
    let mut scenario = new_scenario(&keys, &transition);
    scenario.fund_owner();
    let first = scenario.create_order(json!({ "text": "one", "price": 100 })).expect_ok();
    scenario.take_query_count();
    assert_eq!(scenario.create_order(json!({ "text": "one", "price": 100 })).expect_existing(), first);
    assert_eq!(scenario.take_query_count(), 1);
    scenario.create_order(json!({ "text": "two" })).expect_refusal(429, "full");
    assert_eq!(scenario.take_query_count(), 1);
}

/// If a duplicate of the key refuses, the result is a refusal in any case.
#[test]
fn full_limit_refuses_before_refusing_unique_key_from_answer() {
    let keys = RETURNING_UNIQUE_KEYS.replace("\"key\"]", "\"digest\"]").replace("\"return\"", "\"409 taken\"");
    let mut scenario = new_scenario(&keys, "set = { digest = \"checks.guard.digest\" }");
    scenario.create_order(json!({ "text": "one" })).expect_ok();
    scenario.take_query_count();
    scenario.create_order(json!({ "text": "one" })).expect_refusal(429, "full");
    assert_eq!(scenario.take_query_count(), 0);
}

/// Waiting applies to a limit on a field from the answer, to an amount from the answer, and to every later transfer.
#[test]
fn limit_and_transfer_reading_answer_wait_for_check() {
    let limit = "[limit]\nall = { on = [\"owner\"], max = \"record.share\", clash = \"429 full\" }";
    let mut limited = new_scenario(limit, "set = { share = \"checks.guard.level\" }");
    limited.create_order(json!({ "text": "one" })).expect_ok();
    limited.take_query_count();
    limited.create_order(json!({ "text": "1" })).expect_refusal(429, "full");
    limited.create_order(json!({ "text": "two" })).expect_ok();
    assert_eq!(limited.take_query_count(), 2);

    let transfers = r#"
move = [
  { from = "world", to = "user:{record.owner}", amount = "checks.guard.level" },
  { from = "user:{record.owner}", to = "hold", amount = "record.price", short = "402 broke" },
]
"#;
    let mut paid = new_scenario("", transfers);
    paid.create_order(json!({ "text": "hello" })).expect_ok();
    paid.create_order(json!({ "text": "no" })).expect_refusal(402, "broke");
    assert_eq!(paid.take_query_count(), 2);
}

/// Without the answer, the first refusal that can be evaluated applies.
#[test]
fn refusals_apply_in_file_order_once_check_is_answered() {
    let transition = r#"
refuse = [
  { if = "!checks.guard.pass", as = "422 blocked" },
  { if = "record.level > checks.guard.level", as = "409 level" },
  { if = "record.price > 50", as = "422 dear" },
]
"#;
    let mut scenario = new_scenario("", transition);
    scenario.create_order(json!({ "text": "bad", "price": 60 })).expect_refusal(422, "dear");
    assert_eq!(scenario.take_query_count(), 0);
    scenario.create_order(json!({ "text": "bad", "level": 9 })).expect_refusal(422, "blocked");
    scenario.create_order(json!({ "text": "x", "level": 9 })).expect_refusal(409, "level");
    assert_eq!(scenario.take_query_count(), 2);
}

/// An expression may rely on facts that the check still has to establish.
#[test]
fn expression_fault_is_not_raised_before_check_is_asked() {
    let transition = r#"
refuse = [{ if = "!checks.guard.pass || record.key == null", as = "422 blocked" }]
set = { share = "size(record.key)" }
move = [{ from = "user:{record.key}", to = "hold", amount = "record.price" }]
"#;
    let mut scenario = new_scenario("", transition);
    scenario.create_order(json!({ "text": "fine" })).expect_refusal(422, "blocked");
    assert_eq!(scenario.take_query_count(), 1);
}
