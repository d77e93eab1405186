//! A picture that changed where it lies is never given out as whole.

use onceward_testkit::pictures::{Answer, Asked, Pictures, png};
use onceward_testkit::served::Db;

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
