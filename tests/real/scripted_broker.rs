//! What no real broker does on demand: a SUBSCRIBE refused in part, and publishes all the same.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::{BufMut as _, BytesMut};
use loadgen::stack::wait_until;
use rumqttc::v5::mqttbytes::Error as PacketError;
use rumqttc::v5::mqttbytes::v5::Packet;

use crate::world::{SOON, settings, unmigrated};

/// Acknowledgements it got, over all connections.
type Acked = Arc<Mutex<Vec<u16>>>;

/// Grants the first filter, refuses the second, and sends ten messages at QoS 1 to whoever asked.
fn serve(mut stream: TcpStream, acked: &Acked) -> Result<()> {
    let mut input = BytesMut::new();
    loop {
        let packet = match Packet::read(&mut input, None) {
            Ok(packet) => packet,
            Err(PacketError::InsufficientBytes(_)) => {
                let mut chunk = [0; 4096];
                let read = stream.read(&mut chunk)?;
                ensure!(read > 0, "hung up");
                input.extend_from_slice(&chunk[..read]);
                continue;
            }
            Err(error) => bail!("not MQTT: {error}"),
        };
        if let Packet::Connect(..) = packet {
            stream.write_all(&[0x20, 3, 1, 0, 0])?; // session present, success, no properties
        } else if let Packet::Subscribe(subscribe) = packet {
            let [high, low] = subscribe.pkid.to_be_bytes();
            stream.write_all(&[0x90, 5, high, low, 0, 1, 0x87])?; // QoS 1; not authorized
            stream.write_all(&publishes())?;
        } else if let Packet::PubAck(ack) = packet {
            acked.lock().unwrap_or_else(PoisonError::into_inner).push(ack.pkid);
        }
    }
}

fn publishes() -> BytesMut {
    let mut out = BytesMut::new();
    for packet_id in 1..=10_u16 {
        let (topic, payload) = (b"drivers/d1/gps", format!(r#"{{"lat":1,"lng":2,"seq":{packet_id}}}"#));
        out.put_u8(0x32);
        out.put_u8(u8::try_from(2 + topic.len() + 2 + 1 + payload.len()).unwrap_or(0));
        out.put_u16(14);
        out.put_slice(topic);
        out.put_u16(packet_id);
        out.put_u8(0);
        out.put_slice(payload.as_bytes());
    }
    out
}

#[test]
fn a_subscription_refused_in_part_acknowledges_nothing_that_is_not_stored() -> Result<()> {
    let world = unmigrated("refused")?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let acked = Acked::default();
    let connections = Arc::new(Mutex::new(0));
    let (got, count) = (Arc::clone(&acked), Arc::clone(&connections));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            *count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            let _ = serve(stream, &got);
        }
    });
    let settings = settings(world.folder.path(), port, &world.engine.server.url())
        .with("CLICKHOUSE__DATABASE", "refused")
        .with("MQTT__TOPICS", "drivers/+/gps,other/+");
    settings.migrate()?;
    let mut milepost = settings.start()?;
    wait_until("it has tried three times", SOON, || {
        Ok(*connections.lock().unwrap_or_else(PoisonError::into_inner) >= 3)
    })?;
    let why = milepost.get("/readyz").err().context("it must not call itself ready")?.to_string();
    ensure!(why.contains("not authorized"), "{why}");
    std::thread::sleep(Duration::from_millis(300));
    let stored = world.query("SELECT uniqExact(seq) FROM {db}.fixes")?.parse::<usize>()?;
    let acked = acked.lock().unwrap_or_else(PoisonError::into_inner).len();
    ensure!(acked <= stored, "{acked} acknowledged, {stored} stored");
    milepost.terminate(SOON).map(drop)
}
