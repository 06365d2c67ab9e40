//! Watches ClickHouse on a connection of its own: whether it answers, whether the tables are those
//! of this version, and whether its clock agrees with this process's.
//!
//! A hanging insert reports nothing until its timeout. A query shows within seconds that the server
//! is down, or answers again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use milepost_clickhouse::{Cause, ClickHouse};
use milepost_command::tables::{
    self, CHECK_INTERVAL_READY, CHECK_INTERVAL_UNREADY, Verdict, WAITING_LOGGED_EVERY,
};
use milepost_core::delivery::events::{ClockComparison, Schema, ServerStatus, WatcherRequest};
use milepost_core::peers::member::Member;
use milepost_core::screened::{ErasedSnapshot, LIST_AGE_MAX};
use milepost_core::throttle::{ReasonThrottle, Throttle};
use milepost_observe::now_ms;

/// Time without an answer after which the server counts as silent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of the query for the list of erased drivers while inserts run.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the status before the first query.
pub(super) fn initial_status() -> ServerStatus {
    ServerStatus {
        schema: tables::not_asked(),
        answers: Err(tables::NOT_ASKED.to_owned()),
        clock: None,
        ..ServerStatus::ready()
    }
}

pub(super) struct Watcher {
    pub(super) clickhouse: Arc<ClickHouse>,
    /// ClickHouse's state, for the event loop.
    pub(super) server: watch::Sender<ServerStatus>,
    /// The list of erased drivers, published before the tables are reported ready.
    pub(super) erased: watch::Sender<ErasedSnapshot>,
    pub(super) member: Arc<Member>,
    /// The event loop's requests to query ClickHouse sooner than at the next interval.
    pub(super) request: watch::Receiver<WatcherRequest>,
    /// Largest difference between the clocks that is not a fault.
    pub(super) clock_tolerance: Duration,
}

/// Time of the last successful read of the list of erased drivers, and whether a later query
/// failed.
struct LastRead {
    read_at: Instant,
    has_failed: bool,
}

