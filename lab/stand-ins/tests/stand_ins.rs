//! The stand-ins keep to the rules of the broker and of ClickHouse.

use anyhow::Result;
use lab_stand_ins::sink::Sink;

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
    assert_eq!((sink.rows(), sink.took().len()), (300, 3));
    let verdict = sink.tally().compare(&[100, 100, 101]);
    assert_eq!((verdict.lost, verdict.duplicates, verdict.never_sent), (1, 0, 0));

    assert_eq!(insert(&sink, "Parquet", "", b"PAR1").unwrap(), 500, "a format it does not know");
    assert_eq!(
        insert(&sink, "RowBinary", "", &plain[..plain.len() - 1]).unwrap(),
        500,
        "a cut row"
    );
    assert_eq!(sink.rows(), 300, "what failed is not counted");
}
