//! Tests `mqtt.broker_metrics`: milepost subscribes to the broker's own counters. The counters
//! become a metric, and never positions. If the broker refuses this subscription, or closes the
//! connection in response, milepost still receives positions.

use std::sync::mpsc;

use anyhow::{Result, bail, ensure};
use bytes::{BufMut as _, BytesMut};
use lab_stack::{Milepost, wait_until};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::Packet;

use crate::scripted_broker::{Peer, ScriptedBroker, fix};
use crate::world::{SOON, world};

const NODE: &str = "$SYS/brokers/emqx@10.0.0.7";

/// Reason code of a SUBACK: the user may not subscribe to this filter.
const NOT_AUTHORIZED: u8 = 0x87;

/// Waits for the SUBSCRIBE to the counters, and returns its packet id.
fn receive_subscribe(peer: &mut Peer) -> Result<u16> {
    let Packet::Subscribe(subscribe) = peer.receive()? else {
        bail!("expected a second SUBSCRIBE")
    };
    let filters: Vec<_> =
        subscribe.filters.iter().map(|filter| (filter.path.as_str(), filter.qos)).collect();
    ensure!(filters == [("$SYS/brokers/+/metrics/#", QoS::AtMostOnce)], "{filters:?}");
    Ok(subscribe.pkid)
}

/// Answers the SUBSCRIBE to the counters with this reason code.
fn answer_subscribe(peer: &mut Peer, reason: u8) -> Result<()> {
    let [high, low] = receive_subscribe(peer)?.to_be_bytes();
    peer.send(&[0x90, 4, high, low, 0, reason])
}

/// Encodes a PUBLISH at QoS 0 of one counter.
fn counter(topic: &str, payload: &str) -> BytesMut {
    let topic = format!("{NODE}/{topic}");
    let mut out = BytesMut::new();
    out.put_u8(0x30);
    out.put_u8(u8::try_from(2 + topic.len() + 1 + payload.len()).expect("the packet is short"));
    out.put_u16(u16::try_from(topic.len()).expect("the packet is short"));
    out.put_slice(topic.as_bytes());
    out.put_u8(0);
    out.put_slice(payload.as_bytes());
    out
}

fn wait_for_a_fix(milepost: &Milepost, broker: &ScriptedBroker) -> Result<()> {
    wait_until("a fix is acknowledged", SOON, || Ok(broker.seen().acked.concat().contains(&1)))?;
    wait_until("the fix is counted", SOON, || Ok(milepost.metric("acks_total")? >= 1.0))
}

#[test]
fn broker_drops_become_a_metric_and_not_positions() -> Result<()> {
    let world = world("counters")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[], &[1])?;
        answer_subscribe(peer, 0)?;
        let full = "metrics/delivery/dropped/queue_full";
        for (topic, payload) in [
            (full, "700"),
            ("metrics/delivery/dropped/expired", "3"),
            ("metrics/messages/received", "12345"),
            ("uptime", "3 days"),
            (full, "705"),
            (full, "2"), // after a restart of the node
            ("metrics/delivery/dropped/expired", "3"),
        ] {
            peer.send(&counter(topic, payload))?;
        }
        peer.send(&fix(1))?;
        peer.answer_pings()
    })?;
    let mut milepost = broker.settings(&world).with("MQTT__BROKER_METRICS", "true").start()?;
    wait_for_a_fix(&milepost, &broker)?;
    let dropped = |reason| milepost.metric(&format!("broker_dropped_total{{reason=\"{reason}\"}}"));
    assert_eq!((dropped("queue_full")?, dropped("expired")?), (7.0, 0.0));
    for (name, count) in [("messages_received_total", 1.0), ("positions_received_total", 1.0)] {
        assert_eq!(milepost.metric(name)?, count, "{name}");
    }
    assert_eq!(world.query("SELECT count() FROM {db}.rejects")?, "0");
    milepost.terminate(SOON).map(drop)
}

