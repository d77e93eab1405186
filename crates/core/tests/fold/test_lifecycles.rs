//! Random lifecycles on the operation's clock with everything that a fold must undo: fields, links, keys, limits,
//! transfers, spawns, requires and cascades.

use std::fmt::Write as _;
use std::sync::Arc;

use onceward_core::model::Definitions;
use onceward_testkit::random::{Rng, compile_definitions};

/// A thing with one holder at a time and a counter that every caller may raise.
const SMALL_LIFECYCLE: &str = r#"
language = 1
lifecycle = "small.thing"
clock = "operation"
[states]
free = { rest = true }
held = { rest = true }
[fields]
holder = { type = "string", max = 1000, optional = true }
seen   = { type = "string", max = 1000, optional = true }
n      = { type = "int", default = 0 }
last   = { type = "time", optional = true }
[checks]
fit = { ask = { n = "record.n" }, answer = { ok = "bool" } }
[who]
holder = "record.holder == actor.id"
[access]
read = ["anyone"]
[[on.create]]
go = "-> free"
[[on.claim]]
go = "free -> held"
set = { holder = "actor.id" }
[[on.count]]
go = "free | held"
set = { n = "record.n + 1", last = "now" }
[[on.see]]
go = "free | held"
set = { seen = "actor.id" }
[[on.release]]
go = "held -> free"
by = "holder"
set = { holder = "null" }
[[on.ask]]
go = "free -> held"
refuse = [{ if = "!checks.fit.ok", as = "422 unfit" }]
set = { holder = "actor.id" }
[[on.hold]]
go = "free -> held"
[[on.hold]]
go = "held"
"#;

pub(crate) fn small_definitions() -> Arc<Definitions> {
    Arc::new(onceward_testkit::systems::load_texts(&[("small.toml", SMALL_LIFECYCLE)]))
}

const STATE_NAMES: [&str; 4] = ["s0", "s1", "s2", "s3"];

/// Returns two lifecycles that refer to each other: things, and groups of things.
pub(crate) fn random_definitions(seed: u64) -> (Arc<Definitions>, String) {
    let mut rng = Rng::new(seed);
    let files = [("thing.toml".to_owned(), random_thing(&mut rng)), ("group.toml".to_owned(), random_group(&mut rng))];
    let text = files.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    (Arc::new(compile_definitions(&files).0), text)
}

fn states_text(rng: &mut Rng) -> String {
    let last = if rng.percent(50) { "final = true" } else { "rest = true" };
    format!("[states]\ns0 = {{ rest = true }}\ns1 = {{ rest = true }}\ns2 = {{ rest = true }}\ns3 = {{ {last} }}\n")
}

