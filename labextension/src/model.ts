/** Polls the server while somebody looks at a notebook of ours. */

import { Poll } from '@lumino/polling';
import type { ISignal } from '@lumino/signaling';
import { Signal } from '@lumino/signaling';
import type { PerdureApi } from './api';
import type { IKernelState, IKernelStates } from './tokens';

const INTERVAL_MS = 2000;
/** A server without Perdure is asked this seldom: it may be installed and restarted under an open page. */
const LONGEST_MS = 60_000;

export class KernelStates implements IKernelStates {
  /**
   * @param watched whether anything on the page shows a kernel's state; nothing is asked while not.
   */
  constructor(
    private readonly api: PerdureApi,
    watched: () => boolean
  ) {
    this.poll = new Poll({
      name: '@perdure/labextension:kernels',
      factory: () => this.fetch(),
      frequency: { interval: INTERVAL_MS, backoff: true, max: LONGEST_MS },
      standby: () => (watched() ? 'when-hidden' : true)
    });
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get(kernelId: string): IKernelState | undefined {
    return this.states.get(kernelId);
  }

  async refresh(): Promise<void> {
    await this.poll.refresh();
    await this.poll.tick;
  }

  async restore(kernelId: string): Promise<void> {
    await this.api.restore(kernelId);
    await this.refresh();
  }

  private async fetch(): Promise<void> {
    let found: IKernelState[] = [];
    try {
      found = await this.api.kernels();
    } finally {
      // An old state is worse than none: it would say "Protected" of a server that is gone.
      this.replace(found);
    }
  }

  private replace(found: IKernelState[]): void {
    const seen = JSON.stringify(found);
    if (seen !== this.seen) {
      this.seen = seen;
      this.states = new Map(found.map(state => [state.kernel_id, state]));
      this._changed.emit();
    }
  }

  private readonly poll: Poll;
  private readonly _changed = new Signal<this, void>(this);
  private states = new Map<string, IKernelState>();
  private seen = '[]';
}
