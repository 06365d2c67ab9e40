//! Runs before and after every request handler: authentication, security headers and metrics.
//!
//! Guarantee: if a login is configured, every path except `/livez` and `/readyz` requires the login
//! or a signed link. Without a login or a proxy, the map listens on the loopback only, and refuses
//! requests whose `Host` is another name (DNS rebinding).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{MatchedPath, Request, State as StateExtractor};
use axum::http::header::{
    AUTHORIZATION, COOKIE as COOKIE_HEADER, HOST, ORIGIN, SET_COOKIE, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use subtle::ConstantTimeEq as _;
use tower_http::catch_panic::CatchPanicLayer;

use super::gates::Peer;
use super::page::is_file_of_page;
use super::refusal::Refusal;
use super::state::{State, Viewer};
use milepost_config::Secret;
use milepost_observe::now;

use crate::access::Link;
use crate::config::{Http, Map};

/// Time for which a failed login keeps its gate closed.
const WRONG_LOGIN_DELAY: Duration = Duration::from_secs(1);
/// Name of the cookie that keeps a link.
const COOKIE: &str = "milepost_link";
/// Time in seconds by which the cookie outlives its link. An open page can then still show why it
/// gets no more data. Loading the page again removes the cookie.
const COOKIE_OUTLIVES_LINK_S: i64 = 86_400;

/// Adds the layers around all routes. The layer that is added last runs first, so refused requests
/// are counted, too.
pub(super) fn wrap(router: Router, state: Arc<State>) -> Router {
    let headers = Arc::new(headers(&state.config.map));
    router
        .layer(CatchPanicLayer::new())
        .layer(from_fn_with_state(Arc::clone(&state), authenticate))
        .layer(from_fn_with_state(headers, add_headers))
        .layer(from_fn_with_state(state, count_request))
}

async fn count_request(
    StateExtractor(state): StateExtractor<Arc<State>>,
    request: Request,
    next: Next,
) -> Response {
    let route =
        request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    let answer = next.run(request).await;
    state.live.metrics.requests.with_label_values(&[&route, answer.status().as_str()]).inc();
    answer
}

/// Returns the security headers of every response.
fn headers(map: &Map) -> Vec<(HeaderName, HeaderValue)> {
    let other_origins: String = map.origins().iter().map(|origin| format!(" {origin}")).collect();
    // `blob:` admits workers that a library starts from a blob. MapLibre's own worker is a file
    // (view.ts), and nothing is inline.
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; \
         img-src 'self' data: blob:{other_origins}; connect-src 'self'{other_origins}; \
         font-src 'self'; worker-src 'self' blob:; manifest-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let pairs = [
        ("content-security-policy", policy.as_str()),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "geolocation=(), camera=(), microphone=()"),
        ("x-frame-options", "DENY"),
    ];
    let pair =
        |(name, value)| Some((HeaderName::from_static(name), HeaderValue::from_str(value).ok()?));
    pairs.into_iter().filter_map(pair).collect()
}

async fn add_headers(
    StateExtractor(headers): StateExtractor<Arc<Vec<(HeaderName, HeaderValue)>>>,
    request: Request,
    next: Next,
) -> Response {
    let mut answer = next.run(request).await;
    answer.headers_mut().extend(headers.iter().cloned());
    answer
}

async fn authenticate(
    StateExtractor(state): StateExtractor<Arc<State>>,
    mut request: Request,
    next: Next,
) -> Response {
    let is_probe = matches!(request.uri().path(), "/livez" | "/readyz");
    if is_probe {
        return next.run(request).await;
    }
    if !request.method().is_safe() && is_foreign(request.headers()) {
        let why = "another site's page may not write here: Origin is not the address in Host; a \
                   proxy must pass Host on (nginx: proxy_set_header Host $http_host)";
        return Refusal(StatusCode::FORBIDDEN, why.to_owned()).into_response();
    }
    if let Some(answer) = Box::pin(serve_link(&state, &mut request, next.clone())).await {
        return answer;
    }
    serve_login(&state, request, next).await
}

