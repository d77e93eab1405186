//! The flags `--db` and `--db-file`, and their environment variables.
//!
//! A URL may contain a password, and other users of the machine can read a process's arguments. So the URL may also
//! come from an environment variable or from a file, as container platforms mount secrets.

use std::ffi::OsString;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use crate::database::DatabaseUrl;

// No doc comment: clap would use it as the help text of the command. A variable counts as unset if it is empty.
#[derive(Args)]
struct DatabaseFlags {
    /// Replaced by the help text of the command
    #[arg(long, value_name = "URL", env = "ONCEWARD_DB", hide_env_values = true)]
    db: Option<String>,
    /// File that contains the URL of --db, so that a password in it appears in no argument list
    #[arg(long, value_name = "FILE", env = "ONCEWARD_DB_FILE")]
    db_file: Option<OsString>,
}

/// A kind of database that a flag can name.
pub(crate) trait DatabaseKind: FromStr<Err = String> {
    /// Help text of `--db`.
    const HELP: &'static str;
}

impl DatabaseKind for DatabaseUrl {
    const HELP: &'static str = "Database: sqlite:PATH or postgres://… [default: sqlite:onceward.db]";
}

/// The database of a command that needs one. Without flag and variable, `onceward.db` in the current folder.
pub(crate) struct DatabaseArg<T>(T);

impl<T> Deref for DatabaseArg<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Display> fmt::Display for DatabaseArg<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The database of a command that can also call a server.
pub(crate) struct OptionalDatabaseArg {
    pub(crate) by_flag: Option<DatabaseUrl>,
    pub(crate) by_variable: Option<DatabaseUrl>,
}

/// Returns the URL of a flag and the URL of a variable. At most one of each pair may be given.
fn parse_sources<T: DatabaseKind>(matches: &ArgMatches) -> Result<(Option<T>, Option<T>), clap::Error> {
    let fail = |message: String| clap::Error::raw(ErrorKind::ValueValidation, format!("{message}\n"));
    let flags = DatabaseFlags::from_arg_matches(matches)?;
    let is_flag = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let url = flags.db.filter(|url| !url.is_empty() || is_flag("db")).map(|url| (url, is_flag("db")));
    let file = flags.db_file.filter(|file| !file.is_empty()).map(|file| (file, is_flag("db_file")));
    let (mut by_flag, mut by_variable) = (None, None);
    if let Some((url, is_flag)) = &url {
        // The value of a variable may contain a password.
        let name = if *is_flag { format!("invalid value '{url}' for '--db <URL>'") } else { "ONCEWARD_DB".to_owned() };
        let database = url.parse().map_err(|why| fail(format!("{name}: {why}")))?;
        *(if *is_flag { &mut by_flag } else { &mut by_variable }) = Some(database);
    }
    if let Some((file, is_flag)) = &file {
        let (path, is_flag) = (Path::new(file), *is_flag);
        let slot = if is_flag { &mut by_flag } else { &mut by_variable };
        if slot.is_some() {
            let names = if is_flag { "--db and --db-file" } else { "ONCEWARD_DB and ONCEWARD_DB_FILE" };
            return Err(fail(format!("{names} are both set; use one of them")));
        }
        // A flag wins, so the file of the variable need not exist.
        if is_flag || by_flag.is_none() {
            let text = std::fs::read_to_string(path).map_err(|error| fail(format!("{}: {error}", path.display())))?;
            let database = text.trim().parse().map_err(|_| {
                fail(format!("{}: the file must contain a database URL and nothing else", path.display()))
            })?;
            *(if is_flag { &mut by_flag } else { &mut by_variable }) = Some(database);
        }
    }
    Ok((by_flag, by_variable))
}

fn add_flags(command: Command, help: &'static str) -> Command {
    DatabaseFlags::augment_args(command).mut_arg("db", |arg| arg.help(help))
}

impl<T: DatabaseKind> FromArgMatches for DatabaseArg<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (by_flag, by_variable) = parse_sources(matches)?;
        let default = || "sqlite:onceward.db".parse();
        let database = by_flag.or(by_variable).map_or_else(default, Ok);
        database.map(Self).map_err(|why| clap::Error::raw(ErrorKind::ValueValidation, why))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T: DatabaseKind> Args for DatabaseArg<T> {
    fn augment_args(command: Command) -> Command {
        add_flags(command, T::HELP)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptionalDatabaseArg {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let (by_flag, by_variable) = parse_sources(matches)?;
        Ok(Self { by_flag, by_variable })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for OptionalDatabaseArg {
    fn augment_args(command: Command) -> Command {
        add_flags(
            command,
            "Work on this database directly, without a server: sqlite:PATH (no server may have it open) or postgres://…; \
             --server and ONCEWARD_URL win over ONCEWARD_DB [default: onceward.db if it exists and no server has it open]",
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
