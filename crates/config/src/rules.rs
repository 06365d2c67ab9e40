//! Rules for single settings. Each error states the valid values.

use std::net::Ipv6Addr;

use super::sources::plus_levels;
use milepost_core::peers::Peer;
use milepost_tls as tls;
use milepost_tls::Address;

/// Parses the addresses of the broker's nodes. Returns also whether they use TLS: `Some(true)` or
/// `Some(false)`. The type is an `Option` because `Settings::checked` returns the type's default,
/// here `None`, after an error.
pub(super) fn broker_addresses(texts: Vec<String>) -> Result<(Vec<Address>, Option<bool>), String> {
    let (mut addresses, mut with_tls) = (Vec::new(), None);
    for text in texts {
        let (url, tls) =
            server_url(&text, ["mqtt", "mqtts"], "mqtt.username and mqtt.password_file")?;
        if with_tls.replace(tls).is_some_and(|earlier| earlier != tls) {
            return Err("must be mqtts:// for all nodes, or for none".to_owned());
        }
        // Remove the brackets that a URL has around an IPv6 address.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port().unwrap_or(if tls { 8883 } else { 1883 });
        let address = Address { host, port, ip: None };
        if addresses.contains(&address) {
            return Err(format!("{address} is listed twice"));
        }
        addresses.push(address);
    }
    if addresses.is_empty() {
        return Err("must name at least one node, such as mqtts://broker:8883".to_owned());
    }
    Ok((addresses, with_tls))
}

/// Checks a URL of ClickHouse. Returns also whether it uses TLS, as [`broker_addresses`] does.
pub(super) fn http_url(text: String) -> Result<(String, Option<bool>), String> {
    let (_, tls) =
        server_url(&text, ["http", "https"], "clickhouse.user and clickhouse.password_file")?;
    Ok((text, Some(tls)))
}

/// Checks ClickHouse's endpoints. Returns also whether they use TLS, as [`broker_addresses`] does.
pub(super) fn http_urls(texts: Vec<String>) -> Result<(Vec<String>, Option<bool>), String> {
    let (mut urls, mut with_tls) = (Vec::new(), None);
    for text in texts {
        let (url, tls) = http_url(text)?;
        if with_tls.replace(tls).is_some_and(|earlier| earlier != tls) {
            return Err("must be https:// for all endpoints, or for none".to_owned());
        }
        if urls.contains(&url) {
            return Err(format!("{url} is listed twice"));
        }
        urls.push(url);
    }
    if urls.is_empty() {
        return Err("must name at least one endpoint, such as https://clickhouse:8443".to_owned());
    }
    Ok((urls, with_tls.flatten()))
}

/// Parses `scheme://host:port`. `schemes`: the scheme without TLS, then the scheme with TLS.
/// Returns the URL, and whether it uses TLS. No error repeats the URL, which may contain a
/// password.
fn server_url(
    text: &str,
    schemes: [&str; 2],
    login_keys: &str,
) -> Result<(url::Url, bool), String> {
    let [plain, tls] = schemes;
    let expected = format!("must be {plain}://host:port or {tls}://host:port");
    let url = url::Url::parse(text).map_err(|error| format!("not a URL ({error}): {expected}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("put the login into {login_keys}, not into the URL"));
    }
    let is_complete =
        schemes.contains(&url.scheme()) && url.host_str().is_some_and(|host| !host.is_empty());
    if !is_complete {
        return Err(expected);
    }
    if url.query().is_some() || url.fragment().is_some() || !matches!(url.path(), "" | "/") {
        return Err(format!(
            "{expected}, with nothing after the port; put a login into {login_keys}"
        ));
    }
    let with_tls = url.scheme() == tls;
    Ok((url, with_tls))
}

/// Checks a webhook's URL. The URL may have any path, but no login, which would be printed with the
/// URL. Returns also whether the URL uses TLS; `None` if the string is empty, which counts as
/// unset.
pub(super) fn webhook_url(text: String) -> Result<(String, Option<bool>), String> {
    if text.is_empty() {
        return Ok((text, None));
    }
    let expected = "must be a URL such as https://host/path";
    let url = url::Url::parse(&text).map_err(|error| format!("not a URL ({error}): {expected}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("put a secret into webhook.token_file, not into the URL".to_owned());
    }
    let is_complete =
        url.host_str().is_some_and(|host| !host.is_empty()) && url.fragment().is_none();
    // Remove the brackets that a URL has around an IPv6 address.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match url.scheme() {
        // A request rejects a URL with a space, so return the URL as the library encodes it.
        "https" if is_complete => Ok((url.into(), Some(true))),
        // Positions are personal data, and a token is secret. Without TLS, they must not leave this
        // machine.
        "http" if is_complete && tls::is_this_machine(host) => Ok((url.into(), Some(false))),
        "http" if is_complete => {
            Err("must be https:// unless the host is this machine: events say where people are"
                .to_owned())
        }
        _ => Err(expected.to_owned()),
    }
}

/// Returns a webhook's URL without what may be secret: Slack and Teams keep the secret in the path,
/// other services in the query string. Returns an empty string if the string is not a URL.
pub(super) fn shown_webhook_url(text: &str) -> String {
    // Parse as a request does: `https:host/secret` and `https:\\host\secret` are URLs, too.
    match url::Url::parse(text) {
        Ok(url) if url.path() != "/" || url.query().is_some() => {
            format!("{}/***", url.origin().ascii_serialization())
        }
        Ok(_) => text.to_owned(),
        Err(_) => String::new(),
    }
}

/// Checks the levels of a topic. An empty string means no topic.
pub(super) fn topic_prefix(text: String) -> Result<String, String> {
    let is_bad = text.contains(['+', '#']) || text.starts_with(['/', '$']) || text.ends_with('/');
    if is_bad || text.len() > 200 || text.chars().any(char::is_control) {
        return Err(format!(
            "\"{text}\": must be topic levels such as fleet/events, without + and #, and without / \
             at either end"
        ));
    }
    Ok(text)
}

/// Checks a client id.
///
/// # Errors
/// The string is not a valid client id.
pub fn client_id(text: String) -> Result<String, String> {
    if text.is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
        return Err(
            "must have 1-200 bytes without control characters, be unique in the group, and stay \
             the same after a restart (default: the host's name)"
                .to_owned(),
        );
    }
    Ok(text)
}

