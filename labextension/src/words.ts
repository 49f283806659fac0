/**
 * What a person reads about a kernel. The word that JupyterLab's own status uses for a kernel that waits is never used here:
 * people and tests look for it.
 */

import type { IKernelState, IRestore, ISnapshot } from './tokens';

export interface IWords {
  text: string;
  /** The tooltip: the whole story. */
  more: string;
  tone: 'good' | 'busy' | 'bad';
}

/** Nothing to say of a kernel that is not ours or that the user ended. */
export function describe(state: IKernelState | undefined): IWords | null {
  if (state === undefined || state.phase === 'dead') {
    return null;
  }
  if (!state.protected) {
    return { text: `Not protected: ${state.why}`, more: join(state.why, state.fix), tone: 'bad' };
  }
  const problem = state.last_error;
  switch (state.phase) {
    case 'starting':
      return { text: 'Starting…', more: 'The kernel is being started in its sandbox.', tone: 'busy' };
    case 'lost':
    case 'restoring':
    case 'resuming':
      return { text: 'Restoring…', more: 'The kernel is coming back from its last snapshot.', tone: 'busy' };
    case 'failed':
      return {
        text: 'Could not be restored',
        more: join(problem?.sentence, problem?.hint),
        tone: 'bad'
      };
  }
  const at = state.last_snapshot === null ? 'no snapshot yet' : clock(state.last_snapshot.created);
  if (problem !== null) {
    return { text: `Protected · ${at} · last try failed`, more: join(problem.sentence, problem.hint), tone: 'bad' };
  }
  const since =
    state.last_snapshot === null
      ? 'The first snapshot is taken when a cell has run.'
      : `Snapshot ${String(state.last_snapshot.generation)}, taken ${new Date(state.last_snapshot.created).toLocaleString()}.`;
  return { text: `Protected · ${at}`, more: since, tone: 'good' };
}

/** Hours and minutes on the reader's own clock. */
export function clock(created: string): string {
  return new Date(created).toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });
}

/** To the second and with the cell: of what was done in the same minute, this tells what was kept. */
export function moment(snapshot: ISnapshot): string {
  const time = new Date(snapshot.created).toLocaleTimeString([], { hour12: false });
  return snapshot.execution_count === null ? time : `${time}, cell [${String(snapshot.execution_count)}]`;
}

/** Short: JupyterLab cuts notes at 140 characters. `newest` may already be a later snapshot than the one that was restored. */
export function comeback(notebook: string, restore: IRestore, newest: ISnapshot | null): string {
  const when = newest?.generation === restore.generation ? ` as of ${moment(newest)}` : '';
  return `The kernel of ${notebook} is back${when}: ${restore.reason}. What it did later is undone.`;
}

function join(...parts: (string | undefined)[]): string {
  return parts.filter(part => part !== undefined && part !== '').join(' ');
}
