//! From text to a tree of our own, with the bytes each part stands at. The `cel` crate does the parsing; macros are
//! not expanded, so that `list.all(x, …)` stays the call it was written as.

use std::ops::Range;
use std::sync::Arc;

use cel::common::ast::{CallExpr, Expr as Cel, IdedExpr, LiteralValue, SourceInfo, operators};

use super::lex::{self, Bad, Token, Tokens};
use super::tree::Binary;
use crate::bounds;
use crate::value::Value;

/// An expression as written: no types yet, no names resolved.
#[derive(Debug)]
pub(super) struct Node {
    pub what: What,
    /// Bytes of the expression's text.
    pub at: Range<usize>,
}

#[derive(Debug)]
pub(super) enum What {
    Literal(Value),
    Name(Arc<str>),
    Select { of: Box<Node>, field: Arc<str>, field_at: Range<usize> },
    Not(Box<Node>),
    Negate(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    If(Box<Node>, Box<Node>, Box<Node>),
    Binary(Binary, Box<Node>, Box<Node>),
    List(Vec<Node>),
    Call { name: Arc<str>, name_at: Range<usize>, target: Option<Box<Node>>, arguments: Vec<Node> },
}

/// The parser's stack. It takes some 200 KB for each bracket inside another where it is not optimised, so that eight of
/// them would overflow the 2 MB of an ordinary thread; the 32 that are allowed need about 6 MB. Only pages that are
/// touched are ever paid for.
const STACK_BYTES: usize = 24 * 1024 * 1024;

/// Parse on a stack that is known to be large enough. A panic of the parser ends there too, as a refusal of the text.
pub(super) fn parse(text: &str) -> Result<Node, Bad> {
    let tokens = lex::read(text)?;
    let unread =
        || Bad::new("bad-expression", 0..text.len(), "the expression cannot be read", "write it in a simpler way");
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK_BYTES);
        let parsed = worker.spawn_scoped(scope, || parse_here(text, &tokens)).map_err(|_| unread())?;
        parsed.join().unwrap_or_else(|_| Err(unread()))
    })
}

fn parse_here(text: &str, tokens: &Tokens) -> Result<Node, Bad> {
    let depth = u16::try_from(bounds::EXPRESSION_DEPTH * 2).unwrap_or(u16::MAX - 1);
    let parser = cel::Env::default().parser().enable_optional_syntax(false).max_recursion_depth(depth);
    match parser.error_recovery_limit(4).parse_with_source_info(text) {
        Ok((tree, info)) => Reader { text, tokens, info: &info }.node(&tree),
        Err(errors) => Err(syntax_error(text, tokens, &errors)),
    }
}

