use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tower_service::Service as _;

use crate::resolver::{Lookup, PolicyResolver};
use crate::{AddressClass, AddressPolicy, HttpClient, HttpClientConfig, SendError, TlsRoots};

fn guarded() -> AddressPolicy {
    AddressPolicy::public_only()
}

/// Allows these targets only.
fn only(targets: &[&str]) -> AddressPolicy {
    let allowed_targets = targets.iter().map(|target| target.parse().expect("a target")).collect();
    AddressPolicy::FromData { allow_public: false, allowed_targets }
}

fn config(address_policy: AddressPolicy) -> HttpClientConfig {
    HttpClientConfig {
        address_policy,
        tls_roots: TlsRoots::none(),
        connect_timeout: Duration::from_secs(5),
        idle_timeout: None,
        keepalive: None,
    }
}

async fn get(client: &HttpClient, url: &str, timeout: Duration) -> Result<Response<Incoming>, SendError> {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = url.parse().expect("a URL");
    client.send(request, Instant::now() + timeout).await
}

async fn get_with(policy: AddressPolicy, url: &str) -> Result<Response<Incoming>, SendError> {
    get(&HttpClient::new(&config(policy)), url, Duration::from_secs(10)).await
}

/// Answers every connection with these bytes; with none, never.
async fn start_server(answer: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&connections);
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0; 4_096]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            open.push(stream);
        }
    });
    (address, connections)
}

/// Resolves every name to these addresses, and counts the lookups.
fn lookup_of(addresses: &'static [&'static str]) -> (Lookup, Arc<AtomicUsize>) {
    let lookups = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&lookups);
    let lookup: Lookup = Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        let parse = |text: &&str| SocketAddr::new(text.parse::<IpAddr>().expect("an address"), 0);
        let found = addresses.iter().map(parse).collect();
        Box::pin(async { Ok(found) })
    });
    (lookup, lookups)
}

/// Returns the class of the refused address, and whether the host is refused for good.
#[track_caller]
fn refused_class(host: &str, result: Result<Response<Incoming>, SendError>) -> (Option<AddressClass>, bool) {
    match result {
        Err(SendError::AddressRefused(refused)) => {
            assert_eq!(refused.to_string(), format!("the address of `{host}` is not allowed"));
            (refused.class, refused.is_final)
        }
        other => panic!("not refused: {other:?}"),
    }
}

const OK: &str = "HTTP/1.1 204 No Content\r\n\r\n";

