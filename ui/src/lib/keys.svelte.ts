// Keys for the whole page, as k9s has them: `g` and a letter goes to a page, `/` to the filter, `:` to the jump box.
import { router } from './router.svelte';

export interface PageKey {
  key: string;
  label: string;
  path: string;
  icon: string;
}

export const PAGES: PageKey[] = [
  { key: 'o', label: 'Overview', path: '/', icon: 'overview' },
  { key: 'm', label: 'Map', path: '/map', icon: 'map' },
  { key: 'j', label: 'Jobs', path: '/jobs', icon: 'jobs' },
  { key: 'n', label: 'Nodes', path: '/nodes', icon: 'nodes' },
  { key: 'q', label: 'Queues', path: '/queues', icon: 'queues' },
  { key: 'w', label: 'What if', path: '/what-if', icon: 'whatif' },
  { key: 'h', label: 'Health', path: '/health', icon: 'health' },
  { key: 'b', label: 'Bill', path: '/bill', icon: 'bill' },
  { key: 'a', label: 'Audit', path: '/audit', icon: 'audit' },
];
export const SUBMIT: PageKey = { key: 's', label: 'Submit a job', path: '/submit', icon: 'plus' };

const PREFIX_MS = 1500;

class Keys {
  isHelpOpen = $state(false);
  isJumpOpen = $state(false);
  private prefixAt = 0;

  start(): void {
    document.addEventListener('keydown', (event) => this.take(event));
  }

  private take(event: KeyboardEvent): void {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target as HTMLElement;
    if (target.closest('dialog')) return;
    if (target.matches('input, textarea, select, [contenteditable]')) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    if (this.act(event.key)) event.preventDefault();
  }

  private act(key: string): boolean {
    if (Date.now() - this.prefixAt < PREFIX_MS) {
      this.prefixAt = 0;
      const page = [...PAGES, SUBMIT].find((page) => page.key === key);
      if (page) router.go(page.path);
      return page !== undefined;
    }
    if (key === 'g') this.prefixAt = Date.now();
    else if (key === ':') this.isJumpOpen = true;
    else if (key === '?') this.isHelpOpen = true;
    else if (key === '/') return focusFilter();
    else if (key === 'Escape') router.back();
    else return false;
    return true;
  }
}

function focusFilter(): boolean {
  const field = document.querySelector<HTMLInputElement>('[data-filter]');
  field?.focus();
  field?.select();
  return field !== null;
}

export const keys = new Keys();
