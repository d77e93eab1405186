//! The declarations of a file, with its rows behind them.

use std::fmt::Write as _;

use super::guard;
use super::plan::{Kind, Limit, Plan};
use super::row::Row;
use crate::random::Chance;

pub(super) fn file(chance: &mut Chance, plan: &Plan, plans: &[Plan], rows: &[Row]) -> String {
    let mut out = format!("language = 1\nlifecycle = \"{}\"\nabout = \"made at random\"\n", plan.name);
    if plan.keyed {
        out.push_str("key = \"handle\"\n");
    }
    if plan.money {
        out.push_str("asset = \"coin\"\noutside = [\"world\"]\n");
    }
    if plan.payload {
        out.push_str("\n[payload]\nmin = \"1 B\"\nmax = \"1 KB\"\n");
    }
    states(&mut out, plan);
    fields(&mut out, plan, plans);
    links(&mut out, plan, plans);
    keys(&mut out, chance, plan);
    work(&mut out, chance, plan);
    if plan.check {
        out.push_str("\n[checks]\nasked = { ask = { count = \"record.count\" }, answer = { ok = \"bool\", sum = { type = \"int\", min = 0, max = 20 } } }\n");
    }
    if let Some(to) = plan.lookup {
        let _ = write!(out, "\n[refs]\nme = {{ to = \"{}\", key = \"actor.id\" }}\n", plans[to].name);
    }
    out.push_str("\n[who]\nfriend = \"'friend' in actor.roles\"\n");
    if plan.lookup.is_some() {
        out.push_str("member = { is = \"refs.me != null\", rule = \"RND-1\" }\n");
    }
    let read = if plan.open { "anyone" } else { "owner\", \"operator" };
    let _ = write!(out, "\n[access]\nread = [\"{read}\"]\n");
    for row in rows {
        out.push_str(&row.text());
    }
    out
}

fn states(out: &mut String, plan: &Plan) {
    out.push_str("\n[states]\n");
    for state in &plan.states {
        let kind = match state.kind {
            Kind::Rest => "rest = true",
            Kind::Timed | Kind::Leased => "about = \"on the way\"",
            Kind::Ready if plan.ready_from => "ready = \"moment\"",
            Kind::Ready => "ready = true",
            Kind::Final => "final = true",
        };
        let _ = writeln!(out, "{} = {{ {kind} }}", state.name);
    }
}

fn fields(out: &mut String, plan: &Plan, plans: &[Plan]) {
    out.push_str("\n[fields]\ncount = { type = \"int\", default = 0 }\n");
    let fields = plan.fields;
    let declared = [
        (fields.bounded, "bounded = { type = \"int\", min = 0, max = 20, default = 3 }"),
        (fields.flag, "flag = { type = \"bool\", default = false }"),
        (fields.colour, "colour = { type = \"string\", enum = [\"red\", \"green\", \"blue\"], default = \"red\" }"),
        (fields.maybe, "maybe = { type = \"int\", min = 0, max = 100, optional = true }"),
        (fields.moment, "moment = { type = \"time\", optional = true }"),
        (fields.word, "word = { type = \"string\", max = 20, optional = true }"),
        (fields.note, "note = { type = \"string\", max = 1000, optional = true }"),
        (fields.delay, "delay = { type = \"duration\", default = \"5s\" }"),
        (plan.keyed, "handle = { type = \"string\", max = 40, optional = true }"),
        (true, "fixed = { type = \"int\", const = 7 }"),
    ];
    for (_, line) in declared.iter().filter(|(there, _)| *there) {
        let _ = writeln!(out, "{line}");
    }
    if let Some(to) = plan.other {
        let _ = writeln!(out, "other = {{ type = \"ref\", to = \"{}\", optional = true }}", plans[to].name);
    }
    if let Some(to) = plan.many {
        let _ = writeln!(out, "many = {{ type = \"refs\", to = \"{}\", max = 5, default = [] }}", plans[to].name);
    }
}

fn links(out: &mut String, plan: &Plan, plans: &[Plan]) {
    let from: Vec<String> = plans
        .iter()
        .filter(|source| source.other == Some(plan.index))
        .map(|source| format!("\"{}.other\"", source.name))
        .collect();
    if !from.is_empty() {
        let _ = write!(out, "\n[links]\nkids = {{ from = [{}], max = 100 }}\n", from.join(", "));
    }
}

fn keys(out: &mut String, chance: &mut Chance, plan: &Plan) {
    let names =
        |plan: &Plan| plan.living().iter().map(|state| format!("\"{}\"", state.name)).collect::<Vec<_>>().join(", ");
    // A careless author counts in fewer states than he should, so that timers come into the set.
    let within = if chance.yes(plan.careless) {
        plan.living().first().map_or_else(String::new, |state| format!("\"{}\"", state.name))
    } else {
        names(plan)
    };
    if let (Some(unique), true) = (plan.unique, plan.fields.word) {
        let on = if unique.by_owner { "\"owner\", \"word\"" } else { "\"word\"" };
        let clash = if unique.returns { "return" } else { "409 word_taken" };
        let within = if unique.within { format!("in = [{within}], ") } else { String::new() };
        let _ = write!(out, "\n[unique]\nword = {{ on = [{on}], {within}clash = \"{clash}\" }}\n");
    }
    if let Some(limit) = plan.limit {
        let within = match limit {
            Limit::Within => format!("on = [\"owner\"], in = [{within}], "),
            Limit::Per => "on = [\"owner\"], per = \"1m\", ".to_owned(),
            Limit::Ever => "on = [\"owner\"], ".to_owned(),
        };
        let _ = write!(
            out,
            "\n[limit]\nfew = {{ {within}max = \"{}\", clash = \"429 too_many\" }}\n",
            guard::most(chance, plan)
        );
    }
}

fn work(out: &mut String, chance: &mut Chance, plan: &Plan) {
    if !plan.work {
        return;
    }
    let _ = write!(out, "\n[work]\nlease = \"{}\"\n", chance.word(&["5s", "30s", "2m"]));
    if plan.result {
        out.push_str("result = { score = { type = \"int\", min = 0, max = 100 } }\n");
    }
    if plan.fields.flag && chance.yes(40) {
        out.push_str("stop = \"record.flag\"\n");
    }
    if plan.fields.bounded && chance.yes(40) {
        out.push_str("priority = \"record.bounded\"\n");
    }
    if plan.fields.colour && chance.yes(30) {
        let how = chance.word(&["limit = 1", "limit = 2", "ordered = true"]);
        let _ = writeln!(out, "key = {{ on = [\"colour\"], {how} }}");
    }
    if chance.yes(50) {
        out.push_str("\n[errors]\nretryable = [\"busy\", \"boom\"]\nterminal = [\"bad\"]\n");
    }
}
