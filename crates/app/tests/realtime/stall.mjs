// A client that joins and then reads nothing any more.
import { require } from './client.mjs';

const WebSocket = require('ws');
const at = process.env.URL.replace('http', 'ws');
const socket = new WebSocket(`${at}/realtime/v1/websocket?apikey=${process.env.KEY}&vsn=2.0.0`);
const wanted = [{ event: '*', schema: 'public', table: 'workflow_queue_projection' }];

socket.on('open', () => {
  socket.send(Buffer.from([3, 0]));
  socket.send('no frame');
  socket.send(JSON.stringify(['1', '1', 'realtime:stalled', 'phx_join', { config: { postgres_changes: wanted } }]));
});
socket.on('message', (data) => {
  const [, , , event, payload] = JSON.parse(data);
  if (event === 'phx_reply' && payload.status === 'ok') {
    socket.pause();
    process.stdout.write('{"said":"joined"}\n');
    setInterval(() => {}, 1000);
  }
});
