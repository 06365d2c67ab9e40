//! Each fault does what it says, and ends.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab_stack::wait_until;

use super::*;

const SOON: Duration = Duration::from_secs(120);
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
    let mut new = used(&proxy);
    assert_eq!(answer(&mut new, b"again"), b"again");
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
fn hang_down_passes_what_goes_up_and_the_rest_later() {
    let proxy = Proxy::start(echo()).unwrap();
    let mut stream = used(&proxy);
    proxy.set(Fault::HangDown);
    stream.write_all(b"asked").unwrap();
    assert!(is_silent(&mut stream));
    proxy.set(Fault::None);
    assert_eq!(read(&mut stream, 5), b"asked");
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
    for byte in 0..150 {
        stream.write_all(&[byte]).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(read(&mut stream, 150), (0..150).collect::<Vec<u8>>());
    assert!(began.elapsed() < Duration::from_secs(20), "30 s one by one: {:?}", began.elapsed());
    proxy.set(Fault::None);
    let mut quick = || {
        let began = Instant::now();
        answer(&mut stream, b"quick");
        began.elapsed()
    };
    assert!((0..10).any(|_| quick() < Duration::from_millis(120)), "the delay has ended");
}
