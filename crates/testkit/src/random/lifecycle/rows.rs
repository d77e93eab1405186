//! The rows of a random lifecycle: every event with answers enough to be of use.

use super::deed::Deed;
use super::guard::{self, Place};
use super::plan::{Kind, Plan, State};
use super::row::Row;
use crate::random::Chance;

struct Author<'a> {
    chance: &'a mut Chance,
    plan: &'a Plan,
    plans: &'a [Plan],
    rows: Vec<Row>,
}

pub(super) fn rows(chance: &mut Chance, plan: &Plan, plans: &[Plan]) -> Vec<Row> {
    let mut author = Author { chance, plan, plans, rows: Vec::new() };
    author.creation();
    author.work();
    author.time();
    author.entering();
    author.called("told", true);
    author.called("asked", false);
    for event in &plan.events {
        author.called(event, false);
    }
    author.rows
}

impl<'a> Author<'a> {
    /// Where a row may lead from a state, or from nothing.
    fn target(&mut self, from: Option<&State>) -> &'a State {
        let careless = self.chance.yes(self.plan.careless);
        let late = from.is_some_and(|state| state.late) && !careless;
        let fits = |state: &&State| {
            state.kind != Kind::Leased && (!late || state.late) && (from.is_some() || state.kind != Kind::Final)
        };
        let fitting: Vec<&'a State> = self.plan.states.iter().filter(fits).collect();
        let last = self.plan.states.len() - 1;
        self.chance.pick(&fitting).copied().unwrap_or(&self.plan.states[last])
    }

    /// Where a timer may lead: anywhere but back.
    fn elsewhere(&mut self, from: &State) -> &'a State {
        for _ in 0..20 {
            let to = self.target(Some(from));
            if to.name != from.name {
                return to;
            }
        }
        &self.plan.states[self.plan.states.len() - 1]
    }

    fn deed(&self, place: Place, safe: bool, to: Option<&State>) -> Deed<'a> {
        Deed {
            plan: self.plan,
            plans: self.plans,
            place,
            safe,
            into_final: to.is_some_and(|state| state.kind == Kind::Final),
            in_final: false,
        }
    }

    fn push(&mut self, mut row: Row, place: Place, safe: bool, to: Option<&State>, guarded: bool) {
        if guarded && row.when.is_none() {
            row.when = Some(guard::condition(self.chance, self.plan, place));
        }
        self.deed(place, safe, to).fill(self.chance, &mut row);
        self.rows.push(row);
    }

    fn creation(&mut self) {
        let take: Vec<&'static str> = self.taken(80).into_iter().chain(self.refs()).collect();
        if self.chance.yes(30) {
            let to = self.target(None);
            let mut row = Row::new("create", format!("-> {}", to.name));
            row.take.clone_from(&take);
            row.by = match self.chance.below(3) {
                0 => vec!["operator"],
                1 => vec!["friend"],
                _ => Vec::new(),
            };
            let guarded = row.by.is_empty();
            self.push(row, Place::Create, self.plan.tame, Some(to), guarded);
        }
        let to = self.target(None);
        let mut row = Row::new("create", format!("-> {}", to.name));
        row.take = take;
        if !self.plan.tame && self.chance.yes(20) {
            row.by = vec!["owner", "record"];
        }
        self.push(row, Place::Create, self.plan.tame, Some(to), false);
    }

    /// Fields that the caller may give.
    fn taken(&mut self, percent: u64) -> Vec<&'static str> {
        let fields = self.plan.fields;
        let all = [
            (fields.bounded, "bounded"),
            (fields.flag, "flag"),
            (fields.colour, "colour"),
            (fields.maybe, "maybe"),
            (fields.moment, "moment"),
            (fields.word, "word"),
            (fields.delay, "delay"),
        ];
        all.iter().filter(|(there, _)| *there && self.chance.yes(percent)).map(|(_, name)| *name).collect()
    }

    fn refs(&self) -> Vec<&'static str> {
        let all =
            [(self.plan.other.is_some(), "other"), (self.plan.many.is_some(), "many"), (self.plan.keyed, "handle")];
        all.iter().filter(|(there, _)| *there).map(|(_, name)| *name).collect()
    }

    fn work(&mut self) {
        let (ready, leased) = (self.plan.of(Kind::Ready), self.plan.of(Kind::Leased));
        for state in &ready {
            for to in leased.iter().skip(1) {
                let row = Row::new("lease", format!("{} -> {}", state.name, to.name));
                self.push(row, Place::Engine, true, Some(to), true);
            }
            if let Some(to) = leased.first() {
                let row = Row::new("lease", format!("{} -> {}", state.name, to.name));
                self.push(row, Place::Engine, true, Some(to), false);
            }
        }
        for state in leased {
            self.commit(state);
            self.fail(state);
        }
    }

    fn commit(&mut self, state: &'a State) {
        let behind: Vec<&State> = self.plan.states.iter().filter(|state| state.late).collect();
        let mut stays = false;
        let count = 1 + self.chance.below(2);
        for number in 1..=count {
            let (last, stay) = (number == count, self.chance.yes(50));
            let to = self.chance.pick(&behind).copied().filter(|_| !stay);
            let go = to.map_or_else(|| state.name.clone(), |to| format!("{} -> {}", state.name, to.name));
            stays |= to.is_none();
            self.push(Row::new("commit", go), Place::Commit, last, to, !last);
        }
        if let (true, Some(to)) = (stays, self.chance.pick(&behind).copied()) {
            let row = Row::new("finish", format!("{} -> {}", state.name, to.name));
            self.push(row, Place::Engine, true, Some(to), false);
        }
    }

    fn fail(&mut self, state: &'a State) {
        let count = 1 + self.chance.below(3);
        for number in 1..=count {
            let to = self.target(Some(state));
            let forgotten = self.chance.yes(self.plan.careless);
            let row = Row::new("fail", format!("{} -> {}", state.name, to.name));
            self.push(row, Place::Fail, true, Some(to), number < count || forgotten);
        }
    }

    fn time(&mut self) {
        for state in &self.plan.states {
            let (needed, wanted) = match state.kind {
                Kind::Timed => (!self.chance.yes(self.plan.careless), self.chance.yes(30)),
                Kind::Final => (false, false),
                Kind::Leased => (false, self.chance.yes(15)),
                Kind::Rest | Kind::Ready => (false, self.chance.yes(20)),
            };
            if wanted {
                let to = self.target(Some(state)).clone();
                let stays = self.chance.yes(20);
                let go = if stays { state.name.clone() } else { format!("{} -> {}", state.name, to.name) };
                let mut row = Row::new("time", go);
                if self.plan.fields.moment && self.chance.yes(60) {
                    row.at = Some("moment");
                } else {
                    row.after = Some(guard::delay(self.chance, self.plan));
                }
                let guarded = self.chance.yes(60);
                self.push(row, Place::Engine, true, Some(&to).filter(|_| !stays), guarded);
            }
            if needed {
                let to = self.elsewhere(state).clone();
                let mut row = Row::new("time", format!("{} -> {}", state.name, to.name));
                row.after = Some(guard::delay(self.chance, self.plan));
                self.push(row, Place::Engine, true, Some(&to), false);
            }
        }
    }

    /// Only to states that stand later in the file, so that they never go in circles.
    fn entering(&mut self) {
        let states = &self.plan.states;
        for (index, state) in states.iter().enumerate() {
            if state.kind == Kind::Leased || !self.chance.yes(12) {
                continue;
            }
            let careless = self.chance.yes(self.plan.careless);
            let later: Vec<&State> = states
                .iter()
                .enumerate()
                .filter(|(at, to)| (*at > index || careless) && to.kind != Kind::Leased && state.kind != Kind::Final)
                .map(|(_, to)| to)
                .collect();
            let to = self.chance.pick(&later).copied().filter(|_| self.chance.yes(50)).cloned();
            let go = to.as_ref().map_or_else(|| state.name.clone(), |to| format!("{} -> {}", state.name, to.name));
            let mut row = Row::new("enter", go);
            row.when = Some(guard::condition(self.chance, self.plan, Place::Engine));
            let mut deed = self.deed(Place::Engine, true, to.as_ref());
            deed.in_final = state.kind == Kind::Final;
            deed.fill(self.chance, &mut row);
            self.rows.push(row);
        }
    }

    fn called(&mut self, event: &str, safe: bool) {
        let annotates = self.chance.yes(15);
        for number in 0..=self.chance.below(3) {
            let row = if annotates && number == 0 { self.annotation(event, safe) } else { self.step(event, safe) };
            self.rows.push(row);
        }
    }

    /// A row that stays, in any states, final ones among them.
    fn annotation(&mut self, event: &str, safe: bool) -> Row {
        let states: Vec<String> = self.plan.states.iter().map(|state| state.name.clone()).collect();
        let mut row = Row::new(event, states.join(" | "));
        let mut deed = self.deed(Place::Called, safe, None);
        deed.in_final = true;
        row.set("count", "record.count + 1".to_owned());
        deed.fill(self.chance, &mut row);
        row
    }

    fn step(&mut self, event: &str, safe: bool) -> Row {
        let living = self.plan.living();
        let mut from: Vec<&State> = living.iter().copied().filter(|_| self.chance.yes(45)).collect();
        if from.is_empty() {
            from.extend(self.chance.pick(&living).copied());
        }
        if from.is_empty() {
            return self.annotation(event, safe);
        }
        let names = from.iter().map(|state| state.name.clone()).collect::<Vec<_>>().join(" | ");
        let latest = from.iter().find(|state| state.late).or(from.first()).copied();
        let stays = self.chance.yes(35);
        let to = self.target(latest).clone();
        let mut row = Row::new(event, if stays { names } else { format!("{names} -> {}", to.name) });
        if !safe {
            // What other records require must be open to them.
            row.by = if event == "asked" { self.records() } else { self.callers() };
            if self.chance.yes(40) {
                row.take = self.taken(30);
            }
            if self.plan.other.is_some() && self.chance.yes(15) {
                row.take.push("other");
            }
            if event.starts_with("ev") && self.chance.yes(25) {
                row.input.push("size = { type = \"int\", min = 0, max = 20, optional = true }".to_owned());
                if self.plan.fields.bounded && !row.take.contains(&"bounded") {
                    row.set("bounded", "input.size == null ? record.bounded : input.size".to_owned());
                }
            }
        }
        if self.chance.yes(35) {
            row.when = Some(guard::condition(self.chance, self.plan, Place::Called));
        }
        self.deed(Place::Called, safe, Some(&to).filter(|_| !stays)).fill(self.chance, &mut row);
        row
    }

    fn records(&mut self) -> Vec<&'static str> {
        match self.chance.below(5) {
            0 => vec!["record"],
            1 => vec!["owner", "record"],
            _ => Vec::new(),
        }
    }

    fn callers(&mut self) -> Vec<&'static str> {
        match self.chance.below(12) {
            0 | 1 => vec!["owner"],
            2 => vec!["operator"],
            3 => vec!["owner", "operator"],
            4 if self.plan.work => vec!["worker"],
            5 => vec!["friend", "owner"],
            6 if self.plan.lookup.is_some() => vec!["member"],
            7 => vec!["record"],
            _ => Vec::new(),
        }
    }
}
