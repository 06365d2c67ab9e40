//! Each fault does what it says, and ends.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::thread;
use std::time::Instant;

use lab_stack::wait_until;

use super::held::{HELD_BYTES, HELD_READS, Held};
use super::http::{Head, POST, REQUEST_LINE_BYTES};
use super::*;

const SOON: Duration = Duration::from_secs(20);
const A_WHILE: Duration = Duration::from_millis(120);

/// A server on a free port, with a thread for each connection.
fn server(handle: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let handle = Arc::new(handle);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handle = Arc::clone(&handle);
            thread::spawn(move || {
                let _ = stream.set_nodelay(true);
                handle(stream)
            });
        }
    });
    port
}

fn echo() -> u16 {
    server(|stream| io::copy(&mut &stream, &mut &stream).map(drop))
}

fn through(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// A connection that certainly exists: it has carried bytes both ways.
fn used(proxy: &Proxy) -> TcpStream {
    let mut stream = through(proxy);
    assert_eq!(answer(&mut stream, b"hello"), b"hello");
    stream
}

fn answer(stream: &mut TcpStream, sent: &[u8]) -> Vec<u8> {
    stream.write_all(sent).unwrap();
    read(stream, sent.len())
}

fn read(stream: &mut TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

fn is_silent(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(A_WHILE)).unwrap();
    let silent = matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(SOON)).unwrap();
    silent
}

fn is_reset(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

fn noise(len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// Sends from a thread of its own while the echo is read.
fn echoed(stream: &TcpStream, sent: &[u8]) -> Vec<u8> {
    thread::scope(|scope| {
        scope.spawn(|| (&mut &*stream).write_all(sent).unwrap());
        read(&mut stream.try_clone().unwrap(), sent.len())
    })
}

/// What an HTTP server saw: whole requests, and every byte.
#[derive(Default)]
struct Seen {
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

/// Answers `status` to each whole request, and keeps the connection.
fn http(status: &'static str) -> (u16, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let seen_by_server = Arc::clone(&seen);
    let port = server(move |mut stream| {
        let mut request = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let len = stream.read(&mut buffer)?;
            if len == 0 {
                return Ok(());
            }
            seen_by_server.bytes.fetch_add(len, Ordering::SeqCst);
            request.extend_from_slice(&buffer[..len]);
            if is_whole(&request) {
                request.clear();
                seen_by_server.requests.fetch_add(1, Ordering::SeqCst);
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok")?;
            }
        }
    });
    (port, seen)
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let len = head.rsplit_once("Content-Length: ").map_or(0, |(_, len)| len.parse().unwrap());
    body.len() >= len
}

fn insert(body: usize) -> Vec<u8> {
    post("INSERT+INTO+gps.positions+FORMAT+RowBinary", body)
}

fn select() -> Vec<u8> {
    post("SELECT+1", 10)
}

fn post(query: &str, body: usize) -> Vec<u8> {
    let head = format!(
        "POST /?async_insert=0&insert_deduplication_token=x&query={query} HTTP/1.1\r\nContent-Length: {body}"
    );
    format!("{head}\r\n\r\n{}", "b".repeat(body)).into_bytes()
}

/// The status of the answer, if one comes.
fn status(stream: &mut TcpStream, request: &[u8]) -> Option<String> {
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"ok") && !answer.ends_with(b"fault\n") && stream.read(&mut byte).ok()? == 1 {
        answer.push(byte[0]);
    }
    String::from_utf8(answer).unwrap().split(' ').nth(1).map(str::to_owned)
}

fn status_is(stream: &mut TcpStream, request: &[u8], expected: &str) {
    assert_eq!(status(stream, request).as_deref(), Some(expected));
}

#[test]
fn ten_megabytes_pass_unchanged_both_ways() {
    let proxy = Proxy::start(echo()).unwrap();
    let sent = noise(10_000_000);
    assert!(echoed(&through(&proxy), &sent) == sent);
}

#[test]
fn small_writes_pass_at_once() {
    let port = server(|mut stream| {
        loop {
            let mut request = [0; 4];
            stream.read_exact(&mut request)?;
            stream.write_all(&request)?;
        }
    });
    let proxy = Proxy::start(port).unwrap();
    let mut stream = through(&proxy);
    let mut took: Vec<Duration> = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        stream.write_all(b"pi").unwrap();
        thread::sleep(Duration::from_millis(1)); // two segments: the second must not wait for an ack
        assert_eq!(answer(&mut stream, b"ng"), b"pi");
        assert_eq!(read(&mut stream, 2), b"ng");
        took.push(began.elapsed());
    }
    took.sort_unstable();
    assert!(took[50] < Duration::from_millis(30), "a delayed ack is 40 ms: {:?}", took[50]);
}

