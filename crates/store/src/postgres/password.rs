//! Finds the password of a URL without one, as libpq does, so that it need not stand in a process's arguments.
//!
//! First `PGPASSWORD`, then the password file: `passfile=` in the URL, `PGPASSFILE`, or `~/.pgpass`. A line of the file
//! is `host:port:database:user:password`; `*` matches any value, and `\` escapes `:` and `\`.

use std::path::{Path, PathBuf};

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::error::StoreError;

/// Returns the password, or `None` if there is none. Fails if the file that names it is readable by other users.
pub(super) fn find(config: &Config, passfile: Option<&str>) -> Result<Option<String>, StoreError> {
    let from_env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(password) = from_env("PGPASSWORD") {
        let text = password.into_string();
        return text.map(Some).map_err(|_| StoreError::Unavailable("PGPASSWORD is not UTF-8".to_owned()));
    }
    let default = || from_env("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    let named = passfile.map(PathBuf::from).or_else(|| from_env("PGPASSFILE").map(PathBuf::from));
    match named.or_else(default) {
        Some(path) => read_file(&path, config),
        None => Ok(None),
    }
}

/// A file that is missing or unreadable has no password, as with libpq.
fn read_file(path: &Path, config: &Config) -> Result<Option<String>, StoreError> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
    let password = text.lines().find_map(|line| password_of_line(line, &connection_names(config)));
    #[cfg(unix)]
    if password.is_some() {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
        if mode & 0o077 != 0 {
            let why = format!("{}: other users can read the password file; run `chmod 600` on it", path.display());
            return Err(StoreError::Unavailable(why));
        }
    }
    Ok(password)
}

/// Returns host, port, database and user. The first host counts.
fn connection_names(config: &Config) -> [String; 4] {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        #[cfg(unix)]
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().unwrap_or_default();
    [host, port.to_string(), config.get_dbname().unwrap_or(user).to_owned(), user.to_owned()]
}

/// Returns the password of a line of the file if the line matches the connection.
fn password_of_line(line: &str, names: &[String; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            // The password is the rest of the line.
            ':' if fields.len() <= names.len() => fields.push(String::new()),
            '\\' => fields.last_mut()?.extend(letters.next()),
            letter => fields.last_mut()?.push(letter),
        }
    }
    let password = if fields.len() > names.len() { fields.pop() } else { None };
    password.filter(|_| fields.iter().zip(names).all(|(field, name)| field == "*" || field == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passfile_line_matches_all_four_names() {
        let config: Config = "postgres://ann@db.example:6432/app".parse().expect("a URL");
        let password = |line: &str| password_of_line(line, &connection_names(&config));
        let secret = Some("se:cr\\et".to_owned());
        for line in [r"db.example:6432:app:ann:se:cr\\et", r"*:*:*:*:se\:cr\\et", r"*:6432:app:*:se:cr\\et"] {
            assert_eq!(password(line), secret, "{line}");
        }
        for line in ["", "#*:*:*:*:x", "*:*:*:ann", "db.example:5432:app:ann:x", "*:*:other:*:x", "*:*:*:bob:x"] {
            assert_eq!(password(line), None, "{line}");
        }
    }

    #[test]
    fn default_port_and_database_are_those_of_libpq() {
        let config: Config = "postgres://ann@%2Fvar%2Frun".parse().expect("a URL");
        assert_eq!(connection_names(&config), ["/var/run", "5432", "ann", "ann"]);
    }
}
