//! Decides guards exactly by enumerating cases of enums, booleans, nulls, and of numbers and texts that are compared
//! with constants. Every other comparison is taken as both true and false, so that no case is missed.

use std::collections::BTreeMap;

use super::abstract_eval::{
    AbstractEnv, AbstractEvaluator, AbstractShape, AbstractValue, StateFacts, for_each_subexpr,
};
use super::reachability::Reachability;
use crate::expr::{BinaryOperator, Expr, ExprKind, PathRoot, PathStep, ValuePath};
use crate::model::{DataType, EventKind, Lifecycle, StateIndex, Transition};
use crate::value::Value;

/// Most cases per query; bounds the work on hostile files.
const MAX_GUARD_CASES: usize = 4_096;
/// Most cases times guard nodes per query; bounds the work on hostile files.
const MAX_CASE_EVALUATIONS: usize = 1_000_000;

/// Whether some transition of an event always matches in a state.
pub(super) struct GuardCoverage {
    pub(super) result: CoverageResult,
}

pub(super) enum CoverageResult {
    Complete,
    /// Description of a case in which no transition matches.
    Gap(String),
    /// Why the analysis cannot decide.
    Unknown(String),
}

impl GuardCoverage {
    pub(super) fn analyze(
        reachability: &Reachability,
        state_facts: &StateFacts,
        kind: EventKind,
        transitions: &[&Transition],
        state: StateIndex,
    ) -> Self {
        Self { result: compute_coverage(reachability, state_facts, kind, transitions, state) }
    }

    pub(super) fn is_complete(&self) -> bool {
        matches!(self.result, CoverageResult::Complete)
    }
}

fn compute_coverage(
    reachability: &Reachability,
    state_facts: &StateFacts,
    kind: EventKind,
    transitions: &[&Transition],
    state: StateIndex,
) -> CoverageResult {
    let unconditional: Vec<&&Transition> =
        transitions.iter().filter(|transition| transition.require.is_empty()).collect();
    if unconditional.iter().any(|transition| transition.when.is_none()) {
        return CoverageResult::Complete;
    }
    if unconditional.len() < transitions.len() && unconditional.is_empty() {
        return CoverageResult::Unknown(
            "another record may not take the event that the transition requires".to_owned(),
        );
    }
    if reachability.ignores_shadowing() {
        return CoverageResult::Unknown("its guards have more cases than the analysis tries".to_owned());
    }
    let Some(facts) = state_facts.facts_for(kind, state) else { return CoverageResult::Complete };
    let guards: Vec<Expr> = unconditional
        .iter()
        .filter_map(|transition| transition.when.as_ref())
        .map(|when| fold_constants(&when.expr, reachability.lifecycle))
        .collect();
    let guards: Vec<&Expr> = guards.iter().collect();
    let mut evaluator = AbstractEvaluator::new(reachability.definitions, reachability.lifecycle);
    let mut remaining = Some(AbstractEnv::new(facts.clone()));
    for guard in &guards {
        remaining = remaining.and_then(|env| evaluator.split_env(guard, &env).1);
    }
    reachability.spend_steps(evaluator.steps);
    if remaining.is_none() {
        return CoverageResult::Complete;
    }
    let Some(cases) = GuardCases::enumerate(reachability, &guards, &AbstractEnv::new(facts)) else {
        return CoverageResult::Unknown("its guards have more cases than the analysis tries".to_owned());
    };
    match cases.find_case(|case| !guards.iter().any(|guard| case.is_true(guard))) {
        None => CoverageResult::Complete,
        Some(case) if cases.is_exact() => CoverageResult::Gap(case),
        Some(_) => CoverageResult::Unknown("its guards may not cover every case".to_owned()),
    }
}

/// The variables in some guards, with the values that make a difference.
pub(super) struct GuardCases {
    variables: Vec<CaseVariable>,
    /// By structure, so that a repeated comparison is one variable.
    index: BTreeMap<String, usize>,
    guard_nodes: usize,
}

struct CaseVariable {
    name: String,
    values: Vec<Value>,
    /// A comparison that cannot be decided by cases.
    is_opaque: bool,
    /// Paths that the comparison reads.
    reads: Vec<String>,
}

pub(super) struct GuardCase<'a> {
    cases: &'a GuardCases,
    value_indexes: &'a [usize],
}

