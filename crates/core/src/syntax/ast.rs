//! A lifecycle file as it is written, each part with its place. Names are not resolved yet.

use std::sync::Arc;

use crate::diagnostic::Span;
use crate::expr::Place;
use crate::time::Duration;

/// A string of the file.
#[derive(Clone, Debug)]
pub struct Text {
    pub text: Arc<str>,
    pub place: Place,
}

impl Text {
    /// The place of a part of the text, given in bytes of it; the whole where escapes hide it.
    pub fn part(&self, range: std::ops::Range<usize>) -> Span {
        let Some(content) = self.place.content else { return self.place.whole };
        let content = content as usize;
        Span::new(self.place.whole.file, content + range.start..content + range.end)
    }

    pub fn at(&self) -> Span {
        self.place.whole
    }
}

/// A value and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct At<T> {
    pub value: T,
    pub at: Span,
}

/// What a row gives to a field or an input: an expression, or a literal that reads as one.
#[derive(Clone, Debug)]
pub struct Given {
    pub name: Text,
    pub value: Text,
}

#[derive(Clone, Debug)]
pub struct Source {
    /// Index into the files given together.
    pub file: u32,
    pub lifecycle: Text,
    pub about: Option<Text>,
    pub key: Option<Text>,
    pub asset: Option<Text>,
    pub outside: Vec<Text>,
    pub operation_clock: Option<Span>,
    pub payload: Option<Payload>,
    pub states: Vec<State>,
    pub fields: Vec<Field>,
    pub links: Vec<Link>,
    pub uniques: Vec<Unique>,
    pub limits: Vec<Limit>,
    pub work: Option<Work>,
    pub errors: Option<Errors>,
    pub checks: Vec<Check>,
    pub lookups: Vec<Lookup>,
    pub who: Vec<Who>,
    /// `[access] read`.
    pub access: Option<Vec<Text>>,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub struct Payload {
    pub min: Option<At<u64>>,
    pub max: Option<At<u64>>,
}

#[derive(Clone, Debug)]
pub struct State {
    pub name: Text,
    pub about: Option<Text>,
    pub ready: Option<Ready>,
    pub is_final: Option<Span>,
    pub rest: Option<Span>,
    pub reserved: Option<Span>,
    pub rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub enum Ready {
    Yes(Span),
    From(Text),
}

/// A literal in a declaration: `default`, `const`, `min`, `max`.
#[derive(Clone, Debug)]
pub enum Literal {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Text),
    List(Vec<At<Literal>>),
}

impl Literal {
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Double(_) => "a float",
            Self::Text(_) => "a string",
            Self::List(_) => "an array",
        }
    }
}

/// A declared field of a record, an input, a result or an answer.
#[derive(Clone, Debug)]
pub struct Field {
    pub name: Text,
    pub about: Option<Text>,
    pub ty: Text,
    /// Written as a bare type name (or, for inputs, as a field's name).
    pub short: bool,
    pub values: Option<At<Vec<Text>>>,
    pub of: Option<Text>,
    pub to: Option<At<Vec<Text>>>,
    pub optional: bool,
    pub default: Option<At<Literal>>,
    pub constant: Option<At<Literal>>,
    pub min: Option<At<Literal>>,
    pub max: Option<At<Literal>>,
    pub pattern: Option<Text>,
}

#[derive(Clone, Debug)]
pub struct Link {
    pub name: Text,
    pub from: Vec<Text>,
    pub max: Option<At<u32>>,
}

/// What a refusal answers: `"409 code"`.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub code: Arc<str>,
}

#[derive(Clone, Debug)]
pub enum Clash {
    Return,
    Refuse(Answer),
}

#[derive(Clone, Debug)]
pub struct Unique {
    pub name: Text,
    pub on: Vec<Text>,
    pub within: Option<Vec<Text>>,
    pub clash: Clash,
    pub rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct Limit {
    pub name: Text,
    pub on: Vec<Text>,
    pub within: Option<At<Vec<Text>>>,
    pub per: Option<At<Duration>>,
    pub max: Text,
    pub clash: Answer,
    pub rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct Work {
    pub at: Span,
    pub lease: Duration,
    pub result: Option<Vec<Field>>,
    pub stop: Option<Text>,
    pub priority: Option<Text>,
    pub key: Option<WorkKey>,
    pub rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct WorkKey {
    pub on: Text,
    pub limit: Option<At<u32>>,
    pub ordered: bool,
    pub at: Span,
}

#[derive(Clone, Debug)]
pub struct Errors {
    pub retryable: Vec<Text>,
    pub terminal: Vec<Text>,
    pub rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct Check {
    pub name: Text,
    pub payload: bool,
    pub ask: Vec<Given>,
    pub answer: Vec<Field>,
    pub rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct Lookup {
    pub name: Text,
    pub to: Text,
    pub key: Text,
}

#[derive(Clone, Debug)]
pub struct Who {
    pub name: Text,
    pub is: Text,
    pub rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub name: Text,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug)]
pub struct Go {
    /// Empty for creation.
    pub from: Vec<At<Arc<str>>>,
    pub to: Option<At<Arc<str>>>,
    pub at: Span,
}

impl Go {
    pub const fn creates(&self) -> bool {
        self.from.is_empty()
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    /// The `[[on.…]]` header.
    pub header: Span,
    pub line: u32,
    pub go: Go,
    pub by: Option<At<Vec<Text>>>,
    pub when: Option<Text>,
    pub refuse: Vec<Refuse>,
    pub take: Option<At<Vec<Text>>>,
    pub input: Option<At<Vec<Field>>>,
    pub set: Vec<Given>,
    pub moves: Vec<Move>,
    pub spawn: Vec<Spawn>,
    pub require: Vec<Cause>,
    pub cascade: Vec<Cause>,
    pub deliver: Vec<Deliver>,
    pub after: Option<Text>,
    pub until: Option<Text>,
    pub audit: Option<Text>,
    pub rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub struct Refuse {
    pub condition: Text,
    pub answer: Answer,
    pub audit: Option<Text>,
}

#[derive(Clone, Debug)]
pub struct Move {
    pub from: Text,
    pub to: Text,
    pub amount: Text,
    pub short: Option<Answer>,
    pub at: Span,
}

#[derive(Clone, Debug)]
pub struct Spawn {
    pub lifecycle: Text,
    pub condition: Option<Text>,
    pub fields: Vec<Given>,
    pub owner: Option<Text>,
    pub same_payload: bool,
    pub at: Span,
}

#[derive(Clone, Debug)]
pub struct Cause {
    pub condition: Option<Text>,
    pub to: Text,
    pub event: Text,
    pub input: Vec<Given>,
    pub at: Span,
}

#[derive(Clone, Debug)]
pub struct Deliver {
    pub condition: Option<Text>,
    pub to: Text,
    pub body: Vec<Given>,
    pub at: Span,
}
