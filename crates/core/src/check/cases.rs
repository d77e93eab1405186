//! Guards decided exactly, by trying every case: over enums, booleans, nulls, and numbers and texts that are compared
//! with constants. What is compared otherwise may be true or false as it likes, which leaves no case out.

use std::collections::BTreeMap;

use super::faults::{Env, Flow, Judge, Known, Shape, each};
use super::survey::Survey;
use crate::expr::{Binary, Expr, Kind, Path, Root, Step};
use crate::model::{EventKind, Lifecycle, Row, StateIx, Type};
use crate::value::Value;

/// Cases tried for one question.
const CASES: usize = 4_096;
/// Cases times parts of guards, for one question.
const WORK: usize = 1_000_000;

/// Whether some row of an event is sure to hold in a state.
pub(super) struct Cover {
    pub(super) answer: Answer,
}

pub(super) enum Answer {
    Whole,
    /// A case, in words, in which no row holds.
    Gap(String),
    /// Why it cannot be known.
    Unknown(String),
}

impl Cover {
    pub(super) fn of(survey: &Survey, flow: &Flow, kind: EventKind, rows: &[&Row], state: StateIx) -> Self {
        Self { answer: answer(survey, flow, kind, rows, state) }
    }

    pub(super) fn is_whole(&self) -> bool {
        matches!(self.answer, Answer::Whole)
    }
}

fn answer(survey: &Survey, flow: &Flow, kind: EventKind, rows: &[&Row], state: StateIx) -> Answer {
    let sure: Vec<&&Row> = rows.iter().filter(|row| row.require.is_empty()).collect();
    if sure.iter().any(|row| row.when.is_none()) {
        return Answer::Whole;
    }
    if sure.len() < rows.len() && sure.is_empty() {
        return Answer::Unknown("another record may not take what this row requires".to_owned());
    }
    if survey.is_tired() {
        return Answer::Unknown("its guards have more cases than can be tried".to_owned());
    }
    let Some(facts) = flow.facts(kind, state) else { return Answer::Whole };
    let guards: Vec<Expr> =
        sure.iter().filter_map(|row| row.when.as_ref()).map(|when| folded(&when.expr, survey.lifecycle)).collect();
    let guards: Vec<&Expr> = guards.iter().collect();
    let mut judge = Judge::new(survey.definitions, survey.lifecycle);
    let mut left = Some(Env::new(facts.clone()));
    for guard in &guards {
        left = left.and_then(|env| judge.split(guard, &env).1);
    }
    survey.spend(judge.steps);
    if left.is_none() {
        return Answer::Whole;
    }
    let Some(cases) = Cases::of(survey, &guards, &Env::new(facts)) else {
        return Answer::Unknown("its guards have more cases than can be tried".to_owned());
    };
    match cases.find(|case| !guards.iter().any(|guard| case.holds(guard))) {
        None => Answer::Whole,
        Some(case) if cases.is_exact() => Answer::Gap(case),
        Some(_) => Answer::Unknown("its guards are not known to cover every case".to_owned()),
    }
}

/// The variables that some guards speak of, with the values that make a difference.
pub(super) struct Cases {
    variables: Vec<Variable>,
    /// By structure, so that the same comparison written twice is one.
    index: BTreeMap<String, usize>,
    work: usize,
}

struct Variable {
    name: String,
    values: Vec<Value>,
    /// Stands for a comparison that cannot be decided here.
    opaque: bool,
    /// What the comparison reads.
    reads: Vec<String>,
}

pub(super) struct Case<'a> {
    cases: &'a Cases,
    chosen: &'a [usize],
}

/// Stands for any text, number or record that no guard names.
fn other() -> Value {
    Value::text("\u{1}another value")
}

impl Cases {
    /// Nothing where there are too many.
    pub(super) fn of(survey: &Survey, guards: &[&Expr], env: &Env) -> Option<Self> {
        if survey.is_tired() {
            return None;
        }
        let mut cases = Self { variables: Vec::new(), index: BTreeMap::new(), work: 0 };
        let mut judge = Judge::new(survey.definitions, survey.lifecycle);
        judge.muted = 1;
        for guard in guards {
            cases.gather(guard, &mut judge, env);
        }
        let count = cases.variables.iter().try_fold(1_usize, |count, variable| {
            count.checked_mul(variable.values.len()).filter(|count| *count <= CASES)
        })?;
        let total = count.checked_mul(cases.work.max(1)).filter(|total| *total <= WORK)?;
        survey.spend(judge.steps + total as u64);
        Some(cases)
    }

    /// No comparison had to be guessed at.
    pub(super) fn is_exact(&self) -> bool {
        self.variables.iter().all(|variable| !variable.opaque)
    }

