// Sends the PUBACK of a message after the insert of its rows.
//
// mqtt.js has two hooks, customHandleAcks and handleMessage. Both hold back the *next* packet until their callback
// is called, so a batch could never fill. This module therefore discards the PUBACK that mqtt.js sends on receipt,
// and sends its own when the batch is stored. _sendPacket is not public, so the version of mqtt.js is pinned.

/** Returns a function that takes a received packet and returns the function that acknowledges it. */
export function acknowledgeLater(client) {
  const send = client._sendPacket.bind(client);
  client._sendPacket = (packet, done, ...rest) =>
    packet.cmd === 'puback' ? done?.() : send(packet, done, ...rest);

  let due = [];
  let epoch = 0;
  // A packet id is valid on its connection only. The broker redelivers messages that were not acknowledged on an
  // earlier connection.
  client.on('close', () => {
    epoch += 1;
    due = [];
  });
  // One write per batch, not one per message.
  const flush = () => {
    client.stream.cork?.();
    for (const messageId of due) send({ cmd: 'puback', messageId, reasonCode: 0 });
    client.stream.uncork?.();
    due = [];
  };
  return ({ messageId }) => {
    const receivedEpoch = epoch;
    return () => {
      if (receivedEpoch !== epoch) return;
      if (due.length === 0) queueMicrotask(flush);
      due.push(messageId);
    };
  };
}
