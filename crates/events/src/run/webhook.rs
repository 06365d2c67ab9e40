//! The webhook: posts events of different drivers concurrently, and those of one driver in order.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, RETRY_AFTER};
use hyper::{Method, Request, StatusCode};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};

use super::deliver::{Channel, Order, Outage, QueueEnds, TOO_MANY_WAIT, payload};
use super::lanes::{Lanes, Prospect, Waiting};
use super::status::Status;
use crate::watch::Event;
use milepost_clickhouse::Connector;
use milepost_config::Webhook;
use milepost_core::error_chain;
use milepost_tls::Tls;

/// Time after its first post for which an event is retried. Then the event is dropped.
const RETRY_TIME_MAX: Duration = Duration::from_secs(900);
/// Maximum number of concurrent posts.
const POSTS_MAX: usize = 8;
/// Maximum number of concurrent posts of events that are not [`Prospect::Sound`].
const SUSPECT_POSTS_MAX: usize = 4;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for reading the body of a response. Only a connection whose body was read can be reused.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of the body of a response that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Maximum pause that `Retry-After` causes. Shorter than [`RETRY_TIME_MAX`], which begins with an
/// event's first post, so that every event is posted again before it is dropped.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);

type Client = legacy::Client<Connector, Full<Bytes>>;
type Post = Waiting<Event>;

/// The waiting events, and how fast they may be posted.
struct Posts {
    lanes: Lanes<Event>,
    /// Number of posts in flight whose event is sound.
    sound: usize,
    /// Number of posts in flight whose event is doubtful or failed.
    suspect: usize,
    /// The last post failed. Until the webhook accepts one, at most one post that is not sound is
    /// in flight.
    is_failing: bool,
    /// The webhook limits the rate of posts, and has asked for none before this time.
    resumes_at: Instant,
}

impl Posts {
    fn new(now: Instant) -> Self {
        Self { lanes: Lanes::default(), sound: 0, suspect: 0, is_failing: false, resumes_at: now }
    }

    /// Enqueues an event. Returns the event that is dropped, if too many wait.
    fn push(&mut self, event: Event, now: Instant) -> Option<Event> {
        let (driver_id, rule) = (event.driver_id.clone(), (event.kind, event.fence.clone()));
        self.lanes.push(driver_id, rule, event, now)
    }

    /// Returns whether another event of this prospect may be posted now.
    fn has_slot(&self, prospect: Prospect) -> bool {
        let is_free = self.sound + self.suspect < POSTS_MAX;
        match prospect {
            Prospect::Sound => is_free,
            Prospect::Doubtful | Prospect::Failed => {
                let max = if self.is_failing { 1 } else { SUSPECT_POSTS_MAX };
                is_free && self.suspect < max
            }
        }
    }

    /// Returns the count of posts in flight to which this prospect belongs.
    fn in_flight(&mut self, prospect: Prospect) -> &mut usize {
        match prospect {
            Prospect::Sound => &mut self.sound,
            Prospect::Doubtful | Prospect::Failed => &mut self.suspect,
        }
    }

    /// Returns whether an event that failed before waits or may be in flight.
    fn has_failed(&self) -> bool {
        self.lanes.has_failed() || self.suspect > 0
    }

    /// Removes and returns the event to post next.
    fn take(&mut self, now: Instant) -> Option<Post> {
        if now < self.resumes_at {
            return None;
        }
        for prospect in self.lanes.preferred() {
            if self.has_slot(prospect)
                && let Some(post) = self.lanes.take(prospect, now)
            {
                *self.in_flight(prospect) += 1;
                return Some(post);
            }
        }
        None
    }

    /// Returns when the next post may begin; `None`: not before a post ends or an event arrives.
    fn next_at(&self) -> Option<Instant> {
        let prospects = [Prospect::Sound, Prospect::Doubtful, Prospect::Failed].into_iter();
        let slots = prospects.filter(|prospect| self.has_slot(*prospect));
        slots
            .filter_map(|prospect| self.lanes.next_at(prospect))
            .min()
            .map(|at| at.max(self.resumes_at))
    }

