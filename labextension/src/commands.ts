/** What a person can ask for. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, showDialog, showErrorMessage } from '@jupyterlab/apputils';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { IKernelState, IKernelStates } from './tokens';
import { moment } from './words';

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
        body: `The kernel goes back to ${moment(state.last_snapshot)}. What it computed since then is lost.`,
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
  const look = (): void => {
    app.commands.notifyCommandChanged(RESTORE);
  };
  states.changed.connect(look);
  // The kernel of a notebook that has just been opened may be known long before the notebook has it.
  tracker.currentChanged.connect(look);
  tracker.widgetAdded.connect((_, panel) => {
    panel.sessionContext.kernelChanged.connect(look);
  });
}
