/** The words between the parts, and between other extensions and this one. No side effects. */

import { Token } from '@lumino/coreutils';
import type { ISignal } from '@lumino/signaling';

/** One published snapshot, as far as a page shows it. */
export interface ISnapshot {
  generation: number;
  /** UTC, RFC 3339. */
  created: string;
  /** The number of the cell that had run last, or was running; null where the kernel never told. */
  execution_count: number | null;
}

/** One comeback of a kernel. */
export interface IRestore {
  /** UTC, RFC 3339. */
  at: string;
  generation: number;
  /** The middle of a sentence: "it was ended by signal 9". */
  reason: string;
}

/** An error of the agent: one sentence, and what to do about it. */
export interface IProblem {
  code: string;
  sentence: string;
  hint: string;
}

/** What the server knows of one kernel. */
export interface IKernelState {
  kernel_id: string;
  protected: boolean;
  /** Why it is not protected; empty when it is. */
  why: string;
  /** The command or setting that mends it; may be empty. */
  fix: string;
  /** One of Perdure's phases (docs/architecture.md); empty when not protected. */
  phase: string;
  last_snapshot: ISnapshot | null;
  last_error: IProblem | null;
  /** Of this incarnation of the kernel, oldest first. */
  restores: IRestore[];
}

/** The state of every kernel of this server that Perdure started. */
export interface IKernelStates {
  /** Emitted after each answer of the server that differs from the one before. */
  readonly changed: ISignal<IKernelStates, void>;
  /** Nothing is known of kernels that are not Perdure's, nor while the server has no Perdure. */
  get(kernelId: string): IKernelState | undefined;
  /** Ask the server now instead of at the next turn. */
  refresh(): Promise<void>;
  /** Bring a kernel back to its newest snapshot. Rejects with the server's sentence. */
  restore(kernelId: string): Promise<void>;
}

export const IKernelStates = new Token<IKernelStates>(
  '@perdure/labextension:IKernelStates',
  'Which kernels are protected, and how they are.'
);
