//! `lab floor`: the cheapest possible consumer, as a yardstick for the others.
//!
//! The floor has hand-written framing, pauses between reads within milepost's limits, one JSON
//! parse into a plain struct, one row appended to one buffer, and plain HTTP. It leaves out
//! everything that makes a consumer safe: it checks types only, retries nothing, survives no fault,
//! and ends with its connection. At QoS 1 it acknowledges after the insert, a batch in one write.
//!
//! Its HTTP is hand-written because its cost is measured: with ureq and hyper the floor took 8 %
//! more CPU per message at the ceiling (`lab bench --only ceiling-qos0 --consumer floor`, medians
//! of four steps each), and 6.4 MiB instead of 5.7.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use lab_mqtt::{
    ConnAck, Packet, Publish, first_packet, kind, put_connect, put_length, put_subscribe,
};
use lab_stack::procfs::thread_cpu_time;
use lab_stack::unix_ms;

/// Maximum rows of a batch.
const ROWS_MAX: usize = 5_000;
/// Maximum age of a batch: the time since its first message.
const AGE_MAX: Duration = Duration::from_secs(1);
/// Target number of bytes received between two reads: a few hundred messages.
const PAUSE_BYTES: usize = 32 * 1024;
/// Shortest pause between two reads.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Longest pause at QoS 0 and at QoS 1, as in milepost (src/app/read_delay.rs). Longer pauses cost
/// less, but at QoS 0 a burst would overflow the buffers.
const PAUSE_MAX: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];
/// Expiry of the session of `--session`, after the connection has ended.
const SESSION_SECONDS: u32 = 60;
/// Bytes of the input buffer.
const READ_BYTES: usize = 256 * 1024;
const COLUMNS: &str =
    "driver_id, ts, seq, lat_e7, lng_e7, speed_cms, heading_cdeg, alt_dm, acc_dm, received_at";

/// The servers to read from and write to, and the mistakes to make.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    /// Broker, host:port
    #[arg(long, default_value = "127.0.0.1:1883")]
    broker: String,
    /// ClickHouse, host:port
    #[arg(long, default_value = "127.0.0.1:8123")]
    clickhouse: String,
    /// 0 or 1
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    qos: u8,
    /// Port of /readyz; 0 takes a free one
    #[arg(long, default_value_t = 9464)]
    http_port: u16,
    /// Keep a session under this client id. For the self-test of the benchmark: a consumer that
    /// loses nothing in a crash
    #[arg(long, hide = true)]
    session: Option<String>,
    #[command(flatten)]
    mistakes: Mistakes,
}

/// Mistakes that the benchmark must find when it tests itself.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Mistakes {
    /// Forget every n-th message
    #[arg(long, hide = true)]
    drop_every: Option<u64>,
    /// Insert every n-th message twice
    #[arg(long, hide = true)]
    duplicate_every: Option<u64>,
    /// Burn this much CPU for every message, in microseconds
    #[arg(long, hide = true)]
    burn_us: Option<u64>,
    /// PUBACK on receipt, before the insert
    #[arg(long, hide = true)]
    acknowledge_first: bool,
    /// Leak this many MiB of memory a second
    #[arg(long, hide = true)]
    leak: Option<usize>,
}

/// The payload, as far as a row needs it.
#[derive(Deserialize)]
struct Fix {
    lat: f64,
    lng: f64,
    speed: Option<f64>,
    heading: Option<f64>,
    alt: Option<f64>,
    acc: Option<f64>,
    ts: i64,
    seq: u32,
}

/// Rows to insert, with the packet ids to acknowledge.
#[derive(Default)]
struct Batch {
    body: Vec<u8>,
    rows: usize,
    packet_ids: Vec<u16>,
    /// Time of the first message.
    began: Option<Instant>,
}

impl Batch {
    fn clear(&mut self) {
        self.body.clear();
        self.packet_ids.clear();
        (self.rows, self.began) = (0, None);
    }
}

/// Runs until the broker closes the connection.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let subscribed = Arc::new(AtomicBool::new(false));
    let is_ready = Arc::clone(&subscribed);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, arguments.http_port))
        .context("cannot listen on the port of /readyz")?;
    std::thread::spawn(move || serve(&listener, &is_ready));

    if let Some(mib) = arguments.mistakes.leak {
        std::thread::spawn(move || leak(mib));
    }
    let stream = subscribe(arguments)?;
    let acks = stream.try_clone()?;
    let (batches, to_insert) = sync_channel(1);
    let (inserted, reusable) = sync_channel(1);
    let inserting = {
        let server = arguments.clickhouse.clone();
        std::thread::spawn(move || insert_all(&to_insert, &inserted, &server, acks))
    };
    subscribed.store(true, Ordering::Relaxed);
    let read = read_all(stream, &batches, &reusable, arguments);
    drop(batches); // ends the inserting thread
    let outcome = inserting.join().map_err(|_| anyhow::anyhow!("the inserting thread panicked"))?;
    outcome.and(read).map(|()| true)
}

