// The snippet of the source document with the client as npm has it: says, a line of JSON each, what its callbacks get. What it is told, a
// line each, is its next token.
import { createInterface } from 'node:readline';
import { say, supabase } from './client.mjs';

const wanted = JSON.parse(process.env.WANTED);
let channel = supabase.channel('workflow-queue');
for (const [name, config] of Object.entries(wanted)) {
  channel = channel.on('postgres_changes', config, (payload) => {
    say({ name, type: payload.eventType, new: payload.new, old: payload.old });
  });
}
channel.subscribe((status, error) => say({ status, error: error && String(error.message || error) }));
createInterface({ input: process.stdin }).on('line', (token) => void supabase.realtime.setAuth(token));
