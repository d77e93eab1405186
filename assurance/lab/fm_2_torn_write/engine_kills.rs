//! Kills an engine on PostgreSQL before each message it sends. The server does the writing, so only the engine can die
//! in the middle; another engine on the same database goes on.

use crate::support::lab_engine::on_postgres;
use crate::support::process;
use crate::support::store_checks::{count_effects, shop_balance, verify_against_log};

/// More than any operation sends.
const MAX_MESSAGES: usize = 300;

/// FM-2, INV-2, INV-4: the retry goes to another engine on the same database.
#[test]
fn recovered_commit_retried_after_postgres_engine_kill_has_one_effect() {
    on_postgres(async |lab, url| {
        let (mut early, mut late, mut coins) = (0, 0, 0);
        for nth in 1..=MAX_MESSAGES {
            let id = lab.create_charge().await;
            let held = lab.lease("bob", "lab.charge", 30).await.expect("job is ready");
            let mut engine = process::engine_killed_at_message(url, 0, nth);
            let opened = engine.next_line();
            engine.send_line(&format!("commit {} {} stay", id.0, held.token.0));
            let answer = opened.and_then(|_| engine.next_line());
            // A process that has replied may still be killed while it closes.
            let killed = !engine.wait_for_exit().success();
            assert!(killed || answer.is_some(), "no reply, but not killed");
            verify_against_log(lab.store()).await.expect("store matches its log after a kill");
            // A kill after the COMMIT message leaves the operation stored, with or without a reply.
            let landed = count_effects(lab.store(), id).await;
            match landed {
                0 => early += 1,
                _ => late += 1,
            }
            assert_eq!(lab.commit("bob", &held, "done").await, "ok");
            coins += 1;
            assert_eq!((count_effects(lab.store(), id).await, shop_balance(lab.store()).await), (1, coins));
            if let Some(answer) = answer {
                assert_eq!(answer, format!("ok {}", id.0));
                assert_eq!(landed, 1, "acknowledged data is stored");
                break;
            }
        }
        assert!(early > 3 && late > 0, "{early} kills before, {late} after");
        verify_against_log(lab.store()).await.expect("store matches its log");
        println!("lab: PostgreSQL: killed before each of {early} messages, retried: 1 effect, 1 coin");
    });
}
