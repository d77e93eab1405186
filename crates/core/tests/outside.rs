//! Checks come last: whatever stands in an operation's way without them is found before anybody outside is asked.

use std::cell::RefCell;
use std::rc::Rc;

use onceward_core::compile::compile;
use onceward_core::diagnostic::{File, Files, render_all};
use onceward_testkit::{Stage, user};
use serde_json::{Value as Json, json};

/// An order that is moderated. What differs from test to test goes in the places marked `{keys}` and `{row}`.
const ORDER: &str = r#"
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
by = "nobody"
[who]
nobody = { is = "false" }
[[on.create]]
go = "-> open"
take = ["text", "key", "price", "level"]
{row}
"#;

const PAID: &str = r#"
refuse = [{ if = "!checks.guard.pass", as = "422 blocked" }]
move = [{ from = "user:{record.owner}", to = "hold", amount = "record.price", short = "402 broke" }]
"#;

/// A stage, and the texts that the guard was asked about. It passes all but what is called bad.
struct Play {
    stage: Stage,
    asked: Rc<RefCell<Vec<String>>>,
}

fn play(keys: &str, row: &str) -> Play {
    let text = ORDER.replace("{keys}", keys).replace("{row}", row);
    let files = Files { files: vec![File { name: "order.toml".into(), text: text.into() }] };
    let compiled = compile(&files);
    let definitions =
        compiled.definitions.unwrap_or_else(|| panic!("{}", render_all(&compiled.diagnostics, &files, false)));
    let asked = Rc::new(RefCell::new(Vec::new()));
    let heard = Rc::clone(&asked);
    let stage = Stage::new(definitions).answer("shop.order", "guard", move |question, _| {
        let text = question.arguments["text"].as_str().unwrap_or_default().to_owned();
        let answer = json!({ "pass": !text.contains("bad"), "digest": text, "level": text.len() });
        heard.borrow_mut().push(text);
        answer
    });
    Play { stage, asked }
}

impl Play {
    /// How often the guard has been asked since this was last looked at.
    fn asked(&self) -> usize {
        self.asked.borrow_mut().drain(..).count()
    }

    fn order(&mut self, fields: Json) -> onceward_testkit::Attempt<'_> {
        self.stage.create("shop.order", &user("ann")).with_all(fields)
    }

    /// Give ann a hundred coins, by way of an order that costs nothing.
    fn fund(&mut self) {
        let ann = user("ann");
        let free = self.order(json!({ "price": 0 })).ok();
        self.stage.fire(free, "fund", &ann).ok();
        self.stage.fire(free, "shut", &ann).ok();
        self.asked();
    }
}

/// Who cannot pay is told so, and the guard is spared.
#[test]
fn a_shortage_is_found_before_asking() {
    let mut play = play("", PAID);
    play.order(json!({ "text": "hello" })).refused(402, "broke");
    assert_eq!(play.asked(), 0);
    play.fund();
    play.order(json!({ "text": "hello" })).ok();
    assert_eq!(play.asked(), 1);
}

/// Who has had his share is told so, whether he makes a record or brings one back into the counted set.
#[test]
fn a_full_limit_is_found_before_asking() {
    let limit = "[limit]\nopen = { on = [\"owner\"], in = [\"open\"], max = 1, clash = \"429 full\" }";
    let mut play = play(limit, PAID);
    play.fund();
    let first = play.order(json!({ "text": "one" })).ok();
    assert_eq!(play.asked(), 1);
    play.order(json!({ "text": "two" })).refused(429, "full");
    let ann = user("ann");
    play.stage.fire(first, "shut", &ann).ok();
    play.order(json!({ "text": "two" })).ok();
    assert_eq!(play.asked(), 1);
    play.stage.fire(first, "open", &ann).refused(429, "full");
    assert_eq!(play.asked(), 0);
}

/// A key that clashes with a code does so unasked.
#[test]
fn a_taken_key_is_found_before_asking() {
    let mut play = play("[unique]\none = { on = [\"key\"], clash = \"409 taken\" }", PAID);
    play.fund();
    play.order(json!({ "text": "one", "key": "k" })).ok();
    play.asked();
    play.order(json!({ "text": "two", "key": "k" })).refused(409, "taken");
    assert_eq!(play.asked(), 0);
}

const RETURNS: &str = "[unique]\nonce = { on = [\"owner\", \"key\"], clash = \"return\" }\n\
    [limit]\nopen = { on = [\"owner\"], in = [\"open\"], max = 1, clash = \"429 full\" }";

