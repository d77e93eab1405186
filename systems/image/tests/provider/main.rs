//! The providers: the artist by what it draws, the client by what it makes of a service's good and bad answers.

mod artist;
mod failures;
mod links;
mod moderation;

use std::time::Duration;

use onceward_system_image::provider::{OpenAi, OpenAiConfig, Order, Size};
use onceward_testkit::pictures::Pictures;

/// Stands in no message and in no log.
pub(crate) const PROMPT: &str = "an unmistakable zebrafinch";
pub(crate) const KEY: &str = "sk-very-hidden";

pub(crate) fn order() -> Order {
    Order { prompt: PROMPT.to_owned(), size: Size::S512 }
}

/// A client of the service with room for its picture and little more. Nothing here needs seconds, but a busy machine may.
pub(crate) fn client(service: &Pictures) -> OpenAi {
    with(service, "a-model", Duration::from_secs(20))
}

pub(crate) fn with(service: &Pictures, model: &str, time: Duration) -> OpenAi {
    OpenAi::open(config(&service.url(), model, time)).expect("a good configuration")
}

pub(crate) fn config(url: &str, model: &str, time: Duration) -> OpenAiConfig {
    OpenAiConfig { url: url.to_owned(), key: Some(KEY.to_owned()), model: model.to_owned(), time, most_bytes: 64 << 10 }
}

pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}
