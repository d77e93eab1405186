//! How long what has ended is kept, as it is set by a flag or a variable.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use onceward_engine::Retention;

use crate::prune::length;

// No doc comment: clap would take it for the verb's own help.
#[derive(Args)]
pub(super) struct Keeping {
    /// How long records are kept after their end: 30d, 12h or `forever`; LIFECYCLE=TIME for those of one lifecycle. May be given more than once
    #[arg(long, value_name = "[LIFECYCLE=]TIME", env = "ONCEWARD_KEEP", value_delimiter = ',')]
    keep: Vec<Said>,
}

/// What is said of one; a variable that is set to nothing says nothing.
#[derive(Clone, Debug)]
struct Said(Option<Keep>);

impl FromStr for Said {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(Self(None)) } else { text.parse().map(|keep| Self(Some(keep))) }
    }
}

/// How long records are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Keep {
    /// `None`: all that have none of their own.
    lifecycle: Option<Arc<str>>,
    /// `None`: for ever.
    length: Option<Duration>,
}

impl FromStr for Keep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (lifecycle, time) = match text.split_once('=') {
            Some(("", _)) => return Err(format!("`{text}` names no lifecycle: write shop.order={}", &text[1..])),
            Some((lifecycle, time)) => (Some(lifecycle.into()), time),
            None => (None, text),
        };
        let length = if time == "forever" { None } else { Some(length(time).map_err(|wrong| wrong + ", or forever")?) };
        Ok(Self { lifecycle, length })
    }
}

impl Keeping {
    fn all(&self) -> impl Iterator<Item = &Keep> {
        self.keep.iter().filter_map(|said| said.0.as_ref())
    }

    /// Each may be said once.
    pub(super) fn retention(&self) -> Result<Retention> {
        let (mut records, mut lifecycles) = (None, BTreeMap::new());
        for Keep { lifecycle, length } in self.all() {
            let before = match lifecycle {
                None => records.replace(*length).is_some(),
                Some(name) => lifecycles.insert(Arc::clone(name), *length).is_some(),
            };
            if before {
                bail!("--keep says twice how long records{} are kept", of(lifecycle.as_deref()));
            }
        }
        let usual = Retention::default();
        Ok(Retention { records: records.unwrap_or(usual.records), lifecycles, ..usual })
    }

    /// A name that is none of the lifecycles that are served would keep nothing.
    pub(super) fn must_be_known(&self, served: &BTreeSet<Arc<str>>) -> Result<()> {
        let mut named = self.all().filter_map(|keep| keep.lifecycle.as_deref());
        if let Some(name) = named.find(|name| !served.contains(*name)) {
            let all: Vec<&str> = served.iter().map(|name| &**name).collect();
            bail!("--keep: no lifecycle here is called `{name}`; there are {}", all.join(", "));
        }
        Ok(())
    }
}

fn of(lifecycle: Option<&str>) -> String {
    lifecycle.map(|name| format!(" of {name}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn retention(said: &[&str]) -> Result<Retention> {
        Keeping { keep: said.iter().map(|text| text.parse().expect("well said")).collect() }.retention()
    }

    #[test]
    fn what_is_not_said_stays_as_it_is() {
        assert_eq!((retention(&[]).unwrap(), retention(&[""]).unwrap()), (Retention::default(), Retention::default()));
        assert_eq!(retention(&["forever"]).unwrap(), Retention { records: None, ..Retention::default() });
        let both = retention(&["90d", "image.job=forever", "onceward.delivery=48h"]).unwrap();
        let expected = Retention { records: Some(90 * DAY), ..Retention::default() };
        assert_eq!(both, expected.lifecycle("image.job", None).lifecycle("onceward.delivery", Some(2 * DAY)));
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        for wrong in ["", "30", "ever", "-1d", "image.job", "image.job=", "image.job=soon", "=30d", "30d=image.job"] {
            assert!(wrong.parse::<Keep>().is_err(), "{wrong}");
        }
        for twice in [["30d", "forever"], ["image.job=1d", "image.job=1d"]] {
            assert!(retention(&twice).is_err(), "{twice:?}");
        }
    }
}
