//! Rows whose `by` admits nobody, by itself or together with the guard.

use super::faults::{Flow, judge_of, start};
use super::survey::Survey;
use crate::diagnostic::Diagnostic;
use crate::expr::{ActorPart, Binary, Expr, Kind, Path, Root, Step};
use crate::model::{By, Event, Row, StateIx};

pub(super) fn nobody(
    survey: &Survey,
    flow: &Flow,
    event: &Event,
    row: &Row,
    froms: &[Option<StateIx>],
) -> Option<Diagnostic> {
    if row.by.is_empty() || !row.by.iter().all(|by| is_kept_out(survey, flow, event, row, by, froms)) {
        return None;
    }
    let mut warning = Diagnostic::warning("dead-row", row.at, "this row is never taken: its `by` admits nobody");
    for who in row.by.iter().filter_map(|by| who(survey, by)) {
        warning = warning.also(who.at, "true for nobody who could call the row");
    }
    let label = if row.when.is_some() { "nobody is admitted where its guard holds" } else { "nobody may call it" };
    Some(warning.label(label).help("correct `by`, the formula in `[who]` or the guard, or take the row away"))
}

fn who<'a>(survey: &Survey<'a>, by: &By) -> Option<&'a crate::model::Who> {
    match by {
        By::Who(at) => survey.lifecycle.who.get(usize::from(*at)),
        _ => None,
    }
}

fn is_kept_out(survey: &Survey, flow: &Flow, event: &Event, row: &Row, by: &By, froms: &[Option<StateIx>]) -> bool {
    let mut claims = Vec::new();
    let who = who(survey, by);
    match (by, who) {
        (By::Owner, _) => claims.push(Claim { equal: true, left: &CALLER, right: &OWNER }),
        (_, Some(who)) => claims_of(&who.formula.expr, &mut claims),
        _ => return false,
    }
    if let Some(when) = &row.when {
        claims_of(&when.expr, &mut claims);
    }
    if claims.iter().enumerate().any(|(at, claim)| claims[..at].iter().any(|other| claim.denies(other))) {
        return true;
    }
    let Some(who) = who else { return false };
    froms.iter().all(|from| {
        let mut judge = judge_of(survey, event, row, None);
        judge.muted = 1;
        // A state of which nothing is known is another matter.
        let Some(env) = start(flow, survey.lifecycle, event, row, *from, &judge.given) else { return false };
        let admitted = judge.split(&who.formula.expr, &env).0;
        let out = match (admitted, &row.when) {
            (Some(env), Some(when)) => judge.split(&when.expr, &env).0.is_none(),
            (admitted, _) => admitted.is_none(),
        };
        survey.spend(judge.steps);
        out
    })
}

static CALLER: Path = Path { root: Root::Actor(ActorPart::Id), steps: Vec::new(), doubtful: Vec::new() };
static OWNER: std::sync::LazyLock<Path> =
    std::sync::LazyLock::new(|| Path { root: Root::Record, steps: vec![Step::Owner], doubtful: Vec::new() });

/// That two paths are, or are not, the same.
struct Claim<'a> {
    equal: bool,
    left: &'a Path,
    right: &'a Path,
}

impl Claim<'_> {
    fn denies(&self, other: &Self) -> bool {
        let same = self.left == other.left && self.right == other.right;
        let crossed = self.left == other.right && self.right == other.left;
        self.equal != other.equal && (same || crossed)
    }
}

/// What must be so where the expression is true.
fn claims_of<'a>(expr: &'a Expr, claims: &mut Vec<Claim<'a>>) {
    match &expr.kind {
        Kind::And(left, right) => {
            claims_of(left, claims);
            claims_of(right, claims);
        }
        Kind::Binary(operator @ (Binary::Equal | Binary::NotEqual), left, right) => {
            if let (Kind::Read(left), Kind::Read(right)) = (&left.kind, &right.kind) {
                claims.push(Claim { equal: *operator == Binary::Equal, left, right });
            }
        }
        _ => {}
    }
}
