//! A lifecycle file as it is written, each part with its place. Names are not resolved yet.

use std::sync::Arc;

use crate::diagnostic::Span;
use crate::expr::Place;
use crate::time::Duration;

/// A string of the file.
#[derive(Clone, Debug)]
pub(crate) struct Text {
    pub(crate) text: Arc<str>,
    pub(crate) place: Place,
}

impl Text {
    /// The place of a part of the text, given in bytes of it; the whole where escapes hide it.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Span {
        let Some(content) = self.place.content else { return self.place.whole };
        let content = content as usize;
        Span::new(self.place.whole.file, content + range.start..content + range.end)
    }

    pub(crate) fn at(&self) -> Span {
        self.place.whole
    }
}

/// A value and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) at: Span,
}

/// What a row gives to a field or an input: an expression, or a literal that reads as one.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) name: Text,
    pub(crate) value: Text,
}

#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) lifecycle: Text,
    pub(crate) about: Option<Text>,
    pub(crate) key: Option<Text>,
    pub(crate) asset: Option<Text>,
    pub(crate) outside: Vec<Text>,
    pub(crate) operation_clock: Option<Span>,
    pub(crate) payload: Option<Payload>,
    pub(crate) states: Vec<State>,
    pub(crate) fields: Vec<Field>,
    pub(crate) links: Vec<Link>,
    pub(crate) uniques: Vec<Unique>,
    pub(crate) limits: Vec<Limit>,
    pub(crate) work: Option<Work>,
    pub(crate) errors: Option<Errors>,
    pub(crate) checks: Vec<Check>,
    pub(crate) lookups: Vec<Lookup>,
    pub(crate) who: Vec<Who>,
    /// `[access] read`.
    pub(crate) access: Option<Vec<Text>>,
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) min: Option<At<u64>>,
    pub(crate) max: Option<At<u64>>,
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) name: Text,
    pub(crate) about: Option<Text>,
    pub(crate) ready: Option<Ready>,
    pub(crate) is_final: Option<Span>,
    pub(crate) rest: Option<Span>,
    pub(crate) reserved: Option<Span>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Ready {
    Yes(Span),
    From(Text),
}

/// A literal in a declaration: `default`, `const`, `min`, `max`.
#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(Text),
    /// A bound of a duration; elsewhere a duration is a text until its field's type is known.
    Duration(Duration),
    List(Vec<At<Literal>>),
}

impl Literal {
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Double(_) => "a float",
            Self::Text(_) => "a string",
            Self::Duration(_) => "a duration",
            Self::List(_) => "an array",
        }
    }
}

/// A declared field of a record, an input, a result or an answer.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: Text,
    pub(crate) about: Option<Text>,
    pub(crate) ty: Text,
    /// Written as a bare type name (or, for inputs, as a field's name).
    pub(crate) short: bool,
    pub(crate) values: Option<At<Vec<Text>>>,
    pub(crate) of: Option<Text>,
    pub(crate) to: Option<At<Vec<Text>>>,
    pub(crate) optional: bool,
    pub(crate) default: Option<At<Literal>>,
    pub(crate) constant: Option<At<Literal>>,
    pub(crate) min: Option<At<Literal>>,
    pub(crate) max: Option<At<Literal>>,
    pub(crate) pattern: Option<Text>,
}

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) name: Text,
    pub(crate) from: Vec<Text>,
    pub(crate) max: Option<At<u32>>,
}

/// What a refusal answers: `"409 code"`.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) code: Arc<str>,
}

#[derive(Clone, Debug)]
pub(crate) enum Clash {
    Return,
    Refuse(Answer),
}

#[derive(Clone, Debug)]
pub(crate) struct Unique {
    pub(crate) name: Text,
    pub(crate) on: Vec<Text>,
    pub(crate) within: Option<Vec<Text>>,
    pub(crate) clash: Clash,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Limit {
    pub(crate) name: Text,
    pub(crate) on: Vec<Text>,
    pub(crate) within: Option<At<Vec<Text>>>,
    pub(crate) per: Option<At<Duration>>,
    pub(crate) max: Text,
    pub(crate) clash: Answer,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) at: Span,
    pub(crate) lease: Duration,
    pub(crate) result: Option<Vec<Field>>,
    pub(crate) stop: Option<Text>,
    pub(crate) priority: Option<Text>,
    pub(crate) key: Option<WorkKey>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct WorkKey {
    pub(crate) on: Vec<Text>,
    pub(crate) limit: Option<At<u32>>,
    pub(crate) ordered: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Errors {
    pub(crate) retryable: Vec<Text>,
    pub(crate) terminal: Vec<Text>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) name: Text,
    pub(crate) payload: bool,
    pub(crate) ask: Vec<Given>,
    pub(crate) answer: Vec<Field>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub(crate) name: Text,
    pub(crate) to: Text,
    pub(crate) key: Text,
}

#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) name: Text,
    pub(crate) is: Text,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) name: Text,
    pub(crate) rows: Vec<Row>,
}

#[derive(Clone, Debug)]
pub(crate) struct Go {
    /// Empty for creation.
    pub(crate) from: Vec<At<Arc<str>>>,
    pub(crate) to: Option<At<Arc<str>>>,
    pub(crate) at: Span,
}

impl Go {
    pub(crate) const fn creates(&self) -> bool {
        self.from.is_empty()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The line of the `[[on.…]]` header, from 1.
    pub(crate) line: u32,
    pub(crate) go: Go,
    pub(crate) by: Option<At<Vec<Text>>>,
    pub(crate) when: Option<Text>,
    pub(crate) refuse: Vec<Refuse>,
    pub(crate) take: Option<At<Vec<Text>>>,
    pub(crate) input: Option<At<Vec<Field>>>,
    pub(crate) set: Vec<Given>,
    pub(crate) moves: Vec<Move>,
    pub(crate) spawn: Vec<Spawn>,
    pub(crate) require: Vec<Cause>,
    pub(crate) cascade: Vec<Cause>,
    pub(crate) deliver: Vec<Deliver>,
    pub(crate) after: Option<Text>,
    pub(crate) until: Option<Text>,
    pub(crate) forever: Option<Span>,
    pub(crate) audit: Option<Text>,
    pub(crate) rules: Vec<Arc<str>>,
}

#[derive(Clone, Debug)]
pub(crate) struct Refuse {
    pub(crate) condition: Text,
    pub(crate) answer: Answer,
    pub(crate) audit: Option<Text>,
}

#[derive(Clone, Debug)]
pub(crate) struct Move {
    pub(crate) from: Text,
    pub(crate) to: Text,
    pub(crate) amount: Text,
    pub(crate) short: Option<Answer>,
    pub(crate) at: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Spawn {
    pub(crate) lifecycle: Text,
    pub(crate) condition: Option<Text>,
    pub(crate) fields: Vec<Given>,
    pub(crate) owner: Option<Text>,
    pub(crate) same_payload: bool,
    pub(crate) at: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Cause {
    pub(crate) condition: Option<Text>,
    pub(crate) to: Text,
    pub(crate) event: Text,
    pub(crate) input: Vec<Given>,
    pub(crate) at: Span,
}

#[derive(Clone, Debug)]
pub(crate) struct Deliver {
    pub(crate) condition: Option<Text>,
    pub(crate) to: Text,
    pub(crate) body: Vec<Given>,
    pub(crate) at: Span,
}
