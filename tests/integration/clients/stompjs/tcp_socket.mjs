// What stomp.js needs of a WebSocket, on plain TCP: its documentation allows any such object.
import {connect} from 'node:net';

const CONNECTING = 0;
const OPEN = 1;
const CLOSING = 2;
const CLOSED = 3;

export class TcpSocket {
  readyState = CONNECTING;
  #socket;

  constructor(host, port) {
    this.url = `tcp://${host}:${port}`;
    this.#socket = connect({host, port, noDelay: true});
    this.#socket.on('connect', () => {
      this.readyState = OPEN;
      this.onopen();
    });
    this.#socket.on('data', data => {
      this.onmessage({data: new Uint8Array(data).buffer});
    });
    this.#socket.on('error', error => this.onerror(error));
    this.#socket.on('close', failed => {
      this.readyState = CLOSED;
      this.onclose({code: failed ? 1006 : 1000, reason: '', wasClean: !failed});
    });
  }

  // Takes a string or an ArrayBuffer.
  send(data) {
    this.#socket.write(typeof data === 'string' ? data : new Uint8Array(data));
  }

  close() {
    this.readyState = CLOSING;
    this.#socket.end();
  }
}