impl Watcher {
    /// Queries ClickHouse repeatedly. Returns only with the error that a migration was edited after
    /// it was applied: then the tables can never match this version.
    pub(super) async fn run(mut self) -> Result<Infallible> {
        let mut log = Log::new();
        let mut list = LastRead { read_at: Instant::now(), has_failed: false };
        // Whether the last round switched to another endpoint after a refusal. Such a round reports
        // no state of the tables.
        let mut has_switched_endpoint = false;
        // Whether ClickHouse answered the last query for its clock with a transient error code.
        let mut clock_query_fails = false;
        let mut clock_log = ReasonThrottle::every(WAITING_LOGGED_EVERY);
        // Time and endpoint of the last round that also queried the tables and the list.
        let mut last_full_round: Option<(Instant, usize)> = None;
        loop {
            tables::return_to_own_endpoint(&self.clickhouse).await;
            let asked_at = Instant::now();
            let endpoint = self.clickhouse.endpoint_in_use();
            let request = *self.request.borrow_and_update();
            let mut server = self.server.borrow().clone();
            let previous_schema = server.schema.clone();
            // A full round reads the list of erased drivers, which must not become too old. A round
            // that queries only the clock may take `ANSWER_TIMEOUT`. So query only the clock if the
            // next full round will still be in time.
            let next_round_by = asked_at + CHECK_INTERVAL_UNREADY.max(ANSWER_TIMEOUT);
            let full_round_can_wait = last_full_round.is_some_and(|(at, queried)| {
                queried == endpoint && next_round_by < at + CHECK_INTERVAL_READY
            });
            let only_clock =
                full_round_can_wait && !list.has_failed && is_only_slow(&server, request);
            if !only_clock {
                last_full_round = Some((asked_at, endpoint));
            }
            // Publish the clock's result at once, because the query of the tables may take longer.
            let clock = async {
                match self.compare_clocks().await {
                    Ok(fault) => {
                        server.clock = Some(ClockComparison { fault, jumps: request.clock_jumps });
                        clock_query_fails = false;
                    }
                    // A transient error code, as of an overloaded server, is an answer too. If it
                    // counted as silence, the next answer would abort the running inserts. For the
                    // same reason, it does not end a silence: only a reported time does.
                    Err(Verdict { schema: Schema::Unknown(why), cause, code: Some(_) })
                        if server.answers.is_ok() =>
                    {
                        if let Some(cause) = cause {
                            self.clickhouse.leave_endpoint(endpoint, cause, &why);
                        }
                        clock_query_fails = true;
                        if clock_log.allow(&why, asked_at.into()) {
                            warn!(why, "ClickHouse does not report its time; retrying");
                        }
                    }
                    Err(verdict) => return Err(verdict),
                }
                server.answers = Ok(());
                self.server.send_replace(server.clone());
                Ok::<(), Verdict>(())
            };
            // Send both queries at once, because a start waits for the first round. If the query
            // for the clock gets no answer, ignore the answer about the tables.
            let tables = async {
                if only_clock {
                    return Ok(Ok(Verdict::from(Schema::Ready)));
                }
                Ok(self.check_tables_and_list(&previous_schema, &mut list).await)
            };
            let Verdict { schema, cause, .. } = match tokio::try_join!(clock, tables) {
                Ok(((), verdict)) => verdict?,
                Err(Verdict { schema: Schema::Unknown(why), cause, .. }) => {
                    if let Some(cause) = cause {
                        self.clickhouse.leave_endpoint(endpoint, cause, &why);
                    }
                    server.answers = Err(why.clone());
                    Verdict::from(Schema::Unknown(why))
                }
                // A refusal is an answer too, but no comparison of the clocks. Its cause also stops
                // the inserts, until an operator fixes it.
                Err(refused) => {
                    server.answers = Ok(());
                    refused
                }
            };
            // If an endpoint refuses and another one can be used, switch instead of reporting the
            // refusal: after a report, nothing would be inserted until the next round. Switch only
            // once before a report: if each endpoint refuses for a different reason, this loop
            // would otherwise never report.
            if let (Schema::Refused(why), Some(cause)) = (&schema, cause)
                && !std::mem::replace(&mut has_switched_endpoint, true)
                && tables::leave_for_usable_endpoint(&self.clickhouse, cause, why).await
            {
                last_full_round = None;
                continue;
            }
            has_switched_endpoint = false;
            // If the tables were ready and the server does not answer, keep `Ready`: while the
            // server is down, the inserts fail by themselves. But if the list is too old, report
            // that, because every insert would then be refused.
            if previous_schema != Schema::Ready
                || list.is_old()
                || !matches!(schema, Schema::Unknown(_))
            {
                (server.schema, server.refusals) = (schema, request.refusals);
            }
            log.report(&server, Instant::now());
            // Sent even if it is unchanged: the event loop may be waiting for an answer to its last
            // request.
            self.server.send_replace(server);
            self.wait(asked_at, request, list.has_failed || clock_query_fails).await;
        }
    }

    /// Checks the tables and reads the list of erased drivers. `previous_schema`: the tables'
    /// state after the previous round.
    async fn check_tables_and_list(
        &self,
        previous_schema: &Schema,
        list: &mut LastRead,
    ) -> Result<Verdict> {
        let list_timeout =
            if *previous_schema == Schema::Ready { LIST_TIMEOUT } else { Duration::MAX };
        // Publish the list at once: checking the tables may take longer than the last list may be
        // used, and every insert would then be refused.
        let read_list = async {
            match timeout(list_timeout, self.clickhouse.erased()).await {
                Ok(Ok(erased)) => {
                    *list = LastRead { read_at: Instant::now(), has_failed: false };
                    self.publish(&erased);
                    self.member.set_erased(self.erased.borrow().erased());
                    Ok(())
                }
                Ok(Err(error)) => Err(Verdict::from_error(&error)),
                Err(_) => Err(Schema::Unknown(format!("no answer within {LIST_TIMEOUT:?}")).into()),
            }
        };
        let (verdict, read) =
            tokio::join!(tables::judge(&self.clickhouse, previous_schema), read_list);
        let verdict = verdict?;
        let Err(list_failure) = read else { return Ok(verdict) };
        Ok(match verdict.schema {
            // While inserts run, the last list stays in force until it is too old.
            Schema::Ready | Schema::Unknown(_) if *previous_schema == Schema::Ready => {
                let list_verdict = list.after_failed_read(list_failure);
                let list_decides = verdict.schema == Schema::Ready || list.is_old();
                if list_decides { list_verdict } else { verdict }
            }
            Schema::Ready => list_failure,
            Schema::Unknown(_) | Schema::Refused(_) => verdict,
        })
    }

