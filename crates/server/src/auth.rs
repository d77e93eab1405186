//! Who is let in. Every request comes through here before any handler sees it: a route that forgets to ask who calls is not open for
//! that.
//!
//! While no key was ever made, a server on loopback lets everybody in who comes from this machine: by a loopback name, from no
//! other site's page, and by nobody's hand who may speak for others. With the first key that is over, for good.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use onceward_core::count_noun;
use onceward_engine::{EngineError, Identity};
use onceward_store::{Catalog, Store as _};

use crate::app::AppState;
use crate::extract::{require_json, require_octet_stream};
use crate::problem::Problem;

/// The roles that are ours.
pub(crate) const BUILT_IN_ROLES: [&str; 5] = ["operator", "producer", "worker", "viewer", "metrics"];

/// Let a request in, with who sent it beside it, or answer it here.
pub(crate) async fn authenticate(State(app): State<AppState>, request: Request, next: Next) -> Response {
    // Apart from its body, which nobody may share.
    let (mut parts, body) = request.into_parts();
    match identify(&app, &parts).await {
        Ok(identity) => {
            if let Some(identity) = identity {
                parts.extensions.insert(identity);
            }
            next.run(Request::from_parts(parts, body)).await
        }
        Err(problem) => {
            let mut response = problem.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            response
        }
    }
}

/// What tells nothing of anybody: whether the server is there, what it can do, and what its errors mean.
fn is_public_path(path: &str) -> bool {
    matches!(path, "/" | "/livez" | "/readyz" | "/openapi.json" | "/errors") || path.starts_with("/errors/")
}

/// Nobody in particular where that is enough.
async fn identify(app: &AppState, request: &Parts) -> Result<Option<Identity>, Problem> {
    let (keys, path) = (app.engine().api_keys(), request.uri.path());
    let auth_required = match keys.is_auth_required().await {
        // Whether it is alive can be asked also where its database is not.
        Err(_) if is_public_path(path) => true,
        auth_required => auth_required?,
    };
    if app.config().is_loopback && !auth_required {
        require_local_request(&request.method, &request.uri, &request.headers, app.is_binary_path(path))?;
        return Ok(Some(local_identity(app).await?));
    }
    if path == "/" {
        // Who shows a key is told more.
        let Ok(key) = bearer_token(&request.headers) else { return Ok(None) };
        return Ok(keys.authenticate(key).await.ok());
    }
    if is_public_path(path) {
        return Ok(None);
    }
    let identity = keys.authenticate(bearer_token(&request.headers)?).await?;
    if let Some(key) = &identity.api_key_id {
        app.rate_limiter().try_acquire(key).map_err(|wait| {
            let rate = count_noun(app.config().requests_per_second, "request", "requests");
            let detail = format!("this key may send {rate} a second");
            Problem::new(429, "rate_limited", detail).retry_after(wait)
        })?;
    }
    if path == "/metrics" {
        identity.require_metrics()?;
    }
    Ok(Some(identity))
}

/// Whoever comes while there are no keys: every role that there is.
async fn local_identity(app: &AppState) -> Result<Identity, EngineError> {
    let catalog = app.engine().store().catalog().await?;
    Ok(app.local_identity_cache().get_or_build(&catalog))
}

/// Who comes while there are no keys. Worked out once for each set of lifecycles, not for each request.
#[derive(Debug, Default)]
pub(crate) struct LocalIdentityCache(Mutex<Option<(Arc<Catalog>, Identity)>>);

impl LocalIdentityCache {
    fn get_or_build(&self, catalog: &Arc<Catalog>) -> Identity {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((same, identity)) = &*cached
            && Arc::ptr_eq(same, catalog)
        {
            return identity.clone();
        }
        let lifecycles = catalog.definitions.lifecycles.values();
        let lifecycle_roles: BTreeSet<Arc<str>> =
            lifecycles.flat_map(|lifecycle| lifecycle.referenced_roles()).collect();
        let roles: Vec<&str> = BUILT_IN_ROLES.into_iter().chain(lifecycle_roles.iter().map(|role| &**role)).collect();
        let identity = Identity::unauthenticated(&roles);
        *cached = Some((Arc::clone(catalog), identity.clone()));
        identity
    }
}

/// The key in `Authorization: Bearer …`.
fn bearer_token(headers: &HeaderMap) -> Result<&str, EngineError> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else { return Err(EngineError::Unauthorized) };
    let (scheme, key) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(EngineError::Unauthorized)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(EngineError::Unauthorized) }
}

/// A page of another site can make a browser on this machine send requests here: by a name of its own that it lets point to
/// 127.0.0.1, or straight to us. The one shows in `Host`, the other in `Origin`.
fn require_local_request(method: &Method, uri: &Uri, headers: &HeaderMap, is_binary: bool) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next().map(|host| host.to_str()), hosts.next()) {
        (Some(Ok(host)), None) if is_loopback_host(host) => host,
        _ => return Err(foreign_host_problem()),
    };
    if uri.authority().is_some_and(|authority| !is_loopback_host(authority.as_str())) {
        return Err(foreign_host_problem());
    }
    if let Some(name) = headers.keys().find(|name| is_proxy_header(name.as_str())) {
        let detail = format!(
            "no keys are set up here, and `{name}` says that a proxy has passed this on, perhaps for others than this machine: make a key first"
        );
        return Err(Problem::new(403, "forwarded", detail));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let site = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        if !site.is_some_and(|(scheme, site)| scheme == "http" && site.eq_ignore_ascii_case(host)) {
            let detail = "no keys are set up here, and a page of another site may not use this server";
            return Err(Problem::new(403, "foreign_origin", detail));
        }
    }
    match *method {
        Method::POST | Method::PUT | Method::PATCH if is_binary => require_octet_stream(headers),
        Method::POST | Method::PUT | Method::PATCH => require_json(headers),
        _ => Ok(()),
    }
}

