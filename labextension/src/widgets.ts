/** The pill in a notebook's toolbar and the item in the status bar: one widget, two places. */

import type { ISessionContext } from '@jupyterlab/apputils';
import { Widget } from '@lumino/widgets';
import type { IKernelStates } from './tokens';
import { describe } from './words';

/** Shows the state of the kernel of one session, or of whichever session is current. */
export class Protection extends Widget {
  constructor(
    private readonly states: IKernelStates,
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
    const kernel = this.session()?.session?.kernel?.id;
    const words = kernel === undefined ? null : describe(this.states.get(kernel));
    this.node.hidden = words === null;
    this.node.textContent = words?.text ?? '';
    this.node.title = words?.more ?? '';
    this.node.dataset['tone'] = words?.tone ?? '';
  }
}
