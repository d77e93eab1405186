//! What can be relied on, on every store.

#[path = "engine/bounds.rs"]
mod bounds;
#[path = "engine/counted.rs"]
mod counted;
#[path = "engine/delivery.rs"]
mod delivery;
#[path = "engine/keys.rs"]
mod keys;
#[path = "engine/look_ups.rs"]
mod look_ups;
#[path = "engine/moving.rs"]
mod moving;
#[path = "engine/objects.rs"]
mod objects;
#[path = "engine/once.rs"]
mod once;
#[path = "engine/order.rs"]
mod order;
#[path = "engine/promises.rs"]
mod promises;
#[path = "engine/prune.rs"]
mod prune;
#[path = "engine/races.rs"]
mod races;
#[path = "engine/reading.rs"]
mod reading;
#[path = "engine/relay.rs"]
mod relay;
#[path = "engine/streams.rs"]
mod streams;
#[path = "engine/time.rs"]
mod time;
#[path = "engine/told.rs"]
mod told;
#[path = "engine/trouble.rs"]
mod trouble;
#[path = "engine/wishes.rs"]
mod wishes;
#[path = "engine/work.rs"]
mod work;
#[path = "engine/working.rs"]
mod working;

mod stage;