    /// Schedules a failed post again. Returns the event if it is dropped instead, because its first
    /// post was [`RETRY_TIME_MAX`] ago.
    ///
    /// A pause that the webhook asked for delays the next posts of the driver. A rate limit delays
    /// all posts of this rule. It also delays all other posts, but only if this post was sound: one
    /// rule whose every post meets a limit must not delay the others for ever.
    fn fail(&mut self, post: Post, pause: Option<Pause>, now: Instant) -> Option<Event> {
        self.is_failing = true;
        let not_before = match pause {
            None => now,
            Some(Pause { time, is_rate_limit: false }) => now + time,
            Some(Pause { time, is_rate_limit: true }) => {
                if post.prospect == Prospect::Sound {
                    self.resumes_at = self.resumes_at.max(now + time);
                }
                self.lanes.limit(&post, now, time)
            }
        };
        let is_over = |since| now.saturating_duration_since(since) >= RETRY_TIME_MAX;
        if post.tried_since.is_some_and(is_over) {
            self.lanes.abandon(&post, not_before);
            return Some(post.item);
        }
        self.lanes.retry(post, now, not_before);
        None
    }
}

/// Posts events until the sender of the orders is dropped.
pub(super) async fn webhook(webhook: Webhook, mut ends: QueueEnds, status: Arc<Status>) {
    let tls = webhook.tls.clone().map(|files| Arc::new(Tls::new(files)));
    let client: Client = legacy::Client::builder(TokioExecutor::new()).build(Connector::new(tls));
    let target = Arc::new((client, webhook));
    let mut outage = Outage::new(Channel::Webhook, status);
    let (mut posts, mut running) = (Posts::new(Instant::now()), JoinSet::new());
    loop {
        while let Some(post) = posts.take(Instant::now()) {
            if ends.is_erased(&post.item) {
                *posts.in_flight(post.prospect) -= 1;
                posts.lanes.give_up(&post, Instant::now());
                continue;
            }
            let target = Arc::clone(&target);
            running.spawn(async move {
                let (client, webhook) = &*target;
                let answer = self::post(client, webhook, &post.item).await;
                (post, answer)
            });
        }
        outage.lapse(posts.has_failed());
        let next_at = posts.next_at();
        let wake_at = next_at.unwrap_or_else(Instant::now);
        let (post, answer) = tokio::select! {
            Some(ended) = running.join_next() => {
                ended.expect("a post neither panics nor is cancelled")
            }
            order = ends.orders.recv() => {
                match order {
                    None => return,
                    Some(Order::Publish(event)) => {
                        if let Some(dropped) = posts.push(event, Instant::now()) {
                            outage.report_dropped(&dropped, TOO_MANY_WAIT);
                            ends.answer(Channel::Webhook, dropped.id(), false).await;
                        }
                    }
                    Some(Order::Republish(_) | Order::Clear { .. }) => {}
                }
                continue;
            }
            () = sleep_until(wake_at.into()), if next_at.is_some() => continue,
        };
        *posts.in_flight(post.prospect) -= 1;
        let (id, now) = (post.item.id(), Instant::now());
        match answer {
            Ok(()) => {
                posts.is_failing = false;
                posts.lanes.succeed(&post, now);
                outage.succeed(posts.has_failed());
                ends.answer(Channel::Webhook, id, true).await;
            }
            Err(Failure::Refused(why)) => {
                outage.report_dropped(&post.item, &why);
                posts.lanes.give_up(&post, now);
                ends.answer(Channel::Webhook, id, false).await;
            }
            Err(Failure::Transient { why, pause }) => {
                outage.report(&why);
                if let Some(dropped) = posts.fail(post, pause, now) {
                    let why = format!("not accepted for a quarter of an hour: {why}");
                    outage.report_dropped(&dropped, &why);
                    ends.answer(Channel::Webhook, id, false).await;
                }
            }
        }
    }
}

#[derive(Debug)]
enum Failure {
    /// The webhook would refuse the same event again.
    Refused(String),
    Transient {
        why: String,
        pause: Option<Pause>,
    },
}

/// A pause that the webhook asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pause {
    /// At most [`RETRY_AFTER_MAX`]; 0 for a 429 without a valid `Retry-After`.
    time: Duration,
    /// The answer was 429.
    is_rate_limit: bool,
}

