// The six queries of the source document as calls of the client, and what may go wrong with them: says what each came to.
import { say, supabase, table } from './client.mjs';

const { STREAM, WORKER } = process.env;
const [first, second, third] = JSON.parse(process.env.JOBS);
const call = async (name, asked) => {
  const { data, error, status, count } = await asked;
  say({ call: name, data, error, status, count });
  return data;
};
const claim = (id) =>
  table().update({ status: 'processing', worker_id: WORKER, claimed_at: 'now', updated_at: 'now' }).eq('id', id).eq('status', 'pending');
const complete = (id) => table().update({ status: 'completed', completed_at: 'now', result: { orgId: id }, updated_at: 'now' }).eq('id', id);

await call('pending', table().select('*').eq('status', 'pending').order('created_at', { ascending: true }));
await call('too early', complete(first));
await call('claim', claim(first).select());
await call('lost', claim(first).select());
await call('lost, one', claim(first).select().single());
await call('lost, maybe one', claim(first).select().maybeSingle());
await call('complete', complete(first));
await call('claim, one', claim(second).select('id, status, retry_count').single());
const failed = { status: 'failed', failed_at: 'now', error_message: 'DNS verification timeout', error_stack: '...', updated_at: 'now' };
await call('fail, another time', table().update({ ...failed, retry_count: 5 }).eq('id', second).eq('retry_count', 4).select());
await call('fail', table().update({ ...failed, retry_count: 1 }).eq('id', second).eq('retry_count', 0));
await call('failed', table().select().eq('status', 'failed').lt('retry_count', 3).order('failed_at'));
const columns = 'workflow_id, status, created_at, completed_at, error_message';
await call('history', table().select(columns).eq('stream_id', STREAM).order('created_at', { ascending: false }));
await call('two, one', table().update({ status: 'processing', worker_id: WORKER }).in('id', [third, JSON.parse(process.env.JOBS)[3]]).select().single());
await call('still pending', table().select('id').eq('status', 'pending').order('id'));
await call('undone', claim(third).select('status').rollback());
await call('bounded', table().update({ status: 'processing', worker_id: WORKER }).eq('status', 'pending').maxAffected(1).select());
await call('counted', table().select('*', { count: 'exact', head: true }).in('status', ['pending', 'a,b']));
await call('some', table().select('id', { count: 'exact' }).order('created_at').range(1, 2));
await call('one', table().select('status').eq('id', first).single());
await call('fifth status', table().update({ status: 'paused' }).eq('id', third));
await call('no filter', table().update({ status: 'processing' }));
await call('with a limit', table().update({ status: 'processing' }).eq('status', 'pending').limit(1));
await call('no such column', table().select('nope'));
await call('no such value', table().select().eq('id', 'nope'));
await call('no such table', supabase.from('api_key').select());
await call('no such schema', supabase.schema('private').from('workflow_queue_projection').select());
await call('insert', table().insert({ status: 'pending' }));
await call('delete', table().delete().eq('id', first));
await call('or', table().select().or('status.eq.pending,status.eq.failed'));
await call('function', supabase.rpc('claim', {}));
say({ said: 'done' });