#[test]
fn half_close_is_passed_on() {
    let port = server(|mut stream| {
        let mut received = Vec::new();
        stream.read_to_end(&mut received)?;
        received.reverse();
        stream.write_all(&received)
    });
    let proxy = Proxy::start(port).unwrap();
    let mut stream = through(&proxy);
    stream.write_all(b"abc").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "cba");
}

#[test]
fn refuse_cuts_old_and_new_connections() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut old = used(&proxy);
    proxy.set(Fault::Refuse);
    assert!(is_reset(&mut old));
    assert!(is_reset(&mut through(&proxy)));
    proxy.set(Fault::None);
    used(&proxy);
}

#[test]
fn cut_cuts_old_connections_once() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut old = used(&proxy);
    proxy.set(Fault::Cut);
    assert!(is_reset(&mut old));
    assert_eq!(proxy.fault(), Fault::None);
    let mut new = used(&proxy);
    assert_eq!(answer(&mut new, b"again"), b"again");
}

#[test]
fn a_cut_reaches_the_server_too() {
    let ends = Arc::new(AtomicUsize::new(0));
    let ends_of_server = Arc::clone(&ends);
    let port = server(move |stream| {
        let copied = io::copy(&mut &stream, &mut &stream);
        ends_of_server.fetch_add(usize::from(copied.is_err()), Ordering::SeqCst);
        Ok(())
    });
    let proxy = Proxy::start(port).unwrap();
    let _old = used(&proxy);
    proxy.set(Fault::Cut);
    wait_until("the server sees a reset", SOON, || Ok(ends.load(Ordering::SeqCst) == 1)).unwrap();
}

#[test]
fn hang_both_holds_everything_and_loses_nothing() {
    let came = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&came);
    let port = server(move |mut stream| {
        let mut bytes = [0; 64];
        loop {
            let len = stream.read(&mut bytes)?;
            counts.fetch_add(len, Ordering::SeqCst);
            stream.write_all(&bytes[..len])?;
        }
    });
    let proxy = Proxy::start(port).unwrap();
    let mut old = used(&proxy);
    proxy.set(Fault::HangBoth);
    let mut new = through(&proxy);
    for part in [b"one ", b"two ", b"end."] {
        old.write_all(part).unwrap();
        new.write_all(part).unwrap();
    }
    assert!(is_silent(&mut old) && is_silent(&mut new));
    assert_eq!(came.load(Ordering::SeqCst), 5, "before it hung");
    proxy.set(Fault::None);
    assert_eq!(read(&mut old, 12), b"one two end.");
    assert_eq!(read(&mut new, 12), b"one two end.");
}

#[test]
fn what_is_held_back_is_bounded_and_complete() {
    let proxy = Proxy::start(echo()).unwrap();
    let stream = used(&proxy);
    proxy.set(Fault::HangBoth);
    let sent = noise(40_000_000);
    let written = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for part in sent.chunks(100_000) {
                (&mut &stream).write_all(part).unwrap();
                written.fetch_add(part.len(), Ordering::SeqCst);
            }
        });
        thread::sleep(A_WHILE * 3);
        assert!(written.load(Ordering::SeqCst) < 30_000_000, "the sender was not slowed down");
        proxy.set(Fault::None);
        assert!(read(&mut stream.try_clone().unwrap(), sent.len()) == sent);
    });
}

#[test]
fn held_has_a_bound_in_bytes_and_in_reads() {
    let mut held = Held::default();
    held.push(&noise(HELD_BYTES - 1), tokio::time::Instant::now());
    assert_eq!(held.room(), 1);
    held.advance(HELD_BYTES - 1);
    for _ in 0..HELD_READS {
        assert_eq!(held.end.is_none(), held.room() > 0);
        held.push(b"x", tokio::time::Instant::now());
    }
    assert_eq!(held.room(), 0);
}