    /// Publishes the list of erased drivers. An unchanged list keeps its old `Arc`, because
    /// `Member::set_erased` counts the holders of each `Arc`.
    fn publish(&self, read: &ErasedSnapshot) {
        let is_same = self.erased.borrow().erased().digest() == read.erased().digest();
        if !is_same {
            info!(
                erased = ?read.erased(),
                "the list of erased drivers has changed: their rows are left out from now on"
            );
        }
        self.erased.send_modify(|last| {
            let list = Arc::clone(if is_same { last.erased() } else { read.erased() });
            *last = read.with_equal_list(list);
        });
    }

    /// Waits until the next round of queries is due. `answered`: the request that the last round
    /// has answered. If an insert was refused or the clock jumped since then, the next round is due
    /// at once. `query_failed`: the query for the clock or for the list is to be repeated soon.
    async fn wait(&mut self, asked_at: Instant, answered: WatcherRequest, query_failed: bool) {
        loop {
            let WatcherRequest { in_doubt, insert_is_slow, refusals, clock_jumps } =
                *self.request.borrow_and_update();
            let in_doubt = in_doubt
                || insert_is_slow
                || query_failed
                || self.server.borrow().answers.is_err()
                || self.server.borrow().schema != Schema::Ready;
            if (refusals, clock_jumps) != (answered.refusals, answered.clock_jumps) {
                return;
            }
            let until =
                asked_at + if in_doubt { CHECK_INTERVAL_UNREADY } else { CHECK_INTERVAL_READY };
            tokio::select! {
                () = sleep_until(until) => return,
                changed = self.request.changed() => if changed.is_err() {
                    // The event loop has ended: the process is ending.
                    return sleep_until(until).await;
                },
            }
        }
    }

    /// Queries the server's clock. Returns a message with the difference if it is more than
    /// `clock_tolerance`, else `None`. Fails if the server refuses or does not answer.
    async fn compare_clocks(&self) -> Result<Option<String>, Verdict> {
        let queried_at_ms = now_ms();
        let server_ms = match timeout(ANSWER_TIMEOUT, self.clickhouse.clock()).await {
            Ok(Ok(server_ms)) => server_ms,
            Ok(Err(error)) => return Err(Verdict::from_error(&error)),
            Err(_) => {
                let why = format!("no answer to a query within {ANSWER_TIMEOUT:?}");
                return Err(Verdict {
                    cause: Some(Cause::NoAnswer),
                    ..Schema::Unknown(why).into()
                });
            }
        };
        // The server read its clock between `queried_at_ms` and now, so a time in that range counts
        // as equal, however long the answer took.
        let difference_ms = server_ms - server_ms.max(queried_at_ms).min(now_ms());
        let difference = Duration::from_millis(difference_ms.unsigned_abs());
        let is_off = difference > self.clock_tolerance;
        Ok(is_off.then(|| {
            let direction = if difference_ms >= 0 { "ahead of" } else { "behind" };
            format!(
                "ClickHouse's clock is {difference:.0?} {direction} this host's, by more than \
                 decode.fix_future_max: no message is accepted until the clocks agree; synchronize \
                 both hosts with NTP"
            )
        }))
    }
}

/// Returns whether a slow insert is the only possible reason to doubt the server's state. Then it
/// is enough to query the server's clock.
fn is_only_slow(server: &ServerStatus, request: WatcherRequest) -> bool {
    server.schema == Schema::Ready
        && server.answers.is_ok()
        && server.refusals == request.refusals
        && !request.in_doubt
}

