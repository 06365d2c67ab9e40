//! EMQX's refusals, and losses on request.

use std::time::Duration;

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode, Packet, PubAck, PubAckReason, SubscribeReasonCode,
};

use crate::client::{Broker, Client, Hello, SHARED, numbers, wait_until};

/// Returns the reason code of the CONNACK.
fn connect_reason(broker: &Broker, hello: &Hello) -> ConnectReturnCode {
    let mut client = Client::dial(broker, hello);
    let Packet::ConnAck(connack) = client.packet() else { panic!("no CONNACK") };
    connack.code
}

/// Returns the reason code of the PUBACK.
fn publish_reason(publisher: &mut Client) -> PubAckReason {
    let answer = publisher.publish_to("drivers/1/gps", QoS::AtLeastOnce, "x");
    let Some(Packet::PubAck(PubAck { reason, .. })) = answer else {
        panic!("no PUBACK: {answer:?}")
    };
    reason
}

#[test]
fn client_id_is_busy_until_its_former_session_is_cleaned_up() {
    let broker = Broker::start(&["--cleanup", "1s"]);
    Client::connect(&broker, &Hello::once("probe")).disconnect(None);
    wait_until("the session ends", || broker.session("probe").is_none());
    assert_eq!(connect_reason(&broker, &Hello::once("probe")), ConnectReturnCode::ServerBusy);
    assert_eq!(connect_reason(&broker, &Hello::once("other")), ConnectReturnCode::Success);
    wait_until("the client id is free again", || {
        connect_reason(&broker, &Hello::once("probe")) == ConnectReturnCode::Success
    });
}

#[test]
fn kept_session_is_never_busy() {
    let broker = Broker::start(&["--cleanup", "1h"]);
    Client::member(&broker, &Hello::keep("member")).break_off(&broker, "member");
    assert_eq!(connect_reason(&broker, &Hello::keep("member")), ConnectReturnCode::Success);
}

#[test]
fn every_request_is_refused_while_the_broker_denies() {
    let broker = Broker::start(&[]);
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    let mut member = Client::member(&broker, &Hello::once("member"));
    broker.command("deny 3s");
    assert_eq!(connect_reason(&broker, &Hello::once("other")), ConnectReturnCode::NotAuthorized);
    assert_eq!(publish_reason(&mut publisher), PubAckReason::NotAuthorized);
    assert_eq!(member.subscribe("x/y", QoS::AtLeastOnce), SubscribeReasonCode::NotAuthorized);
    wait_until("the broker accepts messages again", || {
        std::thread::sleep(Duration::from_millis(50));
        publish_reason(&mut publisher) == PubAckReason::Success
    });
    assert_eq!(member.take().len(), 1, "refused messages were not delivered");
}

#[test]
fn lost_messages_are_acknowledged_and_counted() {
    let broker = Broker::start(&["--lose-every", "5"]);
    let mut member = Client::member(&broker, &Hello::once("member"));
    let mut publisher = Client::connect(&broker, &Hello::once("publisher"));
    publisher.publish(0..10);
    assert_eq!(numbers(&member.take()), [0, 1, 2, 3, 5, 6, 7, 8]);
    broker.command("lose 2");
    publisher.publish(10..14);
    assert_eq!(numbers(&member.take()), [12, 13]);
    assert_eq!(broker.counter("lost_on_purpose"), 4);
    assert_eq!(broker.counter("delivery.dropped"), 0);
    assert_eq!(
        member.subscribe(SHARED, QoS::AtLeastOnce),
        SubscribeReasonCode::Success(QoS::AtLeastOnce)
    );
}
