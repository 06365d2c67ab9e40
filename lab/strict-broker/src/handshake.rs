//! Answers CONNECT with CONNACK, or withholds, delays or loses the answer as a test ordered.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnAckProperties, Connect, ConnectProperties, ConnectReturnCode, Packet,
};

use crate::broker::{Hello, Opened};
use crate::hub::Hub;
use crate::orders::{Behaviour, Request};
use crate::packet::{PACKET_BYTES_MAX, encode, encode_refusal};
use crate::router::ClientId;
use crate::session::{Expiry, Link};
use crate::socket::{Event, Socket, WaitOutcome};

/// Time for a CONNECT after the connection is accepted, as EMQX's idle_timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const PROTOCOL_ERROR: u8 = 0x82;
const NO_CLIENT_ID: u8 = 0x85;

/// A client that has received its CONNACK.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) client: ClientId,
    pub(crate) link: Rc<Link>,
    /// Longest interval between two packets of the client (3.1.2.10); zero: no limit.
    pub(crate) keep_alive: Duration,
}

/// Interval at which a hung node checks whether it has been started again.
const HUNG_TICK: Duration = Duration::from_millis(100);

/// Answers a CONNECT. Returns `None` if the connection must be closed.
pub(crate) async fn accept(socket: &mut Socket, hub: &Hub, node: usize) -> Option<Accepted> {
    let connect = read_connect(socket).await?;
    while hub.broker.borrow().hung[node] {
        tokio::time::sleep(HUNG_TICK).await;
    }
    if hub.broker.borrow().down[node] {
        return None;
    }
    if connect.properties.as_ref().is_some_and(|properties| properties.receive_maximum == Some(0)) {
        encode_refusal(PROTOCOL_ERROR, &mut socket.out);
        return None;
    }
    if connect.client_id.is_empty() {
        encode_refusal(NO_CLIENT_ID, &mut socket.out);
        return None;
    }
    let client = ClientId::from(connect.client_id.as_str());
    if let Some(reason) = hub.broker.borrow().refusal(&client, Instant::now()) {
        encode_refusal(reason, &mut socket.out);
        return None;
    }
    let behaviour = hub.orders.borrow_mut().take(Request::Connect, &client);
    let hello = hello(&connect, &client, node, hub);
    let opened = hub.broker.borrow_mut().open(&hello, Instant::now());
    let accepted = Accepted {
        client,
        link: Rc::clone(&opened.link),
        keep_alive: Duration::from_secs(connect.keep_alive.into()),
    };
    if !finish_takeover(socket, hub, &accepted, &opened).await
        || !follow_order(socket, hub, &accepted, behaviour).await
    {
        hub.broker.borrow_mut().close(&accepted.client, &accepted.link, None, Instant::now());
        return None;
    }
    encode(&connack(&hello, opened.present, hub), &mut socket.out);
    Some(accepted)
}

async fn read_connect(socket: &mut Socket) -> Option<Connect> {
    let until = Some(Instant::now() + CONNECT_TIMEOUT);
    loop {
        match socket.packet() {
            Ok(Some(Packet::Connect(connect, _, _))) => return Some(connect),
            Ok(None) => {}
            Ok(Some(_)) => return None,
            Err(fault) => {
                encode_refusal(fault.code(), &mut socket.out);
                return None;
            }
        }
        if matches!(socket.event(None, true, until).await, Event::Gone | Event::Due) {
            return None;
        }
    }
}

fn hello(connect: &Connect, client: &ClientId, node: usize, hub: &Hub) -> Hello {
    let ConnectProperties { session_expiry_interval, receive_maximum, .. } =
        connect.properties.clone().unwrap_or_default();
    Hello {
        client: Rc::clone(client),
        node,
        clean_start: connect.clean_start,
        expiry: Expiry::from_seconds(session_expiry_interval.unwrap_or(0)),
        window: receive_maximum.unwrap_or(u16::MAX).min(hub.options.max_inflight.get()),
    }
}

/// Waits as long as the takeover of the session's messages takes at `--resume-rate`. If the client
/// leaves meanwhile, the session is emptied, as on EMQX. Returns whether the takeover is complete.
async fn finish_takeover(
    socket: &mut Socket,
    hub: &Hub,
    accepted: &Accepted,
    opened: &Opened,
) -> bool {
    let Some(rate) = hub.options.resume_rate else { return true };
    let duration = Duration::from_secs_f64(opened.messages as f64 / rate);
    let until = Some(Instant::now() + duration);
    let done =
        socket.wait(hub, &accepted.client, &accepted.link, until).await == WaitOutcome::Elapsed;
    if !done {
        hub.broker.borrow_mut().forget(&accepted.client);
    }
    done
}

/// Delays the CONNACK, or empties the session, as ordered. Returns whether to send the CONNACK.
async fn follow_order(
    socket: &mut Socket,
    hub: &Hub,
    accepted: &Accepted,
    behaviour: Option<Behaviour>,
) -> bool {
    let until = match behaviour {
        None => return true,
        Some(Behaviour::Lose) => {
            hub.broker.borrow_mut().forget(&accepted.client);
            return false;
        }
        Some(Behaviour::Late(time)) => Some(Instant::now() + time),
        Some(Behaviour::Never) => None,
    };
    socket.wait(hub, &accepted.client, &accepted.link, until).await == WaitOutcome::Elapsed
}

/// Builds a CONNACK like EMQX's, without the features that this broker lacks. Like EMQX's, this
/// CONNACK does not echo the session expiry.
fn connack(hello: &Hello, session_present: bool, hub: &Hub) -> Packet {
    let properties = ConnAckProperties {
        session_expiry_interval: None,
        receive_max: hub.options.announce.then_some(hello.window),
        max_qos: Some(1),
        retain_available: Some(0),
        max_packet_size: Some(PACKET_BYTES_MAX),
        assigned_client_identifier: None,
        topic_alias_max: None,
        reason_string: None,
        user_properties: Vec::new(),
        wildcard_subscription_available: Some(1),
        subscription_identifiers_available: Some(0),
        shared_subscription_available: Some(1),
        server_keep_alive: None,
        response_information: None,
        server_reference: None,
        authentication_method: None,
        authentication_data: None,
    };
    Packet::ConnAck(ConnAck {
        session_present,
        code: ConnectReturnCode::Success,
        properties: Some(properties),
    })
}
