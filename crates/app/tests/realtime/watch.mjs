// The snippet of the source document with the client as npm has it: says, a line of JSON each, what its callbacks get.
import { createRequire } from 'node:module';

const require = createRequire(`${process.env.FOREBAY_TEST_NPM}/package.json`);
const { createClient } = require('@supabase/supabase-js');
const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

// Node before 24 has no WebSocket, or one that hangs after a failed attempt.
const options = { realtime: { transport: require('ws'), vsn: process.env.VSN || '2.0.0' } };
const supabase = createClient(process.env.URL, process.env.KEY, options);

const wanted = JSON.parse(process.env.WANTED);
let channel = supabase.channel('workflow-queue');
for (const [name, config] of Object.entries(wanted)) {
  channel = channel.on('postgres_changes', config, (payload) => {
    say({ name, type: payload.eventType, new: payload.new, old: payload.old });
  });
}
channel.subscribe((status, error) => say({ status, error: error && String(error.message || error) }));