/// Connects and subscribes. Returns the stream just before the first message.
fn subscribe(arguments: &Arguments) -> Result<TcpStream> {
    let mut stream =
        TcpStream::connect(&arguments.broker).context("cannot connect to the broker")?;
    stream.set_nodelay(true)?;
    let mut out = Vec::new();
    match &arguments.session {
        Some(name) => put_connect(name, None, SESSION_SECONDS, &mut out),
        None => put_connect(&format!("floor-{}", std::process::id()), None, 0, &mut out),
    }
    put_subscribe(1, "$share/floor/drivers/+/gps", arguments.qos, &mut out);
    stream.write_all(&out)?;

    let mut input = Vec::new();
    for expected in [kind::CONNACK, kind::SUBACK] {
        // Read byte by byte: bytes after the SUBACK must stay in the socket for `read_all`.
        let packet = loop {
            if let Some(packet) = first_packet(&input)? {
                break packet;
            }
            let mut byte = [0];
            stream.read_exact(&mut byte).context("the broker closed the connection")?;
            input.push(byte[0]);
        };
        ensure!(
            packet.kind == expected && packet.body.last().is_some_and(|code| *code < 0x80),
            "{packet:?}"
        );
        let resumed = packet.kind == kind::CONNACK && ConnAck::read(packet.body)?.session_present;
        input.clear();
        if resumed {
            break; // the session is subscribed already, and messages may arrive before the SUBACK
        }
    }
    Ok(stream)
}

/// Reads messages into batches until the broker closes the connection. `reusable`: inserted
/// batches, whose memory is used again.
fn read_all(
    mut stream: TcpStream,
    batches: &SyncSender<Batch>,
    reusable: &Receiver<Batch>,
    arguments: &Arguments,
) -> Result<()> {
    let mistakes = &arguments.mistakes;
    let mut input = vec![0; READ_BYTES];
    let (mut filled, mut messages, mut batch) = (0, 0_u64, Batch::default());
    let (mut pause, mut since_pause) = (PAUSE_MIN, 0);
    loop {
        let age = batch.began.map_or(Duration::ZERO, |began| began.elapsed());
        if batch.rows >= ROWS_MAX || age >= AGE_MAX {
            let next = reusable.try_recv().unwrap_or_default();
            batches
                .send(std::mem::replace(&mut batch, next))
                .context("the inserting thread ended")?;
            continue;
        }
        let timeout = batch.began.map(|_| (AGE_MAX - age).max(PAUSE_MIN));
        stream.set_read_timeout(timeout)?;
        let read = match stream.read(&mut input[filled..]) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(error) => return Err(error).context("reading"),
        };
        filled += read;
        let received_at = unix_ms();
        let mut at = 0;
        while let Some(packet) = first_packet(&input[at..filled])? {
            if packet.kind == kind::PUBLISH {
                messages += 1;
                handle_message(packet, received_at, messages, mistakes, &mut batch)?;
            }
            at += packet.len;
        }
        if mistakes.acknowledge_first {
            stream.write_all(&pubacks(&std::mem::take(&mut batch.packet_ids)))?;
        }
        input.copy_within(at..filled, 0);
        filled -= at;
        since_pause += read;
        // Do not pause after a large read: more bytes are probably waiting.
        if read < READ_BYTES / 4 {
            // The pause after which a read would return PAUSE_BYTES, at the current rate.
            let fitting = pause.mul_f64(PAUSE_BYTES as f64 / since_pause as f64);
            pause = fitting.min(pause * 2).clamp(PAUSE_MIN, PAUSE_MAX[usize::from(arguments.qos)]);
            since_pause = 0;
            std::thread::sleep(pause);
        }
    }
    batches.send(batch).context("the inserting thread ended")
}

/// Adds a message to the batch. `messages`: number of messages so far, including this message.
fn handle_message(
    packet: Packet<'_>,
    received_at: i64,
    messages: u64,
    mistakes: &Mistakes,
    batch: &mut Batch,
) -> Result<()> {
    let publish = Publish::read(packet)?;
    batch.began.get_or_insert_with(Instant::now);
    batch.packet_ids.extend(publish.packet_id);
    let is_nth = |every: Option<u64>| every.is_some_and(|every| messages.is_multiple_of(every));
    if let Some(us) = mistakes.burn_us {
        burn(Duration::from_micros(us))?;
    }
    if is_nth(mistakes.drop_every) {
        return Ok(());
    }
    let start = batch.body.len();
    put_row(&publish, received_at, &mut batch.body)?;
    batch.rows += 1;
    if is_nth(mistakes.duplicate_every) {
        batch.body.extend_from_within(start..);
        batch.rows += 1;
    }
    Ok(())
}

