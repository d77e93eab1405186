//! A backup of a database that an engine goes on writing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward_core::decide::Create;
use onceward_store::{Clock, back_up};
use onceward_testkit::user;
use serde_json::Map;
use tokio::sync::Semaphore;

use crate::built::looked_through;
use crate::live::{busy, work};
use crate::stage::Folder;

/// A piece takes so long at most: a few of them fill a hold.
const PIECE: Duration = Duration::from_millis(50);

/// Jobs are made, leased and committed on many pages while a larger file is copied: every copy is of one moment, and its log tells
/// all of it.
#[test]
fn a_copy_made_under_load_is_clean() {
    let (folder, clock) = (Folder::new(), Clock::machine());
    let (runtime, engine) = busy(&folder, &clock);
    runtime.block_on(async {
        for number in 0..40_u8 {
            let create =
                Create { lifecycle: "suite.task".into(), id: None, owner: None, fields: Map::new(), payload: None };
            engine.create_with(&user("ann"), create, vec![number; 1 << 20]).await.expect("a job with a payload");
        }
    });
    let granted = Arc::new(Semaphore::new(0));
    let working = runtime.spawn(work(Arc::clone(&engine), Arc::clone(&granted)));
    let (mut seen, mut again) = (Vec::new(), 0);
    for number in 0..3 {
        let to = folder.file().with_file_name(format!("copy{number}.db"));
        // A slow disk: the work gets on with every piece, unless it is kept waiting.
        let mut slowly = |_, _| {
            let since = Instant::now();
            granted.add_permits(2_usize.saturating_sub(granted.available_permits()));
            while granted.available_permits() > 0 && since.elapsed() < PIECE {
                std::thread::yield_now();
            }
        };
        let done = back_up(&folder.file(), &to, &mut slowly).expect("a copy");
        let report = looked_through(&to, clock.now());
        assert!(report.is_clean() && report.too_young == 0, "{report:#?}");
        assert_eq!(report.seq, done.seq);
        println!("{done:?}");
        seen.push(report.seq);
        again += done.pages_again;
    }
    granted.close();
    runtime.block_on(working).expect("the work ends");
    runtime.block_on(engine.close());
    assert!(seen.is_sorted() && seen.first() < seen.last(), "{seen:?}");
    assert!(again > 0, "pages changed while they were copied");
}