/// Answers a request without a link. Checks the login if one is configured.
async fn serve_login(state: &State, mut request: Request, next: Next) -> Response {
    let http = &state.config.http;
    if http.behind_proxy && !http.requires_login() {
        return serve_named(state, request, next).await;
    }
    if !http.requires_login() {
        request.extensions_mut().insert(Viewer::default());
        return if is_this_machine(request.headers()) {
            next.run(request).await
        } else {
            let why = "no login is configured: only this machine is served, as localhost or a \
                       loopback address";
            Refusal(StatusCode::FORBIDDEN, why.to_owned()).into_response()
        };
    }
    if request.headers().contains_key(AUTHORIZATION) {
        // With `http.user_header`, the proxy itself logs in with the token. Its address gets a gate
        // of its own, so that a client that guesses tokens cannot lock the proxy out. If the
        // viewers log in through the proxy instead, they share its address, so use the shared gate.
        let has_own_address = !http.behind_proxy || http.user_header.is_some();
        let peer =
            request.extensions().get::<Peer>().map(|peer| peer.0).filter(|_| has_own_address);
        let gate = state.gates.pass(peer).await;
        if is_valid_login(request.headers(), http).await {
            drop(gate);
            state.gates.add_known(peer);
            return serve_named(state, request, next).await;
        }
        state.live.metrics.logins_refused.inc();
        // A separate task keeps the gate closed even if the client disconnects.
        let delay = tokio::spawn(async move {
            tokio::time::sleep(WRONG_LOGIN_DELAY).await;
            drop(gate);
        });
        let _ = delay.await;
    }
    let message = match (&http.login, &http.token) {
        (Some(_), Some(_)) => "log in with a name and password (Basic) or a token (Bearer)",
        (Some(_), None) => "log in with a name and password (Basic)",
        (None, _) => "log in with a token (Bearer)",
    };
    let scheme = if http.login.is_some() {
        "Basic realm=\"milepost-map\", charset=\"UTF-8\""
    } else {
        "Bearer"
    };
    let mut answer = Refusal(StatusCode::UNAUTHORIZED, message.to_owned()).into_response();
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
    answer
}

/// Answers a request that carries a link, valid or not. Returns `None` if the request carries no
/// link, or carries a login, which overrides the link.
async fn serve_link(state: &Arc<State>, request: &mut Request, next: Next) -> Option<Response> {
    let key = state.config.access.links_key.clone()?;
    let http = &state.config.http;
    let (given, is_from_url) = link_of(request, http)?;
    let secure = if http.tls.is_some() || http.behind_proxy { "; Secure" } else { "" };
    let cookie = |link: &str, seconds: i64| {
        let cookie = format!("{COOKIE}={link}; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}");
        HeaderValue::from_str(&cookie).ok().map(|value| (SET_COOKIE, value))
    };
    // No link is valid while the key cannot be read, or its file is being rewritten.
    let key = tokio::task::spawn_blocking(move || key.read().ok()).await.ok().flatten();
    let key = key.filter(|key| !key.is_empty());
    let Some(link) = key.and_then(|key| Link::open(&given, &key, now().unix_ms())) else {
        // Loading `/` removes the invalid link, and answers as for a viewer without a link. Without
        // a configured login, the page's own files do the same, because they hold no data. Any
        // other request gets the reason for the refusal, without a challenge: a challenge would
        // make the browser open its own login dialog over the page.
        let path = request.uri().path();
        if !is_from_url && (path == "/" || !http.requires_login() && is_file_of_page(path)) {
            let mut answer = serve_login(state, std::mem::take(request), next).await;
            answer.headers_mut().extend(cookie("", 0));
            return Some(answer);
        }
        let message = "this link has expired, or is incomplete: ask for a new one";
        return Some(Refusal(StatusCode::UNAUTHORIZED, message.to_owned()).into_response());
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Some(
            Refusal(StatusCode::FORBIDDEN, "a link is read-only".to_owned()).into_response(),
        );
    }
    request.extensions_mut().insert(Viewer {
        name: None,
        scope: Arc::new(link.scope()),
        link_until_ms: Some(link.until),
    });
    let request = std::mem::take(request);
    let mut answer = next.run(request).await;
    if is_from_url {
        let remaining_s = (link.until - now().unix_ms()).max(0) / 1_000;
        answer.headers_mut().extend(cookie(&given, remaining_s + COOKIE_OUTLIVES_LINK_S));
    }
    Some(answer)
}

/// Returns the link of a request, and whether it is in the URL. Otherwise it is in the cookie that
/// the map set for an earlier request.
fn link_of(request: &Request, http: &Http) -> Option<(String, bool)> {
    let query = url::form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    if let Some((_, link)) = query.into_iter().find(|(name, _)| name == "link") {
        return Some((link.into_owned(), true));
    }
    // Without a login of its own, the map does not check the header `Authorization`.
    let has_login = http.user(request.headers()).is_some()
        || http.user_header.is_none()
            && http.requires_login()
            && request.headers().contains_key(AUTHORIZATION);
    let cookies =
        request.headers().get_all(COOKIE_HEADER).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split(';')).map(str::trim);
    let link = cookies.find_map(|cookie| cookie.strip_prefix(COOKIE)?.strip_prefix('='))?;
    (!has_login).then(|| (link.to_owned(), false))
}