    /// Two undecided comparisons speak of the same values, and may hang together.
    pub(super) fn is_tangled(&self) -> bool {
        let opaque: Vec<&Variable> = self.variables.iter().filter(|variable| variable.opaque).collect();
        opaque.iter().enumerate().any(|(at, variable)| {
            opaque[..at].iter().any(|other| other.reads.iter().any(|path| variable.reads.contains(path)))
        })
    }

    /// The first case for which the test is true, in words.
    pub(super) fn find(&self, test: impl Fn(&Case) -> bool) -> Option<String> {
        let mut chosen = vec![0; self.variables.len()];
        if self.variables.iter().any(|variable| variable.values.is_empty()) {
            return None;
        }
        loop {
            let case = Case { cases: self, chosen: &chosen };
            if test(&case) {
                return Some(case.in_words());
            }
            // Counts up, each variable a digit.
            let mut at = 0;
            loop {
                if at == chosen.len() {
                    return None;
                }
                chosen[at] += 1;
                if chosen[at] < self.variables[at].values.len() {
                    break;
                }
                chosen[at] = 0;
                at += 1;
            }
        }
    }

    fn gather(&mut self, guard: &Expr, judge: &mut Judge, env: &Env) {
        self.work += 1;
        match &guard.kind {
            Kind::Const(Value::Bool(_)) => {}
            Kind::Not(operand) => self.gather(operand, judge, env),
            Kind::And(left, right) | Kind::Or(left, right) => {
                self.gather(left, judge, env);
                self.gather(right, judge, env);
            }
            Kind::If(condition, yes, no) => {
                self.gather(condition, judge, env);
                self.gather(yes, judge, env);
                self.gather(no, judge, env);
            }
            _ => match test_of(guard) {
                Some(test) => {
                    let known = judge.peek(test.operand, env);
                    let values = test.values(&known);
                    self.widen(key(test.operand), judge.name(test.path), values);
                }
                None => self.opaque(guard, judge),
            },
        }
    }

    fn widen(&mut self, key: String, name: String, values: Vec<Value>) {
        let at = *self.index.entry(key).or_insert_with(|| {
            self.variables.push(Variable { name, values: Vec::new(), opaque: false, reads: Vec::new() });
            self.variables.len() - 1
        });
        let variable = &mut self.variables[at];
        for value in values {
            if variable.values.len() <= CASES && !variable.values.contains(&value) {
                variable.values.push(value);
            }
        }
    }

    fn opaque(&mut self, guard: &Expr, judge: &Judge) {
        let mut reads = Vec::new();
        each(guard, &mut |expr| {
            if let Kind::Read(path) = &expr.kind {
                reads.push(judge.name(path));
            }
        });
        let at = self.variables.len();
        self.index.entry(key(guard)).or_insert_with(|| {
            let values = vec![Value::Bool(true), Value::Bool(false)];
            self.variables.push(Variable { name: String::new(), values, opaque: true, reads });
            at
        });
    }
}

impl Case<'_> {
    pub(super) fn holds(&self, guard: &Expr) -> bool {
        match &guard.kind {
            Kind::Const(value) => *value == Value::Bool(true),
            Kind::Not(operand) => !self.holds(operand),
            Kind::And(left, right) => self.holds(left) && self.holds(right),
            Kind::Or(left, right) => self.holds(left) || self.holds(right),
            Kind::If(condition, yes, no) => {
                if self.holds(condition) {
                    self.holds(yes)
                } else {
                    self.holds(no)
                }
            }
            _ => match test_of(guard) {
                Some(test) => self.value(&key(test.operand)).is_some_and(|value| test.holds(value)),
                None => self.value(&key(guard)) == Some(&Value::Bool(true)),
            },
        }
    }

    fn value(&self, key: &str) -> Option<&Value> {
        let at = *self.cases.index.get(key)?;
        self.cases.variables[at].values.get(self.chosen[at])
    }

    fn in_words(&self) -> String {
        let words = self.cases.variables.iter().zip(self.chosen).filter(|(variable, _)| !variable.opaque).take(4);
        let words: Vec<String> = words
            .map(|(variable, at)| match &variable.values[*at] {
                value if *value == other() => format!("`{}` is none of the values named", variable.name),
                Value::Text(text) => format!("`{}` is `{text}`", variable.name),
                value => format!("`{}` is {}", variable.name, value.to_json()),
            })
            .collect();
        words.join(" and ")
    }
}

fn key(expr: &Expr) -> String {
    // Places in the file are not part of it.
    serde_json::to_string(&expr.kind).unwrap_or_default()
}

