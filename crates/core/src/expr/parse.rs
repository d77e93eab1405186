//! Parses an expression to an untyped tree with byte ranges.
//!
//! The `cel` crate parses without macro expansion, so `list.all(x, …)` stays a call.

use std::ops::Range;
use std::sync::Arc;

use cel::common::ast::{CallExpr, Expr as Cel, IdedExpr, LiteralValue, SourceInfo, operators};

use super::lex::{self, ExprSyntaxError, ExprToken, TokenList};
use super::tree::BinaryOperator;
use crate::bounds;
use crate::value::Value;

/// A parsed expression without types and resolved names.
#[derive(Debug)]
pub(super) struct ParsedExpr {
    pub kind: ParsedKind,
    /// Byte range in the text of the expression.
    pub range: Range<usize>,
}

#[derive(Debug)]
pub(super) enum ParsedKind {
    Literal(Value),
    Name(Arc<str>),
    Select { operand: Box<ParsedExpr>, field: Arc<str>, field_range: Range<usize> },
    Not(Box<ParsedExpr>),
    Negate(Box<ParsedExpr>),
    And(Box<ParsedExpr>, Box<ParsedExpr>),
    Or(Box<ParsedExpr>, Box<ParsedExpr>),
    If(Box<ParsedExpr>, Box<ParsedExpr>, Box<ParsedExpr>),
    Binary(BinaryOperator, Box<ParsedExpr>, Box<ParsedExpr>),
    List(Vec<ParsedExpr>),
    Call { name: Arc<str>, name_range: Range<usize>, target: Option<Box<ParsedExpr>>, arguments: Vec<ParsedExpr> },
}

/// Stack of the parser thread. An unoptimized parser takes about 200 KB per nested bracket, so eight of them overflow
/// the 2 MB of an ordinary thread. The 32 allowed brackets need about 6 MB. The system allocates only pages that are
/// used.
const PARSER_STACK_BYTES: usize = 24 * 1024 * 1024;

/// Parses on a thread with a large stack. A panic of the parser becomes a syntax error.
pub(super) fn parse_expr(text: &str) -> Result<ParsedExpr, ExprSyntaxError> {
    let tokens = lex::tokenize(text)?;
    let unreadable = || {
        ExprSyntaxError::new(
            "invalid-expression",
            0..text.len(),
            "the expression cannot be parsed",
            "simplify the expression",
        )
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(PARSER_STACK_BYTES);
        let parsed = thread.spawn_scoped(scope, || parse_on_this_thread(text, &tokens)).map_err(|_| unreadable())?;
        parsed.join().unwrap_or_else(|_| Err(unreadable()))
    })
}

fn parse_on_this_thread(text: &str, tokens: &TokenList) -> Result<ParsedExpr, ExprSyntaxError> {
    let depth = u16::try_from(bounds::MAX_EXPRESSION_DEPTH * 2).unwrap_or(u16::MAX - 1);
    let parser = cel::Env::default().parser().enable_optional_syntax(false).max_recursion_depth(depth);
    match parser.error_recovery_limit(4).parse_with_source_info(text) {
        Ok((tree, info)) => CelConverter { text, tokens, source_info: &info }.convert(&tree),
        Err(errors) => Err(syntax_error(text, tokens, &errors)),
    }
}

