// A client on stomp.js for ../../test_foreign_clients.py; ../driver.py says what goes in and out.
import {createInterface} from 'node:readline';
import {Client, Versions} from '@stomp/stompjs';
import WebSocket from 'ws';
import {TcpSocket} from './tcp_socket.mjs';

const [host, port, version, heartBeat, url, kind] = process.argv.slice(2);
const [heartbeatOutgoing, heartbeatIncoming] = heartBeat.split(',').map(Number);

globalThis.WebSocket = WebSocket; // Node.js has one of its own from version 22 on

// What has happened and was not waited for yet.
class Events {
  #happened = [];
  #waiting = [];

  put(event) {
    if (this.#waiting.length > 0) this.#waiting.shift()(event);
    else this.#happened.push(event);
  }

  next() {
    if (this.#happened.length > 0) return Promise.resolve(this.#happened.shift());
    return new Promise(resolve => this.#waiting.push(resolve));
  }
}

const messages = new Events(); // and null at the end of the connection
const answers = new Events();
const beats = new Events();
const disconnected = new Events();
const delivered = new Map(); // the messages that can be acknowledged, by message-id

const client = new Client({
  ...(url ? {brokerURL: url} : {webSocketFactory: () => new TcpSocket(host, Number(port))}),
  forceBinaryWSFrames: kind === 'binary',
  splitLargeFrames: kind === 'split',
  maxWebSocketChunkSize: 16,
  stompVersions: new Versions(version.split(',')),
  heartbeatOutgoing,
  heartbeatIncoming,
  reconnectDelay: 0,
  onConnect: frame => answers.put(frame),
  onStompError: frame => answers.put(frame),
  onHeartbeatReceived: () => beats.put(null),
  onDisconnect: frame => disconnected.put(frame),
  onWebSocketClose: () => messages.put(null),
});

function print(frame) {
  if (frame === null) return process.stdout.write('null\n');
  const {command, headers} = frame;
  const body = Buffer.from(frame.binaryBody).toString('base64');
  return process.stdout.write(`${JSON.stringify({command, headers, body})}\n`);
}

const calls = {
  send({destination, ...headers}, {text, octets}) {
    const body = text === undefined ? {binaryBody: Buffer.from(octets, 'base64')} : {body: text};
    client.publish({destination, headers, ...body});
  },
  subscribe({destination, ...headers}) {
    client.subscribe(destination, message => messages.put(message), headers);
  },
  unsubscribe: ({id, ...headers}) => client.unsubscribe(id, headers),
  ack: (headers, {message}) => delivered.get(message).ack(headers),
  nack: (headers, {message}) => delivered.get(message).nack(headers),
  begin: ({transaction}) => client.begin(transaction),
  commit: ({transaction}) => client.commit(transaction),
  abort: ({transaction}) => client.abort(transaction),
};

async function perform(call) {
  const {call: name, headers = {}} = call;
  if (name === 'receive') {
    const message = await messages.next();
    if (message !== null) delivered.set(message.headers['message-id'], message);
    return message;
  }
  if (name === 'beat') return beats.next();
  if (name === 'disconnect') {
    client.disconnectHeaders = headers;
    await client.deactivate();
    return disconnected.next();
  }
  if (headers.receipt) client.watchForReceipt(headers.receipt, frame => answers.put(frame));
  calls[name](headers, call);
  return headers.receipt ? answers.next() : null;
}

client.activate();
print(await answers.next());
for await (const line of createInterface({input: process.stdin})) {
  print(await perform(JSON.parse(line)));
}
await client.deactivate();
