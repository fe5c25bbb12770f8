// The agent for stomp.js over TCP: node stomp_js.mjs HOST PORT CASE
//
// It takes @stomp/stompjs from node_modules of the folder that it is run in.
import {createRequire} from 'node:module';
import {connect} from 'node:net';
import {join} from 'node:path';

const require = createRequire(join(process.cwd(), 'agent.js'));
const {Client, Versions} = require('@stomp/stompjs');

// What stomp.js needs of a WebSocket, on plain TCP: its documentation allows any such object.
class TcpSocket {
  readyState = 0; // connecting
  #socket;

  constructor({host, port}) {
    this.url = `tcp://${host}:${port}`;
    this.#socket = connect({host, port, noDelay: true});
    this.#socket.on('connect', () => {
      this.readyState = 1;
      this.onopen();
    });
    this.#socket.on('data', data => this.onmessage({data: new Uint8Array(data).buffer}));
    this.#socket.on('error', error => this.onerror(error));
    this.#socket.on('close', failed => {
      this.readyState = 3;
      this.onclose({code: failed ? 1006 : 1000, reason: '', wasClean: !failed});
    });
  }

  send(data) {
    this.#socket.write(typeof data === 'string' ? data : new Uint8Array(data));
  }

  close() {
    this.readyState = 2;
    this.#socket.end();
  }
}

function end(reason) {
  console.error(reason);
  process.exit(1);
}

const [host, port] = process.argv.slice(2);
const nodes = (process.env.STOMPKIT_HOSTS ?? `${host}:${port}`).split(',').map(node => {
  const colon = node.lastIndexOf(':');
  return {host: node.slice(0, colon), port: Number(node.slice(colon + 1))};
});
let attempts = 0;
let receipts = 0;
let subscription;

const receipt = () => ({receipt: `receipt-${++receipts}`});

const client = new Client({
  webSocketFactory: () => new TcpSocket(nodes[attempts++ % nodes.length]),
  connectHeaders: {login: 'guest', passcode: 'gu:e\\st', host},
  stompVersions: Versions.default,
  heartbeatOutgoing: 500,
  heartbeatIncoming: 500,
  reconnectDelay: nodes.length > 1 ? 100 : 0,
  onConnect: () => {
    subscription = subscribe('/queue/in');
  },
  onStompError: frame => end(`the broker says ${frame.headers.message}`),
  onWebSocketClose: () => {
    if (client.active && nodes.length === 1) end('the connection is lost');
  },
});

function subscribe(destination) {
  const ack = client.connectedVersion === Versions.V1_2 || client.connectedVersion === Versions.V1_1
    ? 'client-individual' : 'client';
  return client.subscribe(destination, handle, {ack, ...receipt()});
}

function send(binaryBody, headers = {}) {
  client.publish({destination: '/queue/out', binaryBody, headers: {...headers, ...receipt()}});
}

const octets = text => new TextEncoder().encode(text);

// The text before a separator, and that behind it.
function divided(text, separator) {
  const place = text.indexOf(separator);
  return place < 0 ? [text, ''] : [text.slice(0, place), text.slice(place + 1)];
}

async function handle(message) {
  const {headers} = message;
  const own = Object.fromEntries(Object.entries(headers).filter(([name]) => name.startsWith('x-')));
  const [word, rest] = divided(message.body, ' ');
  if (word === 'quit') {
    subscription.unsubscribe(receipt());
    await client.deactivate();
    process.exit(0);
  } else if (word === 'nack') {
    message.nack(receipt());
    return;
  } else if (word === 'subscribe') {
    subscribe(rest);
  } else if (word === 'describe') {
    send(octets(Object.entries(own)[0].join('=')));
  } else if (word === 'header') {
    const [name, value] = divided(rest, '=');
    send(octets(''), {[name]: value});
  } else if (word === 'commit' || word === 'abort') {
    const transaction = client.begin();
    send(message.binaryBody, {transaction: transaction.id});
    transaction[word]();
  } else {
    if (headers['content-type']) own['content-type'] = headers['content-type'];
    send(message.binaryBody, own);
  }
  message.ack(receipt());
}

client.activate();
