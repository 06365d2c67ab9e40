//! What the values of single settings must be. Each error says what is right.

use std::net::Ipv6Addr;

use super::sources::filter;
use crate::peers::ask::Peer;

/// Host, port, and whether with TLS.
pub(super) fn broker_address(text: String) -> Result<(String, u16, Option<bool>), String> {
    let (url, tls) = server_url(&text, ["mqtt", "mqtts"], "mqtt.username and mqtt.password_file")?;
    // An IPv6 address stands in brackets.
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    Ok((host, url.port().unwrap_or(if tls { 8883 } else { 1883 }), Some(tls)))
}

/// The URL, and whether with TLS.
pub(super) fn http_url(text: String) -> Result<(String, Option<bool>), String> {
    let (_, tls) = server_url(&text, ["http", "https"], "clickhouse.user and clickhouse.password_file")?;
    Ok((text, Some(tls)))
}

/// `scheme://host:port`; the second scheme is that with TLS. A URL that is refused is not repeated: it may hold
/// a password.
fn server_url(text: &str, schemes: [&str; 2], login_goes_to: &str) -> Result<(url::Url, bool), String> {
    let [plain, tls] = schemes;
    let wanted = format!("{plain}://host:port or {tls}://host:port is wanted");
    let url = url::Url::parse(text).map_err(|error| format!("not a URL ({error}): {wanted}"))?;
    if !url.username().is_empty() || url.password().is_some() || url.query().is_some() {
        return Err(format!("put the login into {login_goes_to}, not into the URL"));
    }
    let complete = schemes.contains(&url.scheme()) && url.host_str().is_some_and(|host| !host.is_empty());
    if !complete || url.fragment().is_some() || !matches!(url.path(), "" | "/") {
        return Err(wanted);
    }
    let with_tls = url.scheme() == tls;
    Ok((url, with_tls))
}

pub(super) fn client_id(text: String) -> Result<String, String> {
    if text.is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
        return Err(
            "1-200 bytes without control characters are wanted, unique in the group and stable over \
                    restarts (the default is the host's name)"
                .to_owned(),
        );
    }
    Ok(text)
}

/// It goes into a header of HTTP.
pub(super) fn user_name(text: String) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err("a name without control characters is wanted".to_owned());
    }
    Ok(text)
}

pub(super) fn group(text: String) -> Result<String, String> {
    if text.is_empty() || text.contains(['/', '+', '#']) {
        return Err(format!("\"{text}\": a share group is a name without / + #"));
    }
    Ok(text)
}

pub(super) fn topics(topics: Vec<String>) -> Result<Vec<String>, String> {
    if topics.is_empty() {
        return Err("at least one topic is wanted".to_owned());
    }
    for topic in &topics {
        if filter(topic) != Ok(1) {
            return Err(format!(
                "\"{topic}\": a filter with exactly one level + (the driver's id) is wanted, without # and without \
                 $share/ (mqtt.group says that); [[sources]] can have other filters"
            ));
        }
    }
    Ok(topics)
}

pub(super) fn identifier(text: String) -> Result<String, String> {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if text.is_empty() || !plain || text.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "\"{text}\": a name of letters, digits and _ is wanted, not beginning with a digit"
        ));
    }
    Ok(text)
}

/// It stands in quotes, after ON CLUSTER; `{cluster}` is the server's macro.
pub(super) fn cluster_name(text: &str) -> Result<(), String> {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.{}".contains(c));
    if plain { Ok(()) } else { Err("a name of letters, digits and _ - . { } is wanted".to_owned()) }
}

pub(super) fn log_filter(text: String) -> Result<String, String> {
    match text.parse::<tracing_subscriber::filter::Targets>() {
        Ok(_) => Ok(text),
        Err(error) => {
            Err(format!("\"{text}\" is not a filter such as \"info\" or \"milepost=debug,info\": {error}"))
        }
    }
}

pub(super) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// `host:port`; an IPv6 address stands in brackets.
pub(super) fn peers(texts: Vec<String>) -> Result<Vec<Peer>, String> {
    let peer = |text: String| {
        let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        let in_brackets = |host: &str| host.strip_prefix('[')?.strip_suffix(']').map(str::to_owned);
        let good = |host: &str| {
            !host.is_empty() && !host.contains(|c: char| "[]/:@".contains(c) || c.is_whitespace())
        };
        match parts {
            Some((host, port @ 1..)) if good(host) => Ok(Peer { host: host.to_owned(), port }),
            Some((host, port @ 1..))
                if in_brackets(host).is_some_and(|host| host.parse::<Ipv6Addr>().is_ok()) =>
            {
                Ok(Peer { host: in_brackets(host).unwrap_or_default(), port })
            }
            Some(_) | None => {
                Err(format!("\"{text}\": host:port is wanted, the port of the members' http.listen"))
            }
        }
    };
    texts.into_iter().filter(|text| !text.is_empty()).map(peer).collect()
}

/// Former subscriptions, as the broker has them.
pub(super) fn former_filters(filters: Vec<String>) -> Result<Vec<String>, String> {
    let filters: Vec<String> = filters.into_iter().filter(|filter| !filter.is_empty()).collect();
    for filter in &filters {
        let mut levels = filter.split('/');
        let shared = levels.next() == Some("$share") && levels.next().is_some_and(|group| !group.is_empty());
        if !shared || levels.next().is_none() {
            return Err(format!("\"{filter}\": as the broker has it is wanted: $share/GROUP/FILTER"));
        }
    }
    Ok(filters)
}
