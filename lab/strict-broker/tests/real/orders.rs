//! Orders that the broker receives while it runs.

use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::SubscribeReasonCode;

use crate::client::{Broker, Client, Hello, Next, SHARED, numbers, sequence};

/// Time within which an answer would arrive if the broker had sent one.
const SOON: Duration = Duration::from_millis(500);

/// Starts a broker with an offline member that holds three messages.
fn broker_with_messages() -> Broker {
    let broker = Broker::start(&[]);
    Client::member(&broker, &Hello::keep("member")).break_off(&broker, "member");
    Client::connect(&broker, &Hello::once("publisher")).publish(0..3);
    broker
}

/// Checks that the session still has its three messages.
fn check_messages(broker: &Broker) {
    let mut member = Client::connect(broker, &Hello::keep("member"));
    assert!(member.session_present);
    assert_eq!(numbers(&member.take()), sequence(0..3));
}

#[test]
fn connack_is_withheld_on_request() {
    let broker = broker_with_messages();
    broker.command("next 1 connack never");
    let mut waiting = Client::dial(&broker, &Hello::keep("member"));
    assert_eq!(waiting.next(SOON), Next::Nothing);
    check_messages(&broker); // the next connection takes the session over
    assert_eq!(waiting.rest(), []);
}

#[test]
fn late_connack_keeps_the_session_of_an_impatient_client() {
    let broker = broker_with_messages();
    broker.command("next 2 connack late 2s");
    let impatient = Client::dial(&broker, &Hello::keep("member"));
    broker.wait_for("member", "connected");
    impatient.break_off(&broker, "member");

    let began = Instant::now();
    let mut patient = Client::connect(&broker, &Hello::keep("member"));
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(numbers(&patient.take()), sequence(0..3), "the impatient client lost nothing");
}

#[test]
fn lost_connack_empties_the_session() {
    let broker = broker_with_messages();
    broker.command("next 1 connack lose");
    assert_eq!(Client::dial(&broker, &Hello::keep("member")).rest(), []);
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    assert!(member.session_present);
    assert_eq!(member.take(), []);
    assert!(!broker.session("member").unwrap().contains(SHARED));
}

#[test]
fn subscription_is_made_even_if_the_suback_is_withheld() {
    let broker = Broker::start(&[]);
    broker.command("next 1 suback never");
    let mut member = Client::connect(&broker, &Hello::keep("member"));
    member.send_subscribe(SHARED, QoS::AtLeastOnce);
    assert_eq!(member.next(SOON), Next::Nothing);
    Client::connect(&broker, &Hello::once("publisher")).publish(0..1);
    assert_eq!(numbers(&member.take()), [0]);
    assert_eq!(
        member.subscribe(SHARED, QoS::AtLeastOnce),
        SubscribeReasonCode::Success(QoS::AtLeastOnce)
    );
}