#[test]
fn refused_broker_counters_are_logged_and_affect_nothing_else() -> Result<()> {
    let world = world("refuses_counters")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[], &[1])?;
        answer_subscribe(peer, NOT_AUTHORIZED)?;
        peer.send(&fix(1))?;
        peer.answer_pings()
    })?;
    let mut milepost = broker.settings(&world).with("MQTT__BROKER_METRICS", "true").start()?;
    wait_for_a_fix(&milepost, &broker)?;
    milepost.get("/readyz")?;
    assert_eq!(broker.seen().connections.len(), 1);
    let log = milepost.process.log()?;
    let logged: Vec<_> =
        log.lines().filter(|line| line.contains("does not report what it drops")).collect();
    ensure!(logged.len() == 1 && logged[0].contains(" INFO "), "{log}");
    milepost.terminate(SOON).map(drop)
}

#[test]
fn broker_counters_are_not_requested_after_three_closed_connections() -> Result<()> {
    let world = world("closes_for_counters")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[], &[1])?;
        if peer.connection_index() < 3 {
            return receive_subscribe(peer).map(drop);
        }
        peer.send(&fix(1))?;
        peer.answer_pings()
    })?;
    let mut milepost = broker.settings(&world).with("MQTT__BROKER_METRICS", "true").start()?;
    wait_for_a_fix(&milepost, &broker)?;
    assert_eq!(broker.seen().connections.len(), 4);
    ensure!(
        milepost.process.log()?.contains("set mqtt.broker_metrics = false"),
        "the log must say what to do"
    );
    milepost.terminate(SOON).map(drop)
}

#[test]
fn leaving_member_does_not_subscribe_to_the_broker_counters() -> Result<()> {
    let world = world("leaves_counters")?;
    let (recorder, packets) = mpsc::sync_channel(100);
    let broker = ScriptedBroker::start_for_sessions(move |peer| {
        loop {
            let packet = peer.receive()?;
            if let Packet::Connect(..) = &packet {
                peer.send(&[0x20, 3, 0, 0, 0])?;
            }
            if let Packet::Unsubscribe(unsubscribe) = &packet {
                let [high, low] = unsubscribe.pkid.to_be_bytes();
                // Send the SUBACK only now, after the UNSUBSCRIBE. The UNSUBACK follows.
                peer.send(&[&[0x90, 4, 0, 1, 0, 1][..], &[0xB0, 5, high, low, 0, 0, 0]].concat())?;
            }
            recorder.send(packet)?;
        }
    })?;
    let settings = broker.settings(&world).with("MQTT__BROKER_METRICS", "true");
    let mut milepost = settings.with("SHUTDOWN__LEAVE", "true").start()?;
    while !matches!(packets.recv_timeout(SOON)?, Packet::Subscribe(_)) {}
    assert_eq!(milepost.terminate(SOON)?, 0);
    let later: Vec<_> = packets.try_iter().collect();
    ensure!(later.iter().any(|packet| matches!(packet, Packet::Unsubscribe(_))), "{later:?}");
    ensure!(!later.iter().any(|packet| matches!(packet, Packet::Subscribe(_))), "{later:?}");
    Ok(())
}

#[test]
fn broker_counters_are_not_read_by_default() -> Result<()> {
    let world = world("asks_nothing")?;
    let broker = ScriptedBroker::start_for_sessions(|peer| {
        peer.welcome(&[], &[1])?;
        peer.send(&fix(1))?;
        loop {
            if let Packet::Subscribe(_) = peer.receive()? {
                // Some managed brokers answer with a DISCONNECT.
                peer.send(&[0xE0, 1, NOT_AUTHORIZED])?;
            }
        }
    })?;
    let mut milepost = broker.settings(&world).start()?;
    wait_for_a_fix(&milepost, &broker)?;
    assert_eq!(broker.seen().connections.len(), 1);
    milepost.terminate(SOON).map(drop)
}
