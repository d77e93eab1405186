//! A service that speaks OpenAI's protocol for images: OpenAI itself, or one of the many that do as it does.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_core::decide::ErrorReport;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;

use super::failure::{Trouble, refused};
use super::line::{ConfigError, Line};
use super::order::{Order, Picture, Size};
use super::{download, sniff};

/// Where the service is and how far it is trusted.
#[derive(Clone)]
pub struct OpenAiConfig {
    /// `https://api.openai.com`, say; the path of a call is added.
    pub url: String,
    pub key: Option<String>,
    pub model: String,
    /// For a whole picture, from the question to the last byte of a download. At most a day counts.
    pub time: Duration,
    /// The largest picture that is taken; of moderation, the longest answer.
    pub most_bytes: usize,
}

/// The key is not shown.
impl fmt::Debug for OpenAiConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OpenAiConfig")
            .field("model", &self.model)
            .field("time", &self.time)
            .field("most_bytes", &self.most_bytes)
            .finish_non_exhaustive()
    }
}

/// Longer than anybody waits for a picture. A time without a bound would be past the end of all clocks.
const LONGEST: Duration = Duration::from_hours(24);

impl OpenAiConfig {
    pub(super) fn bounded_time(&self) -> Duration {
        self.time.min(LONGEST)
    }
}

/// Cheap to clone; clones share their connections.
#[derive(Clone, Debug)]
pub struct OpenAi {
    line: Line,
    model: String,
    time: Duration,
    most_bytes: usize,
}

/// What a call says. One picture, square.
#[derive(Serialize)]
struct Call<'a> {
    model: &'a str,
    prompt: &'a str,
    n: u8,
    size: Size,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<&'static str>,
}

#[derive(Deserialize)]
struct Drawn<'a> {
    #[serde(borrow, deserialize_with = "first")]
    data: Option<Item<'a>>,
}

/// Borrowed: a picture in an answer is not copied before it is read.
#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    b64_json: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    url: Option<Cow<'a, str>>,
}

/// One picture was asked for. However many come, the first is kept, and of the others nothing.
fn first<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Item<'de>>, D::Error> {
    struct First;

    impl<'de> Visitor<'de> for First {
        type Value = Option<Item<'de>>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a list of pictures")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let first = list.next_element()?;
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }

    deserializer.deserialize_seq(First)
}

impl OpenAi {
    pub fn open(config: OpenAiConfig) -> Result<Self, ConfigError> {
        let line = Line::open(&config.url, config.key.as_deref())?;
        let time = config.bounded_time();
        let OpenAiConfig { model, most_bytes, .. } = config;
        Ok(Self { line, model, time, most_bytes })
    }

    /// One call, and where the answer is an address, one download. Nothing is tried again here: that is the lifecycle's to say.
    pub async fn draw(&self, order: &Order) -> Result<Picture, ErrorReport> {
        let until = Instant::now() + self.time;
        let drawn = self.ask(order, until).await;
        if let Err(report) = &drawn {
            // Our own words and the service's host: nothing of the order.
            tracing::warn!(code = %report.code, provider = ?self.line, "no picture: {}", report.message);
        }
        drawn
    }

    async fn ask(&self, order: &Order, until: Instant) -> Result<Picture, ErrorReport> {
        let call = Call {
            model: &self.model,
            prompt: &order.prompt,
            n: 1,
            size: if draws_small(&self.model) { order.size } else { Size::S1024 },
            response_format: takes_format(&self.model).then_some("b64_json"),
        };
        // Strings and numbers: always JSON.
        let body = serde_json::to_vec(&call).unwrap_or_default();
        // Bytes as text take a third more, and something stands around them.
        let most = self.most_bytes.saturating_mul(4) / 3 + (64 << 10);
        let answered = self.line.post("/images/generations", body, until, most).await.map_err(Trouble::report)?;
        if !answered.status.is_success() {
            return Err(refused(answered.status, &answered.headers, &answered.body));
        }
        let drawn: Drawn<'_> = serde_json::from_slice(&answered.body).map_err(|_| Trouble::Broken.report())?;
        let item = drawn.data.ok_or_else(|| Trouble::Broken.report())?;
        // Some fill both, one of them with nothing.
        match (item.b64_json.filter(|text| !text.is_empty()), item.url) {
            (Some(text), _) => self.decoded(&text).map_err(Trouble::report),
            // An address that is the picture itself.
            (None, Some(url)) if url.starts_with("data:") => self.decoded(&url).map_err(Trouble::report),
            (None, Some(url)) => download::fetch(&self.line, &url, until, self.most_bytes).await,
            (None, None) => Err(Trouble::Broken.report()),
        }
    }

    fn decoded(&self, text: &str) -> Result<Picture, Trouble> {
        // Some write it as an address of its own, with its kind before it.
        let text = text.split_once(";base64,").map_or(text, |(_, text)| text);
        let bytes = STANDARD.decode(text).map_err(|_| Trouble::Broken)?;
        if bytes.len() > self.most_bytes {
            return Err(Trouble::TooLarge);
        }
        let kind = sniff::whole_picture(&bytes).ok_or(Trouble::NotAPicture)?;
        Ok(Picture { bytes: bytes.into(), kind })
    }
}

/// Whether the model draws smaller squares than the largest. Asked for one, OpenAI's newer ones refuse: whoever orders a small picture gets a
/// large one from them, and not none.
fn draws_small(model: &str) -> bool {
    takes_format(model) && model != "dall-e-3"
}

/// Whether the model may be told how to answer. The newer ones of OpenAI's always answer with the picture itself, and refuse a call that
/// says so; all others answer with an address unless they are told.
fn takes_format(model: &str) -> bool {
    !model.starts_with("gpt-image") && !model.starts_with("chatgpt-image")
}