/// Converts the parser's first error, and replaces messages that refer to its grammar.
fn syntax_error(text: &str, tokens: &TokenList, errors: &cel::ParseErrors) -> ExprSyntaxError {
    // Grammar errors come first: other errors may only follow from the broken tree.
    let syntax = errors.errors.iter().find(|error| error.msg.starts_with("Syntax error"));
    let first = syntax.or(errors.errors.first());
    let (line, column) = first.map_or((1, 1), |error| error.pos);
    let line = usize::try_from(line).unwrap_or(1).max(1);
    let column = usize::try_from(column).unwrap_or(1).max(1);
    let before: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let offset = before + text[before..].char_indices().nth(column - 1).map_or(text.len() - before, |(index, _)| index);
    let token = tokens.tokens.iter().find(|(_, at)| at.end > offset);
    let Some((_, at)) = token.filter(|(_, at)| at.start <= offset || offset < text.len()) else {
        return ExprSyntaxError::new(
            "invalid-expression",
            tokens.tokens.last().map_or(0..text.len(), |(_, at)| at.clone()),
            "the expression ends too early",
            "complete the expression",
        );
    };
    let word = &text[at.clone()];
    let message = first.map_or("", |error| error.msg.as_str());
    if message.starts_with("reserved identifier") {
        return ExprSyntaxError::new(
            "invalid-expression",
            at.clone(),
            format!("`{word}` is a reserved word of CEL"),
            "choose another name",
        );
    }
    if message.starts_with("invalid int") {
        return ExprSyntaxError::new(
            "invalid-expression",
            at.clone(),
            format!("the number `{word}` is out of range"),
            "use a number that fits a signed 64-bit integer",
        );
    }
    if message.starts_with("invalid double") {
        return ExprSyntaxError::new(
            "invalid-expression",
            at.clone(),
            format!("the number `{word}` is out of range"),
            "write a smaller number",
        );
    }
    let token = tokens.tokens.partition_point(|(_, other)| other.start < at.start);
    let before = token.checked_sub(1).map(|before| &text[tokens.tokens[before].1.clone()]);
    if tokens.tokens.iter().all(|(token, _)| *token == ExprToken::Name) && !matches!(before, Some("not" | "is")) {
        let help = format!("write text in single quotes: '{text}'");
        return ExprSyntaxError::new("invalid-expression", 0..text.len(), "bare words are not an expression", help);
    }
    let is_choice = tokens.tokens.iter().any(|(token, _)| *token == ExprToken::Question);
    if tokens.tokens[token].0 == ExprToken::Colon && !is_choice && !text.contains(['\'', '"']) {
        let help = format!("write text in single quotes: '{text}'");
        return ExprSyntaxError::new("invalid-expression", at.clone(), format!("unexpected `{word}`"), help);
    }
    let help = match tokens.tokens[token].0 {
        _ if before == Some("not") => "write `!` for `not`",
        _ if word == "is" || before == Some("is") => "compare with `==` or `!=`, such as record.note == null",
        ExprToken::Question => "optional syntax is not part of the expression language; compare with null",
        _ if word == "and" => "write `&&`",
        _ if word == "or" => "write `||`",
        _ if word == "then" || word == "else" => "write `condition ? a : b`",
        _ => "add the missing operator or bracket, or remove the extra one",
    };
    ExprSyntaxError::new("invalid-expression", at.clone(), format!("unexpected `{word}`"), help)
}

struct CelConverter<'a> {
    text: &'a str,
    tokens: &'a TokenList,
    source_info: &'a SourceInfo,
}

