//! Backup of a database while an engine writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward_core::decide::CreateRecord;
use onceward_store::{Clock, backup_database};
use onceward_testkit::user;
use serde_json::Map;
use tokio::sync::Semaphore;

use crate::live_engine::{run_jobs, start_engine};
use crate::support::TempDir;
use crate::test_database::verify_file;

/// Several pieces fit into one hold of the lock.
const MAX_PIECE_TIME: Duration = Duration::from_millis(50);

/// Every copy is of one moment.
#[test]
fn backup_under_load_verifies_clean() {
    let (folder, clock) = (TempDir::new(), Clock::machine());
    let (runtime, engine) = start_engine(&folder, &clock);
    runtime.block_on(async {
        for number in 0..40_u8 {
            let create = CreateRecord {
                lifecycle: "suite.task".into(),
                id: None,
                owner: None,
                fields: Map::new(),
                payload: None,
            };
            engine
                .create_with_payload(&user("ann"), create, vec![number; 1 << 20])
                .await
                .expect("a job with a payload");
        }
    });
    let granted = Arc::new(Semaphore::new(0));
    let working = runtime.spawn(run_jobs(Arc::clone(&engine), Arc::clone(&granted)));
    let (mut seen, mut repeated_pages) = (Vec::new(), 0);
    for number in 0..3 {
        let to = folder.database_path().with_file_name(format!("copy{number}.db"));
        // A slow disk: work progresses with every piece, unless it is blocked.
        let mut throttle = |_, _| {
            let since = Instant::now();
            granted.add_permits(2_usize.saturating_sub(granted.available_permits()));
            while granted.available_permits() > 0 && since.elapsed() < MAX_PIECE_TIME {
                std::thread::yield_now();
            }
        };
        let done = backup_database(&folder.database_path(), &to, &mut throttle).expect("a copy");
        let report = verify_file(&to, clock.now());
        assert!(report.is_clean() && report.changed_while_read == 0, "{report:#?}");
        assert_eq!(report.seq, done.seq);
        println!("{done:?}");
        seen.push(report.seq);
        repeated_pages += done.recopied_pages;
    }
    granted.close();
    runtime.block_on(working).expect("the work ends");
    runtime.block_on(engine.close());
    assert!(seen.is_sorted() && seen.first() < seen.last(), "{seen:?}");
    assert!(repeated_pages > 0, "pages changed while they were copied");
}
