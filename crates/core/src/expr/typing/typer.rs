//! One expression being typed, and the parts of it that are neither operators nor calls.

use std::ops::Range;
use std::sync::Arc;

use super::super::parse::{Node, What};
use super::super::scope::{Place, Scope, Want, span_of};
use super::super::suggest;
use super::super::tree::{Expr, Kind, Path, Root};
use super::super::types::{fits, name_of, typed};
use super::super::{cost, facts};
use super::{doubts, paths};
use crate::bounds;
use crate::diagnostic::Diagnostic;
use crate::model::{Type, Typed};
use crate::time::Duration;
use crate::value::Value;

/// A typed part, with what it may cost.
pub(in super::super) struct Lowered {
    pub expr: Expr,
    /// Steps of one evaluation, at most.
    pub cost: u64,
    /// Elements of the list it gives, at most; 0 for what is no list.
    pub items: u64,
    /// Records already hopped to, to read it.
    pub hops: usize,
}

/// A comprehension's variable.
pub(super) struct Local {
    pub name: Arc<str>,
    pub ty: Type,
    pub hops: usize,
}

/// `None` means that a diagnostic has been written.
pub(super) type Checked<T> = Option<T>;

pub(in super::super) struct Typer<'a> {
    pub(super) scope: &'a Scope<'a>,
    place: Place,
    pub(super) locals: Vec<Local>,
    /// Paths that are known not to be null at the part being typed.
    pub(super) facts: Vec<Path>,
    /// Whether a link without a bound may be named: only as the whole target of a cause.
    pub(super) unbounded_link: bool,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Typer<'a> {
    pub(in super::super) fn new(scope: &'a Scope<'a>, place: Place, known: &[Path]) -> Self {
        Self { scope, place, locals: Vec::new(), facts: known.to_vec(), unbounded_link: false, diagnostics: Vec::new() }
    }

    /// How many messages there are before the next.
    pub(super) fn told(&self) -> usize {
        self.scope.told + self.diagnostics.len()
    }

    /// The whole expression, held against what is wanted of it.
    pub(in super::super) fn finish(mut self, node: &Node, want: &Want) -> Result<Expr, Vec<Diagnostic>> {
        self.unbounded_link = matches!(want, Want::Targets) && matches!(node.what, What::Select { .. });
        let expected = match want {
            Want::Fits(want) => Some(&want.ty),
            Want::Targets | Want::Any => None,
        };
        let Some(lowered) = self.infer(node, expected) else { return Err(self.diagnostics) };
        if lowered.cost > bounds::EXPRESSION_COST {
            let message = format!(
                "one evaluation may take {} steps; at most {} are allowed",
                cost::shown(lowered.cost),
                bounds::EXPRESSION_COST
            );
            self.report("expression-too-costly", &node.at, message, "lower the bounds of the lists it runs over");
        }
        match want {
            Want::Fits(want) => self.must_fit(&lowered.expr, want, node),
            Want::Targets => self.must_be_targets(&lowered.expr.typed.ty, &node.at),
            Want::Any => {}
        }
        if self.diagnostics.is_empty() { Ok(lowered.expr) } else { Err(self.diagnostics) }
    }

    fn must_fit(&mut self, expr: &Expr, want: &Typed, node: &Node) {
        let (given, at) = (&expr.typed, &node.at);
        if !fits(&given.ty, &want.ty) {
            let message = format!("{} is wanted here, and this is {}", name_of(&want.ty), name_of(&given.ty));
            let help = match (&given.ty, &want.ty) {
                (Type::Int | Type::Double, Type::Duration) => doubts::unit_help(node, self.place.content.is_none()),
                (Type::Int, Type::Double) => "convert it: double(…)".to_owned(),
                (Type::Double, Type::Int) => "convert it: int(…)".to_owned(),
                (Type::Text, Type::Enum(_)) => "only a literal or a bare name fits a closed list".to_owned(),
                (_, Type::Bool) => "compare it with something".to_owned(),
                (_, Type::Text) => "convert it: string(…)".to_owned(),
                _ => "give a value of the wanted type".to_owned(),
            };
            self.report("type-mismatch", at, message, help);
        } else if given.nullable && !want.nullable {
            let (what, help) = doubts::null(node, expr, &want.ty);
            self.report("maybe-null", at, format!("{what}, and {} is wanted", name_of(&want.ty)), help);
        }
    }

    fn must_be_targets(&mut self, ty: &Type, at: &Range<usize>) {
        let is_target = match ty {
            Type::Ref(_) => true,
            Type::List(element) => matches!(**element, Type::Ref(_)),
            _ => false,
        };
        if !is_target {
            let message = format!("a target is a ref or a list of refs, and this is {}", name_of(ty));
            self.report("type-mismatch", at, message, "name a ref field, a link, or an entry of [refs]");
        }
    }

    pub(super) fn error<T>(
        &mut self,
        code: &'static str,
        at: &Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Checked<T> {
        self.report(code, at, message, help);
        None
    }

    fn report(&mut self, code: &'static str, at: &Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        let diagnostic = Diagnostic::error(code, span_of(self.place, at), message).help(help);
        self.diagnostics.push(diagnostic);
    }

    pub(super) fn lowered(&self, at: &Range<usize>, kind: Kind, typed: Typed, cost: u64) -> Lowered {
        Lowered { expr: Expr { kind, typed, at: span_of(self.place, at) }, cost, items: 0, hops: 0 }
    }

    /// Type one part. `expected` is the type it meets, by which bare names and literals are understood; it is a hint
    /// here, and whoever gives it looks at what comes back.
    pub(super) fn infer(&mut self, node: &Node, expected: Option<&Type>) -> Checked<Lowered> {
        let at = &node.at;
        match &node.what {
            What::Literal(value) => self.literal(value, at, expected),
            What::Name(name) => self.name(name, at, expected),
            What::Select { .. } => self.path(node),
            What::Not(inner) => {
                let inner = self.condition(inner)?;
                let cost = cost::sum([inner.cost, 1]);
                Some(self.lowered(at, Kind::Not(Box::new(inner.expr)), typed(Type::Bool, false), cost))
            }
            What::Negate(inner) => self.negate(inner, at),
            What::And(left, right) => self.logic(left, right, at, true),
            What::Or(left, right) => self.logic(left, right, at, false),
            What::If(condition, yes, no) => self.choice([condition, yes, no], at, expected),
            What::Binary(operator, left, right) => self.binary(*operator, left, right, at),
            What::List(elements) => self.list(elements, at, expected),
            What::Call { name, name_at, target, arguments } => match target {
                Some(target) => self.method(name, name_at, target, arguments, at, expected),
                None => self.function(name, name_at, arguments, at),
            },
        }
    }

    fn literal(&mut self, value: &Value, at: &Range<usize>, expected: Option<&Type>) -> Checked<Lowered> {
        let mut value = value.clone();
        let ty = match (&value, expected) {
            (Value::Text(text), Some(Type::Enum(values))) => {
                if !values.contains(text) {
                    let help = suggest::help(self.told(), text, values.iter().map(|value| &**value));
                    return self.error("unknown-value", at, format!("`{text}` is none of the values it meets"), help);
                }
                Type::Enum([text.clone()].into())
            }
            (Value::Text(text), Some(Type::Duration)) => match text.parse::<Duration>() {
                Ok(duration) => {
                    value = Value::Duration(duration);
                    Type::Duration
                }
                Err(error) => {
                    return self.error("bad-duration", at, error.to_string(), "write it as '30s' or '1h30m'");
                }
            },
            (Value::Null, _) => Type::Null,
            (Value::Bool(_), _) => Type::Bool,
            (Value::Int(_), _) => Type::Int,
            (Value::Double(_), _) => Type::Double,
            _ => Type::Text,
        };
        let nullable = value.is_null();
        Some(self.lowered(at, Kind::Const(value), typed(ty, nullable), 1))
    }

    /// A name that stands alone: a variable, `now`, or a value of the closed list it meets.
    fn name(&mut self, name: &Arc<str>, at: &Range<usize>, expected: Option<&Type>) -> Checked<Lowered> {
        let values = match expected {
            Some(Type::Enum(values)) => Some(values),
            _ => None,
        };
        let is_value = values.is_some_and(|values| values.contains(name));
        if self.names_a_value_here(name) {
            if is_value {
                let message = format!("`{name}` is both a value of the closed list it meets and a name of its own");
                return self.error("ambiguous-name", at, message, format!("write '{name}' for the value of the list"));
            }
            return Some(self.root_value(name, at));
        }
        if is_value {
            let ty = Type::Enum([name.clone()].into());
            return Some(self.lowered(at, Kind::Const(Value::Text(name.clone())), typed(ty, false), 1));
        }
        if paths::is_root(name) || name.as_ref() == "now" {
            return self.root_alone(name, at);
        }
        let (message, help) = match values {
            Some(values) => (
                format!("`{name}` is none of the values it meets"),
                suggest::help(self.told(), name, values.iter().map(|value| &**value)),
            ),
            None => match self.meant(name) {
                Some(meant) => (format!("nothing is called `{name}` here"), format!("did you mean {meant}?")),
                None => (
                    format!("`{name}` meets no state and no closed list that could say what it is"),
                    match expected {
                        Some(Type::Int | Type::Double) => {
                            "a number is wanted: write it in digits, or record.NAME for a field".to_owned()
                        }
                        _ => format!("write '{name}' for text, record.NAME for a field"),
                    },
                ),
            },
        };
        self.error("unknown-name", at, message, help)
    }

    /// Whether a part is understood by what it meets: a bare name, a text literal, or what is made of them.
    pub(super) fn is_open(&self, node: &Node) -> bool {
        match &node.what {
            What::Literal(value) => matches!(value, Value::Text(_)),
            What::Name(name) => !self.names_a_value_here(name),
            What::List(elements) => elements.iter().any(|element| self.is_open(element)),
            What::If(_, yes, no) => self.is_open(yes) || self.is_open(no),
            _ => false,
        }
    }

    /// Variables and `now`: the names that are values by themselves.
    pub(super) fn names_a_value_here(&self, name: &str) -> bool {
        self.locals.iter().any(|local| *local.name == *name) || (name == "now" && self.scope.now)
    }

    /// A part that must be true or false.
    pub(super) fn condition(&mut self, node: &Node) -> Checked<Lowered> {
        let lowered = self.infer(node, None)?;
        if lowered.expr.typed.ty != Type::Bool {
            let message = format!("true or false is wanted here, and this is {}", name_of(&lowered.expr.typed.ty));
            return self.error("type-mismatch", &node.at, message, "compare it with something");
        }
        Some(lowered)
    }

    /// Type a part while more is known not to be null.
    pub(super) fn knowing<T>(&mut self, facts: Vec<Path>, then: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.facts.len();
        self.facts.extend(facts);
        let result = then(self);
        self.facts.truncate(before);
        result
    }

    fn logic(&mut self, left: &Node, right: &Node, at: &Range<usize>, both: bool) -> Checked<Lowered> {
        let left = self.condition(left);
        let learned = left.as_ref().map(|left| facts::learned(&left.expr, Some(both))).unwrap_or_default();
        let right = self.knowing(learned, |typer| typer.condition(right));
        let (left, right) = (left?, right?);
        let cost = cost::sum([left.cost, right.cost, 1]);
        let (left, right) = (Box::new(left.expr), Box::new(right.expr));
        let kind = if both { Kind::And(left, right) } else { Kind::Or(left, right) };
        Some(self.lowered(at, kind, typed(Type::Bool, false), cost))
    }

    fn choice(
        &mut self,
        [condition, yes, no]: [&Node; 3],
        at: &Range<usize>,
        expected: Option<&Type>,
    ) -> Checked<Lowered> {
        let condition = self.condition(condition)?;
        let when = |truth| facts::learned(&condition.expr, Some(truth));
        let (yes, no) = if expected.is_none() && self.is_open(yes) && !self.is_open(no) {
            let no = self.knowing(when(false), |typer| typer.infer(no, None))?;
            let met = no.expr.typed.ty.clone();
            (self.knowing(when(true), |typer| typer.infer(yes, Some(&met)))?, no)
        } else {
            let yes = self.knowing(when(true), |typer| typer.infer(yes, expected));
            let met = yes.as_ref().map(|yes| yes.expr.typed.ty.clone());
            let no = self.knowing(when(false), |typer| typer.infer(no, expected.or(met.as_ref())));
            (yes?, no?)
        };
        let Some(ty) = super::super::types::join(&yes.expr.typed.ty, &no.expr.typed.ty) else {
            let message =
                format!("one branch is {} and the other {}", name_of(&yes.expr.typed.ty), name_of(&no.expr.typed.ty));
            return self.error("type-mismatch", at, message, "both branches must be of one type");
        };
        let nullable = yes.expr.typed.nullable || no.expr.typed.nullable;
        let cost = cost::sum([condition.cost, yes.cost.max(no.cost), 1]);
        let (items, hops) = (yes.items.max(no.items), yes.hops.max(no.hops));
        let kind = Kind::If(Box::new(condition.expr), Box::new(yes.expr), Box::new(no.expr));
        Some(Lowered { items, hops, ..self.lowered(at, kind, typed(ty, nullable), cost) })
    }

    pub(super) fn read(&self, at: &Range<usize>, root: Root, typed: Typed) -> Lowered {
        let path = Path { root, steps: Vec::new(), doubtful: Vec::new() };
        let typed = Typed { nullable: typed.nullable && !self.facts.contains(&path), ..typed };
        self.lowered(at, Kind::Read(path), typed, 1)
    }
}
