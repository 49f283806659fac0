/** The server extension's addresses. Nothing else here knows HTTP. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import type { IKernelState, IProblem } from './tokens';

/** An answer that was not 2xx; the message is a sentence for a person. */
export class RequestFailed extends Error {
  constructor(
    readonly status: number,
    message: string
  ) {
    super(message);
  }
}

export class PerdureApi {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  async kernels(): Promise<IKernelState[]> {
    const answer = (await this.request('GET', 'kernels')) as { kernels: IKernelState[] };
    return answer.kernels;
  }

  async restore(kernelId: string): Promise<void> {
    await this.request('POST', `kernels/${encodeURIComponent(kernelId)}/restore`, { generation: null });
  }

  private async request(method: string, path: string, body?: object): Promise<unknown> {
    const url = URLExt.join(this.settings.baseUrl, 'perdure', 'api', path);
    const init: RequestInit = body === undefined ? { method } : { method, body: JSON.stringify(body) };
    const response = await ServerConnection.makeRequest(url, init, this.settings);
    const text = await response.text();
    if (!response.ok) {
      throw new RequestFailed(response.status, sentence(text) ?? `The server answered ${String(response.status)}.`);
    }
    return text === '' ? null : JSON.parse(text);
  }
}

/** The sentence and hint in an error's body, which may also be a proxy's HTML. */
function sentence(text: string): string | undefined {
  try {
    const body = JSON.parse(text) as { error?: Partial<IProblem>; message?: string } | null;
    const parts = [body?.error?.sentence ?? body?.message, body?.error?.hint];
    const words = parts.filter(part => part !== undefined && part !== '').join(' ');
    return words === '' ? undefined : words;
  } catch {
    return undefined;
  }
}