/// The guard with `const` fields in place of their names, so that comparing with one is comparing with a constant.
pub(super) fn folded(guard: &Expr, lifecycle: &Lifecycle) -> Expr {
    let fold = |part: &Expr| Box::new(folded(part, lifecycle));
    let kind = match &guard.kind {
        Kind::Read(path) => constant(path, lifecycle).map_or_else(|| guard.kind.clone(), Kind::Const),
        Kind::Not(operand) => Kind::Not(fold(operand)),
        Kind::And(left, right) => Kind::And(fold(left), fold(right)),
        Kind::Or(left, right) => Kind::Or(fold(left), fold(right)),
        Kind::If(condition, yes, no) => Kind::If(fold(condition), fold(yes), fold(no)),
        Kind::Binary(operator, left, right) => Kind::Binary(*operator, fold(left), fold(right)),
        kind => kind.clone(),
    };
    Expr { kind, typed: guard.typed.clone(), at: guard.at }
}

fn constant(path: &Path, lifecycle: &Lifecycle) -> Option<Value> {
    let (Root::Record, [Step::Field { slot, .. }]) = (path.root, path.steps.as_slice()) else { return None };
    let field = lifecycle.fields.get(usize::from(*slot))?;
    field.constant.then(|| field.default.clone()).flatten()
}

/// A comparison of one path with constants.
struct Test<'a> {
    operand: &'a Expr,
    path: &'a Path,
    operator: Binary,
    constants: Vec<Value>,
}

fn test_of(guard: &Expr) -> Option<Test<'_>> {
    if let Kind::Read(path) = &guard.kind {
        return Some(Test { operand: guard, path, operator: Binary::Equal, constants: vec![Value::Bool(true)] });
    }
    let Kind::Binary(operator, left, right) = &guard.kind else { return None };
    let (operand, operator, constants) = match (&left.kind, &right.kind) {
        (Kind::Read(_), Kind::Const(Value::List(items))) => (left, *operator, items.to_vec()),
        (Kind::Read(_), Kind::Const(value)) => (left, *operator, vec![value.clone()]),
        (Kind::Const(value), Kind::Read(_)) => (right, mirrored(*operator)?, vec![value.clone()]),
        (Kind::Read(_), Kind::List(items)) => {
            let constants = items.iter().map(|item| match &item.kind {
                Kind::Const(value) => Some(value.clone()),
                _ => None,
            });
            (left, *operator, constants.collect::<Option<Vec<_>>>()?)
        }
        _ => return None,
    };
    let Kind::Read(path) = &operand.kind else { return None };
    let ordered = matches!(operator, Binary::Less | Binary::LessOrEqual | Binary::Greater | Binary::GreaterOrEqual);
    let fits = match operand.typed.ty {
        Type::Int => true,
        Type::Bool | Type::Enum(_) | Type::Text => !ordered,
        _ => constants.iter().all(Value::is_null) && !ordered,
    };
    let known = matches!(operator, Binary::Equal | Binary::NotEqual | Binary::In) || ordered;
    (fits && known).then_some(Test { operand, path, operator, constants })
}

const fn mirrored(operator: Binary) -> Option<Binary> {
    Some(match operator {
        Binary::Equal => Binary::Equal,
        Binary::NotEqual => Binary::NotEqual,
        Binary::Less => Binary::Greater,
        Binary::LessOrEqual => Binary::GreaterOrEqual,
        Binary::Greater => Binary::Less,
        Binary::GreaterOrEqual => Binary::LessOrEqual,
        _ => return None,
    })
}

impl Test<'_> {
    /// The values between which the test tells a difference, among those that are possible.
    fn values(&self, known: &Known) -> Vec<Value> {
        let mut values = Vec::new();
        if known.null {
            values.push(Value::Null);
        }
        match &known.shape {
            Shape::Never => {}
            Shape::Bool { yes, no } => {
                values.extend(yes.then_some(Value::Bool(true)));
                values.extend(no.then_some(Value::Bool(false)));
            }
            Shape::Text { of: Some(of), .. } => values.extend(of.iter().cloned().map(Value::Text)),
            Shape::Number(least, most) if self.operand.typed.ty == Type::Int => {
                let near = self.constants.iter().filter_map(|constant| match constant {
                    Value::Int(value) => Some(i128::from(*value)),
                    _ => None,
                });
                let marks = near.flat_map(|value| [value - 1, value, value + 1]).chain([*least, *most]);
                let ints =
                    marks.filter(|mark| least <= mark && mark <= most).filter_map(|mark| i64::try_from(mark).ok());
                values.extend(ints.map(Value::Int));
            }
            _ => {
                values.extend(self.constants.iter().filter(|constant| !constant.is_null()).cloned());
                values.push(other());
            }
        }
        values
    }

    fn holds(&self, value: &Value) -> bool {
        match self.operator {
            Binary::Equal | Binary::In => self.constants.contains(value),
            Binary::NotEqual => !self.constants.contains(value),
            operator => match (value, self.constants.first()) {
                (Value::Int(value), Some(Value::Int(constant))) => match operator {
                    Binary::Less => value < constant,
                    Binary::LessOrEqual => value <= constant,
                    Binary::Greater => value > constant,
                    _ => value >= constant,
                },
                _ => false,
            },
        }
    }
}
