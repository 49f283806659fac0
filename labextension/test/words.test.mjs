import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RestoreNews } from '../lib/news.js';
import { comeback, describe, moment } from '../lib/words.js';

const PHASES = 'starting running snapshotting dozing suspending suspended resuming lost restoring failed'.split(' ');
const base = {
  kernel_id: 'k',
  protected: true,
  why: '',
  fix: '',
  phase: 'running',
  last_snapshot: { generation: 3, created: '2026-12-01T14:02:31Z', execution_count: 7 },
  last_error: null,
  restores: []
};

test('nothing is said of a kernel that is not ours or that the user ended', () => {
  assert.equal(describe(undefined), null);
  assert.equal(describe({ ...base, phase: 'dead' }), null);
});

test('every phase that a kernel can be seen in has words', () => {
  for (const phase of PHASES) {
    assert.notEqual(describe({ ...base, phase }), null, phase);
  }
});

test('a kernel that waits for a restore is not called protected, nor good', () => {
  for (const phase of ['lost', 'restoring', 'resuming', 'failed']) {
    const words = describe({ ...base, phase });
    assert.ok(!words.text.includes('Protected'), phase);
    assert.notEqual(words.tone, 'good', phase);
  }
});

test('why it is not protected is said, and what mends it', () => {
  const words = describe({ ...base, protected: false, why: 'No CRIU.', fix: 'perdure engine install' });
  assert.ok(words.text.includes('No CRIU.'));
  assert.ok(words.more.includes('perdure engine install'));
  assert.equal(words.tone, 'bad');
});

test('a failed try is told although an older snapshot is good', () => {
  const last_error = { code: 'no-room', sentence: 'The disk is full.', hint: 'Make room.' };
  const words = describe({ ...base, last_error });
  assert.equal(words.tone, 'bad');
  assert.ok(words.more.includes('The disk is full.'));
});

test('a word that JupyterLab and its tests look for is never used', () => {
  for (const phase of PHASES) {
    assert.doesNotMatch(JSON.stringify(describe({ ...base, phase })), /idle/i);
  }
});

test('a comeback is told once, and not one from before the page', () => {
  const news = new RestoreNews();
  const first = { at: '2026-12-01T14:03:00Z', generation: 3, reason: 'it was ended by signal 9' };
  const second = { ...first, at: '2026-12-01T14:04:00Z' };
  assert.equal(news.of({ ...base, restores: [first] }), undefined);
  assert.equal(news.of({ ...base, restores: [first, second] }), second);
  assert.equal(news.of({ ...base, restores: [first, second] }), undefined);
  assert.equal(news.of({ ...base, restores: [] }), undefined, 'restarted');
  assert.equal(news.of({ ...base, restores: [first] }), first);
  assert.equal(news.of({ ...base, kernel_id: 'other', restores: [first] }), undefined);
});

test('a comeback names the notebook, the reason, and the moment only of the snapshot that was restored', () => {
  const restore = { at: '2026-12-01T14:03:00Z', generation: 3, reason: 'it was ended by signal 9' };
  const told = comeback('work.ipynb', restore, base.last_snapshot);
  assert.ok(told.includes('work.ipynb'));
  assert.ok(told.includes('signal 9'));
  assert.ok(told.includes(moment(base.last_snapshot)));
  assert.ok(!comeback('work.ipynb', restore, { ...base.last_snapshot, generation: 4 }).includes('cell ['));
});