fn random_thing(rng: &mut Rng) -> String {
    let clash = rng.pick_word(&["return", "409 taken"]);
    let within = rng.pick_word(&["", "in = [\"s0\", \"s1\"], "]);
    let limit = rng.pick_word(&["in = [\"s0\", \"s1\"], max = 3", "per = \"4s\", max = 2", "max = 6"]);
    let mut out = format!(
        "language = 1
lifecycle = \"r.thing\"
clock = \"operation\"
asset = \"coin\"
outside = [\"mint\"]
{}
[fields]
n      = {{ type = \"int\", default = 0 }}
word   = {{ type = \"string\", max = 20, optional = true }}
holder = {{ type = \"string\", max = 1000, optional = true }}
until  = {{ type = \"time\", optional = true }}
group  = {{ type = \"ref\", to = \"r.group\", optional = true }}
near   = {{ type = \"refs\", to = \"r.thing\", max = 5, default = [] }}
[links]
nearby = {{ from = \"r.thing.near\", max = 100 }}
[unique]
word = {{ on = [\"word\"], {within}clash = \"{clash}\" }}
[limit]
few = {{ on = [\"owner\"], {limit}, clash = \"429 too_many\" }}
[checks]
asked = {{ ask = {{ n = \"record.n\", at = \"now\" }}, answer = {{ ok = \"bool\" }} }}
[who]
user = \"actor.user\"
able = \"'Thing.Write' in actor.capabilities\"
mine = \"record.holder == actor.id\"
[access]
read = [\"anyone\"]
[[on.create]]
go = \"-> s0\"
take = [\"word\", \"group\", \"near\"]
move = [{{ from = \"mint\", to = \"pool\", amount = 3 }}]
",
        states_text(rng)
    );
    for event in ["claim", "poke", "join", "told", "pay"] {
        for _ in 0..=rng.below(3) {
            out += &random_thing_transition(rng, event);
        }
    }
    out
}

fn random_thing_transition(rng: &mut Rng, event: &str) -> String {
    let go = if event == "claim" { "go = \"s0 | s1 -> s2\"\n".to_owned() } else { random_go(rng) };
    let mut transition = format!("[[on.{event}]]\n{go}");
    let by = rng.pick_word(&["", "by = \"user\"\n", "by = \"able\"\n", "by = [\"mine\", \"user\"]\n"]);
    transition += if event == "told" { "by = [\"record\", \"able\"]\n" } else { by };
    transition += rng.pick_word(&["", "", "when = \"record.n < 3\"\n", "when = \"record.holder == null\"\n"]);
    transition += rng.pick_word(&[
        "",
        "",
        "refuse = [{ if = \"record.until != null && now < record.until\", as = \"409 not_yet\" }]\n",
        "refuse = [{ if = \"!checks.asked.ok\", as = \"422 no\" }]\n",
        "refuse = [{ if = \"links.nearby.exists(t, t.n > 2)\", as = \"409 crowded\" }]\n",
    ]);
    match event {
        "claim" => transition += "set = { holder = \"actor.id\", until = \"now + duration('3s')\" }\n",
        "join" => {
            transition += "input = { group = \"group\", near = \"near\" }\n";
            transition += "set = { group = \"input.group\", near = \"input.near\", n = \"record.n + 1\" }\n";
        }
        "pay" => {
            transition += rng.pick_word(&[
                "move = [{ from = \"pool\", to = \"user:{actor.id}\", amount = \"record.n\" }]\n",
                "move = [{ from = \"user:{actor.id}\", to = \"pool\", amount = 1, short = \"402 poor\" }]\n",
            ]);
            transition +=
                rng.pick_word(&["", "spawn = [{ lifecycle = \"r.group\", fields = { name = \"record.word\" } }]\n"]);
        }
        _ => {
            transition += rng.pick_word(&[
                "",
                "set = { holder = \"null\" }\n",
                "set = { n = \"record.n + 1\" }\n",
                "set = { word = \"actor.id\" }\n",
            ]);
            transition += rng.pick_word(&["", "", "cascade = [{ to = \"links.nearby\", event = \"told\" }]\n"]);
            transition += rng.pick_word(&[
                "",
                "",
                "require = [{ to = \"record.group\", event = \"grow\", if = \"record.group != null\" }]\n",
            ]);
        }
    }
    transition
}

fn random_group(rng: &mut Rng) -> String {
    let mut out = format!(
        "language = 1
lifecycle = \"r.group\"
clock = \"operation\"
key = \"name\"
{}
[fields]
name = {{ type = \"string\", max = 20, optional = true }}
size = {{ type = \"int\", default = 0 }}
[links]
things = {{ from = \"r.thing.group\", max = 100 }}
[access]
read = [\"anyone\"]
[[on.create]]
go = \"-> s0\"
take = [\"name\"]
",
        states_text(rng)
    );
    for event in ["grow", "stir"] {
        for _ in 0..=rng.below(3) {
            let _ = write!(out, "[[on.{event}]]\n{}set = {{ size = \"record.size + 1\" }}\n", random_go(rng));
            if event == "stir" {
                out += rng.pick_word(&["", "cascade = [{ to = \"links.things\", event = \"told\" }]\n"]);
            }
        }
    }
    out
}

/// Returns a `go` from some states, never from the last, to another state or to none.
fn random_go(rng: &mut Rng) -> String {
    let from: Vec<&str> = STATE_NAMES[..3].iter().filter(|_| rng.percent(55)).copied().collect();
    let from = if from.is_empty() { "s0".to_owned() } else { from.join(" | ") };
    match rng.below(3) {
        0 => format!("go = \"{from}\"\n"),
        _ => format!("go = \"{from} -> {}\"\n", rng.pick_word(&STATE_NAMES)),
    }
}
