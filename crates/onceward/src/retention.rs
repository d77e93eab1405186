//! Parses the retention policy from `--keep` and `--keep-audit`, or their environment variables.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use onceward_engine::RetentionPolicy;

use crate::prune::parse_duration_or_days;

// No doc comment: clap would use it as the help text of `serve`.
#[derive(Args)]
pub(crate) struct RetentionArgs {
    /// How long ended records are kept: 90d, 12h or `forever`; LIFECYCLE=TIME for one lifecycle. Repeatable. Default: forever; the engine's
    /// own lifecycles (onceward.…) 30d, unless they are named
    #[arg(long, value_name = "[LIFECYCLE=]TIME", env = "ONCEWARD_KEEP", value_delimiter = ',')]
    keep: Vec<KeepArg>,
    /// How long ended records with audit entries are kept at least: 365d or `forever`. Default: as --keep says
    #[arg(long, value_name = "TIME", env = "ONCEWARD_KEEP_AUDIT")]
    keep_audit: Option<KeepAuditArg>,
}

/// The `--keep-audit` value; `None` if the environment variable is empty, `Some(None)` for `forever`.
#[derive(Clone, Debug)]
#[allow(clippy::option_option, reason = "an empty variable and `forever` differ")]
struct KeepAuditArg(Option<Option<Duration>>);

impl FromStr for KeepAuditArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(Self(None)) } else { parse_keep_time(text).map(|time| Self(Some(time))) }
    }
}

/// Returns `None` for `forever`.
fn parse_keep_time(text: &str) -> Result<Option<Duration>, String> {
    if text == "forever" {
        return Ok(None);
    }
    parse_duration_or_days(text).map(Some).map_err(|error| error + ", or forever")
}

/// One `--keep` value; `None` if the environment variable is empty.
#[derive(Clone, Debug)]
struct KeepArg(Option<KeepRule>);

impl FromStr for KeepArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(Self(None)) } else { text.parse().map(|keep| Self(Some(keep))) }
    }
}

/// How long ended records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeepRule {
    /// `None`: all lifecycles without a rule of their own.
    lifecycle: Option<Arc<str>>,
    /// `None`: forever.
    duration: Option<Duration>,
}

impl FromStr for KeepRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (lifecycle, time) = match text.split_once('=') {
            Some(("", _)) => {
                return Err(format!("`{text}` has no lifecycle before `=`; example: shop.order={}", &text[1..]));
            }
            Some((lifecycle, time)) => (Some(lifecycle.into()), time),
            None => (None, text),
        };
        Ok(Self { lifecycle, duration: parse_keep_time(time)? })
    }
}

impl RetentionArgs {
    fn rules(&self) -> impl Iterator<Item = &KeepRule> {
        self.keep.iter().filter_map(|keep| keep.0.as_ref())
    }

    /// Builds the policy. Fails if two rules name the same lifecycle.
    pub(crate) fn retention(&self) -> Result<RetentionPolicy> {
        let (mut records, mut lifecycles) = (None, BTreeMap::new());
        for KeepRule { lifecycle, duration: length } in self.rules() {
            let is_repeated = match lifecycle {
                None => records.replace(*length).is_some(),
                Some(name) => lifecycles.insert(Arc::clone(name), *length).is_some(),
            };
            if is_repeated {
                bail!("--keep was given twice for records{}", of_lifecycle(lifecycle.as_deref()));
            }
        }
        let defaults = RetentionPolicy::default();
        Ok(RetentionPolicy {
            records_ttl: records.unwrap_or(defaults.records_ttl),
            ttl_by_lifecycle: lifecycles,
            audit_ttl: self.keep_audit.as_ref().and_then(|audit| audit.0),
            ..defaults
        })
    }

    /// Fails if a rule names a lifecycle that is not served: probably a typing error.
    pub(crate) fn require_known_lifecycles(&self, served: &BTreeSet<Arc<str>>) -> Result<()> {
        let mut lifecycle_names = self.rules().filter_map(|keep| keep.lifecycle.as_deref());
        if let Some(name) = lifecycle_names.find(|name| !served.contains(*name)) {
            let all: Vec<&str> = served.iter().map(|name| &**name).collect();
            bail!("--keep: there is no lifecycle `{name}`; known lifecycles: {}", all.join(", "));
        }
        Ok(())
    }
}

fn of_lifecycle(lifecycle: Option<&str>) -> String {
    lifecycle.map(|name| format!(" of {name}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn retention(arguments: &[&str]) -> Result<RetentionPolicy> {
        let keep_audit = None;
        RetentionArgs {
            keep_audit,
            keep: arguments.iter().map(|text| text.parse().expect("valid --keep value")).collect(),
        }
        .retention()
    }

    #[test]
    fn keep_flags_override_only_named_lifecycles() {
        assert_eq!(
            (retention(&[]).unwrap(), retention(&[""]).unwrap()),
            (RetentionPolicy::default(), RetentionPolicy::default())
        );
        assert_eq!(
            retention(&["forever"]).unwrap(),
            RetentionPolicy { records_ttl: None, ..RetentionPolicy::default() }
        );
        let both = retention(&["90d", "image.job=forever", "onceward.delivery=48h"]).unwrap();
        let expected = RetentionPolicy { records_ttl: Some(90 * DAY), ..RetentionPolicy::default() };
        assert_eq!(both, expected.with_lifecycle("image.job", None).with_lifecycle("onceward.delivery", Some(2 * DAY)));
    }

    #[test]
    fn malformed_or_repeated_keep_flags_are_rejected() {
        for invalid in ["", "30", "ever", "-1d", "image.job", "image.job=", "image.job=soon", "=30d", "30d=image.job"] {
            assert!(invalid.parse::<KeepRule>().is_err(), "{invalid}");
        }
        for repeated in [["30d", "forever"], ["image.job=1d", "image.job=1d"]] {
            assert!(retention(&repeated).is_err(), "{repeated:?}");
        }
    }
}
