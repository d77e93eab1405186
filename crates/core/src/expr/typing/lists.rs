//! Types list literals and comprehensions: `all`, `exists` and `filter`.

use std::ops::Range;
use std::sync::Arc;

use super::super::cost;
use super::super::parse::{ParsedExpr, ParsedKind};
use super::super::tree::{ComprehensionKind, ExprKind};
use super::super::types::{join_types, type_name, value_type};
use super::paths::is_path_root;
use super::typer::{ComprehensionVariable, ExprTyper, TypedExpr, TypingResult};
use crate::model::DataType;

impl ExprTyper<'_> {
    pub(super) fn infer_list(
        &mut self,
        elements: &[ParsedExpr],
        range: &Range<usize>,
        expected: Option<&DataType>,
    ) -> TypingResult<TypedExpr> {
        let expected_element = match expected {
            Some(DataType::List(element)) => Some((**element).clone()),
            _ => None,
        };
        // Elements with a type of their own come first; they give the context for the others.
        let mut lowered: Vec<Option<TypedExpr>> = elements.iter().map(|_| None).collect();
        let mut element_type = DataType::Null;
        let mut failed = false;
        for needs_context in [false, true] {
            for (index, element) in elements.iter().enumerate() {
                if self.needs_context(element) != needs_context {
                    continue;
                }
                let context =
                    expected_element.clone().or_else(|| (element_type != DataType::Null).then(|| element_type.clone()));
                let Some(one) = self.infer(element, context.as_ref()) else {
                    failed = true;
                    continue;
                };
                if one.expr.value_type.ty == DataType::Null {
                    return self.report_error(
                        "null-not-allowed",
                        &element.range,
                        "a list cannot contain null",
                        "remove it",
                    );
                }
                if matches!(one.expr.value_type.ty, DataType::List(_)) {
                    let help = "join lists with `+`";
                    return self.report_error("type-mismatch", &element.range, "a list cannot contain lists", help);
                }
                let Some(both) = join_types(&element_type, &one.expr.value_type.ty) else {
                    let message = format!(
                        "the elements of a list must have one type: one is {}, another is {}",
                        type_name(&one.expr.value_type.ty),
                        type_name(&element_type)
                    );
                    return self.report_error(
                        "type-mismatch",
                        &element.range,
                        message,
                        "convert the element, or use two lists",
                    );
                };
                element_type = both;
                lowered[index] = Some(one);
            }
        }
        if failed {
            return None;
        }
        if elements.is_empty() {
            element_type = expected_element.unwrap_or(DataType::Null);
        }
        let parts: Vec<TypedExpr> = lowered.into_iter().flatten().collect();
        let total = cost::saturating_sum(parts.iter().map(|part| part.cost).chain([parts.len() as u64, 1]));
        let items = parts.len() as u64;
        let hops = parts.iter().map(|part| part.hops).max().unwrap_or(0);
        let kind = ExprKind::List(parts.into_iter().map(|part| part.expr).collect());
        Some(TypedExpr {
            max_items: items,
            hops,
            ..self.typed_expr(range, kind, value_type(DataType::List(Box::new(element_type)), false), total)
        })
    }

    pub(super) fn infer_comprehension(
        &mut self,
        comprehension_kind: ComprehensionKind,
        name_range: &Range<usize>,
        range: &ParsedExpr,
        arguments: &[ParsedExpr],
        call_range: &Range<usize>,
        expected: Option<&DataType>,
    ) -> TypingResult<TypedExpr> {
        let [variable, body] = arguments else {
            let help = "write list.all(x, condition on x)";
            return self.report_error(
                "wrong-arguments",
                name_range,
                "expected a variable and an expression that uses it",
                help,
            );
        };
        let ParsedKind::Name(name) = &variable.kind else {
            return self.report_error(
                "invalid-expression",
                &variable.range,
                "expected the name of a variable",
                "write a plain name",
            );
        };
        self.require_unused_name(name, &variable.range)?;
        let list = self.infer(range, if comprehension_kind == ComprehensionKind::Filter { expected } else { None })?;
        let DataType::List(element) = &list.expr.value_type.ty else {
            let message = format!("expected a list, got {}", type_name(&list.expr.value_type.ty));
            return self.report_error("type-mismatch", &range.range, message, "name a list field or a link");
        };
        let element = (**element).clone();
        let local = u16::try_from(self.locals.len()).unwrap_or(u16::MAX);
        self.locals.push(ComprehensionVariable { name: name.clone(), ty: element.clone(), hops: list.hops });
        let before = self.non_null_paths.len();
        let lowered = self.infer_condition(body);
        self.non_null_paths.truncate(before);
        self.locals.pop();
        let lowered = lowered?;
        let (ty, items, hops) = match comprehension_kind {
            ComprehensionKind::All | ComprehensionKind::Exists => (DataType::Bool, 0, 0),
            ComprehensionKind::Filter => (DataType::List(Box::new(element)), list.max_items, list.hops),
        };
        let total = cost::comprehension_cost(list.cost, list.max_items, lowered.cost);
        let kind = ExprKind::Comprehension {
            kind: comprehension_kind,
            range: Box::new(list.expr),
            local,
            body: Box::new(lowered.expr),
        };
        Some(TypedExpr { max_items: items, hops, ..self.typed_expr(call_range, kind, value_type(ty, false), total) })
    }

    fn require_unused_name(&mut self, name: &Arc<str>, range: &Range<usize>) -> TypingResult<()> {
        if is_path_root(name) || name.as_ref() == "now" || self.locals.iter().any(|local| local.name == *name) {
            let message = format!("the variable `{name}` hides another name");
            return self.report_error("ambiguous-name", range, message, "choose another name for the variable");
        }
        Some(())
    }
}
