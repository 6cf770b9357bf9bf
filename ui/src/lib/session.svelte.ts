// Who is signed in, what that person may do, the clock of the server, the theme, and short messages.
import { ApiError, forgetToken, read, readToken, setToken, whenRefused } from './api';
import { documents } from './store.svelte';
import { stream } from './stream.svelte';
import type { JobView, WhoAmI } from './types';

const THEME_KEY = 'phalanx-theme';
export type Theme = 'auto' | 'light' | 'dark';

class Session {
  who = $state.raw<WhoAmI | null>(null);
  isSignedOut = $state(false);
  /** Why the last sign-in failed. */
  refused = $state('');

  start(): void {
    whenRefused(() => this.signOut('The daemon does not accept this token; it may have expired.'));
    if (readToken()) void this.enter();
    else this.isSignedOut = true;
    // The address may get a token later, when the user opens a new address of `phalanx dashboard` in this tab.
    window.addEventListener('hashchange', () => {
      if (readToken()) void this.enter();
    });
  }

  signIn(token: string): void {
    setToken(token);
    void this.enter();
  }

  signOut(why = ''): void {
    forgetToken();
    stream.end();
    documents.clear();
    this.who = null;
    this.refused = why;
    this.isSignedOut = true;
  }

  get canSubmit(): boolean {
    return this.who !== null && this.who.role !== 'viewer';
  }

  get canOperate(): boolean {
    return this.who?.role === 'operator' || this.who?.role === 'admin';
  }

  /** Whether the user may ask what would happen; of a viewer, the server knows whose token it is. */
  get canForecast(): boolean {
    return this.who !== null && this.who.role !== 'user';
  }

  canChange(job: JobView): boolean {
    return this.canOperate || (this.canSubmit && this.who?.uid === job.uid);
  }

  private async enter(): Promise<void> {
    try {
      const { data } = await read<WhoAmI>('/whoami');
      if (!data) return;
      this.who = data;
      clock.set(data.now);
      this.refused = '';
      this.isSignedOut = false;
      stream.start();
    } catch (error) {
      if (error instanceof ApiError && error.problem.status === 401) return;
      // The daemon is away: pages say so, and this asks again.
      setTimeout(() => void this.enter(), 2000);
    }
  }
}

/** The time of the server, to the second: ages on screen must not depend on the clock of the browser. */
class Clock {
  now = $state(Date.now());
  private offset = 0;

  constructor() {
    setInterval(() => (this.now = Date.now() + this.offset), 1000);
  }

  set(now: number): void {
    this.offset = now - Date.now();
    this.now = now;
  }
}

class Look {
  theme = $state<Theme>('auto');
  /** Whether the page is dark now; the canvas needs to know. */
  isDark = $state(false);

  start(): void {
    const saved = localStorage.getItem(THEME_KEY);
    const query = matchMedia('(prefers-color-scheme: dark)');
    query.addEventListener('change', () => this.apply());
    this.set(saved === 'light' || saved === 'dark' ? saved : 'auto');
  }

  toggle(): void {
    this.set(this.isDark ? 'light' : 'dark');
  }

  private set(theme: Theme): void {
    this.theme = theme;
    if (theme === 'auto') localStorage.removeItem(THEME_KEY);
    else localStorage.setItem(THEME_KEY, theme);
    this.apply();
  }

  private apply(): void {
    const isSystemDark = matchMedia('(prefers-color-scheme: dark)').matches;
    this.isDark = this.theme === 'dark' || (this.theme === 'auto' && isSystemDark);
    document.documentElement.dataset.theme = this.isDark ? 'dark' : 'light';
  }
}

export interface Notice {
  id: number;
  text: string;
  hint: string;
  isError: boolean;
}

class Notices {
  list = $state.raw<Notice[]>([]);
  private next = 1;

  say(text: string): void {
    this.add(text, '', false);
  }

  fail(error: unknown): void {
    if (error instanceof ApiError) this.add(error.problem.detail, error.problem.hint ?? '', true);
    else this.add(String(error), '', true);
  }

  drop(id: number): void {
    this.list = this.list.filter((notice) => notice.id !== id);
  }

  private add(text: string, hint: string, isError: boolean): void {
    const id = this.next++;
    this.list = [...this.list.slice(-2), { id, text, hint, isError }];
    setTimeout(() => this.drop(id), isError ? 12_000 : 5000);
  }
}

export const clock = new Clock();
export const session = new Session();
export const look = new Look();
export const notices = new Notices();