impl LastRead {
    fn is_old(&self) -> bool {
        self.has_failed && self.read_at.elapsed() >= LIST_AGE_MAX
    }

    /// Returns the tables' state after the list could not be read. If the server did not answer,
    /// the state stays `Ready` until the list is too old. If the server refused, the refusal is the
    /// state at once.
    fn after_failed_read(&mut self, failure: Verdict) -> Verdict {
        let Schema::Unknown(why) = failure.schema else { return failure };
        if !std::mem::replace(&mut self.has_failed, true) {
            warn!(why, "the list of erased drivers could not be read; retrying");
        }
        let age = self.read_at.elapsed().as_secs();
        let too_old =
            format!("the list of erased drivers is {age} s old, so nothing is inserted: {why}");
        if self.is_old() { Schema::Unknown(too_old) } else { Schema::Ready }.into()
    }
}

/// Limits log lines that would repeat with every query: only changes are logged, and the reason for
/// waiting at intervals.
struct Log {
    waiting: Throttle,
    was_silent: bool,
    had_clock_fault: bool,
    was_ready: bool,
}

impl Log {
    fn new() -> Self {
        Self {
            waiting: Throttle::every(WAITING_LOGGED_EVERY),
            was_silent: false,
            had_clock_fault: false,
            was_ready: false,
        }
    }

