/** Which kernels asked for Perdure: a plain one is not "not protected", it is none of our business. */

import type { Kernel, KernelSpec } from '@jupyterlab/services';

const PROVISIONER = 'perdure-provisioner';

/** A kernel whose spec is not known (a remote one, say) is nobody's. */
export function isOurs(specs: KernelSpec.ISpecModels | null, kernel: Kernel.IKernelConnection): boolean {
  const chosen = specs?.kernelspecs[kernel.name]?.metadata?.['kernel_provisioner'] as { provisioner_name?: string } | undefined;
  return chosen?.provisioner_name === PROVISIONER;
}