/// Represents any text, number or record that no guard names.
fn other_value() -> Value {
    Value::text("\u{1}another value")
}

impl GuardCases {
    /// Returns `None` if there are too many cases.
    pub(super) fn enumerate(reachability: &Reachability, guards: &[&Expr], env: &AbstractEnv) -> Option<Self> {
        if reachability.ignores_shadowing() {
            return None;
        }
        let mut cases = Self { variables: Vec::new(), index: BTreeMap::new(), guard_nodes: 0 };
        let mut evaluator = AbstractEvaluator::new(reachability.definitions, reachability.lifecycle);
        evaluator.muted = 1;
        for guard in guards {
            cases.collect_variables(guard, &mut evaluator, env);
        }
        let count = cases.variables.iter().try_fold(1_usize, |count, variable| {
            count.checked_mul(variable.values.len()).filter(|count| *count <= MAX_GUARD_CASES)
        })?;
        let total = count.checked_mul(cases.guard_nodes.max(1)).filter(|total| *total <= MAX_CASE_EVALUATIONS)?;
        reachability.spend_steps(evaluator.steps + total as u64);
        Some(cases)
    }

    /// Whether every comparison was decided by cases.
    pub(super) fn is_exact(&self) -> bool {
        self.variables.iter().all(|variable| !variable.is_opaque)
    }

    /// Whether two opaque comparisons read the same values and may depend on each other.
    pub(super) fn has_related_opaque_tests(&self) -> bool {
        let opaque: Vec<&CaseVariable> = self.variables.iter().filter(|variable| variable.is_opaque).collect();
        opaque.iter().enumerate().any(|(at, variable)| {
            opaque[..at].iter().any(|other| other.reads.iter().any(|path| variable.reads.contains(path)))
        })
    }

    /// Describes the first case for which the test is true.
    pub(super) fn find_case(&self, test: impl Fn(&GuardCase) -> bool) -> Option<String> {
        let mut value_indexes = vec![0; self.variables.len()];
        if self.variables.iter().any(|variable| variable.values.is_empty()) {
            return None;
        }
        loop {
            let case = GuardCase { cases: self, value_indexes: &value_indexes };
            if test(&case) {
                return Some(case.describe());
            }
            // Increments the indexes like the digits of a number.
            let mut index = 0;
            loop {
                if index == value_indexes.len() {
                    return None;
                }
                value_indexes[index] += 1;
                if value_indexes[index] < self.variables[index].values.len() {
                    break;
                }
                value_indexes[index] = 0;
                index += 1;
            }
        }
    }

    fn collect_variables(&mut self, guard: &Expr, evaluator: &mut AbstractEvaluator, env: &AbstractEnv) {
        self.guard_nodes += 1;
        match &guard.kind {
            ExprKind::Const(Value::Bool(_)) => {}
            ExprKind::Not(operand) => self.collect_variables(operand, evaluator, env),
            ExprKind::And(left, right) | ExprKind::Or(left, right) => {
                self.collect_variables(left, evaluator, env);
                self.collect_variables(right, evaluator, env);
            }
            ExprKind::If(condition, yes, no) => {
                self.collect_variables(condition, evaluator, env);
                self.collect_variables(yes, evaluator, env);
                self.collect_variables(no, evaluator, env);
            }
            _ => match parse_constant_test(guard) {
                Some(test) => {
                    let operand_value = evaluator.eval_silently(test.operand, env);
                    let values = test.distinguishing_values(&operand_value);
                    self.add_values(structure_key(test.operand), evaluator.path_name(test.path), values);
                }
                None => self.add_opaque_test(guard, evaluator),
            },
        }
    }

    fn add_values(&mut self, structure_key: String, name: String, values: Vec<Value>) {
        let index = *self.index.entry(structure_key).or_insert_with(|| {
            self.variables.push(CaseVariable { name, values: Vec::new(), is_opaque: false, reads: Vec::new() });
            self.variables.len() - 1
        });
        let variable = &mut self.variables[index];
        for value in values {
            if variable.values.len() <= MAX_GUARD_CASES && !variable.values.contains(&value) {
                variable.values.push(value);
            }
        }
    }