#[test]
fn half_open_swallows_what_goes_up_and_ends_with_a_cut() {
    let received = Arc::new(AtomicUsize::new(0));
    let received_by_server = Arc::clone(&received);
    let port = server(move |stream| {
        let mut ticks = stream.try_clone()?;
        thread::spawn(move || {
            for _ in 0..200 {
                ticks.write_all(b".")?;
                thread::sleep(Duration::from_millis(10));
            }
            io::Result::Ok(())
        });
        for _byte in io::BufReader::new(stream).bytes().map_while(io::Result::ok) {
            received_by_server.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    });
    let proxy = Proxy::start(port).unwrap();
    let mut stream = through(&proxy);
    stream.write_all(b"before").unwrap();
    wait_until("it arrives", SOON, || Ok(received.load(Ordering::SeqCst) == 6)).unwrap();
    proxy.set(Fault::HalfOpen);
    stream.write_all(b"lost").unwrap();
    assert_eq!(read(&mut stream, 30), [b'.'; 30]);
    proxy.set(Fault::None);
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(received.load(Ordering::SeqCst), 6);
    through(&proxy).write_all(b"after").unwrap();
    wait_until("new ones pass", SOON, || Ok(received.load(Ordering::SeqCst) == 11)).unwrap();
}

#[test]
fn half_open_swallows_the_clients_end() {
    let ended = Arc::new(AtomicUsize::new(0));
    let ended_at_server = Arc::clone(&ended);
    let port = server(move |stream| {
        let _ = io::copy(&mut &stream, &mut &stream);
        ended_at_server.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let proxy = Proxy::start(port).unwrap();
    let stream = used(&proxy);
    proxy.set(Fault::HalfOpen);
    drop(stream);
    thread::sleep(A_WHILE);
    assert_eq!(ended.load(Ordering::SeqCst), 0);
    proxy.set(Fault::None);
    wait_until("the server sees the cut", SOON, || Ok(ended.load(Ordering::SeqCst) == 1)).unwrap();
}

#[test]
fn hang_down_passes_requests_and_answers_later() {
    let (port, seen) = http("200 OK");
    let proxy = Proxy::start(port).unwrap();
    let mut stream = through(&proxy);
    proxy.set(Fault::HangDown);
    stream.write_all(&insert(100)).unwrap();
    wait_until("the server has it", SOON, || Ok(seen.requests.load(Ordering::SeqCst) == 1)).unwrap();
    assert!(is_silent(&mut stream));
    proxy.set(Fault::None);
    status_is(&mut stream, b"", "200");
    status_is(&mut stream, &select(), "200");
}

#[test]
fn a_swallowed_answer_is_of_a_whole_insert() {
    let (port, seen) = http("200 OK");
    let proxy = Proxy::start(port).unwrap();
    let mut stream = through(&proxy);
    proxy.set(Fault::SwallowAnswer { count: 2 });
    for left in [Fault::SwallowAnswer { count: 1 }, Fault::None] {
        status_is(&mut stream, &select(), "200");
        assert_eq!(status(&mut stream, &insert(300_000)), None);
        assert_eq!(proxy.fault(), left);
        stream = through(&proxy);
    }
    assert_eq!(seen.requests.load(Ordering::SeqCst), 4);
    assert_eq!(proxy.inserts_hit(), 2);
    status_is(&mut stream, &insert(10), "200");
}

#[test]
fn an_error_is_not_swallowed() {
    let (port, _) = http("503 Busy");
    let proxy = Proxy::start(port).unwrap();
    proxy.set(Fault::SwallowAnswer { count: 1 });
    status_is(&mut through(&proxy), &insert(10), "503");
    assert_eq!(proxy.fault(), Fault::SwallowAnswer { count: 1 });
}

#[test]
fn status_500_is_answered_here() {
    let (port, seen) = http("200 OK");
    let proxy = Proxy::start(port).unwrap();
    let mut stream = through(&proxy);
    proxy.set(Fault::Status500 { count: 1 });
    status_is(&mut stream, &select(), "200");
    stream.write_all(&insert(5_000_000)).unwrap();
    status_is(&mut stream, b"", "500");
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "Connection: close");
    assert_eq!(seen.bytes.load(Ordering::SeqCst), select().len());
    status_is(&mut through(&proxy), &insert(3_000), "200");
    assert_eq!(proxy.inserts_hit(), 1);
}

#[test]
fn an_insert_is_recognised_byte_by_byte() {
    let (port, seen) = http("200 OK");
    let proxy = Proxy::start(port).unwrap();
    proxy.set(Fault::Status500 { count: 1 });
    let mut stream = through(&proxy);
    let request = insert(1);
    for byte in &request[..request.len() - 1] {
        stream.write_all(&[*byte]).unwrap();
    }
    status_is(&mut stream, &request[request.len() - 1..], "500");
    assert_eq!(seen.bytes.load(Ordering::SeqCst), 0);
}

#[test]
fn heads_are_read_as_they_are() {
    let line = |text: &str| Head::of(text.as_bytes(), true);
    assert_eq!(line("POST /?database=gps&query=insert+INTO+t HTTP/1.1\r\n"), Head::Insert);
    assert_eq!(line("POST /?async_insert=1&query=SELECT+1 HTTP/1.1\r\n"), Head::Other);
    assert_eq!(line("POST / HTTP/1.1\r\n\r\nquery=insert"), Head::Other);
    assert_eq!(line("GET /?query=INSERT HTTP/1.1\r\n"), Head::Other);
    assert_eq!(line("POST /?query=INS"), Head::Unclear);
    assert_eq!(line("PO"), Head::Unclear);
    assert_eq!(Head::of(b"PO", false), Head::Other);
    assert_eq!(Head::of(&[POST, &[b'x'; REQUEST_LINE_BYTES]].concat(), true), Head::Other);
}

#[test]
fn reset_mid_body_cuts_after_so_many_bytes() {
    let (port, seen) = http("200 OK");
    let proxy = Proxy::start(port).unwrap();
    proxy.set(Fault::ResetMidBody { after_bytes: 1_000, count: 1 });
    let mut stream = through(&proxy);
    status_is(&mut stream, &insert(10), "200");
    status_is(&mut stream, &post("SELECT+1", 5_000), "200");
    let before = seen.bytes.load(Ordering::SeqCst);
    stream.write_all(&insert(5_000)).unwrap();
    assert!(is_reset(&mut stream));
    let came = || seen.bytes.load(Ordering::SeqCst) - before;
    wait_until("its beginning has come", SOON, || Ok(came() >= 1_000)).unwrap();
    assert_eq!(came(), 1_000);
    assert_eq!(seen.requests.load(Ordering::SeqCst), 2);
    assert_eq!((proxy.fault(), proxy.inserts_hit()), (Fault::None, 1));
    status_is(&mut through(&proxy), &insert(5_000), "200");
}

#[test]
fn reset_mid_body_at_0_lets_nothing_up() {
    let (port, seen) = http("200 OK");
    let proxy = Proxy::start(port).unwrap();
    proxy.set(Fault::ResetMidBody { after_bytes: 0, count: 1 });
    assert_eq!(status(&mut through(&proxy), &insert(10)), None);
    assert_eq!(seen.bytes.load(Ordering::SeqCst), 0);
}

#[test]
fn delay_adds_to_each_way_and_keeps_order() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = used(&proxy);
    proxy.set(Fault::Delay(Duration::from_millis(60)));
    let began = Instant::now();
    for part in [b"one ", b"two ", b"end."] {
        stream.write_all(part).unwrap();
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(read(&mut stream, 12), b"one two end.");
    assert!(began.elapsed() >= Duration::from_millis(120), "{:?}", began.elapsed());
    proxy.set(Fault::Delay(Duration::from_millis(200)));
    let began = Instant::now();
    for byte in 0..50 {
        stream.write_all(&[byte]).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(read(&mut stream, 50), (0..50).collect::<Vec<u8>>());
    assert!(began.elapsed() < Duration::from_secs(6), "20 s one by one: {:?}", began.elapsed());
    proxy.set(Fault::None);
    let mut quick = || {
        let began = Instant::now();
        answer(&mut stream, b"quick");
        began.elapsed()
    };
    assert!((0..10).any(|_| quick() < Duration::from_millis(120)), "the delay has ended");
}

#[test]
fn other_protocols_pass_byte_by_byte() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = through(&proxy);
    for byte in [0x10, b'P', b'O', b'P'] {
        assert_eq!(answer(&mut stream, &[byte]), [byte]);
    }
}

#[test]
fn a_server_that_is_not_there_yet_means_a_cut() {
    let port = lab_stack::free_port().unwrap();
    let proxy = Proxy::start(port).unwrap();
    assert!(is_reset(&mut through(&proxy)));
}

#[test]
fn dropping_it_closes_everything() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = used(&proxy);
    let port = proxy.port;
    drop(proxy);
    assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
}
