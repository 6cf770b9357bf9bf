// What the calendar says of a node.
import { moment } from './format';
import { clock } from './session.svelte';
import type { NodeView, NodeWindow } from './types-hardware';

const STATES: Record<NodeWindow['kind'], string> = {
  maintenance: 'maintenance',
  block: 'kept',
  drain: 'drained',
  spot_notice: 'leaving',
};

/** Whether a window closes its node now: a node that is to be taken back takes no work from the notice on. */
function isOn(window: NodeWindow): boolean {
  return window.begins_at <= clock.now || window.kind === 'spot_notice';
}

/** The state of a node in one word. */
export function stateOf(node: NodeView): string {
  return node.admin === 'open' && node.window && isOn(node.window) ? STATES[node.window.kind] : node.admin;
}

/** `drained from 14:00 on`, if that is to come. */
export function toCome(node: NodeView): string | undefined {
  const window = node.window;
  if (!window || isOn(window)) return undefined;
  const what = window.kind === 'block' && window.held_for ? `kept for queue ${window.held_for}` : STATES[window.kind];
  const until = window.ends_at === null ? 'on' : `until ${moment(window.ends_at)}`;
  return `${what} from ${moment(window.begins_at)} ${until}`;
}