/// Leaks this many MiB a second, for ever.
fn leak(mib: usize) {
    let mut leaked = Vec::new();
    loop {
        leaked.push(vec![1_u8; mib << 20]);
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Uses the CPU for `cpu_time`.
fn burn(cpu_time: Duration) -> Result<()> {
    let began = thread_cpu_time()?;
    while thread_cpu_time()? - began < cpu_time {}
    Ok(())
}

/// Appends a row with the columns of [`COLUMNS`], as RowBinary.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the floor checks nothing"
)]
fn put_row(publish: &Publish<'_>, received_at: i64, out: &mut Vec<u8>) -> Result<()> {
    let driver_id =
        publish.topic.split(|byte| *byte == b'/').nth(1).context("a topic without a driver")?;
    let fix: Fix = serde_json::from_slice(publish.payload)?;
    let scaled = |value: Option<f64>, factor: f64, unknown: u16| {
        value.map_or(unknown, |v| (v * factor).round() as u16)
    };
    put_length(driver_id.len(), out);
    out.extend_from_slice(driver_id);
    out.extend_from_slice(&fix.ts.to_le_bytes());
    out.extend_from_slice(&fix.seq.to_le_bytes());
    out.extend_from_slice(&((fix.lat * 1e7).round() as i32).to_le_bytes());
    out.extend_from_slice(&((fix.lng * 1e7).round() as i32).to_le_bytes());
    out.extend_from_slice(&scaled(fix.speed, 100.0, u16::MAX).to_le_bytes());
    out.extend_from_slice(&scaled(fix.heading, 100.0, u16::MAX).to_le_bytes());
    out.extend_from_slice(
        &fix.alt.map_or(i32::MAX, |alt| (alt * 10.0).round() as i32).to_le_bytes(),
    );
    out.extend_from_slice(&scaled(fix.acc, 10.0, u16::MAX).to_le_bytes());
    out.extend_from_slice(&received_at.to_le_bytes());
    Ok(())
}

/// Inserts the batches, and acknowledges the messages of each batch after its insert.
fn insert_all(
    batches: &Receiver<Batch>,
    reusable: &SyncSender<Batch>,
    server: &str,
    mut acks: TcpStream,
) -> Result<()> {
    let stream = TcpStream::connect(server).context("cannot connect to ClickHouse")?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream);
    let statement =
        format!("INSERT INTO fleet.positions ({COLUMNS}) FORMAT RowBinary").replace(' ', "%20");
    while let Ok(mut batch) = batches.recv() {
        if batch.rows > 0 {
            let head = format!(
                "POST /?async_insert=0&query={statement} HTTP/1.1\r\nHost: {server}\r\n\
                 Content-Length: {}\r\n\r\n",
                batch.body.len()
            );
            answers.get_ref().write_all(head.as_bytes())?;
            answers.get_ref().write_all(&batch.body)?;
            read_answer(&mut answers)?;
        }
        // Messages can be acknowledged only on the connection on which they arrived.
        if acks.write_all(&pubacks(&batch.packet_ids)).is_err() {
            bail!("the broker closed the connection with messages unacknowledged");
        }
        batch.clear();
        let _ = reusable.try_send(batch); // saves the page faults of a new buffer
    }
    Ok(())
}

fn pubacks(packet_ids: &[u16]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 * packet_ids.len());
    for packet_id in packet_ids {
        out.extend([kind::PUBACK << 4, 2]);
        out.extend(packet_id.to_be_bytes());
    }
    out
}

/// Reads an answer. Fails with its text unless its status is 200.
fn read_answer(answers: &mut BufReader<TcpStream>) -> Result<()> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        ensure!(answers.read_line(&mut head)? > 0, "ClickHouse closed the connection: {head}");
    }
    let lower = head.to_ascii_lowercase();
    let chunked = lower.contains("transfer-encoding: chunked");
    let length = lower
        .split_once("content-length:")
        .and_then(|(_, after)| after.lines().next()?.trim().parse().ok());
    let mut body = Vec::new();
    loop {
        let mut size = String::new();
        let chunk_bytes = if chunked {
            answers.read_line(&mut size)?;
            u64::from_str_radix(size.trim(), 16).context("a chunk's length is invalid")?
        } else {
            length.unwrap_or(0)
        };
        answers.take(chunk_bytes).read_to_end(&mut body)?;
        if chunked {
            // A line end follows each chunk.
            answers.read_line(&mut size)?;
        }
        if !chunked || chunk_bytes == 0 {
            break;
        }
    }
    let is_ok = head.split(' ').nth(1) == Some("200");
    ensure!(
        is_ok,
        "{} {}",
        head.lines().next().unwrap_or_default(),
        String::from_utf8_lossy(&body)
    );
    Ok(())
}

/// Serves `/readyz`: one request per connection. The head of a request is assumed to arrive in one
/// read.
fn serve(listener: &TcpListener, subscribed: &AtomicBool) {
    for mut stream in listener.incoming().flatten() {
        let _ = stream.read(&mut [0; 4096]);
        let status =
            if subscribed.load(Ordering::Relaxed) { "200 OK" } else { "503 Service Unavailable" };
        let answer = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        let _ = stream.write_all(answer.as_bytes());
    }
}
