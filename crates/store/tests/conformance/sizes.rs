//! Pages are limited by bytes and by count. Each contains at least one item, and no item is skipped between pages.

use onceward_core::decide::{Call, FailureReport};
use onceward_core::record::FencingToken;
use onceward_core::time::Duration;
use onceward_store::{ListQuery, PageLimit, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::driver::StoreDriver;
use crate::support::{on_each_store, start_time, suite_files};

/// Everything else in a record or entry is much shorter than the rest of [`THREE_RECORDS_BYTES`].
const LONG_TEXT_BYTES: usize = 10_000;

/// Below the limit of 1,000 bytes for an error code.
const ERROR_CODE_BYTES: usize = 900;

/// Fits three long texts but not four.
const THREE_RECORDS_BYTES: usize = 35_000;

/// A limit of one byte still returns one record.
const PAGE_BYTES_AND_RECORDS: [(usize, usize); 3] = [(THREE_RECORDS_BYTES, 3), (1, 1), (100 * LONG_TEXT_BYTES, 8)];

#[test]
fn list_page_ends_at_byte_limit() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let mut all = Vec::new();
        for number in 0..8 {
            // Records of another owner do not count.
            driver
                .create_record(&user("bob"), "suite.box", json!({ "any": "y".repeat(LONG_TEXT_BYTES) }), start_time())
                .await;
            let any = format!("{number}{}", "x".repeat(LONG_TEXT_BYTES));
            all.push(driver.create_record(&user("ann"), "suite.box", json!({ "any": any }), start_time()).await);
        }
        for (bytes, max_records) in PAGE_BYTES_AND_RECORDS {
            let mut query =
                ListQuery { owner: Some("ann".into()), limit: 8, max_bytes: Some(bytes), ..ListQuery::default() };
            let mut listed = Vec::new();
            loop {
                let page = store.list(&query).await.unwrap();
                listed.extend(page.records.iter().map(|record| record.id));
                assert_eq!(page.records.len(), page.row_ids.len());
                assert_eq!(page.records.len(), max_records.min(8 - (listed.len() - page.records.len())), "{bytes}");
                let Some(next) = page.next else { break };
                query.after = Some(next);
            }
            assert_eq!(listed, all, "{bytes}");
        }
        // A page can be continued after any of its records.
        let query = ListQuery { owner: Some("ann".into()), limit: 8, ..ListQuery::default() };
        let whole = store.list(&query).await.unwrap();
        let rest = store.list(&ListQuery { after: Some(whole.row_ids[4]), ..query }).await.unwrap();
        assert_eq!(rest.records.iter().map(|record| record.id).collect::<Vec<_>>(), all[5..]);
    });
}

#[test]
fn log_page_ends_at_byte_limit() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        for number in 0..8 {
            let any = format!("{number}{}", "x".repeat(LONG_TEXT_BYTES));
            driver.create_record(&user("ann"), "suite.box", json!({ "any": any }), start_time()).await;
        }
        let all = store.log(0, 100).await.unwrap();
        // The entry contains the call and the change.
        let entry_bytes = all[0].text.len();
        assert!(
            all.len() == 8 && all.iter().all(|entry| entry.text.len() == entry_bytes) && entry_bytes > LONG_TEXT_BYTES
        );
        let bounds = [(entry_bytes * 7 / 2, 3), (1, 1), (entry_bytes * 100, 8)];
        for (bytes, max_entries) in bounds {
            for after in 0..9 {
                let page = store.log(after, PageLimit { max_items: 8, max_bytes: bytes }).await.unwrap();
                let after = usize::try_from(after).unwrap();
                assert!(page == all[after..(after + max_entries).min(8)], "{} in {bytes} after {after}", page.len());
            }
        }
    });
}

#[test]
fn history_and_execution_pages_end_at_byte_limit() {
    on_each_store(async |store, _| {
        store.put_lifecycles(&suite_files()).await.unwrap();
        let mut driver = StoreDriver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create_record(&ann, "suite.task", json!({}), start_time()).await;
        let mut now = start_time();
        for number in 0..8 {
            now = now.checked_add(Duration::from_secs(1)).unwrap();
            let token = driver.lease_job(&bob, task, now).await;
            let error = FailureReport::new(&format!("E{number}{}", "x".repeat(ERROR_CODE_BYTES)), "");
            driver.expect_taken(&bob, Call::Fail { record: task, token, error }, now).await;
        }
        let (history, executions) = (store.history(task, 0, 100).await.unwrap(), store.executions(task).await.unwrap());
        assert_eq!((history.len(), executions.len()), (17, 8));
        for (bytes, max_items) in [(ERROR_CODE_BYTES * 7 / 2, 3), (1, 1), (ERROR_CODE_BYTES * 100, 8)] {
            for after in 0..9 {
                let page = store
                    .executions_page(task, FencingToken(after), PageLimit { max_items: 8, max_bytes: bytes })
                    .await
                    .unwrap();
                let after = usize::try_from(after).unwrap();
                assert!(
                    page == executions[after..(after + max_items).min(8)],
                    "{} in {bytes} after {after}",
                    page.len()
                );
            }
            let (mut read, mut longest_page) = (Vec::new(), 0);
            loop {
                let after = u64::try_from(read.len()).unwrap();
                let page = store.history(task, after, PageLimit { max_items: 8, max_bytes: bytes }).await.unwrap();
                if page.is_empty() {
                    break;
                }
                let sum: usize = page.iter().map(|entry| entry.text.len()).sum();
                assert!(page.len() == 1 || sum <= bytes, "{} entries of {sum} bytes", page.len());
                longest_page = longest_page.max(page.len());
                read.extend(page);
            }
            assert!(read == history, "{} in {bytes}", read.len());
            assert_eq!(longest_page == 1, bytes == 1, "{longest_page} at once in {bytes} bytes");
        }
    });
}
