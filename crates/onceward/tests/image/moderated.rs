//! A moderation service, asked about every prompt that has none of the words.

use onceward_testkit::pictures::{Answer, Asked, Pictures};
use onceward_testkit::served::{BOTH, Db};
use serde_json::{Value as Json, json};

use crate::house::House;

/// The key of the service that draws.
const KEY: (&str, &str) = ("ONCEWARD_IMAGE_KEY", "sk-for-the-artist");

fn house(db: Db, artist: &Pictures, judge: &Pictures) -> House {
    let more = ["--image-url", &artist.url(), "--image-moderation-url", &judge.url(), "--log-format", "json"];
    let house = House::open_with(db, &more, &[KEY, ("ONCEWARD_LOG", "trace")]);
    house.grant("local", 20);
    house
}

/// All entries of the log so far.
fn entries(house: &House) -> Vec<Json> {
    let mut log = house.served().follow_as("", "/v1/stream?after=0&wait_ms=0");
    std::iter::from_fn(|| log.entry()).map(|(_, entry)| entry).collect()
}

/// Flagged: refused, free of charge, on record without a word of the prompt. What has a listed word is not even shown to the service. What
/// passes is drawn, by a service whose key the other never sees.
#[test]
fn what_is_flagged_is_not_drawn() {
    for db in BOTH {
        let (artist, judge) = (Pictures::start(), Pictures::start());
        let mut house = house(db, &artist, &judge);
        judge.next(Asked::Moderation, Answer::Flagged);
        let refused = house.order("", "a MARKED window");
        refused.is_problem(422, "policy_violation");
        assert_eq!(refused.json()["detail"], "policy violation");
        let listed = house.order("", "porn by a MARKED door");
        listed.is_problem(422, "policy_violation");
        assert_eq!((house.balance(""), house.statement("").len()), (20, 1), "nothing is charged");
        let inputs: Vec<Json> = judge.heard().into_iter().map(|heard| heard.body["input"].clone()).collect();
        assert_eq!(inputs, ["a MARKED window"], "listed words are not shown to the service");
        let log = entries(&house);
        let blocked: Vec<&Json> = log.iter().filter(|entry| entry["audit"] == json!(["JOB_BLOCKED"])).collect();
        assert_eq!(blocked.len(), 2, "{log:?}");
        assert!(
            blocked.iter().all(|entry| entry["refusal"]["code"] == "policy_violation" && entry["record"].is_null())
        );
        assert_eq!(artist.heard(), [], "nobody draws it");

        let id = house.ordered("", "a MARKED lighthouse");
        house.until("", &id, "completed");
        assert_eq!(house.balance(""), 15);
        let (judged, drawn) = (judge.heard(), artist.heard());
        assert!(judged.iter().all(|heard| !heard.headers.contains_key("authorization")), "another's key: {judged:?}");
        assert_eq!(drawn[0].headers["authorization"], format!("Bearer {}", KEY.1));

        let said = [refused.text(), listed.text(), json!(log).to_string()].concat();
        let written = house.stop();
        assert!(written.contains(r#""by":"moderation"#) && written.contains(r#""by":"words"#), "{written}");
        for (what, text) in [("the log", &written), ("an answer", &said)] {
            assert!(!text.contains("MARKED") && !text.contains(KEY.1), "{what} tells of it");
        }
        assert!(house.keeps("MARKED lighthouse"), "what passes is its job's payload");
        assert!(!house.keeps("MARKED window") && !house.keeps("MARKED door"), "what is flagged is kept nowhere");
    }
}

/// No verdict is none: the order is refused for now, nothing is charged, and it can be sent again.
#[test]
fn without_a_verdict_nothing_is_ordered() {
    // Beside each other: a service that is silent is given its time.
    std::thread::scope(|scope| {
        for db in BOTH {
            scope.spawn(move || {
                let (artist, judge) = (Pictures::start(), Pictures::start());
                let house = house(db, &artist, &judge);
                for answer in [Answer::Silence, Answer::refusal(500).into(), Answer::HangUp, Answer::text("[]")] {
                    judge.next(Asked::Moderation, answer);
                    house.order("", "a lighthouse").is_problem(503, "check_unavailable");
                }
                assert_eq!((house.balance(""), artist.heard()), (20, Vec::new()));
                assert_eq!(house.get("", "/v1/records?lifecycle=image.job")["records"], json!([]));
                let id = house.ordered("", "a lighthouse");
                house.until("", &id, "completed");
                assert_eq!((house.balance(""), judge.heard().len()), (15, 5));
            });
        }
    });
}

/// Who is shown the key of the service that draws: that service, also as a judge. Where there is none, nobody.
#[test]
fn a_key_is_shown_to_its_own_service_alone() {
    let keys = |judge: &Pictures, more: &[&str]| {
        let url = judge.url();
        let more = [&["--image-moderation-url", &url, "--image-provider", "none"], more].concat();
        let house = House::open_with(Db::Sqlite, &more, &[KEY]);
        house.grant("local", 5);
        house.ordered("", "a lighthouse");
        judge.heard().into_iter().map(|heard| heard.headers.get("authorization").cloned()).collect::<Vec<_>>()
    };
    let judge = Pictures::start();
    assert_eq!(keys(&judge, &[]), [None], "whoever judges is not who draws");
    let both = Pictures::start();
    assert_eq!(keys(&both, &["--image-url", &format!("{}/v1", both.url())]), [Some(format!("Bearer {}", KEY.1))]);
}
