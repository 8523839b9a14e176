// The client as npm has it, for the programs beside this one.
import { createRequire } from 'node:module';

export const require = createRequire(`${process.env.FOREBAY_TEST_NPM}/package.json`);
const { createClient } = require('@supabase/supabase-js');

export const say = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

// Node before 24 has no WebSocket, or one that hangs after a failed attempt.
const options = { realtime: { transport: require('ws'), vsn: process.env.VSN || '2.0.0' } };
export const supabase = createClient(process.env.URL, process.env.KEY, options);
export const table = () => supabase.from('workflow_queue_projection');
