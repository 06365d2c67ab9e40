//! Measures the cost of a message, a batch and a spool file: `make bench-micro`.

#[expect(unreachable_pub, reason = "a benchmark's modules are private to it")]
mod work;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use loadgen::format::Format;
use milepost_config::Config;
use milepost_core::batch::Batch;
use milepost_core::encode;
use milepost_core::session::acks::Acks;
use milepost_decode::Message;
use milepost_decode::position::Timestamp;
use milepost_decode::{Decoded, Decoder};
use milepost_import as import;
use milepost_import::ImportArgs;
use milepost_spool::Spool;

/// Rows of a batch, and points of each measurement except that of imported files.
const ROWS: usize = 5_000;

/// Returns a full batch.
fn batch() -> Batch {
    let mut consumer = work::LiveConsumer::new(work::decoder());
    let batch = work::messages(ROWS + 1).iter().find_map(|message| consumer.publish(message));
    batch.expect("a batch closes at 5,000 rows")
}

fn decode(criterion: &mut Criterion) {
    let single = ("5,000 messages of one point".to_owned(), work::decoder(), work::messages(ROWS));
    let formats = Format::ALL.map(|format| {
        (
            format!("5,000 of {}", format.name()),
            work::decoder_for(format, ""),
            work::messages_in(format, ROWS),
        )
    });
    let arrays = work::arrays(&work::messages(ROWS), 100);
    let arrays = ("5,000 points in 50 messages".to_owned(), work::decoder(), arrays);
    for (name, decoder, messages) in [single, arrays].into_iter().chain(formats) {
        decode_all(criterion, &name, &decoder, &messages);
    }
}

/// Measures how long these messages, which have [`ROWS`] points, take to decode.
fn decode_all(
    criterion: &mut Criterion,
    name: &str,
    decoder: &Decoder,
    messages: &[(String, String)],
) {
    let (mut decoded, received_at) = (Decoded::default(), Timestamp::from_unix_ms(work::WALL_MS));
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            decoded.clear();
            for (topic, payload) in messages {
                let message = Message::new(topic.as_bytes(), payload.as_bytes());
                decoder.decode(black_box(message), received_at, &mut decoded);
            }
            assert_eq!(decoded.positions.len(), ROWS);
        });
    });
    group.finish();
}

fn consumer(criterion: &mut Criterion) {
    let messages = work::messages(ROWS);
    let mut group = criterion.benchmark_group("consumer");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("5,000 messages: decoded, batched, durable, acknowledged", |bencher| {
        let mut consumer = work::LiveConsumer::new(work::decoder());
        bencher.iter(|| {
            for message in &messages {
                if let Some(batch) = consumer.publish(message) {
                    black_box(consumer.confirm_batch(batch.id));
                }
            }
        });
    });
    group.finish();
}

fn encode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("a batch of 5,000 rows: sorted, encoded", |bencher| {
        bencher.iter_batched(batch, |batch| encode::encode(batch, "fleet"), BatchSize::LargeInput);
    });
    group.finish();
}

fn acks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("acks");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("5,000 messages: taken, complete, acknowledged", |bencher| {
        let mut acks = Acks::default();
        bencher.iter(|| {
            let mut last = 0;
            for _ in 0..ROWS {
                last = acks.accept(black_box(7)); // any packet id
            }
            acks.complete_below(last + 1);
            while acks.due().is_some() {
                acks.mark_sent();
            }
        });
    });
    group.finish();
}

fn spool(criterion: &mut Criterion) {
    let folder = tempfile::TempDir::new().expect("a folder for the spool");
    let (spool, _) = Spool::open(folder.path(), 1 << 30).expect("the spool opens");
    let inserts = encode::encode(batch(), "fleet");
    let mut group = criterion.benchmark_group("spool");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("a batch of 5,000 rows written, fsynced, removed", |bencher| {
        bencher.iter(|| {
            let file = spool.store(&inserts, ROWS as u64).expect("the spool has room");
            spool.remove(&file).expect("the file exists");
        });
    });
    group.finish();
}

/// Reads and decodes files on one thread, as `milepost import --dry-run` does.
fn import_files(criterion: &mut Criterion) {
    const FIXES: usize = 100_000;
    let folder = tempfile::TempDir::new().expect("a folder for the files");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let config = Config::parse("").expect("the defaults");
    let now_s = milepost_observe::now().unix_ms() / 1_000;
    // Returns a file's text. `fix` writes the fix at a Unix time in seconds.
    let file_text = |head: &str, tail: &str, fix: &dyn Fn(i64) -> String| {
        let fixes: String = (now_s - FIXES as i64..now_s).map(fix).collect();
        format!("{head}{fixes}{tail}")
    };
    let gpx = |ts: i64| {
        let time = humantime::format_rfc3339_seconds(
            std::time::UNIX_EPOCH + Duration::from_secs(ts.unsigned_abs()),
        );
        format!(
            "<trkpt lat=\"25.7617123\" lon=\"-80.1917712\"><ele>3</ele><time>{time}</time>\
             <speed>4.5</speed></trkpt>\n"
        )
    };
    let geojson = |ts: i64| {
        let point = r#"{"type":"Point","coordinates":[-80.1917712,25.7617123]}"#;
        let properties = format!(r#"{{"ts":{ts},"speed":4.5}}"#);
        format!("{{\"type\":\"Feature\",\"geometry\":{point},\"properties\":{properties}}}\n")
    };
    let files = [
        (
            "x.csv",
            file_text("ts,lat,lng,speed,heading,alt\n", "", &|ts| {
                format!("{ts},25.7617123,-80.1917712,4.5,271,3\n")
            }),
        ),
        ("x.gpx", file_text("<gpx>", "</gpx>", &gpx)),
        ("x.geojsonl", file_text("", "", &geojson)),
        (
            "x.rec",
            file_text("", "", &|ts| {
                format!(
                    "-\t*\t{{\"_type\":\"location\",\"lat\":25.7617123,\"lon\":-80.1917712,\
                     \"tst\":{ts},\"vel\":54,\"batt\":80}}\n"
                )
            }),
        ),
    ];
    let mut group = criterion.benchmark_group("import");
    group.throughput(Throughput::Elements(FIXES as u64));
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file can be written");
        group.bench_function(format!("100,000 fixes of {name}"), |bencher| {
            bencher.iter(|| {
                let args = ImportArgs {
                    files: vec![path.clone()],
                    driver: Some("d7".to_owned()),
                    speed_unit: Some(1.0),
                    dry_run: true,
                    ..ImportArgs::default()
                };
                let imported = runtime
                    .block_on(import::import(
                        &config,
                        import::open(&config, args).expect("the file opens"),
                    ))
                    .expect("a dry run succeeds");
                assert!(!imported.has_failed());
            });
        });
    }
    group.finish();
}

criterion_group!(benches, decode, consumer, encode, acks, spool, import_files);
criterion_main!(benches);