async fn post(client: &Client, webhook: &Webhook, event: &Event) -> Result<(), Failure> {
    let transient = |why: String| Failure::Transient { why, pause: None };
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&webhook.url)
        .header(CONTENT_TYPE, "application/json");
    if let Some(token) = &webhook.token {
        let token = token
            .read()
            .map_err(|error| transient(format!("webhook.token_file cannot be read: {error}")))?;
        request = request.header(AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request
        .body(Full::from(payload(event)))
        .map_err(|error| transient(format!("webhook.url or its token is invalid: {error}")))?;
    let answer = timeout(RESPONSE_TIMEOUT, client.request(request))
        .await
        .map_err(|_| transient(format!("no answer within {RESPONSE_TIMEOUT:?}")))?
        .map_err(|error| transient(error_chain(&error)))?;
    let (status, headers) = (answer.status(), answer.headers());
    let pause = requested_pause(status, headers);
    // The status code alone decides the result. If the body never ends, the only loss is that the
    // connection cannot be reused.
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
    let _ = timeout(BODY_TIMEOUT, body).await;
    let is_busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    // The operator can correct the token or the URL, here or at the webhook. Until then, events
    // wait.
    let may_be_corrected =
        [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&status);
    if status.is_success() {
        Ok(())
    } else if status.is_client_error() && !is_busy && !may_be_corrected {
        Err(Failure::Refused(format!("it answers {status}")))
    } else {
        let advice = if status.is_redirection() {
            ": set webhook.url to the address to which it redirects"
        } else {
            ""
        };
        Err(Failure::Transient { why: format!("it answers {status}{advice}"), pause })
    }
}

/// Returns the pause that an answer 429 or 503 asks for in `Retry-After`, in seconds or until a
/// date (RFC 9110, 10.2.3), at most [`RETRY_AFTER_MAX`]. A date is compared with the answer's own
/// `Date`, because this machine's clock may be wrong. A value in any other form is ignored. A 429
/// without a valid value asks for a pause of 0.
fn requested_pause(status: StatusCode, headers: &HeaderMap) -> Option<Pause> {
    let is_rate_limit = status == StatusCode::TOO_MANY_REQUESTS;
    if !is_rate_limit && status != StatusCode::SERVICE_UNAVAILABLE {
        return None;
    }
    let time = match retry_after(headers) {
        Some(time) => time.min(RETRY_AFTER_MAX),
        None if is_rate_limit => Duration::ZERO,
        None => return None,
    };
    Some(Pause { time, is_rate_limit })
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let value = text(RETRY_AFTER)?;
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(value.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs));
    }
    let now = text(DATE).and_then(http_date);
    let now = now.unwrap_or_else(|| TimeZone::UTC.to_datetime(Timestamp::now()));
    Some(Duration::try_from(http_date(value)?.duration_since(now)).unwrap_or_default())
}

