// Publishes a message at QoS 0 over MQTT 3.1.1: CONNECT, PUBLISH, DISCONNECT.
import { once } from 'node:events';
import { connect } from 'node:net';

export async function publish(port: number, topic: string, payload: unknown): Promise<void> {
  const socket = connect(port, '127.0.0.1');
  await once(socket, 'connect');
  // Clean session, no keep-alive.
  socket.write(packet(0x10, Buffer.concat([text('MQTT'), Buffer.from([4, 2, 0, 0]), text(`test-${Math.random()}`)])));
  const [connack] = (await once(socket, 'data')) as [Buffer];
  if (connack[0] !== 0x20 || connack[3] !== 0) throw new Error(`the broker refused: ${connack.toString('hex')}`);
  socket.write(packet(0x30, Buffer.concat([text(topic), Buffer.from(JSON.stringify(payload))])));
  socket.end(packet(0xe0, Buffer.alloc(0)));
  await once(socket, 'close');
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 255]), bytes]);
}

function packet(kind: number, body: Buffer): Buffer {
  const length: number[] = [];
  let rest = body.length;
  do {
    length.push((rest & 127) | (rest > 127 ? 128 : 0));
    rest >>= 7;
  } while (rest > 0);
  return Buffer.concat([Buffer.from([kind, ...length]), body]);
}
