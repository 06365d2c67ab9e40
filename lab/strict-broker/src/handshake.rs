//! Answers CONNECT with CONNACK, or fails on purpose in each way that a test requests.

use std::rc::Rc;
use std::time::{Duration, Instant};

use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnAckProperties, Connect, ConnectProperties, ConnectReturnCode, Packet,
};

use crate::broker::{Hello, Opened};
use crate::hub::Hub;
use crate::orders::{Answer, Manner};
use crate::packet::{PACKET_BYTES_MAX, put, put_refusal};
use crate::router::ClientId;
use crate::session::{Expiry, Link};
use crate::socket::{Event, Socket, Waited};

/// Time for a CONNECT after the connection is accepted, as EMQX's idle_timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const PROTOCOL_ERROR: u8 = 0x82;
const NO_CLIENT_ID: u8 = 0x85;

/// A client that has received its CONNACK.
#[derive(Debug)]
pub(crate) struct Greeted {
    pub(crate) client: ClientId,
    pub(crate) link: Rc<Link>,
    /// Longest interval between two packets of the client (3.1.2.10); zero: no limit.
    pub(crate) keep_alive: Duration,
}

/// Interval at which a hung node checks whether it has been started again.
const HUNG_TICK: Duration = Duration::from_millis(100);

/// Answers a CONNECT. Returns `None` if the connection must be closed.
pub(crate) async fn greet(socket: &mut Socket, hub: &Hub, node: usize) -> Option<Greeted> {
    let connect = read_connect(socket).await?;
    while hub.broker.borrow().hung[node] {
        tokio::time::sleep(HUNG_TICK).await;
    }
    if hub.broker.borrow().down[node] {
        return None;
    }
    if connect.properties.as_ref().is_some_and(|properties| properties.receive_maximum == Some(0)) {
        put_refusal(PROTOCOL_ERROR, &mut socket.out);
        return None;
    }
    if connect.client_id.is_empty() {
        put_refusal(NO_CLIENT_ID, &mut socket.out);
        return None;
    }
    let client = ClientId::from(connect.client_id.as_str());
    if let Some(reason) = hub.broker.borrow().refusal(&client, Instant::now()) {
        put_refusal(reason, &mut socket.out);
        return None;
    }
    let manner = hub.orders.borrow_mut().take(Answer::Connect, &client);
    let hello = hello(&connect, &client, node, hub);
    let opened = hub.broker.borrow_mut().open(&hello, Instant::now());
    let greeted = Greeted {
        client,
        link: Rc::clone(&opened.link),
        keep_alive: Duration::from_secs(connect.keep_alive.into()),
    };
    if !finish_takeover(socket, hub, &greeted, &opened).await
        || !follow_order(socket, hub, &greeted, manner).await
    {
        hub.broker.borrow_mut().close(&greeted.client, &greeted.link, None, Instant::now());
        return None;
    }
    put(&connack(&hello, opened.present, hub), &mut socket.out);
    Some(greeted)
}

async fn read_connect(socket: &mut Socket) -> Option<Connect> {
    let until = Some(Instant::now() + CONNECT_TIMEOUT);
    loop {
        match socket.packet() {
            Ok(Some(Packet::Connect(connect, _, _))) => return Some(connect),
            Ok(None) => {}
            Ok(Some(_)) => return None,
            Err(fault) => {
                put_refusal(fault.code(), &mut socket.out);
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

/// Takes over the messages of the session, at the configured rate. A client that closes the
/// connection meanwhile leaves an empty session behind, as on EMQX.
async fn finish_takeover(
    socket: &mut Socket,
    hub: &Hub,
    greeted: &Greeted,
    opened: &Opened,
) -> bool {
    let Some(rate) = hub.options.resume_rate else { return true };
    let takes = Duration::from_secs_f64(opened.messages as f64 / rate);
    let until = Some(Instant::now() + takes);
    let done = socket.wait(hub, &greeted.client, &greeted.link, until).await == Waited::Over;
    if !done {
        hub.broker.borrow_mut().forget(&greeted.client);
    }
    done
}

/// Returns whether the CONNACK must be sent, after waiting or losing the session as ordered.
async fn follow_order(
    socket: &mut Socket,
    hub: &Hub,
    greeted: &Greeted,
    manner: Option<Manner>,
) -> bool {
    let until = match manner {
        None => return true,
        Some(Manner::Lose) => {
            hub.broker.borrow_mut().forget(&greeted.client);
            return false;
        }
        Some(Manner::Late(time)) => Some(Instant::now() + time),
        Some(Manner::Never) => None,
    };
    socket.wait(hub, &greeted.client, &greeted.link, until).await == Waited::Over
}

/// Builds EMQX's CONNACK, without the features that this broker lacks. Like EMQX, it echoes no
/// session expiry.
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
