//! `onceward doctor`: reports the health of a database and what to do about it.

mod findings;
mod report;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use onceward_core::compile::declared_lifecycles;
use onceward_core::diagnostic::InputFiles;
use onceward_engine::sample_missing_objects;
use onceward_store::scan::Scan;
use onceward_store::{Clock, DatabaseStatus, PostgresScanner, SqliteScanner, StoreError};

use crate::database::DatabaseUrl;
use crate::database_args::DatabaseArg;
use crate::inactive_files::{FileVersions, InactiveFile, file_versions, find_inactive_files};
use crate::object_storage::ObjectStorageArgs;
use crate::output::{CommandStatus, print_stdout};
use crate::{files, shipped};
use findings::HealthFinding;
pub(crate) use report::format_size;

/// Check the health of a database and suggest fixes
///
/// The command only reads and may run beside an engine. It counts at most 10,000 rows per finding, so it is fast on large databases. It
/// does not verify the data: use `onceward verify` for that. See docs/doctor.md.
///
/// Exit codes: 0 no errors; 1 there are errors; 2 there is no database to read.
#[derive(Args)]
#[command(after_help = "Examples:\n  onceward doctor\n  onceward doctor --db postgres://onceward@db/app --json")]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    db: DatabaseArg<DatabaseUrl>,
    #[command(flatten)]
    objects: ObjectStorageArgs,
    /// Lifecycle files of the server: report those that are not active. Folder or file, repeatable
    #[arg(long, value_name = "DIR")]
    lifecycles: Vec<PathBuf>,
    /// Print the report as JSON; see docs/doctor.md
    #[arg(long)]
    json: bool,
}

/// The database's own status, and facts about the machine.
pub(crate) struct HealthSnapshot {
    status: DatabaseStatus,
    /// The process that has an embedded database open.
    engine: Option<String>,
    is_embedded: bool,
    /// Free space on the disk of an embedded database.
    free_bytes: Option<u64>,
    /// Files whose version is not active.
    inactive_files: Vec<InactiveFile>,
    /// The database's clock minus the machine's clock, in microseconds.
    clock_ahead_micros: i64,
    /// Of a sample of payloads: how many should be in object storage, and how many are not.
    object_sample: (u64, u64),
}

impl DoctorArgs {
    pub(crate) fn run(&self) -> Result<CommandStatus> {
        let files = self.file_versions()?;
        let (snapshot, findings) = match self.inspect(&files) {
            Ok(snapshot) => {
                let findings = findings::find_problems(&snapshot);
                (Some(snapshot), findings)
            }
            // The database exists, so the report can say what is wrong with it.
            Err(
                error @ (StoreError::SchemaTooOld { .. } | StoreError::SchemaTooNew { .. } | StoreError::Corrupt(_)),
            ) => (None, vec![HealthFinding::unreadable(&error)]),
            Err(error) => return Err(error).with_context(|| self.db.to_string()),
        };
        let name = self.db.to_string();
        print_stdout(&if self.json {
            format!("{:#}\n", report::as_json(&name, snapshot.as_ref(), &findings))
        } else {
            report::render_text(&name, snapshot.as_ref(), &findings)
        })?;
        let is_fine = findings.iter().all(|finding| !finding.is_error);
        Ok(if is_fine { CommandStatus::Success } else { CommandStatus::Failure })
    }

    /// Returns the versions of the shipped lifecycles and of the files of `--lifecycles`.
    fn file_versions(&self) -> Result<FileVersions> {
        let mut versions = FileVersions::new();
        let given = if self.lifecycles.is_empty() {
            InputFiles::default()
        } else {
            files::read_lifecycle_files(&self.lifecycles)?.files
        };
        for files in [shipped::files(), given] {
            let (loaded, _) = shipped::load_with_shipped(&files);
            let Ok(mut loaded) = loaded else { bail!("the lifecycle files have errors; run `onceward check` on them") };
            let declared = declared_lifecycles(&files);
            loaded.definitions.lifecycles.retain(|name, _| declared.contains(name));
            versions.extend(file_versions(&loaded.definitions));
        }
        Ok(versions)
    }

    fn inspect(&self, files: &FileVersions) -> Result<HealthSnapshot, StoreError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let clock = Clock::machine();
        match &*self.db {
            DatabaseUrl::Sqlite(path) => {
                let view = SqliteScanner::open(path)?;
                let status = runtime.block_on(view.status(clock.now()))?;
                let inactive_files = find_inactive_files(files, &runtime.block_on(view.scan_catalog())?.catalog);
                let (engine, free_bytes) = (view.lock_holder(), free(path));
                let object_sample = runtime.block_on(self.sample_objects(&view))?;
                Ok(HealthSnapshot {
                    status,
                    engine,
                    is_embedded: true,
                    free_bytes,
                    inactive_files,
                    clock_ahead_micros: 0,
                    object_sample,
                })
            }
            DatabaseUrl::Postgres(url) => runtime.block_on(async {
                let view = PostgresScanner::open(url).await?;
                let (status, object_sample) = (view.status().await?, self.sample_objects(&view).await?);
                let inactive_files = find_inactive_files(files, &view.scan_catalog().await?.catalog);
                let clock_ahead_micros = status.now.micros().saturating_sub(clock.now().micros());
                Ok(HealthSnapshot {
                    status,
                    engine: None,
                    is_embedded: false,
                    free_bytes: None,
                    inactive_files,
                    clock_ahead_micros,
                    object_sample,
                })
            }),
        }
    }

    async fn sample_objects(&self, view: &impl Scan) -> Result<(u64, u64), StoreError> {
        let unavailable = |error: &dyn std::fmt::Display| StoreError::Unavailable(error.to_string());
        match self.objects.open_or_default(&self.db).await.map_err(|error| unavailable(&error))? {
            Some(objects) => sample_missing_objects(view, &objects).await.map_err(|error| unavailable(&error)),
            None => Ok((0, 0)),
        }
    }
}

#[cfg(unix)]
fn free(path: &Path) -> Option<u64> {
    let stats = rustix::fs::statvfs(path).ok()?;
    stats.f_bavail.checked_mul(stats.f_frsize)
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}
