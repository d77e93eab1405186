//! Signs deliveries by the Standard Webhooks specification, with a secret of their owner.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use onceward_core::record::Actor;
use onceward_core::time::{Duration, Time};
use onceward_store::{Store, WebhookSecret, WebhookSecrets};
use sha2::Sha256;

use crate::engine::Engine;
use crate::error::EngineError;

/// How long the previous secret signs after a rotation. Receivers must know the new secret by then.
const PREVIOUS_SECRET_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// Marks the text form of a secret, as the specification says.
const SECRET_PREFIX: &str = "whsec_";

/// The headers of one attempt that change with time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliverySignature {
    /// Unix time of the attempt in seconds.
    pub timestamp: i64,
    /// One signature for each valid secret, separated by spaces.
    pub signatures: String,
}

/// Returns the secret as text for its owner. It must not appear anywhere else.
pub fn reveal_webhook_secret(secret: &WebhookSecret) -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(secret.0))
}

impl<S: Store + 'static> Engine<S> {
    /// Returns the secrets that sign the deliveries of the actor's owner. The first call creates one.
    pub async fn webhook_secrets(&self, actor: &Actor) -> Result<WebhookSecrets, EngineError> {
        require_producer(actor)?;
        let now = self.store().now().await?;
        load_or_create(self.store(), &actor.id, now).await
    }

    /// Replaces the secret of the actor's owner. The previous one signs, too, for 24 hours. Until then another rotation
    /// is refused, because receivers may not know the new secret yet.
    pub async fn rotate_webhook_secret(&self, actor: &Actor) -> Result<WebhookSecrets, EngineError> {
        require_producer(actor)?;
        let now = self.store().now().await?;
        let stored = load_or_create(self.store(), &actor.id, now).await?;
        let previous_until = now.checked_add(PREVIOUS_SECRET_TTL).unwrap_or(now);
        let rotated = WebhookSecrets { current: generate()?, previous: Some((stored.current, previous_until)) };
        let refusal = match stored.previous {
            Some((_, until)) => Some(until),
            None if self.store().save_webhook_secrets(&actor.id, Some(stored.current), &rotated).await? => None,
            // Another call rotated first.
            None => Some(previous_until),
        };
        match refusal {
            Some(until) => Err(EngineError::SecretRotationPending { until }),
            None => Ok(rotated),
        }
    }
}

/// A key that creates no records needs no secret of its deliveries.
fn require_producer(actor: &Actor) -> Result<(), EngineError> {
    if actor.can_create_and_fire() {
        return Ok(());
    }
    Err(EngineError::Forbidden("the webhook secret is shown to the role `producer` only".to_owned()))
}

fn generate() -> Result<WebhookSecret, EngineError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| EngineError::RandomUnavailable(error.to_string()))?;
    Ok(WebhookSecret(secret))
}

/// Returns an owner's secrets that are valid now.
async fn load_or_create(store: &impl Store, owner: &str, now: Time) -> Result<WebhookSecrets, EngineError> {
    if let Some(mut stored) = store.webhook_secrets(owner).await? {
        stored.previous = stored.previous.filter(|(_, until)| now < *until);
        return Ok(stored);
    }
    let created = WebhookSecrets { current: generate()?, previous: None };
    if store.save_webhook_secrets(owner, None, &created).await? {
        return Ok(created);
    }
    // Another call created it first.
    Ok(store.webhook_secrets(owner).await?.unwrap_or(created))
}

/// Signs one attempt of a delivery.
pub(super) async fn sign(
    store: &impl Store,
    owner: &str,
    id: &str,
    body: &[u8],
) -> Result<DeliverySignature, EngineError> {
    let now = store.now().await?;
    let secrets = load_or_create(store, owner, now).await?;
    let timestamp = now.micros().div_euclid(1_000_000);
    let valid = [Some(secrets.current), secrets.previous.map(|(secret, _)| secret)];
    let signatures: Vec<String> =
        valid.iter().flatten().map(|secret| signature(&secret.0, id, timestamp, body)).collect();
    Ok(DeliverySignature { timestamp, signatures: signatures.join(" ") })
}

fn signature(secret: &[u8], id: &str, timestamp: i64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC accepts keys of any length");
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn signature_equals_example_of_specification() {
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let signed = signature(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secret_is_shown_as_text_and_hidden_in_debug() {
        let secret = generate().expect("random");
        let text = reveal_webhook_secret(&secret);
        assert_eq!(STANDARD.decode(text.strip_prefix("whsec_").expect("prefix")).expect("base64"), secret.0);
        assert_eq!(format!("{secret:?}"), "WebhookSecret(***)");
        assert_ne!(generate().expect("random"), secret);
    }
}
