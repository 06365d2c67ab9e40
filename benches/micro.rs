//! What a message, a batch and a spool file cost: `make bench-micro`.

#[expect(unreachable_pub, reason = "a benchmark's rooms have no outside")]
mod work;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use loadgen::format::Format;
use milepost::codec::Message;
use milepost::pipeline::batch::Batch;
use milepost::pipeline::decode::{Decoded, Decoder};
use milepost::pipeline::encode;
use milepost::pipeline::position::Timestamp;
use milepost::session::acks::Acks;
use milepost::spool::Spool;

const ROWS: usize = 5_000;

fn batch() -> Batch {
    let mut live = work::Live::new(work::decoder());
    let batch = work::messages(ROWS + 1).iter().find_map(|message| live.publish(message));
    batch.expect("a batch closes at 5,000 rows")
}

fn decode(criterion: &mut Criterion) {
    let own = ("5,000 messages of one point".to_owned(), work::decoder(), work::messages(ROWS));
    let formats = Format::ALL.map(|format| {
        (format!("5,000 of {}", format.name()), work::decoder_of(format, ""), work::messages_in(format, ROWS))
    });
    let arrays = work::arrays(&work::messages(ROWS), 100);
    let arrays = ("5,000 points in 50 messages".to_owned(), work::decoder(), arrays);
    for (name, decoder, messages) in [own, arrays].into_iter().chain(formats) {
        decode_all(criterion, &name, &decoder, &messages);
    }
}

fn decode_all(criterion: &mut Criterion, name: &str, decoder: &Decoder, messages: &[(String, String)]) {
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
        let mut live = work::Live::new(work::decoder());
        bencher.iter(|| {
            for message in &messages {
                if let Some(batch) = live.publish(message) {
                    black_box(live.durable(batch.id));
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
                last = acks.arrived(black_box(7));
            }
            acks.complete_below(last + 1);
            while acks.due().is_some() {
                acks.sent();
            }
        });
    });
    group.finish();
}

fn spool(criterion: &mut Criterion) {
    let folder = tempfile::TempDir::new().expect("a folder for the spool");
    let (spool, _) = Spool::open(folder.path(), 1 << 30).expect("a spool");
    let inserts = encode::encode(batch(), "fleet");
    let mut group = criterion.benchmark_group("spool");
    group.throughput(Throughput::Elements(ROWS as u64));
    group.bench_function("a batch of 5,000 rows written, fsynced, removed", |bencher| {
        bencher.iter(|| {
            let file = spool.store(&inserts, ROWS as u64).expect("there is room");
            spool.remove(&file).expect("it is there");
        });
    });
    group.finish();
}

criterion_group!(benches, decode, consumer, encode, acks, spool);
criterion_main!(benches);
