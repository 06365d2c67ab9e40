//! Checks whether the broker is a cluster, whether `mqtt.url` has all of its nodes, and which
//! member receives a message.

use std::time::Duration;

use bytes::BytesMut;

use super::report::Report;
use milepost_command::client::{
    self, ANSWER_TIMEOUT, BrokerTarget, Client, ClientError, RETAINED_TIMEOUT, filter_in_own_group,
};
use milepost_config::Mqtt;
use milepost_core::Qos;
use milepost_mqtt as codec;
use milepost_mqtt::Packet;
use milepost_tls::nodes;

/// Topic on which EMQX retains the names of its nodes, separated by commas.
const NODES_TOPIC: &str = "$SYS/brokers";
/// Number of test messages. Under any strategy other than `local`, each member almost certainly
/// receives at least one of them.
const MESSAGES: usize = 10;
/// Advice on the setting that a cluster of EMQX nodes needs.
const LOCAL_STRATEGY: &str = "EMQX: set mqtt.shared_subscription_strategy = local: with any other \
                              strategy EMQX keeps assigning messages to a node that died, and \
                              drops them uncounted";

/// Compares the nodes that the broker names with the nodes in `mqtt.url`, at the start of the
/// consumer. Skips nodes that do not answer: the sessions report them.
pub(super) async fn compare_nodes(report: &mut Report, mqtt: &Mqtt) {
    let Ok(login) = client::login(mqtt) else { return };
    let configured = nodes::resolve(&mqtt.nodes, &[]).await;
    for node in &configured {
        let target = BrokerTarget { mqtt, node, login: login.as_ref() };
        let Ok(names) = node_names(target).await else { continue };
        let is_cluster =
            configured.len() > 1 || names.as_ref().is_some_and(|names| names.len() > 1);
        if let Some(names) = names.filter(|names| names.len() > configured.len()) {
            report_missing_nodes(report, &names, ("mqtt.url has", configured.len()));
        }
        if is_cluster {
            report.ok(
                "strategy",
                format!(
                    "the broker is a cluster; `milepost check --probe-topic drivers/ID/gps-check` \
                     tests its strategy. {LOCAL_STRATEGY}"
                ),
            );
        }
        return;
    }
}

/// Warns that the broker has more nodes than milepost uses. `names`: all nodes. `count`: the number
/// of nodes in use. `subject`: the words before that number in the message, such as `mqtt.url has`.
fn report_missing_nodes(report: &mut Report, names: &[String], (subject, count): (&str, usize)) {
    report.warning(
        "cluster",
        format!("{} nodes, of which {subject} {count}: {}", names.len(), names.join(" ")),
        "set mqtt.url to a URL for each node, or to a host name that has all their addresses",
    );
}

