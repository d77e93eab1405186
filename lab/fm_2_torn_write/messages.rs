//! On PostgreSQL the writes are the server's. What can die between two messages is the engine: it is killed before each of them in
//! turn, and another engine on the same database goes on.

use crate::stage::books::{charged, effects, whole};
use crate::stage::play::on_postgres;
use crate::stage::process;

/// More than any operation sends.
const MOST: usize = 300;

/// FM-2, INV-2, INV-4: wherever its engine dies, a commit has happened whole or not at all, and whoever asks another engine again has
/// landed once.
#[test]
fn recovered_on_postgresql() {
    on_postgres(async |play, url| {
        let (mut early, mut late, mut coins) = (0, 0, 0);
        for nth in 1..=MOST {
            let id = play.charge().await;
            let held = play.lease("bob", "lab.charge", 30).await.expect("the job");
            let mut engine = process::engine_killed_at_message(url, 0, nth);
            let opened = engine.hear();
            engine.say(&format!("commit {} {} stay", id.0, held.token.0));
            let answer = opened.and_then(|_| engine.hear());
            // One that has answered may still be killed, at a message of its closing.
            let killed = !engine.ended().success();
            assert!(killed || answer.is_some(), "silent, and yet not killed");
            whole(play.store()).await.expect("whole after a kill");
            // A kill after the commit's message finds it done, answered or not.
            let landed = effects(play.store(), id).await;
            match landed {
                0 => early += 1,
                _ => late += 1,
            }
            assert_eq!(play.commit("bob", &held, "done").await, "ok");
            coins += 1;
            assert_eq!((effects(play.store(), id).await, charged(play.store()).await), (1, coins));
            if let Some(answer) = answer {
                assert_eq!(answer, format!("ok {}", id.0));
                assert_eq!(landed, 1, "what was answered is there");
                break;
            }
        }
        assert!(early > 3 && late > 0, "{early} kills before, {late} after");
        whole(play.store()).await.expect("whole");
        println!("lab: PostgreSQL: killed before each of {early} messages, asked again: 1 effect, 1 coin");
    });
}