/// The first of the parser's complaints, without its own words where they speak of its grammar.
fn syntax_error(text: &str, tokens: &Tokens, errors: &cel::ParseErrors) -> Bad {
    // What the grammar says comes before what the parser makes of the broken tree.
    let syntax = errors.errors.iter().find(|error| error.msg.starts_with("Syntax error"));
    let first = syntax.or(errors.errors.first());
    let (line, column) = first.map_or((1, 1), |error| error.pos);
    let line = usize::try_from(line).unwrap_or(1).max(1);
    let column = usize::try_from(column).unwrap_or(1).max(1);
    let before: usize = text.split_inclusive('\n').take(line - 1).map(str::len).sum();
    let offset = before + text[before..].char_indices().nth(column - 1).map_or(text.len() - before, |(index, _)| index);
    let token = tokens.list.iter().find(|(_, at)| at.end > offset);
    let Some((_, at)) = token.filter(|(_, at)| at.start <= offset || offset < text.len()) else {
        return Bad::new(
            "bad-expression",
            tokens.list.last().map_or(0..text.len(), |(_, at)| at.clone()),
            "the expression ends too early",
            "something must follow",
        );
    };
    let word = &text[at.clone()];
    let message = first.map_or("", |error| error.msg.as_str());
    if message.starts_with("reserved identifier") {
        return Bad::new(
            "bad-expression",
            at.clone(),
            format!("`{word}` is a reserved word of CEL"),
            "choose another name",
        );
    }
    if message.starts_with("invalid int") {
        return Bad::new("bad-expression", at.clone(), format!("`{word}` does not fit"), "whole numbers have 64 bits");
    }
    if message.starts_with("invalid double") {
        return Bad::new("bad-expression", at.clone(), format!("`{word}` does not fit"), "write a smaller number");
    }
    let token = tokens.list.partition_point(|(_, other)| other.start < at.start);
    let before = token.checked_sub(1).map(|before| &text[tokens.list[before].1.clone()]);
    if tokens.list.iter().all(|(token, _)| *token == Token::Name) && !matches!(before, Some("not" | "is")) {
        let help = format!("text stands in single quotes: '{text}'");
        return Bad::new("bad-expression", 0..text.len(), "words alone are no expression", help);
    }
    let is_choice = tokens.list.iter().any(|(token, _)| *token == Token::Question);
    if tokens.list[token].0 == Token::Colon && !is_choice && !text.contains(['\'', '"']) {
        let help = format!("text stands in single quotes: '{text}'");
        return Bad::new("bad-expression", at.clone(), format!("`{word}` cannot stand here"), help);
    }
    let help = match tokens.list[token].0 {
        _ if before == Some("not") => "write `!` for `not`",
        _ if word == "is" || before == Some("is") => "compare with `==` or `!=`, as in record.note == null",
        Token::Question => "optional syntax is not part of the expression language; compare with null",
        _ if word == "and" => "write `&&`",
        _ if word == "or" => "write `||`",
        _ if word == "then" || word == "else" => "write `condition ? this : that`",
        _ => "an operator or a bracket is missing or in the wrong place",
    };
    Bad::new("bad-expression", at.clone(), format!("`{word}` cannot stand here"), help)
}

struct Reader<'a> {
    text: &'a str,
    tokens: &'a Tokens,
    info: &'a SourceInfo,
}

