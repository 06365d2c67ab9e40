//! Topic filters (4.7) and shared subscriptions (4.8.2).

/// Splits `$share/GROUP/FILTER` into group and filter. For a plain filter, the group is `None`.
/// Returns `None` if the path is not a valid filter.
pub(crate) fn parse(path: &str) -> Option<(Option<&str>, &str)> {
    let Some(shared) = path.strip_prefix("$share/") else {
        return is_filter(path).then_some((None, path));
    };
    let (group, filter) = shared.split_once('/')?;
    let is_group = !group.is_empty() && !group.contains(['+', '#']);
    (is_group && is_filter(filter)).then_some((Some(group), filter))
}

fn is_filter(filter: &str) -> bool {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        // A wildcard must be a whole level, and `#` must be the last level (4.7.1).
        let is_level = level.len() == 1 || !level.contains(['+', '#']);
        if !is_level || (level == "#" && levels.peek().is_some()) {
            return false;
        }
    }
    !filter.is_empty()
}

/// Returns whether a client may publish to this topic name.
pub(crate) fn is_topic(topic: &str) -> bool {
    !topic.is_empty() && !topic.contains(['+', '#', '\0'])
}

/// Returns whether a filter matches a topic.
pub(crate) fn covers(filter: &str, topic: &str) -> bool {
    // A leading wildcard does not match topics that begin with `$` (MQTT-4.7.2-1).
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(expected), Some(level)) if expected == level => {}
            (Some(_) | None, Some(_)) | (Some(_), None) => return false,
        }
    }
}
