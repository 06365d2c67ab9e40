//! Tests that the stand-ins behave like a broker and like ClickHouse.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::Result;
use lab_mqtt::{kind, put_packet};
use lab_stand_ins::firehose::Firehose;
use lab_stand_ins::sink::Sink;

/// Sends an insert as the clients do, and returns the HTTP status.
fn insert(sink: &Sink, format: &str, settings: &str, body: &[u8]) -> Result<u16> {
    let query = format!("INSERT INTO fleet.positions (driver_id, seq, speed_cms) FORMAT {format}")
        .replace(' ', "%20");
    let config = ureq::Agent::config_builder().http_status_as_error(false).build();
    let request = config.new_agent().post(format!("{}/?{settings}query={query}", sink.url()));
    Ok(request.send(body)?.status().as_u16())
}

fn row_binary(driver: u32, seqs: std::ops::RangeInclusive<u32>) -> Vec<u8> {
    let id = format!("sim-x-{driver}");
    let row =
        |seq: u32| [&[6 + 1], id.as_bytes(), &seq.to_le_bytes(), &7_u16.to_le_bytes()].concat();
    seqs.flat_map(row).collect()
}

#[test]
fn sink_counts_rows_of_every_format() {
    let sink = Sink::start(3, 1).unwrap();
    assert_eq!(insert(&sink, "RowBinary", "", &row_binary(0, 1..=100)).unwrap(), 200);

    let plain = row_binary(1, 1..=100);
    let packed = lz4_flex::block::compress(&plain);
    let sizes = [u32::try_from(packed.len() + 9).unwrap(), u32::try_from(plain.len()).unwrap()];
    let block =
        [&[0; 16][..], &[0x82], &sizes[0].to_le_bytes(), &sizes[1].to_le_bytes(), &packed].concat();
    assert_eq!(insert(&sink, "RowBinary", "decompress=1&async_insert=0&", &block).unwrap(), 200);

    let lines: String = (1..=100)
        .map(|seq| format!("{{\"driver_id\":\"sim-x-2\",\"seq\":{seq},\"speed_cms\":7}}\n"))
        .collect();
    assert_eq!(insert(&sink, "JSONEachRow", "", lines.as_bytes()).unwrap(), 200);
    assert_eq!((sink.rows(), sink.insert_durations().len()), (300, 3));
    let verdict = sink.tally().compare(&[100, 100, 101]);
    assert_eq!((verdict.lost, verdict.duplicates, verdict.never_sent), (1, 0, 0));

    assert_eq!(
        insert(&sink, "Parquet", "", b"PAR1").unwrap(),
        500,
        "a format that the sink does not know"
    );
    assert_eq!(
        insert(&sink, "RowBinary", "", &plain[..plain.len() - 1]).unwrap(),
        500,
        "a row that is cut off"
    );
    assert_eq!(sink.rows(), 300, "failed inserts are not counted");
}

/// milepost's preflight subscribes to the broker's list of nodes. Fixes sent to the preflight would
/// count as lost.
#[test]
fn preflight_receives_no_fixes_from_the_firehose() -> Result<()> {
    let firehose = Firehose::start(10)?;
    let subscribe = |filter: &str| -> Result<TcpStream> {
        let mut client = TcpStream::connect(("127.0.0.1", firehose.port))?;
        let filter =
            [&u16::try_from(filter.len())?.to_be_bytes(), filter.as_bytes(), &[0]].concat();
        let mut sent = Vec::new();
        let connect = [&b"\0\x04MQTT\x05\x02\0\0\0\0\x01"[..], b"c"].concat();
        put_packet(kind::CONNECT, 0, &connect, &mut sent);
        put_packet(kind::SUBSCRIBE, 2, &[&[0, 1, 0][..], &filter].concat(), &mut sent);
        client.write_all(&sent)?;
        // CONNACK and SUBACK.
        client.read_exact(&mut [0; 5 + 6])?;
        Ok(client)
    };
    let _preflight = subscribe("$SYS/brokers")?;
    assert_eq!(firehose.subscribers(), 0);
    let _member = subscribe("$share/milepost/drivers/+/gps")?;
    assert_eq!(firehose.subscribers(), 1);
    Ok(())
}
