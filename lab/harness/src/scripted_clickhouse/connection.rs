//! One connection: reads requests, and answers INSERTs from the script.

use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lab_stack::lock;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::answers;
use super::message::{Body, Head};
use super::script::{Behaviour, HangAt, ReceivedInsert, SUMMARY, Script, Shared, TooLarge};

/// Body length of [`Behaviour::HugeError`], in bytes.
const HUGE_ERROR_BYTES: usize = 600 << 20;
/// Piece of an endless or huge body.
const LONG_ERROR_PIECE: &[u8] = &[b'e'; 64 * 1024];
/// Pause between two pieces of an endless body. At up to 64 MiB a second, such a body soon fills
/// the memory of a client that keeps it.
const LONG_ERROR_PAUSE: Duration = Duration::from_millis(1);

/// The next step for a connection after an answer.
#[derive(Debug, PartialEq, Eq)]
enum AfterAnswer {
    /// Reads the next request.
    Next,
    Close,
    Reset,
}

/// The server's end of one connection.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
    shared: Arc<Shared>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, shared: Arc<Shared>) -> Self {
        Self { stream: BufReader::new(stream), shared }
    }

    /// Answers requests one after the other.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        self.stream.get_ref().set_nodelay(true)?;
        while let Some(head) = Head::read(&mut self.stream).await? {
            let after =
                if head.is_insert() { self.insert(head).await } else { self.forward(&head).await }?;
            match after {
                AfterAnswer::Next => {}
                AfterAnswer::Close => break,
                AfterAnswer::Reset => return self.stream.get_ref().set_zero_linger(),
            }
        }
        Ok(())
    }

    /// Forwards a request that is not an INSERT.
    async fn forward(&mut self, head: &Head) -> io::Result<AfterAnswer> {
        let mut body = Vec::new();
        Body::request(head).pull_all(&mut self.stream, &mut body).await?;
        let answer = self.shared.ask_engine(head, &body).await?;
        self.relay(answer).await
    }

    /// Reads the body of an INSERT, and answers as the script says.
    async fn insert(&mut self, head: Head) -> io::Result<AfterAnswer> {
        let ((script, _counted), began) = (self.shared.begin_insert(), Instant::now());
        let body = match self.read_rows(&head, script).await? {
            Rows::Whole(body) => body,
            Rows::TooLarge(then) => return self.refuse(then).await,
            Rows::Reset => {
                self.shared.hit();
                return Ok(AfterAnswer::Reset);
            }
        };
        let mut hasher = DefaultHasher::new();
        hasher.write(&body);
        let token = head.parameter("insert_deduplication_token").unwrap_or_default();
        let received = ReceivedInsert { token, body_hash: hasher.finish() };
        self.shared.received().push(received.clone());
        if let Behaviour::ReplicaDies { code } = script.behaviour {
            return self.answer_as_replica(code, &head, &body, received).await;
        }
        self.answer(script, head, &body, began).await
    }

    /// Reads the body as far as the script allows.
    async fn read_rows(&mut self, head: &Head, script: Script) -> io::Result<Rows> {
        if script.behaviour == Behaviour::Hang(HangAt::BeforeBody) {
            self.shared.wait_for_release(script).await;
        }
        let (mut body, mut incoming) = (Vec::new(), Body::request(head));
        let mut hangs = script.behaviour == Behaviour::Hang(HangAt::InBody);
        while incoming.pull(&mut self.stream, &mut body).await? {
            if let Behaviour::TooLarge { body_bytes_max, then } = script.behaviour
                && then != TooLarge::AnswersAfterBody
                && body.len() > body_bytes_max
            {
                return Ok(Rows::TooLarge(then));
            }
            if let Behaviour::ResetInBody { after_bytes } = script.behaviour
                && body.len() >= after_bytes
            {
                return Ok(Rows::Reset);
            }
            if hangs && !body.is_empty() {
                self.shared.wait_for_release(script).await;
                hangs = false;
            }
        }
        if let Behaviour::TooLarge { body_bytes_max, then } = script.behaviour
            && body.len() > body_bytes_max
        {
            return Ok(Rows::TooLarge(then));
        }
        Ok(Rows::Whole(body))
    }

    /// Refuses an INSERT whose body is too large.
    async fn refuse(&mut self, then: TooLarge) -> io::Result<AfterAnswer> {
        if then != TooLarge::Resets {
            self.send(&answers::page(413)).await?;
        }
        Ok(if then == TooLarge::AnswersAfterBody { AfterAnswer::Next } else { AfterAnswer::Reset })
    }

    async fn answer(
        &mut self,
        script: Script,
        head: Head,
        body: &[u8],
        began: Instant,
    ) -> io::Result<AfterAnswer> {
        match script.behaviour {
            Behaviour::Honest
            | Behaviour::ReplicaDies { .. }
            | Behaviour::HonestWithoutSummary
            | Behaviour::RoundRobin
            | Behaviour::ResetInBody { .. }
            | Behaviour::SwallowAnswer
            | Behaviour::Slow(_)
            | Behaviour::TooLarge { .. }
            | Behaviour::Hang(HangAt::BeforeBody | HangAt::InBody | HangAt::AfterStoring) => {
                self.answer_honestly(script, &head, body, began).await
            }
            Behaviour::Hang(HangAt::Forever) => std::future::pending().await,
            Behaviour::Hang(HangAt::AfterBody) => {
                self.shared.wait_for_release(script).await;
                Ok(AfterAnswer::Reset)
            }
            Behaviour::ExceptionInChunks => {
                for piece in answers::exception_in_chunks() {
                    self.send(&piece).await?;
                }
                Ok(AfterAnswer::Next)
            }
            Behaviour::ExceptionCutInMarker => {
                self.respond(&answers::exception_cut_in_its_marker()).await?;
                Ok(AfterAnswer::Close)
            }
            Behaviour::ExceptionCutInText => {
                self.respond(&answers::exception_cut_in_its_text()).await?;
                Ok(AfterAnswer::Close)
            }
            Behaviour::ExceptionInOldFormat => {
                self.respond(&answers::exception_in_the_old_format()).await
            }
            Behaviour::BodyDropped => {
                let answer = self.shared.ask_engine(&head, &[]).await?;
                self.relay(answer).await
            }
            Behaviour::PageWithStatus200 => self.respond(&answers::page(200)).await,
            Behaviour::EmptyWithoutSummary => self.respond(&answers::empty()).await,
            Behaviour::EndlessError => self.send_endless_error().await,
            Behaviour::HugeError => self.send_huge_error().await,
            Behaviour::Redirect { port } => {
                self.respond(&answers::redirect(port, head.target())).await
            }
            Behaviour::ProxyError { status } => {
                self.shared.hit();
                self.respond(&answers::page_with_a_quotation(status)).await
            }
            Behaviour::ViewFailed => {
                self.shared.ask_engine(&head, body).await?;
                self.respond(&answers::view_failed()).await
            }
            Behaviour::ClickHouseError { code, stored } => {
                if stored {
                    self.shared.ask_engine(&head, body).await?;
                }
                self.shared.hit();
                self.respond(&answers::error(code)).await
            }
        }
    }

    /// Answers as the replica that takes the rows and dies if the body is new. Otherwise answers as
    /// the other replica, which may know the token. See [`Behaviour::ReplicaDies`].
    async fn answer_as_replica(
        &mut self,
        code: u32,
        head: &Head,
        body: &[u8],
        received: ReceivedInsert,
    ) -> io::Result<AfterAnswer> {
        let known_token = {
            let mut tokens = lock(&self.shared.tokens);
            let token = tokens.get(&received.body_hash).cloned();
            tokens.entry(received.body_hash).or_insert_with(|| received.token.clone());
            token
        };
        let needs_quorum =
            head.parameter("insert_quorum").is_some_and(|quorum| !matches!(&*quorum, "0" | "1"));
        match known_token {
            None => self.respond(&answers::error(code)).await,
            Some(token) if token != received.token => {
                let answer = self.shared.ask_engine(head, body).await?;
                self.relay(answer).await
            }
            Some(_) if needs_quorum => self.respond(&answers::error(319)).await,
            Some(_) => self.respond(&answers::known_already()).await,
        }
    }

    /// Forwards the INSERT to the engine, and relays the engine's answer.
    async fn answer_honestly(
        &mut self,
        script: Script,
        head: &Head,
        body: &[u8],
        began: Instant,
    ) -> io::Result<AfterAnswer> {
        if let Behaviour::Slow(delay) = script.behaviour {
            tokio::time::sleep(delay).await;
        }
        let (mut head, body) = self.shared.ask_engine(head, body).await?;
        if script.behaviour == Behaviour::Hang(HangAt::AfterStoring) {
            self.shared.wait_for_release(script).await;
        }
        if head.first_line.starts_with("HTTP/1.1 200") {
            lock(&self.shared.durations).push(began.elapsed());
            // Read the script again: an INSERT that hung until now follows the new behaviour.
            if self.shared.script.borrow().behaviour == Behaviour::SwallowAnswer {
                self.shared.hit();
                return Ok(AfterAnswer::Reset);
            }
        }
        if script.behaviour == Behaviour::HonestWithoutSummary {
            head.remove(SUMMARY);
        }
        self.relay((head, body)).await
    }

    async fn send_endless_error(&mut self) -> io::Result<AfterAnswer> {
        self.send(&answers::head_of_a_long_error(None)).await?;
        let size = format!("{:x}\r\n", LONG_ERROR_PIECE.len());
        loop {
            for part in [size.as_bytes(), LONG_ERROR_PIECE, b"\r\n"] {
                self.send(part).await?;
            }
            tokio::time::sleep(LONG_ERROR_PAUSE).await;
        }
    }

    async fn send_huge_error(&mut self) -> io::Result<AfterAnswer> {
        self.send(&answers::head_of_a_long_error(Some(HUGE_ERROR_BYTES as u64))).await?;
        for _ in 0..HUGE_ERROR_BYTES / LONG_ERROR_PIECE.len() {
            self.send(LONG_ERROR_PIECE).await?;
        }
        Ok(AfterAnswer::Next)
    }

    async fn relay(&mut self, (head, body): (Head, Vec<u8>)) -> io::Result<AfterAnswer> {
        self.send(&head.to_bytes(body.len(), "keep-alive")).await?;
        self.send(&body).await?;
        Ok(AfterAnswer::Next)
    }

    async fn respond(&mut self, bytes: &[u8]) -> io::Result<AfterAnswer> {
        self.send(bytes).await?;
        Ok(AfterAnswer::Next)
    }

    async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes).await
    }
}

/// Outcome of reading a body.
enum Rows {
    Whole(Vec<u8>),
    /// The body exceeds the limit of [`Behaviour::TooLarge`].
    TooLarge(TooLarge),
    Reset,
}
