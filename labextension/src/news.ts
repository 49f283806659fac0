/** Which restores a page has not told yet. */

import type { IKernelState, IRestore } from './tokens';

export class RestoreNews {
  /** The newest restore, if it was done since the last call about this kernel; the first call only takes note. */
  of(state: IKernelState): IRestore | undefined {
    const newest = state.restores.at(-1);
    const before = this.told.get(state.kernel_id);
    this.told.set(state.kernel_id, newest?.at ?? '');
    return before === undefined || newest === undefined || newest.at === before ? undefined : newest;
  }

  private readonly told = new Map<string, string>();
}
