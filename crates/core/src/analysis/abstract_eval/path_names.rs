//! Formats paths as the file writes them.

use super::evaluator::AbstractEvaluator;
use crate::expr::{ActorPart, ErrorPart, PathRoot, PathStep, ValuePath};

impl AbstractEvaluator<'_> {
    pub(crate) fn path_name(&self, path: &ValuePath) -> String {
        let mut text = match path.root {
            PathRoot::Record => "record".to_owned(),
            PathRoot::Input(at) => {
                format!("input.{}", self.inputs.get(usize::from(at)).map_or("?", |input| &input.field.name))
            }
            PathRoot::Result(at) => {
                let fields = self.lifecycle.work.as_ref().and_then(|work| work.result.as_ref());
                format!(
                    "result.{}",
                    fields.and_then(|fields| fields.get(usize::from(at))).map_or("?", |field| &field.name)
                )
            }
            PathRoot::Error(part) => match part {
                ErrorPart::Code => "error.code",
                ErrorPart::Message => "error.message",
                ErrorPart::Retryable => "error.retryable",
                ErrorPart::RetryAfter => "error.retryAfter",
            }
            .to_owned(),
            PathRoot::Answer { check, part } => {
                let check = self.lifecycle.checks.get(usize::from(check));
                let part = check.and_then(|check| check.answer_fields.get(usize::from(part)));
                format!("checks.{}.{}", check.map_or("?", |check| &check.name), part.map_or("?", |part| &part.name))
            }
            PathRoot::Lookup(at) => {
                format!("refs.{}", self.lifecycle.lookups.get(usize::from(at)).map_or("?", |lookup| &lookup.name))
            }
            PathRoot::Link(at) => {
                format!("links.{}", self.lifecycle.links.get(usize::from(at)).map_or("?", |link| &link.name))
            }
            PathRoot::Actor(part) => match part {
                ActorPart::Id => "actor.id",
                ActorPart::Roles => "actor.roles",
                ActorPart::Capabilities => "actor.capabilities",
                ActorPart::User => "actor.user",
            }
            .to_owned(),
            PathRoot::Now => "now".to_owned(),
            PathRoot::Local(_) => "the element".to_owned(),
        };
        for step in &path.steps {
            text.push('.');
            text.push_str(match step {
                PathStep::Field { name, .. } => name,
                PathStep::Id => "id",
                PathStep::State => "state",
                PathStep::Owner => "owner",
                PathStep::Version => "version",
                PathStep::Attempt => "attempt",
                PathStep::Hold => "hold",
                PathStep::CreatedAt => "created_at",
                PathStep::UpdatedAt => "updated_at",
                PathStep::StartedAt => "started_at",
                PathStep::FinishedAt => "finished_at",
            });
        }
        text
    }
}
