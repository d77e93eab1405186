//! A picture that changed where it lies is never given out as whole, and is found by `verify`, as is one that is gone.

use onceward_testkit::pictures::{Answer, Asked, Pictures, png};
use onceward_testkit::served::{BOTH, Db};

use crate::house::House;

/// The picture as it was drawn, or an answer that breaks off.
#[test]
fn a_damaged_picture_is_not_sent_as_whole() {
    let service = Pictures::start();
    service.always(Asked::Drawing, Answer::Link);
    service.always(Asked::Download, Answer::Body { content_type: "image/png", bytes: png(700) });
    let house = House::with_keys(Db::Sqlite, &["--image-url", &service.url()]);
    let ann = house.key("ann", &["user"]);
    house.grant("ann", 5);
    let job = house.ordered(&ann, "a boat at sea");
    let url = house.until(&ann, &job, "completed")["resultUrl"].as_str().expect("an address").to_owned();
    let (sound, is_whole) = house.served().get_as_far_as_it_comes(&ann, &url);
    assert!(sound.status == 200 && is_whole && sound.body.len() > 400_000, "{} bytes", sound.body.len());
    let file = std::fs::read_dir(house.originals()).expect("a folder").next().expect("a picture").expect("it").path();
    let mut bytes = std::fs::read(&file).expect("it is there");
    bytes[300_000] ^= 1;
    std::fs::write(&file, bytes).expect("written");
    let (harmed, is_whole) = house.served().get_as_far_as_it_comes(&ann, &url);
    assert!(harmed.status == 200 && !is_whole, "{} bytes", harmed.body.len());
}

/// Each picture in a library is looked for where it should lie; with `--contents` it is read.
#[test]
fn verify_looks_for_pictures() {
    for db in BOTH {
        let house = House::open(db, &[]);
        house.grant("local", 15);
        let mut drawn = ["a cat", "a dog", "a bird"].map(|prompt| {
            let job = house.ordered("", prompt);
            let asset = house.until("", &job, "completed")["asset"].as_str().expect("an asset").to_owned();
            (house.originals().join(format!("{job}-1.png")), asset)
        });
        let (all, changed) = (house.verify(&[]), |file: &std::path::Path| {
            let mut bytes = std::fs::read(file).expect("it is there");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(file, bytes).expect("written");
        });
        assert!(all.0 && all.1["objects"] == 3, "{db:?}: {}", all.1);
        assert!(house.verify(&["--contents"]).0);
        changed(&drawn[0].0);
        std::fs::remove_file(&drawn[1].0).expect("it is there");
        let found = |more: &[&str]| {
            let (is_clean, report) = house.verify(more);
            assert!(!is_clean, "{report}");
            let mut found: Vec<_> = report["differences"].as_array().expect("differences").clone();
            assert!(found.iter().all(|one| one["table"] == "pictures" && one["rule"] == "IMG-3"), "{report}");
            found.sort_by_key(|one| one["key"].to_string());
            found.iter().map(|one| one["key"].as_str().expect("an asset").to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(found(&[]), [drawn[1].1.clone()], "one is gone");
        drawn[..2].sort_by(|one, other| one.1.cmp(&other.1));
        assert_eq!(found(&["--contents"]), [drawn[0].1.clone(), drawn[1].1.clone()], "and one is another");
        // What its owner has removed is not missed.
        for (_, asset) in &drawn {
            assert_eq!(house.call("", "DELETE", &format!("/image/assets/{asset}")).status, 200);
            house.watched("", asset, "removed");
        }
        let (is_clean, report) = house.verify(&["--contents"]);
        assert!(is_clean && report["objects"] == 0, "{report}");
    }
}
