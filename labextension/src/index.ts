/** Wires the parts together; every token that only some front ends have is optional, so that Notebook 7 works too. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import { PerdureApi } from './api';
import { tellComebacks } from './comebacks';
import { addCommands } from './commands';
import { KernelStates } from './model';
import { IKernelStates } from './tokens';
import { Protection } from './widgets';

const states: JupyterFrontEndPlugin<IKernelStates> = {
  id: '@perdure/labextension:states',
  description: 'Knows which kernels are protected.',
  autoStart: true,
  requires: [INotebookTracker],
  provides: IKernelStates,
  activate: (app: JupyterFrontEnd, tracker: INotebookTracker) =>
    new KernelStates(new PerdureApi(app.serviceManager.serverSettings), () => tracker.size > 0)
};

const plugin: JupyterFrontEndPlugin<void> = {
  id: '@perdure/labextension:plugin',
  description: 'Shows the state of a kernel and restores it.',
  autoStart: true,
  requires: [IKernelStates, INotebookTracker],
  optional: [IToolbarWidgetRegistry, IStatusBar, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    known: IKernelStates,
    tracker: INotebookTracker,
    toolbars: IToolbarWidgetRegistry | null,
    statusBar: IStatusBar | null,
    settings: ISettingRegistry | null
  ) => {
    addCommands(app, known, tracker);
    tellComebacks(known, tracker);
    toolbars?.addFactory<NotebookPanel>('Notebook', 'perdure-protection', panel => {
      const pill = new Protection(known, app.serviceManager.kernelspecs, () => panel.sessionContext);
      pill.follow(panel.sessionContext);
      return pill;
    });
    if (statusBar !== null) {
      const item = new Protection(known, app.serviceManager.kernelspecs, () => tracker.currentWidget?.sessionContext ?? null);
      item.addClass('jp-StatusBar-TextItem');
      tracker.currentChanged.connect(() => {
        item.update();
      });
      statusBar.registerStatusItem('@perdure/labextension:status', { item, align: 'left', rank: 900 });
    }
    // The schema puts our items into the notebook's toolbar once it has been loaded. No settings, no toolbar items.
    void settings?.load(plugin.id).catch(() => undefined);
  }
};

export default [states, plugin];