    fn add_opaque_test(&mut self, guard: &Expr, evaluator: &AbstractEvaluator) {
        let mut reads = Vec::new();
        for_each_subexpr(guard, &mut |expr| {
            if let ExprKind::Read(path) = &expr.kind {
                reads.push(evaluator.path_name(path));
            }
        });
        let index = self.variables.len();
        self.index.entry(structure_key(guard)).or_insert_with(|| {
            let values = vec![Value::Bool(true), Value::Bool(false)];
            self.variables.push(CaseVariable { name: String::new(), values, is_opaque: true, reads });
            index
        });
    }
}

impl GuardCase<'_> {
    pub(super) fn is_true(&self, guard: &Expr) -> bool {
        match &guard.kind {
            ExprKind::Const(value) => *value == Value::Bool(true),
            ExprKind::Not(operand) => !self.is_true(operand),
            ExprKind::And(left, right) => self.is_true(left) && self.is_true(right),
            ExprKind::Or(left, right) => self.is_true(left) || self.is_true(right),
            ExprKind::If(condition, yes, no) => {
                if self.is_true(condition) {
                    self.is_true(yes)
                } else {
                    self.is_true(no)
                }
            }
            _ => match parse_constant_test(guard) {
                Some(test) => self.value_of(&structure_key(test.operand)).is_some_and(|value| test.is_true_for(value)),
                None => self.value_of(&structure_key(guard)) == Some(&Value::Bool(true)),
            },
        }
    }

    fn value_of(&self, structure_key: &str) -> Option<&Value> {
        let index = *self.cases.index.get(structure_key)?;
        self.cases.variables[index].values.get(self.value_indexes[index])
    }

    fn describe(&self) -> String {
        let conditions =
            self.cases.variables.iter().zip(self.value_indexes).filter(|(variable, _)| !variable.is_opaque).take(4);
        let conditions: Vec<String> = conditions
            .map(|(variable, at)| match &variable.values[*at] {
                value if *value == other_value() => format!("`{}` is none of the named values", variable.name),
                Value::Text(text) => format!("`{}` is `{text}`", variable.name),
                value => format!("`{}` is {}", variable.name, value.to_json()),
            })
            .collect();
        conditions.join(" and ")
    }
}

fn structure_key(expr: &Expr) -> String {
    // Without spans.
    serde_json::to_string(&expr.kind).unwrap_or_default()
}

/// Replaces `const` fields by their values, so that a comparison with one is a comparison with a constant.
pub(super) fn fold_constants(guard: &Expr, lifecycle: &Lifecycle) -> Expr {
    let fold = |part: &Expr| Box::new(fold_constants(part, lifecycle));
    let kind = match &guard.kind {
        ExprKind::Read(path) => {
            constant_field_value(path, lifecycle).map_or_else(|| guard.kind.clone(), ExprKind::Const)
        }
        ExprKind::Not(operand) => ExprKind::Not(fold(operand)),
        ExprKind::And(left, right) => ExprKind::And(fold(left), fold(right)),
        ExprKind::Or(left, right) => ExprKind::Or(fold(left), fold(right)),
        ExprKind::If(condition, yes, no) => ExprKind::If(fold(condition), fold(yes), fold(no)),
        ExprKind::Binary(operator, left, right) => ExprKind::Binary(*operator, fold(left), fold(right)),
        kind => kind.clone(),
    };
    Expr { kind, value_type: guard.value_type.clone(), span: guard.span }
}

fn constant_field_value(path: &ValuePath, lifecycle: &Lifecycle) -> Option<Value> {
    let (PathRoot::Record, [PathStep::Field { index: slot, .. }]) = (path.root, path.steps.as_slice()) else {
        return None;
    };
    let field = lifecycle.fields.get(usize::from(*slot))?;
    field.is_constant.then(|| field.default.clone()).flatten()
}

/// A comparison of one path with constants.
struct ConstantTest<'a> {
    operand: &'a Expr,
    path: &'a ValuePath,
    operator: BinaryOperator,
    constants: Vec<Value>,
}

