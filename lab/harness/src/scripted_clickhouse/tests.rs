//! Each behaviour does what it says, seen by a client that knows no more than HTTP.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use super::*;
use lab_stack::wait_until;

const SOON: Duration = Duration::from_secs(120);
const A_WHILE: Duration = Duration::from_millis(150);
/// More than the sockets between two processes hold.
const LARGE_BYTES: usize = 16 << 20;
const SUMMARY_LINE: &str = "X-ClickHouse-Summary: {\"written_rows\":\"7\"}";

/// Stands where the engine does, and keeps the bodies it was given.
#[derive(Clone, Default)]
struct Engine {
    got: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Engine {
    /// Returns its URL. Each answer is 200, with a summary; its body names the engine and what was asked.
    fn start(&self, name: &'static str) -> String {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let got = Arc::clone(&self.got);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut stream = BufReader::new(stream);
                let (target, body) = read_request(&mut stream);
                let answer =
                    if target.contains("query=INSERT") { String::new() } else { format!("{name}: {target}") };
                got.lock().unwrap().push(body);
                let head = format!("HTTP/1.1 200 OK\r\n{SUMMARY_LINE}\r\nTransfer-Encoding: chunked\r\n\r\n");
                let chunk = format!("{:x}\r\n{answer}\r\n", answer.len());
                let body = if answer.is_empty() { String::new() } else { chunk };
                stream.get_mut().write_all(format!("{head}{body}0\r\n\r\n").as_bytes()).unwrap();
            }
        });
        url
    }

    fn bodies(&self) -> Vec<Vec<u8>> {
        self.got.lock().unwrap().clone()
    }
}

fn read_request(stream: &mut BufReader<TcpStream>) -> (String, Vec<u8>) {
    let (mut first, mut length) = (String::new(), 0);
    stream.read_line(&mut first).unwrap();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (first.split(' ').nth(1).unwrap().to_owned(), body)
}

/// A server with an engine behind it, and a connection to it.
struct Scene {
    server: ScriptedClickHouse,
    engine: Engine,
    client: TcpStream,
}

fn scene(behaviour: Behaviour) -> Scene {
    let engine = Engine::default();
    let server = ScriptedClickHouse::start(&[engine.start("one")]).unwrap();
    server.set(behaviour);
    let client = connected(&server);
    Scene { server, engine, client }
}

fn connected(server: &ScriptedClickHouse) -> TcpStream {
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client.set_nodelay(true).unwrap();
    client
}

/// An insert as milepost sends it: in chunks.
fn insert(token: &str, body: &[u8]) -> Vec<u8> {
    let parameters = format!("query=INSERT%20INTO%20t%20FORMAT+RowBinary&insert_deduplication_token={token}");
    let head = format!("POST /?{parameters} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    [head.as_bytes(), format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n0\r\n\r\n"].concat()
}

