/** The pill in a notebook's toolbar and the item in the status bar: one widget, two places. */

import type { ISessionContext } from '@jupyterlab/apputils';
import type { KernelSpec } from '@jupyterlab/services';
import { Widget } from '@lumino/widgets';
import { isOurs } from './specs';
import type { IKernelStates } from './tokens';
import { describe } from './words';

/** Shows the state of the kernel of one session, or of whichever session is current. */
export class Protection extends Widget {
  /**
   * @param session the session that it is about, now.
   */
  constructor(
    private readonly states: IKernelStates,
    private readonly specs: KernelSpec.IManager,
    private readonly session: () => ISessionContext | null
  ) {
    super();
    this.addClass('perdure-Protection');
    this.node.setAttribute('role', 'status');
    states.changed.connect(this.show_, this);
    this.show_();
  }

  /** Follow this session's changes of kernel. */
  follow(session: ISessionContext): void {
    session.kernelChanged.connect(this.ask, this);
    session.statusChanged.connect(this.show_, this);
  }

  /** To be called when `session` would give another one. */
  override onUpdateRequest(): void {
    this.show_();
  }

  private ask(): void {
    void this.states.refresh();
  }

  private show_(): void {
    const kernel = this.session()?.session?.kernel ?? null;
    const words = kernel !== null && isOurs(this.specs.specs, kernel) ? describe(this.states.get(kernel.id)) : null;
    this.node.hidden = words === null;
    this.node.textContent = words?.text ?? '';
    this.node.title = words?.more ?? '';
    this.node.dataset['tone'] = words?.tone ?? '';
  }
}
