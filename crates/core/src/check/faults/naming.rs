//! Paths as the file writes them.

use super::judge::Judge;
use crate::expr::{ActorPart, ErrorPart, Path, Root, Step};

impl Judge<'_> {
    pub(crate) fn name(&self, path: &Path) -> String {
        let mut text = match path.root {
            Root::Record => "record".to_owned(),
            Root::Input(at) => {
                format!("input.{}", self.inputs.get(usize::from(at)).map_or("?", |input| &input.field.name))
            }
            Root::Result(at) => {
                let fields = self.lifecycle.work.as_ref().and_then(|work| work.result.as_ref());
                format!(
                    "result.{}",
                    fields.and_then(|fields| fields.get(usize::from(at))).map_or("?", |field| &field.name)
                )
            }
            Root::Error(part) => match part {
                ErrorPart::Code => "error.code",
                ErrorPart::Message => "error.message",
                ErrorPart::Retryable => "error.retryable",
                ErrorPart::RetryAfter => "error.retryAfter",
            }
            .to_owned(),
            Root::Answer { check, part } => {
                let check = self.lifecycle.checks.get(usize::from(check));
                let part = check.and_then(|check| check.answer.get(usize::from(part)));
                format!("checks.{}.{}", check.map_or("?", |check| &check.name), part.map_or("?", |part| &part.name))
            }
            Root::Lookup(at) => {
                format!("refs.{}", self.lifecycle.lookups.get(usize::from(at)).map_or("?", |lookup| &lookup.name))
            }
            Root::Link(at) => {
                format!("links.{}", self.lifecycle.links.get(usize::from(at)).map_or("?", |link| &link.name))
            }
            Root::Actor(part) => match part {
                ActorPart::Id => "actor.id",
                ActorPart::Roles => "actor.roles",
                ActorPart::Capabilities => "actor.capabilities",
                ActorPart::User => "actor.user",
            }
            .to_owned(),
            Root::Now => "now".to_owned(),
            Root::Local(_) => "the element".to_owned(),
        };
        for step in &path.steps {
            text.push('.');
            text.push_str(match step {
                Step::Field { name, .. } => name,
                Step::Id => "id",
                Step::State => "state",
                Step::Owner => "owner",
                Step::Version => "version",
                Step::Attempt => "attempt",
                Step::Hold => "hold",
                Step::CreatedAt => "created_at",
                Step::UpdatedAt => "updated_at",
                Step::StartedAt => "started_at",
                Step::FinishedAt => "finished_at",
            });
        }
        text
    }
}