/// The next bytes, up to those that end what is waited for.
fn read_until(client: &mut TcpStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap_or_else(|error| {
            panic!("{error} after {}, before {end:?}", String::from_utf8_lossy(&bytes))
        });
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

/// Head and body of an answer with a length, after which the connection goes on.
fn answer(client: &mut TcpStream) -> (String, String) {
    let head = read_until(client, "\r\n\r\n");
    let length = head.split_once("Content-Length: ").unwrap().1.split_once("\r\n").unwrap().0;
    let mut body = vec![0; length.parse().unwrap()];
    client.read_exact(&mut body).unwrap();
    (head, String::from_utf8(body).unwrap())
}

fn ask(scene: &mut Scene, request: &[u8]) -> (String, String) {
    scene.client.write_all(request).unwrap();
    answer(&mut scene.client)
}

fn is_silent(client: &mut TcpStream) -> bool {
    client.set_read_timeout(Some(A_WHILE)).unwrap();
    let silent = matches!(client.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock);
    client.set_read_timeout(Some(SOON)).unwrap();
    silent
}

/// A reset is told once: to whoever reads or writes first.
fn ends_without_a_byte(client: &mut TcpStream) -> bool {
    match client.read(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn an_honest_one_stores_and_relays() {
    let mut scene = scene(Behaviour::Honest);
    for (token, rows) in [("a", b"rows".as_slice()), ("b", b"other rows"), ("a", b"rows")] {
        let (head, body) = ask(&mut scene, &insert(token, rows));
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(SUMMARY_LINE), "{head}");
        assert!(head.contains("Connection: keep-alive"), "{head}");
        assert_eq!(body, "");
    }
    assert_eq!(scene.engine.bodies(), [b"rows".as_slice(), b"other rows", b"rows"]);
    let seen = scene.server.seen();
    let tokens: Vec<&str> = seen.iter().map(|seen| seen.token.as_str()).collect();
    assert_eq!(tokens, ["a", "b", "a"]);
    assert!(seen[0] == seen[2] && seen[0].body_hash != seen[1].body_hash);
}

#[test]
fn other_statements_reach_the_engine_whatever_the_behaviour() {
    let mut scene = scene(Behaviour::PageWithStatus200);
    let (_, body) = ask(&mut scene, b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(body, "one: /ping");
    // Its rows are not in the body alone: no INSERT in the sense of the script.
    let statement = b"INSERT INTO schema_migrations VALUES (1)";
    let head = format!("POST /?a=1 HTTP/1.1\r\nContent-Length: {}\r\n\r\n", statement.len());
    let (_, body) = ask(&mut scene, &[head.as_bytes(), statement].concat());
    assert_eq!(body, "one: /?a=1");
    assert_eq!(scene.engine.bodies(), [b"".as_slice(), statement]);
    assert_eq!(scene.server.seen(), []);
}

#[test]
fn a_hang_lasts_until_it_is_released() {
    for at in [HangAt::BeforeBody, HangAt::InBody, HangAt::AfterBody, HangAt::AfterStoring] {
        let mut scene = scene(Behaviour::Hang(at));
        let body = vec![7; LARGE_BYTES];
        let (written, is_written) = sync_channel(1);
        write_in_background(&scene.client, insert("a", &body), written);
        let reads_all = matches!(at, HangAt::AfterBody | HangAt::AfterStoring);
        assert_eq!(
            is_written.recv_timeout(if reads_all { SOON } else { A_WHILE }).is_ok(),
            reads_all,
            "{at:?}"
        );
        if at == HangAt::AfterStoring {
            wait_until("it is stored", SOON, || Ok(scene.engine.bodies().contains(&body))).unwrap();
        }
        assert!(is_silent(&mut scene.client), "{at:?}");
        let (_, beside) = {
            let mut beside = connected(&scene.server);
            beside.write_all(b"GET /ping HTTP/1.1\r\n\r\n").unwrap();
            answer(&mut beside)
        };
        assert_eq!(beside, "one: /ping", "other statements do not hang");

        scene.server.set(Behaviour::Honest);
        if at == HangAt::AfterBody {
            assert!(ends_without_a_byte(&mut scene.client));
        } else {
            let (head, _) = answer(&mut scene.client);
            assert!(head.starts_with("HTTP/1.1 200 ") && head.contains(SUMMARY_LINE), "{at:?}: {head}");
        }
        assert_eq!(scene.engine.bodies().contains(&body), at != HangAt::AfterBody, "{at:?}");
    }
}

fn write_in_background(client: &TcpStream, bytes: Vec<u8>, written: SyncSender<()>) {
    let mut client = client.try_clone().unwrap();
    thread::spawn(move || {
        // A hang that ends in a reset breaks it.
        if client.write_all(&bytes).is_ok() {
            let _ = written.send(());
        }
    });
}

#[test]
fn so_many_inserts_are_hit_and_then_none() {
    let mut scene = scene(Behaviour::Honest);
    scene.server.set_for(2, Behaviour::SwallowAnswer);
    for _ in 0..2 {
        scene.client.write_all(&insert("a", b"rows")).unwrap();
        assert!(ends_without_a_byte(&mut scene.client));
        scene.client = connected(&scene.server);
    }
    assert!(
        scene.server.is_honest() && scene.engine.bodies() == [b"rows", b"rows"],
        "stored, and not answered"
    );
    scene.server.set_for(1, Behaviour::ResetInBody { after_bytes: 1_000 });
    assert!(ask(&mut scene, &insert("b", b"short")).0.starts_with("HTTP/1.1 200 "), "too short to be cut");
    let _ = scene.client.write_all(&insert("c", &[0; 100_000]));
    assert!(ends_without_a_byte(&mut scene.client));
    scene.client = connected(&scene.server);
    assert!(ask(&mut scene, &insert("c", &[0; 100_000])).0.starts_with("HTTP/1.1 200 "));
    assert_eq!(scene.engine.bodies().len(), 4);
    assert_eq!((scene.server.hits(), scene.server.inserts_answered()), (3, 4));
}

#[test]
fn requests_go_to_two_engines_in_turn() {
    let (one, two) = (Engine::default(), Engine::default());
    let server = ScriptedClickHouse::start(&[one.start("one"), two.start("two")]).unwrap();
    let engine = one.clone();
    let mut scene = Scene { client: connected(&server), server, engine };
    ask(&mut scene, &insert("a", b"to the first"));
    scene.server.set(Behaviour::InTurn);
    for body in [b"1", b"2", b"3", b"4"] {
        ask(&mut scene, &insert("a", body));
    }
    assert_eq!(one.bodies(), [b"to the first".as_slice(), b"1", b"3"]);
    assert_eq!(two.bodies(), [b"2", b"4"]);
}

#[test]
fn a_body_that_is_too_large_is_refused_and_a_small_one_passes() {
    for then in [TooLarge::AnswersAfterIt, TooLarge::AnswersAtOnce, TooLarge::Resets] {
        let mut scene = scene(Behaviour::TooLarge { body_bytes_max: 1000, then });
        let (head, _) = ask(&mut scene, &insert("a", &[0; 1000]));
        assert!(head.starts_with("HTTP/1.1 200 "), "{then:?}: {head}");
        // The client is still writing when the answer comes.
        let large = insert("b", &vec![0; LARGE_BYTES]);
        let mut writes = scene.client.try_clone().unwrap();
        let writing = thread::spawn(move || writes.write_all(&large));
        if then == TooLarge::Resets {
            assert!(ends_without_a_byte(&mut scene.client));
        } else {
            let (head, body) = answer(&mut scene.client);
            assert!(head.starts_with("HTTP/1.1 413 ") && body.starts_with("<html>"), "{head}{body}");
        }
        assert_eq!(writing.join().unwrap().is_ok(), then == TooLarge::AnswersAfterIt, "{then:?}");
        if then == TooLarge::AnswersAfterIt {
            assert_eq!(ask(&mut scene, b"GET /ping HTTP/1.1\r\n\r\n").1, "one: /ping");
        }
        let stored = scene.engine.bodies().into_iter().filter(|body| !body.is_empty());
        assert_eq!(stored.collect::<Vec<_>>(), [[0; 1000]], "{then:?}");
    }
}

#[test]
fn a_replica_that_dies_leaves_its_token_behind_and_not_its_rows() {
    let mut scene = scene(Behaviour::ReplicaDies { code: 999 });
    let with_quorum = |token: &str, body: &[u8]| {
        let text = String::from_utf8(insert(token, body)).unwrap();
        text.replacen("/?", "/?insert_quorum=2&", 1).into_bytes()
    };
    assert!(ask(&mut scene, &insert("a", b"rows")).0.contains("Exception-Code: 999"));
    let (head, body) = ask(&mut scene, &insert("a", b"rows"));
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body.is_empty(), "{head}");
    assert!(ask(&mut scene, &with_quorum("a", b"rows")).0.contains("Exception-Code: 319"));
    assert_eq!(scene.engine.bodies().len(), 0, "nothing is stored under a token that is known");
    assert!(ask(&mut scene, &with_quorum("b", b"rows")).0.contains(SUMMARY_LINE));
    assert_eq!(scene.engine.bodies(), [b"rows"]);
}

#[test]
fn a_slow_one_is_honest_later() {
    let delay = Duration::from_millis(300);
    let mut scene = scene(Behaviour::Slow(delay));
    let began = Instant::now();
    let (head, _) = ask(&mut scene, &insert("a", b"rows"));
    assert!(head.contains(SUMMARY_LINE) && began.elapsed() >= delay);
    assert_eq!(scene.engine.bodies(), [b"rows"]);
}