/// A proxy on this machine comes from loopback, by whatever name it likes, for whoever can reach it.
fn is_proxy_header(name: &str) -> bool {
    matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
}

fn foreign_host_problem() -> Problem {
    let detail = "no keys are set up here: only requests to 127.0.0.1, [::1] or localhost are answered";
    Problem::new(403, "foreign_host", detail)
}

/// A loopback name, with any port or none.
fn is_loopback_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|digit| digit.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    // An address of its own cannot be made to point elsewhere.
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || bare.and_then(|name| name.parse::<Ipv6Addr>().ok()).is_some_and(|address| address.is_loopback())
        || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn header_map(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    fn rejection_code(method: &Method, pairs: &[(HeaderName, &'static str)]) -> Option<String> {
        let judged = require_local_request(method, &Uri::from_static("/v1/records"), &header_map(pairs), false);
        judged.err().map(|problem| problem.code().to_owned())
    }

    #[test]
    fn only_loopback_hosts_are_accepted_as_local() {
        for own in ["127.0.0.1", "127.0.0.1:7171", "localhost", "LOCALHOST:1", "[::1]", "[::1]:7171", "127.0.0.2:80"] {
            assert!(is_loopback_host(own), "{own}");
            assert_eq!(rejection_code(&Method::GET, &[]), Some("foreign_host".to_owned()));
        }
        for other in [
            "",
            ":",
            ":7171",
            "example.com",
            "example.com:7171",
            "127.0.0.1.example.com",
            "localhost.example.com",
            "127.0.0.1@example.com",
            "::1",
            "[::1",
            "[::2]:80",
            "127.0.0.1:80x",
            "localhost:80:80",
            "128.0.0.1",
            "0.0.0.0",
            "127.1",
        ] {
            assert!(!is_loopback_host(other), "{other}");
        }
    }

    /// DNS rebinding shows in the host, another site's page in the origin, and a form in the kind of its body.
    #[test]
    fn local_access_rejects_foreign_host_origin_proxy_and_form_body() {
        let own = (header::HOST, "127.0.0.1:7171");
        let json = (header::CONTENT_TYPE, "application/json; charset=utf-8");
        let origin = |site| (header::ORIGIN, site);
        assert_eq!(rejection_code(&Method::GET, std::slice::from_ref(&own)), None);
        assert_eq!(rejection_code(&Method::POST, &[own.clone(), json.clone()]), None);
        assert_eq!(rejection_code(&Method::POST, &[own.clone(), json.clone(), origin("http://127.0.0.1:7171")]), None);
        for site in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:3000",
            "https://127.0.0.1:7171",
            "http://localhost:7171",
            "",
        ] {
            let said = rejection_code(&Method::POST, &[own.clone(), json.clone(), origin(site)]);
            assert_eq!(said.as_deref(), Some("foreign_origin"), "{site}");
        }
        for name in ["forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"] {
            let passed_on = [own.clone(), json.clone(), (HeaderName::from_static(name), "203.0.113.7")];
            assert_eq!(rejection_code(&Method::POST, &passed_on).as_deref(), Some("forwarded"), "{name}");
        }
        let rebound = [(header::HOST, "evil.example:7171"), json.clone()];
        assert_eq!(rejection_code(&Method::POST, &rebound).as_deref(), Some("foreign_host"));
        for kind in
            ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp"]
        {
            let said = rejection_code(&Method::POST, &[own.clone(), (header::CONTENT_TYPE, kind)]);
            assert_eq!(said.as_deref(), Some("not_json"), "{kind}");
        }
        assert_eq!(rejection_code(&Method::POST, std::slice::from_ref(&own)).as_deref(), Some("not_json"));
        // Where bytes are taken, only as what they are.
        for (kind, is_taken) in [("application/octet-stream", true), ("application/json", false), ("text/plain", false)]
        {
            let pairs = header_map(&[own.clone(), (header::CONTENT_TYPE, kind)]);
            let judged = require_local_request(&Method::POST, &Uri::from_static("/document/upload"), &pairs, true);
            assert_eq!(judged.is_ok(), is_taken, "{kind}");
        }
    }

    #[test]
    fn bearer_token_is_read_only_from_bearer_scheme() {
        let read = |pairs: &[(HeaderName, &'static str)]| bearer_token(&header_map(pairs)).ok().map(str::to_owned);
        let key = |text| (header::AUTHORIZATION, text);
        assert_eq!(read(&[key("Bearer ow_1_2")]).as_deref(), Some("ow_1_2"));
        assert_eq!(read(&[key("bearer  ow_1_2 ")]).as_deref(), Some("ow_1_2"));
        for wrong in ["", "ow_1_2", "Basic ow_1_2", "Bearer"] {
            assert_eq!(read(&[key(wrong)]), None, "{wrong}");
        }
        assert_eq!(read(&[]), None);
    }
}