/// Checks a user name, which is sent in an HTTP header.
pub(super) fn user_name(text: String) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err("must not contain control characters".to_owned());
    }
    Ok(text)
}

/// Checks the name of a share group.
pub(super) fn group(text: String) -> Result<String, String> {
    if text.is_empty() || text.contains(['/', '+', '#']) || text.chars().any(char::is_control) {
        return Err(format!(
            "{text:?}: a share group must not be empty or contain /, +, # or control characters"
        ));
    }
    Ok(text)
}

/// Checks the topic filters of `mqtt.topics`.
pub(super) fn topics(topics: Vec<String>) -> Result<Vec<String>, String> {
    if topics.is_empty() {
        return Err("must have at least one topic".to_owned());
    }
    for topic in &topics {
        if plus_levels(topic) != Ok(1) {
            return Err(format!(
                "\"{topic}\": must have exactly one level + (the driver's id), no # and no $share/ \
                 (set mqtt.group instead); [[sources]] can have other filters"
            ));
        }
    }
    Ok(topics)
}

/// Checks the name of a volume or a storage policy, which is quoted in a statement. In the server's
/// configuration, it is the name of an XML element.
pub(super) fn storage_name(text: String) -> Result<String, String> {
    if text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) {
        Ok(text)
    } else {
        Err(format!("\"{text}\": must contain only letters, digits and _ - ."))
    }
}

/// Checks the name of a database.
pub(super) fn identifier(text: String) -> Result<String, String> {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if text.is_empty() || !is_plain || text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "\"{text}\": must contain only letters, digits and _, and must not begin with a digit"
        ));
    }
    Ok(text)
}

/// Checks a cluster's name, which is quoted after ON CLUSTER. `{cluster}` is a macro of the server.
pub(super) fn cluster_name(text: &str) -> Result<(), String> {
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.{}".contains(c));
    if is_plain {
        Ok(())
    } else {
        Err("must contain only letters, digits and _ - . { }".to_owned())
    }
}

/// Checks a filter of log lines. Returns the filter without spaces and empty parts.
pub(super) fn log_filter(text: String) -> Result<String, String> {
    // The library takes a space for a part of a target's name, and an empty level for `error`.
    let trimmed = |part: &str| part.split('=').map(str::trim).collect::<Vec<_>>().join("=");
    let mut directives: Vec<String> = text.split(',').map(trimmed).collect();
    directives.retain(|directive| !directive.is_empty());
    // The library reads a bare word as a target, so "inof" would log only that target.
    let has_no_level = |directive: &&String| match directive.split_once('=') {
        Some((_, level)) => level.is_empty(),
        None => directive.parse::<tracing_subscriber::filter::LevelFilter>().is_err(),
    };
    let expected = "must be a level (off, error, warn, info, debug, trace) or a filter such as \
                    \"milepost=debug,info\"";
    if let Some(directive) = directives.iter().find(has_no_level) {
        return Err(format!("\"{directive}\" is not a level: {expected}"));
    }
    let filter = directives.join(",");
    match filter.parse::<tracing_subscriber::filter::Targets>() {
        Ok(_) if !filter.is_empty() => Ok(filter),
        Ok(_) => Err(format!("\"{text}\": {expected}")),
        Err(error) => Err(format!("\"{text}\": {error}: {expected}")),
    }
}

/// Returns this host's name; empty if it is unknown.
pub(super) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// Parses addresses `host:port`, with an IPv6 address in brackets.
///
/// # Errors
/// An entry is not `host:port`. The error does not repeat the entry, which may be a URL with a
/// password.
pub fn peers(texts: Vec<String>) -> Result<Vec<Peer>, String> {
    let peer = |(index, text): (usize, String)| {
        let parts =
            text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let in_brackets = |host: &str| host.strip_prefix('[')?.strip_suffix(']').map(str::to_owned);
        let is_host = |host: &str| {
            !host.is_empty() && !host.contains(|c: char| "[]/:@".contains(c) || c.is_whitespace())
        };
        match parts {
            Some((host, port @ 1..)) if is_host(host) => Ok(Peer { host: host.to_owned(), port }),
            Some((host, port @ 1..))
                if in_brackets(host).is_some_and(|host| host.parse::<Ipv6Addr>().is_ok()) =>
            {
                Ok(Peer { host: in_brackets(host).unwrap_or_default(), port })
            }
            Some(_) | None => Err(format!(
                "entry {}: must be host:port, not a URL, with the port of the members' http.listen",
                index + 1
            )),
        }
    };
    texts.into_iter().enumerate().filter(|(_, text)| !text.is_empty()).map(peer).collect()
}