/// A key that leads to its holder is no refusal. Where the guard may still refuse, which comes first, it is asked, although
/// a limit is full behind the key.
#[test]
fn a_holder_waits_for_the_answer_that_may_refuse() {
    let mut play = play(RETURNS, PAID);
    play.fund();
    let first = play.order(json!({ "text": "one", "key": "k" })).ok();
    play.asked();
    assert_eq!(play.order(json!({ "text": "two", "key": "k" })).holder(), first);
    assert_eq!(play.asked(), 1);
    play.order(json!({ "text": "bad", "key": "k" })).refused(422, "blocked");
    assert_eq!(play.asked(), 1);
    play.order(json!({ "text": "bad", "key": "other" })).refused(429, "full");
    assert_eq!(play.asked(), 0, "with a key of its own it can only be refused");
}

/// Where the answer is only kept, the holder is known without it.
#[test]
fn a_holder_is_found_before_asking() {
    let mut play = play(RETURNS, "set = { digest = \"checks.guard.digest\" }");
    let first = play.order(json!({ "text": "one", "key": "k" })).ok();
    play.asked();
    assert_eq!(play.order(json!({ "text": "two", "key": "k" })).holder(), first);
    assert_eq!(play.asked(), 0);
}

/// Where the key itself is in the answer, it may lead to a holder, and neither a full limit nor an empty purse may come
/// before that.
#[test]
fn limits_and_moves_wait_for_a_key_in_the_answer() {
    let keys = RETURNS.replace("\"key\"]", "\"digest\"]");
    let row = format!("set = {{ digest = \"checks.guard.digest\" }}\n{}", PAID.trim());
    let mut play = play(&keys, &row);
    play.fund();
    let first = play.order(json!({ "text": "one", "price": 100 })).ok();
    play.asked();
    assert_eq!(play.order(json!({ "text": "one", "price": 100 })).holder(), first);
    assert_eq!(play.asked(), 1);
    play.order(json!({ "text": "two" })).refused(429, "full");
    assert_eq!(play.asked(), 1);
}

/// A key in the answer that only refuses holds nothing up: a refusal it is, either way.
#[test]
fn limits_do_not_wait_for_a_key_that_refuses() {
    let keys = RETURNS.replace("\"key\"]", "\"digest\"]").replace("\"return\"", "\"409 taken\"");
    let mut play = play(&keys, "set = { digest = \"checks.guard.digest\" }");
    play.order(json!({ "text": "one" })).ok();
    play.asked();
    play.order(json!({ "text": "one" })).refused(429, "full");
    assert_eq!(play.asked(), 0);
}

/// What hangs on the answer is not guessed at: a limit that reads a field in the answer, an amount in the answer, and every
/// move after it.
#[test]
fn what_hangs_on_the_answer_waits() {
    let limit = "[limit]\nall = { on = [\"owner\"], max = \"record.share\", clash = \"429 full\" }";
    let mut limited = play(limit, "set = { share = \"checks.guard.level\" }");
    limited.order(json!({ "text": "one" })).ok();
    limited.asked();
    limited.order(json!({ "text": "1" })).refused(429, "full");
    limited.order(json!({ "text": "two" })).ok();
    assert_eq!(limited.asked(), 2);

    let moves = r#"
move = [
  { from = "world", to = "user:{record.owner}", amount = "checks.guard.level" },
  { from = "user:{record.owner}", to = "hold", amount = "record.price", short = "402 broke" },
]
"#;
    let mut paid = play("", moves);
    paid.order(json!({ "text": "hello" })).ok();
    paid.order(json!({ "text": "no" })).refused(402, "broke");
    assert_eq!(paid.asked(), 2);
}

/// Once the answer is there, reasons to refuse go in the order in which they stand; without it, the first that can be
/// judged is told.
#[test]
fn answered_reasons_go_in_their_order() {
    let row = r#"
refuse = [
  { if = "!checks.guard.pass", as = "422 blocked" },
  { if = "record.level > checks.guard.level", as = "409 level" },
  { if = "record.price > 50", as = "422 dear" },
]
"#;
    let mut play = play("", row);
    play.order(json!({ "text": "bad", "price": 60 })).refused(422, "dear");
    assert_eq!(play.asked(), 0);
    play.order(json!({ "text": "bad", "level": 9 })).refused(422, "blocked");
    play.order(json!({ "text": "x", "level": 9 })).refused(409, "level");
    assert_eq!(play.asked(), 2);
}

/// An expression may rely on what an open answer has yet to rule out: that is no fault before the answer is there.
#[test]
fn no_fault_is_found_before_asking() {
    let row = r#"
refuse = [{ if = "!checks.guard.pass || record.key == null", as = "422 blocked" }]
set = { share = "size(record.key)" }
move = [{ from = "user:{record.key}", to = "hold", amount = "record.price" }]
"#;
    let mut play = play("", row);
    play.order(json!({ "text": "fine" })).refused(422, "blocked");
    assert_eq!(play.asked(), 1);
}