#[tokio::test]
async fn address_from_data_is_refused_if_private() {
    let (address, connections) = start_server(OK).await;
    let port = address.port();
    for (host, is_final) in [
        ("127.0.0.1", true),
        ("[::ffff:127.0.0.1]", true),
        ("localhost", false),
        ("2130706433", false),
        ("127.1", false),
        ("0x7f.0.0.1", false),
    ] {
        let result = get_with(guarded(), &format!("http://{host}:{port}/")).await;
        assert_eq!(refused_class(host, result), (Some(AddressClass::Loopback), is_final), "{host}");
    }
    for (host, class) in [
        ("169.254.169.254", AddressClass::LinkLocal),
        ("[fd00:ec2::254]", AddressClass::UniqueLocal),
        ("10.0.0.1", AddressClass::Private),
    ] {
        let result = get_with(guarded(), &format!("https://{host}/latest/meta-data/")).await;
        assert_eq!(refused_class(host, result), (Some(class), true), "{host}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn private_address_is_reached_if_configured_or_allowed() {
    let (address, connections) = start_server(OK).await;
    for policy in [AddressPolicy::Configured, only(&["127.0.0.0/8"]), only(&["::1", "127.0.0.1"])] {
        for host in ["127.0.0.1", "localhost"] {
            let response =
                get_with(policy.clone(), &format!("http://{host}:{}/", address.port())).await.expect("a response");
            assert_eq!(response.status(), 204);
        }
    }
    assert_eq!(connections.load(Ordering::Relaxed), 6);
}

/// The name is allowed with all of its addresses, the network with all names.
#[tokio::test]
async fn only_allowed_targets_are_reached_if_public_ones_are_not_allowed() {
    let (address, connections) = start_server(OK).await;
    let url = |host: &str| format!("http://{host}:{}/", address.port());
    for (targets, host, expected) in [
        (&["hooks.internal"][..], "hooks.internal", Ok(())),
        (&["127.0.0.0/8"], "hooks.internal", Ok(())),
        (&["10.0.0.0/8"], "hooks.internal", Err((Some(AddressClass::Loopback), false))),
        (&["other.internal"], "hooks.internal", Err((None, true))),
        (&[], "hooks.internal", Err((None, true))),
        (&["hooks.internal"], "127.0.0.1", Err((Some(AddressClass::Loopback), true))),
        (&["127.0.0.1"], "8.8.8.8", Err((None, true))),
    ] {
        let (lookup, _) = lookup_of(&["127.0.0.1"]);
        let client = HttpClient::with_lookup(&config(only(targets)), lookup);
        let result = get(&client, &url(host), Duration::from_secs(10)).await;
        match expected {
            Ok(()) => assert_eq!(result.expect("a response").status(), 204, "{targets:?} {host}"),
            Err(expected) => assert_eq!(refused_class(host, result), expected, "{targets:?} {host}"),
        }
    }
    assert_eq!(connections.load(Ordering::Relaxed), 2);
}

/// The check and the connection use the same lookup.
#[tokio::test]
async fn public_name_with_private_address_is_refused_after_one_lookup() {
    let (address, connections) = start_server(OK).await;
    let url = format!("http://hooks.example.org:{}/", address.port());
    for (policy, expected) in [(guarded(), 0), (AddressPolicy::Configured, 1)] {
        let (lookup, lookups) = lookup_of(&["127.0.0.1"]);
        let client = HttpClient::with_lookup(&config(policy), lookup);
        let result = get(&client, &url, Duration::from_secs(10)).await;
        assert_eq!(matches!(result, Err(SendError::AddressRefused(_))), expected == 0, "{result:?}");
        assert_eq!((lookups.load(Ordering::Relaxed), connections.load(Ordering::Relaxed)), (1, expected));
    }
}

#[tokio::test]
async fn resolver_returns_only_public_addresses_of_name() {
    let (lookup, _) = lookup_of(&["10.0.0.1", "8.8.8.8", "::1", "2606:4700::1111"]);
    let mut resolver = PolicyResolver { policy: guarded(), lookup };
    let found = resolver.call("hooks.example.org".parse().expect("a name")).await.expect("public addresses");
    let found: Vec<String> = found.map(|address| address.ip().to_string()).collect();
    assert_eq!(found, ["8.8.8.8", "2606:4700::1111"]);
}

/// The connector would use port 80 instead.
#[tokio::test]
async fn invalid_port_is_an_error_before_lookup() {
    for (port, is_valid) in [("", true), (":", true), (":80", true), (":99999", false), (":8o", false)] {
        for host in ["hooks.example.org", "u:p@hooks.example.org"] {
            let (lookup, lookups) = lookup_of(&["127.0.0.1"]);
            let client = HttpClient::with_lookup(&config(guarded()), lookup);
            let result = get(&client, &format!("http://{host}{port}/"), Duration::from_secs(10)).await;
            assert_eq!(lookups.load(Ordering::Relaxed), usize::from(is_valid), "{host}{port}: {result:?}");
            assert_eq!(matches!(result, Err(SendError::Connect(_))), !is_valid, "{host}{port}: {result:?}");
        }
    }
}

#[tokio::test]
async fn redirect_is_returned_and_not_followed() {
    let (target, connections) = start_server(OK).await;
    let answer = format!("HTTP/1.1 307 Elsewhere\r\nLocation: http://{target}/\r\nContent-Length: 0\r\n\r\n");
    let (address, _) = start_server(answer.leak()).await;
    let response = get_with(AddressPolicy::Configured, &format!("http://{address}/")).await.expect("a response");
    assert_eq!((response.status().as_u16(), connections.load(Ordering::Relaxed)), (307, 0));
}

#[tokio::test]
async fn missing_response_times_out_and_missing_server_cannot_be_connected() {
    let (address, _) = start_server("HTTP/1.1 200").await;
    let client = HttpClient::new(&config(AddressPolicy::Configured));
    let result = get(&client, &format!("http://{address}/"), Duration::from_millis(50)).await;
    assert!(matches!(result, Err(SendError::Timeout)), "{result:?}");
    let absent = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
    let result = get_with(AddressPolicy::Configured, &format!("http://{absent}/")).await;
    assert!(matches!(result, Err(SendError::Connect(_))), "{result:?}");
}

#[tokio::test]
async fn connections_are_reused_only_with_idle_timeout() {
    for (idle_timeout, expected) in [(Some(Duration::from_secs(20)), 1), (None, 2)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    while stream.read(&mut [0; 4_096]).await.is_ok_and(|length| length > 0) {
                        stream.write_all(OK.as_bytes()).await.expect("written");
                    }
                });
            }
        });
        let client = HttpClient::new(&HttpClientConfig { idle_timeout, ..config(AddressPolicy::Configured) });
        for _ in 0..2 {
            drop(get(&client, &url, Duration::from_secs(10)).await.expect("a response"));
            // The connection returns to the pool after the response.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(connections.load(Ordering::Relaxed), expected);
    }
}

#[test]
fn credentials_in_url_become_authorization_header() {
    let moved = |url: &str| {
        let mut request = http::Request::get(url).body(()).expect("request");
        crate::client::move_credentials_to_header(&mut request);
        let header = request.headers().get("authorization").map(|value| value.to_str().expect("text").to_owned());
        (request.uri().to_string(), header)
    };
    let expected = ("https://example.com:8443/a?b".to_owned(), Some("Basic dTpwQA==".to_owned()));
    assert_eq!(moved("https://u:p%40@example.com:8443/a?b"), expected);
    assert_eq!(moved("https://u@example.com/").1, Some("Basic dTo=".to_owned()));
    assert_eq!(moved("https://example.com/@").1, None);
}

#[tokio::test]
async fn https_to_plain_http_server_names_the_mistake() {
    let (address, _) = start_server("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let error = get_with(AddressPolicy::Configured, &format!("https://{address}/")).await.expect_err("no TLS");
    assert!(error.to_string().contains("the server does not speak TLS"), "{error}");
}
