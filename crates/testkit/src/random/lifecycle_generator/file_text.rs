//! Writes the text of a file: declarations, then transitions.

use std::fmt::Write as _;

use super::guard;
use super::plan::{LifecyclePlan, LimitPlan, StateKind};
use super::transition_text::TransitionText;
use crate::random::Rng;

pub(super) fn render_file(
    rng: &mut Rng,
    plan: &LifecyclePlan,
    plans: &[LifecyclePlan],
    rows: &[TransitionText],
) -> String {
    let mut out = format!("language = 1\nlifecycle = \"{}\"\nabout = \"made at random\"\n", plan.name);
    if plan.has_natural_key {
        out.push_str("key = \"handle\"\n");
    }
    if plan.has_money {
        out.push_str("asset = \"coin\"\noutside = [\"world\"]\n");
    }
    if plan.has_payload {
        out.push_str("\n[payload]\nmin = \"1 B\"\nmax = \"1 KB\"\n");
    }
    write_states(&mut out, plan);
    write_fields(&mut out, plan, plans);
    write_links(&mut out, plan, plans);
    write_constraints(&mut out, rng, plan);
    write_work(&mut out, rng, plan);
    if plan.has_check {
        out.push_str("\n[checks]\nasked = { ask = { count = \"record.count\" }, answer = { ok = \"bool\", sum = { type = \"int\", min = 0, max = 20 } } }\n");
    }
    if let Some(to) = plan.lookup_target {
        let _ = write!(out, "\n[refs]\nme = {{ to = \"{}\", key = \"actor.id\" }}\n", plans[to].name);
    }
    out.push_str("\n[who]\nfriend = \"'friend' in actor.roles\"\n");
    if plan.lookup_target.is_some() {
        out.push_str("member = { is = \"refs.me != null\", rule = \"RND-1\" }\n");
    }
    let read = if plan.readable_by_anyone { "anyone" } else { "owner\", \"operator" };
    let _ = write!(out, "\n[access]\nread = [\"{read}\"]\n");
    for row in rows {
        out.push_str(&row.to_toml());
    }
    out
}

fn write_states(out: &mut String, plan: &LifecyclePlan) {
    out.push_str("\n[states]\n");
    for state in &plan.states {
        let kind = match state.kind {
            StateKind::Rest => "rest = true",
            StateKind::Timed | StateKind::Leased => "about = \"on the way\"",
            StateKind::Ready if plan.has_ready_time => "ready = \"moment\"",
            StateKind::Ready => "ready = true",
            StateKind::Final => "final = true",
        };
        let _ = writeln!(out, "{} = {{ {kind} }}", state.name);
    }
}

fn write_fields(out: &mut String, plan: &LifecyclePlan, plans: &[LifecyclePlan]) {
    out.push_str("\n[fields]\ncount = { type = \"int\", default = 0 }\n");
    let fields = plan.fields;
    let declared = [
        (fields.bounded, "bounded = { type = \"int\", min = 0, max = 20, default = 3 }"),
        (fields.flag, "flag = { type = \"bool\", default = false }"),
        (fields.color, "colour = { type = \"string\", enum = [\"red\", \"green\", \"blue\"], default = \"red\" }"),
        (fields.maybe, "maybe = { type = \"int\", min = 0, max = 100, optional = true }"),
        (fields.moment, "moment = { type = \"time\", optional = true }"),
        (fields.word, "word = { type = \"string\", max = 20, optional = true }"),
        (fields.note, "note = { type = \"string\", max = 1000, optional = true }"),
        (fields.delay, "delay = { type = \"duration\", default = \"5s\" }"),
        (plan.has_natural_key, "handle = { type = \"string\", max = 40, optional = true }"),
        (true, "fixed = { type = \"int\", const = 7 }"),
    ];
    for (_, line) in declared.iter().filter(|(there, _)| *there) {
        let _ = writeln!(out, "{line}");
    }
    if let Some(to) = plan.ref_target {
        let _ = writeln!(out, "other = {{ type = \"ref\", to = \"{}\", optional = true }}", plans[to].name);
    }
    if let Some(to) = plan.refs_target {
        let _ = writeln!(out, "many = {{ type = \"refs\", to = \"{}\", max = 5, default = [] }}", plans[to].name);
    }
}

fn write_links(out: &mut String, plan: &LifecyclePlan, plans: &[LifecyclePlan]) {
    let from: Vec<String> = plans
        .iter()
        .filter(|source| source.ref_target == Some(plan.index))
        .map(|source| format!("\"{}.other\"", source.name))
        .collect();
    if !from.is_empty() {
        let _ = write!(out, "\n[links]\nkids = {{ from = [{}], max = 100 }}\n", from.join(", "));
    }
}

fn write_constraints(out: &mut String, rng: &mut Rng, plan: &LifecyclePlan) {
    let names = |plan: &LifecyclePlan| {
        plan.non_final_states().iter().map(|state| format!("\"{}\"", state.name)).collect::<Vec<_>>().join(", ")
    };
    // A careless author counts in too few states, so that timers enter the counted set.
    let within = if rng.percent(plan.careless_percent) {
        plan.non_final_states().first().map_or_else(String::new, |state| format!("\"{}\"", state.name))
    } else {
        names(plan)
    };
    if let (Some(unique), true) = (plan.unique, plan.fields.word) {
        let on = if unique.by_owner { "\"owner\", \"word\"" } else { "\"word\"" };
        let clash = if unique.returns_existing { "return" } else { "409 word_taken" };
        let within = if unique.only_live_states { format!("in = [{within}], ") } else { String::new() };
        let _ = write!(out, "\n[unique]\nword = {{ on = [{on}], {within}clash = \"{clash}\" }}\n");
    }
    if let Some(limit) = plan.limit {
        let within = match limit {
            LimitPlan::InStates => format!("on = [\"owner\"], in = [{within}], "),
            LimitPlan::PerWindow => "on = [\"owner\"], per = \"1m\", ".to_owned(),
            LimitPlan::Lifetime => "on = [\"owner\"], ".to_owned(),
        };
        let _ = write!(
            out,
            "\n[limit]\nfew = {{ {within}max = \"{}\", clash = \"429 too_many\" }}\n",
            guard::random_limit(rng, plan)
        );
    }
}

fn write_work(out: &mut String, rng: &mut Rng, plan: &LifecyclePlan) {
    if !plan.has_work {
        return;
    }
    let _ = write!(out, "\n[work]\nlease = \"{}\"\n", rng.pick_word(&["5s", "30s", "2m"]));
    if plan.has_typed_result {
        out.push_str("result = { score = { type = \"int\", min = 0, max = 100 } }\n");
    }
    if plan.fields.flag && rng.percent(40) {
        out.push_str("stop = \"record.flag\"\n");
    }
    if plan.fields.bounded && rng.percent(40) {
        out.push_str("priority = \"record.bounded\"\n");
    }
    if plan.fields.color && rng.percent(30) {
        let how = rng.pick_word(&["limit = 1", "limit = 2", "ordered = true"]);
        let _ = writeln!(out, "key = {{ on = [\"colour\"], {how} }}");
    }
    if rng.percent(50) {
        out.push_str("\n[errors]\nretryable = [\"busy\", \"boom\"]\nterminal = [\"bad\"]\n");
    }
}
