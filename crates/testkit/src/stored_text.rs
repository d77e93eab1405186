//! Searches a database or a folder for a text.

use std::path::{Path, PathBuf};

use onceward_core::hex;

use crate::postgres::psql;

/// Returns our tables that contain a text in any column. `url` is a PostgreSQL URL.
pub fn tables_containing(url: &str, text: &str) -> Vec<String> {
    // PostgreSQL shows bytes in hex.
    let hex = hex::encode(text.as_bytes());
    let tables = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'onceward' ORDER BY 1";
    let tables = psql(url, tables);
    assert!(tables.lines().count() > 10, "the database has tables: {tables}");
    let has = |table: &&str| {
        let rows = psql(url, &format!("SELECT one FROM onceward.{table} AS one"));
        rows.contains(text) || rows.contains(&hex)
    };
    tables.lines().filter(has).map(str::to_owned).collect()
}

/// Returns whether any file of a folder contains a text, subfolders included.
pub fn files_contain(folder: &Path, text: &str) -> bool {
    list_files(folder).into_iter().any(|file| {
        let bytes = std::fs::read(file).expect("a file");
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

fn list_files(folder: &Path) -> Vec<PathBuf> {
    let (mut folders, mut files) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}
