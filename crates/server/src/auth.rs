//! Authenticates every request before its handler runs, so a handler that does not check the caller is still
//! protected.
//!
//! While no API key was ever created, a server on loopback accepts requests from its own machine only: the `Host`
//! must be a loopback name, `Origin` must not be another site, and no proxy header may be present. The first API
//! key ends this local access permanently.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use onceward_core::count_noun;
use onceward_engine::{BUILT_IN_ROLES, EngineError, Identity};
use onceward_store::{Catalog, Store as _};

use crate::app::AppState;
use crate::extract::{require_json, require_octet_stream};
use crate::problem::Problem;

/// Middleware that attaches the caller's [`Identity`] to the request, or responds with an error.
pub(crate) async fn authenticate(State(app): State<AppState>, request: Request, next: Next) -> Response {
    // The body is not `Sync`, so `identify` borrows only the head.
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

/// Returns whether a path is open to all callers, also from pages of other sites: health, the OpenAPI document and the
/// error pages contain no user data.
fn is_public_path(path: &str) -> bool {
    is_health_path(path) || matches!(path, "/openapi.json" | "/errors") || path.starts_with("/errors/")
}

pub(crate) fn is_health_path(path: &str) -> bool {
    matches!(path, "/livez" | "/readyz")
}

/// Returns the caller's identity, or `None` if the path is public and the caller sent no valid API key.
async fn identify(app: &AppState, request: &Parts) -> Result<Option<Identity>, Problem> {
    let (keys, path) = (app.engine().api_keys(), request.uri.path());
    // Before the keys: these paths must not wait for the database.
    if is_public_path(path) {
        return Ok(None);
    }
    let auth_required = match keys.is_auth_required().await {
        // The home page says that the database is down.
        Err(_) if path == "/" => true,
        auth_required => auth_required?,
    };
    if app.config().is_loopback && !auth_required {
        require_local_request(&request.method, &request.uri, &request.headers, app.is_binary_path(path))?;
        return Ok(Some(local_identity(app).await?));
    }
    if path == "/" {
        // A caller with a valid API key sees more on the home page.
        let Ok(key) = bearer_token(&request.headers) else { return Ok(None) };
        return Ok(keys.authenticate(key).await.ok());
    }
    let Ok(key) = bearer_token(&request.headers) else {
        return Err(Problem::new(
            401,
            "unauthorized",
            "the request has no API key; send one `Authorization: Bearer ow_…`",
        ));
    };
    let identity = keys.authenticate(key).await?;
    if let Some(key) = &identity.api_key_id {
        app.rate_limiter().try_acquire(key).map_err(|wait| {
            let rate = count_noun(app.config().requests_per_second, "request", "requests");
            let detail = format!("the API key exceeded its limit of {rate} per second");
            Problem::new(429, "rate_limited", detail).retry_after(wait)
        })?;
    }
    if path == "/metrics" {
        identity.require_metrics()?;
    }
    Ok(Some(identity))
}

/// Returns the identity of local callers while there are no API keys: it has every role.
async fn local_identity(app: &AppState) -> Result<Identity, EngineError> {
    let catalog = app.engine().store().catalog().await?;
    Ok(app.local_identity_cache().get_or_build(&catalog))
}

/// Caches the identity of local callers per catalog, so that requests do not collect the roles again.
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

/// Returns the API key in `Authorization: Bearer …`.
fn bearer_token(headers: &HeaderMap) -> Result<&str, EngineError> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (all.next(), all.next()) else { return Err(EngineError::Unauthorized) };
    let (scheme, key) = value.to_str().ok().and_then(|text| text.split_once(' ')).ok_or(EngineError::Unauthorized)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(EngineError::Unauthorized) }
}

/// Rejects requests that another site's page makes a browser on this machine send. DNS rebinding shows in `Host`, a
/// direct cross-site request in `Origin`.
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
            "the request came through a proxy (header `{name}`); a server without API keys rejects such requests; create an API key with `onceward key create`"
        );
        return Err(Problem::new(403, "proxied_request", detail));
    }
    for origin in headers.get_all(header::ORIGIN) {
        let site = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        if !site.is_some_and(|(scheme, site)| scheme == "http" && site.eq_ignore_ascii_case(host)) {
            let detail = "the request came from a page of another site; a server without API keys rejects such requests; create an API key with `onceward key create`";
            return Err(Problem::new(403, "foreign_origin", detail));
        }
    }
    match *method {
        Method::POST | Method::PUT | Method::PATCH if is_binary => require_octet_stream(headers),
        Method::POST | Method::PUT | Method::PATCH => require_json(headers),
        _ => Ok(()),
    }
}

/// Returns whether a proxy sets this header. A proxy on this machine connects from loopback and may forward
/// requests of remote callers.
fn is_proxy_header(name: &str) -> bool {
    matches!(name, "forwarded" | "via" | "x-real-ip") || name.starts_with("x-forwarded-")
}

fn foreign_host_problem() -> Problem {
    let detail = "a server without API keys accepts only requests to 127.0.0.1, [::1] or localhost; create an API key with `onceward key create`";
    Problem::new(403, "foreign_host", detail)
}

/// Returns whether `host` is a loopback name, with or without a port.
fn is_loopback_host(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|digit| digit.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    // A literal address cannot be rebound to another host by DNS.
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

    /// DNS rebinding shows in `Host`, another site's page in `Origin`, and a form in `Content-Type`.
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
            let code = rejection_code(&Method::POST, &[own.clone(), json.clone(), origin(site)]);
            assert_eq!(code.as_deref(), Some("foreign_origin"), "{site}");
        }
        for name in ["forwarded", "via", "x-real-ip", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"] {
            let passed_on = [own.clone(), json.clone(), (HeaderName::from_static(name), "203.0.113.7")];
            assert_eq!(rejection_code(&Method::POST, &passed_on).as_deref(), Some("proxied_request"), "{name}");
        }
        let rebound = [(header::HOST, "evil.example:7171"), json.clone()];
        assert_eq!(rejection_code(&Method::POST, &rebound).as_deref(), Some("foreign_host"));
        for kind in
            ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp"]
        {
            let code = rejection_code(&Method::POST, &[own.clone(), (header::CONTENT_TYPE, kind)]);
            assert_eq!(code.as_deref(), Some("json_required"), "{kind}");
        }
        assert_eq!(rejection_code(&Method::POST, std::slice::from_ref(&own)).as_deref(), Some("json_required"));
        // Binary paths accept only `application/octet-stream`.
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
