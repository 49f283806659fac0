/** Tells the reader of a notebook that its kernel has come back: what it did after the snapshot is undone, and nothing else shows that. */

import { Notification } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { RestoreNews } from './news';
import type { IKernelStates } from './tokens';
import { comeback } from './words';

export function tellComebacks(states: IKernelStates, tracker: INotebookTracker): void {
  const news = new RestoreNews();
  /** One note per kernel: the newest says it all. */
  const notes = new Map<string, string>();
  states.changed.connect(() => {
    tracker.forEach(panel => {
      const id = panel.sessionContext.session?.kernel?.id;
      const state = id === undefined ? undefined : states.get(id);
      const restore = state === undefined ? undefined : news.of(state);
      if (state !== undefined && restore !== undefined) {
        Notification.dismiss(notes.get(state.kernel_id) ?? '');
        const text = comeback(panel.title.label, restore, state.last_snapshot);
        notes.set(state.kernel_id, Notification.info(text, { autoClose: false }));
      }
    });
  });
}