/// Determines the viewer's name and scope, and runs the handler. Refuses the request if the viewer
/// may see no driver, or if `http.user_header` is set and the proxy does not name the viewer.
async fn serve_named(state: &State, mut request: Request, next: Next) -> Response {
    let http = &state.config.http;
    let user = http.user(request.headers()).map(str::to_owned);
    if http.user_header.is_some() && user.is_none() {
        let message = "the proxy did not name the viewer (http.user_header)";
        return Refusal(StatusCode::UNAUTHORIZED, message.to_owned()).into_response();
    }
    let login =
        http.login.as_ref().filter(|_| is_basic(request.headers())).map(|(name, _)| name.clone());
    let is_program = http.user_header.is_none() && !is_basic(request.headers());
    let name = user.or(login);
    // A program that logs in with the token sees all drivers: scopes are only for named viewers.
    let scope =
        if is_program { Some(Arc::default()) } else { state.config.access.scope(name.as_deref()) };
    let Some(scope) = scope else {
        let message = "you may not see any driver (access.viewers)";
        return Refusal(StatusCode::FORBIDDEN, message.to_owned()).into_response();
    };
    request.extensions_mut().insert(Viewer { name, scope, link_until_ms: None });
    next.run(request).await
}

fn is_basic(headers: &HeaderMap) -> bool {
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    given.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "))
}

/// Returns whether the login or token is valid. Reads the files of the secrets for each login, so
/// that the secrets can change without a restart. The files are small, and in the page cache.
async fn is_valid_login(headers: &HeaderMap, http: &Http) -> bool {
    let Some(given) = headers.get(AUTHORIZATION).cloned() else { return false };
    let (login, token) = (http.login.clone(), http.token.clone());
    let is_valid = tokio::task::spawn_blocking(move || {
        let given = given.as_bytes();
        let after = |scheme: &str| {
            let (start, credentials) = given.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme.as_bytes()).then_some(credentials)
        };
        // An empty file is not a secret: no request matches it.
        let read = |secret: &Secret| secret.read().ok().filter(|secret| !secret.is_empty());
        let expected_basic = || {
            login.as_ref().and_then(|(name, password)| {
                Some(BASE64_STANDARD.encode(format!("{name}:{}", read(password)?)))
            })
        };
        let expected_token = || token.as_ref().and_then(read);
        if let Some(given) = after("Basic ") {
            return expected_basic()
                .is_some_and(|expected| bool::from(given.ct_eq(expected.as_bytes())));
        }
        after("Bearer ").is_some_and(|given| {
            expected_token().is_some_and(|expected| bool::from(given.ct_eq(expected.as_bytes())))
        })
    });
    is_valid.await.unwrap_or(false)
}

/// Returns whether the page of another site made the viewer's browser send this request, with the
/// viewer's login or the proxy's cookie. Browsers send `Origin` with every request that writes;
/// other programs do not.
///
/// The header `Sec-Fetch-Site` decides alone if the request has it. No page can set this header,
/// and unlike `Host` and the scheme, a proxy does not replace it.
fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("null"));
    if let Some(site) = text(HeaderName::from_static("sec-fetch-site")) {
        return !matches!(site, "same-origin" | "none");
    }
    let Some(origin) = text(ORIGIN) else { return false };
    let origin_host = origin.split_once("://").map_or(origin, |(_, host)| host);
    let hosts = [HOST, HeaderName::from_static("x-forwarded-host")];
    // nginx's `$host` has no port.
    let origin_name = origin_host.rsplit_once(':').map_or(origin_host, |(name, _)| name);
    let is_host_of_origin = |host: &str| {
        host.eq_ignore_ascii_case(origin_host)
            || !host.contains(':') && host.eq_ignore_ascii_case(origin_name)
    };
    !hosts.into_iter().filter_map(text).any(is_host_of_origin)
}

/// Returns whether `Host` is a name that can only mean this machine.
fn is_this_machine(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_another_site_is_foreign_and_a_program_is_not() {
        let host = ("host", "map.example:9480");
        for (more, expected) in [
            (&[][..], false),
            (&[("origin", "http://map.example:9480")], false),
            (&[("origin", "https://MAP.example:9480")], false),
            (&[("origin", "https://evil.example")], true),
            (&[("origin", "http://map.example:81")], true),
            (&[("origin", "null")], true),
            (&[("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "same-site")], true),
            (
                &[("origin", "http://fleet.example:8443"), ("x-forwarded-host", "fleet.example")],
                false,
            ),
            // The page is at the proxy's name; the proxy replaces Host with this server's name.
            (&[("origin", "https://fleet.example"), ("sec-fetch-site", "same-origin")], false),
            (&[("origin", "https://fleet.example"), ("x-forwarded-host", "fleet.example")], false),
        ] {
            let headers = [&[host], more].concat().into_iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            assert_eq!(is_foreign(&headers.collect()), expected, "{more:?}");
        }
    }
}
