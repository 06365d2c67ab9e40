//! Topic filters (4.7) and shared subscriptions (4.8.2).

/// Splits `$share/GROUP/FILTER` into group and filter. Another filter has no group. `None`: the
/// path is not a filter.
pub(crate) fn parse(path: &str) -> Option<(Option<&str>, &str)> {
    let Some(shared) = path.strip_prefix("$share/") else {
        return is_filter(path).then_some((None, path));
    };
    let (group, filter) = shared.split_once('/')?;
    let named = !group.is_empty() && !group.contains(['+', '#']);
    (named && is_filter(filter)).then_some((Some(group), filter))
}

fn is_filter(filter: &str) -> bool {
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let alone = level.len() == 1 || !level.contains(['+', '#']);
        if !alone || (level == "#" && levels.peek().is_some()) {
            return false;
        }
    }
    !filter.is_empty()
}

/// Returns whether the name is a topic to publish to.
pub(crate) fn is_topic(topic: &str) -> bool {
    !topic.is_empty() && !topic.contains(['+', '#', '\0'])
}

/// Returns whether a filter matches a topic.
pub(crate) fn covers(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let (mut filter, mut topic) = (filter.split('/'), topic.split('/'));
    loop {
        match (filter.next(), topic.next()) {
            (Some("#"), _) | (None, None) => return true,
            (Some("+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            (Some(_) | None, Some(_)) | (Some(_), None) => return false,
        }
    }
}
