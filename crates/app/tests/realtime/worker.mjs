// A worker made of the client alone: it subscribes, looks for what it missed, claims, and completes or fails, all with one address and key.
import { say, supabase, table } from './client.mjs';

const me = process.env.WORKER;
const held = new Set();

async function work(job) {
  if (held.has(job.id)) return;
  held.add(job.id);
  // The claim's own time beside its name: who comes back late finds nothing to end.
  const mine = (set) => table().update({ ...set, updated_at: 'now' }).eq('id', job.id).eq('worker_id', me).eq('claimed_at', job.claimed_at).select('id');
  const bad = job.event_data === 'bad';
  const { data, error } = bad
    ? await mine({ status: 'failed', failed_at: 'now', error_message: 'bad', retry_count: job.retry_count + 1 })
    : await mine({ status: 'completed', completed_at: 'now', result: { by: me } });
  held.delete(job.id);
  if (!error && data.length === 1) say({ ended: job.id, bad });
}

async function tryClaim(id) {
  const claim = { status: 'processing', worker_id: me, claimed_at: 'now', updated_at: 'now' };
  const { data } = await table().update(claim).eq('id', id).eq('status', 'pending').select();
  if (data?.length === 1) await work(data[0]);
}

// What waits, and what is ours already: an answer may have been lost on its way.
async function catchUp() {
  const { data: mine } = await table().select('*').eq('status', 'processing').eq('worker_id', me);
  for (const job of mine ?? []) await work(job);
  const { data: waiting } = await table().select('id').eq('status', 'pending').order('created_at').limit(100);
  for (const { id } of waiting ?? []) await tryClaim(id);
}

let busy = false;
async function look() {
  if (busy) return;
  busy = true;
  try {
    await catchUp();
  } finally {
    busy = false;
  }
}

const pending = { event: 'INSERT', schema: 'public', table: 'workflow_queue_projection', filter: 'status=eq.pending' };
supabase
  .channel('workflow-queue')
  .on('postgres_changes', pending, (payload) => void tryClaim(payload.new.id))
  .subscribe((status) => {
    say({ status });
    if (status === 'SUBSCRIBED') void look();
  });
setInterval(look, 1000);
