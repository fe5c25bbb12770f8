// Shows what is in a queue, in a web page or in Node.js.
import {Client} from '@stomp/stompjs';

export function orders(url, login, passcode, show) {
  const client = new Client({
    brokerURL: url,
    connectHeaders: {login, passcode},
    reconnectDelay: 1000,
    onConnect: () => {
      const each = message => {
        show(message.body);
        message.ack();
      };
      client.subscribe('/queue/orders', each, {ack: 'client-individual'});
    },
    onStompError: frame => show(`refused: ${frame.headers.message}`),
  });
  client.activate();
  return client;
}
