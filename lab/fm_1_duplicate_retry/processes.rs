//! The same with workers that are processes, and with processes that are killed.

use onceward_testkit::{Folder, user};

use crate::stage::books::{charged, effects, whole};
use crate::stage::play::{LONG, Play, on_sqlite, wait};
use crate::stage::process::{self, Process};

/// Two worker processes on one job, the first one's lease shorter than its work: both finish; what each is told.
async fn both_finish(play: &Play) -> [String; 2] {
    let (mut a, mut b) = (process::worker("A"), process::worker("B"));
    play.serve_lease(&mut a, "A", "lab.charge", 1, "good").await.expect("the job");
    a.must_say("working");
    play.at(1);
    lost(play).await;
    play.serve_lease(&mut b, "B", "lab.charge", 30, "good").await.expect("the job again");
    b.must_say("working");
    play.at(2);
    let finish = async |process: &mut Process, who: &str| {
        process.say(who);
        play.serve_commit(process, who).await
    };
    [finish(&mut a, "A").await, finish(&mut b, "B").await]
}

/// What is due is done, though nobody asks for the job.
async fn lost(play: &Play) {
    let mut stream = play.engine.stream(&user("ann"), 2);
    play.engine.wake();
    let entry = tokio::time::timeout(LONG, stream.next()).await.expect("in time");
    assert!(entry.expect("reading").expect("open").text.contains("Due"));
}

#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_with_processes() {
    on_sqlite(async |play| {
        let id = play.charge().await;
        assert_eq!(both_finish(play).await, ["ok", "ok"]);
        assert_eq!((effects(play.store(), id).await, charged(play.store()).await), (2, 2));
    });
    println!("lab: 2 worker processes, 2 effects, 2 coins");
}

/// FM-1: two processes finish, one effect lands.
#[test]
fn prevented_with_processes() {
    on_sqlite(async |play| {
        let id = play.charge().await;
        assert_eq!(both_finish(play).await, ["lease_lost", "ok"]);
        assert_eq!((effects(play.store(), id).await, charged(play.store()).await), (1, 1));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: 2 worker processes, 1 effect, 1 coin");
}

/// FM-1, INV-4: a worker process is killed in the middle of its work; another does it, once.
#[test]
fn recovered_from_a_killed_worker() {
    on_sqlite(async |play| {
        let id = play.charge().await;
        let (mut a, mut b) = (process::worker("A"), process::worker("B"));
        play.serve_lease(&mut a, "A", "lab.charge", 1, "good").await.expect("the job");
        a.must_say("working");
        a.kill();
        play.at(1);
        lost(play).await;
        play.serve_lease(&mut b, "B", "lab.charge", 30, "good").await.expect("the job again");
        b.must_say("working");
        b.say("B");
        assert_eq!(play.serve_commit(&mut b, "B").await, "ok");
        assert_eq!((effects(play.store(), id).await, charged(play.store()).await), (1, 1));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: SIGKILL of a worker, 1 effect by another");
}

/// FM-1, INV-4: the engine's process is killed after COMMITTED and before DONE. The next one finishes the job, and the work is not
/// done again.
#[test]
fn recovered_from_a_killed_engine() {
    let folder = Folder::new();
    let (id, token) = wait(async {
        let play = Play::open_file(&folder, 0).await;
        let id = play.charge().await;
        let held = play.lease("bob", "lab.charge", 1).await.expect("the job");
        play.engine.close().await;
        (id, held.token)
    });
    let mut engine = process::engine(&folder.file(), 0);
    engine.must_say("open");
    engine.say(&format!("commit {} {} stay", id.0, token.0));
    engine.must_say(&format!("ok {}", id.0));
    engine.kill();
    wait(async {
        let found = Play::open_file(&folder, 60).await;
        // Nobody asks for it: the first look of the new engine finishes it.
        let mut stream = found.engine.stream(&user("ann"), 3);
        let entry = tokio::time::timeout(LONG, stream.next()).await.expect("in time");
        assert_eq!(entry.expect("reading").expect("open").record, Some(id));
        assert_eq!(found.state(id).await, "charged");
        assert_eq!((effects(found.store(), id).await, charged(found.store()).await), (1, 1));
        whole(found.store()).await.expect("whole");
        found.engine.close().await;
    });
    println!("lab: SIGKILL after COMMITTED, the next engine brings it to DONE, 1 effect");
}