/// Parses a date in one of the three formats of RFC 9110, 5.6.7, which are all in UTC.
fn http_date(text: &str) -> Option<DateTime> {
    const FORMATS: [&str; 3] =
        ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    FORMATS.iter().find_map(|format| DateTime::strptime(format, text).ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::super::deliver::Answer;
    use super::super::lanes::RETRY_PAUSE_MIN;
    use super::*;
    use crate::watch::Kind;

    fn event(driver_id: &str, fence: &str, ts: i64) -> Event {
        Event {
            driver_id: driver_id.to_owned(),
            kind: Kind::Entered,
            fence: fence.to_owned(),
            ts,
            seq: 0,
            lat: 1.0,
            lng: 2.0,
            speed: None,
            known_at: 0,
        }
    }

    /// Ids of events in the order of their posts, each with its time.
    type Received = Arc<Mutex<Vec<(String, Instant)>>>;

    /// A webhook, and the task that posts to it.
    struct Hook {
        orders: mpsc::Sender<Order>,
        answers: mpsc::Receiver<Answer>,
        received: Received,
        status: Arc<Status>,
    }

    impl Hook {
        /// Starts a webhook. `respond` gets an event's id and the number of the attempt, and
        /// returns the status and headers of the answer; `None`: the webhook never answers.
        async fn start(respond: fn(&str, usize) -> Option<&'static str>) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let received = Received::default();
            let posts = Arc::clone(&received);
            tokio::spawn(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    let posts = Arc::clone(&posts);
                    tokio::spawn(async move {
                        let (mut request, mut chunk) = (String::new(), [0; 4096]);
                        while !request.ends_with('}') {
                            let read = stream.read(&mut chunk).await.unwrap();
                            request.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
                        }
                        let body = request.split_once("\r\n\r\n").unwrap().1;
                        let body: serde_json::Value = serde_json::from_str(body).unwrap();
                        let id = body["id"].as_str().unwrap().to_owned();
                        let attempt = {
                            let mut posts = posts.lock().unwrap();
                            posts.push((id.clone(), Instant::now()));
                            posts.iter().filter(|(known, _)| *known == id).count()
                        };
                        match respond(&id, attempt) {
                            Some(head) => {
                                let tail = "Content-Length: 0\r\nConnection: close\r\n\r\n";
                                let answer = format!("HTTP/1.1 {head}\r\n{tail}");
                                stream.write_all(answer.as_bytes()).await.unwrap();
                            }
                            None => tokio::time::sleep(Duration::from_secs(60)).await,
                        }
                    });
                }
            });
            let toml =
                format!("[webhook]\nurl = '{url}'\ntoken = 't'\n[clickhouse]\nurl = 'http://c'");
            let config = milepost_config::Config::parse(&toml).unwrap();
            let (ends, orders, answers) = QueueEnds::for_test();
            let status = Arc::new(Status::new());
            tokio::spawn(webhook(config.webhook.unwrap(), ends, Arc::clone(&status)));
            Self { orders, answers, received, status }
        }

        async fn send(&self, event: Event) {
            self.orders.send(Order::Publish(event)).await.unwrap();
        }

        /// Returns whether the webhook accepts this event within this time.
        async fn accepts(&mut self, id: &str, within: Duration) -> bool {
            let accepted = async {
                while let Some(answer) = self.answers.recv().await {
                    if answer.is_accepted && answer.id == id {
                        return;
                    }
                }
            };
            timeout(within, accepted).await.is_ok()
        }

        fn times_of(&self, id: &str) -> Vec<Instant> {
            let received = self.received.lock().unwrap();
            received.iter().filter(|(known, _)| known == id).map(|(_, at)| *at).collect()
        }
    }

    /// A driver, or a rule, whose posts fail or are never answered must not delay others.
    #[tokio::test]
    async fn hundreds_of_failing_events_delay_no_other_driver() {
        let mut hook = Hook::start(|id, _| match id.split('/').next() {
            Some("refused") => Some("500 x"),
            Some("hung") => None,
            _ if id.ends_with("/bad") => Some("503 x"),
            _ => Some("200 x"),
        })
        .await;
        for ts in 0..300 {
            hook.send(event("refused", "yard", ts)).await;
            hook.send(event("hung", "gate", ts)).await;
            hook.send(event(&format!("d{ts}"), "bad", ts)).await;
        }
        // Wait a second, in which posts fail.
        assert!(!hook.accepts("none", Duration::from_secs(1)).await);
        for n in 0..50 {
            hook.send(event(&format!("e{n}"), "depot", 1)).await;
        }
        for n in [0, 25, 49] {
            let id = format!("e{n}/entered/1/0/depot");
            assert!(hook.accepts(&id, Duration::from_secs(2)).await, "{id}");
        }
        let refused = hook
            .received
            .lock()
            .unwrap()
            .iter()
            .any(|(id, _)| id.starts_with("refused/entered/1/"));
        assert!(!refused, "a later event of the driver was posted before the first was accepted");
    }

    #[tokio::test]
    async fn retry_after_of_a_rate_limit_delays_all_posts() {
        let mut hook = Hook::start(|_, attempt| {
            Some(if attempt == 1 { "429 x\r\nRetry-After: 2" } else { "200 x" })
        })
        .await;
        hook.send(event("a", "yard", 1)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        hook.send(event("b", "depot", 1)).await;
        assert!(hook.accepts("a/entered/1/0/yard", Duration::from_secs(6)).await);
        let (a, b) = (hook.times_of("a/entered/1/0/yard"), hook.times_of("b/entered/1/0/depot"));
        assert!(a[1] - a[0] >= Duration::from_secs(2));
        assert!(b[0] - a[0] >= Duration::from_secs(2));
    }

    /// One part of the webhook may be out of service.
    #[tokio::test]
    async fn retry_after_of_503_delays_only_its_driver() {
        let mut hook = Hook::start(|id, attempt| {
            let is_first = id.starts_with('a') && attempt == 1;
            Some(if is_first {
                "503 x\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                 Retry-After: Sun, 06 Nov 1994 08:49:39 GMT"
            } else {
                "200 x"
            })
        })
        .await;
        hook.send(event("a", "yard", 1)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        hook.send(event("b", "depot", 1)).await;
        assert!(hook.accepts("b/entered/1/0/depot", Duration::from_secs(1)).await);
        assert!(hook.accepts("a/entered/1/0/yard", Duration::from_secs(6)).await);
        let a = hook.times_of("a/entered/1/0/yard");
        assert!(a[1] - a[0] >= Duration::from_secs(2));
    }

    #[tokio::test]
    async fn outage_ends_when_its_last_failed_event_is_dropped() {
        let mut hook =
            Hook::start(|_, attempt| Some(if attempt == 1 { "500 x" } else { "400 x" })).await;
        hook.send(event("a", "yard", 1)).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!hook.status.health.unready().is_empty());
        let answer = timeout(Duration::from_secs(5), hook.answers.recv()).await.unwrap().unwrap();
        assert!(!answer.is_accepted);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(hook.status.health.unready(), Vec::<String>::new());
    }

    #[tokio::test]
    async fn outage_lasts_while_a_failed_event_waits() {
        let mut hook =
            Hook::start(|id, _| Some(if id.starts_with("refused/") { "500 x" } else { "200 x" }))
                .await;
        hook.send(event("refused", "yard", 1)).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        for n in 0..9 {
            hook.send(event(&format!("a{n}"), "depot", 1)).await;
            let id = format!("a{n}/entered/1/0/depot");
            assert!(hook.accepts(&id, Duration::from_secs(1)).await, "{id}");
            assert!(!hook.status.health.unready().is_empty());
        }
    }

    const RATE_LIMIT: Option<Pause> =
        Some(Pause { time: Duration::from_secs(60), is_rate_limit: true });

    /// A limit of one driver, or of one rule, must not become a limit of all posts.
    #[test]
    fn rate_limit_of_a_failing_rule_delays_only_that_rule() {
        let now = Instant::now();
        let mut posts = Posts::new(now);
        assert!(posts.push(event("p", "yard", 1), now).is_none());
        let post = posts.take(now).unwrap();
        *posts.in_flight(post.prospect) -= 1;
        assert!(posts.fail(post, RATE_LIMIT, now).is_none());
        assert!(posts.push(event("a", "depot", 1), now).is_none());
        assert!(posts.take(now).is_none());
        assert_eq!(posts.next_at(), Some(now + Duration::from_secs(60)));
        assert!(posts.push(event("q", "yard", 1), now).is_none());
        let (mut limited, mut accepted) = (Vec::new(), 0);
        for second in 60..250 {
            let at = now + Duration::from_secs(second);
            assert!(posts.push(event("b", "depot", 1), at).is_none());
            while let Some(post) = posts.take(at) {
                *posts.in_flight(post.prospect) -= 1;
                if post.item.fence == "depot" {
                    accepted += 1;
                    posts.lanes.succeed(&post, at);
                } else {
                    assert_ne!(post.prospect, Prospect::Sound);
                    limited.push((post.driver_id.clone(), second));
                    assert!(posts.fail(post, RATE_LIMIT, at).is_none());
                }
            }
            assert_eq!(accepted, second - 60 + 2); // no event of the depot waits
        }
        // Each limit lasts 61 s, and the two drivers of the rule take turns.
        let expected = [("p", 61), ("q", 122), ("p", 183), ("q", 244)];
        assert_eq!(limited, expected.map(|(id, second)| (id.to_owned(), second)));
    }

    const ACCEPTED_PER_MINUTE: usize = 30;

    /// Posts the events of 1,000 drivers to a webhook that accepts [`ACCEPTED_PER_MINUTE`]. Returns
    /// the number of accepted events, and the number of posts.
    fn delivered_through_a_limit(has_retry_after: bool) -> (usize, usize) {
        let mut now = Instant::now();
        let mut posts = Posts::new(now);
        for n in 0..1_000 {
            let event = event(&format!("d{n}"), "yard", 1);
            assert!(posts.push(event, now + Duration::from_micros(n)).is_none());
        }
        now += Duration::from_secs(1);
        let (start, mut accepted, mut count) = (now, [0; 61], 0);
        loop {
            let mut running = Vec::new();
            while let Some(taken) = posts.take(now) {
                running.push(taken);
            }
            if running.is_empty() {
                match posts.next_at() {
                    Some(at) => now = now.max(at),
                    None => return (accepted.iter().sum(), count),
                }
                continue;
            }
            for post in running {
                now += Duration::from_millis(1);
                count += 1;
                *posts.in_flight(post.prospect) -= 1;
                let since = now - start;
                let minute = usize::try_from(since.as_secs() / 60).unwrap();
                if accepted[minute] < ACCEPTED_PER_MINUTE {
                    accepted[minute] += 1;
                    posts.is_failing = false;
                    posts.lanes.succeed(&post, now);
                    continue;
                }
                let until_next_minute = Duration::from_secs(60 - since.as_secs() % 60);
                let time = if has_retry_after { until_next_minute } else { Duration::ZERO };
                let pause = Some(Pause { time, is_rate_limit: true });
                posts.fail(post, pause, now);
            }
        }
    }

    #[test]
    fn backlog_of_one_rule_passes_a_rate_limit() {
        let (accepted, posts) = delivered_through_a_limit(true);
        assert!(accepted == 1_000 && posts < 1_250, "{accepted} {posts}");
        // Without Retry-After, a few events meet the limit so often that they are dropped.
        let (accepted, posts) = delivered_through_a_limit(false);
        assert!(accepted >= 980 && posts < 1_500, "{accepted} {posts}");
    }

    /// A day's backlog meets a rate limit.
    #[test]
    fn old_event_is_not_dropped_at_its_first_post() {
        let arrived = Instant::now();
        let mut posts = Posts::new(arrived);
        for n in 0..1_000 {
            assert!(posts.push(event(&format!("d{n}"), "yard", 1), arrived).is_none());
        }
        let mut now = arrived + Duration::from_secs(86_400);
        for pause in [RATE_LIMIT, None] {
            while let Some(post) = posts.take(now) {
                *posts.in_flight(post.prospect) -= 1;
                assert!(posts.fail(post, pause, now).is_none());
            }
            assert_eq!(posts.lanes.len(), 1_000);
            now += Duration::from_secs(60);
        }
    }

    /// The pause that the webhook asks for after a post counts even if the event of that post is
    /// dropped.
    #[test]
    fn dropped_event_slows_later_posts_like_a_retried_one() {
        let now = Instant::now();
        let mut posts = Posts::new(now);
        for (driver_id, ts) in [("p", 1), ("p", 2), ("q", 1)] {
            assert!(posts.push(event(driver_id, "yard", ts), now).is_none());
        }
        let post = posts.take(now).unwrap();
        *posts.in_flight(post.prospect) -= 1;
        let later = now + RETRY_TIME_MAX;
        assert_eq!(posts.fail(post, RATE_LIMIT, later).unwrap().ts, 1);
        assert!(posts.is_failing && posts.take(later).is_none());
        let resumed = later + Duration::from_secs(60);
        assert_eq!(posts.resumes_at, resumed);
        let resumed = resumed + RETRY_PAUSE_MIN;
        for driver_id in ["q", "p"] {
            let post = posts.take(resumed).unwrap();
            assert_eq!((post.prospect, &*post.driver_id), (Prospect::Doubtful, driver_id));
            *posts.in_flight(post.prospect) -= 1;
        }
    }

    #[test]
    fn retry_after_is_read_in_all_its_forms_within_bounds() {
        let seconds = |status: u16, value: &str, date: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            if let Some(date) = date {
                headers.insert(DATE, date.parse().unwrap());
            }
            let pause = requested_pause(StatusCode::from_u16(status).unwrap(), &headers);
            pause.map(|pause| pause.time.as_secs())
        };
        let date = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        for (value, expected) in [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("0", Some(0)),
            ("86400", Some(300)),
            ("99999999999999999999999", Some(300)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(300)),
            ("soon", None),
            ("-5", None),
            ("1.5", None),
            ("", None),
        ] {
            assert_eq!(seconds(429, value, date), expected.or(Some(0)), "{value}");
            assert_eq!(seconds(503, value, date), expected, "{value}");
        }
        assert_eq!(seconds(500, "120", date), None);
        assert_eq!(seconds(429, "Sun, 06 Nov 1994 08:50:37 GMT", None), Some(0));
    }
}