impl Reader<'_> {
    /// The token that the parser says this part of the tree comes from.
    fn token(&self, id: u64) -> Result<usize, Bad> {
        let start = self.info.offset_for(id).map(|(start, _)| start as usize);
        start.and_then(|start| self.tokens.starting_at(start)).ok_or_else(|| {
            Bad::new("bad-expression", 0..self.text.len(), "the expression cannot be read", "write it in a simpler way")
        })
    }

    fn range(&self, token: usize) -> Range<usize> {
        self.tokens.list[token].1.clone()
    }

    /// From the bracket to the one that closes it.
    fn bracketed(&self, open: usize) -> Range<usize> {
        match self.tokens.list[open].0 {
            Token::Open(close) => self.range(open).start..self.range(close).end,
            _ => self.range(open),
        }
    }

    fn wide(&self, node: &Node) -> Range<usize> {
        self.tokens.widen(node.at.clone())
    }

    fn node(&self, tree: &IdedExpr) -> Result<Node, Bad> {
        let token = self.token(tree.id)?;
        let at = self.range(token);
        match &tree.expr {
            Cel::Literal(literal) => self.literal(literal, token),
            Cel::Ident(name) => match name.strip_prefix('.') {
                Some(_) => Err(Bad::new(
                    "not-in-subset",
                    at,
                    "a leading dot is not part of the expression language",
                    "remove the dot",
                )),
                None => Ok(Node { what: What::Name(name.as_str().into()), at }),
            },
            Cel::Select(select) if !select.test => {
                let of = self.node(&select.operand)?;
                let field_at = self.tokens.list.get(token + 1).map_or(at, |(_, at)| at.clone());
                let range = self.wide(&of).start..field_at.end;
                let field = select.field.as_str().into();
                Ok(Node { what: What::Select { of: Box::new(of), field, field_at }, at: range })
            }
            Cel::List(list) => {
                let elements = list.elements.iter().map(|element| self.node(element)).collect::<Result<_, _>>()?;
                Ok(Node { what: What::List(elements), at: self.bracketed(token) })
            }
            Cel::Call(call) => self.call(call, token),
            Cel::Select(_) | Cel::Comprehension(_) | Cel::Map(_) | Cel::Struct(_) | Cel::Unspecified => Err(Bad::new(
                "not-in-subset",
                at,
                "this is not part of the expression language",
                "write it in another way",
            )),
        }
    }

    fn literal(&self, literal: &LiteralValue, token: usize) -> Result<Node, Bad> {
        let mut at = self.range(token);
        let value = match literal {
            LiteralValue::Boolean(b) => Value::Bool(*b.inner()),
            LiteralValue::Double(d) => Value::Double(*d.inner()),
            LiteralValue::Int(i) => Value::Int(*i.inner()),
            LiteralValue::Null => Value::Null,
            LiteralValue::String(text) => Value::text(text.inner()),
            LiteralValue::Bytes(_) | LiteralValue::UInt(_) => {
                return Err(Bad::new(
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
        if negative && token > 0 && self.tokens.list[token - 1].0 == Token::Minus {
            at.start = self.range(token - 1).start;
        }
        Ok(Node { what: What::Literal(value), at })
    }

    fn call(&self, call: &CallExpr, token: usize) -> Result<Node, Bad> {
        let operator = |arity: usize| call.target.is_none() && call.args.len() == arity;
        let name = call.func_name.as_str();
        match name {
            operators::LOGICAL_NOT | operators::NEGATE if operator(1) => {
                let operand = Box::new(self.node(&call.args[0])?);
                let at = self.range(token).start..self.wide(&operand).end;
                let what = if name == operators::NEGATE { What::Negate(operand) } else { What::Not(operand) };
                Ok(Node { what, at })
            }
            operators::CONDITIONAL if operator(3) => {
                let condition = self.node(&call.args[0])?;
                let (yes, no) = (self.node(&call.args[1])?, self.node(&call.args[2])?);
                let at = self.wide(&condition).start..self.wide(&no).end;
                Ok(Node { what: What::If(Box::new(condition), Box::new(yes), Box::new(no)), at })
            }
            _ if operator(2)
                && (binary(name).is_some() || matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR)) =>
            {
                let (left, right) = (self.node(&call.args[0])?, self.node(&call.args[1])?);
                let at = self.wide(&left).start..self.wide(&right).end;
                let (left, right) = (Box::new(left), Box::new(right));
                let what = match binary(name) {
                    Some(operator) => What::Binary(operator, left, right),
                    None if name == operators::LOGICAL_AND => What::And(left, right),
                    None => What::Or(left, right),
                };
                Ok(Node { what, at })
            }
            operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT => Err(Bad::new(
                "not-in-subset",
                self.bracketed(token),
                "indexing is not part of the expression language",
                "use `in`, `exists` or `filter`, or keep the element in a field of its own",
            )),
            _ => self.function(call, token),
        }
    }

    fn function(&self, call: &CallExpr, token: usize) -> Result<Node, Bad> {
        let name_at = token.checked_sub(1).map_or(self.range(token), |before| self.range(before));
        if call.func_name.starts_with('.') {
            return Err(Bad::new(
                "not-in-subset",
                name_at,
                "a leading dot is not part of the expression language",
                "remove the dot",
            ));
        }
        let target = call.target.as_deref().map(|target| self.node(target)).transpose()?.map(Box::new);
        let arguments = call.args.iter().map(|argument| self.node(argument)).collect::<Result<_, _>>()?;
        let start = target.as_deref().map_or(name_at.start, |target| self.wide(target).start);
        let at = start..self.bracketed(token).end;
        Ok(Node { what: What::Call { name: call.func_name.as_str().into(), name_at, target, arguments }, at })
    }
}

fn binary(name: &str) -> Option<Binary> {
    Some(match name {
        operators::ADD => Binary::Add,
        operators::SUBSTRACT => Binary::Subtract,
        operators::MULTIPLY => Binary::Multiply,
        operators::DIVIDE => Binary::Divide,
        operators::MODULO => Binary::Remainder,
        operators::EQUALS => Binary::Equal,
        operators::NOT_EQUALS => Binary::NotEqual,
        operators::LESS => Binary::Less,
        operators::LESS_EQUALS => Binary::LessOrEqual,
        operators::GREATER => Binary::Greater,
        operators::GREATER_EQUALS => Binary::GreaterOrEqual,
        operators::IN => Binary::In,
        _ => return None,
    })
}
