//! A server for tests, which answers every request with a configured answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Status and body of an answer; `None`: the connection ends without an answer.
pub(super) type Answer = Option<(u16, &'static str)>;

/// The summary of ClickHouse, as a further header.
const SUMMARY: &str =
    "x-clickhouse-summary: {\"written_rows\":\"0\",\"result_rows\":\"LINES\"}\r\n";

/// A server that gives the configured answer to each request.
pub(super) struct ScriptedServer {
    pub(super) url: String,
    /// Number of requests.
    request_count: Arc<AtomicUsize>,
    /// Answers to the requests that contain a text, in lower case; the first one applies.
    answers: Arc<Mutex<Vec<(&'static str, Answer)>>>,
    /// The requests, in lower case.
    requests: Arc<Mutex<Vec<String>>>,
    /// A further header of the answers, with its line end. `LINES` stands for the number of lines.
    pub(super) header: Arc<Mutex<&'static str>>,
}

impl ScriptedServer {
    /// Starts a server that gives this answer until [`Self::set_answer`] is called.
    pub(super) async fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let request_count = Arc::new(AtomicUsize::new(0));
        let answers = Arc::new(Mutex::new(vec![("", answer)]));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (counter, scripted) = (Arc::clone(&request_count), Arc::clone(&answers));
        let header = Arc::new(Mutex::new(SUMMARY));
        let (read, extra_header) = (Arc::clone(&requests), Arc::clone(&header));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = answer_request(stream, &counter, &scripted, &read, &extra_header).await;
            }
        });
        Self { url, request_count, answers, requests, header }
    }

    /// Returns the last request, in lower case.
    pub(super) fn request(&self) -> String {
        self.requests.lock().unwrap().last().cloned().unwrap_or_default()
    }

    /// Returns the requests since the last call, in lower case.
    pub(super) fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    pub(super) fn request_count(&self) -> usize {
        self.request_count.load(Ordering::SeqCst)
    }

    pub(super) fn set_answer(&self, answer: Answer) {
        *self.answers.lock().unwrap() = vec![("", answer)];
    }

    /// Sets the answer to the requests that contain this text, in lower case.
    pub(super) fn set_answer_to(&self, text: &'static str, answer: Answer) {
        self.answers.lock().unwrap().insert(0, (text, answer));
    }
}

/// Reads one request and answers it. The connection ends afterwards.
async fn answer_request(
    mut stream: TcpStream,
    request_count: &AtomicUsize,
    answers: &Mutex<Vec<(&'static str, Answer)>>,
    requests: &Mutex<Vec<String>>,
    header: &Mutex<&str>,
) -> Option<()> {
    let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
    let answer = loop {
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&chunk[..read]);
        let text = String::from_utf8_lossy(&request).to_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let is_chunked = head.contains("transfer-encoding: chunked");
        let length = length.and_then(|length| length.trim().parse().ok()).unwrap_or(0);
        let is_complete =
            if is_chunked { body.ends_with("0\r\n\r\n") } else { body.len() >= length };
        if is_complete {
            let answers = answers.lock().unwrap();
            let answer = answers.iter().find(|(part, _)| text.contains(part));
            requests.lock().unwrap().push(text.clone());
            break answer.and_then(|(_, answer)| *answer);
        }
    };
    request_count.fetch_add(1, Ordering::SeqCst);
    let (status, body) = answer?;
    let length = body.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close");
    let extra_header = *header.lock().unwrap();
    let extra_header = extra_header.replace("LINES", &body.lines().count().to_string());
    stream.write_all(format!("{head}\r\n{extra_header}\r\n{body}").as_bytes()).await.ok()
}