impl CelConverter<'_> {
    /// Returns the token that the parser assigns to a node.
    fn token_index(&self, id: u64) -> Result<usize, ExprSyntaxError> {
        let start = self.source_info.offset_for(id).map(|(start, _)| start as usize);
        start.and_then(|start| self.tokens.token_at(start)).ok_or_else(|| {
            ExprSyntaxError::new(
                "invalid-expression",
                0..self.text.len(),
                "the expression cannot be parsed",
                "simplify the expression",
            )
        })
    }

    fn token_range(&self, token: usize) -> Range<usize> {
        self.tokens.tokens[token].1.clone()
    }

    /// Returns the range from a bracket to its closing bracket.
    fn bracketed_range(&self, open: usize) -> Range<usize> {
        match self.tokens.tokens[open].0 {
            ExprToken::Open(close) => self.token_range(open).start..self.token_range(close).end,
            _ => self.token_range(open),
        }
    }

    fn range_with_brackets(&self, node: &ParsedExpr) -> Range<usize> {
        self.tokens.include_brackets(node.range.clone())
    }

    fn convert(&self, tree: &IdedExpr) -> Result<ParsedExpr, ExprSyntaxError> {
        let token = self.token_index(tree.id)?;
        let at = self.token_range(token);
        match &tree.expr {
            Cel::Literal(literal) => self.convert_literal(literal, token),
            Cel::Ident(name) => match name.strip_prefix('.') {
                Some(_) => Err(ExprSyntaxError::new(
                    "not-in-subset",
                    at,
                    "a leading dot is not part of the expression language",
                    "remove the dot",
                )),
                None => Ok(ParsedExpr { kind: ParsedKind::Name(name.as_str().into()), range: at }),
            },
            Cel::Select(select) if !select.test => {
                let of = self.convert(&select.operand)?;
                let field_at = self.tokens.tokens.get(token + 1).map_or(at, |(_, at)| at.clone());
                let range = self.range_with_brackets(&of).start..field_at.end;
                let field = select.field.as_str().into();
                Ok(ParsedExpr {
                    kind: ParsedKind::Select { operand: Box::new(of), field, field_range: field_at },
                    range,
                })
            }
            Cel::List(list) => {
                let elements = list.elements.iter().map(|element| self.convert(element)).collect::<Result<_, _>>()?;
                Ok(ParsedExpr { kind: ParsedKind::List(elements), range: self.bracketed_range(token) })
            }
            Cel::Call(call) => self.convert_call(call, token),
            Cel::Select(_) | Cel::Comprehension(_) | Cel::Map(_) | Cel::Struct(_) | Cel::Unspecified => {
                Err(ExprSyntaxError::new(
                    "not-in-subset",
                    at,
                    "the construct is not part of the expression language",
                    "use one of the documented operators and functions",
                ))
            }
        }
    }

    fn convert_literal(&self, literal: &LiteralValue, token: usize) -> Result<ParsedExpr, ExprSyntaxError> {
        let mut at = self.token_range(token);
        let value = match literal {
            LiteralValue::Boolean(b) => Value::Bool(*b.inner()),
            LiteralValue::Double(d) => Value::Double(*d.inner()),
            LiteralValue::Int(i) => Value::Int(*i.inner()),
            LiteralValue::Null => Value::Null,
            LiteralValue::String(text) => Value::text(text.inner()),
            LiteralValue::Bytes(_) | LiteralValue::UInt(_) => {
                return Err(ExprSyntaxError::new(
                    "not-in-subset",
                    at,
                    "bytes and unsigned numbers are not part of the expression language",
                    "write a plain number or text",
                ));
            }
        };
        let negative = match value {
            Value::Int(i) => i < 0,
            Value::Double(d) => d.is_sign_negative(),
            _ => false,
        };
        if negative && token > 0 && self.tokens.tokens[token - 1].0 == ExprToken::Minus {
            at.start = self.token_range(token - 1).start;
        }
        Ok(ParsedExpr { kind: ParsedKind::Literal(value), range: at })
    }

    fn convert_call(&self, call: &CallExpr, token: usize) -> Result<ParsedExpr, ExprSyntaxError> {
        let is_operator = |arity: usize| call.target.is_none() && call.args.len() == arity;
        let name = call.func_name.as_str();
        match name {
            operators::LOGICAL_NOT | operators::NEGATE if is_operator(1) => {
                let operand = Box::new(self.convert(&call.args[0])?);
                let range = self.token_range(token).start..self.range_with_brackets(&operand).end;
                let kind =
                    if name == operators::NEGATE { ParsedKind::Negate(operand) } else { ParsedKind::Not(operand) };
                Ok(ParsedExpr { kind, range })
            }
            operators::CONDITIONAL if is_operator(3) => {
                let condition = self.convert(&call.args[0])?;
                let (yes, no) = (self.convert(&call.args[1])?, self.convert(&call.args[2])?);
                let at = self.range_with_brackets(&condition).start..self.range_with_brackets(&no).end;
                Ok(ParsedExpr { kind: ParsedKind::If(Box::new(condition), Box::new(yes), Box::new(no)), range: at })
            }
            _ if is_operator(2)
                && (binary_operator(name).is_some()
                    || matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR)) =>
            {
                let (left, right) = (self.convert(&call.args[0])?, self.convert(&call.args[1])?);
                let at = self.range_with_brackets(&left).start..self.range_with_brackets(&right).end;
                let (left, right) = (Box::new(left), Box::new(right));
                let what = match binary_operator(name) {
                    Some(operator) => ParsedKind::Binary(operator, left, right),
                    None if name == operators::LOGICAL_AND => ParsedKind::And(left, right),
                    None => ParsedKind::Or(left, right),
                };
                Ok(ParsedExpr { kind: what, range: at })
            }
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => Err(ExprSyntaxError::new(
                "not-in-subset",
                self.bracketed_range(token),
                "indexing is not part of the expression language",
                "use `in`, `exists` or `filter`, or use a field for the element",
            )),
            _ => self.convert_function(call, token),
        }
    }

    fn convert_function(&self, call: &CallExpr, token: usize) -> Result<ParsedExpr, ExprSyntaxError> {
        let name_at = token.checked_sub(1).map_or(self.token_range(token), |before| self.token_range(before));
        if call.func_name.starts_with('.') {
            return Err(ExprSyntaxError::new(
                "not-in-subset",
                name_at,
                "a leading dot is not part of the expression language",
                "remove the dot",
            ));
        }
        let target = call.target.as_deref().map(|target| self.convert(target)).transpose()?.map(Box::new);
        let arguments = call.args.iter().map(|argument| self.convert(argument)).collect::<Result<_, _>>()?;
        let start = target.as_deref().map_or(name_at.start, |target| self.range_with_brackets(target).start);
        let at = start..self.bracketed_range(token).end;
        Ok(ParsedExpr {
            kind: ParsedKind::Call { name: call.func_name.as_str().into(), name_range: name_at, target, arguments },
            range: at,
        })
    }
}

fn binary_operator(name: &str) -> Option<BinaryOperator> {
    Some(match name {
        operators::ADD => BinaryOperator::Add,
        operators::SUBSTRACT => BinaryOperator::Subtract,
        operators::MULTIPLY => BinaryOperator::Multiply,
        operators::DIVIDE => BinaryOperator::Divide,
        operators::MODULO => BinaryOperator::Remainder,
        operators::EQUALS => BinaryOperator::Equal,
        operators::NOT_EQUALS => BinaryOperator::NotEqual,
        operators::LESS => BinaryOperator::Less,
        operators::LESS_EQUALS => BinaryOperator::LessOrEqual,
        operators::GREATER => BinaryOperator::Greater,
        operators::GREATER_EQUALS => BinaryOperator::GreaterOrEqual,
        operators::IN => BinaryOperator::In,
        _ => return None,
    })
}