    fn report(&mut self, server: &ServerStatus, now: Instant) {
        match &server.schema {
            Schema::Ready => {
                self.waiting.reset();
                if !std::mem::replace(&mut self.was_ready, true) {
                    info!("ClickHouse answers, and its tables match this version");
                }
            }
            Schema::Unknown(why) | Schema::Refused(why) => {
                self.was_ready = false;
                if self.waiting.allow(now.into_std()) {
                    warn!(why, "waiting for ClickHouse");
                }
            }
        }
        let is_silent = server.schema == Schema::Ready && server.answers.is_err();
        match (&server.answers, std::mem::replace(&mut self.was_silent, is_silent)) {
            (Err(why), false) if is_silent => warn!(why, "ClickHouse does not answer"),
            (Ok(()), true) => info!("ClickHouse answers again"),
            (Err(_) | Ok(()), _) => {}
        }
        let clock_fault = server.clock.as_ref().and_then(|clock| clock.fault.as_ref());
        match (clock_fault, std::mem::replace(&mut self.had_clock_fault, clock_fault.is_some())) {
            (Some(why), false) => warn!("{why}"),
            (None, true) => info!("the clocks agree again"),
            (Some(_) | None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::run::delivery_config;
    use milepost_config::Config;
    use milepost_core::batch::Batch;
    use milepost_core::delivery::SpoolInventory;
    use milepost_core::delivery::events::{Outcome, Report};
    use milepost_core::delivery::policy::Delivery;
    use milepost_decode::Message;
    use milepost_decode::{Decoded, Decoder};
    use milepost_observe::now;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::time::sleep;

    const OK: &str = "200 OK";
    const ERROR: &str = "500 Internal Server Error";

    /// A server whose answer to the query for the clock is set by the test. Its list of erased
    /// drivers is empty. It answers every other query, so each one about the tables, with an error.
    struct ScriptedClickHouse {
        /// Status and body of the answer to the query for the clock.
        clock: Mutex<(&'static str, String)>,
        /// Time that an answer about the tables takes.
        tables_take: Duration,
    }

    impl ScriptedClickHouse {
        fn start(tables_take: Duration) -> (Arc<Self>, TcpListener) {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let server = Self { clock: Mutex::default(), tables_take };
            (Arc::new(server), TcpListener::from_std(listener).unwrap())
        }

        fn set_clock(&self, status: &'static str, body: impl Into<String>) {
            *self.clock.lock().unwrap() = (status, body.into());
        }

        async fn answer(&self, mut stream: TcpStream) {
            let mut request = vec![0; 65_536];
            let read = stream.read(&mut request).await.unwrap();
            let request = String::from_utf8_lossy(&request[..read]).to_lowercase();
            let (status, body) = if request.contains("now64") {
                self.clock.lock().unwrap().clone()
            } else if request.contains("is_lifted") {
                (OK, "\t20\t2\t0\n".to_owned())
            } else {
                sleep(self.tables_take).await;
                (ERROR, "Code: 159. DB::Exception: Timeout exceeded".to_owned())
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nX-ClickHouse-Summary: {{\"result_rows\":\"1\"}}\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            // The watcher cancels queries, so the connection may have ended.
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }

    /// Starts a watcher of this server. `before`: the status before the first query.
    fn watch_server(
        (server, listener): (Arc<ScriptedClickHouse>, TcpListener),
        before: ServerStatus,
    ) -> (watch::Receiver<ServerStatus>, watch::Receiver<ErasedSnapshot>) {
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let server = Arc::clone(&server);
                tokio::spawn(async move { server.answer(stream).await });
            }
        });
        let config = Config::parse(&format!("[clickhouse]\nurl = '{url}'")).unwrap();
        let (server, status) = watch::channel(before);
        let (erased, list) = watch::channel(ErasedSnapshot::default());
        let watcher = Watcher {
            clickhouse: Arc::new(ClickHouse::new(&config.clickhouse).unwrap()),
            server,
            erased,
            member: Arc::new(Member::new("m", "g", &[])),
            request: watch::channel(WatcherRequest::default()).1,
            clock_tolerance: Duration::from_secs(2),
        };
        tokio::spawn(watcher.run());
        (status, list)
    }

    /// A server that counts as silent and then answers has its running inserts aborted.
    #[tokio::test]
    async fn overloaded_server_does_not_count_as_silent() {
        for code in [202, 241] {
            let (server, listener) = ScriptedClickHouse::start(Duration::ZERO);
            server.set_clock(ERROR, format!("Code: {code}. DB::Exception: overloaded"));
            let before = ServerStatus { clock: None, ..ServerStatus::ready() };
            let (mut status, list) = watch_server((Arc::clone(&server), listener), before);
            let began = Instant::now();
            while status.borrow_and_update().clock.is_none() {
                status.changed().await.unwrap();
                assert_eq!(status.borrow().answers, Ok(()), "code {code}");
                server.set_clock(OK, format!("{}\n", now_ms()));
            }
            assert!(list.has_changed().unwrap(), "the list of erased drivers is used");
            let took = began.elapsed();
            assert!(took < Duration::from_secs(5), "the clock is queried again after {took:?}");
        }
    }

    /// An overloaded server may be silent and answer with error codes in turn. If each code ended a
    /// silence, its inserts would be aborted each time.
    #[tokio::test]
    async fn error_code_does_not_end_a_silence() {
        let (server, listener) = ScriptedClickHouse::start(Duration::ZERO);
        server.set_clock(ERROR, "Code: 202. DB::Exception: overloaded");
        let before = ServerStatus { answers: Err("silent".to_owned()), ..ServerStatus::ready() };
        let (mut status, _list) = watch_server((Arc::clone(&server), listener), before);
        status.changed().await.unwrap();
        assert!(status.borrow_and_update().answers.is_err());
        server.set_clock(OK, format!("{}\n", now_ms()));
        status.wait_for(|status| status.answers.is_ok()).await.unwrap();
    }

    #[tokio::test]
    async fn refused_login_does_not_count_as_a_comparison_of_the_clocks() {
        let (server, listener) = ScriptedClickHouse::start(Duration::ZERO);
        server.set_clock(ERROR, "Code: 516. DB::Exception: Authentication failed");
        let (mut status, _list) = watch_server((Arc::clone(&server), listener), initial_status());
        let is_refused = |status: &ServerStatus| matches!(status.schema, Schema::Refused(_));
        assert_eq!(status.wait_for(is_refused).await.unwrap().clock, None);
        server.set_clock(OK, format!("{}\n", now_ms()));
        let compared = status.wait_for(|status| status.clock.is_some()).await.unwrap();
        assert_eq!(compared.clock, Some(ClockComparison::default()));
    }

    #[tokio::test]
    async fn list_of_erased_drivers_is_used_while_the_tables_are_checked() {
        let (server, listener) = ScriptedClickHouse::start(Duration::from_secs(60));
        server.set_clock(OK, format!("{}\n", now_ms()));
        let (_status, mut list) = watch_server((server, listener), ServerStatus::ready());
        timeout(Duration::from_secs(5), list.changed()).await.unwrap().unwrap();
    }

    /// Simulates inserts of 50 ms, ten a second, for a minute.
    async fn healthy_traffic(config: Config, request: watch::Sender<WatcherRequest>) {
        let mut decoded = Decoded::default();
        let message = Message::new(b"drivers/d/gps", br#"{"lat":1,"lng":2}"#);
        Decoder::new(&config.sources, config.decode.clone()).decode(message, now(), &mut decoded);
        let mut policy = Delivery::new(delivery_config(&config), SpoolInventory::default());
        policy.handle_server_status(ServerStatus::ready(), Instant::now().into_std());
        for id in 0..600 {
            let batch = Batch { id, positions: decoded.positions.clone(), ..Batch::default() };
            policy.accept(batch, Instant::now().into_std());
            request.send_replace(policy.watcher_request(Instant::now().into_std()));
            let took = Duration::from_millis(50);
            sleep(took).await;
            let report = Report { batch: id, outcome: Outcome::Inserted { took, erased: 0 } };
            policy.handle_report(report, Instant::now().into_std());
            request.send_replace(policy.watcher_request(Instant::now().into_std()));
            sleep(took).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn healthy_traffic_keeps_the_query_interval_at_half_a_minute() {
        let config = Config::defaults().unwrap();
        let (request, latest_request) = watch::channel(WatcherRequest::default());
        let mut watcher = Watcher {
            clickhouse: Arc::new(ClickHouse::new(&config.clickhouse).unwrap()),
            server: watch::channel(ServerStatus::ready()).0,
            erased: watch::channel(ErasedSnapshot::default()).0,
            member: Arc::new(Member::new("m", "g", &[])),
            request: latest_request,
            clock_tolerance: Duration::from_secs(2),
        };
        let traffic = tokio::spawn(healthy_traffic(config, request));
        let mut rounds = 0;
        while !traffic.is_finished() {
            let answered = *watcher.request.borrow();
            watcher.wait(Instant::now(), answered, false).await;
            rounds += 1;
        }
        assert!(rounds <= 3, "{rounds} rounds of queries in a minute");
    }

    #[test]
    fn tables_are_queried_for_every_doubt_except_a_slow_insert() {
        let ready = ServerStatus::ready;
        let slow = WatcherRequest { insert_is_slow: true, ..WatcherRequest::default() };
        assert!(is_only_slow(&ready(), slow));
        assert!(!is_only_slow(&ready(), WatcherRequest { in_doubt: true, ..slow }));
        assert!(!is_only_slow(&ready(), WatcherRequest { refusals: 1, ..slow }));
        let silent = ServerStatus { answers: Err("no answer".to_owned()), ..ready() };
        let unknown = ServerStatus { schema: Schema::Unknown("no tables".to_owned()), ..ready() };
        assert!(!is_only_slow(&silent, slow) && !is_only_slow(&unknown, slow));
    }

    #[tokio::test(start_paused = true)]
    async fn unreadable_erased_list_stops_inserts_after_35_s() {
        let mut list = LastRead { read_at: Instant::now(), has_failed: false };
        let unknown = || Schema::Unknown("code 241".to_owned()).into();
        sleep(CHECK_INTERVAL_READY).await;
        assert_eq!(list.after_failed_read(unknown()).schema, Schema::Ready);
        assert!(!list.is_old());
        sleep(LIST_AGE_MAX - CHECK_INTERVAL_READY).await;
        let Schema::Unknown(why) = list.after_failed_read(unknown()).schema else { panic!() };
        assert!(why.contains("is 35 s old"), "{why}");
        assert!(list.is_old());
        let refused = Schema::Refused("a grant".to_owned());
        assert_eq!(list.after_failed_read(refused.clone().into()).schema, refused);
    }
}
