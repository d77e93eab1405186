//! Pages are bounded in bytes as well as in number. One is read in any case, and nothing is left out between two pages.

use onceward_core::decide::{Call, ErrorReport};
use onceward_core::record::Token;
use onceward_core::time::Duration;
use onceward_store::{ListQuery, Most, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::driver::Driver;
use crate::stage::{on_each, start, suite};

/// Of a long text; what else there is to a record or an entry is far shorter than the rest of [`THREE`].
const LONG: usize = 10_000;

/// An error's code is no longer than a thousand.
const CODE: usize = 900;

/// Three long ones fit, and four do not.
const THREE: usize = 35_000;

/// A byte is enough for one.
const BOUNDS: [(usize, usize); 3] = [(THREE, 3), (1, 1), (100 * LONG, 8)];

#[test]
fn a_list_ends_where_it_is_full() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let mut all = Vec::new();
        for number in 0..8 {
            // Those of another's take no room.
            driver.create(&user("bob"), "suite.box", json!({ "any": "y".repeat(LONG) }), start()).await;
            let any = format!("{number}{}", "x".repeat(LONG));
            all.push(driver.create(&user("ann"), "suite.box", json!({ "any": any }), start()).await);
        }
        for (bytes, fit) in BOUNDS {
            let mut query =
                ListQuery { owner: Some("ann".into()), limit: 8, bytes: Some(bytes), ..ListQuery::default() };
            let mut listed = Vec::new();
            loop {
                let page = store.list(&query).await.unwrap();
                listed.extend(page.records.iter().map(|record| record.id));
                assert_eq!(page.records.len(), page.places.len());
                assert_eq!(page.records.len(), fit.min(8 - (listed.len() - page.records.len())), "{bytes}");
                let Some(next) = page.next else { break };
                query.after = Some(next);
            }
            assert_eq!(listed, all, "{bytes}");
        }
        // A page may be cut anywhere: behind each of its records there is a place.
        let query = ListQuery { owner: Some("ann".into()), limit: 8, ..ListQuery::default() };
        let whole = store.list(&query).await.unwrap();
        let rest = store.list(&ListQuery { after: Some(whole.places[4]), ..query }).await.unwrap();
        assert_eq!(rest.records.iter().map(|record| record.id).collect::<Vec<_>>(), all[5..]);
    });
}

#[test]
fn the_log_comes_as_far_as_it_fits() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        for number in 0..8 {
            let any = format!("{number}{}", "x".repeat(LONG));
            driver.create(&user("ann"), "suite.box", json!({ "any": any }), start()).await;
        }
        let all = store.log(0, 100).await.unwrap();
        // The call is in it, and what it changed.
        let of_one = all[0].text.len();
        assert!(all.len() == 8 && all.iter().all(|entry| entry.text.len() == of_one) && of_one > LONG);
        let bounds = [(of_one * 7 / 2, 3), (1, 1), (of_one * 100, 8)];
        for (bytes, fit) in bounds {
            for after in 0..9 {
                let page = store.log(after, Most { count: 8, bytes }).await.unwrap();
                let after = usize::try_from(after).unwrap();
                assert!(page == all[after..(after + fit).min(8)], "{} in {bytes} after {after}", page.len());
            }
        }
    });
}

#[test]
fn a_story_and_its_attempts_come_as_far_as_they_fit() {
    on_each(async |store, _| {
        store.put_definitions(&suite()).await.unwrap();
        let mut driver = Driver::new(store).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let task = driver.create(&ann, "suite.task", json!({}), start()).await;
        let mut now = start();
        for number in 0..8 {
            now = now.checked_add(Duration::from_secs(1)).unwrap();
            let token = driver.lease(&bob, task, now).await;
            let error = ErrorReport::new(&format!("E{number}{}", "x".repeat(CODE)), "");
            driver.ok(&bob, Call::Fail { record: task, token, error }, now).await;
        }
        let (story, attempts) = (store.history(task, 0, 100).await.unwrap(), store.executions(task).await.unwrap());
        assert_eq!((story.len(), attempts.len()), (17, 8));
        for (bytes, fit) in [(CODE * 7 / 2, 3), (1, 1), (CODE * 100, 8)] {
            for after in 0..9 {
                let page = store.attempts(task, Token(after), Most { count: 8, bytes }).await.unwrap();
                let after = usize::try_from(after).unwrap();
                assert!(page == attempts[after..(after + fit).min(8)], "{} in {bytes} after {after}", page.len());
            }
            let (mut read, mut longest) = (Vec::new(), 0);
            loop {
                let after = u64::try_from(read.len()).unwrap();
                let page = store.history(task, after, Most { count: 8, bytes }).await.unwrap();
                if page.is_empty() {
                    break;
                }
                let sum: usize = page.iter().map(|entry| entry.text.len()).sum();
                assert!(page.len() == 1 || sum <= bytes, "{} entries of {sum} bytes", page.len());
                longest = longest.max(page.len());
                read.extend(page);
            }
            assert!(read == story, "{} in {bytes}", read.len());
            assert_eq!(longest == 1, bytes == 1, "{longest} at once in {bytes} bytes");
        }
    });
}
