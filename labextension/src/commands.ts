/** What a person can ask for. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { IKernelState, IKernelStates } from './tokens';
import { clock } from './words';

export const RESTORE = 'perdure:restore';

export function addCommands(app: JupyterFrontEnd, states: IKernelStates, tracker: INotebookTracker): void {
  const current = (): IKernelState | undefined => {
    const kernel = tracker.currentWidget?.sessionContext.session?.kernel?.id;
    return kernel === undefined ? undefined : states.get(kernel);
  };
  const restorable = (): boolean => {
    const state = current();
    return state !== undefined && state.protected && state.last_snapshot !== null;
  };
  app.commands.addCommand(RESTORE, {
    label: 'Restore kernel',
    caption: 'Bring the kernel back to its newest snapshot',
    isEnabled: restorable,
    isVisible: () => current()?.protected ?? false,
    execute: async () => {
      const state = current();
      if (state?.last_snapshot === undefined || state.last_snapshot === null) {
        return;
      }
      const answer = await showDialog({
        title: 'Restore kernel?',
        body: `The kernel goes back to ${clock(state.last_snapshot.created)}. What it computed since then is lost.`,
        buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Restore' })]
      });
      if (!answer.button.accept) {
        return;
      }
      try {
        await states.restore(state.kernel_id);
      } catch (problem) {
        await showErrorMessage('The kernel was not restored', problem as Error);
      }
    }
  });
  states.changed.connect(() => {
    app.commands.notifyCommandChanged(RESTORE);
  });
}
