// A bare socket: what it is told, a line each, it sends (a list of bytes in a binary frame), and what it hears it says.
import { createInterface } from 'node:readline';
import { require, say } from './client.mjs';

const WebSocket = require('ws');
const at = process.env.URL.replace('http', 'ws');
const socket = new WebSocket(`${at}/realtime/v1/websocket?apikey=${process.env.KEY}&vsn=${process.env.VSN || '2.0.0'}`);
socket.on('open', () => {
  say({ said: 'open' });
  createInterface({ input: process.stdin }).on('line', (line) => {
    socket.send(line.startsWith('bytes ') ? Buffer.from(JSON.parse(line.slice(6))) : line);
  });
});
socket.on('message', (data, isBinary) => say({ frame: JSON.parse(data), isBinary }));
socket.on('close', (code, reason) => say({ closed: code, reason: String(reason) }));