/// Checks that milepost reaches all nodes. If at least two answer and `probe_topic` is given,
/// also checks which member receives a message. `targets`: the nodes that answer, at least one.
pub(super) async fn check(
    report: &mut Report,
    targets: &[BrokerTarget<'_>],
    probe_topic: Option<&str>,
) -> Result<(), ClientError> {
    let reached = targets.len();
    let nodes = node_names(targets[0]).await?;
    let is_untestable = reached == 1 && nodes.as_ref().is_some_and(|nodes| nodes.len() > 1);
    match nodes {
        Some(nodes) if nodes.len() > reached => {
            report_missing_nodes(report, &nodes, ("milepost reaches", reached))
        }
        Some(nodes) => {
            report.ok("cluster", format!("{} nodes, and milepost reaches them all", nodes.len()))
        }
        None if reached > 1 => report
            .ok("cluster", format!("{reached} nodes; whether these are all is not visible here")),
        None => report.ok("cluster", "one node; whether the broker has more is not visible here"),
    }
    if is_untestable {
        // The strategy cannot be read over MQTT. Only a test with members on two nodes shows it.
        report.ok(
            "strategy",
            "not tested: the test needs two nodes in mqtt.url; in EMQX, run emqx ctl conf show \
             mqtt: shared_subscription_strategy must be local",
        );
    }
    let [here, there, ..] = targets else { return Ok(()) };
    match probe_topic {
        None => {
            report.ok("strategy", format!("not visible; --probe-topic tests it. {LOCAL_STRATEGY}"))
        }
        Some(topic) => match (
            count_received(*here, *there, topic).await?,
            count_received(*there, *here, topic).await?,
        ) {
            ((MESSAGES, 0), (MESSAGES, 0)) => {
                report.ok(
                    "strategy",
                    "local: a message goes to a member on the node that received it",
                );
            }
            ((0, 0), _) | (_, (0, 0)) => report.ok("strategy", "not visible: no message came back"),
            ((stayed, moved), _) => report.warning(
                "strategy",
                format!(
                    "not local: of {MESSAGES} messages sent to {}, the member there received \
                     {stayed}, and the member on {} received {moved}",
                    here.node, there.node
                ),
                LOCAL_STRATEGY,
            ),
        },
    }
    Ok(())
}

/// Returns the names of the broker's nodes; `None` if the broker does not publish them, or hides
/// them from this user.
async fn node_names(target: BrokerTarget<'_>) -> Result<Option<Vec<String>>, ClientError> {
    let (mut probe, _) = Client::open(target, Duration::ZERO).await?;
    let retained = async {
        probe.subscribe(&[NODES_TOPIC.to_owned()], Qos::AtMostOnce).await?;
        let names = probe.wait_for(RETAINED_TIMEOUT, |packet| {
            let Packet::Published(publish) = packet else { return None };
            let names = String::from_utf8_lossy(publish.payload).into_owned();
            let is_list = publish.topic == NODES_TOPIC.as_bytes();
            is_list.then(|| names.split(',').map(str::to_owned).collect())
        });
        names.await
    };
    let names = match retained.await {
        Ok(names) => Some(names),
        // Some brokers close the connection instead of refusing a forbidden subscription.
        Err(error) if error.is_hang_up() => None,
        Err(error) => return Err(error),
    };
    probe.leave().await;
    Ok(names)
}

/// Subscribes a member on each of two nodes, publishes to the first, and counts the messages that
/// each member receives.
async fn count_received(
    here: BrokerTarget<'_>,
    there: BrokerTarget<'_>,
    topic: &str,
) -> Result<(usize, usize), ClientError> {
    let filter = [filter_in_own_group(here.mqtt, topic)];
    let (mut client_here, _) = Client::open(here, Duration::ZERO).await?;
    let (mut client_there, _) = Client::open(there, Duration::ZERO).await?;
    client_here.subscribe(&filter, Qos::AtMostOnce).await?;
    client_there.subscribe(&filter, Qos::AtMostOnce).await?;
    let mut bytes = BytesMut::new();
    codec::put_publish(topic, b"milepost check", false, &mut bytes)?;
    let (mut received_here, mut received_there) = (0, 0);
    for _ in 0..MESSAGES {
        client_here.send(&bytes).await?;
        let acked = client_here.wait_for(ANSWER_TIMEOUT, |packet| {
            received_here += usize::from(matches!(packet, Packet::Published(_)));
            matches!(packet, Packet::Acked(_)).then_some(())
        });
        acked.await?;
    }
    // Wait for messages to the other member, and for messages still in transit to this member.
    for (probe, count) in
        [(&mut client_here, &mut received_here), (&mut client_there, &mut received_there)]
    {
        let remaining = probe.wait_for(RETAINED_TIMEOUT, |packet| {
            *count += usize::from(matches!(packet, Packet::Published(_)));
            (*count >= MESSAGES).then_some(())
        });
        match remaining.await {
            Ok(()) | Err(ClientError::Unanswered) => {}
            Err(error) => return Err(error),
        }
    }
    client_here.leave().await;
    client_there.leave().await;
    Ok((received_here, received_there))
}