fn parse_constant_test(guard: &Expr) -> Option<ConstantTest<'_>> {
    if let ExprKind::Read(path) = &guard.kind {
        return Some(ConstantTest {
            operand: guard,
            path,
            operator: BinaryOperator::Equal,
            constants: vec![Value::Bool(true)],
        });
    }
    let ExprKind::Binary(operator, left, right) = &guard.kind else { return None };
    let (operand, operator, constants) = match (&left.kind, &right.kind) {
        (ExprKind::Read(_), ExprKind::Const(Value::List(items))) => (left, *operator, items.to_vec()),
        (ExprKind::Read(_), ExprKind::Const(value)) => (left, *operator, vec![value.clone()]),
        (ExprKind::Const(value), ExprKind::Read(_)) => (right, mirror_operator(*operator)?, vec![value.clone()]),
        (ExprKind::Read(_), ExprKind::List(items)) => {
            let constants = items.iter().map(|item| match &item.kind {
                ExprKind::Const(value) => Some(value.clone()),
                _ => None,
            });
            (left, *operator, constants.collect::<Option<Vec<_>>>()?)
        }
        _ => return None,
    };
    let ExprKind::Read(path) = &operand.kind else { return None };
    let is_ordering = matches!(
        operator,
        BinaryOperator::Less | BinaryOperator::LessOrEqual | BinaryOperator::Greater | BinaryOperator::GreaterOrEqual
    );
    let has_testable_type = match operand.value_type.ty {
        DataType::Int => true,
        DataType::Bool | DataType::Enum(_) | DataType::Text => !is_ordering,
        _ => constants.iter().all(Value::is_null) && !is_ordering,
    };
    let is_supported =
        matches!(operator, BinaryOperator::Equal | BinaryOperator::NotEqual | BinaryOperator::In) || is_ordering;
    (has_testable_type && is_supported).then_some(ConstantTest { operand, path, operator, constants })
}

const fn mirror_operator(operator: BinaryOperator) -> Option<BinaryOperator> {
    Some(match operator {
        BinaryOperator::Equal => BinaryOperator::Equal,
        BinaryOperator::NotEqual => BinaryOperator::NotEqual,
        BinaryOperator::Less => BinaryOperator::Greater,
        BinaryOperator::LessOrEqual => BinaryOperator::GreaterOrEqual,
        BinaryOperator::Greater => BinaryOperator::Less,
        BinaryOperator::GreaterOrEqual => BinaryOperator::LessOrEqual,
        _ => return None,
    })
}

impl ConstantTest<'_> {
    /// Returns possible values that the test distinguishes.
    fn distinguishing_values(&self, abstract_value: &AbstractValue) -> Vec<Value> {
        let mut values = Vec::new();
        if abstract_value.may_be_null {
            values.push(Value::Null);
        }
        match &abstract_value.shape {
            AbstractShape::Never => {}
            AbstractShape::Bool { can_be_true: yes, can_be_false: no } => {
                values.extend(yes.then_some(Value::Bool(true)));
                values.extend(no.then_some(Value::Bool(false)));
            }
            AbstractShape::Text { allowed_values: Some(of), .. } => values.extend(of.iter().cloned().map(Value::Text)),
            AbstractShape::Number(least, most) if self.operand.value_type.ty == DataType::Int => {
                let near_constants = self.constants.iter().filter_map(|constant| match constant {
                    Value::Int(value) => Some(i128::from(*value)),
                    _ => None,
                });
                let boundary_values =
                    near_constants.flat_map(|value| [value - 1, value, value + 1]).chain([*least, *most]);
                let ints = boundary_values
                    .filter(|mark| least <= mark && mark <= most)
                    .filter_map(|mark| i64::try_from(mark).ok());
                values.extend(ints.map(Value::Int));
            }
            _ => {
                values.extend(self.constants.iter().filter(|constant| !constant.is_null()).cloned());
                values.push(other_value());
            }
        }
        values
    }

    fn is_true_for(&self, value: &Value) -> bool {
        match self.operator {
            BinaryOperator::Equal | BinaryOperator::In => self.constants.contains(value),
            BinaryOperator::NotEqual => !self.constants.contains(value),
            operator => match (value, self.constants.first()) {
                (Value::Int(value), Some(Value::Int(constant))) => match operator {
                    BinaryOperator::Less => value < constant,
                    BinaryOperator::LessOrEqual => value <= constant,
                    BinaryOperator::Greater => value > constant,
                    _ => value >= constant,
                },
                _ => false,
            },
        }
    }
}
