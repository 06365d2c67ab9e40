//! What plays broker and ClickHouse keeps to their rules.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Result;
use lab_stand_ins::firehose::{Firehose, Plan};
use lab_stand_ins::sink::Sink;
use rumqttc::v5::mqttbytes::v5::Publish;

const WITHIN: Duration = Duration::from_secs(120);

#[test]
fn the_firehose_keeps_to_the_receive_maximum_of_mqtt_5() {
    use rumqttc::v5::mqttbytes::QoS;
    use rumqttc::v5::{Client, Event, Incoming, MqttOptions};

    let firehose = Firehose::start(0, Plan { drivers: 100, qos: 1, rate: None }).unwrap();
    let mut options = MqttOptions::new("five", "127.0.0.1", firehose.port);
    options.set_receive_maximum(Some(10)).set_manual_acks(true);
    let (client, mut connection) = Client::new(options, 100);
    client.subscribe("$share/g/drivers/+/gps", QoS::AtLeastOnce).unwrap();
    let mut next = |within: Duration| -> Option<Publish> {
        loop {
            match connection.recv_timeout(within) {
                Ok(Ok(Event::Incoming(Incoming::Publish(publish)))) => return Some(publish),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => panic!("{error}"),
                Err(_) => return None,
            }
        }
    };
    assert!(next(Duration::from_millis(300)).is_none(), "nothing is sent before it is opened");
    firehose.open();
    let mut taken: Vec<Publish> = (0..10).map(|_| next(WITHIN).expect("ten are in the window")).collect();
    assert!(next(Duration::from_millis(300)).is_none(), "an eleventh is beyond the window");
    for publish in taken.drain(..3) {
        client.ack(&publish).unwrap();
    }
    let more: Vec<Publish> = (0..3).map(|_| next(WITHIN).expect("as many as were acknowledged")).collect();
    assert!(next(Duration::from_millis(300)).is_none(), "and no more");
    assert_eq!((firehose.sent(), firehose.acked()), (13, 3));
    let ids: HashSet<u16> = taken.iter().chain(&more).map(|publish| publish.pkid).collect();
    assert_eq!(ids.len(), 10, "no packet id is in flight twice");
    let topics: HashSet<_> = taken.iter().chain(&more).map(|publish| publish.topic.clone()).collect();
    assert_eq!(topics.len(), 10, "each is another driver's");
}

/// An insert as the clients send it.
fn insert(sink: &Sink, format: &str, settings: &str, body: &[u8]) -> Result<u16> {
    let query = format!("INSERT INTO fleet.positions (driver_id, seq, speed_cms) FORMAT {format}")
        .replace(' ', "%20");
    let config = ureq::Agent::config_builder().http_status_as_error(false).build();
    let request = config.new_agent().post(format!("{}/?{settings}query={query}", sink.url()));
    Ok(request.send(body)?.status().as_u16())
}

fn row_binary(driver: u32, seqs: std::ops::RangeInclusive<u32>) -> Vec<u8> {
    let id = format!("sim-x-{driver}");
    let row = |seq: u32| [&[6 + 1], id.as_bytes(), &seq.to_le_bytes(), &7_u16.to_le_bytes()].concat();
    seqs.flat_map(row).collect()
}

#[test]
fn the_sink_counts_every_way_of_inserting() {
    let sink = Sink::start(0, 1).unwrap();
    assert_eq!(insert(&sink, "RowBinary", "", &row_binary(0, 1..=100)).unwrap(), 200);

    let plain = row_binary(1, 1..=100);
    let packed = lz4_flex::block::compress(&plain);
    let sizes = [u32::try_from(packed.len() + 9).unwrap(), u32::try_from(plain.len()).unwrap()];
    let block = [&[0; 16][..], &[0x82], &sizes[0].to_le_bytes(), &sizes[1].to_le_bytes(), &packed].concat();
    assert_eq!(insert(&sink, "RowBinary", "decompress=1&async_insert=0&", &block).unwrap(), 200);

    let lines: String = (1..=100)
        .map(|seq| format!("{{\"driver_id\":\"sim-x-2\",\"seq\":{seq},\"speed_cms\":7}}\n"))
        .collect();
    assert_eq!(insert(&sink, "JSONEachRow", "", lines.as_bytes()).unwrap(), 200);
    assert_eq!((sink.rows(), sink.inserts(), sink.took().len()), (300, 3, 3));
    let verdict = sink.tally().compare(&[100, 100, 101]);
    assert_eq!((verdict.lost, verdict.duplicates, verdict.never_sent), (1, 0, 0));

    assert_eq!(insert(&sink, "Parquet", "", b"PAR1").unwrap(), 500, "a format it does not know");
    assert_eq!(insert(&sink, "RowBinary", "", &plain[..plain.len() - 1]).unwrap(), 500, "a cut row");
    assert_eq!(sink.rows(), 300, "what failed is not counted");
}
